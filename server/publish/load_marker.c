#include "server/publish/load_marker.h"

#include "server/base/log.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUBDIRECTORY "embag"
#define LOADING "loading"
#define DIED "died"
#define HASH_MARK '='

/* The markers that eb_load_markers_signal ends. */
static struct eb_load_markers *_Atomic signalled;

/* ---- names ---- */

static bool is_plain(const char *name)
{
    size_t bytes = strlen(name);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char letter = (unsigned char)name[i];
        if (letter > 127 || !(isalnum(letter) || strchr("._-", letter))) {
            return false;
        }
    }
    return bytes > 0 && bytes <= EB_LOAD_MARKER_MODEL_BYTES;
}

/* Writes the model as a marker's name has it. */
static void write_marker_model(const char *model, char out[EB_LOAD_MARKER_MODEL_BYTES + 1])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    if (is_plain(model)) {
        snprintf(out, EB_LOAD_MARKER_MODEL_BYTES + 1, "%s", model);
        return;
    }
    for (const char *at = model; *at; at++) {
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    }
    snprintf(out, EB_LOAD_MARKER_MODEL_BYTES + 1, "%c%016" PRIx64, HASH_MARK, hash);
}

static void write_marker(
    const char *kind, const struct eb_load_death *death, char out[EB_LOAD_MARKER_BYTES])
{
    int length = snprintf(out, EB_LOAD_MARKER_BYTES, "%s-%s-%" PRIu64 "-%016" PRIx64 "-%u", kind,
        death->model, death->version, death->files, death->count);
    assert(length > 0 && length < EB_LOAD_MARKER_BYTES);
    (void)length;
}

/* Cuts the last part off `text`, at a '-', and parses it as a number. Returns false if there is
 * none. */
static bool cut_number(char *text, int base, uint64_t *number)
{
    char *dash = strrchr(text, '-');
    if (!dash || !isxdigit((unsigned char)dash[1])) {
        return false;
    }
    char *end;
    errno = 0;
    *number = strtoull(dash + 1, &end, base);
    *dash = '\0';
    return errno == 0 && *end == '\0';
}

/* Parses the name of a marker of this kind. Returns false if it is not one that write_marker
 * writes. */
static bool parse_marker(const char *kind, const char *name, struct eb_load_death *death)
{
    char text[EB_LOAD_MARKER_BYTES];
    char same[EB_LOAD_MARKER_BYTES];
    size_t kind_bytes = strlen(kind);
    uint64_t count;
    if (strlen(name) >= sizeof text || strncmp(name, kind, kind_bytes) != 0 ||
        name[kind_bytes] != '-') {
        return false;
    }
    strcpy(text, name + kind_bytes + 1);
    if (!cut_number(text, 10, &count) || !cut_number(text, 16, &death->files) ||
        !cut_number(text, 10, &death->version) || count > EB_LOAD_DEATHS_COUNTED ||
        strlen(text) > EB_LOAD_MARKER_MODEL_BYTES ||
        !(is_plain(text) || (text[0] == HASH_MARK && is_plain(text + 1)))) {
        return false;
    }
    strcpy(death->model, text);
    death->count = (unsigned)count;
    write_marker(kind, death, same);
    return strcmp(same, name) == 0;
}

bool eb_load_death_is_of(const struct eb_load_death *death, const char *model, uint64_t version)
{
    char named[EB_LOAD_MARKER_MODEL_BYTES + 1];
    write_marker_model(model, named);
    return death->version == version && strcmp(death->model, named) == 0;
}

/* ---- opening ---- */

/* Returns the death of the same files of the same version, or NULL. */
static struct eb_load_death *find_death(
    struct eb_load_markers *markers, const struct eb_load_death *wanted)
{
    for (size_t i = 0; i < markers->death_count; i++) {
        struct eb_load_death *known = &markers->deaths[i];
        if (known->version == wanted->version && known->files == wanted->files &&
            strcmp(known->model, wanted->model) == 0) {
            return known;
        }
    }
    return NULL;
}

/* Adds a death. Returns false if there are too many. The same version is counted once, with the
 * higher count. */
static bool add_death(struct eb_load_markers *markers, const struct eb_load_death *death)
{
    struct eb_load_death *known = find_death(markers, death);
    if (known) {
        known->count = known->count > death->count ? known->count : death->count;
        return true;
    }
    if (markers->death_count == EB_LOAD_DEATHS_MAX) {
        return false;
    }
    markers->deaths[markers->death_count++] = *death;
    return true;
}

/* Takes over one file of the directory: a marker of a load counts one more death. Removes the file
 * if it is not a marker. */
static void take_file(struct eb_load_markers *markers, const char *name)
{
    struct eb_load_death death;
    char renamed[EB_LOAD_MARKER_BYTES];
    bool is_loading = parse_marker(LOADING, name, &death);
    if (is_loading) {
        markers->has_died = true;
        death.count += death.count < EB_LOAD_DEATHS_COUNTED;
    }
    if ((!is_loading && !parse_marker(DIED, name, &death)) || !add_death(markers, &death)) {
        (void)unlinkat(markers->directory, name, 0);
    } else if (is_loading) {
        write_marker(DIED, &death, renamed);
        (void)renameat(markers->directory, name, markers->directory, renamed);
    }
}

/* Takes over the files of the directory. Returns 0 or an errno. */
static int take_files(struct eb_load_markers *markers)
{
    int copy = openat(markers->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = copy < 0 ? NULL : fdopendir(copy);
    if (!listing) {
        int error = errno;
        if (copy >= 0) {
            close(copy);
        }
        return error;
    }
    for (const struct dirent *entry = readdir(listing); entry; entry = readdir(listing)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            take_file(markers, entry->d_name);
        }
    }
    closedir(listing);
    return 0;
}

/* Returns 0, or an errno if files cannot be made in the directory. */
static int try_writing(int directory)
{
    static const char name[] = "try";
    int file = openat(directory, name, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) {
        return errno;
    }
    close(file);
    return unlinkat(directory, name, 0) == 0 ? 0 : errno;
}

/* Opens the directory `embag` in `path`, and makes it if it is missing. Returns -1, with errno set,
 * if that fails. */
static int open_subdirectory(const char *path)
{
    int parent = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) {
        return -1;
    }
    int directory = -1;
    if (mkdirat(parent, SUBDIRECTORY, 0700) == 0 || errno == EEXIST) {
        directory = openat(parent, SUBDIRECTORY, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    }
    int error = errno;
    close(parent);
    errno = error;
    return directory;
}

bool eb_load_markers_open(
    struct eb_load_markers *markers, const char *path, struct eb_failure *failure)
{
    struct stat status;
    *markers = (struct eb_load_markers){.directory = -1};
    int error = uv_mutex_init(&markers->mutex);
    if (error < 0) {
        return eb_failure_set(failure, "state_dir: %s", uv_strerror(error));
    }
    if (!path) {
        return true;
    }
    markers->directory = open_subdirectory(path);
    if (markers->directory < 0 || fstat(markers->directory, &status) != 0) {
        eb_failure_set(failure, "state_dir %s: %s", path, strerror(errno));
    } else if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        eb_failure_set(failure,
            "state_dir %s: its directory " SUBDIRECTORY
            " belongs to another user, or others may write to it",
            path);
    } else if ((error = try_writing(markers->directory)) != 0 ||
               (error = take_files(markers)) != 0) {
        eb_failure_set(failure, "state_dir %s/" SUBDIRECTORY ": %s", path, strerror(error));
    } else {
        atomic_store(&signalled, markers);
        return true;
    }
    eb_load_markers_close(markers);
    return false;
}

void eb_load_markers_close(struct eb_load_markers *markers)
{
    struct eb_load_markers *mine = markers;
    atomic_compare_exchange_strong(&signalled, &mine, NULL);
    if (markers->directory >= 0) {
        close(markers->directory);
        markers->directory = -1;
    }
    uv_mutex_destroy(&markers->mutex);
}

/* ---- loads ---- */

static void forget_death(struct eb_load_markers *markers, size_t index)
{
    char name[EB_LOAD_MARKER_BYTES];
    write_marker(DIED, &markers->deaths[index], name);
    (void)unlinkat(markers->directory, name, 0);
    markers->deaths[index] = markers->deaths[--markers->death_count];
}

size_t eb_load_markers_count(struct eb_load_markers *markers)
{
    uv_mutex_lock(&markers->mutex);
    size_t count = markers->death_count;
    uv_mutex_unlock(&markers->mutex);
    return count;
}

struct eb_load_death eb_load_markers_death(struct eb_load_markers *markers, size_t index)
{
    struct eb_load_death death = {0};
    uv_mutex_lock(&markers->mutex);
    if (index < markers->death_count) {
        death = markers->deaths[index];
    }
    uv_mutex_unlock(&markers->mutex);
    return death;
}

void eb_load_markers_forget(struct eb_load_markers *markers, const struct eb_load_death *death)
{
    uv_mutex_lock(&markers->mutex);
    struct eb_load_death *known = find_death(markers, death);
    if (known) {
        forget_death(markers, (size_t)(known - markers->deaths));
    }
    uv_mutex_unlock(&markers->mutex);
}

/* Returns how often the process died while it loaded these files. Forgets the version's deaths with
 * other files. */
static unsigned count_deaths(
    struct eb_load_markers *markers, const char *model, uint64_t version, uint64_t files)
{
    unsigned count = 0;
    for (size_t i = markers->death_count; i-- > 0;) {
        const struct eb_load_death *death = &markers->deaths[i];
        if (eb_load_death_is_of(death, model, version)) {
            if (death->files == files) {
                count = death->count;
            } else {
                forget_death(markers, i);
            }
        }
    }
    return count;
}

/* Makes the marker's file, from that of its deaths if it has any. Returns 0 or an errno. */
static int make_marker_file(int directory, const struct eb_load_marker *marker)
{
    if (marker->former[0] && renameat(directory, marker->former, directory, marker->name) == 0) {
        return 0;
    }
    int file = openat(directory, marker->name, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    return file < 0 || close(file) != 0 ? errno : 0;
}

static struct eb_load_marker *find_unset(struct eb_load_markers *markers)
{
    for (size_t i = 0; i < EB_LOAD_MARKERS_MAX; i++) {
        if (!atomic_load(&markers->markers[i].is_set)) {
            return &markers->markers[i];
        }
    }
    return NULL;
}

struct eb_load_marker *eb_load_markers_begin(
    struct eb_load_markers *markers, const char *model, uint64_t version, uint64_t files)
{
    struct eb_load_death load = {.version = version, .files = files};
    struct eb_load_marker *marker = NULL;
    uv_mutex_lock(&markers->mutex);
    if (markers->directory >= 0 && !atomic_load(&markers->is_ended)) {
        marker = find_unset(markers);
    }
    if (marker) {
        write_marker_model(model, load.model);
        load.count = count_deaths(markers, model, version, files);
        marker->former[0] = '\0';
        if (load.count > 0) {
            write_marker(DIED, &load, marker->former);
        }
        write_marker(LOADING, &load, marker->name);
        /* The marker is set before its file is made, so that a signal does not leave the file. */
        atomic_store(&marker->is_set, true);
        int error = make_marker_file(markers->directory, marker);
        if (error != 0) {
            eb_log(EB_LOG_WARN, "load_unmarked", eb_log_text("model", model),
                eb_log_count("version", version), eb_log_text("reason", strerror(error)),
                eb_log_text("remedy", "make state_dir writable; until then a version that kills "
                                      "the server while it loads may do so again"));
            atomic_store(&marker->is_set, false);
            marker = NULL;
        }
    }
    uv_mutex_unlock(&markers->mutex);
    return marker;
}

bool eb_load_marker_has_deaths(const struct eb_load_marker *marker)
{
    return marker && marker->former[0] != '\0';
}

/* Removes the marker or, if there were deaths before, gives it their name again. Safe in a signal
 * handler. */
static void unset_marker(int directory, struct eb_load_marker *marker)
{
    if (atomic_exchange(&marker->is_set, false)) {
        (void)(marker->former[0] ? renameat(directory, marker->name, directory, marker->former)
                                 : unlinkat(directory, marker->name, 0));
    }
}

void eb_load_markers_end(
    struct eb_load_markers *markers, struct eb_load_marker *marker, bool is_over)
{
    struct eb_load_death load;
    if (!marker) {
        return;
    }
    uv_mutex_lock(&markers->mutex);
    bool is_known = atomic_load(&marker->is_set) && parse_marker(LOADING, marker->name, &load);
    unset_marker(markers->directory, marker);
    for (size_t i = markers->death_count; is_known && is_over && i-- > 0;) {
        const struct eb_load_death *death = &markers->deaths[i];
        if (death->version == load.version && strcmp(death->model, load.model) == 0) {
            forget_death(markers, i);
        }
    }
    uv_mutex_unlock(&markers->mutex);
}

static void end_markers(struct eb_load_markers *markers)
{
    atomic_store(&markers->is_ended, true);
    for (size_t i = 0; i < EB_LOAD_MARKERS_MAX; i++) {
        unset_marker(markers->directory, &markers->markers[i]);
    }
}

void eb_load_markers_stop(struct eb_load_markers *markers)
{
    uv_mutex_lock(&markers->mutex);
    end_markers(markers);
    uv_mutex_unlock(&markers->mutex);
}

void eb_load_markers_signal(void)
{
    struct eb_load_markers *markers = atomic_load(&signalled);
    if (markers) {
        end_markers(markers);
    }
}
