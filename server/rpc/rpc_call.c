#include "server/rpc/rpc_call.h"

#include "server/rpc/outcome.h"
#include "server/rpc/reply.h"

/* Times the largest message: what one connection's kept messages may hold. */
#define KEPT_MESSAGES_MAX 2

void eb_rpc_conn_give_message(struct eb_rpc_conn *conn, struct eb_grpc_message *message)
{
    eb_grpc_message_give(eb_conn_receive_memory(conn->conn), message);
}

/* Returns where the connection counts the bytes of messages that calls like this one keep. */
static uint64_t *find_kept_bytes(const struct eb_rpc_call *call)
{
    return call->method->codec ? &call->conn->kept_bytes : &call->conn->kept_unary_bytes;
}

bool eb_rpc_call_keep_message(struct eb_rpc_call *call, struct eb_grpc_message message)
{
    const uint64_t message_bytes_max = call->method->codec
                                           ? eb_rpc_conn_limits(call->conn)->request_bytes_max
                                           : EB_UNARY_BYTES_MAX;
    uint64_t *kept_bytes = find_kept_bytes(call);
    call->has_message = true;
    call->message = message;
    *kept_bytes += message.size;
    return *kept_bytes <= KEPT_MESSAGES_MAX * message_bytes_max;
}

struct eb_grpc_message eb_rpc_call_take_message(struct eb_rpc_call *call)
{
    struct eb_grpc_message message = call->message;
    call->message = (struct eb_grpc_message){0};
    *find_kept_bytes(call) -= message.size;
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
    if (!call->is_finished) {
        const struct eb_outcome outcome = {.subject = EB_OUTCOME_CALL,
            .conn = call->conn,
            .call = call,
            .grpc_call = call->call,
            .status = status,
            .text = text};
        eb_outcome_report(&outcome, EB_OUTCOME_READY);
        call->is_finished = true;
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
    if (call->is_request_ended && !call->has_dropped) {
        eb_rpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    } else if (call->is_draining) {
        const bool is_end = eb_loop_is_draining(eb_rpc_call_loop(call));
        eb_rpc_call_finish(call, EB_STATUS_UNAVAILABLE,
            is_end ? "the server is shutting down; send what has no answer again, elsewhere"
                   : "this connection is over; send what has no answer again, over another",
            0);
    }
}

void eb_rpc_call_end_waiting(struct eb_rpc_call *call)
{
    if (call->is_waiting) {
        call->conn->waiting_count--;
        call->is_waiting = false;
    }
}
