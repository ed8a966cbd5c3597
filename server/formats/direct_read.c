#include "server/formats/direct_read.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

/* linux/magic.h lacks it. */
#define XFS_MAGIC 0x58465342

/* After a range that the page cache did not hold, the cache is not asked about this many ranges.
 * Each question reads a page, and most files are in the cache as a whole or not at all. */
#define UNASKED_RANGES 7

/* Room for "/proc/self/fd/" and a number. */
#define REOPENED_PATH_BYTES 32

static _Atomic uint64_t cached_bytes;
static _Atomic uint64_t direct_bytes;
static _Atomic uint64_t plain_bytes;

static void add_bytes(_Atomic uint64_t *counter, uint64_t bytes)
{
    atomic_fetch_add_explicit(counter, bytes, memory_order_relaxed);
}

void eb_direct_read_count_plain(uint64_t bytes)
{
    add_bytes(&plain_bytes, bytes);
}

struct eb_direct_read_bytes eb_direct_read_count(void)
{
    return (struct eb_direct_read_bytes){
        .cached = atomic_load_explicit(&cached_bytes, memory_order_relaxed),
        .direct = atomic_load_explicit(&direct_bytes, memory_order_relaxed),
        .plain = atomic_load_explicit(&plain_bytes, memory_order_relaxed),
    };
}

static bool has_direct_reads(int descriptor)
{
    struct statfs system;
    if (fstatfs(descriptor, &system) != 0) {
        return false;
    }
    return system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_MAGIC ||
           system.f_type == BTRFS_SUPER_MAGIC;
}

/* Opens the same file once more, not by its path, which may lead to another file by now. */
static int reopen_direct(int descriptor)
{
    char path[REOPENED_PATH_BYTES];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return open(path, O_RDONLY | O_DIRECT | O_NONBLOCK | O_CLOEXEC);
}

/* Gives up reading with O_DIRECT. From now on, the caller reads the file, in order. */
static void stop_direct(struct eb_direct_read *reader, int descriptor)
{
    eb_direct_read_close(reader);
    reader->state = EB_DIRECT_READ_OFF;
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
}

static void start_direct(struct eb_direct_read *reader, int descriptor)
{
    reader->state = EB_DIRECT_READ_OFF;
    if (!has_direct_reads(descriptor)) {
        return;
    }
    reader->descriptor = reopen_direct(descriptor);
    if (reader->descriptor < 0) {
        return;
    }
    reader->state = EB_DIRECT_READ_ON;
    reader->buffer = aligned_alloc(EB_DIRECT_READ_ALIGNMENT, EB_DIRECT_READ_WINDOW_BYTES);
    if (!reader->buffer) {
        stop_direct(reader, descriptor);
        return;
    }
    /* Without this, a question to the page cache makes the system read far ahead into it. */
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
}

void eb_direct_read_close(struct eb_direct_read *reader)
{
    if (reader->state == EB_DIRECT_READ_ON) {
        (void)close(reader->descriptor);
    }
    free(reader->buffer);
    *reader = (struct eb_direct_read){0};
}

/* Reads only what the page cache holds. Returns 0 if that is not the first byte, or at the end. */
static uint64_t read_nowait(int descriptor, uint64_t offset, void *out, uint64_t bytes)
{
    struct iovec range = {.iov_base = out, .iov_len = bytes};
    ssize_t got;
    do {
        got = preadv2(descriptor, &range, 1, (off_t)offset, RWF_NOWAIT);
    } while (got < 0 && errno == EINTR);
    return got > 0 ? (uint64_t)got : 0;
}

/* Copies the first bytes of the range from the page cache, as far as it holds them. */
static uint64_t copy_cached(
    struct eb_direct_read *reader, int descriptor, uint64_t offset, uint8_t *out, uint64_t bytes)
{
    if (bytes == 0) {
        return 0;
    }
    if (reader->unasked > 0) {
        reader->unasked--;
        return 0;
    }
    /* Linux reads bytes that are not there into the cache, even if it does not wait for them. So
     * the first byte is tried alone: if it is not there, only its page is read needlessly. */
    uint64_t done = read_nowait(descriptor, offset, out, 1);
    if (done > 0) {
        done = read_nowait(descriptor, offset, out, bytes);
    }
    reader->unasked = done < bytes ? UNASKED_RANGES : 0;
    add_bytes(&cached_bytes, done);
    return done;
}

static uint64_t copy_from_window(
    const struct eb_direct_read *reader, uint64_t offset, void *out, uint64_t bytes)
{
    if (offset < reader->begin || offset >= reader->end) {
        return 0;
    }
    uint64_t left = reader->end - offset;
    uint64_t count = bytes < left ? bytes : left;
    memcpy(out, reader->buffer + (offset - reader->begin), count);
    return count;
}

/* Reads the aligned range around the next `bytes` bytes, or its beginning if that is larger than
 * the buffer. Returns false if it read nothing. */
static bool read_window(struct eb_direct_read *reader, uint64_t offset, uint64_t bytes)
{
    uint64_t skipped = offset % EB_DIRECT_READ_ALIGNMENT;
    uint64_t room = EB_DIRECT_READ_WINDOW_BYTES - skipped;
    uint64_t wanted = skipped + (bytes < room ? bytes : room);
    wanted +=
        (EB_DIRECT_READ_ALIGNMENT - wanted % EB_DIRECT_READ_ALIGNMENT) % EB_DIRECT_READ_ALIGNMENT;
    reader->begin = offset - skipped;
    reader->end = reader->begin;
    ssize_t got;
    do {
        got = pread(reader->descriptor, reader->buffer, wanted, (off_t)reader->begin);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) {
        return false;
    }
    reader->end += (uint64_t)got;
    add_bytes(&direct_bytes, (uint64_t)got);
    return true;
}

/* Reads the range with O_DIRECT. Returns how many bytes it read. */
static uint64_t read_direct(
    struct eb_direct_read *reader, uint64_t offset, uint8_t *out, uint64_t bytes)
{
    uint64_t done = 0;
    while (done < bytes) {
        uint64_t left = bytes - done;
        if (!read_window(reader, offset + done, left)) {
            break;
        }
        uint64_t count = copy_from_window(reader, offset + done, out + done, left);
        if (count == 0) {
            break;
        }
        done += count;
    }
    return done;
}

static bool is_refusal(int error)
{
    return error == EINVAL || error == EOPNOTSUPP || error == ENOTSUP;
}

uint64_t eb_direct_read_some(
    struct eb_direct_read *reader, int descriptor, uint64_t offset, void *out, uint64_t bytes)
{
    uint8_t *to = out;
    if (bytes < EB_DIRECT_READ_BYTES_MIN) {
        return 0;
    }
    if (reader->state == EB_DIRECT_READ_UNTRIED) {
        start_direct(reader, descriptor);
    }
    if (reader->state != EB_DIRECT_READ_ON) {
        return 0;
    }
    uint64_t done = copy_from_window(reader, offset, to, bytes);
    done += copy_cached(reader, descriptor, offset + done, to + done, bytes - done);
    if (done < bytes) {
        errno = 0;
        done += read_direct(reader, offset + done, to + done, bytes - done);
        if (done < bytes && is_refusal(errno)) {
            stop_direct(reader, descriptor);
        }
    }
    return done;
}
