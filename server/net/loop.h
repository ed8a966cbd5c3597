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

/* Creates a loop. Returns 0 or a negative libuv code; nothing is left open then. `options` is
 * borrowed for the loop's life. */
int eb_loop_create(struct eb_loop **loop, const struct eb_loop_options *options);
/* Takes an open listener. Called only before start. If it is `shared`, its connections are handed
 * to all loops in turn. Returns 0 or a negative libuv code. */
int eb_loop_listen(struct eb_loop *loop, const struct eb_listener *listener, bool shared);
/* Starts the threads. Posts `drained` to `mailbox` once, when no connection and no hold is left
 * after eb_loop_drain. Returns 0 or a negative libuv code; then nothing is started. */
int eb_loop_start(struct eb_loop *loop, struct eb_mailbox *mailbox, struct eb_mail *drained);
/* Waits for the threads' end, if they were started, and frees the loop. Accepts NULL. */
void eb_loop_destroy(struct eb_loop *loop);

/* Any thread; each at most once, in this order. Drain stops accepting, lets calls end, and cuts
 * those that are left at drain_timeout_ms. Cut closes everything now. End lets the thread return.
 * It may be called only when all loops have drained, because until then one loop may hand a
 * connection to another. */
void eb_loop_drain(struct eb_loop *loop);
void eb_loop_cut(struct eb_loop *loop);
void eb_loop_end(struct eb_loop *loop);

/* Sets the TLS of TCP connections that are accepted from now on. Holds `tls` and drops the former
 * one. Cannot change from plain bytes to TLS or from TLS to plain bytes. */
void eb_loop_set_tls(struct eb_loop *loop, struct eb_tls *tls);

/* Replaces the loop's limits. Those on calls apply to calls that begin from now on, age_max_ms to
 * connections that open from now on, and the others to all connections at once. In conn.session,
 * only the members that grpc_server.h names may differ from the former ones. If the loop cannot
 * watch more connections, connections_max is not raised; a log line says so. */
void eb_loop_set_limits(struct eb_loop *loop, const struct eb_loop_limits *limits);

struct eb_mailbox *eb_loop_mailbox(struct eb_loop *loop);
struct eb_buffer_pool *eb_loop_answer_pool(struct eb_loop *loop);
struct eb_buffer_pool *eb_loop_receive_pool(struct eb_loop *loop);
const struct eb_loop_options *eb_loop_options(const struct eb_loop *loop);
void *eb_loop_user(const struct eb_loop *loop);
/* Returns the loop's counters. net/ counts connections, bytes and lag; the service
 * counts all else. */
struct eb_counters *eb_loop_counters(struct eb_loop *loop);
/* Returns how many connections are open or accepted but not open yet. Any thread. */
uint64_t eb_loop_conn_count(const struct eb_loop *loop);
/* Returns how many connections wait for a step of their TLS handshake. */
uint64_t eb_loop_handshake_count(const struct eb_loop *loop);
bool eb_loop_is_draining(const struct eb_loop *loop);
uint64_t eb_loop_now_ms(const struct eb_loop *loop);
/* Calls on_loop_later in `delay_ms` ms. Does nothing if a call is due already. */
void eb_loop_call_later(struct eb_loop *loop, uint64_t delay_ms);
/* Keeps the loop from sleeping before the next on_loop_before_sleep. */
void eb_loop_stay_awake(struct eb_loop *loop);
/* Returns the libuv loop, for handles that the loop's owner opens there. They must be closed in
 * on_loop_close, and their memory kept until eb_loop_destroy has returned. */
uv_loop_t *eb_loop_uv(struct eb_loop *loop);
/* Holds the loop: it does not end before eb_loop_release. Used while another thread does work that
 * it will post to the loop's mailbox. */
void eb_loop_hold(struct eb_loop *loop);
void eb_loop_release(struct eb_loop *loop);
