/* Answers and ends calls.
 * Thread: the loop's. Memory: the states of conn_state.h. */
#pragma once

#include "server/rpc/conn_state.h"

/* Takes a message and sends it. */
void eb_rpc_call_answer(struct eb_rpc_call *call, struct eb_outgoing *message);
/* Ends the call, unless it is finished already; see eb_grpc_call_finish. The call no longer waits,
 * and the message that it held is given back. */
void eb_rpc_call_finish(
    struct eb_rpc_call *call, enum eb_status status, const char *text, uint32_t pushback_ms);
/* Ends a unary call with `error`. INTERNAL means that its message could not be decoded. */
void eb_rpc_call_refuse(struct eb_rpc_call *call, const struct eb_error *error);
/* Ends a stream that has no lookup in flight if its peer has sent all requests or the stream is
 * draining. Does nothing for other calls. */
void eb_rpc_call_finish_if_over(struct eb_rpc_call *call);
/* Removes a call from those that wait for their connection. Does nothing if it does not wait. */
void eb_rpc_call_end_waiting(struct eb_rpc_call *call);

/* Gives a message's bytes back to its connection. */
void eb_rpc_conn_give_message(struct eb_rpc_conn *conn, struct eb_grpc_message *message);
