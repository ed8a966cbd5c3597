/* One client of the server and the requests it has under way: what stands between the load and the
 * client's interface.
 * Thread: sends, waits and reports from one thread; what has ended is counted on the client's own
 * thread, under the connection's lock. Memory: slots on the heap; the connection must not move once
 * open. */
#pragma once

#include "client/cli/load_pool.h"
#include "client/cli/load_stats.h"
#include "client/cli/load_verify.h"

#include <pthread.h>

struct eb_load_connection;

/* A request under way, or a free slot for one. */
struct eb_load_slot {
    struct eb_load_connection *connection;
    struct eb_load_slot *next; /* of the free ones */
    uint64_t position;         /* in the pool */
    uint64_t due_ns;
    uint64_t sent_ns;
};

/* All zero is one that is not open. */
struct eb_load_connection {
    struct embag_client *client;
    const struct eb_load_pool *pool;
    struct eb_load_verify *verify; /* NULL: answers are not compared */
    struct eb_load_slot *slots;    /* [slot_count] */
    unsigned slot_count;
    pthread_mutex_t lock; /* of all below */
    struct eb_load_window window;
    pthread_cond_t freed; /* a slot has become free */
    struct eb_load_slot *free_slots;
    unsigned busy_count;
    uint64_t next_position;
    struct eb_load_stats stats;
};

/* Connects; the connections and requests in flight of the options are shared by `count`
 * connections, of which this is the one at `index`. false: said on stderr. */
bool eb_load_connection_open(struct eb_load_connection *connection,
    const struct eb_load_options *options, unsigned index, unsigned count);
/* Ends what is under way. */
void eb_load_connection_close(struct eb_load_connection *connection);

/* Says what to send from now on; `verify` may be NULL. Nothing may be under way. */
void eb_load_connection_supply(struct eb_load_connection *connection,
    const struct eb_load_pool *pool, struct eb_load_verify *verify);
/* Sends one request and waits for its end. Returns whether the server has streams: where it has
 * none, the client makes a unary call of every request from now on. */
bool eb_load_connection_streams(struct eb_load_connection *connection);
/* Forgets what has been counted. Nothing may be under way. */
void eb_load_connection_begin(
    struct eb_load_connection *connection, const struct eb_load_window *window);
/* Ends the window earlier. */
void eb_load_connection_shorten(struct eb_load_connection *connection, uint64_t end_ns);

/* Sends the next request of the pool. false: as many as may be are under way. */
bool eb_load_connection_send(struct eb_load_connection *connection, uint64_t due_ns);
/* Counts a request that was due and will not be sent any more. */
void eb_load_connection_skip(struct eb_load_connection *connection, uint64_t due_ns);
/* Waits until a request may be sent. false: not before until_ns. */
bool eb_load_connection_wait(struct eb_load_connection *connection, uint64_t until_ns);
/* Waits until nothing is under way. false: not before until_ns. */
bool eb_load_connection_drain(struct eb_load_connection *connection, uint64_t until_ns);
/* Adds what has been counted so far. Returns how many requests are under way. */
unsigned eb_load_connection_report(
    struct eb_load_connection *connection, struct eb_load_stats *stats);
