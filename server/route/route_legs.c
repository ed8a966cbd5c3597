#include "server/route/route_legs.h"

#include <inttypes.h>
#include <string.h>

/* Bytes of an answer beside its values and positions: its head, and that of each result. */
#define ANSWER_HEAD_BYTES 1024
#define RESULT_HEAD_BYTES 128

/* ---- grouping ---- */

/* What a leg holds so far, or what a sub-query would add. */
struct filling {
    uint32_t leg; /* its number */
    uint32_t query_count;
    uint64_t request_bytes;
    uint64_t answer_bytes;
    uint64_t rows_begin; /* bytes of the rows without memory of all items before its first one */
    uint64_t rows_end;   /* of a sub-query only: the same with its item */
};

/* Returns the bytes of an item's rows if they have no memory yet. */
static uint64_t count_rows_bytes(const struct eb_route_merge *merge)
{
    return merge->rows ? 0 : eb_route_merge_rows_bytes(merge);
}

static uint64_t count_result_bytes(
    const struct eb_route_merge *merge, const struct eb_route_sub *sub)
{
    uint64_t row_bytes = sub->is_default ? merge->default_row_bytes : merge->row_bytes;
    return RESULT_HEAD_BYTES + eb_route_sub_answer_bytes(sub, row_bytes);
}

/* Returns whether the rows of the items that a leg covers stay within the caps if it gets one more
 * sub-query. Those of a single item may exceed them. */
static bool may_cover(
    const struct filling *filling, const struct filling *more, const struct eb_route_caps *caps)
{
    return caps->rows_bytes == 0 || more->rows_begin == filling->rows_begin ||
           more->rows_end - filling->rows_begin <= caps->rows_bytes;
}

/* Returns the leg that gets a sub-query: that of its part, or a new one if there is none or it
 * would exceed the caps. */
static uint32_t choose_leg(struct filling *filling, const struct filling *more,
    const struct eb_route_caps *caps, uint32_t *leg_count)
{
    bool fits = filling->query_count > 0 &&
                (!caps || (filling->query_count < caps->queries && may_cover(filling, more, caps) &&
                              filling->request_bytes + more->request_bytes <= caps->request_bytes &&
                              filling->answer_bytes + more->answer_bytes <= caps->answer_bytes));
    if (!fits) {
        *filling = (struct filling){.leg = (*leg_count)++, .rows_begin = more->rows_begin};
    }
    filling->query_count++;
    filling->request_bytes += more->request_bytes;
    filling->answer_bytes += more->answer_bytes;
    return filling->leg;
}

static size_t count_subs(const struct eb_route_item *items, size_t item_count)
{
    size_t count = 0;
    for (size_t i = 0; i < item_count; i++) {
        count += items[i].merge.split->sub_count;
    }
    return count;
}

/* Decides which leg gets each sub-query of the items, in order. Returns the number of legs. */
static uint32_t assign_legs(const struct eb_route_item *items, size_t item_count,
    const struct eb_route_caps *caps, struct filling *of_part, uint32_t *assigned)
{
    uint32_t leg_count = 0;
    uint64_t rows_bytes = 0;
    for (size_t i = 0; i < item_count; i++) {
        const struct eb_route_merge *merge = &items[i].merge;
        uint64_t rows_end = rows_bytes + count_rows_bytes(merge);
        for (uint32_t s = 0; s < merge->split->sub_count; s++) {
            const struct eb_route_sub *sub = &merge->split->subs[s];
            struct filling more = {.request_bytes = eb_route_sub_request_bytes(sub),
                .answer_bytes = count_result_bytes(merge, sub),
                .rows_begin = rows_bytes,
                .rows_end = rows_end};
            *assigned++ = choose_leg(&of_part[sub->part], &more, caps, &leg_count);
        }
        rows_bytes = rows_end;
    }
    return leg_count;
}

/* Takes memory for the legs and their queries, whose numbers are counted. */
static bool begin_legs(const struct eb_route_item *items, size_t item_count,
    const uint32_t *assigned, struct eb_arena *arena, struct eb_route_legs *legs)
{
    size_t number = 0;
    legs->legs = eb_arena_take(arena, legs->count * sizeof *legs->legs);
    if (!legs->legs) {
        return false;
    }
    for (uint32_t i = 0; i < legs->count; i++) {
        legs->legs[i] = (struct eb_route_leg){.answer_bytes_max = ANSWER_HEAD_BYTES};
    }
    for (size_t i = 0; i < item_count; i++) {
        const struct eb_route_split *split = items[i].merge.split;
        for (uint32_t s = 0; s < split->sub_count; s++) {
            struct eb_route_leg *leg = &legs->legs[assigned[number++]];
            leg->part = split->subs[s].part;
            leg->query_count++;
        }
    }
    for (uint32_t i = 0; i < legs->count; i++) {
        struct eb_route_leg *leg = &legs->legs[i];
        leg->queries = eb_arena_take(arena, leg->query_count * sizeof *leg->queries);
        leg->query_count = 0;
        if (!leg->queries) {
            return false;
        }
    }
    return true;
}

bool eb_route_legs_group(const struct eb_route_item *items, size_t item_count,
    const struct eb_route_caps *caps, struct eb_arena *arena, struct eb_route_legs *legs)
{
    uint32_t parts = item_count > 0 ? items[0].merge.split->query->rule.parts : 0;
    struct filling *of_part = eb_arena_take(arena, parts * sizeof *of_part);
    uint32_t *assigned = eb_arena_take(arena, count_subs(items, item_count) * sizeof *assigned);
    *legs = (struct eb_route_legs){0};
    if (!of_part || !assigned) {
        return false;
    }
    memset(of_part, 0, parts * sizeof *of_part);
    legs->count = assign_legs(items, item_count, caps, of_part, assigned);
    if (!begin_legs(items, item_count, assigned, arena, legs)) {
        return false;
    }
    for (uint32_t i = 0; i < item_count; i++) {
        const struct eb_route_merge *merge = &items[i].merge;
        for (uint32_t s = 0; s < merge->split->sub_count; s++) {
            struct eb_route_leg *leg = &legs->legs[*assigned++];
            leg->queries[leg->query_count++] = (struct eb_route_leg_query){i, s};
            leg->answer_bytes_max += count_result_bytes(merge, &merge->split->subs[s]);
        }
    }
    return true;
}

/* ---- messages ---- */

static struct eb_wire_array make_leg_array(
    const void *data, uint64_t count, uint32_t width, const char *field)
{
    return (struct eb_wire_array){data, count * width, width, field};
}

/* Returns the indices of a sub-query, in 4 bytes each if they are row numbers that fit. Returns an
 * array without data if the arena is full. */
static struct eb_wire_array make_leg_indices(
    const struct eb_route_item *item, const struct eb_route_sub *sub, struct eb_arena *arena)
{
    const struct eb_route_query *query = item->merge.split->query;
    if (query->rule.by_key || query->job->table->row_count > INT32_MAX) {
        return make_leg_array(sub->indices, sub->index_count, sizeof(int64_t), "indices_i64");
    }
    int32_t *narrow = eb_arena_take(arena, sub->index_count * sizeof *narrow);
    for (uint32_t i = 0; narrow && i < sub->index_count; i++) {
        narrow[i] = (int32_t)sub->indices[i];
    }
    return make_leg_array(narrow, sub->index_count, sizeof *narrow, "indices_i32");
}

static bool fill_leg_query(const struct eb_route_item *item, const struct eb_route_sub *sub,
    struct eb_arena *arena, struct eb_wire_query *query)
{
    *query = (struct eb_wire_query){
        .table = item->table,
        .part = sub->is_whole ? 0 : 1 + sub->part,
        .reduction = (int32_t)sub->reduction,
        .missing = (int32_t)sub->missing,
        .output_type = (int32_t)sub->output_type,
        .indices = make_leg_indices(item, sub, arena),
    };
    if (sub->has_default) {
        query->has_default = true;
        query->default_index = sub->default_index;
    }
    if (sub->lengths) {
        query->lengths =
            make_leg_array(sub->lengths, sub->bag_count, sizeof(int32_t), "lengths_i32");
    }
    if (sub->weights) {
        query->weights = sub->weights;
        query->weights_bytes = sub->index_count * eb_type_bytes(sub->weights_type);
        query->weights_type = (int32_t)sub->weights_type;
    }
    return query->indices.data;
}

bool eb_route_leg_fill(const struct eb_route_leg *leg, const struct eb_route_item *items,
    const struct eb_route_version *version, struct eb_arena *arena, struct eb_wire_request *request)
{
    struct eb_wire_query *queries = eb_arena_take(arena, leg->query_count * sizeof *queries);
    if (!queries) {
        return false;
    }
    for (uint32_t i = 0; i < leg->query_count; i++) {
        const struct eb_route_item *item = &items[leg->queries[i].item];
        const struct eb_route_sub *sub = &item->merge.split->subs[leg->queries[i].sub];
        if (!fill_leg_query(item, sub, arena, &queries[i])) {
            return false;
        }
        request->report_missing = request->report_missing || sub->reports_missing;
        /* So that a default key that is missing is told apart from other errors. */
        request->errors_per_query = request->errors_per_query ||
                                    (sub->has_default && item->merge.split->query->rule.by_key);
    }
    request->model = version->model;
    request->version = version->version;
    request->query_count = leg->query_count;
    request->queries = queries;
    return true;
}

/* ---- answers ---- */

static bool refuse_answer(
    const struct eb_route_leg *leg, struct eb_error *error, const char *what, uint64_t number)
{
    eb_error_set(error, EB_STATUS_INTERNAL,
        "the answer of part %" PRIu32 " does not fit its request: %s (%" PRIu64 ")", leg->part,
        what, number);
    return false;
}

/* Checks what the answer says of itself, before its results are read. */
static bool check_answer(const struct eb_route_leg *leg, const struct eb_route_version *version,
    const struct eb_wire_response *response, struct eb_error *error)
{
    if (response->version != version->version) {
        return refuse_answer(leg, error, "it is of another version", response->version);
    }
    if (response->digest != version->digest) {
        eb_error_set(error, EB_STATUS_FAILED_PRECONDITION,
            "part %" PRIu32 " has other files of version %" PRIu64 ": digest %016" PRIx64
            ", expected %016" PRIx64,
            leg->part, version->version, response->digest, version->digest);
        return false;
    }
    if (response->more) {
        return refuse_answer(leg, error, "it is not the whole answer", response->result_count);
    }
    if (response->result_count != leg->query_count) {
        eb_error_set(error, EB_STATUS_INTERNAL,
            "the answer of part %" PRIu32
            " does not fit its request: it has %zu result%s, expected %" PRIu32,
            leg->part, response->result_count, response->result_count == 1 ? "" : "s",
            leg->query_count);
        return false;
    }
    return true;
}

bool eb_route_leg_take(const struct eb_route_leg *leg, struct eb_route_item *items,
    const struct eb_route_version *version, const struct eb_wire_response *response,
    struct eb_error *error)
{
    if (!check_answer(leg, version, response, error)) {
        return false;
    }
    for (uint32_t i = 0; i < leg->query_count; i++) {
        const struct eb_wire_result *result = &response->results[i];
        struct eb_route_merge *merge = &items[leg->queries[i].item].merge;
        if (result->query != i) {
            return refuse_answer(leg, error, "its results are in another order", result->query);
        }
        if (!eb_route_merge_take(merge, leg->queries[i].sub, result, error)) {
            return false;
        }
    }
    return true;
}
