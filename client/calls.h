/* The records of a client's calls: as many as may be in flight, made at once, told apart by numbers
 * that are never used again.
 * Thread: any for the functions; of a record see its parts. Memory: all records from the heap at
 * init; one is its taker's until it is given back. */
#pragma once

#include "client/alarms.h"
#include "client/embag_async.h"
#include "client/lookup_call.h"
#include "client/models_call.h"
#include "proto/list.h"
#include "proto/net/mailbox.h"
#include "proto/status.h"

#include <stdatomic.h>

struct eb_connection;
struct eb_completion_queue;
struct eb_dispatcher;
struct eb_grpc_client_call;

enum eb_call_kind { EB_CALL_LOOKUP, EB_CALL_LIST_MODELS, EB_CALL_COMMAND };

/* In the order in which those that wait are sent. */
enum eb_call_priority { EB_CALL_INTERACTIVE, EB_CALL_BATCH, EB_CALL_PRIORITIES };

enum eb_call_state {
    EB_CALL_OVER,    /* not the client's: with whoever makes it, or takes its result */
    EB_CALL_WAITING, /* for a connection */
    EB_CALL_PAUSED,  /* for the time of its next attempt */
    EB_CALL_SENT
};

struct eb_call {
    /* Guarded by the table's lock. */
    uint64_t id;          /* 0: free */
    struct eb_call *next; /* free, or in a queue of completions */
    bool cancel_posted;   /* its mail is under way */
    bool given_back;      /* but for that mail */

    /* Of the one that has taken it; from eb_engine_post until on_over the client's. */
    struct eb_mail submit;
    struct eb_mail cancel;
    struct eb_dispatcher *dispatcher;
    enum eb_call_kind kind;
    const char *path; /* of one that is no lookup */
    enum eb_call_priority priority;
    struct eb_outgoing *request; /* its hold is the record's */
    struct eb_lookup_expected expected;
    uint64_t deadline_ns;
    void (*on_over)(struct eb_call *call); /* on the client's thread: answer or error is set */
    /* Of a command, on the client's thread: it is not done. */
    void (*on_progress)(struct eb_call *call, const struct eb_models_progress *progress);
    embag_done_fn on_done; /* the user's, with its context */
    void *context;
    struct eb_completion_queue *queue; /* where it goes without on_done */

    /* How it ended. */
    uint32_t attempts;
    uint32_t retry_after_ms;
    bool was_sent; /* at least once: attempts also counts where no connection could be had */
    void *answer;  /* eb_lookup_answer, eb_models_list, eb_models_progress; NULL: error says why */
    struct eb_error error;

    /* The client's thread's alone, also while the record is another's or free: what is late is
     * known by it. Reset by that thread when the call is over. */
    enum eb_call_state state;
    bool is_unary; /* whatever the client's mode */
    struct eb_connection *connection;
    uint64_t sent_ns;
    bool was_alone;                    /* when it was sent, among those of its priority */
    struct eb_list link;               /* in the list of those that wait, or of the connection's */
    struct eb_grpc_client_call *unary; /* NULL: on the stream */
    struct eb_alarm alarm;
};

/* Calls in order, by their `link`. The client's thread's. */
struct eb_call_list {
    struct eb_list links;
    uint32_t count;
};

struct eb_calls {
    uv_mutex_t lock;
    uv_cond_t changed; /* one has been given back, or the table is closed */
    struct eb_call *records;
    uint32_t count;
    bool closed;         /* nothing is taken or posted any more */
    uint64_t generation; /* of the next number */
    struct eb_call *free;
    atomic_uint inside; /* twice the threads inside the client; odd: the last to go posts `left` */
    uv_sem_t left;
};

/* false: no memory, and nothing is left to undo. */
bool eb_calls_init(struct eb_calls *calls, uint32_t count);
/* Accepts zeroes. */
void eb_calls_deinit(struct eb_calls *calls);

/* A record, zero but for its number and what is the client's thread's. Waits for one until
 * deadline_ns (0: not at all). NULL: *error is RESOURCE_EXHAUSTED or, after waiting in vain,
 * DEADLINE_EXCEEDED; CANCELLED where closed. */
struct eb_call *eb_calls_take(struct eb_calls *calls, uint64_t deadline_ns, struct eb_error *error);
/* Takes a record back. Its request has been dropped, its answer handed on. */
void eb_calls_give(struct eb_calls *calls, struct eb_call *call);

/* Posts a taken record's submit mail. false: the table is closed. */
bool eb_calls_post(struct eb_calls *calls, struct eb_mailbox *mailbox, struct eb_call *call);
/* Posts the cancel mail of the call with this number, if there is one. */
void eb_calls_post_cancel(struct eb_calls *calls, struct eb_mailbox *mailbox, uint64_t id);
/* Notes that the cancel mail was delivered. false: the record is nobody's any more. */
bool eb_calls_on_cancel(struct eb_calls *calls, struct eb_call *call);
/* The record with this number; NULL: none. */
struct eb_call *eb_calls_find(struct eb_calls *calls, uint64_t id);

/* Marks this thread as inside the client, so that closing waits for it, and no longer. Whoever
 * calls a function of the client enters before it touches anything else, and leaves last. */
void eb_calls_enter(struct eb_calls *calls);
void eb_calls_leave(struct eb_calls *calls);
/* From now on nothing is taken or posted; threads that wait for a record are sent away. */
void eb_calls_close(struct eb_calls *calls);
/* Waits until no thread is inside. Once; no thread enters any more. */
void eb_calls_await_leaving(struct eb_calls *calls);

static inline void eb_call_list_init(struct eb_call_list *list)
{
    eb_list_init(&list->links);
    list->count = 0;
}

static inline void eb_call_list_append(struct eb_call_list *list, struct eb_call *call)
{
    eb_list_push(&list->links, &call->link);
    list->count++;
}

/* The call is in the list. */
static inline void eb_call_list_remove(struct eb_call_list *list, struct eb_call *call)
{
    eb_list_remove(&call->link);
    list->count--;
}

/* Return the oldest and the newest call. The list is not empty. */
static inline struct eb_call *eb_call_list_first(const struct eb_call_list *list)
{
    return EB_CONTAINER_OF(list->links.next, struct eb_call, link);
}

static inline struct eb_call *eb_call_list_last(const struct eb_call_list *list)
{
    return EB_CONTAINER_OF(list->links.previous, struct eb_call, link);
}
