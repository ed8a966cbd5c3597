#include "proto/net/file_watch.h"

#include "proto/list.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCAN_MS 250       /* least time between two scans */
#define NO_THREAD_MS 1000 /* time until the next try if there is no thread for a scan */
#define LINKS_MAX 40      /* most symbolic links on the way to a file, as in the kernel */

/* ---- lists of files ---- */

static void take_stamp(const char *path, struct eb_watched_stamp *stamp)
{
    struct stat status;
    *stamp = (struct eb_watched_stamp){.error = 0};
    if (stat(path, &status) != 0) {
        stamp->error = errno;
        return;
    }
    stamp->device = status.st_dev;
    stamp->inode = status.st_ino;
    stamp->bytes = status.st_size;
    stamp->written = status.st_mtim;
    stamp->changed = status.st_ctim;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool eb_watched_stamp_is_same(
    const struct eb_watched_stamp *stamp, const struct eb_watched_stamp *other)
{
    return stamp->error == other->error && stamp->device == other->device &&
           stamp->inode == other->inode && stamp->bytes == other->bytes &&
           is_same_time(&stamp->written, &other->written) &&
           is_same_time(&stamp->changed, &other->changed);
}

static bool grow_file_list(struct eb_file_list *list)
{
    size_t capacity = list->capacity > 0 ? 2 * list->capacity : 4;
    struct eb_watched_file *files = realloc(list->files, capacity * sizeof *files);
    if (files) {
        list->files = files;
        list->capacity = capacity;
    }
    return files;
}

bool eb_file_list_add(struct eb_file_list *list, const char *path)
{
    if (list->count == EB_FILE_LIST_MAX ||
        (list->count == list->capacity && !grow_file_list(list))) {
        return false;
    }
    struct eb_watched_file *file = &list->files[list->count];
    file->path = strdup(path);
    if (!file->path) {
        return false;
    }
    take_stamp(path, &file->stamp);
    list->count++;
    return true;
}

void eb_file_list_deinit(struct eb_file_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->files[i].path);
    }
    free(list->files);
    *list = (struct eb_file_list){.files = NULL};
}

/* ---- directories of a path ---- */

/* Directories without repetition, by their paths. */
struct directory_set {
    size_t count;
    char *paths[EB_FILE_WATCH_DIRECTORIES_MAX];
};

static void clear_directory_set(struct directory_set *set)
{
    while (set->count > 0) {
        free(set->paths[--set->count]);
    }
}

/* Adds a directory, unless the set is full or memory is short. Changes in that directory are then
 * noticed only by polling. */
static void add_directory(struct directory_set *set, const char *path)
{
    for (size_t i = 0; i < set->count; i++) {
        if (strcmp(set->paths[i], path) == 0) {
            return;
        }
    }
    char *copy = set->count < EB_FILE_WATCH_DIRECTORIES_MAX ? strdup(path) : NULL;
    if (copy) {
        set->paths[set->count++] = copy;
    }
}

/* A path on its way through the file system: `at` has no links, `rest` is still to be followed. */
struct path_walk {
    char at[PATH_MAX];
    char rest[PATH_MAX];
};

/* Puts a path before the rest. Returns false if it is too long. */
static bool push_path(struct path_walk *walk, const char *path)
{
    char joined[PATH_MAX];
    int bytes = snprintf(joined, sizeof joined, "%s/%s", path, walk->rest);
    if (bytes < 0 || bytes >= PATH_MAX) {
        return false;
    }
    if (*path == '/') {
        (void)strcpy(walk->at, "/");
    }
    memcpy(walk->rest, joined, (size_t)bytes + 1);
    return true;
}

/* Removes the next name from the rest of the path. Returns false if no name is left, or if the name
 * is too long. */
static bool take_name(struct path_walk *walk, char name[NAME_MAX + 1])
{
    char *start = walk->rest + strspn(walk->rest, "/");
    size_t bytes = strcspn(start, "/");
    if (bytes == 0 || bytes > NAME_MAX) {
        return false;
    }
    memcpy(name, start, bytes);
    name[bytes] = '\0';
    memmove(walk->rest, start + bytes, strlen(start + bytes) + 1);
    return true;
}

/* Sets `out` to the path of a name in the directory `at`. Returns false if it is too long. */
static bool join_name(const char *at, const char *name, char out[PATH_MAX])
{
    bool is_root = strcmp(at, "/") == 0;
    int bytes = snprintf(out, PATH_MAX, "%s/%s", is_root ? "" : at, name);
    return bytes > 0 && bytes < PATH_MAX;
}

/* Goes from an absolute `at` to its parent. */
static void leave_directory(struct path_walk *walk)
{
    char *slash = strrchr(walk->at, '/');
    slash[slash == walk->at] = '\0'; /* The parent of the root is the root. */
}

/* Follows the next name of the path. If it is a link, the last name or missing, adds its directory.
 * Returns whether the walk goes on. */
static bool step_walk(struct path_walk *walk, struct directory_set *set, unsigned *link_count)
{
    char name[NAME_MAX + 1];
    char path[PATH_MAX];
    char target[PATH_MAX];
    struct stat status;
    if (!take_name(walk, name)) {
        return false;
    }
    if (strcmp(name, "..") == 0 && walk->at[0] == '/') {
        leave_directory(walk);
        return true;
    }
    if (!join_name(walk->at, name, path) || lstat(path, &status) != 0) {
        add_directory(set, walk->at);
        return false;
    }
    if (S_ISLNK(status.st_mode)) {
        add_directory(set, walk->at);
        ssize_t bytes = readlink(path, target, sizeof target - 1);
        if (bytes <= 0 || ++*link_count > LINKS_MAX) {
            return false;
        }
        target[bytes] = '\0';
        return push_path(walk, target);
    }
    if (!S_ISDIR(status.st_mode)) {
        add_directory(set, walk->at);
        return false;
    }
    (void)strcpy(walk->at, path);
    return true;
}

/* Adds the directories in which a change can make the path lead to another file, or the file itself
 * can be written. */
static void add_directories(struct directory_set *set, const char *path)
{
    struct path_walk walk = {.at = "."};
    unsigned link_count = 0;
    if (push_path(&walk, path)) {
        while (step_walk(&walk, set, &link_count)) {
        }
    }
}

/* ---- scans ---- */

/* A list of files with the results of its scans. During a scan, the background thread reads the
 * paths and writes `found` and `directories`. */
struct eb_file_watch_list {
    struct eb_file_list files;        /* with the stamps that were reported last */
    struct directory_set directories; /* as the last scan found them */
    bool is_finding;                  /* the scan under way finds the directories too */
    struct eb_watched_stamp *seen;    /* [files.count] stamps of the scan before */
    struct eb_watched_stamp *found;   /* [files.count] stamps of the last scan */
    struct eb_watched_stamp stamps[]; /* [2 * files.count] */
};

/* Takes the memory of `files` in any case. Returns NULL if out of memory. */
static struct eb_file_watch_list *create_watch_list(struct eb_file_list *files)
{
    struct eb_file_watch_list *list =
        calloc(1, sizeof *list + 2 * files->count * sizeof list->stamps[0]);
    if (!list) {
        eb_file_list_deinit(files);
        return NULL;
    }
    list->files = *files;
    *files = (struct eb_file_list){.files = NULL};
    list->seen = list->stamps;
    list->found = list->stamps + list->files.count;
    for (size_t i = 0; i < list->files.count; i++) {
        list->seen[i] = list->files.files[i].stamp;
    }
    return list;
}

static void destroy_watch_list(struct eb_file_watch_list *list)
{
    if (list) {
        clear_directory_set(&list->directories);
        eb_file_list_deinit(&list->files);
        free(list);
    }
}

/* Runs on a thread of its own. */
static void run_scan(struct eb_background_task *scan)
{
    struct eb_file_watch_list *list = EB_CONTAINER_OF(scan, struct eb_file_watch, scan)->current;
    if (list->is_finding) {
        clear_directory_set(&list->directories);
    }
    for (size_t i = 0; i < list->files.count; i++) {
        const char *path = list->files.files[i].path;
        if (list->is_finding) {
            add_directories(&list->directories, path);
        }
        take_stamp(path, &list->found[i]);
    }
}

static void start_watch_timer(struct eb_file_watch *watch, uint64_t wait_ms);

static void begin_scan(struct eb_file_watch *watch)
{
    watch->current->is_finding = watch->is_touched && !watch->options.is_polling_only;
    watch->is_hurrying = !eb_background_task_start(&watch->scan);
    if (watch->is_hurrying) {
        start_watch_timer(watch, NO_THREAD_MS);
    } else {
        watch->is_touched = false;
    }
}

static void on_watch_timer(uv_timer_t *timer)
{
    begin_scan(EB_CONTAINER_OF(timer, struct eb_file_watch, timer));
}

static void start_watch_timer(struct eb_file_watch *watch, uint64_t wait_ms)
{
    int rc = uv_timer_start(&watch->timer, on_watch_timer, wait_ms, 0);
    assert(rc == 0);
}

/* Scans again as soon as scans may follow each other. */
static void hurry(struct eb_file_watch *watch)
{
    if (!watch->scan.is_running && !watch->is_hurrying) {
        uint64_t since_ms = uv_now(watch->loop) - watch->scanned_ms;
        watch->is_hurrying = true;
        start_watch_timer(watch, since_ms < SCAN_MS ? SCAN_MS - since_ms : 0);
    }
}

static void on_directory_change(void *context)
{
    struct eb_file_watch *watch = context;
    watch->is_touched = true;
    hurry(watch);
}

/* Watches the directories that the scan has found. Returns whether some are new. */
static bool watch_found_directories(struct eb_file_watch *watch)
{
    const struct directory_set *found = &watch->current->directories;
    bool is_new = false;
    int error = 0;
    for (size_t i = 0; i < found->count; i++) {
        is_new = eb_directory_watch_see(&watch->directories, found->paths[i], &error) || is_new;
    }
    eb_directory_watch_keep_seen(&watch->directories);
    if (error < 0 && !watch->is_unreported && watch->options.on_unreported) {
        watch->options.on_unreported(watch->options.context, error);
    }
    watch->is_unreported = error < 0;
    return is_new;
}

/* Makes the stamps that were found the ones that were seen. Returns whether they are the same. */
static bool see_stamps(struct eb_file_watch_list *list)
{
    bool is_same = true;
    for (size_t i = 0; i < list->files.count; i++) {
        is_same = is_same && eb_watched_stamp_is_same(&list->seen[i], &list->found[i]);
        list->seen[i] = list->found[i];
    }
    return is_same;
}

static bool is_reported(const struct eb_file_watch_list *list)
{
    bool is_same = true;
    for (size_t i = 0; i < list->files.count; i++) {
        is_same = is_same && eb_watched_stamp_is_same(&list->seen[i], &list->files.files[i].stamp);
    }
    return is_same;
}

static void report_change(struct eb_file_watch *watch)
{
    struct eb_file_watch_list *list = watch->current;
    for (size_t i = 0; i < list->files.count; i++) {
        list->files.files[i].stamp = list->seen[i];
    }
    watch->options.on_change(watch->options.context);
}

static void replace_watch_list(struct eb_file_watch *watch, struct eb_file_watch_list *list)
{
    destroy_watch_list(watch->current);
    watch->current = list;
    watch->is_touched = true;
    hurry(watch);
}

/* Decides what follows a scan: a call of on_change, a scan soon, or one when it is time to poll. */
static void settle_scan(struct eb_file_watch *watch)
{
    struct eb_file_watch_list *list = watch->current;
    uint64_t now_ms = uv_now(watch->loop);
    bool must_hurry = list->is_finding && watch_found_directories(watch);
    watch->scanned_ms = now_ms;
    if (!see_stamps(list)) {
        watch->changed_ms = now_ms;
        watch->is_touched = true;
    }
    bool is_due = !is_reported(list);
    bool is_quiet = now_ms - watch->changed_ms >= watch->options.quiet_ms;
    if (must_hurry || watch->is_touched || (is_due && !is_quiet)) {
        hurry(watch);
    } else if (watch->options.poll_ms > 0) {
        start_watch_timer(watch, watch->options.poll_ms);
    }
    if (is_due && is_quiet) {
        report_change(watch);
    }
}

static void on_scan_over(struct eb_background_task *scan)
{
    struct eb_file_watch *watch = EB_CONTAINER_OF(scan, struct eb_file_watch, scan);
    struct eb_file_watch_list *next = watch->next;
    watch->next = NULL;
    if (watch->is_stopped) {
        destroy_watch_list(watch->current);
        watch->current = NULL;
    } else if (next) {
        replace_watch_list(watch, next);
    } else {
        settle_scan(watch);
    }
}

/* ---- life ---- */

int eb_file_watch_start(
    struct eb_file_watch *watch, uv_loop_t *loop, const struct eb_file_watch_options *options)
{
    struct eb_file_list files = options->files;
    *watch = (struct eb_file_watch){
        .options = *options,
        .loop = loop,
        .directories = {.loop = loop, .on_change = on_directory_change, .context = watch},
        .scan = {.run = run_scan, .done = on_scan_over},
    };
    watch->options.files = (struct eb_file_list){.files = NULL};
    if (watch->options.quiet_ms == 0) {
        watch->options.quiet_ms = EB_FILE_WATCH_QUIET_MS;
    }
    struct eb_file_watch_list *list = create_watch_list(&files);
    int rc = list ? eb_background_task_open(&watch->scan, loop) : UV_ENOMEM;
    if (rc < 0) {
        destroy_watch_list(list);
        return rc;
    }
    rc = uv_timer_init(loop, &watch->timer);
    assert(rc == 0);
    watch->scanned_ms = uv_now(loop) - SCAN_MS;
    replace_watch_list(watch, list);
    return 0;
}

bool eb_file_watch_set(struct eb_file_watch *watch, struct eb_file_list *files)
{
    if (!watch->current || watch->is_stopped) {
        eb_file_list_deinit(files);
        return true;
    }
    struct eb_file_watch_list *list = create_watch_list(files);
    if (!list) {
        return false;
    }
    if (watch->scan.is_running) {
        destroy_watch_list(watch->next);
        watch->next = list;
    } else {
        replace_watch_list(watch, list);
    }
    return true;
}

bool eb_file_watch_is_scanning(const struct eb_file_watch *watch)
{
    return watch->scan.is_running;
}

void eb_file_watch_stop(struct eb_file_watch *watch)
{
    if (!watch->current || watch->is_stopped) {
        return;
    }
    watch->is_stopped = true;
    destroy_watch_list(watch->next);
    watch->next = NULL;
    if (!watch->scan.is_running) {
        destroy_watch_list(watch->current);
        watch->current = NULL;
    }
    eb_directory_watch_close(&watch->directories);
    eb_background_task_close(&watch->scan);
    uv_close((uv_handle_t *)&watch->timer, NULL);
}
