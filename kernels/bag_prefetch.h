/* Calls rows into the caches before they are pooled: two cursors that run ahead of the arithmetic
 * in exactly its order (a group of bags, a block of columns, bag by bag, row by row), over the
 * borders of bags, jobs and tiles. The far one calls a row's first line, so that its page's
 * translation is there when the near one calls all its lines. Everything here is a hint: no result
 * depends on it. Thread: one each. Memory: borrows the jobs of its tiles. */
#pragma once

#include "kernels/bag_tile.h"

#define EB_LINE_BYTES 64
#define EB_BAG_GROUP_ROWS 64
#define EB_BAG_SHORT_ROWS 64

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
    uint64_t cached_bytes; /* rows of tables of at most so many are not called */
};

/* For a start, and where nothing is measured. */
extern const struct eb_bag_schedules eb_bag_schedules_default;

/* The class of rows of that many bytes. */
unsigned eb_bag_row_class(uint64_t row_bytes);

struct eb_bag_cursor {
    const int64_t *at; /* the next row to call; at end: enter the next run */
    const int64_t *end;
    const int64_t *begin; /* of the run */
    uintptr_t base;       /* of the run's columns in row 0 */
    uint64_t row_stride_bytes;
    uint32_t line_count; /* to call of a row; 0: rows are counted only */
    uint32_t last_byte;  /* offset of what the last call is for */
    uintptr_t scales;    /* 0: none apart, or the other cursor's business */
    uint64_t scale_stride_bytes;
    uint64_t called; /* rows before this run */
    /* What comes after the run. */
    struct eb_bag_part part; /* bags that are left of the job */
    uint32_t element;        /* the next block's first */
    uint32_t job;            /* of the tile */
    uint32_t tile;           /* in eb_bag_prefetch.tiles */
    bool is_far;
    bool is_l1;   /* calls into the first cache */
    bool is_over; /* until there is another tile */
};

struct eb_bag_prefetch {
    const struct eb_bag_schedules *schedules;
    const uint32_t *block_elements; /* [EB_STORAGE_COUNT] columns in one pass; 0: not called */
    struct eb_bag_tile tiles[2];    /* the one that is pooled, and what comes after it */
    uint32_t tile_count;
    struct eb_bag_cursor far;
    struct eb_bag_cursor near;
    uint64_t pooled; /* rows before the part that is pooled */
};

/* Where the group of bags that begins with `bag` ends, at `bag_end` at the latest. Rows of more
 * than one block are pooled a group at a time: enough of them to make a block worth beginning, so
 * few that what is called for one block is still cached for the next. */
static inline uint32_t eb_bag_group_end(
    const struct eb_bag_job *job, uint32_t bag, uint32_t bag_end)
{
    uint32_t end = bag + 1;
    while (end < bag_end &&
           (job->starts ? job->starts[end] - job->starts[bag] : end - bag) < EB_BAG_GROUP_ROWS) {
        end++;
    }
    return end;
}

/* Both arrays are borrowed. */
void eb_bag_prefetch_init(struct eb_bag_prefetch *prefetch,
    const struct eb_bag_schedules *schedules, const uint32_t *block_elements);

/* Whether rows of a table are called at all. */
static inline bool eb_bag_prefetch_calls(
    const struct eb_bag_prefetch *prefetch, const struct eb_table *table)
{
    return table->row_count * table->row_stride_bytes > prefetch->schedules->cached_bytes &&
           prefetch->block_elements[table->storage] > 0;
}

/* Begins with `tile`; `next` is what the same thread pools after it, NULL where that is not known.
 * Where `tile` was the last call's `next`, what has been called for it counts. */
void eb_bag_prefetch_begin(struct eb_bag_prefetch *prefetch, const struct eb_bag_tile *tile,
    const struct eb_bag_tile *next);

/* To be called for each part of the tile whose rows are called, in order: brings the cursors as far
 * ahead as the rows' class wants. */
void eb_bag_prefetch_part(struct eb_bag_prefetch *prefetch, const struct eb_bag_part *part);

/* Calls all rows of a part at once, where they are so few that cursors would cost more than they
 * bring. false: they are more. */
bool eb_bag_prefetch_short(const struct eb_bag_part *part);

/* A tile has been pooled of which no row is called. */
static inline void eb_bag_prefetch_forget(struct eb_bag_prefetch *prefetch)
{
    prefetch->tile_count = 0;
}

/* Enters the next run. false: the cursor is over. */
__attribute__((cold, noinline)) bool eb_bag_cursor_enter(
    struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor);

/* The level of __builtin_prefetch must be a constant. */
#define EB_CALL_LINE(address, level) __builtin_prefetch((const void *)(address), 0, level)
#define EB_CALL_LINES(cursor, first, level)                                                        \
    do {                                                                                           \
        uintptr_t line = (first);                                                                  \
        uint32_t left = (cursor)->line_count - 1;                                                  \
        for (; left >= 4; left -= 4, line += 4 * EB_LINE_BYTES) {                                  \
            EB_CALL_LINE(line, level);                                                             \
            EB_CALL_LINE(line + EB_LINE_BYTES, level);                                             \
            EB_CALL_LINE(line + 2 * EB_LINE_BYTES, level);                                         \
            EB_CALL_LINE(line + 3 * EB_LINE_BYTES, level);                                         \
        }                                                                                          \
        for (; left > 0; left--, line += EB_LINE_BYTES) {                                          \
            EB_CALL_LINE(line, level);                                                             \
        }                                                                                          \
        EB_CALL_LINE((first) + (cursor)->last_byte, level);                                        \
    } while (0)

static inline __attribute__((always_inline)) void eb_bag_cursor_step(
    struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor)
{
    if (cursor->at == cursor->end && (cursor->is_over || !eb_bag_cursor_enter(prefetch, cursor))) {
        return;
    }
    /* The address for EB_ROW_ZERO lies before the table; calling it does nothing. */
    uintptr_t row = (uintptr_t)*cursor->at++;
    uintptr_t first = cursor->base + row * cursor->row_stride_bytes;
    if (cursor->is_l1) {
        EB_CALL_LINES(cursor, first, 3);
    } else if (cursor->line_count > 0) {
        EB_CALL_LINES(cursor, first, 2);
    }
    if (cursor->scales) {
        uintptr_t scale = cursor->scales + row * cursor->scale_stride_bytes;
        __builtin_prefetch((const void *)scale, 0, 2);
    }
}

/* To be taken once for each row of each block that is pooled. */
static inline __attribute__((always_inline)) void eb_bag_prefetch_step(
    struct eb_bag_prefetch *prefetch)
{
    eb_bag_cursor_step(prefetch, &prefetch->far);
    eb_bag_cursor_step(prefetch, &prefetch->near);
}
