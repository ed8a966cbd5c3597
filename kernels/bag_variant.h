/* The functions of one instruction set: an index pass, and a pool function for every storage.
 * Included only by files that define a variant, choose one or call into one.
 * Thread: the tables are const. Memory: none. */
#pragma once

#include "kernels/bag_index.h"
#include "kernels/bag_prefetch.h"

/* Pools a range of a job whose table has the function's storage. Takes a step of `prefetch` for
 * every row of every block of columns. NULL: takes no steps. */
typedef void (*eb_bag_pool_fn)(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);

struct eb_bag_variant {
    const char *name;
    const struct eb_bag_index_fns *index;
    eb_bag_pool_fn pool[EB_STORAGE_COUNT];
    /* Columns pooled in one pass over a bag's rows; 0: no steps are taken. */
    uint32_t block_elements[EB_STORAGE_COUNT];
};

extern const struct eb_bag_variant eb_bag_ref;
/* Only in builds for x86-64. */
extern const struct eb_bag_variant eb_bag_avx2;
extern const struct eb_bag_variant eb_bag_avx512;
/* Only in builds for aarch64. */
extern const struct eb_bag_variant eb_bag_neon;
