#include "server/rpc/plan.h"

#include "kernels/bag.h"
#include "proto/codec.h"
#include "proto/codec_infer.h"
#include "server/rpc/reply.h"

#include <stddef.h>
#include <string.h>

/* An answer that is being described. */
struct description {
    struct eb_plan *plan;
    const struct eb_plan_result *results; /* [response.result_count] */
    const struct eb_wire_result *pattern; /* later results may be like this one; NULL if none yet */
    struct eb_wire_response response;
};

/* Lists the positions of the missing indices of all queries of a result. Returns false if out of
 * memory. */
static bool describe_missing(
    struct eb_plan *plan, const struct eb_plan_result *from, struct eb_wire_result *result)
{
    if (!plan->request->report_missing || result->missing == 0) {
        return true;
    }
    uint32_t *positions = eb_arena_take(plan->arena, result->missing * sizeof *positions);
    if (!positions) {
        return false;
    }
    result->missing_positions = (const uint8_t *)positions;
    result->missing_positions_bytes = (size_t)result->missing * sizeof *positions;
    for (size_t i = 0; i < from->query_count; i++) {
        const struct eb_plan_missing *missing = plan->queries[from->query_first + i].missing;
        uint64_t count = plan->jobs[from->query_first + i].missing_count;
        if (count > 0 && missing->positions) {
            memcpy(positions, missing->positions, count * sizeof *positions);
        } else if (count > 0) {
            eb_bag_list_missing(&missing->query, (uint32_t)missing->first_index, count, positions);
        }
        positions += count;
    }
    return true;
}

/* Describes the result of one query: [bags, trailing dims]. */
static bool describe_single(
    struct eb_plan *plan, const struct eb_plan_result *from, struct eb_wire_result *result)
{
    const struct eb_plan_query *query = &plan->queries[from->query_first];
    const struct eb_bag_job *job = &plan->jobs[from->query_first];
    const struct eb_named_table *table = query->table;
    uint64_t *shape = eb_arena_take(plan->arena, table->rank * sizeof *shape);
    if (!shape) {
        return false;
    }
    shape[0] = job->bag_count;
    for (uint32_t k = 1; k < table->rank; k++) {
        shape[k] = table->dims[k];
    }
    result->type = (int32_t)job->output_type;
    result->shape_count = table->rank;
    result->shape = shape;
    result->missing = job->missing_count;
    result->values_bytes = (size_t)(job->bag_count * query->result_row_bytes);
    return true;
}

static uint64_t count_answer_missing(const struct eb_bag_job *jobs, size_t count)
{
    uint64_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        missing += jobs[i].missing_count;
    }
    return missing;
}

static bool is_of_group(const struct eb_plan *plan, const struct eb_plan_result *result)
{
    return result->number >= plan->request->query_count;
}

/* Fills in `shape` of a sequence lookup: [rows, trailing dims], or [bags, max_len, trailing dims].
 * The rows of a group have one dimension. Returns the number of dimensions. */
static uint32_t shape_sequence(
    const struct eb_plan *plan, const struct eb_plan_result *from, uint64_t *shape)
{
    const struct eb_plan_sequence *sequence = from->sequence;
    const struct eb_named_table *table = plan->queries[from->query_first].table;
    uint32_t rank = 0;
    shape[rank++] = sequence->padded_len > 0 ? sequence->lengths_count : sequence->row_count;
    if (sequence->padded_len > 0) {
        shape[rank++] = sequence->padded_len;
    }
    if (is_of_group(plan, from)) {
        shape[rank++] = table->table.row_elements;
        return rank;
    }
    for (uint32_t k = 1; k < table->rank; k++) {
        shape[rank++] = table->dims[k];
    }
    return rank;
}

/* Describes the result of a sequence lookup, of one query or of the features of a group. */
static __attribute__((noinline)) bool describe_sequence(
    struct eb_plan *plan, const struct eb_plan_result *from, struct eb_wire_result *result)
{
    const struct eb_plan_sequence *sequence = from->sequence;
    const struct eb_bag_job *jobs = &plan->jobs[from->query_first];
    size_t listed_count = is_of_group(plan, from) ? from->query_count : 0;
    size_t rank_max = plan->queries[from->query_first].table->rank + 2;
    uint64_t *numbers = eb_arena_take(plan->arena, (listed_count + rank_max) * sizeof *numbers);
    if (!numbers) {
        return false;
    }
    for (size_t i = 0; i < listed_count; i++) {
        numbers[rank_max + i] = jobs[i].missing_count;
    }
    result->type = (int32_t)jobs->output_type;
    result->shape_count = shape_sequence(plan, from, numbers);
    result->shape = numbers;
    result->missing = count_answer_missing(jobs, from->query_count);
    result->missing_by_query_count = listed_count;
    result->missing_by_query = listed_count > 0 ? numbers + rank_max : NULL;
    result->lengths = (const uint8_t *)sequence->lengths;
    result->lengths_bytes = (size_t)sequence->lengths_count * sizeof *sequence->lengths;
    result->inverse = (const uint8_t *)sequence->inverse;
    result->inverse_bytes = (size_t)sequence->inverse_count * sizeof *sequence->inverse;
    result->values_bytes =
        (size_t)(sequence->row_count * plan->queries[from->query_first].result_row_bytes);
    return true;
}

static uint64_t count_row_bytes(const struct eb_plan *plan, const struct eb_plan_result *from)
{
    uint64_t row_bytes = 0;
    for (size_t i = 0; i < from->query_count; i++) {
        row_bytes += plan->queries[from->query_first + i].result_row_bytes;
    }
    return row_bytes;
}

/* Describes the results of several queries that lie side by side: [bags, sum of row sizes]. */
static bool describe_joined(
    struct eb_plan *plan, const struct eb_plan_result *from, struct eb_wire_result *result)
{
    const struct eb_bag_job *jobs = &plan->jobs[from->query_first];
    uint64_t row_bytes = count_row_bytes(plan, from);
    result->missing = count_answer_missing(jobs, from->query_count);
    size_t listed_count = result->missing > 0 ? from->query_count : 0;
    uint64_t *numbers = eb_arena_take(plan->arena, (listed_count + 2) * sizeof *numbers);
    if (!numbers) {
        return false;
    }
    for (size_t i = 0; i < listed_count; i++) {
        numbers[2 + i] = jobs[i].missing_count;
    }
    numbers[0] = jobs->bag_count;
    numbers[1] = row_bytes / eb_type_bytes(jobs->output_type);
    result->type = (int32_t)jobs->output_type;
    result->shape_count = 2;
    result->shape = numbers;
    result->missing_by_query_count = from->query_count;
    result->missing_by_query = listed_count > 0 ? numbers + 2 : NULL;
    result->values_bytes = (size_t)(jobs->bag_count * row_bytes);
    return true;
}

/* Returns whether a result may be like others: it is that of one query, has no missing rows, and
 * has two dimensions. */
static bool is_common(const struct eb_plan *plan, const struct eb_plan_result *from)
{
    return from->status == EB_STATUS_OK && from->is_single &&
           plan->jobs[from->query_first].missing_count == 0 &&
           !plan->queries[from->query_first].is_incomplete &&
           plan->queries[from->query_first].table->rank == 2;
}

/* Returns whether a common result (is_common) is like the last one that was described in full. */
static bool fits_pattern(const struct description *out, const struct eb_plan_result *from)
{
    const struct eb_wire_result *pattern = out->pattern;
    const struct eb_bag_job *job = &out->plan->jobs[from->query_first];
    return pattern && pattern->shape[0] == job->bag_count &&
           pattern->shape[1] == out->plan->queries[from->query_first].table->dims[1] &&
           pattern->type == (int32_t)job->output_type;
}

static bool describe_result(
    struct description *out, const struct eb_plan_result *from, struct eb_wire_result *result)
{
    bool may_be_alike = is_common(out->plan, from);
    if (may_be_alike && fits_pattern(out, from)) {
        result->query = from->number;
        result->like = out->pattern;
        return true;
    }
    eb_wire_clear(result, offsetof(struct eb_wire_result, tail));
    result->query = from->number;
    if (from->status != EB_STATUS_OK) {
        result->error_code = (uint32_t)from->status;
        result->error_message = from->text;
        return true;
    }
    /* No result of a ModelInferResponse is like another: each output has its own name. */
    if (may_be_alike && !out->plan->request->infer) {
        out->pattern = result;
    }
    bool is_described = from->is_single  ? describe_single(out->plan, from, result)
                        : from->sequence ? describe_sequence(out->plan, from, result)
                                         : describe_joined(out->plan, from, result);
    for (uint32_t i = 0; i < from->query_count; i++) {
        const struct eb_plan_query *query = &out->plan->queries[from->query_first + i];
        result->unreached += query->unreached_count;
        out->response.incomplete = out->response.incomplete || query->is_incomplete;
    }
    return is_described && describe_missing(out->plan, from, result);
}

/* Describes the response, without its values. Returns false if the arena is full. */
static bool describe_answer(struct description *out)
{
    size_t count = out->response.result_count;
    struct eb_wire_result *results = eb_arena_take(out->plan->arena, (count + 1) * sizeof *results);
    bool is_good = results;
    for (size_t i = 0; i < count && is_good; i++) {
        is_good = describe_result(out, &out->results[i], &results[i]);
    }
    out->response.results = results;
    return is_good;
}

/* Points the jobs of a sequence lookup to their rows, which lie one after the other. */
static __attribute__((noinline)) void aim_sequences(
    struct eb_bag_job *jobs, const struct eb_plan_query *queries, size_t count, uint8_t *values)
{
    for (size_t i = 0; i < count; i++) {
        jobs[i].out = values;
        jobs[i].out_stride_bytes = queries[i].result_row_bytes;
        values += jobs[i].bag_count * queries[i].result_row_bytes;
    }
}

/* Points the jobs of a result to its values. A failed result has no jobs. */
static void aim_jobs(struct eb_plan *plan, const struct eb_plan_result *result, uint8_t *values)
{
    struct eb_bag_job *jobs = &plan->jobs[result->query_first];
    const struct eb_plan_query *queries = &plan->queries[result->query_first];
    if (result->query_count == 1) {
        jobs->out = values;
        jobs->out_stride_bytes = queries->result_row_bytes;
        return;
    }
    if (result->sequence) {
        aim_sequences(jobs, queries, result->query_count, values);
        return;
    }
    uint64_t row_bytes = count_row_bytes(plan, result);
    for (size_t i = 0; i < result->query_count; i++) {
        jobs[i].out = values;
        jobs[i].out_stride_bytes = row_bytes;
        values += queries[i].result_row_bytes;
    }
}

struct eb_outgoing *eb_plan_answer(
    struct eb_plan *plan, size_t first, size_t count, struct eb_error *error)
{
    struct description out = {
        .plan = plan,
        .results = plan->results + first,
        .response =
            {
                .request_id = plan->request->request_id,
                .model = plan->version->model,
                .version = plan->version->version,
                .digest = plan->version->tables.manifest,
                .error_message = "",
                .more = count < plan->result_count,
                .is_timed = true,
                .result_count = count,
            },
    };
    uint8_t **values_at = eb_arena_take(plan->arena, (count + 1) * sizeof *values_at);
    if (!describe_answer(&out) || !values_at) {
        eb_plan_refuse_memory(error, "the answer's description");
        return NULL;
    }
    size_t bytes = plan->request->infer
                       ? eb_infer_response_bytes(plan->request->infer, &out.response)
                       : eb_lookup_response_bytes(&out.response);
    if (bytes > plan->limits->response_bytes_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "the answer would have %zu bytes, but at most %llu are possible (response_bytes_max)",
            bytes, (unsigned long long)plan->limits->response_bytes_max);
        return NULL;
    }
    struct eb_outgoing *answer = eb_reply_take(plan->pool, bytes);
    if (!answer) {
        eb_plan_refuse_memory(error, "the answer (answer_memory_bytes)");
        return NULL;
    }
    if (plan->request->infer) {
        eb_infer_response_encode(
            plan->request->infer, &out.response, eb_reply_body(answer), values_at);
    } else {
        eb_lookup_response_encode(&out.response, eb_reply_body(answer), values_at);
    }
    for (size_t i = 0; i < count; i++) {
        aim_jobs(plan, &out.results[i], values_at[i]);
    }
    return answer;
}
