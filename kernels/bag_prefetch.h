/* Prefetches rows into the caches before they are pooled. Two cursors run ahead of the arithmetic
 * in exactly its order (a group of bags, a block of columns, bag by bag, row by row), across the
 * borders of bags, jobs and tiles. The far cursor prefetches a row's first cache line, so that its
 * page's translation is cached when the near cursor prefetches all its lines. Everything here is a
 * hint: no result depends on it.
 * Thread: one each. Memory: borrows the jobs of its tiles. */
#pragma once

#include "kernels/bag_schedule.h"
#include "kernels/bag_tile.h"

#define EB_BAG_SHORT_ROWS 64

struct eb_bag_cursor {
    const int64_t *at; /* next row to prefetch; at `end` the next run must be entered */
    const int64_t *end;
    const int64_t *begin; /* start of the run */
    uintptr_t base;       /* address of the run's columns in row 0 */
    uint64_t row_stride_bytes;
    uint32_t line_count; /* cache lines to prefetch per row; 0: rows are only counted */
    uint32_t last_byte;  /* offset of the byte that the last prefetch is for */
    uint32_t more_bytes; /* size of the cache lines before the last */
    bool is_plain;       /* prefetches cache lines into L2 and nothing else */
    uintptr_t scales;    /* 0: not separate, or left to the other cursor */
    uint64_t scale_stride_bytes;
    uint64_t called; /* rows before this run */
    /* The position after the run. */
    struct eb_bag_range range; /* bags of the job that are left */
    uint32_t element;          /* first of the next block */
    uint32_t job;              /* index in the tile */
    uint32_t tile;             /* index in eb_bag_prefetch.tiles */
    bool is_far;
    bool is_l1;   /* prefetches into L1 */
    bool is_over; /* set until there is another tile */
};

struct eb_bag_prefetch {
    const struct eb_bag_schedules *schedules;
    const uint32_t *block_elements; /* [EB_STORAGE_COUNT] columns in one pass; 0: no prefetch */
    struct eb_bag_tile tiles[2];    /* the tile being pooled, and the one after it */
    uint32_t tile_count;
    struct eb_bag_cursor far;
    struct eb_bag_cursor near;
    uint64_t pooled; /* rows before the range that is being pooled */
};

/* Borrows both pointers for the life of `prefetch`. */
void eb_bag_prefetch_init(struct eb_bag_prefetch *prefetch,
    const struct eb_bag_schedules *schedules, const uint32_t *block_elements);

/* Returns whether rows of a table are prefetched at all. */
static inline bool eb_bag_prefetch_is_on(
    const struct eb_bag_prefetch *prefetch, const struct eb_table *table)
{
    return eb_bag_schedule_prefetches(prefetch->schedules, table) &&
           prefetch->block_elements[table->storage] > 0;
}

/* Begins with `tile`. `next` is the tile that the same thread pools after it; NULL: not known. If
 * `tile` was the last call's `next`, the rows already prefetched for it are not prefetched
 * again. */
void eb_bag_prefetch_begin(struct eb_bag_prefetch *prefetch, const struct eb_bag_tile *tile,
    const struct eb_bag_tile *next);

/* Must be called, in order, for each range of the tile whose rows are prefetched. Brings the
 * cursors as far ahead as the schedule of the rows' class demands. */
void eb_bag_prefetch_range(struct eb_bag_prefetch *prefetch, const struct eb_bag_range *range);

/* Prefetches all rows of a range at once, into the cache that their schedule names, if they are so
 * few that cursors would cost more than they gain. Prefetches nothing if the schedule does not, or
 * if there is a single row, since that is read next. Returns false if there are more rows. */
bool eb_bag_prefetch_short(
    const struct eb_bag_prefetch *prefetch, const struct eb_bag_range *range);

/* Notes that a tile was pooled without prefetching any of its rows. */
static inline void eb_bag_prefetch_forget(struct eb_bag_prefetch *prefetch)
{
    prefetch->tile_count = 0;
}

/* Enters the next run. Returns false if the cursor is over. It then prefetches nothing. */
__attribute__((cold, noinline)) bool eb_bag_cursor_enter(
    struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor);

#define EB_PREFETCH_INLINE static inline __attribute__((always_inline))

/* Prefetches the cache line at an address, valid or not. The builtin needs a constant level. */
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

/* Returns how many of `count` rows, at least one, the cursor can pass before it must enter another
 * run. */
EB_PREFETCH_INLINE uint32_t eb_bag_cursor_reach(
    struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor, uint32_t count)
{
    if (cursor->at == cursor->end && (cursor->is_over || !eb_bag_cursor_enter(prefetch, cursor))) {
        return count;
    }
    uint64_t left = (uint64_t)(cursor->end - cursor->at);
    return left < count ? (uint32_t)left : count;
}

/* Returns the next `count` rows and moves the cursor past them. If the cursor is over, it stays. */
EB_PREFETCH_INLINE const int64_t *eb_bag_cursor_pass(struct eb_bag_cursor *cursor, uint32_t count)
{
    const int64_t *at = cursor->at;
    cursor->at = cursor->is_over ? at : at + count;
    return at;
}

/* The rows to prefetch while the next `count` rows are pooled: one per cursor for each. */
struct eb_bag_span {
    const struct eb_bag_prefetch *prefetch; /* its cursors define what of a row is prefetched */
    const int64_t *far;  /* [count]; must not be read if the cursor's line_count is 0 */
    const int64_t *near; /* [count]; must not be read if the cursor's line_count is 0 */
    uint32_t count;      /* at least 1 */
};

/* Takes steps for at least one and at most `count` rows of a block. The caller must prefetch the
 * span's rows one by one as it pools. */
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

/* Prefetches for row i of a span. */
EB_PREFETCH_INLINE void eb_bag_span_prefetch(const struct eb_bag_span *span, uint32_t i)
{
    const struct eb_bag_cursor *far = &span->prefetch->far;
    const struct eb_bag_cursor *near = &span->prefetch->near;
    eb_bag_cursor_prefetch(far, far->line_count > 0 ? span->far + i : span->far);
    eb_bag_cursor_prefetch(near, near->line_count > 0 ? span->near + i : span->near);
}

/* Takes one step. Must be called once for each row of each block that is pooled. */
EB_PREFETCH_INLINE void eb_bag_prefetch_step(struct eb_bag_prefetch *prefetch)
{
    struct eb_bag_span span = eb_bag_prefetch_span(prefetch, 1);
    eb_bag_span_prefetch(&span, 0);
}
