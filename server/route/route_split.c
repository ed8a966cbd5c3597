#include "server/route/route_split.h"

#include "kernels/types.h"

#include <assert.h>
#include <string.h>

/* In place of a part's number: the row is a zero, which is in no sub-query. */
#define PART_NONE UINT16_MAX

static_assert(EB_PARTS_MAX < PART_NONE, "part numbers, and that of the vectors, fit");

/* The rows of a job as they are dealt to parts. Part number rule.parts is that of the vectors. */
struct dealing {
    const struct eb_bag_job *job;
    struct eb_part_rule rule;
    bool may_be_vectors; /* row numbers below 0 are EB_ROW_ZERO or EB_ROW_VECTOR */
    uint16_t *parts;     /* [rows] part of each row */
    /* [rule.parts + 1] for each part: */
    uint32_t *index_counts;
    uint32_t *bag_counts;
    uint32_t *last_bags;        /* 1 + the last bag that has a row in the part; 0: none */
    struct eb_route_sub **subs; /* set once the rows are counted, for parts that have any */
};

static uint16_t find_dealt_part(const struct dealing *dealing, int64_t row)
{
    if (dealing->may_be_vectors && row < 0) {
        return row == EB_ROW_VECTOR ? (uint16_t)dealing->rule.parts : PART_NONE;
    }
    return (uint16_t)eb_part_of(&dealing->rule, row);
}

static uint32_t find_bag_end(const struct eb_bag_job *job, uint32_t bag)
{
    return job->starts ? job->starts[bag + 1] : bag + 1;
}

/* Counts the rows of each part, and the bags that have rows there. */
static void count_dealt(struct dealing *dealing)
{
    const struct eb_bag_job *job = dealing->job;
    uint32_t i = 0;
    for (uint32_t bag = 0; bag < job->bag_count; bag++) {
        uint32_t end = find_bag_end(job, bag);
        for (; i < end; i++) {
            uint16_t part = find_dealt_part(dealing, job->rows[i]);
            dealing->parts[i] = part;
            if (part != PART_NONE) {
                dealing->index_counts[part]++;
                dealing->bag_counts[part] += dealing->last_bags[part] != bag + 1;
                dealing->last_bags[part] = bag + 1;
            }
        }
    }
}

/* Takes memory for the counts of `parts` parts, unless there is enough. */
static bool take_counts(
    struct eb_route_split_counts *counts, uint32_t parts, struct eb_arena *arena)
{
    size_t number = (size_t)parts + 1;
    if (counts->parts < parts) {
        uint8_t *piece =
            eb_arena_take(arena, number * (sizeof *counts->subs + 3 * sizeof *counts->numbers));
        if (!piece) {
            return false;
        }
        counts->parts = parts;
        counts->subs = (struct eb_route_sub **)(void *)piece;
        counts->numbers = (uint32_t *)(void *)(piece + number * sizeof *counts->subs);
    }
    memset(counts->numbers, 0, 3 * number * sizeof *counts->numbers);
    return true;
}

static bool take_dealing(
    const struct eb_route_query *query, struct eb_arena *arena, struct dealing *dealing)
{
    size_t parts = query->rule.parts + 1;
    uint32_t rows = eb_route_row_count(query->job);
    struct eb_route_split_counts own = {0};
    struct eb_route_split_counts *counts = query->counts ? query->counts : &own;
    if (!take_counts(counts, query->rule.parts, arena)) {
        return false;
    }
    *dealing = (struct dealing){
        .job = query->job,
        .rule = query->rule,
        .may_be_vectors = !query->rule.by_key,
        .parts = eb_arena_take(arena, (rows + 1) * sizeof *dealing->parts),
        .index_counts = counts->numbers,
        .bag_counts = counts->numbers + parts,
        .last_bags = counts->numbers + 2 * parts,
        .subs = counts->subs,
    };
    return dealing->parts;
}

/* ---- the sub-queries ---- */

enum eb_type eb_route_sum_type(enum eb_type type)
{
    return eb_type_is_float(type) && type != EB_F64 ? EB_F32 : type;
}

bool eb_route_is_by_row(const struct eb_bag_job *job)
{
    bool is_integer_mean =
        job->reduction == EB_REDUCTION_MEAN && !eb_type_is_float(job->table->type);
    return job->reduction == EB_REDUCTION_NONE || is_integer_mean;
}

static enum eb_reduction choose_reduction(const struct eb_route_split *split)
{
    enum eb_reduction reduction = split->query->job->reduction;
    if (split->by_row) {
        return EB_REDUCTION_NONE;
    }
    return reduction == EB_REDUCTION_MAX || reduction == EB_REDUCTION_MIN ? reduction
                                                                          : EB_REDUCTION_SUM;
}

/* Returns the policy of a sub-query. The rows of a dense table are there. */
static enum eb_missing choose_missing(const struct eb_route_query *query)
{
    if (!query->rule.by_key) {
        return EB_MISSING_ERROR;
    }
    return query->missing == EB_MISSING_UNKNOWN_ROW ? EB_MISSING_UNKNOWN_ROW : EB_MISSING_SKIP;
}

/* Takes memory for the arrays of a sub-query whose counts are set: one piece, with the elements of
 * 8 bytes before those of 4. */
static bool take_sub_arrays(
    const struct eb_route_split *split, struct eb_arena *arena, struct eb_route_sub *sub)
{
    size_t count = sub->index_count;
    size_t bag_count = split->by_row ? 0 : sub->bag_count;
    size_t weight_bytes = split->query->job->weights ? eb_type_bytes(sub->weights_type) : 0;
    uint8_t *piece = eb_arena_take(
        arena, count * (sizeof *sub->indices + sizeof *sub->positions + weight_bytes) +
                   bag_count * (sizeof *sub->lengths + sizeof *sub->bags));
    if (!piece) {
        return false;
    }
    sub->indices = (int64_t *)(void *)piece;
    piece += count * sizeof *sub->indices;
    if (weight_bytes == sizeof(uint64_t)) {
        sub->weights = piece;
        piece += count * weight_bytes;
    }
    sub->positions = (uint32_t *)(void *)piece;
    piece += count * sizeof *sub->positions;
    if (!split->by_row) {
        sub->lengths = (int32_t *)(void *)piece;
        sub->bags = (uint32_t *)(void *)(piece + bag_count * sizeof *sub->lengths);
        piece += bag_count * (sizeof *sub->lengths + sizeof *sub->bags);
    }
    if (weight_bytes > 0 && weight_bytes < sizeof(uint64_t)) {
        sub->weights = piece;
    }
    return true;
}

/* Begins the sub-query of a part that has rows. Its counts begin at 0 and grow as rows are dealt.
 */
static bool begin_sub(struct eb_route_split *split, const struct dealing *dealing, uint32_t part,
    struct eb_arena *arena, struct eb_route_sub *sub)
{
    const struct eb_route_query *query = split->query;
    *sub = (struct eb_route_sub){
        .part = part,
        .reduction = choose_reduction(split),
        .missing = choose_missing(query),
        .output_type = split->result_type,
        .weights_type = eb_route_sum_type(query->job->table->type),
        .index_count = dealing->index_counts[part],
        .bag_count = split->by_row ? dealing->index_counts[part] : dealing->bag_counts[part],
        .result_row = split->result_row_count,
    };
    sub->reports_missing =
        query->rule.by_key && (query->missing != EB_MISSING_UNKNOWN_ROW || query->wants_missing);
    split->result_row_count += sub->bag_count;
    if (!take_sub_arrays(split, arena, sub)) {
        return false;
    }
    sub->index_count = 0;
    sub->bag_count = 0;
    return true;
}

/* Copies the weight of the job's row `i` to the next one of a sub-query. The job keeps weights of
 * integers in 64 bits; their low bytes are the weight in T. */
static void deal_weight(const struct eb_bag_job *job, uint32_t i, struct eb_route_sub *sub)
{
    bool is_narrow = sub->weights_type == EB_F32;
    size_t kept_bytes = is_narrow ? sizeof(float) : sizeof(uint64_t);
    size_t bytes = eb_type_bytes(sub->weights_type);
    memcpy((uint8_t *)sub->weights + sub->index_count * bytes,
        (const uint8_t *)job->weights + i * kept_bytes, bytes);
}

/* Adds the job's row `i`, which is in bag `bag`, to a sub-query. */
static void deal_row(
    const struct dealing *dealing, uint32_t i, uint32_t bag, struct eb_route_sub *sub)
{
    const struct eb_bag_job *job = dealing->job;
    bool is_vector = dealing->parts[i] == dealing->rule.parts;
    sub->indices[sub->index_count] =
        is_vector ? EB_ROW_VECTOR : eb_part_index(&dealing->rule, job->rows[i]);
    sub->positions[sub->index_count] = i;
    if (sub->weights) {
        deal_weight(job, i, sub);
    }
    sub->index_count++;
    if (!sub->bags) {
        sub->bag_count++;
    } else if (sub->bag_count > 0 && sub->bags[sub->bag_count - 1] == bag) {
        sub->lengths[sub->bag_count - 1]++;
    } else {
        sub->bags[sub->bag_count] = bag;
        sub->lengths[sub->bag_count++] = 1;
    }
}

/* Deals the rows to the sub-queries. */
static void deal_rows(const struct dealing *dealing)
{
    const struct eb_bag_job *job = dealing->job;
    uint32_t i = 0;
    for (uint32_t bag = 0; bag < job->bag_count; bag++) {
        uint32_t end = find_bag_end(job, bag);
        for (; i < end; i++) {
            if (dealing->parts[i] != PART_NONE) {
                deal_row(dealing, i, bag, dealing->subs[dealing->parts[i]]);
            }
        }
    }
}

/* ---- sub-queries that are too large for one message ---- */

uint64_t eb_route_sub_request_bytes(const struct eb_route_sub *sub)
{
    uint64_t weight_bytes = sub->weights ? eb_type_bytes(sub->weights_type) : 0;
    uint64_t length_bytes = sub->lengths ? sizeof *sub->lengths : 0;
    return sub->index_count * (sizeof *sub->indices + weight_bytes) + sub->bag_count * length_bytes;
}

uint64_t eb_route_sub_answer_bytes(const struct eb_route_sub *sub, uint64_t row_bytes)
{
    uint64_t position_bytes = sub->reports_missing ? sizeof(uint32_t) : 0;
    return sub->bag_count * row_bytes + sub->index_count * position_bytes;
}

/* Cuts the first bags that fit the caps, at least one, off *rest. Returns them. */
static struct eb_route_sub cut_first(
    const struct eb_route_caps *caps, uint64_t row_bytes, struct eb_route_sub *rest)
{
    struct eb_route_sub first = *rest;
    first.index_count = 0;
    first.bag_count = 0;
    while (first.bag_count < rest->bag_count) {
        struct eb_route_sub longer = first;
        longer.index_count += rest->lengths ? (uint32_t)rest->lengths[first.bag_count] : 1;
        longer.bag_count++;
        bool fits = eb_route_sub_request_bytes(&longer) <= caps->request_bytes &&
                    eb_route_sub_answer_bytes(&longer, row_bytes) <= caps->answer_bytes;
        if (!fits && first.bag_count > 0) {
            break;
        }
        first = longer;
    }
    rest->indices += first.index_count;
    rest->positions += first.index_count;
    rest->index_count -= first.index_count;
    rest->bag_count -= first.bag_count;
    rest->result_row += first.bag_count;
    if (rest->weights) {
        rest->weights =
            (uint8_t *)rest->weights + first.index_count * eb_type_bytes(rest->weights_type);
    }
    if (rest->lengths) {
        rest->lengths += first.bag_count;
        rest->bags += first.bag_count;
    }
    return first;
}

/* Cuts the sub-queries that exceed the caps. Writes all sub-queries to `out` if it is not NULL.
 * Returns their number. */
static uint32_t cut_all(
    const struct eb_route_split *split, uint64_t row_bytes, struct eb_route_sub *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < split->sub_count; i++) {
        struct eb_route_sub rest = split->subs[i];
        do {
            struct eb_route_sub first =
                rest.is_default ? rest : cut_first(split->query->caps, row_bytes, &rest);
            if (out) {
                out[count] = first;
            }
            count++;
        } while (!rest.is_default && rest.bag_count > 0);
    }
    return count;
}

/* Returns whether a sub-query exceeds the caps. */
static bool has_large_sub(const struct eb_route_split *split, uint64_t row_bytes)
{
    const struct eb_route_caps *caps = split->query->caps;
    bool is_any = false;
    for (uint32_t i = 0; caps && i < split->sub_count && !is_any; i++) {
        is_any = eb_route_sub_request_bytes(&split->subs[i]) > caps->request_bytes ||
                 eb_route_sub_answer_bytes(&split->subs[i], row_bytes) > caps->answer_bytes;
    }
    return is_any;
}

static bool cut_large_subs(struct eb_route_split *split, struct eb_arena *arena)
{
    uint64_t row_bytes = split->query->job->table->row_elements * eb_type_bytes(split->result_type);
    if (!has_large_sub(split, row_bytes)) {
        return true;
    }
    uint32_t count = cut_all(split, row_bytes, NULL);
    struct eb_route_sub *subs = eb_arena_take(arena, count * sizeof *subs);
    if (subs) {
        (void)cut_all(split, row_bytes, subs);
        split->subs = subs;
        split->sub_count = count;
    }
    return subs;
}

/* ---- the default row ---- */

/* Returns whether the default row is asked for: some bag is empty or may become so; or the table is
 * keyed, and its part must say whether it has the key. */
static bool needs_default(const struct eb_route_query *query)
{
    const struct eb_bag_job *job = query->job;
    if (!query->has_default || query->rule.by_key) {
        return query->has_default;
    }
    if (!job->starts || query->default_index < 0) {
        return false;
    }
    bool is_any_empty = query->may_leave_out;
    for (uint32_t bag = 0; bag < job->bag_count && !is_any_empty; bag++) {
        is_any_empty = job->starts[bag] == job->starts[bag + 1];
    }
    return is_any_empty;
}

/* Adds the sub-query for the default row. */
static bool add_default(struct eb_route_split *split, struct eb_arena *arena)
{
    const struct eb_route_query *query = split->query;
    struct eb_route_sub *sub = &split->subs[split->sub_count++];
    *sub = (struct eb_route_sub){
        .part = eb_part_of(&query->rule, query->default_index),
        .is_default = true,
        .reduction = EB_REDUCTION_NONE,
        .missing = query->rule.by_key ? EB_MISSING_SKIP : EB_MISSING_ERROR,
        .output_type = query->job->output_type,
        .index_count = 1,
        .bag_count = 1,
        .indices = eb_arena_take(arena, sizeof *sub->indices),
    };
    if (sub->indices) {
        sub->indices[0] = eb_part_index(&query->rule, query->default_index);
    }
    return sub->indices;
}

/* Takes memory for the sub-queries of the parts that have rows, and for the default row's. */
static bool take_subs(
    struct eb_route_split *split, const struct dealing *dealing, struct eb_arena *arena)
{
    size_t count = needs_default(split->query);
    for (uint32_t part = 0; part < dealing->rule.parts; part++) {
        count += dealing->index_counts[part] > 0;
    }
    split->subs = eb_arena_take(arena, count * sizeof *split->subs);
    return split->subs;
}

/* Begins the sub-queries of the parts that have rows. */
static bool begin_subs(
    struct eb_route_split *split, const struct dealing *dealing, struct eb_arena *arena)
{
    uint32_t parts = dealing->rule.parts;
    for (uint32_t part = 0; part <= parts; part++) {
        if (dealing->index_counts[part] == 0) {
            continue;
        }
        struct eb_route_sub *sub =
            part < parts ? &split->subs[split->sub_count++] : &split->vectors;
        if (!begin_sub(split, dealing, part, arena, sub)) {
            return false;
        }
        dealing->subs[part] = sub;
    }
    return true;
}

bool eb_route_split(
    const struct eb_route_query *query, struct eb_arena *arena, struct eb_route_split *split)
{
    const struct eb_bag_job *job = query->job;
    struct dealing dealing;
    assert(query->rule.parts > 0 && query->rule.parts <= EB_PARTS_MAX);
    *split = (struct eb_route_split){
        .query = query,
        .by_row = eb_route_is_by_row(job),
        .result_type = job->reduction == EB_REDUCTION_NONE ? job->output_type
                                                           : eb_route_sum_type(job->table->type),
    };
    if (!take_dealing(query, arena, &dealing)) {
        return false;
    }
    count_dealt(&dealing);
    if (!take_subs(split, &dealing, arena) || !begin_subs(split, &dealing, arena)) {
        return false;
    }
    deal_rows(&dealing);
    return (!needs_default(query) || add_default(split, arena)) && cut_large_subs(split, arena);
}

/* ---- tables that are not divided ---- */

/* Returns the policy of the sub-query on a whole table. Checking has replaced the missing row
 * numbers of a dense table: by EB_ROW_ZERO and EB_ROW_VECTOR, which name no row there either. */
static enum eb_missing choose_whole_missing(const struct eb_route_query *query)
{
    const struct eb_bag_job *job = query->job;
    if (query->rule.by_key) {
        return query->missing == EB_MISSING_ERROR ? EB_MISSING_SKIP : query->missing;
    }
    if (job->has_vector_rows) {
        return EB_MISSING_UNKNOWN_ROW;
    }
    return job->has_zero_rows ? EB_MISSING_ZERO : EB_MISSING_ERROR;
}

/* Copies the rows, weights and bags of the job. */
static void copy_whole(const struct eb_bag_job *job, struct eb_route_sub *sub)
{
    uint32_t count = sub->index_count;
    if (count > 0) {
        memcpy(sub->indices, job->rows, count * sizeof *sub->indices);
    }
    for (uint32_t i = 0; i < count; i++) {
        sub->positions[i] = i;
    }
    sub->index_count = 0;
    for (; sub->weights && sub->index_count < count; sub->index_count++) {
        deal_weight(job, sub->index_count, sub);
    }
    sub->index_count = count;
    for (uint32_t bag = 0; sub->lengths && bag < sub->bag_count; bag++) {
        sub->lengths[bag] = (int32_t)(job->starts[bag + 1] - job->starts[bag]);
        sub->bags[bag] = bag;
    }
}

bool eb_route_split_whole(const struct eb_route_query *query, uint32_t part, struct eb_arena *arena,
    struct eb_route_split *split)
{
    const struct eb_bag_job *job = query->job;
    struct eb_route_sub *sub = eb_arena_take(arena, sizeof *sub);
    if (!sub) {
        return false;
    }
    *split = (struct eb_route_split){
        .query = query,
        .is_whole = true,
        .by_row = !job->starts,
        .result_type = job->output_type,
        .sub_count = 1,
        .subs = sub,
        .result_row_count = job->bag_count,
    };
    *sub = (struct eb_route_sub){
        .part = part,
        .is_whole = true,
        .has_default = query->has_default,
        .default_index = query->default_index,
        .reduction = job->reduction,
        .missing = choose_whole_missing(query),
        .reports_missing =
            query->rule.by_key && (query->missing == EB_MISSING_ERROR || query->wants_missing),
        .output_type = job->output_type,
        .weights_type = eb_route_sum_type(job->table->type),
        .index_count = eb_route_row_count(job),
        .bag_count = job->bag_count,
    };
    if (!take_sub_arrays(split, arena, sub)) {
        return false;
    }
    copy_whole(job, sub);
    split->by_row = true;
    return cut_large_subs(split, arena);
}
