/* The options of a process's event loops: the service of their connections, limits and memory.
 * Thread: written on main before the first loop starts, read by all loops. Each loop has a copy of
 * the limits, which may change while it runs. Memory: none; what they point to is borrowed for the
 * loops' life. */
#pragma once

#include "proto/grpc_server.h"
#include "server/net/conn_age.h"

struct eb_conn;
struct eb_loop;
struct eb_tls;

/* The service of all connections, as a set of callbacks. */
struct eb_conn_events {
    struct eb_grpc_server_handler calls; /* their context is the struct eb_conn */
    void (*on_open)(struct eb_conn *conn);
    void (*on_tick)(struct eb_conn *conn);
    /* Called after each write, when eb_conn_waiting_bytes may have decreased, and when a time slice
     * begins. */
    void (*on_written)(struct eb_conn *conn);
    /* Returns whether a message that was read must wait for on_written. */
    bool (*has_waiting)(const struct eb_conn *conn);
    /* Called after the writes of one time slice. eb_conn_looked_ns is the time at which the socket
     * had taken them. */
    void (*on_sent)(struct eb_conn *conn);
    /* Called when the server is about to end all its connections. An answer that is given now is
     * sent before the peer is told of the end, if one write can take it. */
    void (*on_notice)(struct eb_conn *conn);
    /* Ends every call that would not end by itself. The peer has been told that the connection
     * ends. */
    void (*on_drain)(struct eb_conn *conn);
    /* Called after the last call's on_close. */
    void (*on_close)(struct eb_conn *conn);
};

/* Time limits of a connection. */
struct eb_conn_limits {
    struct eb_grpc_server_limits session;
    uint64_t header_timeout_ms; /* for TLS and the HTTP/2 preface, and for each header block from
                                   its beginning */
    uint64_t write_timeout_ms;  /* longest time without progress while bytes wait */
    uint64_t slice_ns; /* length of a time slice, after which other connections are served */
    struct eb_conn_age_limits age;
};

/* The socket that a connection came through. */
struct eb_conn_origin {
    bool is_unix;
    bool is_admin; /* whether it came from a socket for administrators of the server */
};

/* The limits of a loop, which eb_loop_set_limits changes. */
struct eb_loop_limits {
    struct eb_conn_limits conn;
    uint64_t connections_max; /* of all loops together; a connection beyond it is closed at once */
    uint64_t handshakes_per_s_max; /* TLS handshakes that a loop begins per second; 0: no limit */
    uint64_t drain_timeout_ms;
    uint64_t tick_ms; /* time between two checks of the time limits */
};

/* Options shared by all loops of a process; read-only once the first loop has started. */
struct eb_loop_options {
    struct eb_conn_events events;
    struct eb_loop_limits limits;  /* those that a loop begins with */
    uint64_t receive_memory_bytes; /* of one loop */
    uint64_t answer_memory_bytes;  /* of one loop */
    struct eb_tls *tls; /* the TLS that loops begin with; NULL for plain bytes everywhere */
    void *service;      /* for the hooks below */
    /* Makes the service's state of one loop before the loop runs; NULL if out of memory. */
    void *(*on_loop_open)(struct eb_loop *loop);
    /* Called with each tick. Returns whether another tick is needed even if there are no
     * connections. */
    bool (*on_loop_tick)(struct eb_loop *loop);
    /* Called at the time that eb_loop_call_later has set. May be NULL if nobody calls that. */
    void (*on_loop_later)(struct eb_loop *loop);
    /* Called before each sleep, ahead of the writes. May be NULL. */
    void (*on_loop_before_sleep)(struct eb_loop *loop);
    void (*on_loop_close)(struct eb_loop *loop); /* after the loop has ended */
    struct eb_loop **loops;                      /* [loop_count] all loops */
    size_t loop_count;
};
