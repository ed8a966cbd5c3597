#include "kernels/bag_prefetch.h"

/* Most bytes prefetched at once, so that they do not evict each other from L2. */
#define SHORT_BYTES 65536

static bool is_same(const struct eb_bag_tile *a, const struct eb_bag_tile *b)
{
    return a->jobs == b->jobs && a->bag_first == b->bag_first && a->bag_end == b->bag_end &&
           a->job_count == b->job_count && a->element_first == b->element_first;
}

/* Moves a cursor to the start of the tile that is being pooled. */
static void start_cursor(struct eb_bag_cursor *cursor, uint64_t called)
{
    cursor->begin = NULL;
    cursor->end = NULL;
    cursor->at = NULL;
    cursor->called = called;
    cursor->range.bag_first = 0;
    cursor->range.bag_end = 0;
    cursor->job = 0;
    cursor->tile = 0;
    cursor->is_over = false;
}

void eb_bag_prefetch_init(struct eb_bag_prefetch *prefetch,
    const struct eb_bag_schedules *schedules, const uint32_t *block_elements)
{
    prefetch->schedules = schedules;
    prefetch->block_elements = block_elements;
    prefetch->tile_count = 0;
    prefetch->pooled = 0;
    prefetch->far.is_far = true;
    prefetch->near.is_far = false;
    start_cursor(&prefetch->far, 0);
    start_cursor(&prefetch->near, 0);
}

/* Keeps a cursor's position when the next tile becomes the one being pooled. A cursor that has not
 * reached that tile, and so has prefetched none of its rows, starts at its beginning. */
static void move_on(const struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor)
{
    if (cursor->tile > 0) {
        cursor->tile--;
        cursor->is_over = false;
    } else {
        start_cursor(cursor, prefetch->pooled);
    }
}

void eb_bag_prefetch_begin(struct eb_bag_prefetch *prefetch, const struct eb_bag_tile *tile,
    const struct eb_bag_tile *next)
{
    bool goes_on = prefetch->tile_count == 2 && is_same(&prefetch->tiles[1], tile);
    prefetch->tiles[0] = *tile;
    prefetch->tile_count = 1;
    if (next) {
        prefetch->tiles[1] = *next;
        prefetch->tile_count = 2;
    }
    if (goes_on) {
        move_on(prefetch, &prefetch->far);
        move_on(prefetch, &prefetch->near);
    } else {
        prefetch->pooled = 0;
        start_cursor(&prefetch->far, 0);
        start_cursor(&prefetch->near, 0);
    }
}

/* Finds the next range that has bags and whose rows are prefetched. Returns false if there is
 * none. */
static bool find_part(struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor)
{
    while (true) {
        const struct eb_bag_tile *tile = &prefetch->tiles[cursor->tile];
        if (cursor->job == tile->job_count) {
            if (cursor->tile + 1 == prefetch->tile_count) {
                return false;
            }
            cursor->tile++;
            cursor->job = 0;
            continue;
        }
        uint32_t n = cursor->job++;
        if (!eb_bag_prefetch_is_on(prefetch, tile->jobs[n].table)) {
            continue;
        }
        cursor->range = eb_bag_tile_range(tile, n);
        cursor->element = cursor->range.element_first;
        if (cursor->range.bag_first != cursor->range.bag_end) {
            return true;
        }
    }
}

/* Returns whether scales lie so close before their rows' columns that the same prefetches cover
 * both. */
static bool has_scales_with_rows(const struct eb_bag_range *range)
{
    const struct eb_table *table = range->job->table;
    return range->element_first == 0 && table->scales &&
           table->scale_stride_bytes == table->row_stride_bytes &&
           (uintptr_t)table->rows - (uintptr_t)table->scales < table->row_stride_bytes;
}

/* Bytes [first, end) of row 0 that the columns of a range take. */
struct extent {
    uintptr_t first;
    uintptr_t end;
};

static struct extent find_prefetch_extent(
    const struct eb_bag_range *range, uint32_t element, uint32_t element_end)
{
    const struct eb_table *table = range->job->table;
    uintptr_t rows = (uintptr_t)table->rows;
    struct extent extent = {
        .first = rows + (uint64_t)element * eb_storage_bits(table->storage) / 8,
        .end = rows + eb_storage_row_bytes(table->storage, element_end),
    };
    if (has_scales_with_rows(range) && element == range->element_first) {
        extent.first = (uintptr_t)table->scales;
    }
    return extent;
}

/* Sets the bytes of each row of the run that the cursor prefetches. */
static void aim(
    struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor, uint32_t element_end)
{
    const struct eb_table *table = cursor->range.job->table;
    const struct eb_bag_schedule *schedule = eb_bag_schedule_find(prefetch->schedules, table);
    struct extent extent = find_prefetch_extent(&cursor->range, cursor->element, element_end);
    uint64_t bytes = extent.end - extent.first;
    cursor->base = extent.first;
    cursor->row_stride_bytes = table->row_stride_bytes;
    cursor->line_count = (uint32_t)((bytes + EB_LINE_BYTES - 1) / EB_LINE_BYTES);
    cursor->last_byte = (uint32_t)bytes - 1;
    uint64_t last_line_bytes = bytes - (cursor->line_count - 1) * (uint64_t)EB_LINE_BYTES;
    uint64_t offset_unit = (extent.first | table->row_stride_bytes | EB_LINE_BYTES);
    /* Rows begin at multiples of the lowest bit that is set in base or stride. */
    cursor->line_count += last_line_bytes > (offset_unit & -offset_unit);
    cursor->is_l1 = !cursor->is_far && schedule->near_is_l1 && schedule->near_rows > 0;
    if ((cursor->is_far ? schedule->far_rows : schedule->near_rows) == 0) {
        cursor->line_count = 0;
    } else if (cursor->is_far && !schedule->far_is_whole) {
        cursor->line_count = 1;
        cursor->last_byte = 0;
    }
    cursor->more_bytes = cursor->line_count > 0 ? (cursor->line_count - 1) * EB_LINE_BYTES : 0;
    cursor->scales = 0;
    if (table->scales && !has_scales_with_rows(&cursor->range) && cursor->line_count > 0 &&
        cursor->element == cursor->range.element_first &&
        cursor->is_far == (schedule->far_rows > 0)) {
        cursor->scales = (uintptr_t)table->scales;
        cursor->scale_stride_bytes = table->scale_stride_bytes;
    }
    cursor->is_plain = cursor->line_count > 0 && !cursor->is_l1 && !cursor->scales;
}

/* Makes the rows of the range's bags up to `bag_end` the cursor's run. */
static void take_prefetch_rows(struct eb_bag_cursor *cursor, uint32_t bag_end)
{
    const struct eb_bag_job *job = cursor->range.job;
    uint32_t bag_first = cursor->range.bag_first;
    cursor->called += (uint64_t)(cursor->end - cursor->begin);
    cursor->begin = job->rows + (job->starts ? job->starts[bag_first] : bag_first);
    cursor->end = job->rows + (job->starts ? job->starts[bag_end] : bag_end);
    cursor->at = cursor->begin;
}

bool eb_bag_cursor_enter(struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor)
{
    do {
        struct eb_bag_range *range = &cursor->range;
        if (range->bag_first == range->bag_end && !find_part(prefetch, cursor)) {
            cursor->is_over = true;
            cursor->is_plain = false;
            cursor->line_count = 0;
            return false;
        }
        uint32_t block = prefetch->block_elements[range->job->table->storage];
        uint32_t columns_left = range->element_end - cursor->element;
        bool is_one_block = range->element_end - range->element_first <= block;
        uint32_t element_end = columns_left <= block ? range->element_end : cursor->element + block;
        uint32_t bag_end = range->bag_end;
        if (!is_one_block) {
            bag_end = eb_bag_group_end(range->job, range->bag_first, range->bag_end);
        }
        aim(prefetch, cursor, element_end);
        take_prefetch_rows(cursor, bag_end);
        cursor->element = element_end;
        if (element_end == range->element_end) {
            range->bag_first = bag_end;
            cursor->element = range->element_first;
        }
    } while (cursor->at == cursor->end);
    return true;
}

void eb_bag_cursor_step(struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor)
{
    if (cursor->at != cursor->end || (!cursor->is_over && eb_bag_cursor_enter(prefetch, cursor))) {
        eb_bag_cursor_prefetch(cursor, cursor->at++);
    }
}

/* Returns how many rows the cursor is ahead of those that are being pooled. */
static uint64_t count_ahead(
    const struct eb_bag_prefetch *prefetch, const struct eb_bag_cursor *cursor)
{
    return cursor->called + (uint64_t)(cursor->at - cursor->begin) - prefetch->pooled;
}

/* Skips `row_count` rows, which are left to the other cursor. */
static void skip(struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor, uint64_t row_count)
{
    while (row_count > 0 && (cursor->at != cursor->end || eb_bag_cursor_enter(prefetch, cursor))) {
        uint64_t left = (uint64_t)(cursor->end - cursor->at);
        uint64_t some = row_count < left ? row_count : left;
        cursor->at += some;
        row_count -= some;
    }
}

/* Advances both cursors in turn, so that the pages of far rows are looked up while near rows are
 * read. */
static void run_ahead(struct eb_bag_prefetch *prefetch, const struct eb_bag_schedule *schedule)
{
    uint64_t near_ahead = count_ahead(prefetch, &prefetch->near);
    uint64_t far_ahead = count_ahead(prefetch, &prefetch->far);
    if (far_ahead < schedule->near_rows && schedule->near_rows < schedule->far_rows) {
        skip(prefetch, &prefetch->far, schedule->near_rows - far_ahead);
        far_ahead = schedule->near_rows;
    }
    while ((near_ahead < schedule->near_rows && !prefetch->near.is_over) ||
           (far_ahead < schedule->far_rows && !prefetch->far.is_over)) {
        if (near_ahead < schedule->near_rows) {
            eb_bag_cursor_step(prefetch, &prefetch->near);
            near_ahead++;
        }
        if (far_ahead < schedule->far_rows) {
            eb_bag_cursor_step(prefetch, &prefetch->far);
            far_ahead++;
        }
    }
}

void eb_bag_prefetch_range(struct eb_bag_prefetch *prefetch, const struct eb_bag_range *range)
{
    const struct eb_bag_job *job = range->job;
    run_ahead(prefetch, eb_bag_schedule_find(prefetch->schedules, job->table));
    /* From here on, one step for each row of each block keeps the distance. */
    uint32_t block = prefetch->block_elements[job->table->storage];
    uint32_t columns = range->element_end - range->element_first;
    uint32_t blocks = columns <= block ? 1 : (columns + block - 1) / block;
    prefetch->pooled += eb_bag_range_rows(range) * blocks;
}

/* Prefetches the cache lines of a range in a row, and the row's scale if it lies apart. */
static void prefetch_row(const struct extent *extent, uintptr_t scale, bool is_l1)
{
    for (uintptr_t at = extent->first; at < extent->end; at += EB_LINE_BYTES) {
        eb_bag_prefetch_line(at, is_l1);
    }
    eb_bag_prefetch_line(extent->end - 1, is_l1);
    if (scale) {
        eb_bag_prefetch_line(scale, false);
    }
}

bool eb_bag_prefetch_short(const struct eb_bag_prefetch *prefetch, const struct eb_bag_range *range)
{
    const struct eb_bag_job *job = range->job;
    const struct eb_table *table = job->table;
    uint64_t row_count = eb_bag_range_rows(range);
    const struct eb_bag_schedule *schedule = eb_bag_schedule_find(prefetch->schedules, table);
    if (row_count <= 1 || eb_bag_schedule_is_off(schedule)) {
        return true;
    }
    struct extent extent = find_prefetch_extent(range, range->element_first, range->element_end);
    if (row_count > EB_BAG_SHORT_ROWS || row_count * (extent.end - extent.first) > SHORT_BYTES) {
        return false;
    }
    bool is_l1 = schedule->near_rows > 0 && schedule->near_is_l1;
    const int64_t *rows =
        job->rows + (job->starts ? job->starts[range->bag_first] : range->bag_first);
    uintptr_t scales = has_scales_with_rows(range) ? 0 : (uintptr_t)table->scales;
    for (uint64_t i = 0; i < row_count; i++) {
        uintptr_t row = (uintptr_t)rows[i];
        uintptr_t offset = row * table->row_stride_bytes;
        struct extent of_row = {extent.first + offset, extent.end + offset};
        prefetch_row(&of_row, scales ? scales + row * table->scale_stride_bytes : 0, is_l1);
    }
    return true;
}
