#include "kernels/bag_sequence.h"

#include "kernels/bag_measure.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* While rows are made unique, each is a 64-bit number. Its upper bits are the row's number minus
 * ROW_MIN, which is not negative; its lower bits are the row's position. */
#define ROW_MIN EB_ROW_VECTOR
#define POSITION_BITS 24
#define POSITION_MASK ((UINT64_C(1) << POSITION_BITS) - 1)
static_assert(EB_BAG_INDICES_MAX - 1 <= POSITION_MASK, "every position fits");
static_assert((int64_t)EB_BAG_UNIQUE_ROWS_MAX - 1 - ROW_MIN <= INT64_MAX >> (POSITION_BITS - 1),
    "every row fits");
static_assert(ROW_MIN < EB_ROW_ZERO, "no row is less");

/* Number of bits by which one pass sorts. */
#define DIGIT_BITS 8
#define DIGIT_COUNT (1u << DIGIT_BITS)

static uint64_t round_up_scratch(uint64_t bytes)
{
    return (bytes + EB_BAG_SCRATCH_ALIGNMENT - 1) / EB_BAG_SCRATCH_ALIGNMENT *
           EB_BAG_SCRATCH_ALIGNMENT;
}

static bool check_sequence(const struct eb_bag_query *query, const struct eb_bag_sequence *sequence,
    struct eb_bag_error *error)
{
    if (sequence->max_len == 0 && (sequence->keep_first || sequence->pad)) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED, "%s needs a max_len above 0",
            sequence->keep_first ? "keep_first" : "pad");
    }
    if (sequence->unique && sequence->pad) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "unique and pad are both set: unique rows cannot be padded");
    }
    if (sequence->unique && eb_bag_weights_are_given(query)) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "unique is set, but there are weights: a unique row may have several of them");
    }
    if (sequence->unique && query->table->row_count > EB_BAG_UNIQUE_ROWS_MAX) {
        return eb_bag_error_set(error, EB_BAG_ERROR_MALFORMED,
            "unique is not possible with a table of %" PRIu64 " rows, at most %" PRIu64
            " are allowed",
            query->table->row_count, EB_BAG_UNIQUE_ROWS_MAX);
    }
    return true;
}

bool eb_bag_sequence_measure(const struct eb_bag_query *query,
    const struct eb_bag_sequence *sequence, struct eb_bag_extent *extent,
    struct eb_bag_sequence_extent *sizes, struct eb_bag_error *error)
{
    assert(query->reduction == EB_REDUCTION_SUM);
    if (!check_sequence(query, sequence, error)) {
        return false;
    }
    /* At most 2^24 bags of less than 2^32 rows. */
    uint64_t full_count = extent->result_rows * sequence->max_len;
    bool is_cut = sequence->max_len > 0 && full_count < extent->index_count;
    uint64_t kept_max = is_cut ? full_count : extent->index_count;
    if (sequence->pad && full_count > EB_BAG_BAGS_MAX) {
        return eb_bag_error_set(error, EB_BAG_ERROR_TOO_LARGE,
            "%" PRIu64 " bags of max_len = %" PRIu32 " rows, at most %" PRIu64
            " rows can be padded",
            extent->result_rows, sequence->max_len, EB_BAG_BAGS_MAX);
    }
    *sizes = (struct eb_bag_sequence_extent){
        .bag_count = extent->result_rows,
        .kept_max = kept_max,
        .rows_max = sequence->pad ? full_count : kept_max,
        .scratch_offset = extent->scratch_bytes,
    };
    if (sequence->pad) {
        uint64_t weight_bytes =
            extent->weights_offset > 0 ? eb_bag_weights_bytes(query->table->type) : 0;
        extent->scratch_bytes += round_up_scratch(full_count * (sizeof(int64_t) + weight_bytes));
    } else if (sequence->unique) {
        extent->scratch_bytes += round_up_scratch(2 * kept_max * sizeof(uint64_t));
    }
    return true;
}

/* Memory for the rows that are kept, and their weights. */
struct room {
    int64_t *rows;
    uint8_t *weights; /* NULL: no weights */
    size_t weight_bytes;
};

/* Copies `count` rows of the job, with their weights, from position `from` to `to`. The rows may
 * overlap. */
static void move_rows(const struct eb_bag_job *job, uint64_t from, uint64_t count,
    const struct room *room, uint64_t to)
{
    if (count == 0) {
        return;
    }
    memmove(room->rows + to, job->rows + from, count * sizeof *room->rows);
    if (room->weights) {
        const uint8_t *weights = job->weights;
        memmove(room->weights + to * room->weight_bytes, weights + from * room->weight_bytes,
            count * room->weight_bytes);
    }
}

static void pad_rows(const struct room *room, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        room->rows[i] = EB_ROW_ZERO;
    }
    if (room->weights && first < end) {
        memset(room->weights + first * room->weight_bytes, 0, (end - first) * room->weight_bytes);
    }
}

/* Returns how many rows a bag keeps. */
static uint32_t find_kept(const struct eb_bag_sequence *sequence, uint32_t count)
{
    return sequence->max_len > 0 && count > sequence->max_len ? sequence->max_len : count;
}

/* Sets the lengths and returns their sum. */
static uint64_t list_lengths(const struct eb_bag_sequence *sequence, const struct eb_bag_job *job,
    uint32_t bag_count, int32_t *lengths)
{
    uint64_t kept_count = 0;
    for (uint32_t bag = 0; bag < bag_count; bag++) {
        uint32_t kept = find_kept(sequence, job->starts[bag + 1] - job->starts[bag]);
        lengths[bag] = (int32_t)kept;
        kept_count += kept;
    }
    return kept_count;
}

/* Moves the rows that each bag keeps to their positions in the result. Returns the number of rows
 * of the result. */
static uint64_t place_rows(const struct eb_bag_sequence *sequence, const struct eb_bag_job *job,
    uint32_t bag_count, const struct room *room)
{
    uint64_t taken = 0;
    for (uint32_t bag = 0; bag < bag_count; bag++) {
        uint32_t end = job->starts[bag + 1];
        uint32_t kept = find_kept(sequence, end - job->starts[bag]);
        uint32_t first = sequence->keep_first ? job->starts[bag] : end - kept;
        move_rows(job, first, kept, room, taken);
        if (sequence->pad) {
            pad_rows(room, taken + kept, taken + sequence->max_len);
        }
        taken += sequence->pad ? sequence->max_len : kept;
    }
    return taken;
}

/* Sorts `count` numbers by one digit. Numbers with the same digit keep their order. */
static void sort_by_digit(const uint64_t *from, uint64_t count, unsigned shift, uint64_t *to)
{
    uint32_t ends[DIGIT_COUNT] = {0};
    for (uint64_t i = 0; i < count; i++) {
        ends[from[i] >> shift & (DIGIT_COUNT - 1)]++;
    }
    uint32_t next = 0;
    for (uint32_t digit = 0; digit < DIGIT_COUNT; digit++) {
        uint32_t size = ends[digit];
        ends[digit] = next;
        next += size;
    }
    for (uint64_t i = 0; i < count; i++) {
        to[ends[from[i] >> shift & (DIGIT_COUNT - 1)]++] = from[i];
    }
}

/* Sorts `count` rows by number and position. `room` has space for twice as many numbers. Returns
 * the sorted half. Sorting takes the same time whatever the rows are, so that no choice of rows
 * makes a lookup slow, as it might with a hash table. */
static const uint64_t *sort_rows(const eb_bag_row *rows, uint64_t count, uint64_t *room)
{
    uint64_t *sorted = room;
    uint64_t *spare = room + count;
    uint64_t all = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t number = (uint64_t)(rows[i] - ROW_MIN);
        all |= number;
        sorted[i] = number << POSITION_BITS | i;
    }
    for (unsigned shift = POSITION_BITS; all != 0; shift += DIGIT_BITS, all >>= DIGIT_BITS) {
        sort_by_digit(sorted, count, shift, spare);
        uint64_t *swap = sorted;
        sorted = spare;
        spare = swap;
    }
    return sorted;
}

/* Writes each row once to `unique`, in the order of first occurrence, and its number there to
 * `inverse` for every row. `unique` may be `rows`. Returns the number of unique rows. */
static uint64_t make_unique(const eb_bag_row *rows, uint64_t count, uint64_t *room,
    struct eb_bag_sequence_lists *lists, int64_t *unique)
{
    uint32_t *inverse = lists->inverse;
    const uint64_t *sorted = sort_rows(rows, count, room);
    /* At first, inverse[i] is the position where row i occurs first. */
    uint64_t first = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (i == 0 || sorted[i] >> POSITION_BITS != sorted[i - 1] >> POSITION_BITS) {
            first = sorted[i] & POSITION_MASK;
        }
        inverse[sorted[i] & POSITION_MASK] = (uint32_t)first;
    }
    uint32_t unique_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (inverse[i] == i) {
            unique[unique_count] = rows[i];
            inverse[i] = lists->first_row + unique_count++;
        } else {
            inverse[i] = inverse[inverse[i]];
        }
    }
    return unique_count;
}

static uint64_t count_table_rows(const struct eb_bag_job *job, uint64_t count)
{
    uint64_t table_rows = count;
    for (uint64_t i = 0; job->has_zero_rows && i < count; i++) {
        table_rows -= job->rows[i] == EB_ROW_ZERO;
    }
    return table_rows;
}

void eb_bag_sequence_take(const struct eb_bag_sequence *sequence,
    const struct eb_bag_extent *extent, const struct eb_bag_sequence_extent *sizes,
    struct eb_bag_job *job, struct eb_bag_sequence_lists *lists)
{
    uint8_t *scratch = job->scratch;
    uint8_t *own = scratch + sizes->scratch_offset;
    uint32_t bag_count = (uint32_t)sizes->bag_count;
    struct room room = {
        .rows = (int64_t *)(void *)(sequence->pad ? own : scratch),
        .weight_bytes = eb_bag_weights_bytes(job->table->type),
    };
    if (job->weights) {
        room.weights = sequence->pad ? own + sizes->rows_max * sizeof(int64_t)
                                     : scratch + extent->weights_offset;
    }
    lists->kept_count = list_lengths(sequence, job, bag_count, lists->lengths);
    uint64_t row_count = lists->kept_count;
    if (sequence->pad || lists->kept_count < job->starts[bag_count]) {
        row_count = place_rows(sequence, job, bag_count, &room);
        job->rows = room.rows;
        job->weights = room.weights;
    }
    if (sequence->unique && row_count > 0) {
        row_count = make_unique(job->rows, row_count, (uint64_t *)(void *)own, lists, room.rows);
        job->rows = room.rows;
    }
    job->starts = NULL;
    job->bag_count = (uint32_t)row_count;
    job->reduction = EB_REDUCTION_NONE;
    job->default_row = -1;
    job->has_zero_rows |= row_count > lists->kept_count;
    job->gather_bytes = count_table_rows(job, row_count) * extent->gather_row_bytes;
}
