#include "kernels/bag_stream.h"

#include "kernels/bag_copy.h"
#include "kernels/bag_variant.h"

#include <assert.h>

void eb_bag_stream_init(struct eb_bag_stream *stream, const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules)
{
    stream->variant = eb_bag_ops_variant(ops);
    eb_bag_prefetch_init(&stream->prefetch, schedules, stream->variant->block_elements);
}

static void pool_next_tile(const struct eb_bag_variant *variant, const struct eb_bag_range *range,
    struct eb_bag_prefetch *prefetch)
{
    const struct eb_bag_job *job = range->job;
    eb_bag_pool_fn pool = variant->pool[job->table->storage];
    if (job->reduction == EB_REDUCTION_NONE && !job->weights && eb_bag_is_copied(job)) {
        pool = eb_bag_copy_range;
    }
    pool(range, prefetch);
}

void eb_bag_stream_pool(
    struct eb_bag_stream *stream, const struct eb_bag_tile *tile, const struct eb_bag_tile *next)
{
    struct eb_bag_prefetch *prefetch = &stream->prefetch;
    /* If the last call announced this tile, its rows have been prefetched already. */
    bool may_be_short = tile->job_count == 1 && !next && prefetch->tile_count < 2;
    bool has_begun = false;
    for (uint32_t n = 0; n < tile->job_count; n++) {
        struct eb_bag_range range = eb_bag_tile_range(tile, n);
        bool is_called = eb_bag_prefetch_is_on(prefetch, range.job->table) &&
                         !(may_be_short && eb_bag_prefetch_short(prefetch, &range));
        if (is_called && !has_begun) {
            eb_bag_prefetch_begin(prefetch, tile, next);
            has_begun = true;
        }
        if (is_called) {
            eb_bag_prefetch_range(prefetch, &range);
        }
        pool_next_tile(stream->variant, &range, is_called ? prefetch : NULL);
    }
    if (!has_begun) {
        eb_bag_prefetch_forget(prefetch);
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
