/* One client of the servers, with the requests it has in flight: the layer between the load and the
 * client's interface.
 * Thread: one thread sends, waits and reports; outcomes are counted on the client's thread, under
 * the connection's lock. Memory: slots on the heap; an open connection must not move. */
#pragma once

#include "client/cli/load_pool.h"
#include "client/cli/load_servers.h"
#include "client/cli/load_stats.h"
#include "client/cli/load_verify.h"

#include <pthread.h>

struct eb_load_connection;

/* A request in flight, or a free slot for one. */
struct eb_load_slot {
    struct eb_load_connection *connection;
    struct eb_load_slot *next; /* next slot in the free list */
    uint64_t position;         /* position of the request in the pool */
    uint64_t due_ns;
    uint64_t sent_ns;
};

/* Not open if zeroed. */
struct eb_load_connection {
    struct embag_client *client;
    const struct eb_load_pool *pool;
    struct eb_load_verify *verify; /* NULL: answers are not compared */
    struct eb_load_slot *slots;    /* [slot_count] */
    unsigned slot_count;
    struct eb_load_snapshot *snapshots; /* [2]: at the latest mark, and room for another one */
    pthread_mutex_t lock;               /* guards everything below */
    struct eb_load_window window;
    pthread_cond_t freed; /* a slot has become free */
    struct eb_load_slot *free_slots;
    unsigned busy_count;
    uint64_t next_position;
    struct eb_load_stats stats;
};

/* Opens client `index` of `count`. The clients share the connections and the requests in flight
 * that the options give. Returns false after printing an error to stderr. */
bool eb_load_connection_open(struct eb_load_connection *connection,
    const struct eb_load_options *options, unsigned index, unsigned count);
/* Waits until the client is connected to all of its servers. Returns false with *error set if it is
 * not by the deadline. */
bool eb_load_connection_await_servers(
    struct eb_load_connection *connection, uint64_t deadline_ns, struct embag_error *error);
/* Ends all requests in flight and closes the client. */
void eb_load_connection_close(struct eb_load_connection *connection);

/* Sets what to send from now on; `verify` may be NULL. No request may be in flight. */
void eb_load_connection_supply(struct eb_load_connection *connection,
    const struct eb_load_pool *pool, struct eb_load_verify *verify);
/* Sends one request and waits for its outcome. Returns whether the server supports streams. If it
 * does not, the client sends every later request as a unary call. */
bool eb_load_connection_streams(struct eb_load_connection *connection);
/* Clears the counters and sets the window. No request may be in flight. */
void eb_load_connection_begin(
    struct eb_load_connection *connection, const struct eb_load_window *window);
/* Moves the end of the window to an earlier time. */
void eb_load_connection_shorten(struct eb_load_connection *connection, uint64_t end_ns);

/* Sends the next request of the pool. Returns false if all slots are in use. */
bool eb_load_connection_send(struct eb_load_connection *connection, uint64_t due_ns);
/* Counts a request that was due and will not be sent. */
void eb_load_connection_skip(struct eb_load_connection *connection, uint64_t due_ns);
/* Waits until a request may be sent, but no longer than until_ns. Returns false if none may be
 * sent. */
bool eb_load_connection_wait(struct eb_load_connection *connection, uint64_t until_ns);
/* Waits until no request is in flight, but no longer than until_ns. Returns false if any still
 * is. */
bool eb_load_connection_drain(struct eb_load_connection *connection, uint64_t until_ns);
/* Adds what has been counted so far to *stats. Returns the number of requests in flight. */
unsigned eb_load_connection_report(
    struct eb_load_connection *connection, struct eb_load_stats *stats);
/* Notes the time from which servers are counted. */
void eb_load_connection_mark_servers(struct eb_load_connection *connection);
/* Adds what was counted per server since the latest mark. */
void eb_load_connection_report_servers(
    struct eb_load_connection *connection, struct eb_load_servers *servers);
