/* What a pool function is compiled for. For bag_rows.h, after whose including file's header of
 * vectors it comes.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/types.h"

/* What is done with the rows of a bag. */
enum fold {
    FOLD_SUM,
    FOLD_SINGLE, /* sums of one row each */
    FOLD_WEIGHTED,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_VALUE, /* a row itself, times its weight */
    FOLD_COUNT
};

/* What is known when a function is compiled. */
struct shape {
    enum eb_storage storage;
    enum fold fold;
    unsigned vectors; /* of columns; 0: less than one */
};

static INLINE bool is_code(struct shape shape)
{
    return shape.storage == EB_STORAGE_INT8 || shape.storage == EB_STORAGE_INT4 ||
           shape.storage == EB_STORAGE_INT2;
}

static INLINE bool is_sum(struct shape shape)
{
    return shape.fold == FOLD_SUM || shape.fold == FOLD_SINGLE || shape.fold == FOLD_WEIGHTED;
}
