#include "server/rpc/orca_service.h"

#include "proto/codec_orca.h"
#include "server/base/clock.h"
#include "server/rpc/reply.h"
#include "server/rpc/rpc_call.h"

#include <stdlib.h>

/* One call of StreamCoreMetrics. */
struct eb_orca_stream {
    uint64_t interval_ns;
    struct eb_load_sums
        since; /* the counters at the last report, or at the beginning of the call */
};

/* ---- counting ---- */

/* Adds the lookups of one method that ended. */
static void add_ended(
    const uint64_t ended[EB_COUNTERS_STATUSES], uint64_t *lookups, uint64_t *errors)
{
    for (size_t status = 0; status < EB_COUNTERS_STATUSES; status++) {
        *lookups += ended[status];
        if (status != EB_STATUS_OK && status != EB_STATUS_CANCELLED) {
            *errors += ended[status];
        }
    }
}

void eb_orca_service_publish(struct eb_service_loop *loop)
{
    const struct eb_counters *counters = loop->counters;
    const struct eb_method_table *table;
    uint64_t lookups = 0;
    uint64_t errors = 0;
    size_t index = 0;
    for (size_t i = 0; (table = eb_method_table_at(i)); i++) {
        for (size_t k = 0; k < table->count; k++, index++) {
            if (table->methods[k].codec) {
                add_ended(counters->requests[index], &lookups, &errors);
            }
        }
    }
    struct eb_loop_load *load = &loop->load;
    atomic_store_explicit(&load->busy_ns, counters->lag.sum_ns, memory_order_relaxed);
    atomic_store_explicit(&load->lookups, lookups, memory_order_relaxed);
    atomic_store_explicit(&load->errors, errors, memory_order_relaxed);
}

/* Reads the counters of the process. */
static struct eb_load_sums read_load(
    struct eb_service_loop *loop, const struct eb_executor_stats *executor)
{
    const struct eb_loop_options *options = eb_loop_options(loop->lookups.loop);
    struct eb_load_sums sums = {.taken_ns = uv_hrtime(),
        .cpu_ns = eb_clock_cpu_ns(),
        .executor_busy_ns = executor->busy_ns};
    eb_orca_service_publish(loop);
    for (size_t i = 0; i < options->loop_count; i++) {
        /* No loop ends while a connection of another one is open. */
        const struct eb_service_loop *state = eb_loop_user(options->loops[i]);
        eb_load_sums_add(&sums, &state->load);
    }
    return sums;
}

static void count_executor(const struct eb_service_loop *loop, struct eb_executor_stats *out)
{
    eb_executor_count(loop->lookups.context->executor, out);
}

/* ---- reports ---- */

static double find_queue_share(
    const struct eb_service_loop *loop, const struct eb_executor_stats *executor)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < EB_WORK_PRIORITIES; i++) {
        bytes += executor->queued_bytes[i];
    }
    return (double)bytes / (double)loop->lookups.limits.queue_bytes_max;
}

/* Sends the figures. Returns false if no memory is left for the report. */
static bool send_figures(
    struct eb_rpc_call *call, const struct eb_load_figures *figures, double queue_share)
{
    const struct eb_wire_metric metrics[] = {
        {"loops", figures->loops}, {"executor", figures->executor}, {"queue", queue_share}};
    double busiest = figures->loops > figures->executor ? figures->loops : figures->executor;
    struct eb_wire_load load = {.cpu_utilization = figures->cpu,
        .application_utilization = busiest + queue_share,
        .lookups_per_s = figures->lookups_per_s,
        .errors_per_s = figures->errors_per_s,
        .metric_count = sizeof metrics / sizeof metrics[0],
        .metrics = metrics};
    struct eb_outgoing *message =
        eb_reply_take(eb_loop_answer_pool(eb_rpc_call_loop(call)), eb_orca_report_bytes(&load));
    if (message) {
        eb_orca_report_encode(&load, eb_reply_body(message));
        eb_rpc_call_answer(call, message);
        eb_conn_mark(call->conn->conn);
    }
    return message;
}

/* Sends a report. If it cannot be sent now, the next tick sends it. */
static void report_load(struct eb_rpc_call *call)
{
    struct eb_service_loop *loop = call->conn->loop;
    const struct eb_server_facts *facts = &loop->service->facts;
    struct eb_load_capacity capacity = {facts->cpus, facts->loops, facts->threads};
    struct eb_executor_stats executor;
    count_executor(loop, &executor);
    struct eb_load_sums now = read_load(loop, &executor);
    struct eb_load_figures figures = eb_load_figures_between(&call->orca->since, &now, &capacity);
    if (send_figures(call, &figures, find_queue_share(loop, &executor))) {
        call->orca->since = now;
    }
}

static void report_if_due(struct eb_rpc_call *call)
{
    const struct eb_orca_stream *stream = call->orca;
    if (!stream || call->is_finished ||
        eb_conn_waiting_bytes(call->conn->conn) >= EB_RPC_STREAMING_WAITING_BYTES_MAX) {
        return;
    }
    uint64_t early_ns = stream->interval_ns / EB_ORCA_EARLY_PART;
    if (uv_hrtime() - stream->since.taken_ns >= stream->interval_ns - early_ns) {
        report_load(call);
    }
}

/* ---- beginning and end ---- */

/* Returns NULL with *error set if the call is refused. */
static struct eb_orca_stream *read_orca_request(
    struct eb_rpc_call *call, const struct eb_grpc_message *message, struct eb_error *error)
{
    struct eb_service_loop *loop = call->conn->loop;
    struct eb_orca_stream *stream = NULL;
    uint64_t interval_ms;
    eb_arena_reset(&loop->arena, eb_rpc_conn_limits(call->conn)->response_bytes_max);
    bool is_good =
        eb_orca_request_decode(&loop->arena, message->bytes, message->size, &interval_ms, error);
    eb_arena_reset(&loop->arena, 0);
    if (is_good && call->conn->orca_count == EB_ORCA_STREAMS_MAX) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "this connection has %d streams of load reports already; end one of these calls",
            EB_ORCA_STREAMS_MAX);
    } else if (is_good) {
        stream = calloc(1, sizeof *stream);
        if (!stream) {
            eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; retry later");
            return NULL;
        }
        bool is_short = interval_ms < EB_ORCA_INTERVAL_MS_MIN;
        stream->interval_ns = (is_short ? EB_ORCA_INTERVAL_MS_MIN : interval_ms) * 1000000;
    }
    return stream;
}

static void end_orca_stream(struct eb_rpc_call *call)
{
    eb_rpc_call_finish(call, EB_STATUS_UNAVAILABLE,
        "the server is closing this connection; ask for load reports over another one", 0);
}

static void start_orca_stream(struct eb_rpc_call *call, const struct eb_grpc_message *message)
{
    struct eb_error error;
    struct eb_executor_stats executor;
    struct eb_orca_stream *stream = read_orca_request(call, message, &error);
    if (!stream) {
        eb_rpc_call_refuse(call, &error);
        return;
    }
    count_executor(call->conn->loop, &executor);
    stream->since = read_load(call->conn->loop, &executor);
    call->orca = stream;
    call->conn->orca_count++;
    if (eb_loop_is_draining(eb_rpc_call_loop(call))) {
        end_orca_stream(call);
    }
}

static void forget_orca_stream(struct eb_rpc_call *call)
{
    if (call->orca) {
        call->conn->orca_count--;
        free(call->orca);
        call->orca = NULL;
    }
}

/* ---- methods ---- */

static const struct eb_method methods[] = {
    {"StreamCoreMetrics", EB_METHOD_SERVER_STREAMING, .start = start_orca_stream,
        .on_tick = report_if_due, .on_drain = end_orca_stream, .on_close = forget_orca_stream},
};

const struct eb_method_table eb_orca_service_methods = {
    .service = "xds.service.orca.v3.OpenRcaService",
    .access = EB_METHOD_FOR_ALL,
    .methods = methods,
    .count = sizeof methods / sizeof methods[0],
};
