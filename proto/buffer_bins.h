/* Bins of free buffers. A returned buffer is kept for the next taker of its size, which is a power
 * of two. The owner of the bins allocates and frees buffers, counts the lent ones, and locks if
 * several threads use the bins. Everything is inline, so that a constant range costs nothing.
 * Thread: one at a time. Memory: keeps pushed buffers, up to kept_bytes_max bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define EB_BUFFER_BINS_MAX 19
#define EB_BUFFER_ALIGNMENT 64

/* The sizes of buffers that are kept: 2^smallest_bits bytes, twice that, and so on. */
struct eb_buffer_range {
    unsigned smallest_bits;
    unsigned bins; /* at most EB_BUFFER_BINS_MAX */
};

struct eb_kept_buffer {
    struct eb_kept_buffer *next;
};

struct eb_buffer_bins {
    struct eb_kept_buffer *kept[EB_BUFFER_BINS_MAX];
    uint64_t kept_bytes;
    uint64_t kept_bytes_max;
};

/* The size of a buffer that is allocated for a number of bytes. */
struct eb_buffer_size {
    uint64_t bytes; /* size rounded up to a power of two; wraps around near SIZE_MAX */
    unsigned bin;   /* number of the bin; the range's number of bins if such buffers are too large
                       to be kept */
};

static inline struct eb_buffer_size eb_buffer_range_find(struct eb_buffer_range range, size_t bytes)
{
    if (bytes <= (size_t)1 << range.smallest_bits) {
        return (struct eb_buffer_size){UINT64_C(1) << range.smallest_bits, 0};
    }
    /* The logarithm, rounded up. */
    unsigned bits = 64 - (unsigned)__builtin_clzll(bytes - 1);
    unsigned bin = bits - range.smallest_bits;
    if (bin < range.bins) {
        return (struct eb_buffer_size){UINT64_C(1) << bits, bin};
    }
    uint64_t units = ((uint64_t)bytes + EB_BUFFER_ALIGNMENT - 1) / EB_BUFFER_ALIGNMENT;
    return (struct eb_buffer_size){units * EB_BUFFER_ALIGNMENT, range.bins};
}

/* Returns a kept buffer of that size, or NULL if there is none. */
static inline void *eb_buffer_bins_pop(
    struct eb_buffer_bins *bins, struct eb_buffer_range range, struct eb_buffer_size size)
{
    struct eb_kept_buffer *buffer = size.bin < range.bins ? bins->kept[size.bin] : NULL;
    if (buffer) {
        bins->kept[size.bin] = buffer->next;
        bins->kept_bytes -= size.bytes;
    }
    return buffer;
}

/* Keeps a buffer of that size. Returns false if the buffer is too large, or if the bins would keep
 * too many bytes with it; the buffer then still belongs to the caller. */
static inline bool eb_buffer_bins_push(struct eb_buffer_bins *bins, struct eb_buffer_range range,
    struct eb_buffer_size size, void *buffer)
{
    if (size.bin == range.bins || size.bytes > bins->kept_bytes_max - bins->kept_bytes) {
        return false;
    }
    struct eb_kept_buffer *kept = buffer;
    kept->next = bins->kept[size.bin];
    bins->kept[size.bin] = kept;
    bins->kept_bytes += size.bytes;
    return true;
}

/* Frees all kept buffers, which were allocated from the C library's heap. */
static inline void eb_buffer_bins_deinit(struct eb_buffer_bins *bins)
{
    for (unsigned bin = 0; bin < EB_BUFFER_BINS_MAX; bin++) {
        while (bins->kept[bin]) {
            struct eb_kept_buffer *buffer = bins->kept[bin];
            bins->kept[bin] = buffer->next;
            free(buffer);
        }
    }
}
