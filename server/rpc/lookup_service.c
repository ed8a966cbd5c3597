#include "server/rpc/lookup_service.h"

#include "server/rpc/catalogue.h"
#include "server/rpc/lookup_codec.h"
#include "server/rpc/reply.h"
#include "server/rpc/request_end.h"

/* ---- answers ---- */

static const char no_memory_text[] =
    "no memory left for an answer (answer_memory_bytes); come again later";

/* An answer without results. NULL: no memory. */
static struct eb_outgoing *make_error(
    const struct eb_rpc_call *call, const struct eb_wire_response *response)
{
    struct eb_outgoing *made = eb_reply_take(
        eb_loop_answer_pool(call->conn->loop->home.loop), eb_lookup_response_bytes(response));
    if (made) {
        eb_lookup_response_encode(response, eb_reply_body(made), NULL);
    }
    return made;
}

static void answer_stream_error(struct eb_rpc_call *call, const struct eb_lookup *lookup)
{
    struct eb_wire_response response = {
        .request_id = lookup->request_id,
        .model = "",
        .error_code = (uint32_t)lookup->error.status,
        .error_message = lookup->error.text,
        .retry_after_ms = lookup->pushback_ms,
        .more = lookup->is_repeated, /* The answer of the other one. */
    };
    struct eb_outgoing *made = make_error(call, &response);
    if (made) {
        eb_call_stats_request(call, lookup->error.status);
        eb_rpc_call_answer(call, made);
    } else {
        if (lookup->refusal == EB_REFUSAL_COUNT) {
            eb_call_stats_refusal(call, EB_REFUSAL_MEMORY);
        }
        eb_rpc_call_finish(call, EB_STATUS_RESOURCE_EXHAUSTED, no_memory_text, 0);
    }
}

/* What leaves in place of an answer that has waited beyond its deadline. */
static struct eb_outgoing *answer_late(
    struct eb_rpc_call *call, struct eb_grpc_call *grpc_call, const struct eb_reply_terms *terms)
{
    static const char text[] = "the deadline passed before the answer could be sent";
    struct eb_wire_response response = {
        .request_id = terms->request_id,
        .model = "",
        .error_code = EB_STATUS_DEADLINE_EXCEEDED,
        .error_message = text,
    };
    if (!eb_rpc_call_is_stream(call)) {
        eb_grpc_call_restate(grpc_call, EB_STATUS_DEADLINE_EXCEEDED, text);
        return NULL;
    }
    if (terms->more) {
        return NULL; /* The last one says so. */
    }
    struct eb_outgoing *made = make_error(call, &response);
    if (made) {
        eb_call_stats_request(call, EB_STATUS_DEADLINE_EXCEEDED);
        eb_reply_charge(made, &call->conn->answer_bytes);
    } else {
        eb_rpc_call_finish(call, EB_STATUS_RESOURCE_EXHAUSTED, no_memory_text, 0);
        eb_grpc_call_restate(grpc_call, EB_STATUS_RESOURCE_EXHAUSTED, no_memory_text);
    }
    return made;
}

struct eb_outgoing *eb_lookup_service_drop_if_expired(
    void *context, struct eb_grpc_call *grpc_call, struct eb_outgoing *message)
{
    if (eb_conn_looked_ns(context) < eb_reply_find_terms(message)->deadline_ns) {
        return message;
    }
    const struct eb_reply_terms terms = *eb_reply_find_terms(message);
    if (!terms.more) {
        eb_call_stats_refusal(grpc_call->user, EB_REFUSAL_EXPIRED_UNSENT);
        eb_request_end_unsent(grpc_call->user, terms.request_id);
    }
    eb_reply_drop(message);
    return answer_late(grpc_call->user, grpc_call, &terms);
}

/* A lookup's answer, or a part of it. */
static void send_result(struct eb_rpc_call *call, const struct eb_lookup *lookup,
    struct eb_outgoing *message, bool more)
{
    struct eb_reply_terms terms = {
        .deadline_ns = lookup->deadline_ns, .request_id = lookup->request_id, .more = more};
    if (!more) {
        eb_call_stats_watch(call, lookup, &terms);
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
    } else if (!eb_rpc_call_is_stream(call) || lookup->undecodable) {
        call->is_undecodable |= lookup->undecodable;
        eb_rpc_call_finish(call, lookup->error.status, lookup->error.text, lookup->pushback_ms);
    } else {
        answer_stream_error(call, lookup);
    }
    eb_conn_mark(call->conn->conn);
}

void eb_lookup_service_end(struct eb_lookup *lookup)
{
    struct eb_rpc_call *call = lookup->call;
    eb_rpc_conn_unlink(lookup);
    if (call) {
        answer_lookup(call, lookup);
        eb_rpc_call_finish_if_over(call);
    }
    eb_lookup_give(lookup);
}

void eb_lookup_service_answer_part(struct eb_lookup *lookup, struct eb_outgoing *part)
{
    struct eb_rpc_call *call = lookup->call;
    eb_rpc_conn_drop(lookup, eb_reply_held_bytes(part));
    if (!call || call->finished) {
        eb_outgoing_drop(part);
        return;
    }
    send_result(call, lookup, part, true);
    eb_conn_mark(call->conn->conn);
}

/* ---- requests ---- */

/* Drops the answer of what has this id, if that is still to come. */
static void withdraw(struct eb_rpc_call *call, uint64_t request_id)
{
    struct eb_lookup *lookup = eb_rpc_call_find(call, request_id);
    if (lookup) {
        eb_call_stats_request(call, EB_STATUS_CANCELLED);
        eb_lookup_cancel(lookup);
        eb_request_end_lost(lookup);
        eb_rpc_call_forget(lookup);
        eb_rpc_call_finish_if_over(call);
    }
}

/* What comes before all else that may be wrong with a request: that it can be told from others. */
static void check_id(const struct eb_rpc_call *call, struct eb_lookup *lookup)
{
    if (!eb_rpc_call_is_stream(call)) {
        if (lookup->withdraws) {
            eb_error_set(&lookup->error, EB_STATUS_INVALID_ARGUMENT,
                "cancel is for streams; a unary call is cancelled by resetting it");
        }
    } else if (eb_rpc_call_find(call, lookup->request_id)) {
        lookup->is_repeated = true;
        eb_error_set(&lookup->error, EB_STATUS_INVALID_ARGUMENT,
            "request_id %llu is in flight on this stream already",
            (unsigned long long)lookup->request_id);
    }
}

/* Whether a request that was read may be run. */
static bool check_lookup_load(const struct eb_rpc_conn *conn, struct eb_lookup *lookup)
{
    if (lookup->error.status == EB_STATUS_OK && lookup->is_batch &&
        eb_rpc_conn_is_over_batch_share(conn)) {
        eb_lookup_refuse_batch(lookup);
    }
    return lookup->error.status == EB_STATUS_OK;
}

/* Returns when that was done, by uv_hrtime. */
static uint64_t take_lookup(
    struct eb_rpc_call *call, struct eb_grpc_message message, uint64_t arrival_ns)
{
    struct eb_rpc_conn *conn = call->conn;
    /* Until it is run nothing else takes from the pool or gives. */
    const struct eb_buffer_pool *pool = eb_loop_answer_pool(conn->loop->home.loop);
    const uint64_t taken_bytes = pool->taken_bytes;
    const uint64_t taken_bytes_max = taken_bytes + eb_rpc_conn_room_bytes(conn);
    struct eb_lookup *lookup =
        eb_lookup_take(&conn->loop->home, call->method->codec, eb_conn_receive_memory(conn->conn));
    if (!lookup) {
        eb_rpc_conn_give_message(conn, &message);
        eb_rpc_call_finish(
            call, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; come again later", 0);
        return uv_hrtime();
    }
    lookup->may_be_in_parts = eb_rpc_call_is_stream(call);
    lookup->taken_bytes_max = taken_bytes_max;
    lookup->caller = eb_auth_call_renew(call, &lookup->error);
    const bool is_request =
        eb_lookup_read(lookup, message, arrival_ns, call->deadline_ns) || !lookup->undecodable;
    if (is_request && eb_rpc_call_is_stream(call) && lookup->withdraws) {
        withdraw(call, lookup->request_id);
        eb_lookup_give(lookup);
        return uv_hrtime();
    }
    if (is_request) {
        check_id(call, lookup);
    }
    const bool is_good = check_lookup_load(conn, lookup);
    eb_rpc_conn_link(lookup, call);
    if (!is_good) {
        conn->loop->home.on_result(lookup);
    }
    const bool is_over = !is_good || eb_lookup_run(lookup);
    const uint64_t now_ns = is_good ? lookup->looked_ns : uv_hrtime();
    if (is_over) {
        eb_lookup_service_end(lookup);
    } else {
        const uint64_t message_bytes = eb_buffer_pool_rounded(lookup->message.taken_bytes);
        eb_rpc_conn_hold(lookup, message_bytes + pool->taken_bytes - taken_bytes);
    }
    return now_ns;
}

void eb_lookup_service_take(
    struct eb_rpc_call *call, struct eb_grpc_message message, uint64_t arrival_ns)
{
    struct eb_conn *conn = call->conn->conn;
    (void)eb_conn_end_message(conn, take_lookup(call, message, arrival_ns));
}

void eb_lookup_service_forget(struct eb_rpc_call *call)
{
    for (struct eb_lookup *lookup = call->conn->lookups; call->in_flight > 0;
         lookup = lookup->next) {
        if (lookup->call == call) {
            eb_request_end_lost(lookup);
            eb_rpc_call_forget(lookup);
            eb_lookup_cancel(lookup);
        }
    }
}

static const struct eb_method methods[] = {
    {"Lookup", EB_METHOD_UNARY, .codec = &eb_lookup_codec_embag},
    {"LookupStream", EB_METHOD_BIDIRECTIONAL, .codec = &eb_lookup_codec_embag},
    {"ListModels", EB_METHOD_UNARY, .answer = eb_catalogue_list_models},
    {"GetModel", EB_METHOD_UNARY, .answer = eb_catalogue_get_model},
    {"GetServer", EB_METHOD_UNARY, .answer = eb_catalogue_get_server},
};

const struct eb_method_table eb_lookup_service_methods = {
    .service = "embag.v1.EmbeddingBag",
    .methods = methods,
    .count = sizeof methods / sizeof methods[0],
};
