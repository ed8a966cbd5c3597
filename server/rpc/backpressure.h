/* Decides when a connection's work waits. The reason is its time slice, the number of requests in
 * flight, its share of the loop's answer memory, or answers that the peer does not take.
 * Thread: the loop's. Memory: none. */
#pragma once

#include "server/rpc/conn_state.h"

/* Batch lookups may be at most 1 / EB_BACKPRESSURE_BATCH_PART of in_flight_max. They may hold the
 * same part of the bytes at which the connection is over its share. */
#define EB_BACKPRESSURE_BATCH_PART 2

/* The last 1 / EB_BACKPRESSURE_LAST_PART of a loop's answer memory is divided among connections, so
 * that those that do not read leave some of it to the others. As long as more is free, each
 * connection takes what it needs. */
#define EB_BACKPRESSURE_LAST_PART 4
/* While at most 1 / EB_BACKPRESSURE_LITTLE_PART of the answer memory is taken, by idle connections
 * and small lookups, one lookup may have all the rest. So a loop can answer whatever its memory can
 * hold. */
#define EB_BACKPRESSURE_LITTLE_PART 64

/* Most unfinished commands of one loop. At this limit a call gets RESOURCE_EXHAUSTED. */
#define EB_BACKPRESSURE_COMMANDS_MAX 32

/* The reason why a request is not started, or a stream is not read further. */
enum eb_backpressure {
    EB_BACKPRESSURE_NONE,
    EB_BACKPRESSURE_SLICE, /* the connection's time slice is over */
    EB_BACKPRESSURE_LIMIT, /* the connection has in_flight_max lookups in flight */
    /* Waiting lookups and untaken answers hold outbound_bytes_max, or more than
     * eb_backpressure_room_bytes. It is not known in advance how much a lookup will hold, so
     * together they may exceed outbound_bytes_max by less than one interactive and one batch
     * lookup. Never the reason if nothing is held, because the decision is made again only when
     * held bytes are given back. */
    EB_BACKPRESSURE_SHARE,
    EB_BACKPRESSURE_QUEUE /* the peer does not take the answers to requests that are not lookups */
};

/* Returns why the connection may do no more now. Batch lookups alone are never the reason, because
 * they wait for all others: the connection can still send requests and withdraw them. */
enum eb_backpressure eb_backpressure_of_conn(const struct eb_rpc_conn *conn);
/* Returns why a call other than a stream, whose request is complete, may not start now. If the
 * reason is LIMIT, the call must be refused; for any other reason it waits. */
enum eb_backpressure eb_backpressure_of_start(const struct eb_rpc_call *call);
/* Returns why a stream may not be read now: the reason that holds back its connection, or QUEUE. */
enum eb_backpressure eb_backpressure_of_stream(const struct eb_rpc_call *call);
/* Returns whether the peer must take answers before the call may be read further (QUEUE). Only for
 * a bidirectional call whose requests are not lookups. */
bool eb_backpressure_is_queue_full(const struct eb_rpc_call *call);
/* Returns whether batch lookups fill their part of in_flight_max or of the connection's share. */
bool eb_backpressure_is_batch_over_share(const struct eb_rpc_conn *conn);
/* Returns the bytes of the loop's answer memory that the connection's next lookup may take. If next
 * to nothing is taken and the connection holds nothing, returns all that is free. Otherwise returns
 * the larger of two amounts: what is free beyond the last part (EB_BACKPRESSURE_LAST_PART), and
 * half of what is free beyond what the connection holds. So each connection leaves at least half of
 * what was free of the last part before it held anything. */
uint64_t eb_backpressure_room_bytes(const struct eb_rpc_conn *conn);
/* Returns whether the loop may take one more command of ModelAdmin. If not, returns false with
 * *error set. */
bool eb_backpressure_may_command(const struct eb_service_loop *loop, struct eb_error *error);

/* Stops reading a stream. Does nothing for other calls. */
void eb_backpressure_pause_call(struct eb_rpc_call *call);
/* Stops reading all streams of the connection. */
void eb_backpressure_pause_conn(struct eb_rpc_conn *conn);
/* Stops reading those streams of the connection for which eb_backpressure_is_queue_full is true. */
void eb_backpressure_pause_queue_full(struct eb_rpc_conn *conn);
