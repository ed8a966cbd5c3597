#include "tests/bench/peer_kernels.h"

#include "kernels/bag_stream.h"
#include "kernels/bag_tune.h"

#include <stdlib.h>

#define SCRATCH_ALIGNMENT 64

/* A query that is being computed. */
struct part {
    struct eb_table table;
    struct eb_bag_query query;
    struct eb_bag_extent extent;
};

struct eb_peer_kernels {
    const struct eb_bag_ops *ops;
    struct eb_bag_schedules schedules;
    struct eb_bag_stream stream;
    uint32_t room; /* size of both arrays */
    struct part *parts;
    struct eb_bag_job *jobs;
    uint64_t scratch_bytes;
    uint8_t *scratch;
};

struct eb_peer_kernels *eb_peer_kernels_create(void)
{
    struct eb_peer_kernels *kernels = calloc(1, sizeof *kernels);
    if (kernels) {
        kernels->ops = eb_bag_ops_find(NULL);
        eb_bag_tune_find_defaults(&kernels->schedules);
        eb_bag_stream_init(&kernels->stream, kernels->ops, &kernels->schedules);
    }
    return kernels;
}

void eb_peer_kernels_destroy(struct eb_peer_kernels *kernels)
{
    if (kernels) {
        free(kernels->parts);
        free(kernels->jobs);
        free(kernels->scratch);
    }
    free(kernels);
}

static bool reserve_queries(struct eb_peer_kernels *kernels, uint32_t count)
{
    if (count <= kernels->room) {
        return true;
    }
    free(kernels->parts);
    free(kernels->jobs);
    kernels->parts = calloc(count, sizeof *kernels->parts);
    kernels->jobs = calloc(count, sizeof *kernels->jobs);
    bool has_both = kernels->parts && kernels->jobs;
    kernels->room = has_both ? count : 0;
    return has_both;
}

static bool reserve_scratch(struct eb_peer_kernels *kernels, uint64_t bytes)
{
    if (bytes <= kernels->scratch_bytes) {
        return true;
    }
    uint64_t room = (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
    free(kernels->scratch);
    kernels->scratch = aligned_alloc(SCRATCH_ALIGNMENT, room);
    kernels->scratch_bytes = kernels->scratch ? room : 0;
    return kernels->scratch;
}

static void fill_part(struct part *part, const struct eb_peer_query *from)
{
    part->table = (struct eb_table){
        .rows = from->rows,
        .row_count = from->row_count,
        .row_stride_bytes = from->dim * sizeof(float),
        .row_elements = from->dim,
        .storage = EB_STORAGE_F32,
        .type = EB_F32,
        .unknown_row = -1,
    };
    part->query = (struct eb_bag_query){
        .table = &part->table,
        .reduction = EB_REDUCTION_SUM,
        .missing = EB_MISSING_ERROR,
        .layout = EB_LAYOUT_OFFSETS,
        .indices = {from->indices, from->indices_bytes, sizeof(int64_t)},
        .bounds = {from->offsets, from->offsets_bytes, sizeof(int64_t)},
    };
}

/* Sets *bytes to the scratch of all queries. Returns false if one of them is invalid. */
static bool measure_queries(struct eb_peer_kernels *kernels, const struct eb_peer_query *queries,
    uint32_t count, uint64_t *bytes)
{
    struct eb_bag_error error;
    *bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct part *part = &kernels->parts[i];
        fill_part(part, &queries[i]);
        if (!eb_bag_measure(&part->query, &part->extent, &error)) {
            return false;
        }
        *bytes += part->extent.scratch_bytes;
    }
    return true;
}

static bool check_queries(
    struct eb_peer_kernels *kernels, const struct eb_peer_query *queries, uint32_t count)
{
    struct eb_bag_error error;
    uint8_t *scratch = kernels->scratch;
    for (uint32_t i = 0; i < count; i++) {
        struct part *part = &kernels->parts[i];
        struct eb_bag_job *job = &kernels->jobs[i];
        job->scratch = scratch;
        if (!eb_bag_check(kernels->ops, &part->query, &part->extent, job, &error)) {
            return false;
        }
        job->out = (uint8_t *)queries[i].out;
        job->out_stride_bytes = part->extent.result_row_bytes;
        scratch += part->extent.scratch_bytes;
    }
    return true;
}

bool eb_peer_kernels_run(
    struct eb_peer_kernels *kernels, const struct eb_peer_query *queries, uint32_t count)
{
    uint64_t bytes = 0;
    if (count == 0) {
        return true;
    }
    if (!reserve_queries(kernels, count) || !measure_queries(kernels, queries, count, &bytes) ||
        !reserve_scratch(kernels, bytes) || !check_queries(kernels, queries, count)) {
        return false;
    }
    struct eb_bag_tile tile = {
        .jobs = kernels->jobs,
        .job_count = count,
        .bag_end = kernels->jobs[count - 1].bag_count,
        .element_end = UINT32_MAX,
    };
    eb_bag_stream_pool(&kernels->stream, &tile, NULL);
    return true;
}
