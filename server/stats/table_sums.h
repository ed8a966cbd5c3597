/* What each loop has counted of its tables, and how the stats add it up.
 * Threads: made on the loop's, then of whoever has it. Memory: one block of the heap. */
#pragma once

#include "server/stats/hot_rows.h"

/* What one loop has counted of one table. */
struct eb_table_sum {
    const char *model;
    const char *table;
    uint64_t bags;
    uint64_t indices;
    uint64_t missing;
    const struct eb_hot_rows *hot; /* NULL: none of its indices was sampled lately */
};

/* Of one loop. Freed by free(): everything that it points to lies behind it. */
struct eb_table_sums {
    size_t count;
    struct eb_table_sum *sums; /* by model and table, none twice */
};

/* Fills in the tables of the stats, which must have none, from those of all loops. Returns false if
 * out of memory; eb_stats_free frees what was filled in. */
bool eb_table_sums_merge(
    const struct eb_table_sums *const *lists, size_t list_count, struct eb_stats *stats);

/* Compares as strcmp does, in the order of sums. */
int eb_table_sums_compare(const struct eb_table_sum *sum, const char *model, const char *table);
