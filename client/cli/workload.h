/* The workloads that tools and benchmarks know by name, and the values of the tables made for them.
 * A value is a published hash of (table, row, column, version), so that any tool can verify any
 * answer without the table (proto/PROTOCOL.md).
 * Thread: pure. Memory: none. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Room for "t00", or more digits, and the NUL. */
#define EB_WORKLOAD_TABLE_NAME_BYTES 6
#define EB_WORKLOAD_TABLES_MAX 1000

/* The tables of a workload, all f32 and of one dim. If an array is NULL, all tables are alike. */
struct eb_workload {
    const char *name; /* name of the workload and of its model */
    uint32_t table_count;
    uint32_t dim;
    const uint64_t *rows_by_table;    /* [table_count] rows at scale 1 */
    const uint32_t *indices_by_table; /* [table_count] indices per bag */
    uint64_t rows;
    uint32_t indices_per_bag;
};

/* Returns the workload of that name; NULL if there is none. */
const struct eb_workload *eb_workload_find(const char *name);
/* Returns the names of all workloads, separated by ", ". */
const char *eb_workload_names(void);

/* Returns the number of rows of a table if row counts are divided by `scale`, which is at least
 * 1. */
uint64_t eb_workload_rows(const struct eb_workload *workload, uint32_t table, uint64_t scale);
uint32_t eb_workload_indices_per_bag(const struct eb_workload *workload, uint32_t table);
/* Writes "t00", "t01", ... "t100", ...; `table` is below EB_WORKLOAD_TABLES_MAX. */
void eb_workload_table_name(uint32_t table, char out[EB_WORKLOAD_TABLE_NAME_BYTES]);

/* Returns the seed of all values of one version of a table. */
uint64_t eb_workload_seed(const char *table_name, uint64_t version);
/* Returns the value at `column`, a position in the flattened row: a multiple of 1/128 in [-1, 1).
 */
float eb_workload_value(uint64_t seed, uint64_t row, uint64_t column);
/* Fills in columns 0 to column_count - 1 of one row. */
void eb_workload_fill_row(uint64_t seed, uint64_t row, float *out, size_t column_count);
