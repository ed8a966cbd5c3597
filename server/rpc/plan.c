#include "server/rpc/plan.h"

#include "server/rpc/group_query.h"

#include <string.h>

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

/* What lies side by side is alike. */
static bool check_joined(
    const struct eb_plan_query *first, const struct eb_plan_query *query, struct eb_error *error)
{
    const struct eb_bag_query_place *place = &query->place;
    const enum eb_status status = EB_STATUS_INVALID_ARGUMENT;
    const char *what = place->is_group ? "a group" : "concat";
    if (query->query.reduction == EB_REDUCTION_NONE) {
        return eb_bag_query_refuse(place, error, status, "%s is not possible with NONE", what);
    }
    if (!eb_type_is_float(query->extent.output_type)) {
        return eb_bag_query_refuse(place, error, status,
            "%s needs floating-point results, and this table holds integers", what);
    }
    if (query->extent.output_type != first->extent.output_type) {
        return eb_bag_query_refuse(place, error, status,
            "%s needs results of one type, and this one is %s, the first %s; set output_type", what,
            eb_type_name(query->extent.output_type), eb_type_name(first->extent.output_type));
    }
    if (query->extent.result_rows != first->extent.result_rows) {
        return eb_bag_query_refuse(place, error, status,
            "%s needs as many bags in every query; this one has %llu, the first has %llu", what,
            (unsigned long long)query->extent.result_rows,
            (unsigned long long)first->extent.result_rows);
    }
    return true;
}

/* Sizes of a query that has been filled, the next of the plan; joined to the result's others. */
static bool measure_query(
    struct eb_plan *plan, const struct eb_plan_result *result, struct eb_error *error)
{
    struct eb_plan_query *query = &plan->queries[plan->query_count];
    struct eb_bag_fault fault;
    if (!eb_bag_measure(&query->query, &query->extent, &fault)) {
        return eb_bag_query_fault(&query->place, &fault, error);
    }
    if (!count_query(plan, query, error) ||
        (result->is_joined && !check_joined(&plan->queries[result->query_first], query, error))) {
        return false;
    }
    plan->query_count++;
    plan->scratch_bytes += query->extent.scratch_bytes;
    return true;
}

static bool measure_wire_query(struct eb_plan *plan, size_t number,
    const struct eb_plan_result *result, struct eb_error *error)
{
    const struct eb_wire_query *wire = &plan->request->queries[number];
    struct eb_plan_query *query = &plan->queries[plan->query_count];
    query->place = (struct eb_bag_query_place){
        .version = plan->version,
        .table = wire->table,
        .number = number,
        .feature = EB_NO_FEATURE,
        .output_type = (enum eb_type)plan->request->output_type,
    };
    query->first_index = 0;
    return eb_bag_query_fill(&query->place, wire, &query->query, &query->table, error) &&
           measure_query(plan, result, error);
}

static bool measure_wire_group(struct eb_plan *plan, size_t number,
    const struct eb_plan_result *result, struct eb_error *error)
{
    const struct eb_wire_group *wire = &plan->request->groups[number];
    struct eb_group_query group;
    struct eb_bag_query_place place = {
        .version = plan->version,
        .table = wire->name,
        .is_group = true,
        .number = number,
        .feature = EB_NO_FEATURE,
        .output_type = (enum eb_type)plan->request->output_type,
    };
    if (!eb_group_query_begin(&place, wire, plan->arena, &group, error)) {
        return false;
    }
    for (size_t f = 0; f < wire->feature_count; f++) {
        struct eb_plan_query *query = &plan->queries[plan->query_count];
        place.feature = f;
        place.table = wire->features[f];
        query->place = place;
        query->first_index = group.starts[f];
        if (!eb_group_query_fill(&group, &place, &query->query, &query->table, error) ||
            !measure_query(plan, result, error)) {
            return false;
        }
    }
    return true;
}

/* Keeps a result's own error. false: it is the whole request's, as are those of limits. */
static bool keep_error(struct eb_plan *plan, struct eb_plan_result *result, struct eb_error *error)
{
    if (!plan->request->errors_per_query || plan->request->concat ||
        error->status == EB_STATUS_RESOURCE_EXHAUSTED) {
        return false;
    }
    size_t bytes = strlen(error->text) + 1;
    char *text = eb_arena_take(plan->arena, bytes);
    if (!text) {
        return eb_plan_refuse_memory(error, "the queries' errors");
    }
    memcpy(text, error->text, bytes);
    result->status = error->status;
    result->text = text;
    *error = (struct eb_error){0};
    return true;
}

/* Measures what makes one result, the next of the plan, which says already how. false: the request
 * fails. */
static bool measure_result(struct eb_plan *plan,
    bool (*measure)(struct eb_plan *plan, size_t number, const struct eb_plan_result *result,
        struct eb_error *error),
    size_t number, struct eb_error *error)
{
    struct eb_plan_result *result = &plan->results[plan->result_count];
    struct eb_plan before;
    const bool may_fail = plan->request->errors_per_query;
    if (may_fail) {
        before = *plan;
    }
    result->query_first = plan->query_count;
    if (!measure(plan, number, result, error)) {
        if (!may_fail || !keep_error(plan, result, error)) {
            return false;
        }
        /* What fails takes nothing of the caps. */
        *plan = before;
    }
    result->query_count = plan->query_count - result->query_first;
    plan->result_count++;
    return true;
}

/* All queries as one result. */
static bool measure_concat(struct eb_plan *plan, struct eb_error *error)
{
    struct eb_plan_result result = {.is_joined = true};
    if (plan->request->group_count > 0) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "concat is for queries; the features of a group lie side by side as they are");
        return false;
    }
    bool is_good = true;
    for (size_t i = 0; i < plan->request->query_count && is_good; i++) {
        is_good = measure_wire_query(plan, i, &result, error);
    }
    result.query_count = plan->query_count;
    if (result.query_count > 0) {
        plan->results[plan->result_count++] = result;
    }
    return is_good;
}

/* Measures until something is faulty; what the plan counts is not. */
static bool measure_results(struct eb_plan *plan, struct eb_error *error)
{
    const struct eb_wire_request *request = plan->request;
    if (request->concat) {
        return measure_concat(plan, error);
    }
    for (size_t i = 0; i < request->query_count; i++) {
        plan->results[plan->result_count] = (struct eb_plan_result){.number = (uint32_t)i};
        if (!measure_result(plan, measure_wire_query, i, error)) {
            return false;
        }
    }
    for (size_t i = 0; i < request->group_count; i++) {
        plan->results[plan->result_count] = (struct eb_plan_result){
            .number = (uint32_t)(request->query_count + i), .is_joined = true};
        if (!measure_result(plan, measure_wire_group, i, error)) {
            return false;
        }
    }
    return true;
}

/* Values of one result's queries, in order. */
static bool check_result(
    struct eb_plan *plan, struct eb_plan_result *result, uint8_t **scratch, struct eb_error *error)
{
    struct eb_bag_fault fault;
    uint64_t gather_bytes = 0;
    result->job_first = plan->job_count;
    for (size_t i = 0; i < result->query_count; i++) {
        struct eb_plan_query *query = &plan->queries[result->query_first + i];
        struct eb_bag_job *job = &plan->jobs[result->job_first + i];
        job->scratch = *scratch;
        if (!eb_bag_check(plan->ops, &query->query, &query->extent, job, &fault)) {
            return eb_bag_query_fault(&query->place, &fault, error) ||
                   keep_error(plan, result, error);
        }
        gather_bytes += job->gather_bytes;
        *scratch += query->extent.scratch_bytes;
    }
    plan->job_count += result->query_count;
    plan->gather_bytes += gather_bytes;
    return true;
}

static bool check_values(struct eb_plan *plan, struct eb_error *error)
{
    uint8_t *scratch = plan->scratch;
    for (size_t i = 0; i < plan->result_count; i++) {
        struct eb_plan_result *result = &plan->results[i];
        if (result->status == EB_STATUS_OK && !check_result(plan, result, &scratch, error)) {
            return false;
        }
    }
    return true;
}

bool eb_plan_refuse_memory(struct eb_error *error, const char *what)
{
    eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
        "no memory left for %s; send less at once or come again later", what);
    return false;
}

static bool take_structs(struct eb_plan *plan)
{
    const struct eb_wire_request *request = plan->request;
    size_t results = request->query_count + request->group_count + 1;
    size_t queries = request->query_count + 1;
    for (size_t i = 0; i < request->group_count; i++) {
        queries += request->groups[i].feature_count;
    }
    plan->queries = eb_arena_take(plan->arena, queries * sizeof *plan->queries);
    plan->jobs = eb_arena_take(plan->arena, queries * sizeof *plan->jobs);
    plan->results = eb_arena_take(plan->arena, results * sizeof *plan->results);
    return plan->queries && plan->jobs && plan->results;
}

bool eb_plan_check(struct eb_plan *plan, struct eb_error *error)
{
    if (!eb_group_query_list(plan->request, plan->version, plan->limits->queries_max, error)) {
        return false;
    }
    if (!take_structs(plan)) {
        return eb_plan_refuse_memory(error, "the request's queries");
    }
    bool measured = measure_results(plan, error);
    if (plan->scratch_bytes > 0) {
        plan->scratch = eb_buffer_pool_take(plan->pool, plan->scratch_bytes);
        if (!plan->scratch) {
            return eb_plan_refuse_memory(error, "the request's indices (answer_memory_bytes)");
        }
    }
    /* A fault in the values of an earlier query comes before one in the sizes of a later one. */
    struct eb_error values_error;
    values_error.status = EB_STATUS_OK;
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
