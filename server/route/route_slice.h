/* Cuts a checked job whose rows are pooled into slices: ranges of its bags, each of which is split
 * and merged by itself (route_split.h, route_merge.h). The sums of the parts are then in memory for
 * a few slices only, and not for all bags. A bag is never cut.
 *
 * Thread: pure. Memory: from the arena; a slice borrows from the job. */
#pragma once

#include "kernels/bag.h"
#include "proto/arena.h"

/* Returns whether a job can be cut. A job with the reduction NONE cannot: the parts send no more
 * rows than it has results. */
bool eb_route_can_slice(const struct eb_bag_job *job);

/* Returns the bytes of one row that a part sends for such a job. */
uint64_t eb_route_sum_bytes(const struct eb_bag_job *job);

/* Returns the most bytes that the results of the parts may have for bags [begin, end), with
 * `parts` parts. */
uint64_t eb_route_slice_bytes(
    const struct eb_bag_job *job, uint32_t begin, uint32_t end, uint32_t parts);

/* Returns the end of the slice that begins with bag `begin`: as many bags as have at most
 * `bytes_max` of such results, but at least one. */
uint32_t eb_route_slice_end(
    const struct eb_bag_job *job, uint32_t begin, uint32_t parts, uint64_t bytes_max);

/* Sets *slice to the job of bags [begin, end), which has no results yet. missing_count and
 * gather_bytes remain those of the whole job. Returns false if the arena is full. */
bool eb_route_slice(const struct eb_bag_job *job, uint32_t begin, uint32_t end,
    struct eb_arena *arena, struct eb_bag_job *slice);
