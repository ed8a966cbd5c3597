/* The table of a client's calls: one record for each call that may be in flight. Records are
 * reused; a call's number is never used again.
 * Thread: any for the functions; for the fields of a record see the struct. Memory: init allocates
 * all records on the heap. A record belongs to its taker until it is given back. */
#pragma once

#include "client/embag_async.h"
#include "client/lookup_call.h"
#include "client/models_call.h"
#include "client/settings_call.h"
#include "proto/link/dispatcher.h"
#include "proto/net/mailbox.h"
#include "proto/status.h"

#include <stdatomic.h>

struct eb_completion_queue;
struct eb_engine;

enum eb_call_kind {
    EB_CALL_LOOKUP,
    EB_CALL_LIST_MODELS,
    EB_CALL_COMMAND,
    EB_CALL_LIST_SETTINGS,
    EB_CALL_RELOAD
};

struct eb_call {
    /* Guarded by the table's lock. */
    uint64_t id;          /* 0: free */
    struct eb_call *next; /* next record in the free list or in a completion queue */
    bool cancel_posted;   /* the cancel mail has not arrived yet */
    bool given_back;      /* given back, but not free until the cancel mail has arrived */

    /* Owned by whoever has taken the record; by the client from eb_engine_post until on_over. */
    struct eb_mail submit;
    struct eb_mail cancel;
    struct eb_engine *engine;
    enum eb_call_kind kind;
    const char *path; /* gRPC path of a call that is not a lookup */
    enum eb_priority priority;
    struct eb_outgoing *request; /* the record has a hold on it until the client takes it over */
    struct eb_lookup_expected expected;
    bool names_version; /* by its number or its label */
    uint64_t deadline_ns;
    void (*on_over)(struct eb_call *call); /* called on the client's thread, with a result */
    /* Called on the client's thread with the progress of a command that is not done yet. */
    void (*on_progress)(struct eb_call *call, const struct eb_models_progress *progress);
    embag_done_fn on_done; /* the user's callback, which gets `context` */
    void *context;
    struct eb_completion_queue *queue; /* gets the call if there is no on_done */

    /* The outcome. */
    uint32_t attempts; /* including those without a connection */
    uint32_t retry_after_ms;
    /* Depending on the kind, an eb_lookup_answer, eb_models_list, eb_models_progress,
     * eb_settings_list or embag_reload. NULL: see error. */
    void *answer;
    struct eb_error error;

    /* Used by the client's thread only, even while the record is free or another thread has it:
     * with this the client's thread recognises late answers. */
    struct eb_dispatch_call dispatched;
};

struct eb_calls {
    uv_mutex_t lock;
    uv_cond_t changed; /* a record has been given back, or the table is closed */
    struct eb_call *records;
    uint32_t count;
    bool closed;         /* nothing may be taken or posted any more */
    uint64_t generation; /* part of the next call's number */
    struct eb_call *free;
    /* Twice the number of threads inside the client, plus 1 if closing waits; then the last thread
     * to leave posts `left`. */
    atomic_uint inside;
    uv_sem_t left;
};

/* Returns false if out of memory; then nothing is left to undo. */
bool eb_calls_init(struct eb_calls *calls, uint32_t count);
/* Accepts a zeroed struct. */
void eb_calls_deinit(struct eb_calls *calls);

/* Returns a record that is zero except for its number and the fields of the client's thread. If
 * none is free, waits for one until deadline_ns (0: does not wait). Returns NULL with *error set:
 * RESOURCE_EXHAUSTED if it did not wait, DEADLINE_EXCEEDED if it waited in vain, CANCELLED if the
 * table is closed. */
struct eb_call *eb_calls_take(struct eb_calls *calls, uint64_t deadline_ns, struct eb_error *error);
/* Takes a record back. Its request must have been dropped, and its answer handed on. */
void eb_calls_give(struct eb_calls *calls, struct eb_call *call);

/* Posts a mail, such as the submit mail of a taken record. Returns false if the table is closed. */
bool eb_calls_post(struct eb_calls *calls, struct eb_mailbox *mailbox, struct eb_mail *mail);
/* Posts the cancel mail of the call with this number, if there is one. */
void eb_calls_post_cancel(struct eb_calls *calls, struct eb_mailbox *mailbox, uint64_t id);
/* Notes that the cancel mail was delivered. Returns false if the call has been given back; then its
 * record is free now. */
bool eb_calls_on_cancel(struct eb_calls *calls, struct eb_call *call);
/* Returns the record with this number; NULL if there is none. */
struct eb_call *eb_calls_find(struct eb_calls *calls, uint64_t id);

/* Marks this thread as inside the client until eb_calls_leave, so that closing waits for it. Every
 * function of the client enters before it touches anything else, and leaves last. */
void eb_calls_enter(struct eb_calls *calls);
void eb_calls_leave(struct eb_calls *calls);
/* Closes the table: nothing can be taken or posted any more, and threads that wait for a record get
 * none. */
void eb_calls_close(struct eb_calls *calls);
/* Waits until no thread is inside. Called once, after the last thread has entered. */
void eb_calls_await_leaving(struct eb_calls *calls);
