/* The service embag.v1.EmbeddingBag, and what is a lookup of any other: what messages start, and
 * what is answered when they are done. Thread: the loop's. Memory: lookups are their loop's,
 * answers from its pool. */
#pragma once

#include "server/rpc/rpc_conn.h"

extern const struct eb_method_table eb_lookup_service_methods;

/* Starts the lookup of a message, which came at `arrival_ns` and which it takes; that is part of
 * its connection's turn. */
void eb_lookup_service_take(
    struct eb_rpc_call *call, struct eb_grpc_message message, uint64_t arrival_ns);
/* Answers what is over and gives everything back. */
void eb_lookup_service_end(struct eb_lookup *lookup);
/* Answers with a part of what the lookup gives; others are still to come. */
void eb_lookup_service_answer_part(struct eb_lookup *lookup, struct eb_outgoing *part);
/* An answer's turn to leave has come; see eb_grpc_server_handler. */
struct eb_outgoing *eb_lookup_service_drop_if_expired(
    void *context, struct eb_grpc_call *grpc_call, struct eb_outgoing *message);
/* The call goes away: nobody waits for its lookups. */
void eb_lookup_service_forget(struct eb_rpc_call *call);
