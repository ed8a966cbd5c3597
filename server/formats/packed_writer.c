#include "server/formats/packed_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for "/proc/self/fd/" and a number. */
#define DESCRIPTOR_PATH_BYTES 32

static const char *find_written_hint(int error)
{
    switch (error) {
    case EEXIST: return "remove it or choose another name";
    case ENOENT:
    case ENOTDIR: return "create its directory or choose another one";
    case EACCES:
    case EPERM:
    case EROFS: return "check the directory's permissions";
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return "free some space or choose another disk";
    case EMFILE: return "raise ulimit -n or write fewer files";
    default: return "check the disk and its file system";
    }
}

/* Sets *failure to what failed and to the reason in errno. Always returns false. */
static bool refuse_written(
    const struct eb_packed_writer *writer, const char *what, struct eb_failure *failure)
{
    int error = errno;
    return eb_failure_set(failure, "%s: it cannot be %s (%s); %s", writer->path, what,
        strerror(error), find_written_hint(error));
}

/* Returns the length of the directory part of a path, including its slash. */
static int directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash + 1 - path) : 0;
}

/* Writes the path through which a file without a name can be linked. */
static void name_descriptor(int descriptor, char out[DESCRIPTOR_PATH_BYTES])
{
    snprintf(out, DESCRIPTOR_PATH_BYTES, "/proc/self/fd/%d", descriptor);
}

/* Opens a file without a name. It disappears when the process ends, however that happens. Returns a
 * negative number if the file system does not support such files, or if the file could not be given
 * a name later. */
static int open_nameless(const struct eb_packed_writer *writer)
{
    char name[DESCRIPTOR_PATH_BYTES];
    int descriptor = open(writer->directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor < 0) {
        return descriptor;
    }
    name_descriptor(descriptor, name);
    if (access(name, F_OK) != 0) {
        (void)close(descriptor);
        return -1;
    }
    return descriptor;
}

static bool take_written_memory(
    struct eb_packed_writer *writer, const char *path, struct eb_failure *failure)
{
    int length = directory_length(path);
    writer->path = strdup(path);
    writer->directory = length > 0 ? strndup(path, (size_t)length) : strdup(".");
    if (asprintf(&writer->hidden_path, "%.*s.%s.XXXXXX", length, path, path + length) < 0) {
        writer->hidden_path = NULL;
    }
    writer->head = calloc(1, writer->format.head_bytes);
    writer->block = malloc(EB_PACKED_FORMAT_BLOCK_BYTES);
    return (writer->path && writer->directory && writer->hidden_path && writer->head &&
               writer->block) ||
           eb_failure_set(failure, "%s: out of memory", path);
}

static bool make_file(struct eb_packed_writer *writer, struct eb_failure *failure)
{
    if (access(writer->path, F_OK) == 0) {
        errno = EEXIST;
        return refuse_written(writer, "written", failure);
    }
    writer->descriptor = open_nameless(writer);
    if (writer->descriptor < 0) {
        writer->descriptor = mkostemp(writer->hidden_path, O_CLOEXEC);
        writer->is_hidden = writer->descriptor >= 0;
    }
    if (writer->descriptor < 0) {
        return refuse_written(writer, "written", failure);
    }
    writer->is_open = true;
    /* So far only the owner may read the file, but the server may run as another user. */
    if (fchmod(writer->descriptor, 0644) != 0) {
        return refuse_written(writer, "made readable for other users", failure);
    }
    /* Some file systems cannot reserve space. On those, writing fails later if there is too
     * little space. */
    if (fallocate(writer->descriptor, 0, 0, (off_t)writer->format.file_bytes) != 0 &&
        errno != EOPNOTSUPP) {
        return eb_failure_set(failure,
            "%s: %" PRIu64
            " bytes of disk space cannot be reserved for it (%s); free some or choose another disk",
            writer->path, writer->format.file_bytes, strerror(errno));
    }
    return true;
}

bool eb_packed_writer_open(struct eb_packed_writer *writer, const char *path,
    const struct eb_packed_format *format, struct eb_failure *failure)
{
    *writer = (struct eb_packed_writer){.format = *format, .offset_bytes = format->head_bytes};
    if (!take_written_memory(writer, path, failure) || !make_file(writer, failure)) {
        eb_packed_writer_close(writer);
        return false;
    }
    return true;
}

void eb_packed_writer_close(struct eb_packed_writer *writer)
{
    if (writer->is_open) {
        (void)close(writer->descriptor);
    }
    if (writer->is_hidden) {
        (void)unlink(writer->hidden_path);
    }
    free(writer->path);
    free(writer->directory);
    free(writer->hidden_path);
    free(writer->head);
    free(writer->block);
    *writer = (struct eb_packed_writer){0};
}

static bool write_at(struct eb_packed_writer *writer, const uint8_t *bytes, uint64_t count,
    uint64_t offset, struct eb_failure *failure)
{
    while (count > 0) {
        ssize_t written = pwrite(writer->descriptor, bytes, count, (off_t)offset);
        if (written < 0 && errno != EINTR) {
            return refuse_written(writer, "written", failure);
        }
        if (written > 0) {
            bytes += written;
            offset += (uint64_t)written;
            count -= (uint64_t)written;
        }
    }
    return true;
}

/* Writes the block of `bytes` bytes that ends at offset_bytes. Puts its checksum into the head. */
static bool write_block(struct eb_packed_writer *writer, uint64_t bytes, struct eb_failure *failure)
{
    uint64_t begin = writer->offset_bytes - bytes;
    uint64_t block = (begin - writer->format.head_bytes) / EB_PACKED_FORMAT_BLOCK_BYTES;
    uint64_t checksum = eb_packed_format_checksum(writer->block, bytes);
    memcpy(writer->head + eb_packed_format_checksum_offset(block), &checksum, sizeof checksum);
    return write_at(writer, writer->block, bytes, begin, failure);
}

bool eb_packed_writer_append(
    struct eb_packed_writer *writer, const void *bytes, uint64_t count, struct eb_failure *failure)
{
    assert(count <= writer->format.file_bytes - writer->offset_bytes);
    const uint8_t *from = bytes;
    while (count > 0) {
        uint64_t filled =
            (writer->offset_bytes - writer->format.head_bytes) % EB_PACKED_FORMAT_BLOCK_BYTES;
        uint64_t room = EB_PACKED_FORMAT_BLOCK_BYTES - filled;
        uint64_t portion = count < room ? count : room;
        memcpy(writer->block + filled, from, portion);
        writer->offset_bytes += portion;
        from += portion;
        count -= portion;
        if (portion == room && !write_block(writer, EB_PACKED_FORMAT_BLOCK_BYTES, failure)) {
            return false;
        }
    }
    return true;
}

bool eb_packed_writer_begin(
    struct eb_packed_writer *writer, enum eb_packed_kind kind, struct eb_failure *failure)
{
    static const uint8_t zeros[EB_PACKED_FORMAT_ALIGNMENT];
    const struct eb_packed_section *section = &writer->format.sections[kind];
    assert(section->bytes > 0 && section->offset >= writer->offset_bytes);
    assert(section->offset - writer->offset_bytes < sizeof zeros);
    return eb_packed_writer_append(writer, zeros, section->offset - writer->offset_bytes, failure);
}

/* Writes the head and syncs the whole file to the disk. */
static bool write_written_head(struct eb_packed_writer *writer, struct eb_failure *failure)
{
    eb_packed_format_write(&writer->format, writer->head);
    if (!write_at(writer, writer->head, writer->format.head_bytes, 0, failure)) {
        return false;
    }
    return fsync(writer->descriptor) == 0 || refuse_written(writer, "written", failure);
}

bool eb_packed_writer_end(struct eb_packed_writer *writer, struct eb_failure *failure)
{
    struct eb_packed_format *format = &writer->format;
    assert(writer->offset_bytes == format->file_bytes);
    uint64_t last = (format->file_bytes - format->head_bytes) % EB_PACKED_FORMAT_BLOCK_BYTES;
    if (last > 0 && !write_block(writer, last, failure)) {
        return false;
    }
    if (!write_written_head(writer, failure)) {
        return false;
    }
    /* Free the block now, because many files may be complete and wait to be published. */
    free(writer->block);
    writer->block = NULL;
    writer->is_ended = true;
    return true;
}

bool eb_packed_writer_mark(
    struct eb_packed_writer *writer, uint64_t packing, struct eb_failure *failure)
{
    assert(writer->is_ended);
    writer->format.packing = packing;
    return write_written_head(writer, failure);
}

/* Gives a hidden file its final name, without replacing an existing file. NFS and some other file
 * systems cannot rename in that way. A hard link, which never replaces a file, is used there. */
static bool rename_hidden(const struct eb_packed_writer *writer)
{
    const char *from = writer->hidden_path;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, writer->path, RENAME_NOREPLACE) == 0) {
        return true;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return false;
    }
    if (link(from, writer->path) != 0) {
        return false;
    }
    (void)unlink(from);
    return true;
}

static bool link_nameless(const struct eb_packed_writer *writer)
{
    char name[DESCRIPTOR_PATH_BYTES];
    name_descriptor(writer->descriptor, name);
    return linkat(AT_FDCWD, name, AT_FDCWD, writer->path, AT_SYMLINK_FOLLOW) == 0;
}

/* Gives the file its name. The name is on the disk only after the directory is synced. */
static bool name_file(struct eb_packed_writer *writer, int directory, struct eb_failure *failure)
{
    if (!(writer->is_hidden ? rename_hidden(writer) : link_nameless(writer))) {
        return refuse_written(writer, "put into place", failure);
    }
    writer->is_hidden = false;
    return fsync(directory) == 0 ||
           refuse_written(writer, "written to the disk's directory", failure);
}

bool eb_packed_writer_publish(struct eb_packed_writer *writer, struct eb_failure *failure)
{
    assert(writer->is_ended);
    int directory = open(writer->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        return refuse_written(writer, "put into place", failure);
    }
    bool is_good = name_file(writer, directory, failure);
    (void)close(directory);
    return is_good;
}
