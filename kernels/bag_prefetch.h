/* Prefetches rows into the caches before they are pooled. While row i of a range is pooled, the
 * pool function prefetches row i + D of the same range, where D is the distance of the schedule.
 * The first D rows of a range, its head, have no such row before them. A cursor prefetches heads
 * while earlier ranges are pooled, across the borders of jobs and tiles. Everything here is a hint:
 * no result depends on it.
 * Thread: one each. Memory: borrows the jobs of its tiles. */
#pragma once

#include "kernels/bag_schedule.h"
#include "kernels/bag_tile.h"

/* How the rows of a range are prefetched while it is pooled. */
struct eb_bag_ahead {
    const struct eb_bag_schedule *schedule; /* not off */
    const eb_bag_row *rows_end;             /* end of the range's rows */
};

/* Returns whether a job is pooled by functions that are specialised for a kind of schedule: those
 * that bag_float_tmpl.c defines with DEFINE_POOL. The other functions are generic: they follow any
 * schedule. */
static inline bool eb_bag_is_specialised(const struct eb_bag_job *job)
{
    uint32_t storages = 1u << EB_STORAGE_F32 | 1u << EB_STORAGE_F16 | 1u << EB_STORAGE_BF16 |
                        1u << EB_STORAGE_INT8 | 1u << EB_STORAGE_INT4;
    return (storages >> job->table->storage & 1) && job->lines.is_compact && !job->has_zero_rows &&
           job->table->row_elements % 8 == 0 && job->reduction <= EB_REDUCTION_SQRTN;
}

/* Returns the schedule of a job's rows, or NULL if they are not prefetched. Generic functions look
 * at the schedule at every row. For rows from the caches this costs more than it gains, unless the
 * rows are converted. */
static inline const struct eb_bag_schedule *eb_bag_prefetch_schedule(
    const struct eb_bag_schedules *schedules, const struct eb_bag_job *job)
{
    uint64_t cached_bytes = eb_storage_is_converted(job->table->storage)
                                ? schedules->generic_cached_bytes
                                : schedules->nearby_bytes;
    if (job->lines.table_bytes <= cached_bytes && !eb_bag_is_specialised(job)) {
        return NULL;
    }
    return eb_bag_schedule_find(schedules, &job->lines);
}

/* The range whose head is prefetched next. */
struct eb_bag_cursor {
    const struct eb_bag_job *job;
    const struct eb_bag_schedule *schedule; /* NULL: the range's rows are not prefetched */
    const struct eb_bag_lines *lines;       /* of the range's columns */
    const eb_bag_row *rows;                 /* [row_count] */
    uint32_t row_count;
    uint32_t head_count; /* rows that the cursor prefetches, the first of the range */
    uint32_t taken;      /* those that it has prefetched */
    uint32_t tile;       /* index in eb_bag_prefetch.tiles of the range after this one */
    uint32_t next_job;   /* index in that tile */
};

struct eb_bag_prefetch {
    const struct eb_bag_schedules *schedules;
    struct eb_bag_tile tiles[2]; /* the tile being pooled, and the one after it */
    uint32_t tile_count;
    struct eb_bag_cursor cursor;
    struct eb_bag_lines
        piece_lines;     /* what the cursor's lines point to if they are not whole rows */
    int64_t rows_before; /* rows that are still to be pooled before the cursor's range */
};

/* Borrows the schedules for the life of `prefetch`. */
void eb_bag_prefetch_init(
    struct eb_bag_prefetch *prefetch, const struct eb_bag_schedules *schedules);

/* Begins with `tile`. `next` is the tile that the same thread pools after it; NULL: not known. If
 * `tile` was the last call's `next`, the rows already prefetched for it are not prefetched
 * again. */
void eb_bag_prefetch_begin(struct eb_bag_prefetch *prefetch, const struct eb_bag_tile *tile,
    const struct eb_bag_tile *next);

/* Must be called before the next `row_count` rows of the tile are pooled. Prefetches the heads that
 * are within their distance of the last of these rows. A range that begins 64 or more rows after
 * that row waits, even if its distance is longer. */
void eb_bag_prefetch_heads(struct eb_bag_prefetch *prefetch, uint64_t row_count);

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

/* Most cache lines of a row that are prefetched. The processor's own prefetching follows the row
 * from there. */
#define EB_BAG_LINES_MAX 32

/* Prefetches the lines of one row. The addresses for EB_ROW_ZERO and EB_ROW_VECTOR lie before the
 * table; prefetching them is harmless. */
EB_PREFETCH_INLINE void eb_bag_prefetch_row(
    const struct eb_bag_lines *lines, uint64_t stride_bytes, int64_t row, bool is_l1)
{
    uintptr_t first = lines->first + (uint64_t)row * stride_bytes;
    uintptr_t last = first + lines->bytes - 1;
    uint32_t more = (lines->count < EB_BAG_LINES_MAX ? lines->count : EB_BAG_LINES_MAX) - 1;
    for (uintptr_t line = first; line != first + more * EB_LINE_BYTES; line += EB_LINE_BYTES) {
        eb_bag_prefetch_line(line, is_l1);
    }
    eb_bag_prefetch_line(last, is_l1);
}

EB_PREFETCH_INLINE void eb_bag_prefetch_scale(const struct eb_table *table, int64_t row)
{
    eb_bag_prefetch_line(
        (uintptr_t)table->scales + (uint64_t)row * table->scale_stride_bytes, false);
}

/* Prefetches for the row at `at` of the range: rows far and near ahead of it, as any schedule says.
 * `lines` are those of the columns that are pooled. */
EB_PREFETCH_INLINE void eb_bag_ahead_step(const struct eb_bag_ahead *ahead,
    const struct eb_table *table, const struct eb_bag_lines *lines, const eb_bag_row *at)
{
    const struct eb_bag_schedule *schedule = ahead->schedule;
    int64_t left = ahead->rows_end - at;
    if (schedule->far_rows > 0 && schedule->far_rows < left) {
        int64_t row = at[schedule->far_rows];
        if (schedule->far_is_whole) {
            eb_bag_prefetch_row(lines, table->row_stride_bytes, row, false);
        } else {
            eb_bag_prefetch_line(lines->first + (uint64_t)row * table->row_stride_bytes, false);
        }
    }
    if (schedule->near_rows > 0 && schedule->near_rows < left) {
        int64_t row = at[schedule->near_rows];
        if (schedule->near_is_l1) {
            eb_bag_prefetch_row(lines, table->row_stride_bytes, row, true);
        } else {
            eb_bag_prefetch_row(lines, table->row_stride_bytes, row, false);
        }
        if (lines->has_scales_apart) {
            eb_bag_prefetch_scale(table, row);
        }
    }
}
