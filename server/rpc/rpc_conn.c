#include "server/rpc/rpc_conn.h"

#include "server/rpc/reply.h"
#include "server/rpc/request_end.h"

#include <assert.h>

/* Times the largest message: what one connection's kept messages may hold. */
#define KEPT_MESSAGES_MAX 2

static_assert((EB_RPC_BUCKETS & (EB_RPC_BUCKETS - 1)) == 0, "buckets are found by a mask");

const struct eb_limits *eb_rpc_conn_limits(const struct eb_rpc_conn *conn)
{
    return conn->loop->home.context->limits;
}

void eb_rpc_conn_give_message(struct eb_rpc_conn *conn, struct eb_grpc_message *message)
{
    eb_grpc_message_give(eb_conn_receive_memory(conn->conn), message);
}

bool eb_rpc_call_keep_message(struct eb_rpc_call *call, struct eb_grpc_message message)
{
    struct eb_rpc_conn *conn = call->conn;
    call->has_message = true;
    call->message = message;
    if (call->method->codec) {
        conn->kept_bytes += message.size;
        return conn->kept_bytes <= KEPT_MESSAGES_MAX * eb_rpc_conn_limits(conn)->request_bytes_max;
    }
    conn->kept_unary_bytes += message.size;
    return conn->kept_unary_bytes <= KEPT_MESSAGES_MAX * EB_UNARY_BYTES_MAX;
}

struct eb_grpc_message eb_rpc_call_take_message(struct eb_rpc_call *call)
{
    struct eb_grpc_message message = call->message;
    call->message = (struct eb_grpc_message){0};
    *(call->method->codec ? &call->conn->kept_bytes : &call->conn->kept_unary_bytes) -=
        message.size;
    return message;
}

void eb_rpc_call_drop_message(struct eb_rpc_call *call)
{
    if (call->message.bytes) {
        struct eb_grpc_message message = eb_rpc_call_take_message(call);
        eb_rpc_conn_give_message(call->conn, &message);
    }
}

void eb_rpc_call_answer(struct eb_rpc_call *call, struct eb_outgoing *message)
{
    eb_reply_charge(message, &call->conn->answer_bytes);
    eb_grpc_call_answer(call->call, message);
}

void eb_rpc_call_finish(
    struct eb_rpc_call *call, enum eb_status status, const char *text, uint32_t pushback_ms)
{
    if (!call->finished) {
        eb_request_end_call(call, status, text);
        call->finished = true;
        eb_rpc_call_drop_message(call);
        eb_rpc_call_end_waiting(call);
        eb_grpc_call_finish(call->call, status, text, pushback_ms);
        eb_conn_mark(call->conn->conn);
    }
}

void eb_rpc_call_refuse(struct eb_rpc_call *call, const struct eb_error *error)
{
    call->is_undecodable |= error->status == EB_STATUS_INTERNAL;
    eb_rpc_call_finish(call, error->status, error->text, 0);
}

void eb_rpc_call_finish_if_over(struct eb_rpc_call *call)
{
    if (!eb_rpc_call_is_stream(call) || call->in_flight > 0) {
        return;
    }
    if (call->request_ended && !call->has_dropped) {
        eb_rpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    } else if (call->draining) {
        const bool is_end = eb_loop_is_draining(call->conn->loop->home.loop);
        eb_rpc_call_finish(call, EB_STATUS_UNAVAILABLE,
            is_end ? "the server is shutting down; send what has no answer again, elsewhere"
                   : "this connection is over; send what has no answer again, over another",
            0);
    }
}

void eb_rpc_call_append(struct eb_rpc_call *call)
{
    struct eb_rpc_conn *conn = call->conn;
    call->next = NULL;
    call->previous = conn->last_call;
    if (call->previous) {
        call->previous->next = call;
    } else {
        conn->calls = call;
    }
    conn->last_call = call;
}

void eb_rpc_call_unlink(struct eb_rpc_call *call)
{
    struct eb_rpc_conn *conn = call->conn;
    if (call->previous) {
        call->previous->next = call->next;
    } else {
        conn->calls = call->next;
    }
    if (call->next) {
        call->next->previous = call->previous;
    } else {
        conn->last_call = call->previous;
    }
}

void eb_rpc_call_end_waiting(struct eb_rpc_call *call)
{
    call->conn->waiting_count -= call->waiting;
    call->waiting = false;
}

static struct eb_rpc_load *find_load(struct eb_rpc_conn *conn, const struct eb_lookup *lookup)
{
    return lookup->is_batch ? &conn->batch : &conn->interactive;
}

static struct eb_lookup **find_conn_bucket(const struct eb_rpc_call *call, uint64_t request_id)
{
    /* The golden ratio's bits spread ids that follow each other, and addresses. */
    uint64_t key = (uint64_t)(uintptr_t)call + request_id;
    size_t index = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (EB_RPC_BUCKETS - 1);
    return &call->conn->loop->buckets[index];
}

static void remember(struct eb_lookup *lookup, struct eb_rpc_call *call)
{
    struct eb_lookup **bucket = find_conn_bucket(call, lookup->request_id);
    lookup->call = call;
    lookup->bucket_link = bucket;
    lookup->bucket_next = *bucket;
    if (*bucket) {
        (*bucket)->bucket_link = &lookup->bucket_next;
    }
    *bucket = lookup;
    call->in_flight++;
}

void eb_rpc_call_forget(struct eb_lookup *lookup)
{
    assert(lookup->call);
    lookup->call->in_flight--;
    lookup->call = NULL;
    *lookup->bucket_link = lookup->bucket_next;
    if (lookup->bucket_next) {
        lookup->bucket_next->bucket_link = lookup->bucket_link;
    }
}

void eb_rpc_conn_link(struct eb_lookup *lookup, struct eb_rpc_call *call)
{
    struct eb_rpc_conn *conn = call->conn;
    lookup->conn = conn;
    remember(lookup, call);
    lookup->next = conn->lookups;
    if (conn->lookups) {
        conn->lookups->previous = lookup;
    }
    conn->lookups = lookup;
    find_load(conn, lookup)->count++;
}

void eb_rpc_conn_unlink(struct eb_lookup *lookup)
{
    struct eb_rpc_conn *conn = lookup->conn;
    if (!conn) {
        return;
    }
    if (lookup->call) {
        eb_rpc_call_forget(lookup);
    }
    find_load(conn, lookup)->count--;
    eb_rpc_conn_drop(lookup, lookup->held_bytes);
    if (lookup->previous) {
        lookup->previous->next = lookup->next;
    } else {
        conn->lookups = lookup->next;
    }
    if (lookup->next) {
        lookup->next->previous = lookup->previous;
    }
}

void eb_rpc_conn_hold(struct eb_lookup *lookup, uint64_t bytes)
{
    lookup->held_bytes = bytes;
    find_load(lookup->conn, lookup)->held_bytes += bytes;
}

void eb_rpc_conn_drop(struct eb_lookup *lookup, uint64_t bytes)
{
    if (lookup->conn) {
        find_load(lookup->conn, lookup)->held_bytes -= bytes;
        lookup->held_bytes -= bytes;
    }
}

bool eb_rpc_conn_is_over_limit(const struct eb_rpc_conn *conn)
{
    return conn->interactive.count + conn->batch.count >= eb_rpc_conn_limits(conn)->in_flight_max;
}

/* What answers hold that the peer has not taken. */
static uint64_t find_untaken_bytes(const struct eb_rpc_conn *conn)
{
    /* Small answers are copied into what is to be written, and from then on count there only. */
    const uint64_t waiting_bytes = eb_conn_waiting_bytes(conn->conn);
    return conn->answer_bytes > waiting_bytes ? conn->answer_bytes : waiting_bytes;
}

bool eb_rpc_call_is_queue_full(const struct eb_rpc_call *call)
{
    return call->method->answer && call->method->kind == EB_METHOD_BIDIRECTIONAL &&
           find_untaken_bytes(call->conn) >= EB_UNARY_ANSWER_BYTES_MAX;
}

uint64_t eb_rpc_conn_room_bytes(const struct eb_rpc_conn *conn)
{
    const struct eb_buffer_pool *pool = eb_loop_answer_pool(conn->loop->home.loop);
    const uint64_t held_bytes =
        conn->answer_bytes + conn->interactive.held_bytes + conn->batch.held_bytes;
    const uint64_t free_bytes = pool->cap_bytes - pool->taken_bytes;
    if (held_bytes == 0 && pool->taken_bytes <= pool->cap_bytes / EB_RPC_LITTLE_PART) {
        return free_bytes;
    }
    const uint64_t last_bytes = pool->cap_bytes / EB_RPC_LAST_PART;
    const uint64_t shared_bytes = free_bytes > held_bytes ? (free_bytes - held_bytes) / 2 : 0;
    const uint64_t ample_bytes = free_bytes > last_bytes ? free_bytes - last_bytes : 0;
    return shared_bytes > ample_bytes ? shared_bytes : ample_bytes;
}

/* What makes it full; not 0, since what has nothing under way has nothing to wait for. */
static uint64_t find_full_bytes(const struct eb_rpc_conn *conn)
{
    const uint64_t bytes_max = eb_rpc_conn_limits(conn)->outbound_bytes_max;
    const uint64_t room_bytes = eb_rpc_conn_room_bytes(conn);
    return room_bytes < bytes_max ? room_bytes + 1 : bytes_max;
}

bool eb_rpc_conn_is_over_share(const struct eb_rpc_conn *conn)
{
    uint64_t bytes_max = find_full_bytes(conn);
    uint64_t batch_max = bytes_max / EB_RPC_BATCH_PART;
    uint64_t bytes = find_untaken_bytes(conn);
    bytes += conn->interactive.held_bytes;
    bytes += conn->batch.held_bytes < batch_max ? conn->batch.held_bytes : batch_max;
    return bytes >= bytes_max;
}

bool eb_rpc_conn_is_busy(const struct eb_rpc_conn *conn)
{
    return eb_conn_is_slice_over(conn->conn) || eb_rpc_conn_is_over_limit(conn) ||
           eb_rpc_conn_is_over_share(conn);
}

bool eb_rpc_conn_is_over_batch_share(const struct eb_rpc_conn *conn)
{
    const struct eb_limits *limits = eb_rpc_conn_limits(conn);
    return conn->batch.count * EB_RPC_BATCH_PART >= limits->in_flight_max ||
           conn->batch.held_bytes * EB_RPC_BATCH_PART >= find_full_bytes(conn);
}

void eb_rpc_call_pause(struct eb_rpc_call *call)
{
    if (eb_rpc_call_is_stream(call) && !call->paused && !call->finished) {
        call->paused = true;
        call->conn->paused_count++;
        eb_grpc_call_pause(call->call);
    }
}

void eb_rpc_conn_pause(struct eb_rpc_conn *conn)
{
    for (struct eb_rpc_call *call = conn->calls; call; call = call->next) {
        eb_rpc_call_pause(call);
    }
}

void eb_rpc_conn_pause_queue_full(struct eb_rpc_conn *conn)
{
    if (find_untaken_bytes(conn) < EB_UNARY_ANSWER_BYTES_MAX) {
        return;
    }
    for (struct eb_rpc_call *call = conn->calls; call; call = call->next) {
        if (call->method->answer) {
            eb_rpc_call_pause(call);
        }
    }
}

struct eb_lookup *eb_rpc_call_find(const struct eb_rpc_call *call, uint64_t request_id)
{
    struct eb_lookup *lookup = *find_conn_bucket(call, request_id);
    while (lookup && (lookup->call != call || lookup->request_id != request_id)) {
        lookup = lookup->bucket_next;
    }
    return lookup;
}
