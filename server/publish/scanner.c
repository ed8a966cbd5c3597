#include "server/publish/scanner.h"

#include "proto/list.h"
#include "server/base/log.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- watch ---- */

struct eb_watch_entry {
    uv_fs_event_t handle;
    struct eb_watch *watch;
    struct eb_watch_entry *next;
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
    /* Events of the directory itself come under its own name. */
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

/* Returns 0 or a negative libuv code. */
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

/* Watches a directory. Returns whether it was not watched before. Ignores a missing one, because
 * its parent reports the change. */
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
    int rc = add_watch(watch, path, &status);
    *error = is_exhausted(rc) ? rc : *error;
    return rc == 0;
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

/* ---- scanner ---- */

/* Time from the first event to the scan, because the events of one rename or copy come together. */
#define SETTLE_MS 20

/* Logs once why the repository cannot be read. */
static void note_scanner_failure(struct eb_scanner *scanner, const char *why)
{
    if (why && !(scanner->told_failure && strcmp(scanner->told_failure, why) == 0)) {
        eb_log(EB_LOG_WARN, "repository_unreadable", eb_log_text("reason", why),
            eb_log_text("remedy", "check the directory and its permissions; until it can be read, "
                                  "models stay as they are"));
    }
    free(scanner->told_failure);
    scanner->told_failure = why ? strdup(why) : NULL;
}

static void watch(struct eb_scanner *scanner)
{
    int error;
    if (!scanner->is_watching) {
        return;
    }
    if (eb_watch_update(&scanner->watch, scanner->directory, &scanner->seen, &error)) {
        scanner->is_asked = true;
    }
    if (error < 0) {
        scanner->is_watching = false;
        eb_watch_close(&scanner->watch);
        eb_log(EB_LOG_WARN, "watch_failed", eb_log_text("reason", uv_strerror(error)),
            eb_log_number("poll_ms", (int64_t)scanner->poll_ms),
            eb_log_text("remedy", "raise fs.inotify.max_user_watches or max_user_instances; "
                                  "until a restart the server scans the directories instead"));
    }
}

static void take_over(struct eb_scanner *scanner)
{
    note_scanner_failure(scanner, scanner->is_good ? NULL : scanner->failure.text);
    if (scanner->is_good) {
        eb_repository_deinit(&scanner->seen);
        scanner->seen = scanner->found;
        scanner->found = (struct eb_repository){0};
        watch(scanner);
    }
}

static void on_scan_done(struct eb_job *job)
{
    struct eb_scanner *scanner = EB_CONTAINER_OF(job, struct eb_scanner, job);
    scanner->is_busy = false;
    if (scanner->is_stopping) {
        eb_repository_deinit(&scanner->found);
        scanner->on_scanned(scanner->context, false);
        return;
    }
    take_over(scanner);
    bool is_asked = scanner->is_asked;
    scanner->is_asked = false;
    scanner->on_scanned(scanner->context, scanner->is_good);
    if (is_asked) {
        eb_scanner_scan(scanner);
    }
}

/* Scans the repository. `seen` does not change meanwhile. */
static void run_scan(struct eb_job *job)
{
    struct eb_scanner *scanner = EB_CONTAINER_OF(job, struct eb_scanner, job);
    scanner->is_good = eb_repository_scan(scanner->directory, scanner->name_bytes_max,
        &scanner->seen, &scanner->found, &scanner->failure);
}

void eb_scanner_scan(struct eb_scanner *scanner)
{
    if (scanner->is_stopping) {
        return;
    }
    if (scanner->is_busy) {
        scanner->is_asked = true;
        return;
    }
    scanner->is_busy = true;
    scanner->on_begun(scanner->context);
    scanner->job = (struct eb_job){.run = run_scan, .done = on_scan_done};
    eb_worker_post(&scanner->worker, &scanner->job);
}

static void on_scanner_timer(uv_timer_t *timer)
{
    eb_scanner_scan(timer->data);
}

static void on_change(void *context)
{
    struct eb_scanner *scanner = context;
    if (!uv_is_active((uv_handle_t *)&scanner->settle)) {
        uv_timer_start(&scanner->settle, on_scanner_timer, SETTLE_MS, 0);
    }
}

int eb_scanner_start(struct eb_scanner *scanner, uv_loop_t *loop)
{
    int rc = eb_worker_start(&scanner->worker, loop);
    if (rc < 0) {
        return rc;
    }
    eb_worker_give_way(&scanner->worker);
    scanner->is_running = true;
    uv_timer_init(loop, &scanner->poll);
    uv_timer_init(loop, &scanner->settle);
    scanner->poll.data = scanner;
    scanner->settle.data = scanner;
    scanner->watch = (struct eb_watch){.loop = loop, .on_change = on_change, .context = scanner};
    if (scanner->poll_ms > 0) {
        uv_timer_start(&scanner->poll, on_scanner_timer, scanner->poll_ms, scanner->poll_ms);
        eb_scanner_scan(scanner);
    }
    return 0;
}

void eb_scanner_stop(struct eb_scanner *scanner)
{
    scanner->is_stopping = true;
    if (!scanner->is_running) {
        return;
    }
    eb_watch_close(&scanner->watch);
    uv_close((uv_handle_t *)&scanner->poll, NULL);
    uv_close((uv_handle_t *)&scanner->settle, NULL);
}

void eb_scanner_close(struct eb_scanner *scanner)
{
    assert(scanner->is_stopping && !scanner->is_busy);
    if (scanner->is_running) {
        eb_worker_stop(&scanner->worker);
    }
}

void eb_scanner_deinit(struct eb_scanner *scanner)
{
    eb_repository_deinit(&scanner->seen);
    free(scanner->told_failure);
    scanner->told_failure = NULL;
}
