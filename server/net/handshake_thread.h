/* A thread beside a loop that computes the loop's TLS handshakes, one step at a time. Answering a
 * client's hello takes some 0.3 ms and cannot be interrupted, so the loop would be late for its
 * other connections. The thread has a lower priority than the loop (5 nice levels): if all CPUs are
 * busy, lookups come first, and handshakes still get a share.
 *
 * A step goes to the thread through a semaphore, because the thread has no loop that a mailbox
 * could wake, and comes back as a mail.
 * Thread: start before the loop's thread, stop after it; everything else on the loop's. Memory: in
 * the struct, which must stay in place from start to stop. */
#pragma once

#include "proto/net/mailbox.h"

#define EB_HANDSHAKE_STEP_BYTES 16384 /* most bytes of a peer that one step takes */

struct eb_conn;
struct eb_tls_stream;

/* The step that is in progress. */
struct eb_handshake_step {
    struct eb_mail mail;
    struct eb_conn *conn;         /* NULL if it was forgotten */
    struct eb_tls_stream *stream; /* belongs to the thread; NULL if no step is in progress */
    uint64_t cpu_ns;              /* CPU time of the step */
    uint8_t bytes[EB_HANDSHAKE_STEP_BYTES]; /* what the stream has been fed with */
};

struct eb_handshake_thread {
    uv_thread_t thread;
    uv_sem_t work; /* counts steps to take; the last count ends the thread */
    struct eb_mailbox *mailbox;
    struct eb_handshake_step step;
    bool is_started;
    bool is_ending; /* set before `work` is posted for the last time */
};

/* Starts the thread. At the end of each step it posts the step's mail to `mailbox`, which calls
 * `deliver`. Keeps `mailbox` until stop. Returns 0, or a negative libuv code if the system gives no
 * thread; then nothing is started. */
int eb_handshake_thread_start(struct eb_handshake_thread *thread, struct eb_mailbox *mailbox,
    void (*deliver)(struct eb_mail *mail));
/* Waits until the thread has ended. No step may be in progress. Does nothing if the thread was not
 * started. */
void eb_handshake_thread_stop(struct eb_handshake_thread *thread);

/* Begins a step. `stream` has been fed with the step's bytes, and belongs to the thread until
 * `deliver` is called. `conn` is only a name for the step. No other step may be in progress. */
void eb_handshake_thread_begin(
    struct eb_handshake_thread *thread, struct eb_conn *conn, struct eb_tls_stream *stream);
/* Returns whether a step is in progress. The second function returns whether it is that of
 * `conn`. */
bool eb_handshake_thread_is_busy(const struct eb_handshake_thread *thread);
bool eb_handshake_thread_has(const struct eb_handshake_thread *thread, const struct eb_conn *conn);
/* Forgets whose step is in progress, because that connection is closed. */
void eb_handshake_thread_forget(struct eb_handshake_thread *thread);
/* Ends the step whose mail is being delivered. Returns its stream, which belongs to the caller
 * again. */
struct eb_tls_stream *eb_handshake_thread_end(struct eb_handshake_thread *thread);
