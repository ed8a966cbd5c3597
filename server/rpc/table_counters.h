/* Counts, for one loop, the lookups in each table, by model and table, for all versions together:
 * bags, indices, and indices that named no row. Also finds the hot rows, from a sample of the
 * indices. A lookup is counted when it is answered. A lookup that fails or is withdrawn is not
 * counted, nor is a single query that fails. Keys of remote tables may be hot although no part has
 * them.
 *
 * The counts of a table are kept for EB_TABLE_COUNTERS_KEEP_NS after no version has it any longer,
 * so that they continue if the model comes back.
 * Thread: the loop's. Memory: on the heap, bounded by the two caps. Between changes of the
 * snapshot, lookups allocate only sketches. A copy for stats is one block: 48 bytes and the names
 * for each table, and the sketches. So it has at most 1.3 MiB and the names. */
#pragma once

#include "server/models/snapshot.h"
#include "server/rpc/plan.h"
#include "server/stats/hot_rows.h"
#include "server/stats/table_sums.h"

/* Most tables that are counted separately. Further tables are counted together, as the table "" of
 * the model "". */
#define EB_TABLE_COUNTERS_TABLES_MAX 4096
/* Most tables that have a sketch of their hot rows at the same time, 2 KiB each. Another table gets
 * one only after one of these has not been looked up for some minutes. */
#define EB_TABLE_COUNTERS_HOT_MAX 512
#define EB_TABLE_COUNTERS_KEEP_NS (UINT64_C(600) * 1000000000)
/* Half-life of samples: a sample of this age weighs half as much as a new one. */
#define EB_TABLE_COUNTERS_HALF_NS (UINT64_C(60) * 1000000000)

struct eb_table_count {
    struct eb_table_sum sum; /* all members except `hot` */
    struct eb_hot_rows *hot; /* NULL if none of its indices was sampled recently */
    uint64_t gone_ns;        /* time since which no version has the table; 0 if one has it */
};

/* Counters by version, for the versions of a snapshot. */
struct eb_table_blocks {
    size_t count;
    struct eb_table_block *blocks; /* sorted by the versions' addresses */
};

struct eb_table_counters {
    size_t count;
    size_t room;
    struct eb_table_count **counts; /* sorted by model and table */
    struct eb_table_count beyond;   /* of tables that have no counter of their own */
    struct eb_table_blocks blocks;
    struct eb_index_sampler sampler;
    size_t hot_count;
    uint64_t halved_ns;
};

/* Begins without a snapshot. The struct must not be moved. All times are uv_hrtime and must not
 * decrease. */
void eb_table_counters_init(struct eb_table_counters *counters, uint64_t now_ns);
/* Frees all counters. Accepts a zeroed struct. */
void eb_table_counters_deinit(struct eb_table_counters *counters);

/* Counts the queries of a plan whose values were computed. */
void eb_table_counters_add(
    struct eb_table_counters *counters, const struct eb_plan *plan, uint64_t now_ns);
/* Sets the snapshot that new requests are answered from; NULL if there is none yet. Borrows it
 * until the next call, which still reads it. If memory runs out, finding a table takes longer. */
void eb_table_counters_swap(
    struct eb_table_counters *counters, const struct eb_snapshot *snapshot, uint64_t now_ns);
/* Returns a copy of all counters; NULL if out of memory. */
struct eb_table_sums *eb_table_counters_copy(struct eb_table_counters *counters, uint64_t now_ns);
