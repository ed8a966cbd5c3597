/* The service embag.v1.EmbeddingBag, and the lookups of every other service. A message is decoded
 * and checked, its values are computed (at once on the loop, or by the executor), and the answer is
 * laid out and sent.
 *
 * Thread: the loop's. While a lookup is EB_LOOKUP_QUEUED, the executor computes it. Memory: lookups
 * belong to their loop, answers come from the loop's answer pool. */
#pragma once

#include "server/rpc/conn_state.h"

extern const struct eb_method_table eb_lookup_service_methods;

/* Takes a message, which came at `arrival_ns`, and starts its lookup. The time that this takes
 * counts against the connection's time slice. */
void eb_lookup_start(struct eb_rpc_call *call, struct eb_grpc_message message, uint64_t arrival_ns);
/* Cancels the lookups of a call that goes away: nobody waits for them any longer. */
void eb_lookup_forget_call(struct eb_rpc_call *call);
/* Returns the message if it may be sent. If its deadline has passed, returns the message to be sent
 * instead; see on_drop_if_expired of eb_grpc_server_handler. */
struct eb_outgoing *eb_lookup_drop_if_expired(
    void *context, struct eb_grpc_call *grpc_call, struct eb_outgoing *message);

/* Initialises an empty pool. `context` and `snapshot` are borrowed. */
void eb_lookup_pool_init(struct eb_lookup_pool *pool, const struct eb_lookup_context *context,
    struct eb_loop *loop, struct eb_snapshot *snapshot);
/* Gives up the legs of lookups that nobody waits for. Called before the loop sleeps. */
void eb_lookup_pool_sweep(struct eb_lookup_pool *pool);
/* Frees the lookups, which must all be idle, and the feature memo. */
void eb_lookup_pool_deinit(struct eb_lookup_pool *pool);
