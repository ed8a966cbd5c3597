/* Tiles: checked jobs cut into portions for threads, by bytes of rows. A tile is a range of bags
 * that may begin in one job and end in a later one. A bag too large for one tile is cut into ranges
 * of columns, which changes no bit of the result.
 * Thread: pure functions. Memory: none; tiles borrow their jobs until they are pooled. */
#pragma once

#include "kernels/bag.h"

struct eb_bag_tile {
    const struct eb_bag_job *jobs; /* [job_count], one after the other */
    uint32_t job_count;            /* at least 1 */
    uint32_t bag_first;            /* first bag, in the first job */
    uint32_t bag_end;              /* end of the bags, in the last job */
    /* Range of columns of every row: whole rows (0, UINT32_MAX) unless the tile is a portion of one
     * bag. */
    uint32_t element_first;
    uint32_t element_end;
    void *owner; /* private to the supplier of the tile */
};

/* The bags of one job that a tile holds. */
struct eb_bag_range {
    const struct eb_bag_job *job;
    uint32_t bag_first;
    uint32_t bag_end;
    uint32_t element_first;
    uint32_t element_end; /* at most the number of the row's elements */
};

/* Returns the range of jobs[n] of a tile. */
static inline struct eb_bag_range eb_bag_tile_range(const struct eb_bag_tile *tile, uint32_t n)
{
    const struct eb_bag_job *job = &tile->jobs[n];
    uint32_t elements = job->table->row_elements;
    return (struct eb_bag_range){
        .job = job,
        .bag_first = n == 0 ? tile->bag_first : 0,
        .bag_end = n + 1 == tile->job_count ? tile->bag_end : job->bag_count,
        .element_first = tile->element_first,
        .element_end = tile->element_end < elements ? tile->element_end : elements,
    };
}

/* Returns how many rows a range gathers. */
static inline uint64_t eb_bag_range_rows(const struct eb_bag_range *range)
{
    const uint32_t *starts = range->job->starts;
    return starts ? starts[range->bag_end] - starts[range->bag_first]
                  : range->bag_end - range->bag_first;
}

/* Returns the first of the rows that a range gathers. */
static inline const eb_bag_row *eb_bag_range_first_row(const struct eb_bag_range *range)
{
    const uint32_t *starts = range->job->starts;
    uint32_t first = starts ? starts[range->bag_first] : range->bag_first;
    /* Without rows, the pointer may be NULL, to which nothing may be added. */
    return first > 0 ? range->job->rows + first : range->job->rows;
}

/* Most bytes of the rows of a group. */
#define EB_BAG_GROUP_BYTES 32768

/* Returns the end, at most `bag_end`, of the group of bags that begins with `bag`. Rows of more
 * than one block are pooled a group at a time. A group has at most few enough rows to be still
 * cached for the next block, but at least one bag. */
static inline uint32_t eb_bag_group_end(
    const struct eb_bag_job *job, uint32_t bag, uint32_t bag_end)
{
    uint64_t rows_max = EB_BAG_GROUP_BYTES / job->table->row_stride_bytes;
    uint32_t end = bag + 1;
    while (end < bag_end &&
           (job->starts ? job->starts[end] - job->starts[bag] : end - bag) < rows_max) {
        end++;
    }
    return end;
}

/* The position in a sequence of jobs at which the next tile begins; all zero at the start. */
struct eb_bag_cut {
    uint32_t job;
    uint32_t bag;
    uint32_t element;
};

/* Returns whether nothing is left to cut. Skips jobs without bags. */
bool eb_bag_cut_is_over(const struct eb_bag_job *jobs, uint32_t job_count, struct eb_bag_cut *cut);

/* Cuts the next tile. It has about `bytes_target` bytes of rows or, if these are more, of results.
 * It has at least one bag or, if a bag is cut by columns, at least one or two cache lines of each
 * of its rows. So a bag of many narrow rows is one tile. The cut must not be over. Does not touch
 * tile->owner. */
void eb_bag_cut_tile(const struct eb_bag_job *jobs, uint32_t job_count, uint64_t bytes_target,
    struct eb_bag_cut *cut, struct eb_bag_tile *tile);
