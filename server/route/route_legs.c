#include "server/route/route_legs.h"

#include <inttypes.h>
#include <string.h>

/* Bytes of an answer beside its values and positions: its head, and that of each result. */
#define ANSWER_HEAD_BYTES 1024
#define RESULT_HEAD_BYTES 128

/* ---- grouping ---- */

static uint64_t count_result_bytes(
    const struct eb_route_merge *merge, const struct eb_route_sub *sub)
{
    uint64_t row_bytes = sub->is_default ? merge->default_row_bytes : merge->row_bytes;
    uint64_t positions = sub->reports_missing ? sub->index_count * sizeof(uint32_t) : 0;
    return RESULT_HEAD_BYTES + sub->bag_count * row_bytes + positions;
}

/* Counts the sub-queries of each part. Returns the number of parts that have any. */
static uint32_t count_leg_queries(
    const struct eb_route_item *items, size_t item_count, uint32_t *counts)
{
    uint32_t legs = 0;
    for (size_t i = 0; i < item_count; i++) {
        const struct eb_route_split *split = items[i].merge.split;
        for (uint32_t s = 0; s < split->sub_count; s++) {
            legs += counts[split->subs[s].part]++ == 0;
        }
    }
    return legs;
}

/* Adds a sub-query to its leg. */
static void add_leg_query(
    const struct eb_route_item *items, uint32_t item, uint32_t sub, struct eb_route_leg *leg)
{
    const struct eb_route_merge *merge = &items[item].merge;
    leg->queries[leg->query_count++] = (struct eb_route_leg_query){item, sub};
    leg->answer_bytes_max += count_result_bytes(merge, &merge->split->subs[sub]);
}

/* Takes memory for the legs of the parts that have sub-queries, and replaces the counts by the
 * numbers of the legs. */
static bool begin_legs(
    uint32_t parts, uint32_t *counts, struct eb_arena *arena, struct eb_route_legs *legs)
{
    uint32_t number = 0;
    legs->legs = eb_arena_take(arena, legs->count * sizeof *legs->legs);
    for (uint32_t part = 0; legs->legs && part < parts; part++) {
        if (counts[part] == 0) {
            continue;
        }
        struct eb_route_leg *leg = &legs->legs[number];
        *leg = (struct eb_route_leg){
            .part = part,
            .queries = eb_arena_take(arena, counts[part] * sizeof *leg->queries),
            .answer_bytes_max = ANSWER_HEAD_BYTES,
        };
        if (!leg->queries) {
            return false;
        }
        counts[part] = number++;
    }
    return legs->legs;
}

bool eb_route_legs_group(const struct eb_route_item *items, size_t item_count,
    struct eb_arena *arena, struct eb_route_legs *legs)
{
    uint32_t parts = item_count > 0 ? items[0].merge.split->query->rule.parts : 0;
    uint32_t *counts = eb_arena_take(arena, parts * sizeof *counts);
    *legs = (struct eb_route_legs){0};
    if (!counts) {
        return false;
    }
    memset(counts, 0, parts * sizeof *counts);
    legs->count = count_leg_queries(items, item_count, counts);
    if (!begin_legs(parts, counts, arena, legs)) {
        return false;
    }
    for (uint32_t i = 0; i < item_count; i++) {
        const struct eb_route_split *split = items[i].merge.split;
        for (uint32_t s = 0; s < split->sub_count; s++) {
            add_leg_query(items, i, s, &legs->legs[counts[split->subs[s].part]]);
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

static void fill_leg_query(
    const struct eb_route_item *item, const struct eb_route_sub *sub, struct eb_wire_query *query)
{
    *query = (struct eb_wire_query){
        .table = item->table,
        .part = sub->is_whole ? 0 : 1 + sub->part,
        .reduction = (int32_t)sub->reduction,
        .missing = (int32_t)sub->missing,
        .output_type = (int32_t)sub->output_type,
        .indices = make_leg_array(sub->indices, sub->index_count, sizeof(int64_t), "indices_i64"),
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
        fill_leg_query(item, sub, &queries[i]);
        request->report_missing = request->report_missing || sub->reports_missing;
        /* So that a default key that is missing is told apart from other errors. */
        request->errors_per_query = request->errors_per_query || sub->has_default;
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
    return response->result_count == leg->query_count ||
           refuse_answer(
               leg, error, "its number of results is another one", response->result_count);
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
