/* An event loop and its thread: listeners, connections, buffer pools and a mailbox.
 * Thread: create, listen, start and destroy on main; drain, cut, end, eb_loop_mailbox and
 * eb_loop_conn_count on any; everything else on the loop's own. Memory: on the heap from create to
 * destroy. */
#pragma once

#include "proto/net/mailbox.h"
#include "server/base/counters.h"
#include "server/net/buffer_pool.h"
#include "server/net/conn.h"
#include "server/net/listener.h"
#include "server/net/tls.h"

/* What all loops of a process share; read-only once the first has started. */
struct eb_loop_options {
    struct eb_conn_events events;
    struct eb_conn_limits conn_limits;
    uint64_t receive_memory_bytes; /* of one loop */
    uint64_t answer_memory_bytes;  /* of one loop */
    uint64_t connections_max;      /* of all loops together; one more is closed at once */
    uint64_t drain_timeout_ms;
    uint64_t tick_ms;
    struct eb_tls *tls; /* what loops begin with; NULL: plain bytes everywhere */
    void *service;      /* for the hooks below */
    /* The service's state of one loop: made before the loop runs (NULL: no memory), ended after. */
    void *(*on_loop_open)(struct eb_loop *loop);
    /* With each tick. true: another one is needed, though there be no connection. */
    bool (*on_loop_tick)(struct eb_loop *loop);
    void (*on_loop_close)(struct eb_loop *loop);
    struct eb_loop **loops; /* [loop_count] all of them */
    size_t loop_count;
};

/* 0, or a negative libuv code with nothing left behind. `options` is borrowed for the loop's life.
 */
int eb_loop_create(struct eb_loop **loop, const struct eb_loop_options *options);
/* Adopts an open listener; before start only. `shared`: its connections are handed round to all
 * loops. 0 or a negative libuv code. */
int eb_loop_listen(struct eb_loop *loop, const struct eb_listener *listener, bool shared);
/* Runs the thread. `drained` is posted to `mailbox` once, when after eb_loop_drain no connection
 * and no hold is left. 0 or a negative libuv code. */
int eb_loop_start(struct eb_loop *loop, struct eb_mailbox *mailbox, struct eb_mail *drained);
/* Waits for the thread's end, if it was started, and frees the loop. Accepts NULL. */
void eb_loop_destroy(struct eb_loop *loop);

/* Any thread, each at most once, in this order. Drain: stop accepting, let calls end, cut what is
 * left at drain_timeout_ms. Cut: close everything now. End, when all loops have drained (until
 * then one may hand another a connection): the thread returns. */
void eb_loop_drain(struct eb_loop *loop);
void eb_loop_cut(struct eb_loop *loop);
void eb_loop_end(struct eb_loop *loop);

/* What TCP connections that are accepted from now on speak, in place of what it was: takes a hold.
 * Not from plain bytes to TLS or back. */
void eb_loop_set_tls(struct eb_loop *loop, struct eb_tls *tls);
/* NULL: plain bytes. */
struct eb_tls *eb_loop_tls(const struct eb_loop *loop);

struct eb_mailbox *eb_loop_mailbox(struct eb_loop *loop);
struct eb_buffer_pool *eb_loop_answer_pool(struct eb_loop *loop);
struct eb_buffer_pool *eb_loop_receive_pool(struct eb_loop *loop);
/* The same, as proto/ borrows it. */
const struct eb_memory *eb_loop_receive_memory(const struct eb_loop *loop);
const struct eb_loop_options *eb_loop_options(const struct eb_loop *loop);
void *eb_loop_user(const struct eb_loop *loop);
/* What has been counted here: by net/ what comes and goes, by the service all else. */
struct eb_counters *eb_loop_counters(struct eb_loop *loop);
/* Open connections, and those accepted for it that are not open yet; any thread may read. */
uint64_t eb_loop_conn_count(const struct eb_loop *loop);
bool eb_loop_is_draining(const struct eb_loop *loop);
uint64_t eb_loop_now_ms(const struct eb_loop *loop);
/* Whether a line about one more connection that is not served may be logged; a line that counts
 * those that may not follows. */
bool eb_loop_may_log(struct eb_loop *loop);
uv_loop_t *eb_loop_uv(struct eb_loop *loop);
/* The loop stays while a hold is there: work elsewhere that will post to its mailbox. */
void eb_loop_hold(struct eb_loop *loop);
void eb_loop_release(struct eb_loop *loop);

/* For conn.c: membership in the loop's lists, its one read buffer, who of them was read last. */
void eb_loop_add(struct eb_loop *loop, struct eb_conn *conn);
void eb_loop_remove(struct eb_loop *loop, struct eb_conn *conn);
void eb_loop_mark(struct eb_loop *loop, struct eb_conn *conn);
/* Returns whether a connection that libuv has found readable may be read at once. It may not if
 * reading others has taken as long as is allowed between two writes. While other connections wait,
 * only one that `is_light` may; one that is new or has lately used up time slices waits too. */
bool eb_loop_may_read(struct eb_loop *loop, bool is_light, uint64_t now_ns);
/* Returns whether the queue is so long that a connection that joins it now waits long. */
bool eb_loop_has_long_queue(const struct eb_loop *loop);
/* Queues a connection for its next time slice (run_queue.h), in which the loop calls eb_conn_run.
 * Does nothing if it waits already. */
void eb_loop_wait(struct eb_loop *loop, struct eb_conn *conn, uint64_t slices);
/* Takes a connection out of the queue. Does nothing if it does not wait. */
void eb_loop_stop_waiting(struct eb_loop *loop, struct eb_conn *conn);
/* Watches a socket for its peer's hang-up while libuv does not poll it. The loop then calls
 * eb_conn_hang_up, at most once. Returns 0 or a negative libuv code. */
int eb_loop_watch_hangup(struct eb_loop *loop, struct eb_conn *conn, int socket);
void eb_loop_forget_hangup(struct eb_loop *loop, int socket);
uv_buf_t eb_loop_read_buffer(struct eb_loop *loop);
struct eb_time_slice_reader *eb_loop_reader(struct eb_loop *loop);
/* The loop has something to do since `now_ns` (uv_hrtime), unless it had already; it has written
 * something by `now_ns`. */
void eb_loop_wake(struct eb_loop *loop, uint64_t now_ns);
void eb_loop_see(struct eb_loop *loop, uint64_t now_ns);
