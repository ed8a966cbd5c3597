/* Schedules of prefetching: which tables' rows are prefetched into the caches, and how far ahead.
 * The text of a schedule is `off`, or FAR:NEAR:LEVEL, such as
 *
 *   128:64:l2   a row's first cache line 128 rows ahead, all of it 64 ahead, both into L2
 *   64w:4:l1    all of a row 64 rows ahead into L2, and 4 ahead into L1
 *   0:16:l1     all of a row 16 rows ahead into L1
 *
 * Thread: pure functions. Memory: none. */
#pragma once

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
    /* Tables of at most this size stay in L2, so their rows are not prefetched. */
    uint64_t cached_bytes;
    /* Larger tables of at most this size stay in L3. Their rows are prefetched by the schedule
     * `nearby` if they are converted (eb_storage_is_converted), and otherwise not prefetched. */
    uint64_t nearby_bytes;
    struct eb_bag_schedule nearby;
};

/* The schedules that are used until eb_bag_tune has measured others. */
extern const struct eb_bag_schedules eb_bag_schedules_default;

/* Returns the class of rows of `row_bytes`. */
unsigned eb_bag_schedule_row_class(uint64_t row_bytes);

/* Returns whether a table's rows are prefetched. */
static inline bool eb_bag_schedule_prefetches(
    const struct eb_bag_schedules *schedules, const struct eb_table *table)
{
    uint64_t unprefetched_bytes =
        eb_storage_is_converted(table->storage) ? schedules->cached_bytes : schedules->nearby_bytes;
    return table->row_count * table->row_stride_bytes > unprefetched_bytes;
}

/* Returns the schedule of a table's rows. Only for tables whose rows are prefetched. */
const struct eb_bag_schedule *eb_bag_schedule_find(
    const struct eb_bag_schedules *schedules, const struct eb_table *table);

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
/* Returns whether no row is prefetched. */
bool eb_bag_schedule_is_off(const struct eb_bag_schedule *schedule);

/* Uses the same schedule for rows of all classes, and for nearby tables too. The sizes of caches
 * must be set before. Keeps cached_bytes, unless the schedule is off; then no row of any table is
 * prefetched. */
void eb_bag_schedule_spread(const struct eb_bag_schedule *schedule, struct eb_bag_schedules *out);
