/* One thread's stream of tiles: the functions that it pools with, and the rows that it prefetches.
 * Thread: one each. Memory: owns nothing; borrows the jobs of the last tiles that it was given. */
#pragma once

#include "kernels/bag_ops.h"
#include "kernels/bag_prefetch.h"

struct eb_bag_variant;

struct eb_bag_stream {
    const struct eb_bag_variant *variant;
    struct eb_bag_prefetch prefetch;
};

/* Borrows both pointers for the life of `stream`. */
void eb_bag_stream_init(struct eb_bag_stream *stream, const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules);

/* Computes a tile of checked jobs into their `out`: every byte of its rows or columns, and no
 * other. `next` is the tile that this thread pools after this one; its first rows are prefetched
 * meanwhile. NULL: not known. `next` stays borrowed until the next call. The bits depend neither on
 * the ops nor on how jobs are cut. */
void eb_bag_stream_pool(
    struct eb_bag_stream *stream, const struct eb_bag_tile *tile, const struct eb_bag_tile *next);

/* Computes result rows bag_first .. bag_end - 1 of one checked job, with a stream of its own. */
void eb_bag_pool(const struct eb_bag_ops *ops, const struct eb_bag_job *job, uint32_t bag_first,
    uint32_t bag_end);
