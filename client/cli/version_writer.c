#include "client/cli/version_writer.h"

#include "server/formats/npy.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NPY_HEADER_BYTES_MAX 1024
#define BYTES_PER_MIB (1024 * 1024)

/* Says what failed, by errno. Returns false, for callers to return. */
static bool refuse_writer(const char *what, const char *path)
{
    fprintf(stderr, "embag: cannot %s %s: %s\n", what, path, strerror(errno));
    return false;
}

static bool make_directory(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST || refuse_writer("make the directory", path);
}

/* Makes a directory and those above it. */
static bool make_directories(const char *path)
{
    char part[EB_VERSION_WRITER_PATH_BYTES];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (!make_directory(part)) {
            return false;
        }
        *slash = '/';
    }
    return make_directory(part);
}

static bool check_space(const char *path, uint64_t bytes)
{
    struct statvfs file_system;
    if (statvfs(path, &file_system) != 0) {
        return refuse_writer("ask for the free space of", path);
    }
    uint64_t free_bytes = (uint64_t)file_system.f_bavail * file_system.f_frsize;
    if (free_bytes < bytes) {
        fprintf(stderr,
            "embag: %s: %" PRIu64 " MiB are needed and %" PRIu64
            " MiB free: take a larger --scale or another disk\n",
            path, bytes / BYTES_PER_MIB + 1, free_bytes / BYTES_PER_MIB);
        return false;
    }
    return true;
}

/* Sets both paths of the writer. Room for a file's name is left behind them. */
static bool set_paths(struct eb_version_writer *writer, const struct eb_version_plan *plan)
{
    int length = snprintf(writer->final_path, sizeof writer->final_path, "%s/%s/%" PRIu64,
        plan->directory, plan->model, plan->version);
    if (length < 0 || (size_t)length + NAME_MAX > sizeof writer->final_path) {
        errno = ENAMETOOLONG;
        return refuse_writer("use the path", plan->directory);
    }
    snprintf(writer->path, sizeof writer->path, "%s/%s/.%" PRIu64 ".XXXXXX", plan->directory,
        plan->model, plan->version);
    return true;
}

bool eb_version_writer_open(struct eb_version_writer *writer, const struct eb_version_plan *plan)
{
    memset(writer, 0, sizeof *writer);
    writer->file = -1;
    if (!set_paths(writer, plan)) {
        return false;
    }
    char *model_end = strrchr(writer->final_path, '/');
    *model_end = '\0';
    bool ready =
        make_directories(writer->final_path) && check_space(writer->final_path, plan->bytes);
    *model_end = '/';
    if (!ready) {
        return false;
    }
    if (access(writer->final_path, F_OK) == 0) {
        errno = EEXIST;
        return refuse_writer("write", writer->final_path);
    }
    if (!mkdtemp(writer->path)) {
        return refuse_writer("make the directory", writer->path);
    }
    writer->opened = true;
    /* mkdtemp lets nobody else in, but the server may be somebody else. */
    return chmod(writer->path, 0755) == 0 || refuse_writer("open to others", writer->path);
}

/* Removes the directory and its files. What cannot be removed stays, ignored by servers. */
static void remove_all(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] != '.') {
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
        }
    }
    (void)closedir(directory);
    (void)rmdir(path);
}

void eb_version_writer_close(struct eb_version_writer *writer)
{
    if (writer->file >= 0) {
        (void)close(writer->file);
        writer->file = -1;
    }
    if (writer->opened) {
        remove_all(writer->path);
        writer->opened = false;
    }
}

bool eb_version_writer_begin_table(
    struct eb_version_writer *writer, const char *table, struct eb_tensor *tensor)
{
    uint8_t header[NPY_HEADER_BYTES_MAX];
    char path[EB_VERSION_WRITER_PATH_BYTES + NAME_MAX];
    assert(writer->opened && writer->file < 0);
    uint64_t header_bytes = eb_npy_header_write(tensor, header, sizeof header);
    assert(header_bytes > 0);
    snprintf(path, sizeof path, "%s/%s.npy", writer->path, table);
    writer->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (writer->file < 0) {
        return refuse_writer("make", path);
    }
    return eb_version_writer_append(writer, header, header_bytes);
}

bool eb_version_writer_append(struct eb_version_writer *writer, const void *bytes, size_t count)
{
    const uint8_t *next = bytes;
    while (count > 0) {
        ssize_t written = write(writer->file, next, count);
        if (written < 0 && errno != EINTR) {
            return refuse_writer("write to", writer->path);
        }
        if (written > 0) {
            next += written;
            count -= (size_t)written;
        }
    }
    return true;
}

bool eb_version_writer_end_table(struct eb_version_writer *writer)
{
    int rc = close(writer->file);
    writer->file = -1;
    return rc == 0 || refuse_writer("write to", writer->path);
}

/* NFS and others cannot rename without replacing. A rename there replaces no more than an empty
 * directory that has come into being since the look for one. */
static bool rename_directory(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return true;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return false;
    }
    if (access(to, F_OK) == 0) {
        errno = EEXIST;
        return false;
    }
    return rename(from, to) == 0;
}

bool eb_version_writer_finish(struct eb_version_writer *writer)
{
    assert(writer->opened && writer->file < 0);
    if (!rename_directory(writer->path, writer->final_path)) {
        return refuse_writer("write", writer->final_path);
    }
    writer->opened = false;
    return true;
}
