/* One loop's part of what stats says of tables.
 * Thread: made on the loop's, then of whoever has it. Memory: one block of the heap. */
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

/* Freed by free(): all that it points to lies behind it. */
struct eb_table_stats {
    size_t count;
    struct eb_table_sum *sums; /* by model and table, none twice */
};

/* Fills the stats' tables, which has none. false: no memory; what it has is for
 * eb_stats_free. */
bool eb_table_stats_merge(
    const struct eb_table_stats *const *parts, size_t part_count, struct eb_stats *stats);

/* The order of sums: less than 0, 0, more than 0. */
int eb_table_stats_compare(const struct eb_table_sum *sum, const char *model, const char *table);
