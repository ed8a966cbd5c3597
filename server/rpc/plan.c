#include "server/rpc/plan.h"

#include "proto/codec.h"
#include "server/rpc/reply.h"

#include <assert.h>

static bool fail_limit(
    const struct eb_plan_query *query, struct eb_error *error, const char *what, uint64_t limit)
{
    return eb_bag_query_refuse(&query->place, error, EB_STATUS_RESOURCE_EXHAUSTED,
        "with it the request has more than %llu %s", (unsigned long long)limit, what);
}

/* The request's caps, over all queries so far. No sum can wrap: each addend is bounded by the
 * kernels' caps times the longest row. */
static bool count_query(
    struct eb_plan *plan, const struct eb_plan_query *query, struct eb_error *error)
{
    const struct eb_limits *limits = plan->limits;
    plan->index_count += query->extent.index_count;
    if (plan->index_count > limits->indices_max) {
        return fail_limit(query, error, "indices (indices_max)", limits->indices_max);
    }
    plan->result_rows += query->extent.result_rows;
    if (plan->result_rows > limits->bags_max) {
        return fail_limit(query, error, "bags (bags_max)", limits->bags_max);
    }
    plan->values_bytes += query->extent.result_rows * query->extent.result_row_bytes;
    if (plan->values_bytes > limits->response_bytes_max) {
        return fail_limit(
            query, error, "bytes of answer (response_bytes_max)", limits->response_bytes_max);
    }
    return true;
}

/* All parts of a concatenation are alike. */
static bool check_concat(
    const struct eb_plan *plan, const struct eb_plan_query *query, struct eb_error *error)
{
    const struct eb_bag_extent *first = &plan->queries[0].extent;
    const struct eb_bag_query_place *place = &query->place;
    const enum eb_status status = EB_STATUS_INVALID_ARGUMENT;
    if (query->query.reduction == EB_REDUCTION_NONE) {
        return eb_bag_query_refuse(place, error, status, "concat is not possible with NONE");
    }
    if (!eb_type_is_float(query->extent.output_type)) {
        return eb_bag_query_refuse(place, error, status,
            "concat needs floating-point results, and this table holds integers");
    }
    if (query->extent.output_type != first->output_type) {
        return eb_bag_query_refuse(place, error, status,
            "concat needs results of one type, and this one is %s, the first %s; set output_type",
            eb_type_name(query->extent.output_type), eb_type_name(first->output_type));
    }
    if (query->extent.result_rows != first->result_rows) {
        return eb_bag_query_refuse(place, error, status,
            "concat needs as many bags in every query; this one has %llu, the first has %llu",
            (unsigned long long)query->extent.result_rows, (unsigned long long)first->result_rows);
    }
    return true;
}

/* Names and sizes of one query. */
static bool measure_query(struct eb_plan *plan, struct eb_plan_query *query, struct eb_error *error)
{
    struct eb_bag_fault fault;
    if (!eb_bag_query_fill(&query->place, &query->query, &query->table, error)) {
        return false;
    }
    if (!eb_bag_measure(&query->query, &query->extent, &fault)) {
        return eb_bag_query_fault(&query->place, &fault, error);
    }
    return count_query(plan, query, error) &&
           (!plan->request->concat || check_concat(plan, query, error));
}

/* Measures queries until one is faulty; plan->count says how many are not. */
static bool measure_queries(struct eb_plan *plan, struct eb_error *error)
{
    for (size_t i = 0; i < plan->request->query_count; i++) {
        struct eb_plan_query *query = &plan->queries[i];
        query->place = (struct eb_bag_query_place){
            .version = plan->version,
            .wire = &plan->request->queries[i],
            .number = i,
            .output_type = (enum eb_type)plan->request->output_type,
        };
        if (!measure_query(plan, query, error)) {
            return false;
        }
        plan->count++;
        plan->scratch_bytes += query->extent.scratch_bytes;
    }
    return true;
}

/* Values of the queries measured, in order. */
static bool check_values(struct eb_plan *plan, struct eb_error *error)
{
    struct eb_bag_fault fault;
    uint8_t *scratch = plan->scratch;
    for (size_t i = 0; i < plan->count; i++) {
        struct eb_plan_query *query = &plan->queries[i];
        struct eb_bag_job *job = &plan->jobs[i];
        job->scratch = scratch;
        if (!eb_bag_check(plan->ops, &query->query, &query->extent, job, &fault)) {
            return eb_bag_query_fault(&query->place, &fault, error);
        }
        plan->gather_bytes += job->gather_bytes;
        scratch += query->extent.scratch_bytes;
    }
    return true;
}

static bool fail_memory(struct eb_error *error, const char *what)
{
    eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
        "no memory left for %s; send less at once or come again later", what);
    return false;
}

bool eb_plan_check(struct eb_plan *plan, struct eb_error *error)
{
    size_t count = plan->request->query_count;
    plan->queries = eb_arena_take(plan->arena, (count + 1) * sizeof *plan->queries);
    plan->jobs = eb_arena_take(plan->arena, (count + 1) * sizeof *plan->jobs);
    if (!plan->queries || !plan->jobs) {
        return fail_memory(error, "the request's queries");
    }
    bool measured = measure_queries(plan, error);
    if (plan->scratch_bytes > 0) {
        plan->scratch = eb_buffer_pool_take(plan->pool, plan->scratch_bytes);
        if (!plan->scratch) {
            return fail_memory(error, "the request's indices (answer_memory_bytes)");
        }
    }
    /* A fault in the values of an earlier query comes before one in the sizes of a later one. */
    struct eb_error values_error;
    if (!check_values(plan, &values_error)) {
        *error = values_error;
        return false;
    }
    return measured;
}

void eb_plan_deinit(struct eb_plan *plan)
{
    eb_buffer_pool_give(plan->pool, plan->scratch, plan->scratch_bytes);
    plan->scratch = NULL;
}

/* ---- the answer ---- */

/* One result per query: [bags, trailing dims]. */
static void describe_result(const struct eb_plan *plan, size_t i, struct eb_wire_result *result,
    uint64_t shape[EB_TENSOR_RANK_MAX])
{
    const struct eb_plan_query *query = &plan->queries[i];
    shape[0] = query->extent.result_rows;
    for (uint32_t k = 1; k < query->table->rank; k++) {
        shape[k] = query->table->dims[k];
    }
    *result = (struct eb_wire_result){
        .query = (uint32_t)i,
        .type = (int32_t)query->extent.output_type,
        .shape_count = query->table->rank,
        .shape = shape,
        .missing = plan->jobs[i].missing_count,
        .values_bytes = (size_t)(query->extent.result_rows * query->extent.result_row_bytes),
    };
}

/* All results side by side: [bags, sum of row sizes]. */
static void describe_concat(const struct eb_plan *plan, struct eb_wire_result *result,
    uint64_t shape[2], uint64_t *missing_by_query)
{
    uint64_t row_bytes = 0;
    uint64_t missing = 0;
    for (size_t i = 0; i < plan->count; i++) {
        row_bytes += plan->queries[i].extent.result_row_bytes;
        missing_by_query[i] = plan->jobs[i].missing_count;
        missing += missing_by_query[i];
    }
    enum eb_type type = plan->queries[0].extent.output_type;
    shape[0] = plan->queries[0].extent.result_rows;
    shape[1] = row_bytes / eb_type_bytes(type);
    *result = (struct eb_wire_result){
        .type = (int32_t)type,
        .shape_count = 2,
        .shape = shape,
        .missing = missing,
        .missing_by_query_count = plan->count,
        .missing_by_query = missing_by_query,
        .values_bytes = (size_t)(shape[0] * row_bytes),
    };
}

static void aim_jobs(struct eb_plan *plan, uint8_t *const *values_at)
{
    uint64_t row_bytes = 0;
    for (size_t i = 0; i < plan->count; i++) {
        row_bytes += plan->queries[i].extent.result_row_bytes;
    }
    uint64_t column = 0;
    for (size_t i = 0; i < plan->count; i++) {
        struct eb_bag_job *job = &plan->jobs[i];
        uint64_t own_bytes = plan->queries[i].extent.result_row_bytes;
        bool concat = plan->request->concat;
        job->out = concat ? values_at[0] + column : values_at[i];
        job->out_stride_bytes = concat ? row_bytes : own_bytes;
        column += own_bytes;
    }
}

/* The response without its bytes; false: the arena is full. */
static bool describe(struct eb_plan *plan, struct eb_wire_response *response)
{
    bool concat = plan->request->concat;
    *response = (struct eb_wire_response){
        .request_id = plan->request->request_id,
        .model = plan->version->model,
        .version = plan->version->version,
        .error_message = "",
        .result_count = concat ? plan->count > 0 : plan->count,
    };
    size_t count = response->result_count;
    size_t shapes = concat ? plan->count + 2 : count * EB_TENSOR_RANK_MAX;
    response->results = eb_arena_take(plan->arena, (count + 1) * sizeof *response->results);
    uint64_t *numbers = eb_arena_take(plan->arena, (shapes + 1) * sizeof *numbers);
    if (!response->results || !numbers) {
        return false;
    }
    if (concat && count > 0) {
        describe_concat(plan, &response->results[0], numbers, numbers + 2);
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        describe_result(plan, i, &response->results[i], numbers + i * EB_TENSOR_RANK_MAX);
    }
    return true;
}

struct eb_outgoing *eb_plan_answer(struct eb_plan *plan, struct eb_error *error)
{
    struct eb_wire_response response;
    if (!describe(plan, &response)) {
        fail_memory(error, "the answer's description");
        return NULL;
    }
    uint8_t **values_at =
        eb_arena_take(plan->arena, (response.result_count + 1) * sizeof *values_at);
    size_t bytes = eb_lookup_response_bytes(&response);
    if (bytes > plan->limits->response_bytes_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "the answer would have %zu bytes; at most %llu are sent (response_bytes_max)", bytes,
            (unsigned long long)plan->limits->response_bytes_max);
        return NULL;
    }
    struct eb_outgoing *answer = values_at ? eb_reply_take(plan->pool, bytes) : NULL;
    if (!answer) {
        fail_memory(error, "the answer (answer_memory_bytes)");
        return NULL;
    }
    eb_lookup_response_encode(&response, eb_reply_body(answer), values_at);
    aim_jobs(plan, values_at);
    return answer;
}
