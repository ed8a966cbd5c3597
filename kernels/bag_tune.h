/* Measures how far ahead rows are best prefetched on this machine, for each class of row sizes.
 * Pools random rows of large tables with each of a few schedules. Rows of a class are measured as
 * int8 codes if tables have converted rows of this class (f16, fp8, codes and so on), as f32 if
 * they have other rows, and half of them each if tables have both or neither. The processor's
 * default is replaced only by a schedule that is faster by a clear margin in most rounds of
 * measurement; a disturbance must not look like a difference between schedules. Results are
 * discarded; no result of a lookup depends on the choice. Nothing is kept on disk.
 * Thread: one; nothing else should run on it. Memory: the caller's, borrowed for the call; measured
 * tables are only read. */
#pragma once

#include "kernels/bag_ops.h"
#include "kernels/bag_schedule.h"

/* Most schedules that are measured for a class: the default, and others that are the same for all
 * classes. */
#define EB_BAG_TUNE_CANDIDATES_MAX 12
/* Rounds of measurement. A round measures every candidate once, in an order of its own. */
#define EB_BAG_TUNE_ROUNDS 7
/* If there is time only for fewer rounds, the class counts as not measured. */
#define EB_BAG_TUNE_ROUNDS_MIN 3
/* Most time for measuring all classes, in wall time. The measurement that is running then still
 * ends, after less than a millisecond if the thread is not interrupted. */
#define EB_BAG_TUNE_MS_MAX 280

/* Size of one measurement of a class: this many bags, and rows in each, so that long rows take no
 * more time than they must. */
#define EB_BAG_TUNE_BAGS 64
#define EB_BAG_TUNE_BAG_ROWS(class) (64 >> ((class) < 3 ? 0 : (class) - 2))
#define EB_BAG_TUNE_ROWS_MAX (EB_BAG_TUNE_BAGS * EB_BAG_TUNE_BAG_ROWS(0))
/* Most bytes of a bag's result: a row of the last class, of codes that become f32. */
#define EB_BAG_TUNE_RESULT_BYTES_MAX ((EB_LINE_BYTES << (EB_BAG_ROW_CLASS_COUNT - 1)) * 4)

/* Memory for the rows to measure with and for their results. The caller provides this memory; its
 * contents do not matter. */
struct eb_bag_tune_scratch {
    int64_t rows[EB_BAG_TUNE_ROWS_MAX];
    uint32_t starts[EB_BAG_TUNE_BAGS + 1];
    uint8_t out[EB_BAG_TUNE_BAGS * EB_BAG_TUNE_RESULT_BYTES_MAX];
};

/* A table's rows as memory, with any contents, at any alignment. */
struct eb_bag_tune_piece {
    const void *base; /* [bytes] */
    uint64_t bytes;
};

/* Most tables to measure on. If tables are small, several together serve as well as a large one. */
#define EB_BAG_TUNE_PIECES_MAX 32

/* The largest of the added tables, and the kinds of rows in all of them. Empty when zeroed. */
struct eb_bag_tune_ground {
    unsigned count;
    struct eb_bag_tune_piece pieces[EB_BAG_TUNE_PIECES_MAX]; /* the largest first */
    /* Whether a class has rows that are used as they are, and rows that are converted. */
    bool has_plain[EB_BAG_ROW_CLASS_COUNT];
    bool has_converted[EB_BAG_ROW_CLASS_COUNT];
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
    uint64_t (*wall_ns)(void); /* bounds the whole; NULL: the system's monotonic clock */
    uint64_t (*cpu_ns)(void);  /* measures; NULL: the CPU time of this thread */
};

/* The candidates of a class and their times, in ns per row. The first candidate is the default. */
struct eb_bag_tune_figures {
    unsigned candidate_count;
    struct eb_bag_schedule candidates[EB_BAG_TUNE_CANDIDATES_MAX];
    unsigned round_count;
    double of_round[EB_BAG_TUNE_ROUNDS][EB_BAG_TUNE_CANDIDATES_MAX];
};

/* The outcome of measuring a class. */
struct eb_bag_tune_verdict {
    /* Time of each candidate's fastest round, in ns per row: a disturbance can only make a round
     * slower. */
    double least[EB_BAG_TUNE_CANDIDATES_MAX];
    unsigned fastest;   /* the candidate with the least time */
    unsigned led_count; /* rounds in which the fastest was clearly faster than the default */
    double gain;        /* share of the default's least time that the fastest saves */
    unsigned chosen;    /* the fastest, or 0, the default */
};

struct eb_bag_tune_class {
    bool is_measured; /* otherwise the verdict is zeroed */
    struct eb_bag_tune_figures figures;
    struct eb_bag_tune_verdict verdict;
};

struct eb_bag_tune_report {
    struct eb_bag_tune_class of_class[EB_BAG_ROW_CLASS_COUNT];
    unsigned piece_count; /* pieces that were measured on; 0: nothing was measured */
    uint64_t elapsed_ns;  /* wall time */
};

/* Returns the cached_bytes of eb_bag_schedules for a family of processors with the caches of this
 * machine. */
uint64_t eb_bag_tune_cached_bytes(enum eb_processor_family family);
/* Sets *out to the defaults for this processor: the schedules of its family, and the sizes of its
 * caches. */
void eb_bag_tune_find_defaults(struct eb_bag_schedules *out);

/* Replaces the default schedules of the classes in *schedules by better ones, and fills in the
 * report. Leaves `nearby` and the sizes of caches unchanged. A class keeps its default if there was
 * no time to measure it. All classes keep theirs if the tables are smaller than
 * eb_bag_tune_bytes_min, or if the ops do not prefetch rows. */
void eb_bag_tune(const struct eb_bag_tune_task *task, struct eb_bag_schedules *schedules,
    struct eb_bag_tune_report *report);

/* Returns the least memory that is worth measuring on. With less memory, too much of it would be
 * cached. */
uint64_t eb_bag_tune_bytes_min(void);
/* Return the sizes of one core's L1 and L2 cache as the system reports them, or a guess if it does
 * not. */
uint64_t eb_bag_tune_l1_bytes(void);
uint64_t eb_bag_tune_l2_bytes(void);

/* Chooses a schedule by the figures of at least one round. The fastest candidate must beat the
 * default by more than 5 % in its least time, and also in at least 70 % of the rounds. Otherwise
 * the choice is the default. */
struct eb_bag_tune_verdict eb_bag_tune_choose(const struct eb_bag_tune_figures *figures);
