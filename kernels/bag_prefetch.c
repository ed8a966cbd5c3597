#include "kernels/bag_prefetch.h"

/* The cursor enters a range that begins fewer than this many rows after the rows being pooled. */
#define REACH_ROWS 64

static bool is_same(const struct eb_bag_tile *a, const struct eb_bag_tile *b)
{
    return a->jobs == b->jobs && a->bag_first == b->bag_first && a->bag_end == b->bag_end &&
           a->job_count == b->job_count && a->element_first == b->element_first;
}

static void start_cursor(struct eb_bag_prefetch *prefetch)
{
    prefetch->cursor = (struct eb_bag_cursor){.tile = 0};
    prefetch->rows_before = 0;
}

void eb_bag_prefetch_init(
    struct eb_bag_prefetch *prefetch, const struct eb_bag_schedules *schedules)
{
    prefetch->schedules = schedules;
    prefetch->tile_count = 0;
    start_cursor(prefetch);
}

void eb_bag_prefetch_begin(struct eb_bag_prefetch *prefetch, const struct eb_bag_tile *tile,
    const struct eb_bag_tile *next)
{
    bool goes_on = prefetch->tile_count == 2 && prefetch->cursor.tile == 1 &&
                   is_same(&prefetch->tiles[1], tile);
    prefetch->tiles[0] = *tile;
    prefetch->tile_count = 1;
    if (next) {
        prefetch->tiles[1] = *next;
        prefetch->tile_count = 2;
    }
    if (goes_on) {
        prefetch->cursor.tile = 0;
    } else {
        start_cursor(prefetch);
    }
}

/* Returns whether all lines of a row are prefetched at the far distance already. */
static bool is_whole_from_far(const struct eb_bag_schedule *schedule)
{
    return schedule->far_rows > 0 && (schedule->far_is_whole || schedule->near_rows == 0);
}

/* Returns how many rows ahead all lines of a row are prefetched. */
static uint32_t find_distance(const struct eb_bag_schedule *schedule)
{
    return is_whole_from_far(schedule) ? schedule->far_rows : schedule->near_rows;
}

/* Returns the lines of the range's columns. */
static const struct eb_bag_lines *find_range_lines(
    struct eb_bag_prefetch *prefetch, const struct eb_bag_range *range)
{
    const struct eb_table *table = range->job->table;
    if (range->element_first == 0 && range->element_end == table->row_elements) {
        return &range->job->lines;
    }
    prefetch->piece_lines = eb_bag_lines_find(table, range->element_first, range->element_end);
    return &prefetch->piece_lines;
}

/* Moves the cursor to the next range that has rows. Returns false if no such range is left. */
static bool enter_range(struct eb_bag_prefetch *prefetch)
{
    struct eb_bag_cursor *cursor = &prefetch->cursor;
    const struct eb_bag_tile *tile = &prefetch->tiles[cursor->tile];
    struct eb_bag_range range;
    uint64_t row_count;
    do {
        while (cursor->next_job == tile->job_count) {
            if (cursor->tile + 1 >= prefetch->tile_count) {
                return false;
            }
            tile = &prefetch->tiles[++cursor->tile];
            cursor->next_job = 0;
        }
        range = eb_bag_tile_range(tile, cursor->next_job++);
        row_count = eb_bag_range_rows(&range);
    } while (row_count == 0);
    prefetch->rows_before += cursor->row_count;
    cursor->job = range.job;
    cursor->rows = eb_bag_range_first_row(&range);
    cursor->row_count = (uint32_t)row_count;
    cursor->schedule = eb_bag_prefetch_schedule(prefetch->schedules, range.job);
    cursor->taken = 0;
    cursor->head_count = 0;
    if (cursor->schedule) {
        uint32_t distance = find_distance(cursor->schedule);
        cursor->head_count = distance < row_count ? distance : (uint32_t)row_count;
        cursor->lines = find_range_lines(prefetch, &range);
    }
    return true;
}

/* Prefetches rows [first, end) of the cursor's range, each of `line_count` lines. */
static inline __attribute__((always_inline)) void prefetch_rows(const struct eb_bag_cursor *cursor,
    uint32_t first, uint32_t end, uint32_t line_count, bool is_l1)
{
    struct eb_bag_lines lines = *cursor->lines;
    uint64_t stride_bytes = cursor->job->table->row_stride_bytes;
    lines.count = line_count;
    for (uint32_t i = first; i < end; i++) {
        eb_bag_prefetch_row(&lines, stride_bytes, cursor->rows[i], is_l1);
    }
}

/* Does the same. For the usual numbers of lines, the compiler unrolls the loop over them. */
static inline __attribute__((always_inline)) void prefetch_any_rows(
    const struct eb_bag_cursor *cursor, uint32_t first, uint32_t end, bool is_l1)
{
    switch (cursor->lines->count) {
    case 1: prefetch_rows(cursor, first, end, 1, is_l1); break;
    case 2: prefetch_rows(cursor, first, end, 2, is_l1); break;
    case 3: prefetch_rows(cursor, first, end, 3, is_l1); break;
    case 4: prefetch_rows(cursor, first, end, 4, is_l1); break;
    case 5: prefetch_rows(cursor, first, end, 5, is_l1); break;
    case 8: prefetch_rows(cursor, first, end, 8, is_l1); break;
    default: prefetch_rows(cursor, first, end, cursor->lines->count, is_l1); break;
    }
}

/* Prefetches the cursor's rows up to `end`. */
static void prefetch_head(struct eb_bag_cursor *cursor, uint32_t end)
{
    uint32_t first = cursor->taken;
    cursor->taken = end;
    if (cursor->schedule->near_is_l1 && !is_whole_from_far(cursor->schedule)) {
        prefetch_any_rows(cursor, first, end, true);
    } else {
        prefetch_any_rows(cursor, first, end, false);
    }
    for (uint32_t i = first; cursor->lines->has_scales_apart && i < end; i++) {
        eb_bag_prefetch_scale(cursor->job->table, cursor->rows[i]);
    }
}

void eb_bag_prefetch_heads(struct eb_bag_prefetch *prefetch, uint64_t row_count)
{
    struct eb_bag_cursor *cursor = &prefetch->cursor;
    int64_t pooled_end = (int64_t)row_count;
    do {
        if (cursor->taken < cursor->head_count) {
            int64_t distance = find_distance(cursor->schedule);
            int64_t due = pooled_end + distance - prefetch->rows_before;
            if (due > cursor->taken) {
                prefetch_head(
                    cursor, due < cursor->head_count ? (uint32_t)due : cursor->head_count);
            }
        }
    } while (cursor->taken == cursor->head_count &&
             prefetch->rows_before + cursor->row_count < pooled_end + REACH_ROWS &&
             enter_range(prefetch));
    prefetch->rows_before -= pooled_end;
}
