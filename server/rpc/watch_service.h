/* EmbeddingBag.WatchModels: sends a router the versions that the server has, at once, when they
 * change, and once a second, and keeps the versions that the router claims. A caller is told
 * nothing about models that it may not see.
 * Thread: the call's loop. Memory: each watch is on the heap until its call is over; messages come
 * from the loop's answer pool. */
#pragma once

#include "server/rpc/conn_state.h"

/* Most watches of one connection: a router has one, and for a moment two when its claims change. At
 * this limit a call gets RESOURCE_EXHAUSTED. */
#define EB_WATCHES_MAX 8
/* Shortest time between two messages because of changes. It bounds the work if a repository changes
 * all the time; the changes in between are sent together. */
#define EB_WATCH_INTERVAL_MS 50

/* A watch is sent nothing more while this many bytes wait to be written to its connection. It is
 * far more than EB_RPC_STREAMING_WAITING_BYTES_MAX, because routers take a server for hung that
 * sends no holdings for some seconds, and answers to their lookups wait on the same connection. */
#define EB_WATCH_WAITING_BYTES_MAX (1u << 20)

/* Sends the watches of a loop the holdings, unless it has done so less than EB_WATCH_INTERVAL_MS
 * ago; then it does so when that time is over. Called when the loop's snapshot was replaced, when
 * the server begins to leave, and by on_loop_later. */
void eb_watch_service_update(struct eb_service_loop *loop);

/* The callbacks of the method. */
void eb_watch_service_start(struct eb_rpc_call *call, const struct eb_grpc_message *message);
void eb_watch_service_tell(struct eb_rpc_call *call);
void eb_watch_service_end(struct eb_rpc_call *call);
void eb_watch_service_forget(struct eb_rpc_call *call);
