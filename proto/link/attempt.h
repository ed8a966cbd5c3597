/* One attempt to get an answer to a request: the request as it is sent over one connection. A call
 * has several attempts if it is sent again, and two at a time if it is hedged.
 * Thread: the loop's. Memory: an attempt belongs to its owner; a connection links the attempts that
 * were sent over it. */
#pragma once

#include "proto/link/replica.h"
#include "proto/list.h"
#include "proto/send_queue.h"

struct eb_connection;
struct eb_grpc_client_call;
struct eb_peer;

/* In the order in which waiting calls are sent. */
enum eb_priority { EB_PRIORITY_INTERACTIVE, EB_PRIORITY_BATCH, EB_PRIORITY_COUNT };

struct eb_attempt {
    /* Set by the owner before sending, and not changed while the attempt is sent. */
    void *owner;
    uint64_t id;                 /* request id, by which an answer on a stream names its request */
    const char *path;            /* gRPC path of a unary method; NULL: a lookup */
    struct eb_outgoing *request; /* the owner has a hold on it */
    uint64_t deadline_ns;        /* UINT64_MAX: none */
    enum eb_priority priority;
    uint32_t earlier_count; /* attempts of the same request that were sent before */
    bool is_unary;          /* sent as a unary call of its own, not on the connection's stream */

    struct eb_list link; /* of the connection that it was sent over; free for the owner otherwise */
    /* Set by the connection. */
    struct eb_connection *connection; /* NULL: not sent, or it has ended */
    uint64_t sent_ns;
    struct eb_grpc_client_call *unary; /* NULL: sent on a stream */
    bool was_alone;    /* sent while no other attempt of its priority was in flight */
    bool is_on_former; /* the stream is the connection's former one */
    /* Set by the set of peers (peer_set.h). */
    struct eb_peer *peer; /* NULL: not sent, or it has ended */
    bool is_counted;      /* `counted` is in flight at the peer's replica */
    struct eb_replica_attempt counted;
};

/* Attempts in order, linked by their `link`. */
struct eb_attempt_list {
    struct eb_list links;
    uint32_t count;
};

static inline void eb_attempt_list_init(struct eb_attempt_list *list)
{
    eb_list_init(&list->links);
    list->count = 0;
}

static inline void eb_attempt_list_append(struct eb_attempt_list *list, struct eb_attempt *attempt)
{
    eb_list_push(&list->links, &attempt->link);
    list->count++;
}

/* Puts an attempt in front of another one, or at the end if `next` is the list's head. */
static inline void eb_attempt_list_insert(
    struct eb_attempt_list *list, struct eb_list *next, struct eb_attempt *attempt)
{
    eb_list_push(next, &attempt->link);
    list->count++;
}

/* Removes an attempt that is in the list. */
static inline void eb_attempt_list_remove(struct eb_attempt_list *list, struct eb_attempt *attempt)
{
    eb_list_remove(&attempt->link);
    list->count--;
}

/* Return the oldest attempt and the newest one. The list must not be empty. */
static inline struct eb_attempt *eb_attempt_list_first(const struct eb_attempt_list *list)
{
    return EB_CONTAINER_OF(list->links.next, struct eb_attempt, link);
}

static inline struct eb_attempt *eb_attempt_list_last(const struct eb_attempt_list *list)
{
    return EB_CONTAINER_OF(list->links.previous, struct eb_attempt, link);
}
