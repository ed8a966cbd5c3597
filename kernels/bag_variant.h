/* What one instruction set offers: a table of pool functions by how rows are stored. Only the
 * files that define a table and bag_ops.c, which chooses, include this.
 * Thread: the tables are const. Memory: none. */
#pragma once

#include "kernels/bag.h"

/* Computes result rows bag_first .. bag_end - 1 of a job whose table has the function's storage. */
typedef void (*eb_bag_pool_fn)(const struct eb_bag_job *job, uint32_t bag_first, uint32_t bag_end);

struct eb_bag_variant {
    const char *name;
    eb_bag_pool_fn pool[EB_STORAGE_COUNT]; /* NULL: the reference's serves */
};

/* The reference has a function for every storage. */
extern const struct eb_bag_variant eb_bag_ref;
/* In builds for x86-64 only. */
extern const struct eb_bag_variant eb_bag_avx2;
extern const struct eb_bag_variant eb_bag_avx512;
