/* The table counts of each loop, and their sum for the stats.
 * Threads: made on the loop's thread, then used on their owner's. Memory: one block of the heap. */
#pragma once

#include "server/stats/hot_rows.h"

/* The counts of one loop for one table. */
struct eb_table_sum {
    const char *model;
    const char *table;
    uint64_t bags;
    uint64_t indices;
    uint64_t missing;
    const struct eb_hot_rows *hot; /* NULL if none of its indices was sampled recently */
};

/* The counts of one loop. Freed by free(): everything that they point to is in the same block. */
struct eb_table_sums {
    size_t count;
    struct eb_table_sum *sums; /* [count] sorted by model and table, without duplicates */
};

/* Fills in the tables of the stats, which must have none yet, from those of all loops. Returns
 * false if out of memory; eb_stats_free frees the tables that were filled in. */
bool eb_table_sums_merge(
    const struct eb_table_sums *const *lists, size_t list_count, struct eb_stats *stats);

/* Compares `sum` with a model and a table as strcmp does, in the order of eb_table_sums. */
int eb_table_sums_compare(const struct eb_table_sum *sum, const char *model, const char *table);
