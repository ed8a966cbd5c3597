#include "kernels/bag.h"

#include <assert.h>

uint32_t eb_bag_tile_end(const struct eb_bag_job *job, uint32_t bag_first, uint64_t bytes_target)
{
    assert(bag_first < job->bag_count);
    uint64_t row_bytes = eb_storage_row_bytes(job->table->storage, job->table->row_elements);
    uint64_t row_count = bytes_target > row_bytes ? bytes_target / row_bytes : 1;
    uint32_t bags_left = job->bag_count - bag_first;
    uint32_t low = bag_first + 1;
    uint32_t high = row_count < bags_left ? bag_first + (uint32_t)row_count : job->bag_count;
    /* The first end from which on enough rows are gathered. */
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
