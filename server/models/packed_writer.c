#include "server/models/packed_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Says what failed, by errno. Always false. */
static bool refuse(const struct eb_packed_writer *writer, const char *what, const char *remedy,
    struct eb_file_fault *fault)
{
    return eb_file_fault_set(
        fault, "%s: it cannot be %s (%s); %s", writer->path, what, strerror(errno), remedy);
}

/* The directory part of a path, its slash included. */
static int directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash + 1 - path) : 0;
}

static bool take_memory(
    struct eb_packed_writer *writer, const char *path, struct eb_file_fault *fault)
{
    int directory = directory_length(path);
    writer->path = strdup(path);
    if (asprintf(&writer->hidden_path, "%.*s.%s.XXXXXX", directory, path, path + directory) < 0) {
        writer->hidden_path = NULL;
    }
    writer->head = calloc(1, writer->format.head_bytes);
    writer->block = malloc(EB_PACKED_FORMAT_BLOCK_BYTES);
    return (writer->path && writer->hidden_path && writer->head && writer->block) ||
           eb_file_fault_set(fault, "%s: out of memory", path);
}

static bool make_file(struct eb_packed_writer *writer, struct eb_file_fault *fault)
{
    if (access(writer->path, F_OK) == 0) {
        errno = EEXIST;
        return refuse(writer, "written", "remove it or choose another name", fault);
    }
    writer->descriptor = mkostemp(writer->hidden_path, O_CLOEXEC);
    if (writer->descriptor < 0) {
        return refuse(writer, "written", "check the directory and its permissions", fault);
    }
    writer->is_hidden = true;
    /* mkostemp lets nobody else in, but the server may be somebody else. */
    if (fchmod(writer->descriptor, 0644) != 0) {
        return refuse(writer, "opened to others", "check the file system", fault);
    }
    /* Some file systems cannot tell beforehand whether there is room. */
    if (fallocate(writer->descriptor, 0, 0, (off_t)writer->format.file_bytes) != 0 &&
        errno != EOPNOTSUPP) {
        return eb_file_fault_set(fault,
            "%s: %" PRIu64 " bytes cannot be had for it (%s); free some or choose another disk",
            writer->path, writer->format.file_bytes, strerror(errno));
    }
    return true;
}

bool eb_packed_writer_open(struct eb_packed_writer *writer, const char *path,
    const struct eb_packed_format *format, struct eb_file_fault *fault)
{
    *writer = (struct eb_packed_writer){
        .format = *format, .descriptor = -1, .offset_bytes = format->head_bytes};
    if (!take_memory(writer, path, fault) || !make_file(writer, fault)) {
        eb_packed_writer_close(writer);
        return false;
    }
    return true;
}

void eb_packed_writer_close(struct eb_packed_writer *writer)
{
    /* A zeroed writer has no descriptor, though it is 0. */
    if (writer->is_hidden && writer->descriptor >= 0) {
        (void)close(writer->descriptor);
    }
    if (writer->is_hidden) {
        (void)unlink(writer->hidden_path);
    }
    free(writer->path);
    free(writer->hidden_path);
    free(writer->head);
    free(writer->block);
    *writer = (struct eb_packed_writer){0};
}

static bool write_at(struct eb_packed_writer *writer, const uint8_t *bytes, uint64_t count,
    uint64_t offset, struct eb_file_fault *fault)
{
    while (count > 0) {
        ssize_t written = pwrite(writer->descriptor, bytes, count, (off_t)offset);
        if (written < 0 && errno != EINTR) {
            return refuse(writer, "written", "check the disk", fault);
        }
        if (written > 0) {
            bytes += written;
            offset += (uint64_t)written;
            count -= (uint64_t)written;
        }
    }
    return true;
}

/* Writes the block that ends where the file does now. */
static bool write_block(
    struct eb_packed_writer *writer, uint64_t bytes, struct eb_file_fault *fault)
{
    uint64_t begin = writer->offset_bytes - bytes;
    uint64_t block = (begin - writer->format.head_bytes) / EB_PACKED_FORMAT_BLOCK_BYTES;
    uint64_t checksum = eb_packed_format_checksum(writer->block, bytes);
    memcpy(writer->head + eb_packed_format_checksum_offset(block), &checksum, sizeof checksum);
    return write_at(writer, writer->block, bytes, begin, fault);
}

bool eb_packed_writer_append(
    struct eb_packed_writer *writer, const void *bytes, uint64_t count, struct eb_file_fault *fault)
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
        if (portion == room && !write_block(writer, EB_PACKED_FORMAT_BLOCK_BYTES, fault)) {
            return false;
        }
    }
    return true;
}

bool eb_packed_writer_begin(
    struct eb_packed_writer *writer, enum eb_packed_kind kind, struct eb_file_fault *fault)
{
    static const uint8_t zeros[EB_PACKED_FORMAT_ALIGNMENT];
    const struct eb_packed_section *section = &writer->format.sections[kind];
    assert(section->bytes > 0 && section->offset >= writer->offset_bytes);
    assert(section->offset - writer->offset_bytes < sizeof zeros);
    return eb_packed_writer_append(writer, zeros, section->offset - writer->offset_bytes, fault);
}

/* The directory that the file is in. Negative: *fault. */
static int open_directory(const struct eb_packed_writer *writer, struct eb_file_fault *fault)
{
    char *path;
    int length = directory_length(writer->path);
    if (asprintf(&path, "%.*s", length > 0 ? length : 1, length > 0 ? writer->path : ".") < 0) {
        eb_file_fault_set(fault, "%s: out of memory", writer->path);
        return -1;
    }
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        refuse(writer, "put into place", "check the directory's permissions", fault);
    }
    free(path);
    return descriptor;
}

bool eb_packed_writer_end(struct eb_packed_writer *writer, struct eb_file_fault *fault)
{
    struct eb_packed_format *format = &writer->format;
    assert(writer->offset_bytes == format->file_bytes);
    uint64_t last = (format->file_bytes - format->head_bytes) % EB_PACKED_FORMAT_BLOCK_BYTES;
    if (last > 0 && !write_block(writer, last, fault)) {
        return false;
    }
    eb_packed_format_write(format, writer->head);
    if (!write_at(writer, writer->head, format->head_bytes, 0, fault)) {
        return false;
    }
    /* Many may have ended and wait to be published. */
    free(writer->block);
    writer->block = NULL;
    bool is_kept = fsync(writer->descriptor) == 0;
    is_kept &= close(writer->descriptor) == 0;
    writer->descriptor = -1;
    return is_kept || refuse(writer, "written", "check the disk", fault);
}

/* A rename is on the disk when its directory is. */
static bool rename_file(struct eb_packed_writer *writer, int directory, struct eb_file_fault *fault)
{
    if (renameat2(AT_FDCWD, writer->hidden_path, AT_FDCWD, writer->path, RENAME_NOREPLACE) != 0) {
        return refuse(writer, "put into place", "remove it or choose another name", fault);
    }
    writer->is_hidden = false;
    return fsync(directory) == 0 || refuse(writer, "kept", "check the disk", fault);
}

bool eb_packed_writer_publish(struct eb_packed_writer *writer, struct eb_file_fault *fault)
{
    assert(writer->descriptor < 0 && writer->is_hidden);
    int directory = open_directory(writer, fault);
    if (directory < 0) {
        return false;
    }
    bool is_good = rename_file(writer, directory, fault);
    (void)close(directory);
    return is_good;
}
