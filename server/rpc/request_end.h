/* What becomes of requests that are over, beyond their answers: they are logged (access_log.h) and
 * the slow ones kept (slow_list.h). A request is a call, or one message of a stream. Nothing is
 * gathered of those that nobody wants to know of.
 * Thread: the loop's. Memory: none. */
#pragma once

#include "server/rpc/rpc_conn.h"

/* A lookup is over: its answer is there, or error says why not. Before its inputs are given back.
 * Does nothing where it has lost its call. */
void eb_request_end_lookup(const struct eb_lookup *lookup);
/* A lookup is about to lose its call: nobody waits for it any longer. */
void eb_request_end_lost(const struct eb_lookup *lookup);
/* A call ends; of a stream only what no request of it has said. `text` may be NULL. */
void eb_request_end_call(struct eb_rpc_call *call, enum eb_status status, const char *text);
/* A request of a stream that is no lookup was answered. */
void eb_request_end_unary(struct eb_rpc_call *call);
/* The call goes away: it ends, where it has not been ended. */
void eb_request_end_close(struct eb_rpc_call *call);
/* A call was not begun. */
void eb_request_end_refused(
    struct eb_rpc_conn *conn, const struct eb_grpc_call *grpc_call, const struct eb_error *error);
/* The answer of a request that was over had waited beyond its deadline, and has not left. */
void eb_request_end_unsent(struct eb_rpc_call *call, uint64_t request_id);
/* Time passes: says what was not logged, forgets slow requests of long ago. true: there is more to
 * say when more of it has. */
bool eb_request_end_tick(struct eb_service_loop *loop);
