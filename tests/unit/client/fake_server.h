/* A small gRPC server on a thread of its own, for tests of the client: real sockets, answers that
 * the request's model name chooses.
 *   "echo"    each query's indices come back as its values, i64 [count]
 *   "refuse"  NOT_FOUND, "no such thing"
 *   "silent"  never an answer
 *   "garbage" bytes that are no LookupResponse
 *   "nothing" OK without a message
 *   "twice"   two answers
 *   "hang-up" the connection is closed instead of an answer
 *   "last"    an answer, then the connection is closed
 *   "drain"   an answer, then the connection is drained
 *   "busy"    RESOURCE_EXHAUSTED with a push-back of 20 ms, every other time an answer
 *   "busy-timeout"  the same, but that the answer's values are the request's timeout_us, i64 [1]
 *   "full"    RESOURCE_EXHAUSTED without one
 *   "slow"    as "echo", after FAKE_SERVER_SLOW_MS in which nothing else is done
 *   "later"   an answer once the next request of the connection has arrived
 *   "poison"  on a stream its end with INTERNAL, by itself NOT_FOUND
 *   "cut"     the connection is closed amid an answer, every other time a whole one
 * Lookup and LookupStream are served alike, but that errors on a stream are answers, and "nothing"
 * ends it. A command of ModelAdmin tells progress twice, then, by its model's name, is "silent", is
 * a "refuse"d one, ends with "nothing", is cut by a "hang-up", or else is done and names its path.
 * Thread: started, asked and stopped on the test's thread. Memory: freed by stop. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#define FAKE_SERVER_SLOW_MS 5
#define FAKE_SERVER_WAY_MS 20
#define FAKE_SERVER_BUSY_MS 20 /* the push-back */

enum fake_server_mode {
    FAKE_SERVER_SPEAKS_GRPC,
    FAKE_SERVER_SPEAKS_HTTP1, /* answers every connection with an HTTP/1.1 error */
    FAKE_SERVER_IS_MUTE,      /* accepts and reads, says nothing */
    FAKE_SERVER_IS_HALF_MUTE, /* the same on the first connection, and speaks gRPC on the others */
    FAKE_SERVER_IS_FAR        /* speaks gRPC; bytes take FAKE_SERVER_WAY_MS to it */
};

struct fake_conn;

struct fake_server {
    enum fake_server_mode mode;
    uv_thread_t thread;
    uv_loop_t loop;
    uv_async_t stop;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } listener;
    bool is_unix;
    struct fake_conn *conns;  /* open ones, singly linked */
    atomic_uint conn_count;   /* accepted so far */
    atomic_uint call_count;   /* requests that have arrived so far */
    atomic_uint cancel_count; /* requests to forget another that have arrived so far */
    atomic_uint done_count;   /* calls that are over, for whatever reason */
    unsigned turn;            /* of "busy" and "cut" */
    char address[128];        /* as embag_open takes it */
};

/* Listens on a free port of 127.0.0.1, or on unix_path where it is not NULL. false: it does not. */
bool fake_server_start(
    struct fake_server *server, enum fake_server_mode mode, const char *unix_path);
/* Closes everything. Returns whether the loop was left empty. */
bool fake_server_stop(struct fake_server *server);
