/* A loop's thread for its TLS handshakes. Answering a client's hello takes some 0.3 ms and cannot
 * be interrupted, so the loop would be late for its other connections. The thread has a lower
 * priority than the loop (nice 5): if all CPUs are busy, lookups come first, and handshakes still
 * get a share.
 * Thread: its loop's. The thread itself calls nothing but eb_tls_stream_shake, and posts mails.
 * Memory: in the struct, which must stay in place while the thread runs. */
#pragma once

#include "proto/net/mailbox.h"

#define EB_HANDSHAKE_STEP_BYTES 16384 /* most bytes of a peer that one step takes */

struct eb_conn;
struct eb_tls_stream;

/* The step that the thread takes, or has taken last. */
struct eb_handshake_step {
    struct eb_mail mail;          /* posted to the loop when the step is over */
    struct eb_conn *conn;         /* of the step in progress; NULL if it has been closed since */
    struct eb_tls_stream *stream; /* belongs to the thread during the step; then NULL again */
    uint64_t cpu_ns;              /* CPU time of the step */
    uint8_t bytes[EB_HANDSHAKE_STEP_BYTES]; /* the stream has been fed with them */
};

struct eb_handshake_thread {
    uv_thread_t thread;
    uv_sem_t work; /* counts steps to take, or says that the thread ends */
    struct eb_mailbox *mailbox;
    struct eb_handshake_step step;
    bool is_started;
    bool is_ending; /* set before `work` is posted for the last time */
};

/* Starts the thread. Its steps' mails go to `mailbox`. Returns 0, or a negative libuv code if the
 * system gives no thread. */
int eb_handshake_thread_start(struct eb_handshake_thread *thread, struct eb_mailbox *mailbox);
/* Waits until the thread has ended. No step may be in progress. Does nothing if the thread was not
 * started. */
void eb_handshake_thread_stop(struct eb_handshake_thread *thread);

/* Returns whether a step is in progress: its mail has not been delivered yet. */
bool eb_handshake_thread_is_busy(const struct eb_handshake_thread *thread);
/* Begins the step, whose stream has been fed. No other may be in progress. */
void eb_handshake_thread_begin(
    struct eb_handshake_thread *thread, struct eb_conn *conn, struct eb_tls_stream *stream);
