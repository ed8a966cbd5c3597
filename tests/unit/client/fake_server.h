/* A small gRPC server on its own thread, for tests of the client. It has real sockets, and the
 * request's model name chooses the answer:
 *   "echo"    each query's indices come back as its values, i64 [count]
 *   "refuse"  NOT_FOUND, "no such thing"
 *   "silent"  no answer at all
 *   "garbage" bytes that are not a LookupResponse
 *   "nothing" OK without a message
 *   "twice"   two answers
 *   "hang-up" the connection is closed instead of an answer
 *   "last"    an answer, then the connection is closed
 *   "drain"   an answer, then the connection is drained
 *   "busy"    alternately RESOURCE_EXHAUSTED with a push-back of 20 ms, and an answer
 *   "busy-timeout"  the same, except that the answer's values are the request's timeout_us, i64 [1]
 *   "always-busy"   RESOURCE_EXHAUSTED with a push-back of 20 ms
 *   "full"    RESOURCE_EXHAUSTED without a push-back
 *   "slow"    like "echo", after FAKE_SERVER_SLOW_MS in which the server does nothing else
 *   "later"   like "echo", once the next request of the connection has arrived; for one index
 *   "unary"   ends a stream with UNIMPLEMENTED; in a unary call like "echo"
 *   "poison"  ends a stream with INTERNAL, gets NOT_FOUND in a unary call
 *   "cut"     alternately a connection closed in the middle of an answer, and a whole answer
 *   "who"     the number that is the call's bearer token, i64 [1]; a token without digits is 0
 *   "stranger"  UNAUTHENTICATED
 * Lookup and LookupStream are served alike, except that on a stream errors are answers, and
 * "nothing" ends the stream. When a client ends its side of a stream, the server ends the stream,
 * unless a "later" is still to be answered on it or a "silent" came last. A command of ModelAdmin
 * reports progress twice. Its model's name decides how it continues: "silent" reports nothing more,
 * "refuse" is refused, "nothing" ends the call without an outcome, and "hang-up" closes the
 * connection. Under any other name the command is done, and its outcome names the path of the call.
 * Calls of WatchModels get the message that the test sets, when they begin and when it is set.
 * Thread: started, used and stopped on the test's thread. Memory: freed by stop. */
#pragma once

#include "proto/list.h"
#include "proto/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#define FAKE_SERVER_SLOW_MS 5
#define FAKE_SERVER_WAY_MS 20
#define FAKE_SERVER_BUSY_MS 20 /* the push-back */

enum fake_server_mode {
    FAKE_SERVER_SPEAKS_GRPC,
    FAKE_SERVER_SPEAKS_HTTP1, /* answers every connection with an HTTP/1.1 error */
    FAKE_SERVER_IS_MUTE,      /* accepts and reads, but sends nothing */
    FAKE_SERVER_IS_HALF_MUTE, /* mute on the first connection, speaks gRPC on the others */
    FAKE_SERVER_IS_FAR        /* speaks gRPC; bytes take FAKE_SERVER_WAY_MS to reach it */
};

/* The answer to ReloadSettings. ListSettings always gets the same two settings. */
enum fake_server_reload { FAKE_SERVER_RELOADS, FAKE_SERVER_REFUSES, FAKE_SERVER_HANGS_UP };

/* Things that a server can be told to do with all of its connections. */
enum fake_server_order {
    FAKE_SERVER_TELL = 1,        /* send the message to all calls of WatchModels */
    FAKE_SERVER_END_WATCHES = 2, /* end these calls with UNAVAILABLE */
    FAKE_SERVER_DRAIN = 4,       /* accept no more calls on the connections */
    FAKE_SERVER_HANG_UP = 8      /* close the connections */
};

#define FAKE_SERVER_CLAIMS_BYTES 4096

/* State of WatchModels. */
struct fake_watches {
    uv_mutex_t lock;  /* guards the following members, up to `claims` */
    uint8_t *message; /* [size]; NULL: calls get none */
    size_t size;
    unsigned orders; /* enum fake_server_order, not carried out yet */
    /* Those of the last call, as "MODEL/VERSION " or "MODEL/VERSION* " if it is served. */
    char claims[FAKE_SERVER_CLAIMS_BYTES];
    struct eb_list calls;    /* open ones; only the server's thread uses it */
    atomic_int status;       /* enum eb_status; if it is not OK, calls end with it at once */
    atomic_uint begun_count; /* calls that have come */
    atomic_uint open_count;  /* of these, the ones that are open */
    atomic_uint gap_count;   /* times that the last one ended */
    atomic_ulong token;      /* of the last call; see "who" */
};

struct fake_conn;

struct fake_server {
    enum fake_server_mode mode;
    uv_thread_t thread;
    uv_loop_t loop;
    uv_async_t stop;
    uv_async_t order;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } listener;
    bool is_unix;
    struct fake_conn *conns;   /* open ones, singly linked */
    atomic_uint conn_count;    /* accepted so far */
    atomic_uint call_count;    /* requests that have arrived so far, without GetServer and probes */
    atomic_uint repeat_count;  /* of these, the ones that say that they were sent before */
    atomic_uint cancel_count;  /* cancel messages that have arrived so far */
    atomic_uint done_count;    /* calls that have ended, for any reason */
    atomic_uint half_count;    /* streams that their clients have ended */
    atomic_uint timeout_count; /* calls that came with a grpc-timeout */
    atomic_int reload;         /* enum fake_server_reload */
    atomic_bool lacks_version; /* requests that name a version or label get NOT_FOUND */
    atomic_bool is_stalled;    /* requests that come from now on get no answer */
    unsigned turn;             /* requests for "busy" and "cut" so far; answers alternate */
    atomic_ullong instance;    /* told by GetServer; 0 at first */
    _Atomic(const char *) role; /* told by GetServer; "server" at first */
    atomic_int told_status;     /* enum eb_status; if it is not OK, GetServer ends with it */
    atomic_uint told_count;     /* calls of GetServer that have come */
    struct fake_watches watches;
    char address[128]; /* as embag_open expects it */
};

/* Listens on a free port of 127.0.0.1, or on unix_path if that is not NULL. Returns false on
 * failure. */
bool fake_server_start(
    struct fake_server *server, enum fake_server_mode mode, const char *unix_path);
/* Replaces the message for calls of WatchModels, and sends it to those that are open. NULL: later
 * calls get none. */
void fake_server_tell(struct fake_server *server, const uint8_t *bytes, size_t size);
/* Has the server do something (enum fake_server_order) soon, on its own thread. */
void fake_server_order(struct fake_server *server, unsigned orders);
/* Copies the claims of the last call of WatchModels. */
void fake_server_claims(struct fake_server *server, char out[FAKE_SERVER_CLAIMS_BYTES]);
/* Closes everything. Returns whether the loop was left empty. */
bool fake_server_stop(struct fake_server *server);
