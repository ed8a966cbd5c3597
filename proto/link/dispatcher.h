/* Sends calls to servers: decides which call goes to which server, when, and how often. Calls wait
 * until a server has room, are sent again after failures, and are hedged. Their owner makes the
 * requests and reads the answers.
 * Thread: the loop's. Memory: the servers' connections, from open until deinit; calls and groups
 * belong to their owner. A dispatcher, its groups, and the calls that it has must not move. */
#pragma once

#include "proto/link/dispatch_state.h"

/* Returns 0, or a negative libuv code with nothing left. The first round opens connections. */
int eb_dispatcher_open(struct eb_dispatcher *dispatcher, uv_loop_t *loop,
    const struct eb_memory *memory, uv_buf_t read_buffer);
/* Accepts a zeroed struct. */
void eb_dispatcher_deinit(struct eb_dispatcher *dispatcher);

/* Takes a call over until its on_over. The call is sent in the next round at the earliest, and the
 * loop must run one before it sleeps. */
void eb_dispatcher_take(struct eb_dispatcher *dispatcher, struct eb_dispatch_call *call);
/* Ends a call that the dispatcher has; its on_over follows from within this function. */
void eb_dispatcher_abandon(struct eb_dispatch_call *call, enum eb_status status, const char *text);
/* Does everything that is due, with one write per connection. Returns whether another round must
 * follow at once. */
bool eb_dispatcher_run(struct eb_dispatcher *dispatcher);
/* Must be called when the credentials have changed. An attempt to connect that was delayed after a
 * failure is made at once. If the token is another one, it is sent with all later calls.
 * Connections and the calls on them continue. */
void eb_dispatcher_renew(struct eb_dispatcher *dispatcher, bool is_token_new);
/* Closes every connection; on_ended follows. The dispatcher must not have any calls. */
void eb_dispatcher_end(struct eb_dispatcher *dispatcher);
