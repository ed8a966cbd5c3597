#include "server/rpc/rpc_call.h"

#include "server/rpc/outcome.h"
#include "server/rpc/reply.h"

void eb_rpc_conn_give_message(struct eb_rpc_conn *conn, struct eb_grpc_message *message)
{
    eb_grpc_message_give(eb_conn_receive_memory(conn->conn), message);
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
        struct eb_outcome outcome = {.subject = EB_OUTCOME_CALL,
            .conn = call->conn,
            .call = call,
            .grpc_call = call->call,
            .status = status,
            .text = text};
        eb_outcome_report(&outcome, EB_OUTCOME_READY);
        call->is_finished = true;
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
        bool is_end = eb_loop_is_draining(eb_rpc_call_loop(call));
        eb_rpc_call_finish(call, EB_STATUS_UNAVAILABLE,
            is_end ? "the server is shutting down; retry unanswered requests on another server"
                   : "this connection is closing; retry unanswered requests over another one",
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
