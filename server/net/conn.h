/* One accepted connection: a libuv stream that feeds a gRPC session, through TLS on TCP where the
 * loop has it, and writes what it sends, at most once per turn of the loop.
 * Thread: its loop's. Memory: on the heap from open until its last callback, on_close; messages
 * from its share of the loop's receive memory, output from that memory. */
#pragma once

#include "proto/grpc_server.h"
#include "proto/net/address.h"
#include "server/net/conn_age.h"
#include "server/net/run_queue.h"

#include <uv.h>

struct eb_conn;
struct eb_loop;

/* What a connection's calls mean: the service behind all of them. */
struct eb_conn_events {
    struct eb_grpc_server_handler calls; /* their context is the struct eb_conn */
    void (*on_open)(struct eb_conn *conn);
    void (*on_tick)(struct eb_conn *conn);
    /* After each write, eb_conn_waiting_bytes may have become less, and when a turn begins. */
    void (*on_written)(struct eb_conn *conn);
    /* Returns whether something that was read waits for on_written. */
    bool (*has_kept)(const struct eb_conn *conn);
    /* After the writes of one turn: eb_conn_looked_ns is when the socket had taken what it did. */
    void (*on_sent)(struct eb_conn *conn);
    /* The server is going to end all its connections: what is said now leaves before the peer is
     * told of that, as far as one write takes it. */
    void (*on_notice)(struct eb_conn *conn);
    /* What would not end by itself is to end. The peer has been told that the connection ends. */
    void (*on_drain)(struct eb_conn *conn);
    /* After the last call's on_close. */
    void (*on_close)(struct eb_conn *conn);
};

/* Time limits of a connection. */
struct eb_conn_limits {
    struct eb_grpc_server_limits session;
    uint64_t header_timeout_ms; /* for TLS and the preface, and for a header block once begun */
    uint64_t write_timeout_ms;  /* without progress while bytes wait */
    uint64_t slice_ns;          /* of serving, then the other connections have their turn */
    struct eb_conn_age_limits age;
};

/* Where a connection came from. */
struct eb_conn_origin {
    bool is_unix;
    bool is_admin; /* from a socket for those who administer the server */
};

/* Takes `socket`, also on failure. NULL: it was closed. */
struct eb_conn *eb_conn_open(struct eb_loop *loop, int socket, struct eb_conn_origin origin);

/* Closes at once; calls end with on_close before the memory goes. May be called twice. */
void eb_conn_close(struct eb_conn *conn, const char *reason);
/* Lets the calls there are end, then closes. May be called twice. */
void eb_conn_drain(struct eb_conn *conn);
/* Somebody who is known has called: it may stay. */
void eb_conn_set_known(struct eb_conn *conn);
/* Something was given to the session: write before the loop sleeps. */
void eb_conn_mark(struct eb_conn *conn);
/* Called by the loop before it sleeps, for a marked connection. */
void eb_conn_flush(struct eb_conn *conn);
/* Called by the loop when the next time slice of a connection that waits for one comes: deals with
 * what it kept back, then with what its socket has, for the slice's length. */
void eb_conn_run(struct eb_conn *conn, uint64_t now_ns);
/* Called by the loop when the peer of a connection that waits has gone. */
void eb_conn_hang_up(struct eb_conn *conn);
/* Called by the loop about once a second. */
void eb_conn_tick(struct eb_conn *conn, uint64_t now_ms);

/* Whether the connection has had enough of this turn of its loop at `now_ns` (uv_hrtime): asked
 * after each message, which is when it notices. What can wait is put off until on_written. */
bool eb_conn_spend_slice(struct eb_conn *conn, uint64_t now_ns);
/* When it was asked last, or began to read or to write; now, where that was before another's turn.
 * For what need not be known better than to what one message takes: a look at the clock costs as
 * much as reading a small one. */
uint64_t eb_conn_looked_ns(const struct eb_conn *conn);
/* What the last eb_conn_spend_slice of this turn has said. */
bool eb_conn_is_slice_over(const struct eb_conn *conn);
/* In on_tick only: how long of the time since the last one it has waited for time slices, while
 * what its peer had sent was not read. */
uint64_t eb_conn_unread_ms(const struct eb_conn *conn);

/* Whether nothing that is begun now could be answered. */
bool eb_conn_is_ending(const struct eb_conn *conn);
/* Bytes given to the session that the peer has not taken yet. */
size_t eb_conn_waiting_bytes(const struct eb_conn *conn);

/* The peer's. */
const struct eb_address *eb_conn_peer(const struct eb_conn *conn);
struct eb_loop *eb_conn_loop(const struct eb_conn *conn);
/* Where its messages come from and go back to, also after its end, until the last has. */
const struct eb_memory *eb_conn_receive_memory(const struct eb_conn *conn);
bool eb_conn_is_admin(const struct eb_conn *conn);
/* Whether it came over a unix socket, whose file says who may. */
bool eb_conn_is_local(const struct eb_conn *conn);
/* See eb_tls_stream_has_name; false without TLS. */
bool eb_conn_has_client_name(const struct eb_conn *conn, const char *name);
/* The service's own state of this connection. */
void *eb_conn_user(const struct eb_conn *conn);
void eb_conn_set_user(struct eb_conn *conn, void *user);

/* The connection in the loop's lists; used by loop.c and write_queue.c only. */
struct eb_conn_links {
    struct eb_conn *conn;
    struct eb_list open;     /* in the list of all connections */
    struct eb_list marked;   /* in the list of those that have something to write */
    struct eb_run_entry run; /* in the queue of those that wait for a time slice */
};
struct eb_conn_links *eb_conn_links(struct eb_conn *conn);
