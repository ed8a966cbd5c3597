#include "server/route/route_fetch.h"

#include <string.h>

/* Number of bits by which one pass sorts. */
#define DIGIT_BITS 8
#define DIGIT_COUNT (1u << DIGIT_BITS)

/* ---- begin: the distinct rows ---- */

/* Sorts positions by one digit of their rows. Those with the same digit keep their order. */
static void sort_positions_by_digit(
    const eb_bag_row *rows, const uint32_t *from, uint32_t count, unsigned shift, uint32_t *to)
{
    uint32_t ends[DIGIT_COUNT] = {0};
    for (uint32_t i = 0; i < count; i++) {
        ends[(uint64_t)rows[i] >> shift & (DIGIT_COUNT - 1)]++;
    }
    uint32_t next = 0;
    for (uint32_t digit = 0; digit < DIGIT_COUNT; digit++) {
        uint32_t size = ends[digit];
        ends[digit] = next;
        next += size;
    }
    for (uint32_t i = 0; i < count; i++) {
        to[ends[(uint64_t)rows[from[i]] >> shift & (DIGIT_COUNT - 1)]++] = from[i];
    }
}

/* Returns the positions of the rows, sorted by row and position. `room` has space for twice as
 * many. No choice of keys makes this slow, as it might with a hash table. */
static const uint32_t *sort_positions(const eb_bag_row *rows, uint32_t count, uint32_t *room)
{
    uint32_t *sorted = room;
    uint32_t *spare = room + count;
    uint64_t differing = 0;
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = i;
        differing |= (uint64_t)(rows[i] ^ rows[0]);
    }
    for (unsigned shift = 0; shift < 64; shift += DIGIT_BITS) {
        if ((differing >> shift & (DIGIT_COUNT - 1)) != 0) {
            sort_positions_by_digit(rows, sorted, count, shift, spare);
            uint32_t *swap = sorted;
            sorted = spare;
            spare = swap;
        }
    }
    return sorted;
}

/* Writes each row once to `distinct`, in the order of first occurrence, and its number there to
 * `numbers` for every row. Returns the number of distinct rows. */
static uint32_t list_distinct(const eb_bag_row *rows, uint32_t count, const uint32_t *sorted,
    uint32_t *numbers, int64_t *distinct)
{
    /* At first, numbers[i] is the position where row i occurs first. */
    uint32_t first = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || rows[sorted[i]] != rows[sorted[i - 1]]) {
            first = sorted[i];
        }
        numbers[sorted[i]] = first;
    }
    uint32_t distinct_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (numbers[i] == i) {
            distinct[distinct_count] = rows[i];
            numbers[i] = distinct_count++;
        } else {
            numbers[i] = numbers[numbers[i]];
        }
    }
    return distinct_count;
}

bool eb_route_fetch_begin(const struct eb_bag_job *checked, uint32_t row_count,
    struct eb_arena *arena, struct eb_route_fetch *fetch)
{
    uint32_t *numbers = eb_arena_take(arena, row_count * sizeof *numbers);
    *fetch = (struct eb_route_fetch){
        .job =
            {
                .table = checked->table,
                .lines = checked->lines,
                .rows = checked->rows,
                .weights = checked->weights,
                .bag_count = row_count,
                .reduction = EB_REDUCTION_NONE,
                .output_type = checked->output_type,
                .has_zero_rows = checked->has_zero_rows,
                .has_vector_rows = checked->has_vector_rows,
                .default_row = -1,
            },
        .row_count = row_count,
        .numbers = numbers,
    };
    if (!numbers) {
        return false;
    }
    if (checked->weights) {
        for (uint32_t i = 0; i < row_count; i++) {
            numbers[i] = i;
        }
        return true;
    }
    int64_t *distinct = eb_arena_take(arena, row_count * sizeof *distinct);
    uint32_t *room = eb_arena_take(arena, 2 * (size_t)row_count * sizeof *room);
    if (!distinct || !room) {
        return false;
    }
    const uint32_t *sorted = sort_positions(checked->rows, row_count, room);
    fetch->job.bag_count = list_distinct(checked->rows, row_count, sorted, numbers, distinct);
    fetch->job.rows = distinct;
    return true;
}

/* ---- end: the checked job's row list ---- */

/* The row of an index that leaves its bag. */
#define ROW_LEFT_OUT (EB_ROW_VECTOR - 1)

/* Returns whether fetched row `i` is the one that replaces missing keys, for one of these or by its
 * own key. */
static bool is_unknown_row(
    const struct eb_route_fetch *fetch, const struct eb_route_merge *merge, uint32_t i)
{
    const struct eb_route_query *query = merge->split->query;
    return merge->is_missing[i] ||
           (query->has_unknown_key && fetch->job.rows[i] == query->unknown_key);
}

/* Replaces the entries of `rows`, one for each fetched row, that are not rows of their own: those
 * of missing keys, and those of parts that were left out. */
static void replace_fetched(
    const struct eb_route_fetch *fetch, const struct eb_route_merge *merge, int64_t *rows)
{
    enum eb_missing policy = merge->split->query->missing;
    bool is_one = !fetch->job.weights; /* All missing keys mean one row. */
    int64_t unknown_row = ROW_LEFT_OUT;
    for (uint32_t i = 0; i < fetch->job.bag_count; i++) {
        if (merge->is_unreached && merge->is_unreached[i]) {
            rows[i] = ROW_LEFT_OUT;
        } else if (merge->is_missing && policy == EB_MISSING_UNKNOWN_ROW) {
            if (is_unknown_row(fetch, merge, i)) {
                unknown_row = is_one && unknown_row != ROW_LEFT_OUT ? unknown_row : rows[i];
                rows[i] = unknown_row;
            }
        } else if (merge->is_missing && merge->is_missing[i]) {
            rows[i] = policy == EB_MISSING_SKIP ? ROW_LEFT_OUT : EB_ROW_ZERO;
        }
    }
}

/* Lists the rows of each bag, without those that leave it. */
static void list_fetched(const struct eb_route_fetch *fetch, const int64_t *fetched,
    const struct eb_bag_job *job, int64_t *rows, uint32_t *starts)
{
    uint32_t taken = 0;
    for (uint32_t bag = 0; bag < job->bag_count; bag++) {
        starts[bag] = taken;
        for (uint32_t i = job->starts[bag]; i < job->starts[bag + 1]; i++) {
            int64_t row = fetched[fetch->numbers[i]];
            rows[taken] = row;
            taken += row != ROW_LEFT_OUT;
        }
    }
    starts[job->bag_count] = taken;
}

/* Returns the number of rows of the checked job's list whose entry of `flags` is set. */
static uint64_t count_flagged(const struct eb_route_fetch *fetch, const bool *flags)
{
    uint64_t count = 0;
    for (uint32_t i = 0; flags && i < fetch->row_count; i++) {
        count += flags[fetch->numbers[i]];
    }
    return count;
}

/* Returns the number of rows of that list which were not reached and replace no missing row number.
 * The list does not tell an index of the row for unknown indices from a missing one, so as many are
 * taken for missing as there are. */
static uint64_t count_unreached(
    const struct eb_route_fetch *fetch, const struct eb_route_merge *merge, uint64_t missing_count)
{
    uint64_t stand_in_count = 0;
    for (uint32_t i = 0; merge->stand_in_count > 0 && i < fetch->row_count; i++) {
        uint32_t number = fetch->numbers[i];
        stand_in_count += merge->is_unreached[number] &&
                          eb_route_merge_is_stand_in(merge, fetch->job.rows[number]);
    }
    return count_flagged(fetch, merge->is_unreached) -
           (stand_in_count < missing_count ? stand_in_count : missing_count);
}

bool eb_route_fetch_end(const struct eb_route_fetch *fetch, struct eb_route_merge *merge,
    struct eb_arena *arena, struct eb_bag_job *job, uint64_t *unreached_count)
{
    uint32_t fetched_count = fetch->job.bag_count;
    struct eb_bag_job merged;
    int64_t *fetched = eb_arena_take(arena, fetched_count * sizeof *fetched);
    int64_t *rows = eb_arena_take(arena, (fetch->row_count + 1) * sizeof *rows);
    uint32_t *starts = eb_arena_take(arena, ((size_t)job->bag_count + 1) * sizeof *starts);
    if (!fetched || !rows || !starts || !eb_route_merge_end(merge, arena, &merged)) {
        return false;
    }
    if (fetched_count > 0) {
        memcpy(fetched, merged.rows, fetched_count * sizeof *fetched);
    }
    replace_fetched(fetch, merge, fetched);
    list_fetched(fetch, fetched, job, rows, starts);
    *unreached_count = count_unreached(fetch, merge, job->missing_count);
    job->table = merged.table;
    job->lines = merged.lines;
    job->rows = rows;
    job->weights = NULL;
    job->starts = starts;
    job->has_vector_rows = false;
    job->default_row = -1;
    if (merge->is_missing) {
        job->missing_count = count_flagged(fetch, merge->is_missing);
        job->has_zero_rows =
            job->missing_count > 0 && merge->split->query->missing == EB_MISSING_ZERO;
    }
    return true;
}
