#include "kernels/bag_stream.h"

#include "kernels/bag_copy.h"
#include "kernels/bag_variant.h"
#include "kernels/bag_vector.h"

#include <assert.h>

/* A longer range is pooled in two parts if other ranges follow, so that the heads of those are not
 * prefetched too early. */
#define PART_ROWS_MAX 256
/* Least rows of the second part. At least REACH_ROWS of bag_prefetch.c, so that the next range's
 * head is not prefetched before the first part is pooled. */
#define PART_ROWS_MIN 64

void eb_bag_stream_init(struct eb_bag_stream *stream, const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules)
{
    stream->variant = eb_bag_ops_variant(ops);
    eb_bag_prefetch_init(&stream->prefetch, schedules);
}

static eb_bag_pool_fn find_function(
    const struct eb_bag_variant *variant, const struct eb_bag_job *job)
{
    bool is_copied = job->reduction == EB_REDUCTION_NONE && !job->weights && eb_bag_is_copied(job);
    return is_copied ? eb_bag_copy_range : variant->pool[job->table->storage];
}

/* Pools a range with the variant's functions. Only those of the reference can read the table's
 * default vector. */
static void pool_with(const struct eb_bag_variant *variant, const struct eb_bag_range *range,
    const struct eb_bag_ahead *ahead)
{
    eb_bag_pool_fn function = find_function(variant, range->job);
    if (__builtin_expect(range->job->has_vector_rows, 0) && function != eb_bag_copy_range &&
        variant != &eb_bag_ref) {
        eb_bag_vector_pool(variant, range, ahead);
    } else {
        function(range, ahead);
    }
}

/* Returns the last bag from which on a range has at least PART_ROWS_MIN rows, or its first bag. */
static uint32_t find_last_part(const struct eb_bag_range *range)
{
    const uint32_t *starts = range->job->starts;
    uint32_t first = range->bag_first;
    uint32_t end = range->bag_end;
    if (!starts) {
        return end - PART_ROWS_MIN;
    }
    uint32_t row_max = starts[end] - PART_ROWS_MIN;
    while (end - first > 1) {
        uint32_t middle = first + (end - first) / 2;
        if (starts[middle] <= row_max) {
            first = middle;
        } else {
            end = middle;
        }
    }
    return first;
}

/* Prefetches the heads that are due, and pools a range of `row_count` rows. */
static void pool_part(struct eb_bag_stream *stream, const struct eb_bag_range *range,
    uint64_t row_count, const struct eb_bag_ahead *ahead)
{
    eb_bag_prefetch_heads(&stream->prefetch, row_count);
    pool_with(stream->variant, range, ahead);
}

/* Pools a range in two parts, if it has bags for both. Out of line, so that only long ranges pay
 * for the copies: reading a structure whose members have just been written stalls the processor. */
static __attribute__((noinline)) void pool_in_parts(struct eb_bag_stream *stream,
    const struct eb_bag_range *range, uint64_t row_count, const struct eb_bag_ahead *ahead)
{
    struct eb_bag_range part = *range;
    struct eb_bag_range rest = *range;
    rest.bag_first = find_last_part(range);
    part.bag_end = rest.bag_first;
    uint64_t part_rows = eb_bag_range_rows(&part);
    if (part.bag_first < part.bag_end) {
        pool_part(stream, &part, part_rows, ahead);
    }
    pool_part(stream, &rest, row_count - part_rows, ahead);
}

static void pool_range(struct eb_bag_stream *stream, const struct eb_bag_range *range, bool is_last)
{
    uint64_t row_count = eb_bag_range_rows(range);
    struct eb_bag_ahead ahead = {
        .schedule = eb_bag_prefetch_schedule(stream->prefetch.schedules, range->job),
    };
    const struct eb_bag_ahead *given = NULL;
    if (ahead.schedule && row_count > 0) {
        ahead.rows_end = eb_bag_range_first_row(range) + row_count;
        given = &ahead;
    }
    if (row_count > PART_ROWS_MAX && !is_last) {
        pool_in_parts(stream, range, row_count, given);
    } else {
        pool_part(stream, range, row_count, given);
    }
}

/* Returns whether rows of a tile are worth prefetching while the tile is pooled. A lone row is
 * read at once. */
static bool is_prefetched(const struct eb_bag_stream *stream, const struct eb_bag_tile *tile)
{
    struct eb_bag_range first = eb_bag_tile_range(tile, 0);
    if (tile->job_count == 1 && eb_bag_range_rows(&first) <= 1) {
        return false;
    }
    for (uint32_t n = 0; n < tile->job_count; n++) {
        if (eb_bag_prefetch_schedule(stream->prefetch.schedules, &tile->jobs[n])) {
            return true;
        }
    }
    return false;
}

void eb_bag_stream_pool(
    struct eb_bag_stream *stream, const struct eb_bag_tile *tile, const struct eb_bag_tile *next)
{
    bool is_announced = stream->prefetch.tile_count == 2;
    bool needs_cursor =
        stream->variant->prefetches &&
        (is_announced || is_prefetched(stream, tile) || (next && is_prefetched(stream, next)));
    if (!needs_cursor) {
        for (uint32_t n = 0; n < tile->job_count; n++) {
            struct eb_bag_range range = eb_bag_tile_range(tile, n);
            pool_with(stream->variant, &range, NULL);
        }
        return;
    }
    eb_bag_prefetch_begin(&stream->prefetch, tile, next);
    for (uint32_t n = 0; n < tile->job_count; n++) {
        struct eb_bag_range range = eb_bag_tile_range(tile, n);
        pool_range(stream, &range, n + 1 == tile->job_count && !next);
    }
}

void eb_bag_pool(const struct eb_bag_ops *ops, const struct eb_bag_job *job, uint32_t bag_first,
    uint32_t bag_end)
{
    assert(bag_first <= bag_end && bag_end <= job->bag_count);
    struct eb_bag_tile tile = {
        .jobs = job,
        .job_count = 1,
        .bag_first = bag_first,
        .bag_end = bag_end,
        .element_end = UINT32_MAX,
    };
    struct eb_bag_stream stream;
    eb_bag_stream_init(&stream, ops, &eb_bag_schedules_default);
    eb_bag_stream_pool(&stream, &tile, NULL);
}
