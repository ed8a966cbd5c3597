/* Prefetches rows into the caches before they are pooled: two cursors that run ahead of the
 * arithmetic in exactly its order (a group of bags, a block of columns, bag by bag, row by row),
 * over the borders of bags, jobs and tiles. The far one calls a row's first line, so that its
 * page's translation is there when the near one calls all its lines. Everything here is a hint: no
 * result depends on it. Thread: one each. Memory: borrows the jobs of its tiles. */
#pragma once

#include "kernels/bag_schedule.h"
#include "kernels/bag_tile.h"

#define EB_BAG_SHORT_ROWS 64

struct eb_bag_cursor {
    const int64_t *at; /* the next row to call; at end: enter the next run */
    const int64_t *end;
    const int64_t *begin; /* of the run */
    uintptr_t base;       /* of the run's columns in row 0 */
    uint64_t row_stride_bytes;
    uint32_t line_count; /* to call of a row; 0: rows are counted only */
    uint32_t last_byte;  /* offset of what the last call is for */
    uint32_t more_bytes; /* of the lines before the last */
    bool is_plain;       /* lines into the second cache and nothing else */
    uintptr_t scales;    /* 0: none apart, or the other cursor's business */
    uint64_t scale_stride_bytes;
    uint64_t called; /* rows before this run */
    /* What comes after the run. */
    struct eb_bag_range range; /* bags that are left of the job */
    uint32_t element;          /* the next block's first */
    uint32_t job;              /* of the tile */
    uint32_t tile;             /* in eb_bag_prefetch.tiles */
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

/* Both arrays are borrowed. */
void eb_bag_prefetch_init(struct eb_bag_prefetch *prefetch,
    const struct eb_bag_schedules *schedules, const uint32_t *block_elements);

/* Whether rows of a table are called at all. */
static inline bool eb_bag_prefetch_is_on(
    const struct eb_bag_prefetch *prefetch, const struct eb_table *table)
{
    return eb_bag_schedule_prefetches(prefetch->schedules, table) &&
           prefetch->block_elements[table->storage] > 0;
}

/* Begins with `tile`; `next` is what the same thread pools after it, NULL where that is not known.
 * Where `tile` was the last call's `next`, what has been called for it counts. */
void eb_bag_prefetch_begin(struct eb_bag_prefetch *prefetch, const struct eb_bag_tile *tile,
    const struct eb_bag_tile *next);

/* To be called for each part of the tile whose rows are prefetched, in order: brings the cursors as
 * far ahead as the rows' class wants. */
void eb_bag_prefetch_range(struct eb_bag_prefetch *prefetch, const struct eb_bag_range *range);

/* Prefetches all rows of a part at once, where they are so few that cursors would cost more than
 * they bring, and into the cache that their schedule says, if it prefetches any. A single row is
 * not prefetched: it is read next. false: they are more. */
bool eb_bag_prefetch_short(
    const struct eb_bag_prefetch *prefetch, const struct eb_bag_range *range);

/* A tile has been pooled of which no row is prefetched. */
static inline void eb_bag_prefetch_forget(struct eb_bag_prefetch *prefetch)
{
    prefetch->tile_count = 0;
}

/* Enters the next run. false: the cursor is over, and prefetches nothing. */
__attribute__((cold, noinline)) bool eb_bag_cursor_enter(
    struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor);

#define EB_PREFETCH_INLINE static inline __attribute__((always_inline))

/* Prefetches what lies at an address, whatever that is. The level of the hint must be a constant.
 */
EB_PREFETCH_INLINE void eb_bag_prefetch_line(uintptr_t address, bool is_l1)
{
    if (is_l1) {
        __builtin_prefetch((const void *)address, 0, 3);
    } else {
        __builtin_prefetch((const void *)address, 0, 2);
    }
}

/* Prefetches a row of the cursor's run. The address for EB_ROW_ZERO lies before the table;
 * prefetching it does nothing. */
EB_PREFETCH_INLINE void eb_bag_cursor_prefetch(
    const struct eb_bag_cursor *cursor, const int64_t *number)
{
    if (cursor->line_count == 0) {
        return;
    }
    uintptr_t row = (uintptr_t)*number;
    uintptr_t first = cursor->base + row * cursor->row_stride_bytes;
    for (uintptr_t line = first; line != first + cursor->more_bytes; line += EB_LINE_BYTES) {
        eb_bag_prefetch_line(line, cursor->is_l1);
    }
    eb_bag_prefetch_line(first + cursor->last_byte, cursor->is_l1);
    if (cursor->scales) {
        eb_bag_prefetch_line(cursor->scales + row * cursor->scale_stride_bytes, false);
    }
}

/* Of `count` rows those for which the cursor need not enter another run, at least one. */
EB_PREFETCH_INLINE uint32_t eb_bag_cursor_reach(
    struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor, uint32_t count)
{
    if (cursor->at == cursor->end && (cursor->is_over || !eb_bag_cursor_enter(prefetch, cursor))) {
        return count;
    }
    uint64_t left = (uint64_t)(cursor->end - cursor->at);
    return left < count ? (uint32_t)left : count;
}

/* The next `count` rows, behind which the cursor goes; where it is over, it stays. */
EB_PREFETCH_INLINE const int64_t *eb_bag_cursor_pass(struct eb_bag_cursor *cursor, uint32_t count)
{
    const int64_t *at = cursor->at;
    cursor->at = cursor->is_over ? at : at + count;
    return at;
}

/* The rows that are to be prefetched while the next `count` are pooled, one of each cursor for
 * each. */
struct eb_bag_span {
    const struct eb_bag_prefetch *prefetch; /* its cursors say what is prefetched of a row */
    const int64_t *far;  /* [count]; not to be read where the cursor's line_count is 0 */
    const int64_t *near; /* likewise */
    uint32_t count;      /* at least 1 */
};

/* Takes steps for at most `count` rows of a block, at least one. The calls are the caller's, who
 * makes them row by row as he pools. */
EB_PREFETCH_INLINE struct eb_bag_span eb_bag_prefetch_span(
    struct eb_bag_prefetch *prefetch, uint32_t count)
{
    count = eb_bag_cursor_reach(prefetch, &prefetch->far, count);
    count = eb_bag_cursor_reach(prefetch, &prefetch->near, count);
    return (struct eb_bag_span){
        .prefetch = prefetch,
        .far = eb_bag_cursor_pass(&prefetch->far, count),
        .near = eb_bag_cursor_pass(&prefetch->near, count),
        .count = count,
    };
}

/* Prefetches the next row, if the cursor is not over. */
void eb_bag_cursor_step(struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor);

/* The calls for row i of a span. */
EB_PREFETCH_INLINE void eb_bag_span_prefetch(const struct eb_bag_span *span, uint32_t i)
{
    const struct eb_bag_cursor *far = &span->prefetch->far;
    const struct eb_bag_cursor *near = &span->prefetch->near;
    eb_bag_cursor_prefetch(far, far->line_count > 0 ? span->far + i : span->far);
    eb_bag_cursor_prefetch(near, near->line_count > 0 ? span->near + i : span->near);
}

/* To be taken once for each row of each block that is pooled. */
EB_PREFETCH_INLINE void eb_bag_prefetch_step(struct eb_bag_prefetch *prefetch)
{
    struct eb_bag_span span = eb_bag_prefetch_span(prefetch, 1);
    eb_bag_span_prefetch(&span, 0);
}
