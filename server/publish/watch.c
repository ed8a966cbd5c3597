#include "server/publish/watch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct eb_watch_entry {
    uv_fs_event_t handle;
    struct eb_watch *watch;
    struct eb_watch_entry *next;
    dev_t device; /* of what is watched, which may no longer be what the path leads to */
    ino_t inode;
    bool is_seen;
    bool is_stale; /* it may have gone, and another one have its number */
    char path[];
};

static void on_watched_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_entry(struct eb_watch_entry *entry)
{
    uv_close((uv_handle_t *)&entry->handle, on_watched_closed);
}

static void on_watched_event(uv_fs_event_t *handle, const char *name, int events, int status)
{
    struct eb_watch_entry *entry = handle->data;
    const char *slash = strrchr(entry->path, '/');
    const char *own_name = slash ? slash + 1 : entry->path;
    (void)status;
    /* What befalls the directory itself comes under its own name. */
    entry->is_stale =
        entry->is_stale || ((events & UV_RENAME) && name && strcmp(name, own_name) == 0);
    entry->watch->on_change(entry->watch->context);
}

static struct eb_watch_entry *find_watch(
    const struct eb_watch *watch, const char *path, const struct stat *status)
{
    for (struct eb_watch_entry *entry = watch->entries; entry; entry = entry->next) {
        if (!entry->is_stale && entry->device == status->st_dev && entry->inode == status->st_ino &&
            strcmp(entry->path, path) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* 0 or a negative libuv code. */
static int add_watch(struct eb_watch *watch, const char *path, const struct stat *status)
{
    struct eb_watch_entry *entry = calloc(1, sizeof *entry + strlen(path) + 1);
    if (!entry) {
        return UV_ENOMEM;
    }
    entry->watch = watch;
    entry->device = status->st_dev;
    entry->inode = status->st_ino;
    entry->is_seen = true;
    strcpy(entry->path, path);
    entry->handle.data = entry;
    int code = uv_fs_event_init(watch->loop, &entry->handle);
    if (code < 0) {
        free(entry);
        return code;
    }
    code = uv_fs_event_start(&entry->handle, on_watched_event, path, 0);
    if (code < 0) {
        close_entry(entry);
        return code;
    }
    entry->next = watch->entries;
    watch->entries = entry;
    return 0;
}

/* Whether no other directory can be watched either. */
static bool is_exhausted(int code)
{
    return code == UV_ENOSPC || code == UV_EMFILE || code == UV_ENFILE || code == UV_ENOMEM;
}

/* Whether it was not watched before. What is gone is of no interest: its parent will tell. */
static bool see(struct eb_watch *watch, const char *path, int *error)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        return false;
    }
    struct eb_watch_entry *entry = find_watch(watch, path, &status);
    if (entry) {
        entry->is_seen = true;
        return false;
    }
    int code = add_watch(watch, path, &status);
    *error = is_exhausted(code) ? code : *error;
    return code == 0;
}

static void close_unseen(struct eb_watch *watch)
{
    struct eb_watch_entry **link = &watch->entries;
    while (*link) {
        struct eb_watch_entry *entry = *link;
        if (entry->is_seen) {
            entry->is_seen = false;
            link = &entry->next;
        } else {
            *link = entry->next;
            close_entry(entry);
        }
    }
}

bool eb_watch_update(
    struct eb_watch *watch, const char *directory, const struct eb_repository *seen, int *error)
{
    *error = 0;
    bool is_new = see(watch, directory, error);
    for (size_t i = 0; i < seen->count; i++) {
        is_new = see(watch, seen->models[i].path, error) || is_new;
    }
    close_unseen(watch);
    return is_new;
}

void eb_watch_close(struct eb_watch *watch)
{
    while (watch->entries) {
        struct eb_watch_entry *entry = watch->entries;
        watch->entries = entry->next;
        close_entry(entry);
    }
}
