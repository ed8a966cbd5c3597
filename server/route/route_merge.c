#include "server/route/route_merge.h"

#include "kernels/bag_schedule.h"
#include "kernels/bag_stream.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* How the error of a result begins; takes the number of its part. */
#define MISFIT "the answer of part %" PRIu32 " does not fit its request: "
#define SHAPE_SHOWN_MAX 8 /* most dimensions of a wrong shape that an error names */
#define SHAPE_TEXT_BYTES (SHAPE_SHOWN_MAX * sizeof "18446744073709551615, " + sizeof "[...]")

/* ---- begin: the scratch table, and what is computed here ---- */

static uint64_t find_row_bytes(const struct eb_route_merge *merge, enum eb_type type)
{
    return merge->split->query->job->table->row_elements * eb_type_bytes(type);
}

/* Returns a job that computes rows of the default vector, and zeros. Its rows and its result must
 * still be set. */
static struct eb_bag_job begin_vector_job(const struct eb_bag_job *job, enum eb_type output_type)
{
    return (struct eb_bag_job){
        .table = job->table,
        .lines = eb_bag_lines_find(job->table, 0, job->table->row_elements),
        .reduction = EB_REDUCTION_NONE,
        .output_type = output_type,
        .has_zero_rows = true,
        .has_vector_rows = job->table->vector,
        .default_row = -1,
    };
}

/* Returns the weights of a sub-query that is computed here, as a job has them.
 * Returns NULL if the arena is full. */
static void *take_vector_weights(
    const struct eb_bag_job *job, const struct eb_route_sub *sub, struct eb_arena *arena)
{
    size_t bytes = sub->weights_type == EB_F32 ? sizeof(float) : sizeof(uint64_t);
    uint8_t *weights = eb_arena_take(arena, sub->index_count * bytes);
    for (uint32_t i = 0; weights && i < sub->index_count; i++) {
        memcpy(
            weights + i * bytes, (const uint8_t *)job->weights + sub->positions[i] * bytes, bytes);
    }
    return weights;
}

/* Computes the result of a sub-query whose rows need no part: each is the default vector or a zero.
 */
static bool pool_vectors(const struct eb_route_merge *merge, const struct eb_route_sub *sub,
    const struct eb_bag_ops *ops, struct eb_arena *arena)
{
    const struct eb_bag_job *job = merge->split->query->job;
    struct eb_bag_job vectors = begin_vector_job(job, sub->output_type);
    vectors.reduction = sub->reduction;
    vectors.rows = sub->indices;
    vectors.bag_count = sub->bag_count;
    vectors.out = merge->rows + sub->result_row * merge->row_bytes;
    vectors.out_stride_bytes = merge->row_bytes;
    vectors.default_row = job->default_row == EB_ROW_VECTOR ? EB_ROW_VECTOR : -1;
    if (job->weights) {
        vectors.weights = take_vector_weights(job, sub, arena);
        if (!vectors.weights) {
            return false;
        }
    }
    if (sub->lengths) {
        uint32_t *starts = eb_arena_take(arena, (sub->bag_count + 1) * sizeof *starts);
        if (!starts) {
            return false;
        }
        starts[0] = 0;
        for (uint32_t bag = 0; bag < sub->bag_count; bag++) {
            starts[bag + 1] = starts[bag] + (uint32_t)sub->lengths[bag];
        }
        vectors.starts = starts;
    }
    eb_bag_pool(ops, &vectors, 0, vectors.bag_count);
    return true;
}

/* Computes the default row from the default vector. */
static void pool_default(struct eb_route_merge *merge, const struct eb_bag_ops *ops)
{
    static const eb_bag_row row = EB_ROW_VECTOR;
    const struct eb_bag_job *job = merge->split->query->job;
    struct eb_bag_job vector = begin_vector_job(job, job->output_type);
    vector.rows = &row;
    vector.bag_count = 1;
    vector.out = merge->default_row;
    vector.out_stride_bytes = merge->default_row_bytes;
    eb_bag_pool(ops, &vector, 0, 1);
}

static bool has_default_sub(const struct eb_route_split *split)
{
    return split->sub_count > 0 && split->subs[split->sub_count - 1].is_default;
}

bool eb_route_merge_prepare(const struct eb_route_split *split, const struct eb_bag_ops *ops,
    struct eb_arena *arena, struct eb_route_merge *merge)
{
    const struct eb_bag_job *job = split->query->job;
    uint32_t row_count = eb_route_row_count(job);
    bool is_vector = job->default_row == EB_ROW_VECTOR;
    *merge = (struct eb_route_merge){.split = split, .ops = ops};
    merge->row_bytes = find_row_bytes(merge, split->result_type);
    merge->default_row_bytes = find_row_bytes(merge, job->output_type);
    merge->missing_count = split->query->rule.by_key ? 0 : job->missing_count;
    merge->taken_missing = eb_arena_take(arena, split->sub_count * sizeof *merge->taken_missing);
    merge->lacks_default = eb_arena_take(arena, split->sub_count * sizeof *merge->lacks_default);
    if (!merge->taken_missing || !merge->lacks_default) {
        return false;
    }
    memset(merge->taken_missing, 0, split->sub_count * sizeof *merge->taken_missing);
    memset(merge->lacks_default, 0, split->sub_count * sizeof *merge->lacks_default);
    if (split->query->rule.by_key) {
        merge->is_missing = eb_arena_take(arena, row_count * sizeof *merge->is_missing);
        if (!merge->is_missing) {
            return false;
        }
        memset(merge->is_missing, 0, row_count * sizeof *merge->is_missing);
    }
    if (is_vector || has_default_sub(split)) {
        merge->default_row = eb_arena_take(arena, merge->default_row_bytes);
        if (!merge->default_row) {
            return false;
        }
    }
    if (is_vector && !has_default_sub(split)) {
        pool_default(merge, ops);
    }
    return true;
}

uint64_t eb_route_merge_rows_bytes(const struct eb_route_merge *merge)
{
    return merge->split->result_row_count * merge->row_bytes;
}

bool eb_route_merge_set_rows(struct eb_route_merge *merge, const struct eb_bag_ops *ops,
    struct eb_arena *arena, uint8_t *rows)
{
    const struct eb_route_sub *vectors = &merge->split->vectors;
    merge->rows = rows;
    return vectors->index_count == 0 || pool_vectors(merge, vectors, ops, arena);
}

bool eb_route_merge_begin(const struct eb_route_split *split, const struct eb_bag_ops *ops,
    struct eb_arena *arena, struct eb_route_merge *merge)
{
    if (!eb_route_merge_prepare(split, ops, arena, merge)) {
        return false;
    }
    uint8_t *rows = eb_arena_take(arena, eb_route_merge_rows_bytes(merge));
    return rows && eb_route_merge_set_rows(merge, ops, arena, rows);
}

/* ---- results ---- */

static bool refuse_result(
    const struct eb_route_sub *sub, struct eb_error *error, const char *what, uint64_t number)
{
    eb_error_set(error, EB_STATUS_INTERNAL, MISFIT "%s (%" PRIu64 ")", sub->part, what, number);
    return false;
}

/* Returns whether `shape` is [rows, trailing dims] with `elements` values in a row. */
static bool is_result_shape(const struct eb_wire_result *result, uint64_t rows, uint64_t elements)
{
    uint64_t product = 1;
    for (uint32_t i = 1; i < result->shape_count; i++) {
        if (__builtin_mul_overflow(product, result->shape[i], &product)) {
            return false;
        }
    }
    return result->shape_count > 0 && result->shape[0] == rows && product == elements;
}

/* Notes which keys of a sub-query are missing, from their positions in it. */
static bool take_missing(struct eb_route_merge *merge, const struct eb_route_sub *sub,
    const struct eb_wire_result *result, struct eb_error *error)
{
    uint64_t count = result->missing_positions_bytes / sizeof(uint32_t);
    uint32_t next = 0;
    for (uint32_t i = 0; i < sub->index_count; i++) {
        merge->is_missing[sub->positions[i]] = false;
    }
    if (result->missing_positions_bytes % sizeof(uint32_t) != 0 || count != result->missing) {
        return refuse_result(
            sub, error, "its number of missing positions differs from `missing`", count);
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t position;
        memcpy(&position, result->missing_positions + i * sizeof position, sizeof position);
        if (position < next || position >= sub->index_count) {
            return refuse_result(
                sub, error, "a missing position is out of order or out of range", position);
        }
        next = position + 1;
        merge->is_missing[sub->positions[position]] = true;
    }
    return true;
}

/* Refuses a result that is an error. */
static bool refuse_error(
    const struct eb_route_sub *sub, const struct eb_wire_result *result, struct eb_error *error)
{
    const char *text = result->error_message ? result->error_message : "";
    eb_error_set(error, EB_STATUS_INTERNAL, MISFIT "a result is the error %s%s%s", sub->part,
        eb_status_name((int)eb_status_of_number(result->error_code)), text[0] != '\0' ? ": " : "",
        text);
    return false;
}

static bool refuse_type(
    const struct eb_route_sub *sub, const struct eb_wire_result *result, struct eb_error *error)
{
    const char *expected = eb_type_name(sub->output_type);
    if (!eb_type_is_valid(result->type)) {
        eb_error_set(error, EB_STATUS_INTERNAL,
            MISFIT "its type is number %" PRId32 ", expected %s", sub->part, result->type,
            expected);
        return false;
    }
    eb_error_set(error, EB_STATUS_INTERNAL, MISFIT "its type is %s, expected %s", sub->part,
        eb_type_name((enum eb_type)result->type), expected);
    return false;
}

/* Writes dimensions, such as "[2, 3]", of which the last may be left out. */
static void format_shape(const struct eb_wire_result *result, char *text, size_t text_bytes)
{
    uint32_t count = result->shape_count < SHAPE_SHOWN_MAX ? result->shape_count : SHAPE_SHOWN_MAX;
    size_t at = (size_t)snprintf(text, text_bytes, "[");
    for (uint32_t i = 0; i < count; i++) {
        at += (size_t)snprintf(
            text + at, text_bytes - at, "%s%" PRIu64, i > 0 ? ", " : "", result->shape[i]);
    }
    (void)snprintf(text + at, text_bytes - at, "%s]", count < result->shape_count ? ", ..." : "");
}

static bool refuse_shape(const struct eb_route_sub *sub, const struct eb_wire_result *result,
    uint32_t elements, struct eb_error *error)
{
    char shape[SHAPE_TEXT_BYTES];
    format_shape(result, shape, sizeof shape);
    eb_error_set(error, EB_STATUS_INTERNAL,
        MISFIT "its shape is %s, expected %" PRIu32 " rows of %" PRIu32 " values", sub->part, shape,
        sub->bag_count, elements);
    return false;
}

static bool check_result(const struct eb_route_merge *merge, const struct eb_route_sub *sub,
    const struct eb_wire_result *result, struct eb_error *error)
{
    uint32_t elements = merge->split->query->job->table->row_elements;
    uint64_t row_bytes = sub->is_default ? merge->default_row_bytes : merge->row_bytes;
    if (result->error_code != 0) {
        return refuse_error(sub, result, error);
    }
    if (result->type != (int32_t)sub->output_type) {
        return refuse_type(sub, result, error);
    }
    if (!is_result_shape(result, sub->bag_count, elements)) {
        return refuse_shape(sub, result, elements, error);
    }
    if (result->values_bytes != sub->bag_count * row_bytes) {
        return refuse_result(sub, error, "its values have a wrong size", result->values_bytes);
    }
    uint64_t missing_max = sub->missing == EB_MISSING_ERROR ? 0 : sub->index_count;
    return result->missing <= missing_max ||
           refuse_result(sub, error, "too many of its indices are missing", result->missing);
}

/* Returns whether a result says that a whole table does not have the key that fills empty bags. */
static bool is_default_error(const struct eb_route_merge *merge, const struct eb_route_sub *sub,
    const struct eb_wire_result *result)
{
    return sub->is_whole && sub->has_default && merge->split->query->rule.by_key &&
           result->error_code == EB_STATUS_OUT_OF_RANGE;
}

/* Notes whether the result of a sub-query says that the key that fills empty bags is missing. */
static void note_default(struct eb_route_merge *merge, uint32_t number, bool is_missing)
{
    merge->lacks_default[number] = is_missing;
    merge->is_default_missing = false;
    for (uint32_t i = 0; i < merge->split->sub_count; i++) {
        merge->is_default_missing |= merge->lacks_default[i];
    }
}

bool eb_route_merge_take(struct eb_route_merge *merge, uint32_t number,
    const struct eb_wire_result *result, struct eb_error *error)
{
    const struct eb_route_sub *sub = &merge->split->subs[number];
    if (is_default_error(merge, sub, result)) {
        memset(
            merge->rows + sub->result_row * merge->row_bytes, 0, sub->bag_count * merge->row_bytes);
        note_default(merge, number, true);
        return true;
    }
    if (!check_result(merge, sub, result, error) ||
        (sub->reports_missing && !take_missing(merge, sub, result, error))) {
        return false;
    }
    uint8_t *to =
        sub->is_default ? merge->default_row : merge->rows + sub->result_row * merge->row_bytes;
    if (sub->is_whole || sub->is_default) {
        note_default(merge, number, sub->is_default && result->missing > 0);
    }
    if (result->values_bytes > 0) {
        memcpy(to, result->values, result->values_bytes);
    }
    if (!sub->is_default && merge->split->query->rule.by_key) {
        merge->missing_count += result->missing - merge->taken_missing[number];
        merge->taken_missing[number] = result->missing;
    }
    return true;
}

/* Forgets which keys a result said are missing: its part may have been asked again since. */
static void forget_result(struct eb_route_merge *merge, uint32_t number)
{
    const struct eb_route_sub *sub = &merge->split->subs[number];
    note_default(merge, number, false);
    merge->missing_count -= merge->taken_missing[number];
    merge->taken_missing[number] = 0;
    for (uint32_t i = 0; merge->is_missing && !sub->is_default && i < sub->index_count; i++) {
        merge->is_missing[sub->positions[i]] = false;
    }
}

/* Returns whether a row of a sub-query is in no part: the default vector or a zero, which only
 * sub-queries on whole tables have among their rows. */
static bool is_row_here(const struct eb_route_merge *merge, int64_t row)
{
    return !merge->split->query->rule.by_key && row < 0;
}

bool eb_route_merge_is_stand_in(const struct eb_route_merge *merge, int64_t row)
{
    const struct eb_route_query *query = merge->split->query;
    return !query->rule.by_key && query->missing == EB_MISSING_UNKNOWN_ROW && row >= 0 &&
           row == query->job->table->unknown_row;
}

/* Notes which rows of a sub-query were not reached. */
static bool flag_unreached(
    struct eb_route_merge *merge, const struct eb_route_sub *sub, struct eb_arena *arena)
{
    const struct eb_bag_job *job = merge->split->query->job;
    uint32_t row_count = eb_route_row_count(job);
    if (!merge->is_unreached) {
        merge->is_unreached = eb_arena_take(arena, row_count * sizeof *merge->is_unreached);
        if (!merge->is_unreached) {
            return false;
        }
        memset(merge->is_unreached, 0, row_count * sizeof *merge->is_unreached);
    }
    for (uint32_t i = 0; i < sub->index_count; i++) {
        int64_t row = job->rows[sub->positions[i]];
        bool is_unreached = !is_row_here(merge, row);
        merge->is_unreached[sub->positions[i]] = is_unreached;
        merge->unreached_count += is_unreached;
        merge->stand_in_count += eb_route_merge_is_stand_in(merge, row);
    }
    return true;
}

/* Returns whether a sub-query on a whole table names a row that fills empty bags. */
static bool has_default_row(const struct eb_route_merge *merge, const struct eb_route_sub *sub)
{
    return sub->has_default && (merge->split->query->rule.by_key || sub->default_index >= 0);
}

/* Lists the rows of a sub-query on a whole table that are in no part. If it asks for rows one by
 * one, the others become zeros. Notes whether a bag needs a default row that was left out. */
static bool take_rest(struct eb_route_merge *merge, const struct eb_route_sub *sub,
    struct eb_arena *arena, struct eb_route_sub *rest)
{
    *rest = *sub;
    rest->index_count = 0;
    rest->indices = eb_arena_take(arena, sub->index_count * sizeof *rest->indices);
    rest->positions = eb_arena_take(arena, sub->index_count * sizeof *rest->positions);
    rest->lengths = eb_arena_take(arena, sub->bag_count * sizeof *rest->lengths);
    if (!rest->indices || !rest->positions || !rest->lengths) {
        return false;
    }
    uint32_t i = 0;
    for (uint32_t bag = 0; bag < sub->bag_count; bag++) {
        uint32_t end = i + (sub->lengths ? (uint32_t)sub->lengths[bag] : 1);
        rest->lengths[bag] = 0;
        for (; i < end; i++) {
            bool is_here = is_row_here(merge, sub->indices[i]);
            if (is_here || !sub->lengths) {
                rest->indices[rest->index_count] = is_here ? sub->indices[i] : EB_ROW_ZERO;
                rest->positions[rest->index_count++] = sub->positions[i];
                rest->lengths[bag]++;
            }
        }
        merge->is_default_left_out |= rest->lengths[bag] == 0 && has_default_row(merge, sub);
    }
    rest->lengths = sub->lengths ? rest->lengths : NULL;
    return true;
}

/* Computes the result of a sub-query on a whole table from the rows that are in no part. */
static bool pool_rest(
    struct eb_route_merge *merge, const struct eb_route_sub *sub, struct eb_arena *arena)
{
    struct eb_route_sub rest;
    assert(merge->rows);
    return take_rest(merge, sub, arena, &rest) && pool_vectors(merge, &rest, merge->ops, arena);
}

bool eb_route_merge_leave_out(struct eb_route_merge *merge, uint32_t number, struct eb_arena *arena)
{
    const struct eb_route_sub *sub = &merge->split->subs[number];
    forget_result(merge, number);
    if (sub->is_default) {
        memset(merge->default_row, 0, merge->default_row_bytes);
        merge->is_default_left_out = true;
        return true;
    }
    if (!flag_unreached(merge, sub, arena)) {
        return false;
    }
    if (sub->is_whole) {
        return pool_rest(merge, sub, arena);
    }
    if (merge->rows) {
        memset(
            merge->rows + sub->result_row * merge->row_bytes, 0, sub->bag_count * merge->row_bytes);
    }
    return true;
}

/* ---- the merged job ---- */

/* Returns whether the job's row at a position takes part in sums: it is neither skipped nor left
 * out nor replaced by a zero. */
static bool is_row_there(const struct eb_route_merge *merge, uint32_t position)
{
    const struct eb_route_query *query = merge->split->query;
    if (merge->is_unreached && merge->is_unreached[position]) {
        return false;
    }
    if (query->rule.by_key) {
        return !merge->is_missing[position] || query->missing == EB_MISSING_UNKNOWN_ROW;
    }
    return query->job->rows[position] != EB_ROW_ZERO;
}

/* Returns whether the job's row at a position counts as a zero. */
static bool is_row_zero(const struct eb_route_merge *merge, uint32_t position)
{
    const struct eb_route_query *query = merge->split->query;
    return query->rule.by_key ? merge->is_missing[position] && query->missing == EB_MISSING_ZERO
                              : query->job->rows[position] == EB_ROW_ZERO;
}

/* Returns whether some row of the job may be skipped, left out or count as a zero. */
static bool may_lack_rows(const struct eb_route_merge *merge)
{
    const struct eb_route_query *query = merge->split->query;
    return merge->is_unreached ||
           (query->rule.by_key ? merge->missing_count > 0 : query->job->has_zero_rows);
}

/* Adds the rows of a sub-query's result to their bags: counts them in next[bag], and writes their
 * numbers to rows[next[bag]] if `rows` is not NULL. Leaves out the rows of bags that turned out to
 * have no rows in the part. */
static void add_result_rows(const struct eb_route_merge *merge, const struct eb_route_sub *sub,
    uint32_t *next, int64_t *rows)
{
    bool has_all = !may_lack_rows(merge);
    uint32_t i = 0;
    for (uint32_t bag = 0; bag < sub->bag_count; bag++) {
        uint32_t end = i + (uint32_t)sub->lengths[bag];
        bool is_any = has_all;
        for (; !has_all && i < end; i++) {
            is_any = is_any || is_row_there(merge, sub->positions[i]);
        }
        if (is_any) {
            uint32_t at = next[sub->bags[bag]]++;
            if (rows) {
                rows[at] = sub->result_row + bag;
            }
        }
    }
}

/* Adds a zero to each bag that has rows which count as zeros. */
static void add_zero_rows(const struct eb_route_merge *merge, uint32_t *next, int64_t *rows)
{
    const struct eb_bag_job *job = merge->split->query->job;
    for (uint32_t bag = 0; bag < job->bag_count; bag++) {
        bool is_any = false;
        for (uint32_t i = job->starts[bag]; i < job->starts[bag + 1]; i++) {
            is_any = is_any || is_row_zero(merge, i);
        }
        if (is_any) {
            uint32_t at = next[bag]++;
            if (rows) {
                rows[at] = EB_ROW_ZERO;
            }
        }
    }
}

static void add_merged_rows(const struct eb_route_merge *merge, uint32_t *next, int64_t *rows)
{
    const struct eb_route_split *split = merge->split;
    for (uint32_t i = 0; i < split->sub_count; i++) {
        if (!split->subs[i].is_default) {
            add_result_rows(merge, &split->subs[i], next, rows);
        }
    }
    if (split->vectors.index_count > 0) {
        add_result_rows(merge, &split->vectors, next, rows);
    }
    if (may_lack_rows(merge)) {
        add_zero_rows(merge, next, rows);
    }
}

/* Lists the rows of each bag: those of the parts in their order, those of the vectors, a zero. */
static bool list_merged(
    const struct eb_route_merge *merge, struct eb_arena *arena, struct eb_bag_job *job)
{
    size_t bags = job->bag_count;
    uint32_t *starts = eb_arena_take(arena, (bags + 1) * sizeof *starts);
    uint32_t *next = eb_arena_take(arena, (bags + 1) * sizeof *next);
    int64_t *rows = eb_arena_take(arena, (merge->split->result_row_count + bags) * sizeof *rows);
    if (!starts || !next || !rows) {
        return false;
    }
    memset(next, 0, bags * sizeof *next);
    add_merged_rows(merge, next, NULL);
    starts[0] = 0;
    for (size_t bag = 0; bag < bags; bag++) {
        starts[bag + 1] = starts[bag] + next[bag];
        next[bag] = starts[bag];
    }
    add_merged_rows(merge, next, rows);
    job->rows = rows;
    job->starts = starts;
    return true;
}

/* Notes the row of a sub-query's result for each position. */
static void place_rows(const struct eb_route_sub *sub, int64_t *rows)
{
    for (uint32_t i = 0; i < sub->index_count; i++) {
        rows[sub->positions[i]] = sub->result_row + i;
    }
}

/* Removes the rows of missing keys from bags, if they are skipped. */
static void skip_missing(const struct eb_route_merge *merge, uint32_t *starts, int64_t *rows)
{
    const struct eb_bag_job *job = merge->split->query->job;
    uint32_t taken = 0;
    for (uint32_t bag = 0; bag < job->bag_count; bag++) {
        starts[bag] = taken;
        for (uint32_t i = job->starts[bag]; i < job->starts[bag + 1]; i++) {
            rows[taken] = rows[i];
            taken += is_row_there(merge, i) || is_row_zero(merge, i);
        }
    }
    starts[job->bag_count] = taken;
}

/* Lists the rows as the query has them, if they were asked for one by one. */
static bool list_by_row(
    const struct eb_route_merge *merge, struct eb_arena *arena, struct eb_bag_job *job)
{
    const struct eb_route_split *split = merge->split;
    uint32_t count = eb_route_row_count(split->query->job);
    int64_t *rows = eb_arena_take(arena, count * sizeof *rows);
    if (!rows) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = EB_ROW_ZERO;
    }
    for (uint32_t i = 0; i < split->sub_count; i++) {
        if (!split->subs[i].is_default) {
            place_rows(&split->subs[i], rows);
        }
    }
    place_rows(&split->vectors, rows);
    job->rows = rows;
    if (split->query->job->starts) {
        uint32_t *starts = eb_arena_take(arena, (job->bag_count + 1) * sizeof *starts);
        if (!starts) {
            return false;
        }
        skip_missing(merge, starts, rows);
        job->starts = starts;
    }
    return true;
}

/* Lists the rows of a result that needs no more than to be copied. The part does not tell a row
 * that pads a bag from a missing one, so the former are zeros here. */
static bool list_whole(
    const struct eb_route_query *query, struct eb_arena *arena, struct eb_bag_job *job)
{
    const struct eb_bag_job *from = query->job;
    bool may_pad = !query->rule.by_key && !from->starts && from->has_zero_rows;
    int64_t *rows = eb_arena_take(arena, job->bag_count * sizeof *rows);
    for (uint32_t i = 0; rows && i < job->bag_count; i++) {
        rows[i] = may_pad && from->rows[i] == EB_ROW_ZERO ? EB_ROW_ZERO : (int64_t)i;
    }
    job->rows = rows;
    job->reduction = EB_REDUCTION_NONE;
    job->has_zero_rows = may_pad;
    return rows;
}

/* Returns the divisor of a bag in the type of f32 sums, taken over the whole bag in index order. */
static float find_divisor_f32(const struct eb_route_merge *merge, uint32_t bag)
{
    const struct eb_bag_job *job = merge->split->query->job;
    const float *weights = job->weights;
    float sum = 0;
    float squares = 0;
    for (uint32_t i = job->starts[bag]; i < job->starts[bag + 1]; i++) {
        if (is_row_there(merge, i) || is_row_zero(merge, i)) {
            float weight = weights ? weights[i] : 1;
            sum = sum + weight;
            squares = fmaf(weight, weight, squares);
        }
    }
    return job->reduction == EB_REDUCTION_SQRTN ? sqrtf(squares) : sum;
}

/* Does the same for f64 sums. */
static double find_divisor_f64(const struct eb_route_merge *merge, uint32_t bag)
{
    const struct eb_bag_job *job = merge->split->query->job;
    const double *weights = job->weights;
    double sum = 0;
    double squares = 0;
    for (uint32_t i = job->starts[bag]; i < job->starts[bag + 1]; i++) {
        if (is_row_there(merge, i) || is_row_zero(merge, i)) {
            double weight = weights ? weights[i] : 1;
            sum = sum + weight;
            squares = fma(weight, weight, squares);
        }
    }
    return job->reduction == EB_REDUCTION_SQRTN ? sqrt(squares) : sum;
}

/* Sets the divisors of a mean, or of SQRTN. */
static bool set_divisors(
    const struct eb_route_merge *merge, struct eb_arena *arena, struct eb_bag_job *job)
{
    bool is_double = job->table->type == EB_F64;
    void *divisors =
        eb_arena_take(arena, job->bag_count * (is_double ? sizeof(double) : sizeof(float)));
    for (uint32_t bag = 0; divisors && bag < job->bag_count; bag++) {
        if (is_double) {
            ((double *)divisors)[bag] = find_divisor_f64(merge, bag);
        } else {
            ((float *)divisors)[bag] = find_divisor_f32(merge, bag);
        }
    }
    job->divisors = divisors;
    return divisors;
}

static bool has_divisor(enum eb_reduction reduction)
{
    return reduction == EB_REDUCTION_MEAN || reduction == EB_REDUCTION_WEIGHTED_MEAN ||
           reduction == EB_REDUCTION_SQRTN;
}

bool eb_route_merge_end(
    struct eb_route_merge *merge, struct eb_arena *arena, struct eb_bag_job *job)
{
    const struct eb_route_split *split = merge->split;
    const struct eb_bag_job *from = split->query->job;
    merge->table = (struct eb_table){
        .rows = merge->rows,
        .row_count = split->result_row_count,
        .row_stride_bytes = merge->row_bytes,
        .row_elements = from->table->row_elements,
        .storage = (enum eb_storage)split->result_type,
        .type = split->result_type,
        .unknown_row = -1,
    };
    *job = (struct eb_bag_job){
        .table = &merge->table,
        .lines = eb_bag_lines_find(&merge->table, 0, merge->table.row_elements),
        .bag_count = from->bag_count,
        .reduction = from->reduction,
        .output_type = from->output_type,
        .has_zero_rows = from->has_zero_rows || merge->missing_count > 0,
        .default_row = -1,
        .missing_count = merge->missing_count,
        .gather_bytes = split->result_row_count * merge->row_bytes,
        .out = from->out,
        .out_stride_bytes = from->out_stride_bytes,
    };
    if (split->is_whole) {
        return list_whole(split->query, arena, job);
    }
    if (split->by_row ? !list_by_row(merge, arena, job) : !list_merged(merge, arena, job)) {
        return false;
    }
    return split->by_row || !has_divisor(from->reduction) || set_divisors(merge, arena, job);
}

void eb_route_merge_fill(const struct eb_route_merge *merge, const struct eb_bag_job *job)
{
    for (uint32_t bag = 0; merge->default_row && job->starts && bag < job->bag_count; bag++) {
        if (job->starts[bag] == job->starts[bag + 1]) {
            memcpy(job->out + bag * job->out_stride_bytes, merge->default_row,
                merge->default_row_bytes);
        }
    }
}

bool eb_route_merge_lacks_default(const struct eb_route_merge *merge, const struct eb_bag_job *job)
{
    bool is_any = merge->is_default_left_out && merge->split->is_whole;
    bool may_be = merge->is_default_left_out && job->starts;
    for (uint32_t bag = 0; may_be && bag < job->bag_count && !is_any; bag++) {
        is_any = job->starts[bag] == job->starts[bag + 1];
    }
    return is_any;
}
