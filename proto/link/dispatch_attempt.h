/* The attempts of a dispatcher's call (dispatcher.h): sends them and takes what they cost.
 * Private to the dispatcher.
 * Thread: the loop's. Memory: an attempt's own copy of the request lives until the attempt gets
 * another one, or its call is over. */
#pragma once

#include "proto/link/dispatch_state.h"

static inline bool eb_dispatch_is_sent(const struct eb_attempt *attempt)
{
    return attempt->connection;
}

/* Drops an attempt's own copy of the request. */
void eb_dispatch_drop_copy(const struct eb_dispatch_call *call, struct eb_attempt *attempt);
/* Gives an attempt a copy of the request, because its own is still in the send queue of a stream
 * and cannot be in another. Returns false if out of memory. */
bool eb_dispatch_copy_request(const struct eb_dispatch_call *call, struct eb_attempt *attempt);

/* Sends an attempt of a call, over a connection that takes it. Returns false if it cannot. */
bool eb_dispatch_send_attempt(
    struct eb_dispatcher *dispatcher, struct eb_connection *connection, struct eb_attempt *attempt);
/* Takes what sending the call again costs. It is free the first time after a lost connection,
 * because the request may not even have arrived, and with a single server, which names the pauses
 * itself. Returns false if the budget is spent. */
bool eb_dispatch_pay_resend(struct eb_dispatch_call *call, bool is_lost, uint64_t now_ns);

/* Returns the call as hedge.h judges it. */
struct eb_hedge_call eb_dispatch_describe(const struct eb_dispatch_call *call);
/* Counts the call's hedge, if it had one, as not having been answered first. */
void eb_dispatch_lose_hedge(struct eb_dispatch_call *call);
