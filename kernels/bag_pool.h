/* The pool function of a storage. It pools a range's bags in groups and blocks of columns, each by
 * the function that is compiled for it. The including file must define what bag_rows.h requires.
 * Then DEFINE_POOL(storage, name, function) defines `function`. The names of its components begin
 * with `name`.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_columns.h"

#include <assert.h>

/* Has no branch per bag, so that compilers vectorize the loop. */
static bool has_one_row_each(const struct eb_bag_range *range)
{
    if (eb_bag_range_rows(range) != range->bag_end - range->bag_first) {
        return false;
    }
    const uint32_t *starts = range->job->starts;
    uint32_t others = 0;
    for (uint32_t b = range->bag_first; b < range->bag_end; b++) {
        others |= starts[b + 1] - starts[b] - 1;
    }
    return others == 0;
}

static enum fold choose_float_fold(const struct eb_bag_range *range)
{
    switch (range->job->reduction) {
    case EB_REDUCTION_MAX: return FOLD_MAX;
    case EB_REDUCTION_MIN: return FOLD_MIN;
    case EB_REDUCTION_NONE: return FOLD_VALUE;
    case EB_REDUCTION_SUM:
        if (!range->job->weights && has_one_row_each(range)) {
            return FOLD_SINGLE;
        }
        break;
    default: break;
    }
    return range->job->weights ? FOLD_WEIGHTED : FOLD_SUM;
}

/* Pools group by group, block by block: the order of bag_prefetch.h. */
static void pool_float_groups(struct pass *pass, const struct eb_bag_range *range, enum fold fold)
{
    pass->bag_end = range->bag_first;
    while (pass->bag_end < range->bag_end) {
        pass->bag_first = pass->bag_end;
        pass->bag_end = eb_bag_group_end(range->job, pass->bag_first, range->bag_end);
        pass->column = range->element_first;
        while (pass->column < range->element_end) {
            uint32_t columns = range->element_end - pass->column;
            columns = columns < BLOCK_ELEMENTS ? columns : BLOCK_ELEMENTS;
            pass->column_end = pass->column + columns;
            pool_column_block(pass, fold);
            pass->column = pass->column_end;
        }
    }
}

static void pool_float_tile(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch,
    pool_functions functions[FOLD_COUNT])
{
    const struct eb_bag_job *job = range->job;
    uint32_t columns = range->element_end - range->element_first;
    assert(!prefetch || prefetch->block_elements[job->table->storage] == BLOCK_ELEMENTS);
    enum fold fold = choose_float_fold(range);
    struct pass pass = {
        .job = job,
        .part_first = range->bag_first,
        .bag_first = range->bag_first,
        .bag_end = range->bag_end,
        .column = range->element_first,
        .column_end = range->element_end,
        .out_element_bytes = (uint32_t)eb_type_bytes(job->output_type),
        .functions = functions,
        .prefetch = prefetch,
    };
    bool is_one_function = columns < LANES || (columns % LANES == 0 && columns <= BLOCK_ELEMENTS &&
                                                  functions[fold][columns / LANES]);
    if (is_one_function) {
        functions[fold][columns / LANES](&pass);
    } else {
        pool_float_groups(&pass, range, fold);
    }
}

#define DEFINE_COLUMNS(name, storage, fold, vectors)                                               \
    static void name##_##vectors(const struct pass *pass)                                          \
    {                                                                                              \
        struct shape shape = {storage, fold, vectors};                                             \
        if (!pass->prefetch && !is_rare(shape)) {                                                  \
            pool_columns(shape, pass, NULL);                                                       \
        } else {                                                                                   \
            pool_columns(shape, pass, pass->prefetch);                                             \
        }                                                                                          \
    }

/* Adds functions for a whole block if registers hold more than eight vectors of sums. */
#if BLOCK_VECTORS == 16
#define DEFINE_BLOCK(name, storage, fold) DEFINE_COLUMNS(name, storage, fold, 16)
#define LIST_BLOCK(name) [16] = name##_16,
#else
#define DEFINE_BLOCK(name, storage, fold)
#define LIST_BLOCK(name)
#endif

/* Sums have functions for most numbers of vectors, rare folds for a few. */
#define DEFINE_FEW(name, storage, fold)                                                            \
    DEFINE_COLUMNS(name, storage, fold, 0)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 1)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 2)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 4)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 8)
#define DEFINE_MOST(name, storage, fold)                                                           \
    DEFINE_FEW(name, storage, fold)                                                                \
    DEFINE_COLUMNS(name, storage, fold, 3)                                                         \
    DEFINE_COLUMNS(name, storage, fold, 6)                                                         \
    DEFINE_BLOCK(name, storage, fold)
#define LIST_FEW(name)                                                                             \
    [0] = name##_0, [1] = name##_1, [2] = name##_2, [4] = name##_4, [8] = name##_8
#define LIST_MOST(name) LIST_BLOCK(name) LIST_FEW(name), [3] = name##_3, [6] = name##_6

#define DEFINE_POOL(storage, name, function)                                                       \
    DEFINE_MOST(name##_sum, storage, FOLD_SUM)                                                     \
    DEFINE_MOST(name##_single, storage, FOLD_SINGLE)                                               \
    DEFINE_MOST(name##_weighted, storage, FOLD_WEIGHTED)                                           \
    DEFINE_FEW(name##_max, storage, FOLD_MAX)                                                      \
    DEFINE_FEW(name##_min, storage, FOLD_MIN)                                                      \
    DEFINE_FEW(name##_value, storage, FOLD_VALUE)                                                  \
    static pool_functions name##_functions[FOLD_COUNT] = {                                         \
        [FOLD_SUM] = {LIST_MOST(name##_sum)},                                                      \
        [FOLD_SINGLE] = {LIST_MOST(name##_single)},                                                \
        [FOLD_WEIGHTED] = {LIST_MOST(name##_weighted)},                                            \
        [FOLD_MAX] = {LIST_FEW(name##_max)},                                                       \
        [FOLD_MIN] = {LIST_FEW(name##_min)},                                                       \
        [FOLD_VALUE] = {LIST_FEW(name##_value)},                                                   \
    };                                                                                             \
    void function(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch)              \
    {                                                                                              \
        pool_float_tile(range, prefetch, name##_functions);                                        \
    }
