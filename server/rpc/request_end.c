#include "server/rpc/request_end.h"

static const char given_up_text[] = "its client has given it up";

static uint64_t request_now_ms(const struct eb_service_loop *loop)
{
    return eb_loop_now_ms(loop->home.loop);
}

/* Clients end feeds, which would go on for ever, and that is all right. */
static bool is_request_good(const struct eb_rpc_call *call, enum eb_status status)
{
    return status == EB_STATUS_OK ||
           (status == EB_STATUS_CANCELLED && call->method->kind == EB_METHOD_SERVER_STREAMING);
}

static const char *find_request_name(const struct eb_grpc_call *call)
{
    return call->path + (call->path[0] == '/');
}

/* What is known of every request of a call. `peer` has room for its text. */
static struct eb_access_record begin_record(
    struct eb_rpc_call *call, enum eb_status status, char peer[EB_ADDRESS_TEXT_BYTES])
{
    eb_address_format(eb_conn_peer(call->conn->conn), peer);
    return (struct eb_access_record){
        .method = find_request_name(call->call),
        .peer = peer,
        .principal = eb_auth_call_name(call),
        .trace = call->call->trace,
        .status = status,
        .is_good = is_request_good(call, status),
        .is_stream = eb_rpc_call_is_stream(call),
    };
}

static bool is_request_wanted(const struct eb_rpc_call *call, bool is_good_one)
{
    return eb_access_log_wants(
        &call->conn->loop->access_log, is_good_one, call->call->trace->is_sampled);
}

/* Whether there may be a line more of what is wanted. */
static bool is_admitted(const struct eb_rpc_call *call, bool is_good_one)
{
    struct eb_service_loop *loop = call->conn->loop;
    return eb_access_log_admits(&loop->access_log, is_good_one, request_now_ms(loop));
}

/* ---- lookups ---- */

/* Of a lookup that the executor still has this is not known. */
static uint64_t count_request_missing(const struct eb_lookup *lookup)
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

/* The name that the version has: a request need not name its model. */
static const char *find_request_model(const struct eb_lookup *lookup)
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
    record->model = find_request_model(lookup);
    record->version = lookup->version ? lookup->version->version : 0;
    record->request_id = lookup->request_id;
    record->queries = counts->query_count;
    record->bags = counts->result_rows;
    record->rows = counts->index_count;
    record->missing = lookup->state == EB_LOOKUP_QUEUED ? 0 : count_request_missing(lookup);
    record->in_bytes = lookup->message.wire_bytes;
    record->out_bytes = lookup->parts_bytes + (lookup->answer ? lookup->answer->size : 0);
    record->value_bytes = record->status == EB_STATUS_OK ? counts->values_bytes : 0;
    record->is_batch = lookup->is_batch;
}

static void describe_times(
    struct eb_access_record *record, const struct eb_lookup *lookup, uint64_t over_ns)
{
    const uint64_t begun_ns = lookup->begun_ns != 0 ? lookup->begun_ns : over_ns;
    record->is_timed = true;
    record->total_ns = over_ns > lookup->arrival_ns ? over_ns - lookup->arrival_ns : 0;
    record->queue_ns = begun_ns > lookup->arrival_ns ? begun_ns - lookup->arrival_ns : 0;
    record->compute_ns = over_ns > begun_ns ? over_ns - begun_ns : 0;
}

/* How a lookup ended. */
struct end {
    enum eb_status status;
    const char *text; /* NULL: there is nothing to say */
    uint64_t over_ns;
    bool is_wanted; /* in the log */
};

static void record_lookup(const struct eb_lookup *lookup, const struct end *end, bool is_slow)
{
    struct eb_rpc_call *call = lookup->call;
    struct eb_service_loop *loop = call->conn->loop;
    const bool is_line = end->is_wanted && is_admitted(call, end->status == EB_STATUS_OK);
    char peer[EB_ADDRESS_TEXT_BYTES];
    if (!is_line && !is_slow) {
        return;
    }
    struct eb_access_record record = begin_record(call, end->status, peer);
    record.error = end->text;
    describe_lookup(&record, lookup);
    describe_times(&record, lookup, end->over_ns);
    if (is_line) {
        eb_access_log_write(&record);
    }
    if (is_slow) {
        eb_slow_list_add(&loop->slow, &record, request_now_ms(loop));
    }
}

/* Of most lookups nobody wants to know: that is to cost little. */
static void end_lookup(const struct eb_lookup *lookup, struct end *end)
{
    struct eb_rpc_call *call = lookup->call;
    const uint64_t total_ns =
        end->over_ns > lookup->arrival_ns ? end->over_ns - lookup->arrival_ns : 0;
    const bool is_slow = eb_slow_list_wants(&call->conn->loop->slow, total_ns);
    end->is_wanted = is_request_wanted(call, end->status == EB_STATUS_OK);
    /* A request of a unary call is its call, of which nothing more is to be said. */
    call->is_recorded = call->method->kind != EB_METHOD_BIDIRECTIONAL || lookup->undecodable;
    if (end->is_wanted || is_slow) {
        record_lookup(lookup, end, is_slow);
    }
}

/* Of a call that has a status before its lookup is over. */
static const char cut_text[] = "its call ended before its answer was ready";

void eb_request_end_lookup(const struct eb_lookup *lookup)
{
    const struct eb_rpc_call *call = lookup->call;
    if (!call) {
        return;
    }
    struct end end = {.status = EB_STATUS_OK,
        .over_ns = lookup->looked_ns != 0 ? lookup->looked_ns : uv_hrtime()};
    if (lookup->error.status != EB_STATUS_OK) {
        end.status = lookup->error.status;
        end.text = lookup->error.text;
    } else if (call->finished) {
        end.status = call->call->status;
        end.text = cut_text;
    }
    end_lookup(lookup, &end);
}

void eb_request_end_lost(const struct eb_lookup *lookup)
{
    const struct eb_rpc_call *call = lookup->call;
    struct end end = {.status = EB_STATUS_CANCELLED, .text = given_up_text, .over_ns = uv_hrtime()};
    if (call->call->status != EB_STATUS_OK) {
        end.status = call->call->status;
        end.text = call->call->reason ? call->call->reason : cut_text;
    }
    end_lookup(lookup, &end);
}

/* ---- calls ---- */

static void end_request_call(struct eb_rpc_call *call, enum eb_status status, const char *text)
{
    const bool is_good_one = is_request_good(call, status);
    if (!is_request_wanted(call, is_good_one) || !is_admitted(call, is_good_one)) {
        return;
    }
    char peer[EB_ADDRESS_TEXT_BYTES];
    struct eb_access_record record = begin_record(call, status, peer);
    record.error = text;
    record.is_timed = call->has_message;
    record.total_ns = call->has_message ? uv_hrtime() - call->arrival_ns : 0;
    eb_access_log_write(&record);
}

/* Whether a stream's end is that of a request: where all is well, or its connection ends, each has
 * been answered before it. */
static bool is_telling(const struct eb_rpc_call *call, enum eb_status status)
{
    return status != EB_STATUS_OK && !(call->draining && status == EB_STATUS_UNAVAILABLE);
}

void eb_request_end_call(struct eb_rpc_call *call, enum eb_status status, const char *text)
{
    const bool is_request =
        eb_rpc_call_is_stream(call) ? is_telling(call, status) : call->in_flight == 0;
    if (is_request && !call->is_recorded) {
        call->is_recorded = true;
        end_request_call(call, status, text);
    }
}

void eb_request_end_unary(struct eb_rpc_call *call)
{
    if (eb_rpc_call_is_stream(call)) {
        end_request_call(call, EB_STATUS_OK, NULL);
    }
}

void eb_request_end_close(struct eb_rpc_call *call)
{
    const struct eb_grpc_call *grpc_call = call->call;
    if (call->finished) {
        return;
    }
    if (grpc_call->status != EB_STATUS_OK) {
        eb_request_end_call(call, grpc_call->status, grpc_call->reason);
    } else if (!eb_rpc_call_is_stream(call)) {
        eb_request_end_call(call, EB_STATUS_CANCELLED, given_up_text);
    }
}

void eb_request_end_refused(
    struct eb_rpc_conn *conn, const struct eb_grpc_call *grpc_call, const struct eb_error *error)
{
    struct eb_access_log *log = &conn->loop->access_log;
    if (!eb_access_log_wants(log, false, false) ||
        !eb_access_log_admits(log, false, request_now_ms(conn->loop))) {
        return;
    }
    char peer[EB_ADDRESS_TEXT_BYTES];
    eb_address_format(eb_conn_peer(conn->conn), peer);
    const struct eb_access_record record = {.method = find_request_name(grpc_call),
        .peer = peer,
        .trace = grpc_call->trace,
        .status = error->status,
        .error = error->text};
    eb_access_log_write(&record);
}

void eb_request_end_unsent(struct eb_rpc_call *call, uint64_t request_id)
{
    static const char text[] = "the deadline passed before the answer could be sent";
    if (!is_request_wanted(call, false) || !is_admitted(call, false)) {
        return;
    }
    char peer[EB_ADDRESS_TEXT_BYTES];
    struct eb_access_record record = begin_record(call, EB_STATUS_DEADLINE_EXCEEDED, peer);
    record.is_unsent = true;
    record.request_id = request_id;
    record.error = text;
    eb_access_log_write(&record);
}

/* ---- time ---- */

bool eb_request_end_tick(struct eb_service_loop *loop)
{
    eb_slow_list_age(&loop->slow, request_now_ms(loop));
    return eb_access_log_report(&loop->access_log, request_now_ms(loop));
}
