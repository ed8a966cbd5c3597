#include "kernels/bag_vector.h"

#include "kernels/bag_measure.h"

/* Most rows of a bag whose addresses are kept on the stack. */
#define ADDRESSED_ROWS_MAX 1024

static uint32_t find_first_row(const struct eb_bag_job *job, uint32_t bag)
{
    return job->starts ? job->starts[bag] : bag;
}

static bool has_vector(const struct eb_bag_job *job, uint32_t bag)
{
    const eb_bag_row *row = job->rows + find_first_row(job, bag);
    const eb_bag_row *end = job->rows + find_first_row(job, bag + 1);
    while (row < end && *row != EB_ROW_VECTOR) {
        row++;
    }
    return row < end;
}

/* Pools one bag of a table that is stored as T with the variant's function. The bag becomes a job
 * of its own, on a table of all addresses: its rows are one byte apart, and the number of a row is
 * its distance in bytes from the rows or the vector, whichever comes first in memory. */
static void pool_by_address(const struct eb_bag_variant *variant, const struct eb_bag_range *of_bag,
    uint32_t first, uint32_t count)
{
    const struct eb_bag_job *job = of_bag->job;
    struct eb_table table = *job->table;
    uintptr_t rows = (uintptr_t)job->table->rows;
    uintptr_t vector = (uintptr_t)job->table->vector;
    uintptr_t base = rows < vector ? rows : vector;
    int64_t addressed[ADDRESSED_ROWS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        int64_t row = job->rows[first + i];
        uintptr_t at =
            row == EB_ROW_VECTOR ? vector : rows + (uint64_t)row * table.row_stride_bytes;
        addressed[i] = (int64_t)(at - base);
    }
    table.rows = rows < vector ? job->table->rows : job->table->vector;
    table.row_stride_bytes = 1;
    uint32_t starts[2] = {0, count};
    struct eb_bag_job lone = *job;
    lone.table = &table;
    lone.rows = addressed;
    lone.starts = job->starts ? starts : NULL;
    lone.bag_count = 1;
    lone.out = job->out + of_bag->bag_first * job->out_stride_bytes;
    if (job->weights) {
        lone.weights = (const uint8_t *)job->weights + first * eb_bag_weights_bytes(table.type);
    }
    struct eb_bag_range range = *of_bag;
    range.job = &lone;
    range.bag_first = 0;
    range.bag_end = 1;
    variant->pool[table.storage](&range, NULL);
}

/* Pools a range of one bag, which contains EB_ROW_VECTOR. */
static void pool_bag(const struct eb_bag_variant *variant, const struct eb_bag_range *range)
{
    const struct eb_bag_job *job = range->job;
    const struct eb_table *table = job->table;
    uint32_t first = find_first_row(job, range->bag_first);
    uint32_t count = find_first_row(job, range->bag_end) - first;
    if ((int)table->storage == (int)table->type && count <= ADDRESSED_ROWS_MAX) {
        pool_by_address(variant, range, first, count);
    } else {
        eb_bag_ref.pool[table->storage](range, NULL);
    }
}

void eb_bag_vector_pool(const struct eb_bag_variant *variant, const struct eb_bag_range *range,
    const struct eb_bag_ahead *ahead)
{
    eb_bag_pool_fn pool = variant->pool[range->job->table->storage];
    struct eb_bag_range run = *range; /* bags without EB_ROW_VECTOR */
    struct eb_bag_range bag = *range;
    for (uint32_t b = range->bag_first; b < range->bag_end; b++) {
        if (!has_vector(range->job, b)) {
            continue;
        }
        run.bag_end = b;
        if (run.bag_first < run.bag_end) {
            pool(&run, ahead);
        }
        run.bag_first = b + 1;
        bag.bag_first = b;
        bag.bag_end = b + 1;
        pool_bag(variant, &bag);
    }
    run.bag_end = range->bag_end;
    if (run.bag_first < run.bag_end) {
        pool(&run, ahead);
    }
}
