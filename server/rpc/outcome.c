#include "server/rpc/outcome.h"

#include "server/rpc/auth_call.h"

#include <assert.h>

const char eb_outcome_given_up_text[] = "the client cancelled it or disconnected";
/* The error of a lookup whose call got a status before the lookup was over. */
static const char cut_text[] = "the call ended before the answer was ready";

/* ---- counting ---- */

static void count_request(struct eb_counters *counters, unsigned method, enum eb_status status)
{
    assert(status <= EB_STATUS_UNAUTHENTICATED);
    counters->requests[method][status]++;
}

/* Counts the rows and bytes of a computed lookup. */
static void count_touched(struct eb_service_loop *loop, const struct eb_lookup *lookup)
{
    struct eb_counters *counters = loop->counters;
    const struct eb_plan_counts *counts = &lookup->plan.counts;
    counters->queries += counts->query_count;
    counters->bags += counts->result_rows;
    counters->indices += counts->index_count;
    counters->row_bytes += counts->gather_bytes;
    counters->value_bytes += counts->values_bytes;
    counters->inline_lookups += lookup->is_inline;
    eb_table_counters_add(&loop->tables, &lookup->plan, lookup->looked_ns);
}

static void count_lookup_ready(const struct eb_lookup *lookup)
{
    struct eb_service_loop *loop = eb_loop_user(lookup->pool->loop);
    if (lookup->refusal != EB_REFUSAL_COUNT && lookup->call && !lookup->call->is_finished) {
        loop->counters->refusals[lookup->refusal]++;
    }
    /* A cancelled lookup may not have been computed. */
    if (lookup->answer && !atomic_load_explicit(&lookup->is_cancelled, memory_order_relaxed)) {
        count_touched(loop, lookup);
    }
}

static void count_answer_gone(const struct eb_outcome *outcome)
{
    struct eb_service_loop *loop = outcome->conn->loop;
    if (outcome->is_of_stream) {
        count_request(loop->counters, outcome->method_index, outcome->status);
    }
    if (outcome->times && !eb_sent_times_add(&loop->sent, outcome->times)) {
        eb_sent_times_settle(&loop->sent, eb_conn_looked_ns(outcome->conn->conn));
        (void)eb_sent_times_add(&loop->sent, outcome->times);
    }
}

/* Returns whether a stream has ended with an error of its own. If not, it ended well, or with the
 * error of its last request or of its connection. */
static bool is_stream_failure(enum eb_status status)
{
    return status != EB_STATUS_OK && status != EB_STATUS_CANCELLED &&
           status != EB_STATUS_UNAVAILABLE;
}

static void count_call_gone(const struct eb_outcome *outcome)
{
    const struct eb_rpc_call *call = outcome->call;
    const struct eb_grpc_call *grpc_call = outcome->grpc_call;
    struct eb_counters *counters = outcome->conn->loop->counters;
    unsigned method = call ? call->method_index : eb_method_find(grpc_call->path).index;
    if (!call || !eb_rpc_call_is_stream(call) || is_stream_failure(outcome->status)) {
        count_request(counters, method, outcome->status);
    }
    /* The message was also malformed if the session itself ends a call with INTERNAL. */
    bool is_malformed = grpc_call->reason || (call && call->is_undecodable);
    counters->undecodable += outcome->status == EB_STATUS_INTERNAL && is_malformed;
    counters->refusals[EB_REFUSAL_MEMORY] += grpc_call->lacked_memory;
}

/* ---- logging ---- */

static uint64_t find_loop_ms(const struct eb_service_loop *loop)
{
    return eb_loop_now_ms(loop->lookups.loop);
}

/* Returns whether a call has ended normally. A client ends a server-streaming call by cancelling
 * it. */
static bool is_good_end(const struct eb_rpc_call *call, enum eb_status status)
{
    return status == EB_STATUS_OK || (status == EB_STATUS_CANCELLED && call &&
                                         call->method->kind == EB_METHOD_SERVER_STREAMING);
}

static const char *find_method_name(const struct eb_grpc_call *call)
{
    return call->path + (call->path[0] == '/');
}

/* Returns the trace of a request: the one that its message names, or else its call's. */
static const struct eb_trace_parent *find_trace(const struct eb_outcome *outcome)
{
    static const struct eb_trace_parent none;
    if (outcome->lookup && outcome->lookup->trace) {
        return outcome->lookup->trace;
    }
    const struct eb_grpc_call *call = outcome->call ? outcome->call->call : outcome->grpc_call;
    return outcome->has_lost_trace ? &none : call->trace;
}

/* Fills in the data that every request has. `peer` is the buffer for the peer's address. */
static struct eb_access_record begin_record(
    const struct eb_outcome *outcome, char peer[EB_ADDRESS_TEXT_BYTES])
{
    struct eb_rpc_call *call = outcome->call;
    const struct eb_grpc_call *grpc_call = call ? call->call : outcome->grpc_call;
    eb_address_format(eb_conn_peer(outcome->conn->conn), peer);
    return (struct eb_access_record){
        .method = find_method_name(grpc_call),
        .peer = peer,
        .principal = call ? eb_auth_call_name(call) : NULL,
        .trace = find_trace(outcome),
        .status = outcome->status,
        .error = outcome->text,
        .is_good = is_good_end(call, outcome->status),
        .is_stream = call && eb_rpc_call_is_stream(call),
        .is_unsent = outcome->subject == EB_OUTCOME_UNSENT,
        .request_id = outcome->request_id,
    };
}

/* Returns whether the access log's mode asks for the request. */
static bool is_outcome_wanted(const struct eb_outcome *outcome, bool is_good)
{
    bool is_sampled = outcome->call && find_trace(outcome)->is_sampled;
    return eb_access_log_wants(&outcome->conn->loop->access_log, is_good, is_sampled);
}

/* Returns whether the rate limit allows one more line. */
static bool is_outcome_admitted(const struct eb_outcome *outcome, bool is_good)
{
    struct eb_service_loop *loop = outcome->conn->loop;
    return eb_access_log_admits(&loop->access_log, is_good, find_loop_ms(loop));
}

/* Returns the number of indices that named no row. Must not be called while the executor has the
 * lookup. */
static uint64_t count_missing_rows(const struct eb_lookup *lookup)
{
    const struct eb_plan *plan = &lookup->plan;
    uint64_t missing = 0;
    for (size_t i = 0; i < plan->result_count; i++) {
        const struct eb_plan_result *result = &plan->results[i];
        for (size_t k = 0; k < result->query_count; k++) {
            missing += plan->jobs[result->query_first + k].missing_count;
        }
    }
    return missing;
}

/* Returns the model's name from the version if there is one, since a request need not name its
 * model. */
static const char *find_model_name(const struct eb_lookup *lookup)
{
    if (lookup->version) {
        return lookup->version->model;
    }
    return lookup->request && lookup->request->model ? lookup->request->model : "";
}

static void describe_lookup(struct eb_access_record *record, const struct eb_lookup *lookup)
{
    const struct eb_plan_counts *counts = &lookup->plan.counts;
    record->is_lookup = true;
    record->model = find_model_name(lookup);
    record->version = lookup->version ? lookup->version->version : 0;
    record->request_id = lookup->request_id;
    record->queries = counts->query_count;
    record->bags = counts->result_rows;
    record->rows = counts->index_count;
    record->missing = lookup->state == EB_LOOKUP_QUEUED ? 0 : count_missing_rows(lookup);
    record->in_bytes = lookup->message.wire_bytes;
    record->out_bytes = lookup->partial_bytes + (lookup->answer ? lookup->answer->size : 0);
    record->value_bytes = record->status == EB_STATUS_OK ? counts->values_bytes : 0;
    record->is_batch = lookup->is_batch;
}

static void describe_times(
    struct eb_access_record *record, const struct eb_lookup *lookup, uint64_t over_ns)
{
    uint64_t begun_ns = lookup->begun_ns != 0 ? lookup->begun_ns : over_ns;
    record->is_timed = true;
    record->total_ns = eb_passed_ns(lookup->arrival_ns, over_ns);
    record->queue_ns = eb_passed_ns(lookup->arrival_ns, begun_ns);
    record->compute_ns = eb_passed_ns(begun_ns, over_ns);
}

static void record_lookup(const struct eb_outcome *outcome, bool is_wanted, bool is_slow)
{
    struct eb_service_loop *loop = outcome->conn->loop;
    bool is_line = is_wanted && is_outcome_admitted(outcome, outcome->status == EB_STATUS_OK);
    char peer[EB_ADDRESS_TEXT_BYTES];
    if (!is_line && !is_slow) {
        return;
    }
    struct eb_access_record record = begin_record(outcome, peer);
    describe_lookup(&record, outcome->lookup);
    describe_times(&record, outcome->lookup, outcome->over_ns);
    if (is_line) {
        eb_access_log_write(&record);
    }
    if (is_slow) {
        eb_slow_list_add(&loop->slow, &record, find_loop_ms(loop));
    }
}

/* Most lookups are neither logged nor slow. That path must stay cheap. */
static void log_lookup(const struct eb_outcome *outcome)
{
    const struct eb_lookup *lookup = outcome->lookup;
    struct eb_rpc_call *call = outcome->call;
    bool is_slow = eb_slow_list_wants(
        &call->conn->loop->slow, eb_passed_ns(lookup->arrival_ns, outcome->over_ns));
    bool is_wanted = is_outcome_wanted(outcome, outcome->status == EB_STATUS_OK);
    /* A unary call is its only request, so the call is not logged a second time. */
    call->is_reported = !eb_rpc_call_is_stream(call) || lookup->is_undecodable;
    if (is_wanted || is_slow) {
        record_lookup(outcome, is_wanted, is_slow);
    }
}

/* Returns when the message of a unary call was complete, even if the peer never ended its
 * request. */
static uint64_t find_message_ns(const struct eb_rpc_call *call)
{
    return call->arrival_ns != 0 ? call->arrival_ns : call->call->message_ms * 1000000;
}

/* Logs a request that is not a lookup, or a call. */
static void log_request(const struct eb_outcome *outcome)
{
    const struct eb_rpc_call *call = outcome->call;
    bool is_good = is_good_end(call, outcome->status);
    if (!is_outcome_wanted(outcome, is_good) || !is_outcome_admitted(outcome, is_good)) {
        return;
    }
    char peer[EB_ADDRESS_TEXT_BYTES];
    struct eb_access_record record = begin_record(outcome, peer);
    if (call && call->call->has_message && outcome->subject != EB_OUTCOME_UNSENT) {
        record.is_timed = true;
        record.total_ns = eb_passed_ns(find_message_ns(call), uv_hrtime());
    }
    eb_access_log_write(&record);
}

/* Returns whether the end of a call must be logged, because it is also that of a request that was
 * not reported. If a stream ends well, or because its connection ends, each of its messages has
 * been answered and reported already. */
static bool is_unreported(const struct eb_outcome *outcome)
{
    const struct eb_rpc_call *call = outcome->call;
    if (!call) {
        return true;
    }
    if (call->is_reported || !eb_rpc_call_is_stream(call)) {
        return !call->is_reported && call->in_flight == 0;
    }
    return outcome->status != EB_STATUS_OK &&
           !(call->is_draining && outcome->status == EB_STATUS_UNAVAILABLE);
}

static void log_call(const struct eb_outcome *outcome)
{
    if (is_unreported(outcome)) {
        if (outcome->call) {
            outcome->call->is_reported = true;
        }
        log_request(outcome);
    }
}

/* ---- reporting ---- */

static void report_ready(const struct eb_outcome *outcome)
{
    switch (outcome->subject) {
    case EB_OUTCOME_LOOKUP:
        assert(outcome->call && outcome->lookup);
        log_lookup(outcome);
        break;
    case EB_OUTCOME_UNSENT:
    case EB_OUTCOME_REQUEST:
        assert(outcome->call || outcome->grpc_call);
        log_request(outcome);
        break;
    case EB_OUTCOME_CALL: log_call(outcome); break;
    }
}

static void report_gone(const struct eb_outcome *outcome)
{
    switch (outcome->subject) {
    case EB_OUTCOME_LOOKUP: count_answer_gone(outcome); break;
    case EB_OUTCOME_UNSENT: break; /* The answer that replaces it is reported. */
    case EB_OUTCOME_REQUEST:
        count_request(outcome->conn->loop->counters, outcome->method_index, outcome->status);
        break;
    case EB_OUTCOME_CALL: count_call_gone(outcome); break;
    }
}

void eb_outcome_report(const struct eb_outcome *outcome, enum eb_outcome_phase phase)
{
    if (phase == EB_OUTCOME_READY) {
        report_ready(outcome);
    } else {
        report_gone(outcome);
    }
}

void eb_outcome_lookup_ready(const struct eb_lookup *lookup)
{
    struct eb_rpc_call *call = lookup->call;
    count_lookup_ready(lookup);
    if (!call) {
        return;
    }
    struct eb_outcome outcome = {.subject = EB_OUTCOME_LOOKUP,
        .conn = call->conn,
        .call = call,
        .lookup = lookup,
        .over_ns = lookup->looked_ns != 0 ? lookup->looked_ns : uv_hrtime()};
    if (lookup->error.status != EB_STATUS_OK) {
        outcome.status = lookup->error.status;
        outcome.text = lookup->error.text;
    } else if (call->is_finished) {
        outcome.status = call->call->status;
        outcome.text = cut_text;
    }
    eb_outcome_report(&outcome, EB_OUTCOME_READY);
}

void eb_outcome_lookup_lost(const struct eb_lookup *lookup)
{
    struct eb_rpc_call *call = lookup->call;
    struct eb_outcome outcome = {.subject = EB_OUTCOME_LOOKUP,
        .status = EB_STATUS_CANCELLED,
        .text = eb_outcome_given_up_text,
        .conn = call->conn,
        .call = call,
        .lookup = lookup,
        .over_ns = uv_hrtime()};
    if (call->call->status != EB_STATUS_OK) {
        outcome.status = call->call->status;
        outcome.text = call->call->reason ? call->call->reason : cut_text;
    }
    eb_outcome_report(&outcome, EB_OUTCOME_READY);
    struct eb_outcome gone = {.subject = EB_OUTCOME_LOOKUP,
        .status = EB_STATUS_CANCELLED,
        .conn = call->conn,
        .method_index = call->method_index,
        .is_of_stream = eb_rpc_call_is_stream(call)};
    eb_outcome_report(&gone, EB_OUTCOME_GONE);
}

/* ---- time ---- */

bool eb_outcome_tick(struct eb_service_loop *loop)
{
    eb_slow_list_age(&loop->slow, find_loop_ms(loop));
    return eb_access_log_report(&loop->access_log, find_loop_ms(loop));
}
