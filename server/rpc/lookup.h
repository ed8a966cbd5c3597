/* The service embag.v1.EmbeddingBag, and the lookups of every other service: a message is decoded,
 * checked, computed (at once on the loop, or by the executor), laid out as the answer's bytes and
 * answered.
 *
 * Thread: the loop's; the executor computes between QUEUED and the mail that ends a lookup. Memory:
 * lookups are their loop's, answers from its pool. */
#pragma once

#include "server/rpc/conn_state.h"

extern const struct eb_method_table eb_lookup_service_methods;

/* Starts the lookup of a message, which came at `arrival_ns` and which it takes. It counts against
 * its connection's time slice. */
void eb_lookup_start(struct eb_rpc_call *call, struct eb_grpc_message message, uint64_t arrival_ns);
/* The call goes away: nobody waits for its lookups. */
void eb_lookup_forget_call(struct eb_rpc_call *call);
/* Returns an answer that may be sent, or what is sent in its place if its deadline has passed; see
 * on_drop_if_expired of eb_grpc_server_handler. */
struct eb_outgoing *eb_lookup_drop_if_expired(
    void *context, struct eb_grpc_call *grpc_call, struct eb_outgoing *message);

/* Begins without a lookup. `context` and `snapshot` are borrowed. */
void eb_lookup_pool_init(struct eb_lookup_pool *pool, const struct eb_lookup_context *context,
    struct eb_loop *loop, struct eb_snapshot *snapshot);
/* Frees the lookups, which must all be idle, and the memo. */
void eb_lookup_pool_deinit(struct eb_lookup_pool *pool);
