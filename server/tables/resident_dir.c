#include "server/tables/resident_dir.h"

#include "server/base/cgroup.h"
#include "server/base/clock.h"
#include "server/base/machine.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>

#define DIRECTORY_NAME "embag"
#define LOCK_NAME "lock"
#define RECORD_NAME "served"
#define TMP_PREFIX "tmp-"
#define SHORT_PREFIX "short-"
#define KEY_DIGITS 16
#define NEW_FILE_MODE 0600
/* Most starts in a row that are counted. */
#define SHORT_MAX 1000u
#define POOL_DIRECTORY "/sys/kernel/mm/hugepages/hugepages-2048kB"

/* A file that this process has mapped. */
struct eb_resident_use {
    struct eb_resident_use *next;
    unsigned count;
    char name[EB_RESIDENT_NAME_BYTES];
};

static bool fail_resident(struct eb_failure *failure, const char *path, const char *what, int error)
{
    eb_failure_set(failure, "%s: %s: %s", path, what, strerror(error));
    return eb_failure_blame(failure, error);
}

/* ---- becoming the owner ---- */

static bool unlink_tmp(void *context, const char *name)
{
    const struct eb_resident_dir *dir = context;
    if (strncmp(name, TMP_PREFIX, strlen(TMP_PREFIX)) == 0) {
        (void)unlinkat(dir->descriptor, name, 0);
    }
    return true;
}

static void unlink_all_tmp(struct eb_resident_dir *dir)
{
    struct eb_failure unused;
    (void)eb_resident_dir_list(dir, unlink_tmp, dir, &unused);
}

/* Returns whether that is the name of a complete file that readers open. */
static bool is_complete_name(const char *name)
{
    enum eb_resident_kind kind;
    uint64_t key;
    return eb_resident_dir_parse(name, &kind, &key) || strcmp(name, RECORD_NAME) == 0;
}

/* Sets the mode of a complete file that an owner with another setting has left. A file that others
 * could have written to stays as it is, and so is not taken for a sound one. */
static bool set_file_mode(void *context, const char *name)
{
    const struct eb_resident_dir *dir = context;
    struct stat status;
    if (!is_complete_name(name)) {
        return true;
    }
    int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    int descriptor = openat(dir->descriptor, name, flags);
    if (descriptor < 0) {
        return true;
    }
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == dir->user &&
        !(status.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) &&
        (status.st_mode & 0777) != dir->file_mode) {
        (void)fchmod(descriptor, dir->file_mode); /* if that fails, it has the readers it had */
    }
    (void)close(descriptor);
    return true;
}

/* Sets the modes of all complete files. */
static void set_file_modes(struct eb_resident_dir *dir)
{
    struct eb_failure unused;
    (void)eb_resident_dir_list(dir, set_file_mode, dir, &unused);
}

/* Sets the mode of the directory. Returns false with *failure set if that fails. */
static bool set_directory_mode(const struct eb_resident_dir *dir, struct eb_failure *failure)
{
    return eb_resident_dir_has_mode(dir) || fchmod(dir->descriptor, dir->mode) == 0 ||
           fail_resident(failure, dir->path, "its mode cannot be changed", errno);
}

/* Takes the lock if it is free, and prepares the directory. Returns false with *failure set, and
 * without the lock, if the directory cannot be prepared. */
static bool try_own(struct eb_resident_dir *dir, struct eb_failure *failure)
{
    int rc;
    do {
        rc = flock(dir->lock, LOCK_EX | LOCK_NB);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        return true;
    }
    unlink_all_tmp(dir);
    set_file_modes(dir);
    if (!set_directory_mode(dir, failure)) {
        (void)flock(dir->lock, LOCK_UN);
        return false;
    }
    atomic_store(&dir->is_owner, true);
    eb_resident_dir_beat(dir);
    return true;
}

/* ---- opening ---- */

/* Sets dir->fs to the file system of the descriptor. Returns false if it cannot hold resident
 * files. */
static bool check_file_system(
    struct eb_resident_dir *dir, int descriptor, struct eb_failure *failure)
{
    struct statfs status;
    if (fstatfs(descriptor, &status) != 0) {
        return fail_resident(failure, dir->path, "its file system is unknown", errno);
    }
    dir->fs = EB_RESIDENT_TMPFS;
    if (status.f_type == HUGETLBFS_MAGIC) {
        dir->fs = EB_RESIDENT_HUGETLBFS;
        return (uint64_t)status.f_bsize == EB_RESIDENT_PAGE_BYTES ||
               eb_failure_set(failure, "%s: its pages have %ld bytes: mount it with pagesize=2M",
                   dir->path, (long)status.f_bsize);
    }
    return status.f_type == TMPFS_MAGIC ||
           eb_failure_set(failure,
               "%s: it is not in a tmpfs or a hugetlbfs, so that tables in it would not be in "
               "memory",
               dir->path);
}

/* Checks whose directory it is, and who may write in it. */
static bool check_directory(const struct eb_resident_dir *dir, struct eb_failure *failure)
{
    struct stat status;
    if (fstat(dir->descriptor, &status) != 0) {
        return fail_resident(failure, dir->path, "it cannot be examined", errno);
    }
    if (dir->user != geteuid()) {
        return eb_failure_set(failure,
            "%s: it belongs to user %u, and this process runs as user %u", dir->path, dir->user,
            geteuid());
    }
    return !(status.st_mode & (S_IWGRP | S_IWOTH)) ||
           eb_failure_set(failure,
               "%s: others may write in it (mode %03o); remove it, and the server makes it anew",
               dir->path, status.st_mode & 0777u);
}

/* Opens the directory in `parent`. If it is missing, makes it if that is wanted and it would be in
 * a RAM file system. */
static bool open_directory_in(
    struct eb_resident_dir *dir, int parent, bool may_make, struct eb_failure *failure)
{
    struct stat status;
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    dir->descriptor = openat(parent, DIRECTORY_NAME, flags);
    if (dir->descriptor < 0 && errno == ENOENT && may_make) {
        if (!check_file_system(dir, parent, failure)) {
            return false;
        }
        if (mkdirat(parent, DIRECTORY_NAME, 0700) != 0 && errno != EEXIST) {
            return fail_resident(failure, dir->path, "it cannot be made", errno);
        }
        dir->descriptor = openat(parent, DIRECTORY_NAME, flags);
    }
    if (dir->descriptor < 0 || fstat(dir->descriptor, &status) != 0) {
        return fail_resident(failure, dir->path, "it cannot be opened", errno);
    }
    dir->user = status.st_uid;
    return true;
}

static bool open_directory(struct eb_resident_dir *dir, const char *resident_dir, bool may_make,
    struct eb_failure *failure)
{
    int parent = open(resident_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) {
        return fail_resident(failure, resident_dir, "it cannot be opened", errno);
    }
    bool is_open = open_directory_in(dir, parent, may_make, failure);
    (void)close(parent);
    return is_open;
}

static bool open_lock(struct eb_resident_dir *dir, struct eb_failure *failure)
{
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    dir->lock = openat(dir->descriptor, LOCK_NAME, flags, NEW_FILE_MODE);
    return dir->lock >= 0 || fail_resident(failure, dir->path, "lock cannot be opened", errno);
}

/* Sets all members before anything is open. */
static bool init_dir(
    struct eb_resident_dir *dir, const char *resident_dir, struct eb_failure *failure)
{
    *dir = (struct eb_resident_dir){.descriptor = -1, .lock = -1};
    if (asprintf(&dir->path, "%s/%s", resident_dir, DIRECTORY_NAME) < 0) {
        dir->path = NULL;
        return eb_failure_set(failure, "out of memory");
    }
    if (pthread_mutex_init(&dir->mutex, NULL) != 0) {
        free(dir->path);
        dir->path = NULL;
        return eb_failure_set(failure, "out of memory");
    }
    return true;
}

bool eb_resident_dir_open(struct eb_resident_dir *dir, const char *resident_dir,
    bool may_group_read, struct eb_failure *failure)
{
    if (!init_dir(dir, resident_dir, failure)) {
        return false;
    }
    dir->mode = may_group_read ? 0750 : 0700;
    dir->file_mode = may_group_read ? 0440 : 0400;
    if (!open_directory(dir, resident_dir, true, failure) ||
        !check_file_system(dir, dir->descriptor, failure) || !check_directory(dir, failure) ||
        !open_lock(dir, failure) || !try_own(dir, failure)) {
        eb_resident_dir_close(dir);
        return false;
    }
    return true;
}

bool eb_resident_dir_open_reader(
    struct eb_resident_dir *dir, const char *resident_dir, struct eb_failure *failure)
{
    if (!init_dir(dir, resident_dir, failure)) {
        return false;
    }
    if (!open_directory(dir, resident_dir, false, failure) ||
        !check_file_system(dir, dir->descriptor, failure)) {
        eb_resident_dir_close(dir);
        return false;
    }
    return true;
}

bool eb_resident_dir_is_trusted(
    const struct eb_resident_dir *dir, const char *resident_dir, struct eb_failure *failure)
{
    struct stat parent;
    struct stat status;
    if (stat(resident_dir, &parent) != 0 || fstat(dir->descriptor, &status) != 0) {
        return fail_resident(failure, dir->path, "it cannot be examined", errno);
    }
    if (dir->user != geteuid() && dir->user != 0 && dir->user != parent.st_uid) {
        return eb_failure_set(failure,
            "%s: it belongs to user %u, who is neither root, the owner of the directory above it, "
            "nor the user of this process",
            dir->path, dir->user);
    }
    return !(status.st_mode & (S_IWGRP | S_IWOTH)) ||
           eb_failure_set(failure, "%s: others may write in it (mode %03o)", dir->path,
               status.st_mode & 0777u);
}

bool eb_resident_dir_has_mode(const struct eb_resident_dir *dir)
{
    struct stat status;
    return fstat(dir->descriptor, &status) == 0 && (status.st_mode & 0777) == dir->mode;
}

bool eb_resident_dir_is_replaced(const struct eb_resident_dir *dir)
{
    struct stat open;
    struct stat found;
    return lstat(dir->path, &found) == 0 && S_ISDIR(found.st_mode) &&
           fstat(dir->descriptor, &open) == 0 &&
           (found.st_dev != open.st_dev || found.st_ino != open.st_ino);
}

bool eb_resident_dir_reopen_reader(
    struct eb_resident_dir *dir, const char *resident_dir, struct eb_failure *failure)
{
    struct eb_resident_dir other;
    assert(dir->lock < 0);
    if (!eb_resident_dir_open_reader(&other, resident_dir, failure)) {
        return false;
    }
    bool is_trusted = eb_resident_dir_is_trusted(&other, resident_dir, failure);
    if (is_trusted) {
        int former = dir->descriptor;
        dir->descriptor = other.descriptor;
        dir->user = other.user;
        dir->fs = other.fs;
        other.descriptor = former;
    }
    eb_resident_dir_close(&other);
    return is_trusted;
}

void eb_resident_dir_close(struct eb_resident_dir *dir)
{
    if (!dir->path) {
        return;
    }
    if (dir->lock >= 0) {
        (void)close(dir->lock); /* gives up the lock */
    }
    if (dir->descriptor >= 0) {
        (void)close(dir->descriptor);
    }
    while (dir->uses) {
        struct eb_resident_use *use = dir->uses;
        dir->uses = use->next;
        free(use);
    }
    (void)pthread_mutex_destroy(&dir->mutex);
    free(dir->path);
    *dir = (struct eb_resident_dir){.descriptor = -1, .lock = -1};
}

/* ---- ownership ---- */

bool eb_resident_dir_own(struct eb_resident_dir *dir)
{
    struct eb_failure unused;
    return atomic_load(&dir->is_owner) || (try_own(dir, &unused) && atomic_load(&dir->is_owner));
}

void eb_resident_dir_disown(struct eb_resident_dir *dir)
{
    pthread_mutex_lock(&dir->mutex);
    if (atomic_exchange(&dir->is_owner, false)) {
        unlink_all_tmp(dir);
        (void)flock(dir->lock, LOCK_UN);
    }
    pthread_mutex_unlock(&dir->mutex);
}

void eb_resident_dir_beat(struct eb_resident_dir *dir)
{
    if (atomic_load(&dir->is_owner)) {
        (void)futimens(dir->lock, NULL);
    }
}

uint64_t eb_resident_dir_beat_age_s(const struct eb_resident_dir *dir)
{
    struct stat status;
    time_t now = time(NULL);
    return fstat(dir->lock, &status) == 0 && status.st_mtime < now
               ? (uint64_t)(now - status.st_mtime)
               : 0;
}

/* ---- short starts ---- */

/* Returns the K of short-K, or 0 if it is another name. */
static unsigned parse_short(const char *name)
{
    size_t prefix = strlen(SHORT_PREFIX);
    if (strncmp(name, SHORT_PREFIX, prefix) != 0 || name[prefix] < '1' || name[prefix] > '9' ||
        strlen(name) > prefix + 4) {
        return 0;
    }
    char *end;
    unsigned long count = strtoul(name + prefix, &end, 10);
    return *end == '\0' && count <= SHORT_MAX ? (unsigned)count : 0;
}

/* Keeps the largest K in the unsigned that is the context. */
static bool find_short(void *context, const char *name)
{
    unsigned *most = context;
    unsigned count = parse_short(name);
    *most = count > *most ? count : *most;
    return true;
}

/* Which short-K to delete. */
struct short_sweep {
    const struct eb_resident_dir *dir;
    unsigned kept; /* the K that stays; 0 if none does */
};

static bool sweep_short(void *context, const char *name)
{
    const struct short_sweep *sweep = context;
    unsigned count = parse_short(name);
    if (count > 0 && count != sweep->kept) {
        (void)unlinkat(sweep->dir->descriptor, name, 0);
    }
    return true;
}

/* The new name is made before the old one is deleted, so that no end in between forgets starts. */
unsigned eb_resident_dir_begin_start(struct eb_resident_dir *dir, bool is_explained)
{
    struct eb_failure unused;
    unsigned count = 0;
    (void)eb_resident_dir_list(dir, find_short, &count, &unused);
    count += count < SHORT_MAX && !(is_explained && count > 0);
    char name[EB_RESIDENT_NAME_BYTES];
    snprintf(name, sizeof name, SHORT_PREFIX "%u", count);
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int descriptor = openat(dir->descriptor, name, flags, NEW_FILE_MODE);
    if (descriptor >= 0) {
        (void)close(descriptor);
        struct short_sweep sweep = {dir, count};
        (void)eb_resident_dir_list(dir, sweep_short, &sweep, &unused);
    }
    dir->start_count = count;
    return count;
}

void eb_resident_dir_end_start(struct eb_resident_dir *dir)
{
    struct eb_failure unused;
    struct short_sweep sweep = {.dir = dir};
    if (atomic_load(&dir->is_owner)) {
        (void)eb_resident_dir_list(dir, sweep_short, &sweep, &unused);
    }
}

/* ---- names ---- */

static const char *const suffixes[] = {[EB_RESIDENT_TABLE] = ".t", [EB_RESIDENT_SMALL] = ".s"};

void eb_resident_dir_name(
    enum eb_resident_kind kind, uint64_t key, char name[EB_RESIDENT_NAME_BYTES])
{
    snprintf(name, EB_RESIDENT_NAME_BYTES, "%016" PRIx64 "%s", key, suffixes[kind]);
}

bool eb_resident_dir_parse(const char *name, enum eb_resident_kind *kind, uint64_t *key)
{
    if (strspn(name, "0123456789abcdef") != KEY_DIGITS) {
        return false;
    }
    *key = strtoull(name, NULL, 16);
    *kind = strcmp(name + KEY_DIGITS, suffixes[EB_RESIDENT_SMALL]) == 0 ? EB_RESIDENT_SMALL
                                                                        : EB_RESIDENT_TABLE;
    return strcmp(name + KEY_DIGITS, suffixes[*kind]) == 0;
}

bool eb_resident_dir_list(const struct eb_resident_dir *dir,
    bool (*each)(void *context, const char *name), void *context, struct eb_failure *failure)
{
    int descriptor = openat(dir->descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    if (!stream) {
        int error = errno;
        if (descriptor >= 0) {
            (void)close(descriptor);
        }
        return fail_resident(failure, dir->path, "it cannot be listed", error);
    }
    unsigned count = 0;
    bool is_wanted = true;
    errno = 0;
    for (struct dirent *entry = readdir(stream);
         entry && is_wanted && count < EB_RESIDENT_NAMES_MAX; entry = readdir(stream)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            is_wanted = each(context, entry->d_name);
            count++;
        }
        errno = 0;
    }
    int error = errno;
    (void)closedir(stream);
    return error == 0 || fail_resident(failure, dir->path, "it cannot be listed", error);
}

/* ---- files ---- */

static bool refuse_guest(const struct eb_resident_dir *dir, struct eb_failure *failure)
{
    eb_failure_set(failure, "%s: this server does not own it, or not any more", dir->path);
    failure->is_transient = true;
    return false;
}

/* Makes tmp-N. The caller holds the mutex and is the owner. */
static int make_tmp(
    struct eb_resident_dir *dir, uint64_t bytes, const char *name, struct eb_failure *failure)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    int descriptor = openat(dir->descriptor, name, flags, NEW_FILE_MODE);
    if (descriptor < 0) {
        fail_resident(failure, dir->path, "a file cannot be made", errno);
        return -1;
    }
    if (ftruncate(descriptor, (off_t)bytes) != 0) {
        fail_resident(failure, dir->path, "a file cannot be made larger", errno);
        (void)unlinkat(dir->descriptor, name, 0);
        (void)close(descriptor);
        return -1;
    }
    return descriptor;
}

int eb_resident_dir_create(struct eb_resident_dir *dir, uint64_t bytes,
    char name[EB_RESIDENT_NAME_BYTES], struct eb_failure *failure)
{
    uint64_t number = atomic_fetch_add(&dir->next_number, 1);
    int descriptor = -1;
    snprintf(name, EB_RESIDENT_NAME_BYTES, TMP_PREFIX "%" PRIu64, number);
    pthread_mutex_lock(&dir->mutex);
    if (atomic_load(&dir->is_owner)) {
        descriptor = make_tmp(dir, bytes, name, failure);
    } else {
        refuse_guest(dir, failure);
    }
    pthread_mutex_unlock(&dir->mutex);
    return descriptor;
}

/* Gives tmp-N its mode and name. The caller holds the mutex and is the owner. */
static bool rename_tmp(struct eb_resident_dir *dir, int descriptor, const char *tmp,
    const char *name, struct eb_failure *failure)
{
    if (fchmod(descriptor, dir->file_mode) != 0 ||
        renameat(dir->descriptor, tmp, dir->descriptor, name) != 0) {
        fail_resident(failure, dir->path, "a file cannot be renamed", errno);
        (void)unlinkat(dir->descriptor, tmp, 0);
        return false;
    }
    return true;
}

bool eb_resident_dir_commit(struct eb_resident_dir *dir, int descriptor, const char *tmp,
    const char *name, struct eb_failure *failure)
{
    pthread_mutex_lock(&dir->mutex);
    bool is_good = atomic_load(&dir->is_owner) ? rename_tmp(dir, descriptor, tmp, name, failure)
                                               : refuse_guest(dir, failure);
    pthread_mutex_unlock(&dir->mutex);
    return is_good;
}

/* Returns what is wrong with the file, or NULL if nothing is. */
static const char *find_file_error(const struct eb_resident_dir *dir, const struct stat *status)
{
    if (!S_ISREG(status->st_mode)) {
        return "it is not a regular file";
    }
    if (status->st_uid != dir->user && status->st_uid != 0) {
        return "it belongs to another user";
    }
    if (status->st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) {
        return "it may be written";
    }
    bool is_whole = status->st_size > 0 && (uint64_t)status->st_size % EB_RESIDENT_PAGE_BYTES == 0;
    return is_whole ? NULL : "its size is not a multiple of 2 MiB: it was truncated";
}

int eb_resident_dir_find(const struct eb_resident_dir *dir, const char *name, uint64_t *bytes,
    struct eb_failure *failure)
{
    struct stat status;
    int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    *failure = (struct eb_failure){0};
    int descriptor = openat(dir->descriptor, name, flags);
    if (descriptor < 0) {
        int error = errno;
        if (error != ENOENT) {
            eb_failure_set(failure, "it cannot be opened: %s", strerror(error));
            (void)eb_failure_blame(failure, error);
        }
        errno = error;
        return -1;
    }
    const char *why =
        fstat(descriptor, &status) == 0 ? find_file_error(dir, &status) : "it cannot be examined";
    if (why) {
        eb_failure_set(failure, "%s", why);
        (void)close(descriptor);
        return -1;
    }
    *bytes = (uint64_t)status.st_size;
    return descriptor;
}

bool eb_resident_dir_read_range(
    int descriptor, uint64_t offset, void *out, uint64_t bytes, struct eb_failure *failure)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t count =
            pread(descriptor, (uint8_t *)out + done, bytes - done, (off_t)(offset + done));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return eb_failure_set(
                failure, "it cannot be read: %s", count < 0 ? strerror(errno) : "it was truncated");
        }
        done += (uint64_t)count;
    }
    return true;
}

bool eb_resident_dir_has(const struct eb_resident_dir *dir, const char *name)
{
    return faccessat(dir->descriptor, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

enum eb_resident_footer_outcome eb_resident_dir_read_footer(int descriptor, uint64_t file_bytes,
    struct eb_resident_footer *footer, struct eb_failure *failure)
{
    uint8_t trailer[EB_RESIDENT_TRAILER_BYTES];
    uint32_t size;
    *footer = (struct eb_resident_footer){0};
    if (file_bytes < sizeof trailer ||
        !eb_resident_dir_read_range(
            descriptor, file_bytes - sizeof trailer, trailer, sizeof trailer, failure)) {
        return EB_RESIDENT_FOOTER_DAMAGED;
    }
    if (!eb_resident_footer_find(trailer, file_bytes, &size)) {
        eb_failure_set(failure, "it has no footer: it is not a resident file, or not complete");
        return EB_RESIDENT_FOOTER_DAMAGED;
    }
    uint8_t *bytes = malloc(size);
    enum eb_resident_footer_outcome outcome = EB_RESIDENT_FOOTER_DAMAGED;
    if (!bytes) {
        eb_failure_set(failure, "out of memory");
    } else if (eb_resident_dir_read_range(descriptor, file_bytes - size, bytes, size, failure)) {
        outcome = eb_resident_footer_decode(bytes, size, file_bytes, footer, failure);
    }
    free(bytes);
    return outcome;
}

/* Deletes a file if the process is the owner. The caller holds the mutex. */
static void unlink_owned(const struct eb_resident_dir *dir, const char *name)
{
    if (atomic_load(&dir->is_owner)) {
        (void)unlinkat(dir->descriptor, name, 0);
    }
}

void eb_resident_dir_unlink(struct eb_resident_dir *dir, const char *name)
{
    pthread_mutex_lock(&dir->mutex);
    unlink_owned(dir, name);
    pthread_mutex_unlock(&dir->mutex);
}

/* Returns a number of pages of the pool, or 0 if it cannot be read. */
static uint64_t read_pool_pages(const char *name)
{
    char text[EB_CGROUP_TEXT_BYTES];
    return eb_cgroup_read(POOL_DIRECTORY, name, text) ? strtoull(text, NULL, 10) : 0;
}

static uint64_t count_pool_bytes(void)
{
    uint64_t free_pages = read_pool_pages("free_hugepages");
    uint64_t reserved = read_pool_pages("resv_hugepages");
    return free_pages > reserved ? (free_pages - reserved) * EB_RESIDENT_PAGE_BYTES : 0;
}

uint64_t eb_resident_dir_free_bytes(const struct eb_resident_dir *dir)
{
    struct statfs status;
    if (fstatfs(dir->descriptor, &status) != 0) {
        return 0;
    }
    /* Without a limit, both file systems report no blocks at all. */
    bool is_limited = status.f_blocks > 0;
    uint64_t rest = (uint64_t)status.f_bavail * (uint64_t)status.f_bsize;
    if (dir->fs == EB_RESIDENT_TMPFS) {
        return is_limited ? rest : eb_machine_available_bytes();
    }
    uint64_t pool = count_pool_bytes();
    return is_limited && rest < pool ? rest : pool;
}

/* ---- small files ---- */

/* Writes the bytes through a mapping, because a hugetlbfs has no write(2). */
static int fill_small(int descriptor, const void *bytes, size_t size, uint64_t file_bytes)
{
    if (file_bytes == 0) {
        return 0;
    }
    if (fallocate(descriptor, 0, 0, (off_t)file_bytes) != 0) {
        return errno;
    }
    void *at = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED) {
        return errno;
    }
    memcpy(at, bytes, size);
    (void)munmap(at, file_bytes);
    return 0;
}

bool eb_resident_dir_write(struct eb_resident_dir *dir, const char *name, const void *bytes,
    size_t size, struct eb_failure *failure)
{
    char tmp[EB_RESIDENT_NAME_BYTES];
    uint64_t unit = dir->fs == EB_RESIDENT_HUGETLBFS ? EB_RESIDENT_PAGE_BYTES : 1;
    uint64_t file_bytes = ((uint64_t)size + unit - 1) / unit * unit;
    int descriptor = eb_resident_dir_create(dir, file_bytes, tmp, failure);
    if (descriptor < 0) {
        return false;
    }
    int error = fill_small(descriptor, bytes, size, file_bytes);
    bool is_good =
        error == 0 || fail_resident(failure, dir->path, "a file cannot be written", error);
    if (is_good) {
        is_good = eb_resident_dir_commit(dir, descriptor, tmp, name, failure);
    } else {
        eb_resident_dir_unlink(dir, tmp);
    }
    (void)close(descriptor);
    return is_good;
}

void *eb_resident_dir_read(const struct eb_resident_dir *dir, const char *name, size_t bytes_max,
    size_t *size, struct eb_failure *failure)
{
    struct stat status;
    *failure = (struct eb_failure){0};
    int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    int descriptor = openat(dir->descriptor, name, flags);
    if (descriptor < 0) {
        if (errno != ENOENT) {
            eb_failure_set(failure, "%s: it cannot be opened: %s", name, strerror(errno));
        }
        return NULL;
    }
    uint8_t *bytes = NULL;
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < 0 ||
        (uint64_t)status.st_size > bytes_max) {
        eb_failure_set(
            failure, "%s: it is not a regular file of at most %zu bytes", name, bytes_max);
    } else {
        *size = (size_t)status.st_size;
        bytes = malloc(*size + 1);
        if (!bytes) {
            eb_failure_set(failure, "out of memory");
        } else if (!eb_resident_dir_read_range(descriptor, 0, bytes, *size, failure)) {
            free(bytes);
            bytes = NULL;
        }
    }
    (void)close(descriptor);
    return bytes;
}

/* ---- time of adoption ---- */

void eb_resident_dir_begin_adopting(struct eb_resident_dir *dir)
{
    pthread_mutex_lock(&dir->mutex);
    if (dir->adopter_count++ == 0) {
        dir->adopting_since_ns = eb_clock_steady_ns();
    }
    pthread_mutex_unlock(&dir->mutex);
}

void eb_resident_dir_end_adopting(struct eb_resident_dir *dir)
{
    pthread_mutex_lock(&dir->mutex);
    if (--dir->adopter_count == 0) {
        dir->adopting_ns += eb_clock_steady_ns() - dir->adopting_since_ns;
    }
    pthread_mutex_unlock(&dir->mutex);
}

uint64_t eb_resident_dir_adopting_ns(struct eb_resident_dir *dir)
{
    pthread_mutex_lock(&dir->mutex);
    uint64_t now_ns = dir->adopter_count > 0 ? eb_clock_steady_ns() : dir->adopting_since_ns;
    uint64_t adopting_ns = dir->adopting_ns + (now_ns - dir->adopting_since_ns);
    pthread_mutex_unlock(&dir->mutex);
    return adopting_ns;
}

/* ---- files in use ---- */

/* Returns the link that points to the use of that name, or to NULL if there is none. */
static struct eb_resident_use **find_use(struct eb_resident_dir *dir, const char *name)
{
    struct eb_resident_use **link = &dir->uses;
    while (*link && strcmp((*link)->name, name) != 0) {
        link = &(*link)->next;
    }
    return link;
}

bool eb_resident_dir_note_use(struct eb_resident_dir *dir, const char *name)
{
    pthread_mutex_lock(&dir->mutex);
    struct eb_resident_use **link = find_use(dir, name);
    if (!*link) {
        *link = calloc(1, sizeof **link);
        if (*link) {
            snprintf((*link)->name, EB_RESIDENT_NAME_BYTES, "%s", name);
        }
    }
    bool is_good = *link;
    if (is_good) {
        (*link)->count++;
    }
    pthread_mutex_unlock(&dir->mutex);
    return is_good;
}

void eb_resident_dir_end_use(struct eb_resident_dir *dir, const char *name)
{
    pthread_mutex_lock(&dir->mutex);
    struct eb_resident_use **link = find_use(dir, name);
    struct eb_resident_use *use = *link;
    assert(use);
    use->count--;
    if (use->count == 0) {
        *link = use->next;
        free(use);
        if (!atomic_load(&dir->is_ending) && !atomic_load(&dir->is_kept)) {
            unlink_owned(dir, name);
        }
    }
    pthread_mutex_unlock(&dir->mutex);
}

/* What a sweep deletes. */
struct sweep {
    struct eb_resident_dir *dir;
    bool (*may_need)(void *context, const char *name);
    void *context;
    uint64_t bytes;
};

static bool sweep_name(void *context, const char *name)
{
    struct sweep *sweep = context;
    struct eb_resident_dir *dir = sweep->dir;
    enum eb_resident_kind kind;
    uint64_t key;
    struct stat status;
    if (!eb_resident_dir_parse(name, &kind, &key) || *find_use(dir, name) ||
        (sweep->may_need && sweep->may_need(sweep->context, name))) {
        return true;
    }
    bool is_known = fstatat(dir->descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (unlinkat(dir->descriptor, name, 0) == 0 && is_known) {
        sweep->bytes += (uint64_t)status.st_size;
    }
    return true;
}

uint64_t eb_resident_dir_sweep(
    struct eb_resident_dir *dir, bool (*may_need)(void *context, const char *name), void *context)
{
    struct eb_failure unused;
    struct sweep sweep = {dir, may_need, context, 0};
    pthread_mutex_lock(&dir->mutex);
    if (atomic_load(&dir->is_owner) && !atomic_load(&dir->is_kept)) {
        (void)eb_resident_dir_list(dir, sweep_name, &sweep, &unused);
    }
    pthread_mutex_unlock(&dir->mutex);
    return sweep.bytes;
}

/* Adds the size of a file to *bytes, if it is there. */
static void add_file_bytes(const struct eb_resident_dir *dir, const char *name, uint64_t *bytes)
{
    struct stat status;
    if (fstatat(dir->descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
        *bytes += (uint64_t)status.st_size;
    }
}

struct measure {
    const struct eb_resident_dir *dir;
    uint64_t bytes;
};

static bool measure_name(void *context, const char *name)
{
    struct measure *measure = context;
    enum eb_resident_kind kind;
    uint64_t key;
    if (eb_resident_dir_parse(name, &kind, &key)) {
        add_file_bytes(measure->dir, name, &measure->bytes);
    }
    return true;
}

void eb_resident_dir_measure(
    struct eb_resident_dir *dir, uint64_t *mapped_bytes, uint64_t *unused_bytes)
{
    struct eb_failure unused;
    struct measure all = {.dir = dir};
    *mapped_bytes = 0;
    pthread_mutex_lock(&dir->mutex);
    (void)eb_resident_dir_list(dir, measure_name, &all, &unused);
    for (const struct eb_resident_use *use = dir->uses; use; use = use->next) {
        add_file_bytes(dir, use->name, mapped_bytes);
    }
    pthread_mutex_unlock(&dir->mutex);
    *unused_bytes = all.bytes > *mapped_bytes ? all.bytes - *mapped_bytes : 0;
}
