/* Measures how far ahead rows are best called on this machine, for each class of row sizes: pools
 * random rows of large tables with each of a few schedules in turns, and takes the fastest. What
 * it costs is bounded by the clock, some tens of milliseconds where nothing else runs. Results are
 * discarded; no result of a lookup depends on what is chosen.
 * Thread: one, on which nothing else should be running. Memory: the caller's, borrowed for the
 * call; what is measured is read only. */
#pragma once

#include "kernels/bag_ops.h"
#include "kernels/bag_schedule.h"

/* The first is the default, which another must beat. */
#define EB_BAG_TUNE_CANDIDATE_COUNT 11
extern const struct eb_bag_schedule eb_bag_tune_candidates[EB_BAG_TUNE_CANDIDATE_COUNT];

/* One measurement. */
#define EB_BAG_TUNE_BAGS 64
#define EB_BAG_TUNE_BAG_ROWS 64
#define EB_BAG_TUNE_ROWS (EB_BAG_TUNE_BAGS * EB_BAG_TUNE_BAG_ROWS)
/* Rows of the last class are measured so long. */
#define EB_BAG_TUNE_ROW_BYTES_MAX (EB_LINE_BYTES << (EB_BAG_ROW_CLASS_COUNT - 1))

/* Each class stops measuring when it has taken so long, and then takes what is known. */
#define EB_BAG_TUNE_CLASS_MS_MAX 40

/* Where rows to measure with are put, and their results: the caller's, in any state. */
struct eb_bag_tune_scratch {
    int64_t rows[EB_BAG_TUNE_ROWS];
    uint32_t starts[EB_BAG_TUNE_BAGS + 1];
    uint8_t out[EB_BAG_TUNE_BAGS * EB_BAG_TUNE_ROW_BYTES_MAX];
};

/* A table's rows as memory: of any contents, at any alignment. */
struct eb_bag_tune_piece {
    const void *base; /* [bytes] */
    uint64_t bytes;
};

/* Tables that are measured on at most: where single ones are small, several are as good. */
#define EB_BAG_TUNE_PIECES_MAX 32

/* The largest tables of those that were added. Empty when zeroed. */
struct eb_bag_tune_ground {
    unsigned count;
    struct eb_bag_tune_piece pieces[EB_BAG_TUNE_PIECES_MAX]; /* the largest first */
};

/* Smaller tables are not: the second-level cache, or nearly, holds them. */
#define EB_BAG_TUNE_PIECE_BYTES_MIN (UINT64_C(2) << 20)

/* Adds a table's rows, whose keys and their index lie elsewhere. */
void eb_bag_tune_add(struct eb_bag_tune_ground *ground, const struct eb_table *table);
/* How many pieces it takes, the largest first, for eb_bag_tune_bytes_min; 0: all are not enough. */
unsigned eb_bag_tune_pieces_needed(const struct eb_bag_tune_ground *ground);

struct eb_bag_tune_task {
    const struct eb_bag_ops *ops;
    const struct eb_bag_tune_ground *ground;
    struct eb_bag_tune_scratch *scratch;
    uint64_t (*now_ns)(void); /* NULL: the system's monotonic clock */
};

struct eb_bag_tune_class {
    bool is_measured;
    unsigned chosen; /* of the candidates */
    double ns_per_row[EB_BAG_TUNE_CANDIDATE_COUNT];
};

struct eb_bag_tune_report {
    struct eb_bag_tune_class of_class[EB_BAG_ROW_CLASS_COUNT];
    unsigned piece_count; /* that were measured on */
    uint64_t elapsed_ns;
};

/* Fills *out and the report. Classes keep the default where there was no time to measure them, all
 * of them where the tables are less than eb_bag_tune_bytes_min or the ops have no function that
 * calls rows of f32. Caches are as eb_bag_tune_find_caches has them. */
void eb_bag_tune(const struct eb_bag_tune_task *task, struct eb_bag_schedules *out,
    struct eb_bag_tune_report *report);

/* Less memory than this is measured in vain: too much of it is cached. */
uint64_t eb_bag_tune_bytes_min(void);
/* The second-level cache of one core, as far as the system says. */
uint64_t eb_bag_tune_cache_bytes(void);
/* Sets which tables are cached, and which are nearby, and nothing else: to be called before
 * eb_bag_schedule_spread. */
void eb_bag_tune_find_caches(struct eb_bag_schedules *out);
/* The fastest candidate; the first, unless it is slower by more than what may be noise. */
unsigned eb_bag_tune_choose(const double ns_per_row[EB_BAG_TUNE_CANDIDATE_COUNT]);
