/* What a call is answered, how it ends, and the message that it keeps until then.
 * Thread: the loop's. Memory: the states of conn_state.h. */
#pragma once

#include "server/rpc/conn_state.h"

/* Sends a message, which it takes. */
void eb_rpc_call_answer(struct eb_rpc_call *call, struct eb_outgoing *message);
/* Ends the call, unless it is finished already; see eb_grpc_call_finish. It waits no longer, and
 * the message that it keeps is given back. */
void eb_rpc_call_finish(
    struct eb_rpc_call *call, enum eb_status status, const char *text, uint32_t pushback_ms);
/* Ends a unary call with `error`. INTERNAL means that its message could not be decoded. */
void eb_rpc_call_refuse(struct eb_rpc_call *call, const struct eb_error *error);
/* Ends a stream whose peer has sent all, or that is draining, once nothing of it is in flight. Does
 * nothing for other calls. */
void eb_rpc_call_finish_if_over(struct eb_rpc_call *call);
/* Ends a call's waiting for its connection. */
void eb_rpc_call_end_waiting(struct eb_rpc_call *call);

/* Keeps the message of a call other than a stream: takes it. Returns false if the connection keeps
 * more than it may: the call must be ended. */
bool eb_rpc_call_keep_message(struct eb_rpc_call *call, struct eb_grpc_message message);
/* Returns the message that a call keeps, which becomes the caller's. */
struct eb_grpc_message eb_rpc_call_take_message(struct eb_rpc_call *call);
/* Gives back the message that a call keeps, if it keeps one. */
void eb_rpc_call_drop_message(struct eb_rpc_call *call);
/* Gives a message's bytes back to its connection. */
void eb_rpc_conn_give_message(struct eb_rpc_conn *conn, struct eb_grpc_message *message);
