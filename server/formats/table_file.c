#include "server/formats/table_file.h"

#include "server/base/read_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the file's birth time, or its ctime if the birth time is not known. A new hard link
 * changes a file's ctime but not its birth time. If a later file gets the same inode number, both
 * times differ. */
static struct timespec read_birth(int descriptor, const struct stat *status)
{
    struct statx more;
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_BTIME, &more) != 0 ||
        !(more.stx_mask & STATX_BTIME)) {
        return status->st_ctim;
    }
    return (struct timespec){more.stx_btime.tv_sec, more.stx_btime.tv_nsec};
}

static bool stamp_table_file(struct eb_table_file *file, struct eb_failure *failure)
{
    struct stat status;
    if (fstat(file->descriptor, &status) != 0) {
        int error = errno;
        eb_failure_set(failure, "it cannot be accessed: %s", strerror(error));
        return eb_failure_blame(failure, error);
    }
    if (!S_ISREG(status.st_mode)) {
        return eb_failure_set(failure, "it is not a regular file; remove or rename it");
    }
    file->bytes = (uint64_t)status.st_size;
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->changed = status.st_mtim;
    file->born = read_birth(file->descriptor, &status);
    return true;
}

static const char *find_table_file_hint(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR: return "check the path, and its target if it is a link";
    case ELOOP: return "correct the link";
    case EACCES:
    case EPERM: return "give the server's user permission to read it";
    default: return "check that its disk responds and that files can be opened";
    }
}

/* Opens the file and takes its stamp. */
static bool open_table_file(
    const char *path, struct eb_table_file *file, struct eb_failure *failure)
{
    *file = (struct eb_table_file){
        .path = path, .descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    if (file->descriptor < 0) {
        int error = errno;
        eb_failure_set(
            failure, "it cannot be opened (%s); %s", strerror(error), find_table_file_hint(error));
        return eb_failure_blame(failure, error);
    }
    if (!stamp_table_file(file, failure)) {
        eb_table_file_close(file);
        return false;
    }
    /* Ask for a larger read-ahead. If the system follows this advice, the disk stays busy while
     * rows are copied. */
    (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    return true;
}

bool eb_table_file_open(const char *path, struct eb_table_file *file, struct eb_failure *failure)
{
    eb_read_watch_begin(path);
    bool is_open = open_table_file(path, file, failure);
    eb_read_watch_end();
    return is_open;
}

void eb_table_file_close(struct eb_table_file *file)
{
    eb_direct_read_close(&file->direct);
    (void)close(file->descriptor); /* Nothing was written that could be lost. */
    file->descriptor = -1;
}

static bool read_table_file(struct eb_table_file *file, uint64_t offset, void *out, uint64_t bytes,
    struct eb_failure *failure)
{
    uint64_t done = eb_direct_read_some(&file->direct, file->descriptor, offset, out, bytes);
    uint8_t *at = (uint8_t *)out + done;
    offset += done;
    bytes -= done;
    while (bytes > 0) {
        ssize_t got = pread(file->descriptor, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            int error = errno;
            eb_failure_set(
                failure, "byte %" PRIu64 ": it cannot be read: %s", offset, strerror(error));
            return eb_failure_blame(failure, error);
        }
        if (got == 0) {
            eb_failure_set(failure,
                "byte %" PRIu64 ": the file was cut short while it was read; write versions "
                "elsewhere and rename them into place",
                offset);
            return eb_failure_blame(failure, ESTALE);
        }
        eb_direct_read_count_plain((uint64_t)got);
        at += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return true;
}

bool eb_table_file_read(struct eb_table_file *file, uint64_t offset, void *out, uint64_t bytes,
    struct eb_failure *failure)
{
    eb_read_watch_begin(file->path);
    bool is_good = read_table_file(file, offset, out, bytes, failure);
    eb_read_watch_end();
    return is_good;
}

bool eb_table_file_is_same(const struct eb_table_file *a, const struct eb_table_file *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}
