/* Schedules of prefetching: which tables' rows are prefetched into the caches, and how far ahead.
 * As people write one: `off`, or FAR:NEAR:LEVEL, such as
 *
 *   128:64:l2   a row's first line 128 rows ahead, all of it 64 ahead, both into the second cache
 *   64w:4:l1    all of a row 64 rows ahead into the second cache, and 4 ahead into the first
 *   0:16:l1     all of it 16 rows ahead, into the first cache
 *
 * Thread: pure functions. Memory: none. */
#pragma once

#include "kernels/table.h"

#define EB_LINE_BYTES 64

/* How far ahead, in rows, and what is called for rows of one size class. */
struct eb_bag_schedule {
    uint16_t far_rows;  /* 0: not at all */
    bool far_is_whole;  /* all lines of the row, not only the first */
    uint16_t near_rows; /* 0: not at all */
    bool near_is_l1;    /* into the first cache, not only the second */
};

/* Rows of at most 1, 2, 4, 8 lines, and longer ones. */
#define EB_BAG_ROW_CLASS_COUNT 5

struct eb_bag_schedules {
    struct eb_bag_schedule of_class[EB_BAG_ROW_CLASS_COUNT];
    /* Rows of tables of at most so many bytes are in the second cache, and not called. */
    uint64_t cached_bytes;
    /* Rows of other tables of at most so many are in the third, and called as `nearby` says; but
     * those that need no conversion are not called. */
    uint64_t nearby_bytes;
    struct eb_bag_schedule nearby;
};

/* For a start, and where nothing is measured. */
extern const struct eb_bag_schedules eb_bag_schedules_default;

/* The class of rows of that many bytes. */
unsigned eb_bag_schedule_row_class(uint64_t row_bytes);

/* Whether a table's rows are to be called. */
static inline bool eb_bag_schedule_prefetches(
    const struct eb_bag_schedules *schedules, const struct eb_table *table)
{
    uint64_t unprefetched_bytes =
        eb_storage_is_converted(table->storage) ? schedules->cached_bytes : schedules->nearby_bytes;
    return table->row_count * table->row_stride_bytes > unprefetched_bytes;
}

/* How a table's rows are prefetched, if they are. */
const struct eb_bag_schedule *eb_bag_schedule_find(
    const struct eb_bag_schedules *schedules, const struct eb_table *table);

/* Most rows ahead: as many lines fill a first-level cache several times. */
#define EB_BAG_SCHEDULE_ROWS_MAX 4096
/* Room for a schedule's text, NUL included. */
#define EB_BAG_SCHEDULE_TEXT_BYTES 24

/* NULL: *out is set. Otherwise *out is unchanged, and the text says what is wrong. */
const char *eb_bag_schedule_parse(const char *text, struct eb_bag_schedule *out);
/* What parses to the same schedule. */
void eb_bag_schedule_format(
    const struct eb_bag_schedule *schedule, char out[EB_BAG_SCHEDULE_TEXT_BYTES]);
/* Whether no row is prefetched. */
bool eb_bag_schedule_is_off(const struct eb_bag_schedule *schedule);

/* The same schedule for rows of all classes, nearby ones too; where it calls none, no step is taken
 * either. What is said of caches is to be there before: of it cached_bytes stays, unless nothing is
 * called. */
void eb_bag_schedule_spread(const struct eb_bag_schedule *schedule, struct eb_bag_schedules *out);
