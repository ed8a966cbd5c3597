#include "server/rpc/account.h"

#include "server/rpc/reply.h"
#include "server/rpc/rpc_conn.h"

static void count(struct eb_tally *tally, unsigned method, enum eb_status status, uint64_t requests)
{
    tally->requests[method][status] += requests;
}

void eb_account_open(struct eb_rpc_conn *conn)
{
    conn->loop->account.tally->calls++;
}

void eb_account_refused_call(struct eb_rpc_conn *conn, const struct eb_grpc_call *grpc_call)
{
    const unsigned method = eb_method_find(grpc_call->path).index;
    eb_account_open(conn);
    count(conn->loop->account.tally, method, grpc_call->status, 1);
}

/* Whether a stream's end is one of its own, and not that of its last request, or its connection's.
 */
static bool is_fault(enum eb_status status)
{
    return status != EB_STATUS_OK && status != EB_STATUS_CANCELLED &&
           status != EB_STATUS_UNAVAILABLE;
}

void eb_account_close(struct eb_rpc_conn *conn, const struct eb_grpc_call *grpc_call)
{
    const struct eb_rpc_call *call = grpc_call->user;
    struct eb_tally *tally = conn->loop->account.tally;
    const unsigned method = call ? call->method_index : eb_method_find(grpc_call->path).index;
    const enum eb_status status = eb_grpc_call_outcome(grpc_call);
    const bool is_stream = call && eb_rpc_call_is_stream(call);
    if (is_stream) {
        count(tally, method, EB_STATUS_CANCELLED, call->in_flight);
    }
    if (!is_stream || is_fault(status)) {
        count(tally, method, status, 1);
    }
    /* What the session itself ends so is no message either. */
    const bool is_faulty = grpc_call->reason || (call && call->is_undecodable);
    tally->undecodable += status == EB_STATUS_INTERNAL && is_faulty;
    tally->refusals[EB_REFUSAL_MEMORY] += grpc_call->lacked_memory;
}

void eb_account_request(const struct eb_rpc_call *call, enum eb_status status)
{
    count(call->conn->loop->account.tally, call->method_index, status, 1);
}

void eb_account_refusal(const struct eb_rpc_call *call, enum eb_refusal refusal)
{
    call->conn->loop->account.tally->refusals[refusal]++;
}

static void count_computed(struct eb_service_loop *loop, const struct eb_lookup *lookup)
{
    struct eb_tally *tally = loop->account.tally;
    const struct eb_plan_counts *counts = &lookup->plan.counts;
    tally->queries += counts->query_count;
    tally->bags += counts->result_rows;
    tally->indices += counts->index_count;
    tally->row_bytes += counts->gather_bytes;
    tally->value_bytes += counts->values_bytes;
    tally->inline_lookups += lookup->is_inline;
    eb_table_tally_add(&loop->tables, &lookup->plan, lookup->looked_ns);
}

void eb_account_lookup(const struct eb_lookup *lookup)
{
    struct eb_service_loop *loop = eb_loop_user(lookup->home->loop);
    if (lookup->refusal != EB_REFUSAL_COUNT && lookup->call && !lookup->call->finished) {
        loop->account.tally->refusals[lookup->refusal]++;
    }
    /* What was given up may not have been computed. */
    if (lookup->answer && !atomic_load_explicit(&lookup->cancelled, memory_order_relaxed)) {
        count_computed(loop, lookup);
    }
}

static uint64_t passed_ns(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

void eb_account_settle(struct eb_account *account, uint64_t now_ns)
{
    struct eb_histogram *stages = account->tally->stages;
    for (size_t i = 0; i < account->sent_count; i++) {
        const struct eb_account_times *times = &account->sent[i].times;
        const uint64_t answers = account->sent[i].answers;
        const uint64_t send_ns = passed_ns(times->ended_ns, now_ns);
        const uint64_t total_ns = times->queue_ns + times->compute_ns + send_ns;
        eb_histogram_add_some(&stages[EB_STAGE_QUEUE], times->queue_ns, answers);
        eb_histogram_add_some(&stages[EB_STAGE_COMPUTE], times->compute_ns, answers);
        eb_histogram_add_some(&stages[EB_STAGE_SEND], send_ns, answers);
        eb_histogram_add_some(&stages[EB_STAGE_TOTAL], total_ns, answers);
    }
    account->sent_count = 0;
}

/* Whether the last sample stands for one answer more. */
static bool share_sample(struct eb_account *account)
{
    const size_t count = account->sent_count;
    if (count < EB_ACCOUNT_EACH_MAX || account->sent[count - 1].answers == EB_ACCOUNT_SHARE) {
        return false;
    }
    account->sent[count - 1].answers++;
    return true;
}

static void on_gone(const struct eb_reply_terms *terms, bool has_left)
{
    struct eb_account *account = &terms->conn->loop->account;
    /* What waits when a connection breaks is dropped as if it had been written. */
    const bool is_sent = has_left && !eb_conn_is_ending(terms->conn->conn);
    if (terms->is_of_stream) {
        count(account->tally, terms->method_index, is_sent ? EB_STATUS_OK : EB_STATUS_CANCELLED, 1);
    }
    if (!is_sent || share_sample(account)) {
        return;
    }
    if (account->sent_count == EB_ACCOUNT_SENT_MAX) {
        eb_account_settle(account, eb_conn_looked_ns(terms->conn->conn));
    }
    account->sent[account->sent_count++] = (struct eb_account_sample){terms->times, 1};
}

void eb_account_watch(
    const struct eb_rpc_call *call, const struct eb_lookup *lookup, struct eb_reply_terms *terms)
{
    const uint64_t ended_ns = lookup->looked_ns;
    const uint64_t begun_ns = lookup->begun_ns ? lookup->begun_ns : ended_ns;
    terms->on_gone = on_gone;
    terms->conn = call->conn;
    terms->times = (struct eb_account_times){
        passed_ns(lookup->arrival_ns, begun_ns), passed_ns(begun_ns, ended_ns), ended_ns};
    terms->method_index = call->method_index;
    terms->is_of_stream = eb_rpc_call_is_stream(call);
}
