#include "server/route/route_slice.h"

#include "kernels/types.h"
#include "server/route/route_split.h"

#include <assert.h>

bool eb_route_can_slice(const struct eb_bag_job *job)
{
    return job->starts && job->reduction != EB_REDUCTION_NONE;
}

/* Returns the most rows that the parts may send for a bag. */
static uint64_t count_bag_rows(const struct eb_bag_job *job, uint32_t bag, uint64_t rows_max)
{
    uint64_t rows = job->starts[bag + 1] - job->starts[bag];
    return rows < rows_max ? rows : rows_max;
}

/* Returns the most rows that the parts may send for any bag. */
static uint64_t find_rows_max(const struct eb_bag_job *job, uint32_t parts)
{
    return eb_route_is_by_row(job) ? UINT64_MAX : (uint64_t)parts + 1; /* and those of vectors */
}

uint64_t eb_route_sum_bytes(const struct eb_bag_job *job)
{
    return job->table->row_elements * eb_type_bytes(eb_route_sum_type(job->table->type));
}

uint64_t eb_route_slice_bytes(
    const struct eb_bag_job *job, uint32_t begin, uint32_t end, uint32_t parts)
{
    uint64_t rows_max = find_rows_max(job, parts);
    uint64_t rows = 0;
    for (uint32_t bag = begin; bag < end; bag++) {
        rows += count_bag_rows(job, bag, rows_max);
    }
    return rows * eb_route_sum_bytes(job);
}

uint32_t eb_route_slice_end(
    const struct eb_bag_job *job, uint32_t begin, uint32_t parts, uint64_t bytes_max)
{
    uint64_t rows_max = find_rows_max(job, parts);
    uint64_t row_bytes = eb_route_sum_bytes(job);
    uint64_t bytes = 0;
    uint32_t end = begin;
    while (end < job->bag_count) {
        bytes += count_bag_rows(job, end, rows_max) * row_bytes;
        if (bytes > bytes_max && end > begin) {
            break;
        }
        end++;
    }
    return end;
}

bool eb_route_slice(const struct eb_bag_job *job, uint32_t begin, uint32_t end,
    struct eb_arena *arena, struct eb_bag_job *slice)
{
    assert(begin < end && end <= job->bag_count && eb_route_can_slice(job));
    uint32_t first = job->starts[begin];
    uint32_t *starts = eb_arena_take(arena, ((size_t)(end - begin) + 1) * sizeof *starts);
    if (!starts) {
        return false;
    }
    for (uint32_t i = 0; i <= end - begin; i++) {
        starts[i] = job->starts[begin + i] - first;
    }
    *slice = *job;
    slice->rows = job->rows + first;
    slice->starts = starts;
    slice->bag_count = end - begin;
    slice->out = NULL;
    if (job->weights) { /* in the accumulator's type */
        bool is_f32 = eb_route_sum_type(job->table->type) == EB_F32;
        slice->weights =
            (const uint8_t *)job->weights + first * (is_f32 ? sizeof(float) : sizeof(uint64_t));
    }
    return true;
}
