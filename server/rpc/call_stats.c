#include "server/rpc/call_stats.h"

#include "server/rpc/reply.h"
#include "server/rpc/rpc_conn.h"

static void count(
    struct eb_counters *counters, unsigned method, enum eb_status status, uint64_t requests)
{
    counters->requests[method][status] += requests;
}

void eb_call_stats_open(struct eb_rpc_conn *conn)
{
    conn->loop->call_stats.counters->calls++;
}

void eb_call_stats_refused_call(struct eb_rpc_conn *conn, const struct eb_grpc_call *grpc_call)
{
    const unsigned method = eb_method_find(grpc_call->path).index;
    eb_call_stats_open(conn);
    count(conn->loop->call_stats.counters, method, grpc_call->status, 1);
}

/* Whether a stream's end is one of its own, and not that of its last request, or its connection's.
 */
static bool is_failure(enum eb_status status)
{
    return status != EB_STATUS_OK && status != EB_STATUS_CANCELLED &&
           status != EB_STATUS_UNAVAILABLE;
}

void eb_call_stats_close(struct eb_rpc_conn *conn, const struct eb_grpc_call *grpc_call)
{
    const struct eb_rpc_call *call = grpc_call->user;
    struct eb_counters *counters = conn->loop->call_stats.counters;
    const unsigned method = call ? call->method_index : eb_method_find(grpc_call->path).index;
    const enum eb_status status = eb_grpc_call_outcome(grpc_call);
    const bool is_stream = call && eb_rpc_call_is_stream(call);
    if (is_stream) {
        count(counters, method, EB_STATUS_CANCELLED, call->in_flight);
    }
    if (!is_stream || is_failure(status)) {
        count(counters, method, status, 1);
    }
    /* What the session itself ends so is no message either. */
    const bool is_bad = grpc_call->reason || (call && call->is_undecodable);
    counters->undecodable += status == EB_STATUS_INTERNAL && is_bad;
    counters->refusals[EB_REFUSAL_MEMORY] += grpc_call->lacked_memory;
}

void eb_call_stats_request(const struct eb_rpc_call *call, enum eb_status status)
{
    count(call->conn->loop->call_stats.counters, call->method_index, status, 1);
}

void eb_call_stats_refusal(const struct eb_rpc_call *call, enum eb_refusal refusal)
{
    call->conn->loop->call_stats.counters->refusals[refusal]++;
}

static void count_call_computed(struct eb_service_loop *loop, const struct eb_lookup *lookup)
{
    struct eb_counters *counters = loop->call_stats.counters;
    const struct eb_plan_counts *counts = &lookup->plan.counts;
    counters->queries += counts->query_count;
    counters->bags += counts->result_rows;
    counters->indices += counts->index_count;
    counters->row_bytes += counts->gather_bytes;
    counters->value_bytes += counts->values_bytes;
    counters->inline_lookups += lookup->is_inline;
    eb_table_counters_add(&loop->tables, &lookup->plan, lookup->looked_ns);
}

void eb_call_stats_lookup(const struct eb_lookup *lookup)
{
    struct eb_service_loop *loop = eb_loop_user(lookup->home->loop);
    if (lookup->refusal != EB_REFUSAL_COUNT && lookup->call && !lookup->call->finished) {
        loop->call_stats.counters->refusals[lookup->refusal]++;
    }
    /* What was given up may not have been computed. */
    if (lookup->answer && !atomic_load_explicit(&lookup->cancelled, memory_order_relaxed)) {
        count_call_computed(loop, lookup);
    }
}

static uint64_t passed_ns(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

void eb_call_stats_settle(struct eb_call_stats *call_stats, uint64_t now_ns)
{
    struct eb_histogram *stages = call_stats->counters->stages;
    for (size_t i = 0; i < call_stats->sent_count; i++) {
        const struct eb_call_stats_times *times = &call_stats->sent[i].times;
        const uint64_t answers = call_stats->sent[i].answers;
        const uint64_t send_ns = passed_ns(times->ended_ns, now_ns);
        const uint64_t total_ns = times->queue_ns + times->compute_ns + send_ns;
        eb_histogram_add_some(&stages[EB_STAGE_QUEUE], times->queue_ns, answers);
        eb_histogram_add_some(&stages[EB_STAGE_COMPUTE], times->compute_ns, answers);
        eb_histogram_add_some(&stages[EB_STAGE_SEND], send_ns, answers);
        eb_histogram_add_some(&stages[EB_STAGE_TOTAL], total_ns, answers);
    }
    call_stats->sent_count = 0;
}

/* Whether the last sample stands for one answer more. */
static bool share_sample(struct eb_call_stats *call_stats)
{
    const size_t count = call_stats->sent_count;
    if (count < EB_CALL_STATS_EACH_MAX ||
        call_stats->sent[count - 1].answers == EB_CALL_STATS_SHARE) {
        return false;
    }
    call_stats->sent[count - 1].answers++;
    return true;
}

static void on_gone(const struct eb_reply_terms *terms, bool has_left)
{
    struct eb_call_stats *call_stats = &terms->conn->loop->call_stats;
    /* What waits when a connection breaks is dropped as if it had been written. */
    const bool is_sent = has_left && !eb_conn_is_ending(terms->conn->conn);
    if (terms->is_of_stream) {
        count(call_stats->counters, terms->method_index,
            is_sent ? EB_STATUS_OK : EB_STATUS_CANCELLED, 1);
    }
    if (!is_sent || share_sample(call_stats)) {
        return;
    }
    if (call_stats->sent_count == EB_CALL_STATS_SENT_MAX) {
        eb_call_stats_settle(call_stats, eb_conn_looked_ns(terms->conn->conn));
    }
    call_stats->sent[call_stats->sent_count++] = (struct eb_call_stats_sample){terms->times, 1};
}

void eb_call_stats_watch(
    const struct eb_rpc_call *call, const struct eb_lookup *lookup, struct eb_reply_terms *terms)
{
    const uint64_t ended_ns = lookup->looked_ns;
    const uint64_t begun_ns = lookup->begun_ns ? lookup->begun_ns : ended_ns;
    terms->on_gone = on_gone;
    terms->conn = call->conn;
    terms->times = (struct eb_call_stats_times){
        passed_ns(lookup->arrival_ns, begun_ns), passed_ns(begun_ns, ended_ns), ended_ns};
    terms->method_index = call->method_index;
    terms->is_of_stream = eb_rpc_call_is_stream(call);
}
