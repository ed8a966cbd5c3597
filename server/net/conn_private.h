/* The structs of an event loop and of its connections, and the functions of each that the other
 * calls. Only for loop.c and conn.c.
 * Thread: the loop's, except members that are atomic or set before it starts, and what
 * `handshake_thread` has during a step. Memory: a loop lives
 * from eb_loop_create to eb_loop_destroy, a connection from eb_conn_open to its last callback. */
#pragma once

#include "proto/list.h"
#include "proto/net/address.h"
#include "proto/net/mailbox.h"
#include "server/base/counters.h"
#include "server/base/log_rate_limit.h"
#include "server/net/buffer_pool.h"
#include "server/net/handshake_queue.h"
#include "server/net/handshake_thread.h"
#include "server/net/listener.h"
#include "server/net/loop_options.h"
#include "server/net/run_queue.h"
#include "server/net/socket_output.h"
#include "server/net/time_slice.h"
#include "server/net/watchers.h"

#include <stdatomic.h>

#define EB_LOOP_LISTENERS_MAX 128 /* 16 addresses of up to 8 each */

enum eb_loop_state { EB_LOOP_SERVING, EB_LOOP_DRAINING, EB_LOOP_DRAINED };

struct eb_loop_listener {
    struct eb_listener listener;
    bool is_shared;
};

struct eb_loop {
    uv_loop_t uv;
    uv_thread_t thread;
    uv_timer_t tick;
    uv_prepare_t before_sleep;
    uv_idle_t stay_awake; /* active while a connection has more to write, waits for a slice, or may
                             begin a step of its handshake */
    bool stays_awake;     /* as eb_loop_stay_awake says */
    uv_timer_t later;     /* active while a call of on_loop_later is due */
    uv_timer_t next_handshake; /* active while handshakes wait and none may begin yet */
    struct eb_hangup_watch hangups;
    struct eb_mailbox mailbox;
    struct eb_mail drain_mail;
    struct eb_mail cut_mail;
    struct eb_mail end_mail;
    struct eb_mailbox *drained_to; /* the mailbox to which `drained` is posted */
    struct eb_mail *drained;
    const struct eb_loop_options *options;
    struct eb_loop_limits limits; /* sessions point into it */
    uint64_t watched_max;         /* connections that the loop's table of watchers has room for */
    struct eb_tls *tls;           /* for new TCP connections; NULL for plain bytes */
    struct eb_log_rate_limit refusals;
    void *user;            /* the service's state */
    struct eb_list conns;  /* all connections, linked by eb_conn.open */
    struct eb_list marked; /* those with something to write, linked by eb_conn.marked */
    struct eb_list late;   /* those that the last flush did not reach, linked by eb_conn.marked */
    struct eb_run_queue waiting; /* those that wait for a time slice, linked by eb_conn.run */
    struct eb_handshake_queue handshakes; /* those that wait for a step of their TLS handshake */
    struct eb_handshake_thread
        handshake_thread;            /* takes the steps; not started if the loop has no TLS */
    atomic_uint_fast64_t conn_count; /* connections that are open, or on their way to this loop */
    uint64_t holds;
    uint64_t drain_started_ms;
    enum eb_loop_state state;
    bool is_started;
    unsigned next_shared; /* index of the loop that gets the next connection of a shared listener */
    size_t listener_count;
    struct eb_loop_listener listeners[EB_LOOP_LISTENERS_MAX];
    struct eb_buffer_pool receive_pool;
    struct eb_buffer_pool answer_pool;
    struct eb_memory receive_memory; /* takes from receive_pool */
    uint64_t busy_since_ns;    /* when it was woken; 0 if it sleeps or its cycle has just begun */
    uint64_t seen_ns;          /* when this cycle last read the clock; 0 if not yet */
    uint64_t reading_since_ns; /* when this cycle began to read connections; 0 if not yet */
    struct eb_counters counters;
    struct eb_time_slice_reader reader; /* the connection that was read last */
    char *read_buffer;                  /* [EB_TIME_SLICE_READ_MAX] */
};

struct eb_conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } peer;
    struct eb_socket_output output;
    struct eb_list open;     /* in eb_loop.conns */
    struct eb_list marked;   /* in eb_loop.marked or .late; empty if there is nothing to write */
    struct eb_run_entry run; /* in eb_loop.waiting */
    struct eb_handshake_entry handshake; /* in eb_loop.handshakes */
    struct eb_time_slice slice;
    struct eb_conn_age age;
    struct eb_address address; /* the peer's */
    struct eb_loop *loop;
    struct eb_grpc_server *session; /* NULL only while opening fails */
    struct eb_tls_stream *tls;      /* between session and socket; NULL for plain bytes; not to be
                                       used during a step of the handshake */
    struct eb_receive_quota *quota; /* NULL only while opening fails */
    void *user;                     /* the service's state */
    uv_shutdown_t shutdown;
    uint64_t opened_ms;
    uint64_t lingering_since_ms; /* when our side ended */
    uint64_t lingering_bytes; /* bytes read and dropped since then, or since a tick after an orderly
                                 end */
    uint64_t headers_since_ms; /* when an incomplete header block began; 0 if there is none */
    uint64_t shaking_since_ns; /* when the peer's first handshake bytes came; 0 if not yet */
    struct eb_run_usage usage;
    uint64_t waiting_since_ns; /* when it began to wait for a step of its handshake or for a slice;
                                  the last tick if it waits for a slice and that was later */
    uint64_t waited_ns;        /* time waited for slices since the last tick */
    uint64_t unread_ms;        /* waited_ns of the time between the last two ticks */
    unsigned vain_looks; /* times that libuv found it readable but it had to wait, since it last had
                            nothing to read */
    struct eb_conn_origin origin;
    uint64_t message_count; /* messages of the peer that have been processed */
    bool is_read_out;       /* whether the last read emptied the socket */
    bool is_inside;         /* whether the last read was not small and lay within one message */
    bool is_unpolled;  /* whether its socket is only watched for a hang-up, not polled by libuv */
    bool is_lingering; /* whether our side has ended and the peer's has not */
    bool is_orderly; /* whether our side ended without an error, which the peer could not foresee */
    bool is_closing;
    bool is_peer_tls; /* whether the peer speaks TLS on a port that does not */
};

/* ---- of conn.c ---- */

/* Opens a connection on `socket`, which it takes. Returns NULL if out of memory or if the socket
 * cannot be used, and closes the socket then. */
struct eb_conn *eb_conn_open(struct eb_loop *loop, int socket, struct eb_conn_origin origin);
/* Writes what a marked connection has to write, before the loop sleeps. */
void eb_conn_flush(struct eb_conn *conn);
/* Gives a waiting connection its time slice: for the slice's length, processes input that was kept
 * back, then reads the socket. */
void eb_conn_run(struct eb_conn *conn, uint64_t now_ns);
/* Begins one step of the connection's TLS handshake: reads the socket, and gives the loop's
 * `handshake_thread` what has come. */
void eb_conn_begin_step(struct eb_conn *conn, uint64_t now_ns);
/* Goes on with a connection that is not closed and whose step is over. */
void eb_conn_end_step(struct eb_conn *conn);
/* Closes a connection whose time for its TLS handshake is over. */
void eb_conn_time_out(struct eb_conn *conn);
/* Closes a waiting connection whose peer has gone. */
void eb_conn_hang_up(struct eb_conn *conn);
/* Checks the time limits, about once a second. */
void eb_conn_tick(struct eb_conn *conn, uint64_t now_ms);

/* ---- of loop.c ---- */

void eb_loop_add(struct eb_loop *loop, struct eb_conn *conn);
void eb_loop_remove(struct eb_loop *loop, struct eb_conn *conn);
/* Returns whether a connection that libuv has found readable may be read at once. It may not if
 * reading others has taken as long as is allowed between two writes. While other connections wait,
 * only a connection that `is_light` may: one that is not new and has not used up time slices
 * lately. */
bool eb_loop_may_read(struct eb_loop *loop, bool is_light, uint64_t now_ns);
/* Returns whether the queue is so long that a connection that joins it now waits for long. */
bool eb_loop_has_long_queue(const struct eb_loop *loop);
/* Notes that the loop has had work since `now_ns` (uv_hrtime), unless that was noted already. */
void eb_loop_wake(struct eb_loop *loop, uint64_t now_ns);
/* Returns whether one more log line about a connection that is not served may be written. A later
 * line reports how many were left out. */
bool eb_loop_may_log(struct eb_loop *loop);
