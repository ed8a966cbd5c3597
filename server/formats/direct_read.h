/* Reads large ranges of a file without filling the page cache: ranges that the cache already holds
 * are copied from it, and others are read with O_DIRECT. That takes less CPU time than reading
 * through the cache, and evicts nothing from it. The module does this only on ext4, xfs and btrfs.
 * On other file systems, and if O_DIRECT is refused, it reads nothing, and the caller reads as
 * usual.
 * Thread: one at a time for each reader; the counters are for all threads.
 * Memory: until the first large range, nothing; then one descriptor and a buffer of
 * EB_DIRECT_READ_WINDOW_BYTES until close. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Smaller ranges, such as headers, are left to the caller. */
#define EB_DIRECT_READ_BYTES_MIN UINT64_C(65536)
/* Offset, length and memory of a read with O_DIRECT are multiples of this. */
#define EB_DIRECT_READ_ALIGNMENT UINT64_C(4096)
/* Most bytes of one read with O_DIRECT, and the size of the buffer: a block of a packed file, which
 * may begin anywhere. */
#define EB_DIRECT_READ_WINDOW_BYTES ((UINT64_C(1) << 20) + EB_DIRECT_READ_ALIGNMENT)

enum eb_direct_read_state {
    EB_DIRECT_READ_UNTRIED,
    EB_DIRECT_READ_ON,
    EB_DIRECT_READ_OFF, /* the file system or the system does not support it */
};

/* A reader of one file. Begins zeroed. */
struct eb_direct_read {
    enum eb_direct_read_state state;
    int descriptor;   /* of the same file, with O_DIRECT; valid if on */
    uint8_t *buffer;  /* the last range that was read; aligned */
    uint64_t begin;   /* offset in the file of that range */
    uint64_t end;     /* its end */
    unsigned unasked; /* number of ranges to read before the page cache is asked again */
};

/* Reads at most `bytes` bytes from `offset` of the file that is open as `descriptor`. Returns how
 * many were read. The caller reads the rest, which may be everything, and so meets any errors. */
uint64_t eb_direct_read_some(
    struct eb_direct_read *reader, int descriptor, uint64_t offset, void *out, uint64_t bytes);
/* Accepts a zeroed reader. */
void eb_direct_read_close(struct eb_direct_read *reader);

/* Bytes that this process has read from table files. */
struct eb_direct_read_bytes {
    uint64_t cached; /* copied from the page cache, which was asked first */
    uint64_t direct; /* read with O_DIRECT, including the blocks around the wanted bytes */
    uint64_t plain;  /* read as usual */
};

/* Counts bytes that a caller has read as usual. */
void eb_direct_read_count_plain(uint64_t bytes);
struct eb_direct_read_bytes eb_direct_read_count(void);
