/* Schedules of prefetching: which tables' rows are prefetched into the caches, and how far ahead;
 * and which cache lines a row touches.
 * The text of a schedule is `off`, or FAR:NEAR:LEVEL, such as
 *
 *   128:64:l2   a row's first cache line 128 rows ahead, all of it 64 ahead, both into L2
 *   64w:4:l1    all of a row 64 rows ahead into L2, and 4 ahead into L1
 *   0:16:l1     all of a row 16 rows ahead into L1
 *
 * Thread: pure functions. Memory: none. */
#pragma once

#include "kernels/processor.h"
#include "kernels/table.h"

#define EB_LINE_BYTES 64

/* How far ahead, in rows, rows of one size class are prefetched, and which of their cache lines. */
struct eb_bag_schedule {
    uint16_t far_rows;  /* 0: no prefetch */
    bool far_is_whole;  /* all cache lines of the row, not only the first */
    uint16_t near_rows; /* 0: no prefetch */
    bool near_is_l1;    /* into L1, not only L2 */
};

/* Size classes of rows: at most 1, 2, 4 and 8 cache lines, and longer. */
#define EB_BAG_ROW_CLASS_COUNT 5

struct eb_bag_schedules {
    struct eb_bag_schedule of_class[EB_BAG_ROW_CLASS_COUNT];
    /* Rows of tables of at most this size are not prefetched: they stay in a cache from which
     * prefetching gains nothing. */
    uint64_t cached_bytes;
    /* The same for rows that are converted by generic functions, which follow any schedule
     * (bag_prefetch.h). Rows that they pool without converting them are not prefetched up to
     * nearby_bytes. */
    uint64_t generic_cached_bytes;
    /* Larger tables of at most this size stay in L2 or L3. Their rows are prefetched by the
     * schedules `nearby`. */
    uint64_t nearby_bytes;
    struct eb_bag_schedule nearby[EB_BAG_ROW_CLASS_COUNT];
};

/* The schedules for unknown processors, and for Zen 5 and Sapphire Rapids. */
extern const struct eb_bag_schedules eb_bag_schedules_default;

/* Returns the schedules for a family of processors, with the sizes of caches of
 * eb_bag_schedules_default. */
const struct eb_bag_schedules *eb_bag_schedules_of(enum eb_processor_family family);

/* The bytes that reading a row of a table touches, and their cache lines. The scale of a row of
 * codes counts if it lies directly before the row. */
struct eb_bag_lines {
    uintptr_t first;      /* address of the first byte in row 0 */
    uint64_t table_bytes; /* size of all rows, which decides which caches hold them */
    uint32_t bytes;       /* from `first` to the end of row 0 */
    uint32_t count;       /* most cache lines that these bytes touch in any row */
    uint8_t row_class;
    /* No row touches more lines than its columns alone would fill, or one more if a scale lies
     * before it. */
    bool is_compact;
    bool has_scales_apart; /* scales lie elsewhere, and are not counted */
};

/* Finds the lines of columns [element_first, element_end) of a table's rows. */
struct eb_bag_lines eb_bag_lines_find(
    const struct eb_table *table, uint32_t element_first, uint32_t element_end);

/* Returns the class of rows of `row_bytes`. */
unsigned eb_bag_schedule_row_class(uint64_t row_bytes);

/* Returns whether no row is prefetched. */
static inline bool eb_bag_schedule_is_off(const struct eb_bag_schedule *schedule)
{
    return schedule->far_rows == 0 && schedule->near_rows == 0;
}

/* Returns the schedule of a table's rows, or NULL if they are not prefetched. */
static inline const struct eb_bag_schedule *eb_bag_schedule_find(
    const struct eb_bag_schedules *schedules, const struct eb_bag_lines *lines)
{
    const struct eb_bag_schedule *schedule = &schedules->of_class[lines->row_class];
    if (lines->table_bytes <= schedules->nearby_bytes) {
        schedule = &schedules->nearby[lines->row_class];
    }
    bool is_off = lines->table_bytes <= schedules->cached_bytes || eb_bag_schedule_is_off(schedule);
    return is_off ? NULL : schedule;
}

/* Most rows ahead: their cache lines would fill L1 several times. */
#define EB_BAG_SCHEDULE_ROWS_MAX 4096
/* Size of a schedule's text with its NUL. */
#define EB_BAG_SCHEDULE_TEXT_BYTES 24

/* Parses a schedule into *out and returns NULL. If the text is not a schedule, returns an error
 * text and leaves *out unchanged. */
const char *eb_bag_schedule_parse(const char *text, struct eb_bag_schedule *out);
/* Formats a schedule as a text that parses to the same schedule. */
void eb_bag_schedule_format(
    const struct eb_bag_schedule *schedule, char out[EB_BAG_SCHEDULE_TEXT_BYTES]);

/* Uses the same schedule for rows of all classes, and for nearby tables too. The sizes of caches
 * must be set before. Keeps cached_bytes, unless the schedule is off; then no row of any table is
 * prefetched. */
void eb_bag_schedule_spread(const struct eb_bag_schedule *schedule, struct eb_bag_schedules *out);
