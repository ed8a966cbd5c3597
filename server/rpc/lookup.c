#include "server/rpc/lookup.h"

#include "server/rpc/auth_call.h"
#include "server/rpc/backpressure.h"
#include "server/rpc/catalogue.h"
#include "server/rpc/model_choice.h"
#include "server/rpc/outcome.h"
#include "server/rpc/remote.h"
#include "server/rpc/reply.h"
#include "server/rpc/rpc_call.h"
#include "server/rpc/watch_service.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* Most idle lookups that a loop keeps, each with the first block of its arena. */
#define IDLE_LOOKUPS_MAX 64

/* Bytes that planning and answering one query takes from the arena, in addition to decoding. */
#define PLAN_BYTES_PER_QUERY 2376

static_assert(EB_PLAN_QUERY_BYTES + sizeof(struct eb_partial_answer) +
                      sizeof(struct eb_wire_result) + (EB_TENSOR_RANK_MAX + 2) * sizeof(uint64_t) +
                      sizeof(uint8_t *) + 128 <=
                  PLAN_BYTES_PER_QUERY,
    "a query's share of the arena must hold its plan and the description of its result");

/* Rough speed of one thread, to decide where a lookup is computed. Numbers per microsecond: of
 * bytes gathered from memory, of bytes written (empty bags gather nothing) and of bags
 * processed. */
#define GATHER_BYTES_PER_US 8192
#define WRITE_BYTES_PER_US 32768
#define BAGS_PER_US 32

/* Size from which reading a message takes so long that its deadline is checked before the request
 * is. */
#define SLOW_MESSAGE_BYTES 4096

/* ---- the pool ---- */

/* Returns a lookup in state READING, or NULL if out of memory. */
static struct eb_lookup *take_lookup(struct eb_rpc_call *call)
{
    struct eb_lookup_pool *pool = &call->conn->loop->lookups;
    struct eb_list *link = eb_list_pop(&pool->idle);
    struct eb_lookup *lookup;
    if (link) {
        lookup = EB_CONTAINER_OF(link, struct eb_lookup, link);
        pool->idle_count--;
    } else {
        lookup = malloc(sizeof *lookup);
        if (!lookup) {
            return NULL;
        }
        eb_arena_init(&lookup->arena, &pool->answer_memory);
        eb_arena_init(&lookup->remote_arena, &pool->answer_memory);
    }
    memset(lookup, 0, offsetof(struct eb_lookup, error));
    eb_list_init(&lookup->link);
    eb_list_init(&lookup->given_up);
    lookup->error.status = EB_STATUS_OK;
    lookup->pool = pool;
    lookup->codec = call->method->codec;
    lookup->message_memory = eb_conn_receive_memory(call->conn->conn);
    lookup->refusal = EB_REFUSAL_COUNT;
    lookup->state = EB_LOOKUP_READING;
    return lookup;
}

static void free_lookup(struct eb_lookup *lookup)
{
    eb_arena_deinit(&lookup->arena);
    eb_arena_deinit(&lookup->remote_arena);
    free(lookup);
}

static void drop_answers(struct eb_lookup *lookup)
{
    for (size_t i = 0; i < lookup->partial_count; i++) {
        if (lookup->partials[i].answer) {
            eb_outgoing_drop(lookup->partials[i].answer);
            lookup->partials[i].answer = NULL;
        }
    }
    if (lookup->answer) {
        eb_outgoing_drop(lookup->answer);
        lookup->answer = NULL;
    }
}

/* Gives back the data that is only needed until the values are computed. */
static void give_inputs(struct eb_lookup *lookup)
{
    eb_plan_deinit(&lookup->plan);
    eb_grpc_message_give(lookup->message_memory, &lookup->message);
    if (lookup->version) {
        eb_model_version_give(lookup->version);
        lookup->version = NULL;
    }
    if (lookup->remote) {
        eb_remote_free(lookup);
    }
    eb_arena_reset(&lookup->arena, 0);
    eb_arena_reset(&lookup->remote_arena, 0);
}

/* Gives back everything that a lookup holds, then the lookup. It must not be QUEUED. */
static void give_lookup(struct eb_lookup *lookup)
{
    struct eb_lookup_pool *pool = lookup->pool;
    assert(lookup->state != EB_LOOKUP_QUEUED && lookup->state != EB_LOOKUP_REMOTE &&
           lookup->state != EB_LOOKUP_IDLE);
    if (lookup->state != EB_LOOKUP_REPLYING) { /* A lookup that was run has given them back. */
        give_inputs(lookup);
    }
    drop_answers(lookup);
    if (pool->idle_count == IDLE_LOOKUPS_MAX) {
        free_lookup(lookup);
        return;
    }
    lookup->state = EB_LOOKUP_IDLE;
    /* Reuse the last one first, because its memory is in the caches. */
    eb_list_push_front(&pool->idle, &lookup->link);
    pool->idle_count++;
}

static bool lay_out_all(struct eb_lookup *lookup, bool is_small);
static void on_remote_over(struct eb_lookup *lookup);

void eb_lookup_pool_init(struct eb_lookup_pool *pool, const struct eb_lookup_context *context,
    struct eb_loop *loop, struct eb_snapshot *snapshot)
{
    *pool = (struct eb_lookup_pool){.context = context,
        .loop = loop,
        .snapshot = snapshot,
        .answer_memory = eb_buffer_pool_memory(eb_loop_answer_pool(loop))};
    eb_list_init(&pool->idle);
    eb_list_init(&pool->given_up);
    pool->lay_out = lay_out_all;
    pool->on_remote_over = on_remote_over;
}

void eb_lookup_pool_deinit(struct eb_lookup_pool *pool)
{
    assert(pool->queued_count == 0 && pool->queued_batch_count == 0);
    struct eb_list *link;
    while ((link = eb_list_pop(&pool->idle))) {
        free_lookup(EB_CONTAINER_OF(link, struct eb_lookup, link));
    }
    eb_feature_memo_deinit(&pool->memo);
}

/* ---- reading and checking ---- */

/* If a lookup failed for lack of memory, notes that. Only for a lookup that fails before it is
 * handed to the executor: until then nothing else takes from the answer memory, so any new refusal
 * of that memory concerns this lookup. */
static void note_shortage(struct eb_lookup *lookup)
{
    if (lookup->error.status == EB_STATUS_RESOURCE_EXHAUSTED &&
        lookup->refusal == EB_REFUSAL_COUNT &&
        eb_lookup_pool_shortages(lookup->pool) != lookup->shortages) {
        lookup->refusal = EB_REFUSAL_MEMORY;
        lookup->pushback_ms = eb_executor_retry_after_ms(lookup->pool->context->executor);
    }
}

/* Notes the trace that the request names in its message. An invalid one is ignored, as in a header:
 * tracing must not make a lookup fail. */
static void read_trace(struct eb_lookup *lookup, const char *text, size_t text_bytes)
{
    if (text_bytes > 0 && eb_trace_parent_parse(text, text_bytes, &lookup->own_trace)) {
        lookup->trace = &lookup->own_trace;
    }
}

/* Reads the request. Takes `message`, which arrived at `arrival_ns`. The lookup's deadline is the
 * earliest of three: `deadline_ns`, which is the call's; the request's own timeout_us; and the
 * longest time that is allowed. Returns false with lookup->error (and is_undecodable) set.
 * request_id and is_withdrawal are set if they could be decoded. */
static bool read_lookup(struct eb_lookup *lookup, struct eb_grpc_message message,
    uint64_t arrival_ns, uint64_t deadline_ns)
{
    const struct eb_limits *limits = &lookup->pool->limits;
    const struct eb_feature_memo *memo = &lookup->pool->memo;
    struct eb_codec_limits caps = {.queries_max = (uint32_t)limits->queries_max,
        .name_bytes_max = (uint32_t)limits->name_bytes_max,
        .known = memo->lists,
        .known_count = memo->count};
    struct eb_decode_failure failure;
    lookup->shortages = eb_lookup_pool_shortages(lookup->pool);
    lookup->message = message;
    lookup->arrival_ns = arrival_ns;
    lookup->deadline_ns = lookup->arrival_ns + limits->deadline_max_ms * 1000000;
    eb_arena_reset(&lookup->arena, eb_lookup_request_arena_bytes(message.size, &caps) +
                                       limits->queries_max * PLAN_BYTES_PER_QUERY);
    lookup->request = lookup->codec->read(lookup, &caps, &failure);
    if (!lookup->request) {
        lookup->error = failure.error;
        lookup->request_id = failure.request_id;
        lookup->is_withdrawal = failure.cancel;
        lookup->is_undecodable = failure.undecodable;
        read_trace(lookup, failure.traceparent, failure.traceparent_bytes);
        note_shortage(lookup);
        return false;
    }
    lookup->request_id = lookup->request->request_id;
    lookup->is_withdrawal = lookup->request->cancel;
    lookup->is_batch = lookup->request->priority != 0;
    read_trace(lookup, lookup->request->traceparent, lookup->request->traceparent_bytes);
    uint64_t timeout_us = lookup->request->timeout_us;
    if (timeout_us != 0 && timeout_us <= limits->deadline_max_ms * 1000) {
        lookup->deadline_ns = lookup->arrival_ns + timeout_us * 1000;
    }
    if (deadline_ns < lookup->deadline_ns) {
        lookup->deadline_ns = deadline_ns;
    }
    return true;
}

static bool take_version(struct eb_lookup *lookup)
{
    struct eb_model_choice choice = {
        .snapshot = lookup->pool->snapshot,
        .caller = lookup->caller,
        .right = EB_MODEL_RIGHT_LOOK_UP,
        .model = lookup->request->model,
        .label = lookup->request->version_label,
        .version = lookup->request->version,
        .is_router = lookup->pool->legs,
    };
    const struct eb_snapshot_model *model = eb_model_choice_find(&choice, &lookup->error);
    struct eb_model_version *version =
        model ? eb_model_choice_find_version(&choice, model, &lookup->error) : NULL;
    lookup->version = version ? eb_model_version_take(version) : NULL;
    bool has_label = choice.label && choice.label[0] != '\0';
    if (version && choice.version != 0 && !has_label) {
        eb_model_version_note_named(version, lookup->arrival_ns);
    }
    return version;
}

static bool check_lookup(struct eb_lookup *lookup)
{
    if (!take_version(lookup) || (lookup->codec->resolve && !lookup->codec->resolve(lookup))) {
        return false;
    }
    struct eb_plan *plan = &lookup->plan;
    plan->request = lookup->request;
    plan->version = lookup->version;
    plan->limits = &lookup->pool->limits;
    plan->ops = lookup->pool->context->ops;
    plan->may_name_part = lookup->caller->is_router;
    plan->arena = &lookup->arena;
    plan->pool = eb_loop_answer_pool(lookup->pool->loop);
    plan->memo = &lookup->pool->memo;
    return eb_plan_check(plan, &lookup->error);
}

/* ---- layout ---- */

/* Returns the bytes that jobs [first, first + count) read and write. */
static uint64_t weigh_jobs(const struct eb_plan *plan, size_t first, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = first; i < first + count; i++) {
        const struct eb_bag_job *job = &plan->jobs[i];
        bytes += job->gather_bytes + job->bag_count * plan->queries[i].result_row_bytes;
    }
    return bytes;
}

/* Lays out a zeroed partial answer with results [first, first + count). Their jobs, which follow
 * one another, become its work item. Returns false with lookup->error set. */
static bool lay_out_answer(
    struct eb_lookup *lookup, struct eb_partial_answer *partial, size_t first, size_t count)
{
    struct eb_plan *plan = &lookup->plan;
    const struct eb_plan_result *results = plan->results + first;
    partial->lookup = lookup;
    partial->work.jobs = plan->jobs;
    if (count > 0) {
        const struct eb_plan_result *last = &results[count - 1];
        partial->work.jobs += results->query_first;
        partial->work.job_count = last->query_first + last->query_count - results->query_first;
    }
    partial->answer = eb_plan_answer(plan, first, count, &lookup->error);
    lookup->partial_count++;
    return partial->answer;
}

/* Returns how many results, beginning with `first`, go into one partial answer. They are enough to
 * fill a tile, since each partial answer costs a pass through the queue and a message. */
static size_t count_together(const struct eb_plan *plan, size_t first)
{
    size_t end = first;
    uint64_t bytes = 0;
    while (end < plan->result_count && bytes < EB_WORK_TILE_BYTES) {
        const struct eb_plan_result *result = &plan->results[end];
        bytes += weigh_jobs(plan, result->query_first, result->query_count);
        end++;
    }
    return end - first;
}

/* Returns whether the answer memory that is taken, the lookup's answer included, is within the
 * connection's share. If not, sets lookup->error. */
static bool check_share(struct eb_lookup *lookup)
{
    struct eb_buffer_pool *pool = eb_loop_answer_pool(lookup->pool->loop);
    if (pool->taken_bytes <= lookup->taken_bytes_max) {
        return true;
    }
    pool->refusals++;
    eb_error_set(&lookup->error, EB_STATUS_RESOURCE_EXHAUSTED,
        "the request and its answer need %llu bytes more than this connection may now use of the "
        "memory left (answer_memory_bytes); send less at once or retry later",
        (unsigned long long)(pool->taken_bytes - lookup->taken_bytes_max));
    return false;
}

/* Lays out the answer. Lays out partial answers if they are requested and there would be more than
 * one. */
static bool lay_out_all(struct eb_lookup *lookup, bool is_small)
{
    const struct eb_plan *plan = &lookup->plan;
    bool is_partial = lookup->request->partial && lookup->may_be_partial && !is_small &&
                      count_together(plan, 0) < plan->result_count;
    lookup->partials = &lookup->whole;
    if (!is_partial) {
        return lay_out_answer(lookup, &lookup->whole, 0, plan->result_count) && check_share(lookup);
    }
    lookup->partials = eb_arena_take(&lookup->arena, plan->result_count * sizeof *lookup->partials);
    if (!lookup->partials) {
        return eb_plan_refuse_memory(&lookup->error, "the answer's parts");
    }
    memset(lookup->partials, 0, plan->result_count * sizeof *lookup->partials);
    bool is_good = true;
    for (size_t first = 0; first < plan->result_count && is_good;) {
        size_t count = count_together(plan, first);
        is_good = lay_out_answer(lookup, &lookup->partials[lookup->partial_count], first, count);
        first += count;
    }
    return is_good && check_share(lookup);
}

/* ---- answers ---- */

static uint32_t passed_us(uint64_t from_ns, uint64_t to_ns)
{
    uint64_t us = eb_passed_ns(from_ns, to_ns) / 1000;
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

/* Writes into an answer how long its lookup has taken. */
static void note_times(const struct eb_lookup *lookup, struct eb_outgoing *answer, uint64_t now_ns)
{
    uint64_t begun_ns = lookup->begun_ns ? lookup->begun_ns : now_ns;
    if (lookup->codec->set_times) {
        lookup->codec->set_times(eb_reply_body(answer), passed_us(lookup->arrival_ns, begun_ns),
            passed_us(begun_ns, now_ns));
    }
}

static const char unsent_text[] = "the deadline passed before the answer could be sent";
static const char no_memory_text[] =
    "no memory left for an answer (answer_memory_bytes); retry later";

/* Makes an answer without results. Returns NULL if out of memory. */
static struct eb_outgoing *make_error_answer(
    const struct eb_rpc_call *call, const struct eb_wire_response *response)
{
    struct eb_outgoing *made = eb_reply_take(
        eb_loop_answer_pool(eb_rpc_call_loop(call)), eb_lookup_response_bytes(response));
    if (made) {
        eb_lookup_response_encode(response, eb_reply_body(made), NULL);
    }
    return made;
}

/* Reports that a request of a stream is over. Only for answers that do not call on_answer_gone. */
static void report_stream_answer(struct eb_rpc_call *call, enum eb_status status)
{
    struct eb_outcome outcome = {.subject = EB_OUTCOME_LOOKUP,
        .status = status,
        .conn = call->conn,
        .method_index = call->method_index,
        .is_of_stream = true};
    eb_outcome_report(&outcome, EB_OUTCOME_GONE);
}

static void answer_stream_error(struct eb_rpc_call *call, const struct eb_lookup *lookup)
{
    struct eb_wire_response response = {
        .request_id = lookup->request_id,
        .model = "",
        .error_code = (uint32_t)lookup->error.status,
        .error_message = lookup->error.text,
        .retry_after_ms = lookup->pushback_ms,
        .more = lookup->is_repeated, /* The answer of the other request follows. */
    };
    struct eb_outgoing *made = make_error_answer(call, &response);
    if (made) {
        report_stream_answer(call, lookup->error.status);
        eb_rpc_call_answer(call, made);
    } else {
        if (lookup->refusal == EB_REFUSAL_COUNT) {
            eb_outcome_count_refusal(call->conn, EB_REFUSAL_MEMORY);
        }
        eb_rpc_call_finish(call, EB_STATUS_RESOURCE_EXHAUSTED, no_memory_text, 0);
    }
}

/* Makes the answer that replaces one whose deadline has passed while it waited to be sent. Returns
 * NULL if none is sent. */
static struct eb_outgoing *answer_late(
    struct eb_rpc_call *call, struct eb_grpc_call *grpc_call, const struct eb_reply_terms *terms)
{
    struct eb_wire_response response = {
        .request_id = terms->request_id,
        .model = "",
        .error_code = EB_STATUS_DEADLINE_EXCEEDED,
        .error_message = unsent_text,
    };
    if (!eb_rpc_call_is_stream(call)) {
        eb_grpc_call_restate(grpc_call, EB_STATUS_DEADLINE_EXCEEDED, unsent_text);
        return NULL;
    }
    if (terms->has_more) {
        return NULL; /* The last answer carries the error. */
    }
    struct eb_outgoing *made = make_error_answer(call, &response);
    if (made) {
        report_stream_answer(call, EB_STATUS_DEADLINE_EXCEEDED);
        eb_reply_charge(made, &call->conn->answer_bytes);
    } else {
        eb_rpc_call_finish(call, EB_STATUS_RESOURCE_EXHAUSTED, no_memory_text, 0);
        eb_grpc_call_restate(grpc_call, EB_STATUS_RESOURCE_EXHAUSTED, no_memory_text);
    }
    return made;
}

/* Reports an answer that was ready in time and whose deadline passed while it waited to be sent. */
static void report_unsent(struct eb_rpc_call *call, const struct eb_reply_terms *terms)
{
    struct eb_outcome outcome = {.subject = EB_OUTCOME_UNSENT,
        .status = EB_STATUS_DEADLINE_EXCEEDED,
        .text = unsent_text,
        .conn = call->conn,
        .call = call,
        .request_id = terms->request_id,
        .has_lost_trace = terms->has_own_trace};
    eb_outcome_count_refusal(call->conn, EB_REFUSAL_EXPIRED_UNSENT);
    eb_outcome_report(&outcome, EB_OUTCOME_READY);
}

struct eb_outgoing *eb_lookup_drop_if_expired(
    void *context, struct eb_grpc_call *grpc_call, struct eb_outgoing *message)
{
    if (eb_conn_looked_ns(context) < eb_reply_find_terms(message)->deadline_ns) {
        return message;
    }
    struct eb_reply_terms terms = *eb_reply_find_terms(message);
    if (!terms.has_more) {
        report_unsent(grpc_call->user, &terms);
    }
    eb_reply_drop(message);
    return answer_late(grpc_call->user, grpc_call, &terms);
}

/* Reports that the last answer to a request was sent or dropped. */
static void on_answer_gone(const struct eb_reply_terms *terms, bool has_left)
{
    /* When a connection breaks, unsent answers are dropped as if they had been written. */
    bool is_sent = has_left && !eb_conn_is_ending(terms->conn->conn);
    struct eb_outcome outcome = {.subject = EB_OUTCOME_LOOKUP,
        .status = is_sent ? EB_STATUS_OK : EB_STATUS_CANCELLED,
        .conn = terms->conn,
        .method_index = terms->method_index,
        .is_of_stream = terms->is_of_stream,
        .times = is_sent ? &terms->times : NULL};
    eb_outcome_report(&outcome, EB_OUTCOME_GONE);
}

/* Makes the lookup's last answer call on_answer_gone. */
static void watch_answer(
    struct eb_rpc_call *call, const struct eb_lookup *lookup, struct eb_reply_terms *terms)
{
    uint64_t ended_ns = lookup->looked_ns;
    uint64_t begun_ns = lookup->begun_ns ? lookup->begun_ns : ended_ns;
    terms->on_gone = on_answer_gone;
    terms->conn = call->conn;
    terms->times = (struct eb_answer_times){
        eb_passed_ns(lookup->arrival_ns, begun_ns), eb_passed_ns(begun_ns, ended_ns), ended_ns};
    terms->method_index = call->method_index;
    terms->is_of_stream = eb_rpc_call_is_stream(call);
}

/* Sends a lookup's answer or partial answer. */
static void send_result(struct eb_rpc_call *call, const struct eb_lookup *lookup,
    struct eb_outgoing *message, bool has_more)
{
    struct eb_reply_terms terms = {.deadline_ns = lookup->deadline_ns,
        .request_id = lookup->request_id,
        .has_more = has_more,
        .has_own_trace = lookup->trace};
    if (!has_more) {
        watch_answer(call, lookup, &terms);
    }
    eb_reply_set_terms(message, &terms);
    eb_rpc_call_answer(call, message);
}

static void answer_lookup(struct eb_rpc_call *call, struct eb_lookup *lookup)
{
    if (lookup->answer) {
        send_result(call, lookup, lookup->answer, false);
        lookup->answer = NULL;
        if (!eb_rpc_call_is_stream(call)) {
            eb_rpc_call_finish(call, EB_STATUS_OK, NULL, 0);
        }
    } else if (!eb_rpc_call_is_stream(call) || lookup->is_undecodable) {
        call->is_undecodable |= lookup->is_undecodable;
        eb_rpc_call_finish(call, lookup->error.status, lookup->error.text, lookup->pushback_ms);
    } else {
        answer_stream_error(call, lookup);
    }
    eb_conn_mark(call->conn->conn);
}

/* Answers a lookup that is over and gives back everything that it holds. */
static void end_lookup(struct eb_lookup *lookup)
{
    struct eb_rpc_call *call = lookup->call;
    eb_rpc_conn_unlink(lookup);
    if (call) {
        answer_lookup(call, lookup);
        eb_rpc_call_finish_if_over(call);
    }
    give_lookup(lookup);
}

static void send_partial(struct eb_lookup *lookup, struct eb_outgoing *partial)
{
    struct eb_rpc_call *call = lookup->call;
    eb_rpc_conn_drop(lookup, eb_reply_held_bytes(partial));
    if (!call || call->is_finished) {
        eb_outgoing_drop(partial);
        return;
    }
    send_result(call, lookup, partial, true);
    eb_conn_mark(call->conn->conn);
}

/* ---- computing ---- */

/* Completes a lookup with an error or an answer, and reports the lookup. */
static void conclude_lookup(struct eb_lookup *lookup)
{
    uint64_t now_ns = uv_hrtime();
    lookup->looked_ns = now_ns;
    if (lookup->error.status == EB_STATUS_OK && now_ns >= lookup->deadline_ns) {
        lookup->refusal = EB_REFUSAL_EXPIRED_UNSENT;
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed before the answer was ready");
    }
    if (lookup->error.status != EB_STATUS_OK) {
        drop_answers(lookup);
    } else {
        note_times(lookup, lookup->answer, now_ns);
    }
    lookup->state = EB_LOOKUP_REPLYING;
    eb_outcome_lookup_ready(lookup);
    lookup->partial_count = 0;
    give_inputs(lookup);
}

/* Sends a partial answer that is not the last. Drops it if the lookup has failed, because the peer
 * has no use for it then. */
static void give_partial(struct eb_lookup *lookup, struct eb_outgoing *answer)
{
    uint64_t now_ns = uv_hrtime();
    if (lookup->error.status != EB_STATUS_OK || now_ns >= lookup->deadline_ns) {
        eb_outgoing_drop(answer);
        return;
    }
    note_times(lookup, answer, now_ns);
    lookup->partial_bytes += answer->size;
    send_partial(lookup, answer);
}

static uint64_t *count_queued(const struct eb_lookup *lookup)
{
    struct eb_lookup_pool *pool = lookup->pool;
    return lookup->is_batch ? &pool->queued_batch_count : &pool->queued_count;
}

/* Ends a lookup that the executor had. Marks its connection, so that calls that wait for the
 * connection are resumed after the write. */
static void finish_queued(struct eb_lookup *lookup)
{
    if (lookup->conn) {
        eb_conn_mark(lookup->conn->conn);
    }
    end_lookup(lookup);
}

static void on_lookup_back(struct eb_mail *mail)
{
    struct eb_partial_answer *partial = EB_CONTAINER_OF(mail, struct eb_partial_answer, mail);
    struct eb_lookup *lookup = partial->lookup;
    struct eb_lookup_pool *pool = lookup->pool;
    struct eb_outgoing *answer = partial->answer;
    partial->answer = NULL;
    lookup->open_partial_count--;
    if (lookup->remote) {
        eb_remote_complete(lookup, &partial->work);
    }
    *count_queued(lookup) -= 1;
    uint64_t begun_ns = partial->work.begun_ns;
    if (begun_ns != 0 && (lookup->begun_ns == 0 || begun_ns < lookup->begun_ns)) {
        lookup->begun_ns = begun_ns;
    }
    if (partial->outcome == EB_WORK_EXPIRED && lookup->error.status == EB_STATUS_OK) {
        lookup->refusal = EB_REFUSAL_EXPIRED;
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed while the request was queued");
    }
    if (lookup->open_partial_count > 0) {
        give_partial(lookup, answer);
    } else {
        if (lookup->partial_count > 1) {
            eb_lookup_response_set_last(eb_reply_body(answer));
        }
        lookup->answer = answer;
        conclude_lookup(lookup);
        finish_queued(lookup);
    }
    eb_loop_release(pool->loop);
}

/* Runs on a thread of the executor. */
static void on_work_done(struct eb_work *work, enum eb_work_outcome outcome)
{
    struct eb_partial_answer *partial = EB_CONTAINER_OF(work, struct eb_partial_answer, work);
    partial->outcome = outcome;
    partial->mail.deliver = on_lookup_back;
    eb_mailbox_post(eb_loop_mailbox(partial->lookup->pool->loop), &partial->mail);
}

static bool is_small(const struct eb_lookup *lookup)
{
    const struct eb_plan *plan = &lookup->plan;
    uint64_t gather_bytes =
        plan->counts.gather_bytes * eb_bag_ops_slowness(lookup->pool->context->ops);
    uint64_t work_us = gather_bytes / GATHER_BYTES_PER_US +
                       plan->counts.values_bytes / WRITE_BYTES_PER_US +
                       plan->counts.result_rows / BAGS_PER_US;
    return lookup->pool->queued_count == 0 && !lookup->is_batch &&
           work_us < lookup->pool->limits.inline_below_us;
}

static bool refuse_lookup(
    struct eb_lookup *lookup, enum eb_admit admit, const struct eb_admission *admission)
{
    lookup->pushback_ms = admission->retry_after_ms;
    lookup->refusal = admit == EB_ADMIT_LATE ? EB_REFUSAL_LATE : EB_REFUSAL_QUEUE_FULL;
    if (admit == EB_ADMIT_LATE) {
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline cannot be met because of the requests queued before; retry in %u ms",
            lookup->pushback_ms);
    } else {
        eb_error_set(&lookup->error, EB_STATUS_RESOURCE_EXHAUSTED,
            "the queue is full (queue_bytes_max); retry in %u ms", lookup->pushback_ms);
    }
    return false;
}

/* Hands all work items to the executor. Returns false with lookup->error set if it refuses them. */
static bool submit_works(struct eb_lookup *lookup)
{
    struct eb_lookup_pool *pool = lookup->pool;
    size_t count = lookup->partial_count;
    struct eb_admission admission;
    bool is_repeated =
        lookup->request->attempt > 0 || (lookup->call && lookup->call->call->is_repeated);
    struct eb_work **works = eb_arena_take(&lookup->arena, count * sizeof(struct eb_work *));
    if (!works) {
        return eb_plan_refuse_memory(&lookup->error, "the answer's parts");
    }
    for (size_t i = 0; i < count; i++) {
        works[i] = &lookup->partials[i].work;
        works[i]->weight_bytes = weigh_jobs(
            &lookup->plan, (size_t)(works[i]->jobs - lookup->plan.jobs), works[i]->job_count);
        works[i]->deadline_ns = lookup->deadline_ns;
        works[i]->cancelled = &lookup->is_cancelled;
        works[i]->priority = lookup->request->priority;
        works[i]->is_repeated = is_repeated;
        works[i]->source = lookup->conn;
        works[i]->on_done = on_work_done;
    }
    enum eb_admit admit = eb_executor_admit(pool->context->executor, works, count, &admission);
    if (admit != EB_ADMIT_TAKEN) {
        return refuse_lookup(lookup, admit, &admission);
    }
    /* Other threads may have completed items already. But the mails that say so are delivered to
     * this thread, which cannot happen before this function returns. */
    lookup->state = EB_LOOKUP_QUEUED;
    lookup->open_partial_count = count;
    *count_queued(lookup) += count;
    for (size_t i = 0; i < count; i++) {
        eb_loop_hold(pool->loop);
    }
    return true;
}

/* Computes the whole lookup on this thread. */
static void compute_inline(struct eb_lookup *lookup, uint64_t now_ns)
{
    const struct eb_lookup_context *context = lookup->pool->context;
    const struct eb_work *work = &lookup->whole.work;
    struct eb_bag_stream stream;
    lookup->begun_ns = now_ns;
    lookup->is_inline = true;
    if (work->job_count > 0) {
        struct eb_bag_tile all = {
            .jobs = work->jobs,
            .job_count = work->job_count,
            .bag_end = work->jobs[work->job_count - 1].bag_count,
            .element_end = UINT32_MAX,
        };
        eb_bag_stream_init(&stream, context->ops, context->schedules);
        eb_bag_stream_pool(&stream, &all, NULL);
    }
    if (lookup->remote) {
        eb_remote_complete(lookup, work);
    }
    lookup->answer = lookup->whole.answer;
    lookup->whole.answer = NULL;
}

static bool is_in_time(struct eb_lookup *lookup, uint64_t now_ns)
{
    if (now_ns >= lookup->deadline_ns) {
        lookup->refusal = EB_REFUSAL_EXPIRED;
        eb_error_set(&lookup->error, EB_STATUS_DEADLINE_EXCEEDED,
            "the deadline passed before the values could be computed");
        return false;
    }
    return true;
}

/* Computes or submits a lookup that is checked and laid out. Returns false if it is now QUEUED. */
static bool compute_or_submit(struct eb_lookup *lookup, bool is_inline)
{
    uint64_t now_ns = uv_hrtime();
    lookup->looked_ns = now_ns;
    lookup->state = EB_LOOKUP_CHECKED;
    if (!is_in_time(lookup, now_ns)) {
        return true;
    }
    if (is_inline) {
        compute_inline(lookup, now_ns);
        return true;
    }
    return !submit_works(lookup);
}

/* Lays out, if it is not yet, and computes a lookup whose rows are all here. Returns true if it is
 * over, with its answer or error set; false if it is now QUEUED. */
static bool compute_lookup(struct eb_lookup *lookup)
{
    const struct eb_plan *plan = &lookup->plan;
    bool is_inline = is_small(lookup) || weigh_jobs(plan, 0, plan->counts.query_count) == 0;
    return (lookup->partial_count == 0 && !lay_out_all(lookup, is_inline)) ||
           compute_or_submit(lookup, is_inline);
}

/* Asks part servers for the rows that are not here. Returns true if the lookup is over; false if it
 * is now REMOTE or QUEUED. */
static bool run_remote(struct eb_lookup *lookup)
{
    bool is_sent = eb_remote_prepare(lookup) && check_share(lookup) && eb_remote_send(lookup);
    if (!is_sent || !eb_remote_is_open(lookup)) {
        return !eb_remote_end(lookup) || compute_lookup(lookup);
    }
    lookup->looked_ns = uv_hrtime();
    lookup->state = EB_LOOKUP_REMOTE;
    eb_loop_hold(lookup->pool->loop);
    eb_loop_stay_awake(lookup->pool->loop); /* The legs are sent before it sleeps. */
    return false;
}

/* Continues a lookup whose legs are over. */
static void on_remote_over(struct eb_lookup *lookup)
{
    struct eb_lookup_pool *pool = lookup->pool;
    const struct eb_buffer_pool *answers = eb_loop_answer_pool(pool->loop);
    lookup->state = EB_LOOKUP_CHECKED;
    if (lookup->error.status == EB_STATUS_OK) {
        lookup->shortages = eb_lookup_pool_shortages(pool);
    }
    uint64_t taken_bytes = answers->taken_bytes;
    lookup->taken_bytes_max =
        taken_bytes + (lookup->conn ? eb_backpressure_room_bytes(lookup->conn) : 0);
    eb_list_remove(&lookup->given_up);
    if (!eb_remote_end(lookup) || compute_lookup(lookup)) {
        note_shortage(lookup);
        conclude_lookup(lookup);
        finish_queued(lookup);
    } else if (lookup->conn && answers->taken_bytes > taken_bytes) {
        uint64_t held_bytes = lookup->held_bytes;
        eb_rpc_conn_drop(lookup, held_bytes);
        eb_rpc_conn_hold(lookup, held_bytes + answers->taken_bytes - taken_bytes);
    }
    eb_loop_release(pool->loop);
}

/* Checks and computes a lookup that was read. Returns true if the lookup is over, with its answer
 * or error set; false if it is QUEUED or REMOTE. */
static bool run_lookup(struct eb_lookup *lookup)
{
    bool is_slow = lookup->message.size >= SLOW_MESSAGE_BYTES;
    if ((!is_slow || is_in_time(lookup, uv_hrtime())) && check_lookup(lookup) &&
        !(lookup->plan.remotes ? run_remote(lookup) : compute_lookup(lookup))) {
        return false;
    }
    note_shortage(lookup);
    conclude_lookup(lookup);
    return true;
}

/* Refuses a lookup of batch priority that was read, because too many of them wait already. */
static void refuse_batch(struct eb_lookup *lookup)
{
    lookup->refusal = EB_REFUSAL_BATCH;
    lookup->pushback_ms = eb_executor_retry_after_ms(lookup->pool->context->executor);
    eb_error_set(&lookup->error, EB_STATUS_RESOURCE_EXHAUSTED,
        "too many requests of batch priority wait on this connection; retry in %u ms",
        lookup->pushback_ms);
}

/* Notes that nobody waits for the lookup any longer. The executor sees that at once; legs are given
 * up before the loop sleeps, because the lookup ends with them. */
static void cancel_lookup(struct eb_lookup *lookup)
{
    atomic_store_explicit(&lookup->is_cancelled, true, memory_order_relaxed);
    if (lookup->state == EB_LOOKUP_REMOTE) {
        eb_list_push(&lookup->pool->given_up, &lookup->given_up);
        eb_loop_stay_awake(lookup->pool->loop);
    }
}

void eb_lookup_pool_sweep(struct eb_lookup_pool *pool)
{
    while (!eb_list_is_empty(&pool->given_up)) {
        eb_remote_abandon(EB_CONTAINER_OF(pool->given_up.next, struct eb_lookup, given_up));
    }
}

/* ---- requests ---- */

/* Drops the answer to the request with this id, if the answer has not been sent yet. */
static void withdraw_lookup(struct eb_rpc_call *call, uint64_t request_id)
{
    struct eb_lookup *lookup = eb_rpc_call_find(call, request_id);
    if (lookup) {
        cancel_lookup(lookup);
        eb_outcome_lookup_lost(lookup);
        eb_rpc_call_forget(lookup);
        eb_rpc_call_finish_if_over(call);
    }
}

/* Refuses a request if another with its id is in flight on the same stream. Must be the first
 * check. */
static void check_id(const struct eb_rpc_call *call, struct eb_lookup *lookup)
{
    if (!eb_rpc_call_is_stream(call)) {
        if (lookup->is_withdrawal) {
            eb_error_set(&lookup->error, EB_STATUS_INVALID_ARGUMENT,
                "cancel is possible only on streams; to cancel a unary call, reset it");
        }
    } else if (eb_rpc_call_find(call, lookup->request_id)) {
        lookup->is_repeated = true;
        eb_error_set(&lookup->error, EB_STATUS_INVALID_ARGUMENT,
            "request_id %llu is already in flight on this stream",
            (unsigned long long)lookup->request_id);
    }
}

/* Returns whether a request that was read may be run. If not, its error is set. */
static bool check_lookup_load(const struct eb_rpc_conn *conn, struct eb_lookup *lookup)
{
    if (lookup->error.status == EB_STATUS_OK && lookup->is_batch &&
        eb_backpressure_is_batch_over_share(conn)) {
        refuse_batch(lookup);
    }
    return lookup->error.status == EB_STATUS_OK;
}

/* Reads a request and runs or submits it. Takes `message`. Returns when that was done
 * (uv_hrtime). */
static uint64_t start_lookup(
    struct eb_rpc_call *call, struct eb_grpc_message message, uint64_t arrival_ns)
{
    struct eb_rpc_conn *conn = call->conn;
    /* Until the lookup has been run, nothing else takes from the pool or gives to it. */
    const struct eb_buffer_pool *pool = eb_loop_answer_pool(eb_rpc_conn_loop(conn));
    uint64_t taken_bytes = pool->taken_bytes;
    uint64_t taken_bytes_max = taken_bytes + eb_backpressure_room_bytes(conn);
    struct eb_lookup *lookup = take_lookup(call);
    if (!lookup) {
        eb_rpc_conn_give_message(conn, &message);
        eb_rpc_call_finish(call, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; retry later", 0);
        return uv_hrtime();
    }
    lookup->may_be_partial = eb_rpc_call_is_stream(call);
    lookup->taken_bytes_max = taken_bytes_max;
    lookup->caller = eb_auth_call_renew(call, &lookup->error);
    bool is_request =
        read_lookup(lookup, message, arrival_ns, call->deadline_ns) || !lookup->is_undecodable;
    if (is_request && eb_rpc_call_is_stream(call) && lookup->is_withdrawal) {
        withdraw_lookup(call, lookup->request_id);
        give_lookup(lookup);
        return uv_hrtime();
    }
    if (is_request) {
        check_id(call, lookup);
    }
    bool is_good = check_lookup_load(conn, lookup);
    eb_rpc_conn_link(lookup, call);
    if (!is_good) {
        eb_outcome_lookup_ready(lookup);
    }
    bool is_over = !is_good || run_lookup(lookup);
    uint64_t now_ns = is_good ? lookup->looked_ns : uv_hrtime();
    if (is_over) {
        end_lookup(lookup);
    } else {
        uint64_t message_bytes = eb_buffer_pool_rounded(lookup->message.taken_bytes);
        eb_rpc_conn_hold(lookup, message_bytes + pool->taken_bytes - taken_bytes);
    }
    return now_ns;
}

void eb_lookup_start(struct eb_rpc_call *call, struct eb_grpc_message message, uint64_t arrival_ns)
{
    struct eb_conn *conn = call->conn->conn;
    (void)eb_conn_end_message(conn, start_lookup(call, message, arrival_ns));
}

void eb_lookup_forget_call(struct eb_rpc_call *call)
{
    struct eb_list *lookups = &call->conn->lookups;
    for (struct eb_list *link = lookups->next; call->in_flight > 0; link = link->next) {
        struct eb_lookup *lookup = EB_CONTAINER_OF(link, struct eb_lookup, link);
        if (lookup->call == call) {
            eb_outcome_lookup_lost(lookup);
            eb_rpc_call_forget(lookup);
            cancel_lookup(lookup);
        }
    }
}

/* ---- methods ---- */

static struct eb_wire_request *read_lookup_message(struct eb_lookup *lookup,
    const struct eb_codec_limits *limits, struct eb_decode_failure *failure)
{
    return eb_lookup_request_decode(
        &lookup->arena, lookup->message.bytes, lookup->message.size, limits, failure);
}

/* The codec of LookupRequest and LookupResponse. */
static const struct eb_lookup_codec lookup_codec = {
    .read = read_lookup_message,
    .set_times = eb_lookup_response_set_times,
};

static const struct eb_method methods[] = {
    {"Lookup", EB_METHOD_UNARY, .codec = &lookup_codec},
    {"LookupStream", EB_METHOD_BIDIRECTIONAL, .codec = &lookup_codec},
    {"ListModels", EB_METHOD_UNARY, .answer = eb_catalogue_list_models},
    {"GetModel", EB_METHOD_UNARY, .answer = eb_catalogue_get_model},
    {"GetServer", EB_METHOD_UNARY, .answer = eb_catalogue_get_server},
    {"WatchModels", EB_METHOD_SERVER_STREAMING, .start = eb_watch_service_start,
        .on_tick = eb_watch_service_tell, .on_notice = eb_watch_service_tell,
        .on_drain = eb_watch_service_end, .on_close = eb_watch_service_forget},
};

const struct eb_method_table eb_lookup_service_methods = {
    .service = "embag.v1.EmbeddingBag",
    .methods = methods,
    .count = sizeof methods / sizeof methods[0],
};
