/* The parameters that a pool function is compiled for. Used by bag_rows.h; the including file must
 * include its header of vectors before.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/types.h"

/* The operation on the rows of a bag. */
enum fold {
    FOLD_SUM,
    FOLD_SINGLE, /* sum of bags of one row each */
    FOLD_WEIGHTED,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_VALUE, /* the row itself, times its weight */
    FOLD_COUNT
};

/* The constants of a compiled function. */
struct shape {
    enum eb_storage storage;
    enum fold fold;
    unsigned vectors; /* number of vectors of columns; 0: less than one */
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
