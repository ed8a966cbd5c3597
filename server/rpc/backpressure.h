/* When a connection's work waits: the time slice, the number of requests in flight, the share of
 * the loop's answer memory, and answers that the peer does not take.
 * Thread: the loop's. Memory: none. */
#pragma once

#include "server/rpc/conn_state.h"

/* Lookups of batch priority may be this part of in_flight_max, and hold this part of what puts the
 * connection over its share: 1 / EB_BACKPRESSURE_BATCH_PART. */
#define EB_BACKPRESSURE_BATCH_PART 2

/* The last of a loop's answer memory, 1 / EB_BACKPRESSURE_LAST_PART of it, is shared out, so that
 * connections that do not read leave some to the others; until then each takes what it needs. */
#define EB_BACKPRESSURE_LAST_PART 4
/* While no more than this part is taken, by idle connections and small lookups, one lookup may have
 * all the rest: what a loop can hold it can answer. */
#define EB_BACKPRESSURE_LITTLE_PART 64

/* Why a request is not started, or a stream not read further. */
enum eb_backpressure {
    EB_BACKPRESSURE_NONE,
    EB_BACKPRESSURE_SLICE, /* the connection's time slice is over */
    EB_BACKPRESSURE_LIMIT, /* as many lookups are in flight as may be, in_flight_max */
    /* Lookups that wait and answers that are not taken hold outbound_bytes_max, or more than
     * eb_backpressure_room_bytes. What one lookup will hold is not known before it is there: all
     * together hold less than outbound_bytes_max and what one interactive and one batch lookup
     * take. Never if nothing is held: what is held has an end, at which this is asked again. */
    EB_BACKPRESSURE_SHARE,
    EB_BACKPRESSURE_QUEUE /* the peer does not take the answers of requests that are not lookups */
};

/* Why the connection may do no more now. Batch lookups alone, which wait for all others, do not
 * cause it: the connection can still ask, and withdraw what it asked for. */
enum eb_backpressure eb_backpressure_of_conn(const struct eb_rpc_conn *conn);
/* Why a call other than a stream, whose request is complete, may not start now. LIMIT refuses it;
 * it waits for the others. */
enum eb_backpressure eb_backpressure_of_start(const struct eb_rpc_call *call);
/* Returns why a stream may not be read now: what holds back its connection, or QUEUE. */
enum eb_backpressure eb_backpressure_of_stream(const struct eb_rpc_call *call);
/* Returns whether it is a bidirectional call of requests that are not lookups, whose peer must take
 * answers first: QUEUE. */
bool eb_backpressure_is_queue_full(const struct eb_rpc_call *call);
/* Returns whether batch lookups have their part of in_flight_max or of the share. */
bool eb_backpressure_is_batch_over_share(const struct eb_rpc_conn *conn);
/* Returns what the connection's next lookup may take of the loop's answer memory: all that is free
 * if next to nothing is taken and the connection holds none; else all but the last part, or in that
 * half of what is free beyond what the connection holds. So each leaves at least half of what was
 * free of that part before it held anything. */
uint64_t eb_backpressure_room_bytes(const struct eb_rpc_conn *conn);

/* Reads a stream no further. Does nothing for other calls. */
void eb_backpressure_pause_call(struct eb_rpc_call *call);
/* Reads no stream of the connection further. */
void eb_backpressure_pause_conn(struct eb_rpc_conn *conn);
/* Reads those streams no further that eb_backpressure_is_queue_full. */
void eb_backpressure_pause_queue_full(struct eb_rpc_conn *conn);
