/* Pooling of f32 tables, the same for every instruction set: bag_columns_f32.h, which says what the
 * including file must define, applied to the bags of a job. Defines pool_f32.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_columns_f32.h"

#include <math.h>
#include <string.h>

static void pool_bag(const struct bag *bag, enum fold fold)
{
    uint32_t elements = bag->job->table->row_elements;
    uint32_t column = 0;
    while (column < elements) {
        uint32_t vectors = (elements - column) / LANES;
        vectors = vectors < BLOCK_VECTORS ? vectors : BLOCK_VECTORS;
        pool_functions[fold][vectors](bag, column);
        column += vectors > 0 ? vectors * LANES : elements - column;
    }
}

/* By what the sum is divided, in the reference's order. */
static float find_divisor(const struct bag *bag)
{
    float weight_sum = bag->weights ? 0 : (float)bag->row_count;
    float square_sum = weight_sum;
    for (uint32_t i = 0; bag->weights && i < bag->row_count; i++) {
        weight_sum = weight_sum + bag->weights[i];
        square_sum = fmaf(bag->weights[i], bag->weights[i], square_sum);
    }
    return bag->job->reduction == EB_REDUCTION_SQRTN ? sqrtf(square_sum) : weight_sum;
}

static enum fold choose_fold(const struct eb_bag_job *job)
{
    switch (job->reduction) {
    case EB_REDUCTION_MAX: return FOLD_MAX;
    case EB_REDUCTION_MIN: return FOLD_MIN;
    default: return job->weights ? FOLD_WEIGHTED : FOLD_SUM;
    }
}

/* As much of a row as one block takes. */
static void prefetch_head(const struct eb_table *table, int64_t row)
{
    uint32_t elements = table->row_elements;
    prefetch_row(table, row, 0, elements < BLOCK_FLOATS ? elements : BLOCK_FLOATS);
}

/* A row alone, without weight: the default row of an empty bag, or a row of NONE. */
static void pool_single(const struct eb_bag_job *job, const int64_t *row, uint8_t *out)
{
    const struct eb_table *table = job->table;
    if (job->output_type == EB_F32 && *row >= 0) {
        /* A copy, so that NaNs keep their bits. */
        memcpy(out, (const uint8_t *)table->rows + (uint64_t)*row * table->row_stride_bytes,
            table->row_elements * sizeof(float));
        return;
    }
    const struct bag bag = {.job = job, .rows = row, .row_count = 1, .out = out};
    pool_bag(&bag, FOLD_SUM);
}

static void pool_singles(const struct eb_bag_job *job, uint32_t bag_first, uint32_t bag_end)
{
    for (uint32_t b = bag_first; b < bag_end; b++) {
        if (b + PREFETCH_ROWS < bag_end) {
            prefetch_head(job->table, job->rows[b + PREFETCH_ROWS]);
        }
        pool_single(job, &job->rows[b], job->out + b * job->out_stride_bytes);
    }
}

static void pool_bags(const struct eb_bag_job *job, uint32_t bag_first, uint32_t bag_end)
{
    const enum fold fold = choose_fold(job);
    struct bag bag = {.job = job};
    bag.divides = job->reduction == EB_REDUCTION_MEAN ||
                  job->reduction == EB_REDUCTION_WEIGHTED_MEAN ||
                  job->reduction == EB_REDUCTION_SQRTN;
    const uint32_t rows_end = job->starts ? job->starts[bag_end] : bag_end;
    for (uint32_t b = bag_first; b < bag_end; b++) {
        uint32_t first = job->starts ? job->starts[b] : b;
        bag.rows = job->rows + first;
        bag.weights = job->weights ? (const float *)job->weights + first : NULL;
        bag.row_count = job->starts ? job->starts[b + 1] - first : 1;
        bag.rows_left = rows_end - first;
        bag.out = job->out + b * job->out_stride_bytes;
        bag.divisor = bag.divides ? find_divisor(&bag) : 1;
        if (bag.row_count > 0) {
            pool_bag(&bag, fold);
        } else {
            pool_single(job, &job->default_row, bag.out);
        }
    }
}

/* NONE is the sum of one row, its weight's product rounded once either way; without weights it is
 * the row itself. */
static void pool_f32(const struct eb_bag_job *job, uint32_t bag_first, uint32_t bag_end)
{
    uint32_t first = job->starts ? job->starts[bag_first] : bag_first;
    uint32_t end = job->starts ? job->starts[bag_end] : bag_end;
    for (uint32_t i = first; i < end && i < first + PREFETCH_ROWS; i++) {
        prefetch_head(job->table, job->rows[i]);
    }
    if (job->reduction == EB_REDUCTION_NONE && !job->weights) {
        pool_singles(job, bag_first, bag_end);
    } else {
        pool_bags(job, bag_first, bag_end);
    }
}
