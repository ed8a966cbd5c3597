#include "server/rpc/rpc_conn.h"

const struct eb_limits *eb_rpc_conn_limits(const struct eb_rpc_conn *conn)
{
    return conn->loop->home.context->limits;
}

void eb_rpc_conn_give_message(struct eb_rpc_conn *conn, struct eb_grpc_message *message)
{
    eb_grpc_message_give(eb_loop_receive_memory(conn->loop->home.loop), message);
}

void eb_rpc_call_drop_message(struct eb_rpc_call *call)
{
    if (call->message.bytes) {
        call->conn->kept_bytes -= call->message.size;
        eb_rpc_conn_give_message(call->conn, &call->message);
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

void eb_rpc_call_unpark(struct eb_rpc_call *call)
{
    call->conn->parked_count -= call->parked;
    call->parked = false;
}

void eb_rpc_conn_link(struct eb_lookup *lookup, struct eb_rpc_call *call)
{
    struct eb_rpc_conn *conn = call->conn;
    lookup->conn = conn;
    lookup->call = call;
    lookup->next = conn->lookups;
    if (conn->lookups) {
        conn->lookups->previous = lookup;
    }
    conn->lookups = lookup;
    conn->in_flight++;
    call->in_flight++;
}

void eb_rpc_conn_unlink(struct eb_lookup *lookup)
{
    struct eb_rpc_conn *conn = lookup->conn;
    if (!conn) {
        return;
    }
    conn->in_flight--;
    conn->queued_answer_bytes -= lookup->queued_answer_bytes;
    if (lookup->previous) {
        lookup->previous->next = lookup->next;
    } else {
        conn->lookups = lookup->next;
    }
    if (lookup->next) {
        lookup->next->previous = lookup->previous;
    }
}

bool eb_rpc_conn_is_full(const struct eb_rpc_conn *conn)
{
    uint64_t answer_bytes = conn->queued_answer_bytes + eb_conn_waiting_bytes(conn->conn);
    return answer_bytes >= eb_rpc_conn_limits(conn)->outbound_bytes_max;
}

bool eb_rpc_conn_is_busy(const struct eb_rpc_conn *conn)
{
    return conn->in_flight >= eb_rpc_conn_limits(conn)->in_flight_max || eb_rpc_conn_is_full(conn);
}

void eb_rpc_call_pause(struct eb_rpc_call *call)
{
    if (call->method->kind == EB_METHOD_LOOKUP_STREAM && !call->paused && !call->finished) {
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

struct eb_lookup *eb_rpc_call_find(const struct eb_rpc_call *call, uint64_t request_id)
{
    struct eb_lookup *lookup = call->conn->lookups;
    while (lookup && (lookup->call != call || lookup->request_id != request_id)) {
        lookup = lookup->next;
    }
    return lookup;
}
