/* What one loop has counted of the tables that it answers from, by model and table whatever their
 * versions: bags, indices, and those that named no row; and, of a sample of the indices, which rows
 * are hot. A lookup counts as it is answered: one that fails or is given up counts nothing, nor
 * does a query that fails alone.
 *
 * A table that no version has any longer is kept for EB_TABLE_COUNTERS_KEEP_NS, so that its counts
 * go on where the model comes back. Thread: the loop's. Memory: on the heap, bounded by the two
 * caps. While a snapshot is answered from, lookups allocate nothing but sketches; a copy for stats
 * is one block, of 48 bytes and the names of each table and the sketches, so at most 1.3 MiB and
 * names. */
#pragma once

#include "server/models/snapshot.h"
#include "server/rpc/plan.h"
#include "server/stats/hot_rows.h"
#include "server/stats/table_sums.h"

/* Tables that are counted each on its own; those beyond it together, as the table "" of the model
 * "". */
#define EB_TABLE_COUNTERS_TABLES_MAX 4096
/* Tables that have a sketch of their hot rows at the same time, of 2 KiB each; others have none
 * until one of these has not been asked for during some minutes. */
#define EB_TABLE_COUNTERS_HOT_MAX 512
#define EB_TABLE_COUNTERS_KEEP_NS (UINT64_C(600) * 1000000000)
/* What was sampled so long ago weighs half. */
#define EB_TABLE_COUNTERS_HALF_NS (UINT64_C(60) * 1000000000)

struct eb_table_count {
    struct eb_table_sum sum; /* but for `hot` */
    struct eb_hot_rows *hot; /* NULL: none of its indices was sampled lately */
    uint64_t gone_ns;        /* since when no version has it; 0: one does */
};

/* The versions of a snapshot. */
struct eb_table_blocks {
    size_t count;
    struct eb_table_block *blocks; /* by the versions' addresses */
};

struct eb_table_counters {
    size_t count;
    size_t room;
    struct eb_table_count **counts; /* by model and table */
    struct eb_table_count beyond;   /* of tables that have none there */
    struct eb_table_blocks blocks;
    struct eb_index_sampler sampler;
    size_t hot_count;
    uint64_t halved_ns;
};

/* Until it has a snapshot; the counters stays where it is. Times are by uv_hrtime
 * and must not run back. */
void eb_table_counters_init(struct eb_table_counters *counters, uint64_t now_ns);
/* Accepts a zeroed counters. */
void eb_table_counters_deinit(struct eb_table_counters *counters);

/* Counts the queries of a plan that was computed. */
void eb_table_counters_add(
    struct eb_table_counters *counters, const struct eb_plan *plan, uint64_t now_ns);
/* What is answered from as requests come; NULL: nothing yet. The snapshot is borrowed until the
 * next, whose swap still finds it. Where there is no memory tables are found more slowly. */
void eb_table_counters_swap(
    struct eb_table_counters *counters, const struct eb_snapshot *snapshot, uint64_t now_ns);
/* All that has been counted. NULL: no memory. */
struct eb_table_sums *eb_table_counters_copy(struct eb_table_counters *counters, uint64_t now_ns);
