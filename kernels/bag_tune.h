/* Measures how far ahead rows are best prefetched on this machine, for each class of row sizes.
 * Pools random rows of large tables with each of a few schedules in turn, and chooses the fastest.
 * The time is bounded by the clock: some tens of milliseconds if nothing else runs. Results are
 * discarded; no result of a lookup depends on the choice.
 * Thread: one; nothing else should run on it. Memory: the caller's, borrowed for the call; measured
 * tables are only read. */
#pragma once

#include "kernels/bag_ops.h"
#include "kernels/bag_schedule.h"

/* The schedules that are measured. The first is the default, which another schedule must beat. */
#define EB_BAG_TUNE_CANDIDATE_COUNT 11
extern const struct eb_bag_schedule eb_bag_tune_candidates[EB_BAG_TUNE_CANDIDATE_COUNT];

/* Size of one measurement. */
#define EB_BAG_TUNE_BAGS 64
#define EB_BAG_TUNE_BAG_ROWS 64
#define EB_BAG_TUNE_ROWS (EB_BAG_TUNE_BAGS * EB_BAG_TUNE_BAG_ROWS)
/* Size of the rows with which the last class is measured. */
#define EB_BAG_TUNE_ROW_BYTES_MAX (EB_LINE_BYTES << (EB_BAG_ROW_CLASS_COUNT - 1))

/* Most time for measuring a class. After this time, the choice is made with the results so far. */
#define EB_BAG_TUNE_CLASS_MS_MAX 40

/* Memory for the rows to measure with and for their results. The caller provides this memory; its
 * contents do not matter. */
struct eb_bag_tune_scratch {
    int64_t rows[EB_BAG_TUNE_ROWS];
    uint32_t starts[EB_BAG_TUNE_BAGS + 1];
    uint8_t out[EB_BAG_TUNE_BAGS * EB_BAG_TUNE_ROW_BYTES_MAX];
};

/* A table's rows as memory, with any contents, at any alignment. */
struct eb_bag_tune_piece {
    const void *base; /* [bytes] */
    uint64_t bytes;
};

/* Most tables to measure on. If tables are small, several together serve as well as a large one. */
#define EB_BAG_TUNE_PIECES_MAX 32

/* The largest of the added tables. Empty when zeroed. */
struct eb_bag_tune_ground {
    unsigned count;
    struct eb_bag_tune_piece pieces[EB_BAG_TUNE_PIECES_MAX]; /* the largest first */
};

/* Smaller tables are not measured on, because L2 holds most of such a table, or all of it. */
#define EB_BAG_TUNE_PIECE_BYTES_MIN (UINT64_C(2) << 20)

/* Adds a table's rows, without the table's keys and their index. */
void eb_bag_tune_add(struct eb_bag_tune_ground *ground, const struct eb_table *table);
/* Returns how many pieces, the largest first, are needed to reach eb_bag_tune_bytes_min, or 0 if
 * all together are smaller. */
unsigned eb_bag_tune_pieces_needed(const struct eb_bag_tune_ground *ground);

struct eb_bag_tune_task {
    const struct eb_bag_ops *ops;
    const struct eb_bag_tune_ground *ground;
    struct eb_bag_tune_scratch *scratch;
    uint64_t (*now_ns)(void); /* NULL: the system's monotonic clock */
};

struct eb_bag_tune_class {
    bool is_measured;
    unsigned chosen; /* index of the candidate */
    double ns_per_row[EB_BAG_TUNE_CANDIDATE_COUNT];
};

struct eb_bag_tune_report {
    struct eb_bag_tune_class of_class[EB_BAG_ROW_CLASS_COUNT];
    unsigned piece_count; /* pieces that were measured on */
    uint64_t elapsed_ns;
};

/* Fills in *out and the report. A class keeps the default schedule if there was no time to measure
 * it. All classes keep the default if the tables are smaller than eb_bag_tune_bytes_min, or if the
 * ops have no function that prefetches rows of f32. Also sets the sizes of caches, as
 * eb_bag_tune_find_caches does. */
void eb_bag_tune(const struct eb_bag_tune_task *task, struct eb_bag_schedules *out,
    struct eb_bag_tune_report *report);

/* Returns the least memory that is worth measuring on. With less memory, too much of it would be
 * cached. */
uint64_t eb_bag_tune_bytes_min(void);
/* Returns the size of one core's L2 cache as the system reports it. */
uint64_t eb_bag_tune_cache_bytes(void);
/* Sets the sizes up to which tables are cached or nearby, and nothing else. Must be called before
 * eb_bag_schedule_spread. */
void eb_bag_tune_find_caches(struct eb_bag_schedules *out);
/* Returns the index of the fastest candidate, or 0 (the default) if the gain over the default may
 * be noise. */
unsigned eb_bag_tune_choose(const double ns_per_row[EB_BAG_TUNE_CANDIDATE_COUNT]);
