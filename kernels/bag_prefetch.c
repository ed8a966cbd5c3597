#include "kernels/bag_prefetch.h"

#include <assert.h>

const struct eb_bag_schedules eb_bag_schedules_default = {
    .of_class = {{64, false, 32, false}, {64, false, 32, false}, {64, false, 32, false},
        {64, false, 32, false}, {64, false, 32, false}},
    .cached_bytes = 1 << 20,
};

unsigned eb_bag_row_class(uint64_t row_bytes)
{
    unsigned class = 0;
    while (class + 1 < EB_BAG_ROW_CLASS_COUNT && row_bytes > (uint64_t)EB_LINE_BYTES << class) {
        class ++;
    }
    return class;
}

static const struct eb_bag_schedule *find_schedule(
    const struct eb_bag_prefetch *prefetch, const struct eb_table *table)
{
    uint64_t row_bytes = eb_storage_row_bytes(table->storage, table->row_elements);
    return &prefetch->schedules->of_class[eb_bag_row_class(row_bytes)];
}

static bool is_called(const struct eb_bag_prefetch *prefetch, const struct eb_table *table)
{
    const struct eb_bag_schedule *schedule = find_schedule(prefetch, table);
    return prefetch->block_elements[table->storage] > 0 &&
           table->row_count * table->row_stride_bytes > prefetch->schedules->cached_bytes &&
           (schedule->far_rows > 0 || schedule->near_rows > 0);
}

void eb_bag_prefetch_init(struct eb_bag_prefetch *prefetch,
    const struct eb_bag_schedules *schedules, const uint32_t *block_elements)
{
    prefetch->schedules = schedules;
    prefetch->block_elements = block_elements;
    prefetch->tile_count = 0;
}

static bool is_same(const struct eb_bag_tile *a, const struct eb_bag_tile *b)
{
    return a->jobs == b->jobs && a->bag_first == b->bag_first && a->bag_end == b->bag_end &&
           a->job_count == b->job_count && a->element_first == b->element_first;
}

/* Into the tile that is pooled now. */
static void move_on(const struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor)
{
    if (cursor->tile > 0) {
        cursor->tile--;
        cursor->is_over = false;
    } else {
        /* It has called no row of it yet. */
        *cursor = (struct eb_bag_cursor){.is_far = cursor->is_far, .called = prefetch->pooled};
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
        prefetch->far = (struct eb_bag_cursor){.is_far = true};
        prefetch->near = (struct eb_bag_cursor){.is_far = false};
    }
}

/* Enters the next part that has bags, and whose rows are called. */
static bool find_part(struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor)
{
    do {
        if (cursor->job == prefetch->tiles[cursor->tile].job_count) {
            if (cursor->tile + 1 == prefetch->tile_count) {
                return false;
            }
            cursor->tile++;
            cursor->job = 0;
        }
        cursor->part = eb_bag_tile_part(&prefetch->tiles[cursor->tile], cursor->job);
        cursor->element = cursor->part.element_first;
        cursor->job++;
    } while (cursor->part.bag_first == cursor->part.bag_end ||
             !is_called(prefetch, cursor->part.job->table));
    return true;
}

/* What is called of each row of the run: columns [element, element_end). */
static void aim(
    struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor, uint32_t element_end)
{
    const struct eb_table *table = cursor->part.job->table;
    const struct eb_bag_schedule *schedule = find_schedule(prefetch, table);
    uint64_t offset = eb_storage_row_bytes(table->storage, cursor->element);
    uint64_t bytes = eb_storage_row_bytes(table->storage, element_end) - offset;
    cursor->base = (uintptr_t)table->rows + offset;
    cursor->row_stride_bytes = table->row_stride_bytes;
    cursor->line_count = (uint32_t)((bytes + EB_LINE_BYTES - 1) / EB_LINE_BYTES);
    cursor->last_byte = (uint32_t)bytes - 1;
    bool straddles = cursor->base % EB_LINE_BYTES + bytes > cursor->line_count * EB_LINE_BYTES ||
                     cursor->row_stride_bytes % EB_LINE_BYTES > 0;
    cursor->line_count += straddles && bytes > 1;
    cursor->scales = 0;
    cursor->is_l1 = !cursor->is_far && schedule->near_is_l1;
    if (cursor->is_far && schedule->far_rows == 0) {
        cursor->line_count = 0;
    } else if (cursor->is_far && !schedule->far_is_whole) {
        cursor->line_count = 1;
        cursor->last_byte = 0;
    }
    if (cursor->element == cursor->part.element_first && cursor->line_count > 0 &&
        cursor->is_far == (schedule->far_rows > 0)) {
        cursor->scales = (uintptr_t)table->scales;
    }
}

/* The rows of bags [bag_first, bag_end) of the cursor's part. */
static void take_rows(struct eb_bag_cursor *cursor, uint32_t bag_end)
{
    const struct eb_bag_job *job = cursor->part.job;
    uint32_t bag_first = cursor->part.bag_first;
    cursor->called += (uint64_t)(cursor->end - cursor->begin);
    cursor->begin = job->rows + (job->starts ? job->starts[bag_first] : bag_first);
    cursor->end = job->rows + (job->starts ? job->starts[bag_end] : bag_end);
    cursor->at = cursor->begin;
}

bool eb_bag_cursor_enter(struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor)
{
    do {
        struct eb_bag_part *part = &cursor->part;
        if (part->bag_first == part->bag_end && !find_part(prefetch, cursor)) {
            cursor->is_over = true;
            return false;
        }
        uint32_t block = prefetch->block_elements[part->job->table->storage];
        uint32_t columns_left = part->element_end - cursor->element;
        bool is_one_block = part->element_end - part->element_first <= block;
        uint32_t element_end = columns_left <= block ? part->element_end : cursor->element + block;
        uint32_t bag_end = is_one_block ? part->bag_end : part->bag_first + 1;
        aim(prefetch, cursor, element_end);
        take_rows(cursor, bag_end);
        cursor->element = element_end;
        if (element_end == part->element_end) {
            part->bag_first = bag_end;
            cursor->element = part->element_first;
        }
    } while (cursor->at == cursor->end);
    return true;
}

/* Rows that the cursor is ahead of what is pooled. */
static uint64_t count_ahead(
    const struct eb_bag_prefetch *prefetch, const struct eb_bag_cursor *cursor)
{
    return cursor->called + (uint64_t)(cursor->at - cursor->begin) - prefetch->pooled;
}

static void run_ahead(
    struct eb_bag_prefetch *prefetch, struct eb_bag_cursor *cursor, uint16_t row_count)
{
    for (uint64_t ahead = count_ahead(prefetch, cursor); ahead < row_count; ahead++) {
        eb_bag_cursor_step(prefetch, cursor);
    }
}

bool eb_bag_prefetch_part(struct eb_bag_prefetch *prefetch, const struct eb_bag_part *part)
{
    const struct eb_bag_job *job = part->job;
    if (!is_called(prefetch, job->table)) {
        return false;
    }
    const struct eb_bag_schedule *schedule = find_schedule(prefetch, job->table);
    run_ahead(prefetch, &prefetch->far, schedule->far_rows);
    run_ahead(prefetch, &prefetch->near, schedule->near_rows);
    /* From here on a step for each row of each block keeps the distance. */
    uint64_t row_count = part->bag_end - part->bag_first;
    if (job->starts) {
        row_count = job->starts[part->bag_end] - job->starts[part->bag_first];
    }
    uint32_t block = prefetch->block_elements[job->table->storage];
    uint32_t columns = part->element_end - part->element_first;
    prefetch->pooled += row_count * ((columns + block - 1) / block);
    return true;
}
