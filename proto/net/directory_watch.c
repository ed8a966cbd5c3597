#include "proto/net/directory_watch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct eb_directory_watch_entry {
    uv_fs_event_t handle;
    struct eb_directory_watch *watch;
    struct eb_directory_watch_entry *next;
    dev_t device; /* device of the watched directory; `path` may lead to another one by now */
    ino_t inode;
    bool is_seen;
    bool is_stale; /* the directory may be gone, and its inode number used by another one */
    char path[];
};

static void on_watched_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_entry(struct eb_directory_watch_entry *entry)
{
    uv_close((uv_handle_t *)&entry->handle, on_watched_closed);
}

static void on_watched_event(uv_fs_event_t *handle, const char *name, int events, int status)
{
    struct eb_directory_watch_entry *entry = handle->data;
    const char *slash = strrchr(entry->path, '/');
    const char *own_name = slash ? slash + 1 : entry->path;
    (void)status;
    /* Events of the directory itself come under its own name. */
    entry->is_stale =
        entry->is_stale || ((events & UV_RENAME) && name && strcmp(name, own_name) == 0);
    entry->watch->on_change(entry->watch->context);
}

static struct eb_directory_watch_entry *find_watch(
    const struct eb_directory_watch *watch, const char *path, const struct stat *status)
{
    for (struct eb_directory_watch_entry *entry = watch->entries; entry; entry = entry->next) {
        if (!entry->is_stale && entry->device == status->st_dev && entry->inode == status->st_ino &&
            strcmp(entry->path, path) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* Returns 0 or a negative libuv code. */
static int add_watch(struct eb_directory_watch *watch, const char *path, const struct stat *status)
{
    struct eb_directory_watch_entry *entry = calloc(1, sizeof *entry + strlen(path) + 1);
    if (!entry) {
        return UV_ENOMEM;
    }
    entry->watch = watch;
    entry->device = status->st_dev;
    entry->inode = status->st_ino;
    entry->is_seen = true;
    strcpy(entry->path, path);
    entry->handle.data = entry;
    int rc = uv_fs_event_init(watch->loop, &entry->handle);
    if (rc < 0) {
        free(entry);
        return rc;
    }
    rc = uv_fs_event_start(&entry->handle, on_watched_event, path, 0);
    if (rc < 0) {
        close_entry(entry);
        return rc;
    }
    entry->next = watch->entries;
    watch->entries = entry;
    return 0;
}

/* Returns whether the error means that no further directory can be watched. */
static bool is_exhausted(int rc)
{
    return rc == UV_ENOSPC || rc == UV_EMFILE || rc == UV_ENFILE || rc == UV_ENOMEM;
}

bool eb_directory_watch_see(struct eb_directory_watch *watch, const char *path, int *error)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        return false;
    }
    struct eb_directory_watch_entry *entry = find_watch(watch, path, &status);
    if (entry) {
        entry->is_seen = true;
        return false;
    }
    int rc = add_watch(watch, path, &status);
    *error = is_exhausted(rc) ? rc : *error;
    return rc == 0;
}

void eb_directory_watch_keep_seen(struct eb_directory_watch *watch)
{
    struct eb_directory_watch_entry **link = &watch->entries;
    while (*link) {
        struct eb_directory_watch_entry *entry = *link;
        if (entry->is_seen) {
            entry->is_seen = false;
            link = &entry->next;
        } else {
            *link = entry->next;
            close_entry(entry);
        }
    }
}

void eb_directory_watch_close(struct eb_directory_watch *watch)
{
    while (watch->entries) {
        struct eb_directory_watch_entry *entry = watch->entries;
        watch->entries = entry->next;
        close_entry(entry);
    }
}
