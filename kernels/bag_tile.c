#include "kernels/bag_tile.h"

#include <assert.h>

/* If a bag is cut by columns, the size of a piece is a multiple of this many bytes of a row: two
 * cache lines. */
#define PIECE_BYTES_MIN 128

bool eb_bag_cut_is_over(const struct eb_bag_job *jobs, uint32_t job_count, struct eb_bag_cut *cut)
{
    while (cut->job < job_count && cut->bag == jobs[cut->job].bag_count) {
        *cut = (struct eb_bag_cut){.job = cut->job + 1};
    }
    return cut->job == job_count;
}

static uint64_t find_row_bytes(const struct eb_bag_job *job)
{
    return eb_storage_row_bytes(job->table->storage, job->table->row_elements);
}

/* Returns the fewest bytes that a bag counts for: the bytes of one row or, if these are more (as
 * for rows of codes), the bytes of the bag's result. */
static uint64_t find_bag_bytes_min(const struct eb_bag_job *job)
{
    uint64_t row_bytes = find_row_bytes(job);
    uint64_t result_bytes = job->table->row_elements * eb_type_bytes(job->output_type);
    return row_bytes > result_bytes ? row_bytes : result_bytes;
}

static uint64_t at_least_one(uint64_t count)
{
    return count > 0 ? count : 1;
}

/* Returns the end of the bags from bag_first on that together read about `bytes_target` bytes of
 * rows, and write no more bytes of results than that. */
static uint32_t find_bag_end(
    const struct eb_bag_job *job, uint32_t bag_first, uint64_t bytes_target)
{
    uint64_t row_count = at_least_one(bytes_target / find_row_bytes(job));
    uint64_t bag_count = at_least_one(bytes_target / find_bag_bytes_min(job));
    uint32_t bags_left = job->bag_count - bag_first;
    uint32_t low = bag_first + 1;
    uint32_t high = bag_count < bags_left ? bag_first + (uint32_t)bag_count : job->bag_count;
    /* Find the first bag end at which enough rows are gathered. */
    while (job->starts && low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (job->starts[middle] - job->starts[bag_first] < row_count) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return high;
}

/* Returns the bytes of the rows of bags [bag_first, bag_end) or, if they are more, of their
 * results. */
static uint64_t count_tile_bytes(const struct eb_bag_job *job, uint32_t bag_first, uint32_t bag_end)
{
    uint64_t least_bytes = (bag_end - bag_first) * find_bag_bytes_min(job);
    uint64_t rows = job->starts ? job->starts[bag_end] - job->starts[bag_first] : 0;
    uint64_t bytes = rows * find_row_bytes(job);
    return bytes > least_bytes ? bytes : least_bytes;
}

/* Returns how many columns of a bag one tile gets. The bag, which has `bytes` bytes, is cut into
 * about bytes / bytes_target pieces. */
static uint32_t find_piece(const struct eb_bag_job *job, uint64_t bytes, uint64_t bytes_target)
{
    uint64_t row_bytes = find_row_bytes(job);
    uint64_t piece_bytes = bytes_target < bytes ? row_bytes * bytes_target / bytes : row_bytes;
    piece_bytes = piece_bytes / PIECE_BYTES_MIN * PIECE_BYTES_MIN;
    piece_bytes = piece_bytes < PIECE_BYTES_MIN ? PIECE_BYTES_MIN : piece_bytes;
    return (uint32_t)(piece_bytes * 8 / eb_storage_bits(job->table->storage));
}

/* Returns whether a bag is so large that its columns are distributed over several tiles. */
static bool is_giant(const struct eb_bag_job *job, uint32_t bag, uint64_t bytes_target)
{
    uint64_t bytes = count_tile_bytes(job, bag, bag + 1);
    return bytes / 2 >= bytes_target &&
           find_piece(job, bytes, bytes_target) < job->table->row_elements;
}

static void cut_columns(const struct eb_bag_job *job, uint64_t bytes_target, struct eb_bag_cut *cut,
    struct eb_bag_tile *tile)
{
    uint32_t elements = job->table->row_elements;
    uint32_t piece = find_piece(job, count_tile_bytes(job, cut->bag, cut->bag + 1), bytes_target);
    tile->bag_end = cut->bag + 1;
    tile->element_first = cut->element;
    tile->element_end = elements - cut->element > piece ? cut->element + piece : elements;
    cut->element = tile->element_end;
    if (cut->element == elements) {
        *cut = (struct eb_bag_cut){.job = cut->job, .bag = cut->bag + 1};
    }
}

/* Moves the cut past bags of a job, up to about bytes_target bytes. Stops at the job's end, or
 * before a giant bag. Returns `bytes` plus the bytes of those bags. */
static uint64_t take_bags(
    const struct eb_bag_job *job, uint64_t bytes_target, uint64_t bytes, struct eb_bag_cut *cut)
{
    uint32_t bag_first = cut->bag;
    cut->bag = find_bag_end(job, bag_first, bytes_target - bytes);
    if (cut->bag - bag_first > 1 && is_giant(job, cut->bag - 1, bytes_target)) {
        cut->bag--;
    }
    return bytes + count_tile_bytes(job, bag_first, cut->bag);
}

void eb_bag_cut_tile(const struct eb_bag_job *jobs, uint32_t job_count, uint64_t bytes_target,
    struct eb_bag_cut *cut, struct eb_bag_tile *tile)
{
    bool is_over = eb_bag_cut_is_over(jobs, job_count, cut);
    assert(!is_over);
    tile->jobs = &jobs[cut->job];
    tile->job_count = 0;
    tile->bag_first = cut->bag;
    tile->element_first = 0;
    tile->element_end = UINT32_MAX;
    /* A bag whose first columns have been cut must be cut by columns to its end, even if the target
     * has changed. */
    if (cut->element > 0 || is_giant(tile->jobs, cut->bag, bytes_target)) {
        tile->job_count = 1;
        cut_columns(tile->jobs, bytes_target, cut, tile);
        return;
    }
    uint64_t bytes = 0;
    do {
        tile->job_count = (uint32_t)(&jobs[cut->job] - tile->jobs) + 1;
        bytes = take_bags(&jobs[cut->job], bytes_target, bytes, cut);
        tile->bag_end = cut->bag;
    } while (bytes < bytes_target && !eb_bag_cut_is_over(jobs, job_count, cut) &&
             !is_giant(&jobs[cut->job], cut->bag, bytes_target));
}
