/* The state of a dispatcher (dispatcher.h) and of its calls.
 * Thread: the loop's. Memory: that of their owners. */
#pragma once

#include "proto/link/alarms.h"
#include "proto/link/dispatch_group.h"
#include "proto/link/peer_set.h"

/* Alarms that a call may set, and those apart from calls: one per connection, and one to cause a
 * round. */
#define EB_DISPATCH_CALL_ALARMS 2
#define EB_DISPATCHER_ALARMS (2 * EB_PEER_SET_CONNECTIONS_MAX + 1)

/* ---- calls ---- */

enum eb_dispatch_state {
    EB_DISPATCH_OVER,    /* the dispatcher does not have the call */
    EB_DISPATCH_WAITING, /* waits for a connection */
    EB_DISPATCH_PAUSED,  /* waits for the time of its next attempt */
    EB_DISPATCH_SENT
};

/* A call, which is part of its owner's record. Zeroed before it is used for the first time. */
struct eb_dispatch_call {
    /* Set by the owner before eb_dispatcher_take, and not changed until on_over. */
    struct eb_dispatch_group *group;
    uint64_t id;      /* by which an answer on a stream names its request; not EB_PROBE_ID */
    const char *path; /* gRPC path of a unary method; NULL: a lookup */
    struct eb_outgoing *request; /* the owner's hold passes to the dispatcher */
    uint64_t deadline_ns;        /* UINT64_MAX: none, for methods that never end by themselves */
    enum eb_priority priority;
    bool names_version;           /* if a server lacks the version, others may have it */
    bool has_replicas;            /* if a server is at fault, others may not be (retry.h) */
    bool changes_server;          /* never sent twice */
    struct eb_peer_filter filter; /* the servers that may get the call */
    const void *source;           /* whom the call is made for; only compared. Sources take turns */
    struct eb_error *error;       /* the owner's, who reads it in on_over */

    /* The outcome, beside *error. */
    uint32_t attempts;       /* including those for which there was no connection */
    uint32_t retry_after_ms; /* the pause that the last answer asked for; 0: none */
    uint64_t answered_ns;    /* of a lookup with an answer: the time from its first attempt */

    /* Private. Valid while the call is over, too: late answers are recognised by them. */
    struct eb_dispatcher *dispatcher;
    enum eb_dispatch_state state;
    struct eb_attempt attempt; /* waits, or is sent */
    struct eb_attempt hedge;   /* sent to another server while `attempt` is not answered */
    struct eb_alarm alarm;     /* the deadline, or the next attempt */
    struct eb_alarm hedge_alarm;
    uint64_t turn;       /* in which it is sent, among those that wait */
    uint32_t sent_count; /* attempts that were sent, or nearly so */
    uint64_t first_sent_ns;
    uint64_t ended_ns;                   /* when an attempt ended last */
    enum eb_resend_reason resend_reason; /* of the attempt that waits */
    const struct eb_peer *tried[2];      /* servers of the last attempts; they may be gone */
    bool has_answer;                     /* the owner has accepted an answer */
    bool was_sent;                       /* at least once */
    bool was_resent_free;                /* sent again after a lost connection, beside the budget */
    bool is_hedged; /* `hedge` was sent because an answer is late, not because a server is silent;
                       false once that hedge is counted as won or lost */
};

/* An answer to a lookup, as the owner has decoded it. */
struct eb_dispatch_answer {
    uint64_t id;
    enum eb_status status;
    uint32_t retry_after_ms; /* 0: the server names no time */
    void *message;           /* the owner's */
};

/* ---- the dispatcher ---- */

struct eb_dispatcher_options {
    const struct eb_targets *targets;         /* borrowed */
    const struct eb_credentials *credentials; /* borrowed */
    uint64_t connect_timeout_ns;
    unsigned int unacknowledged_ms_max; /* as in struct eb_transport */
    uint64_t resolve_interval_ns;
    uint32_t connections; /* to each server */
    bool asks_instances;  /* as in struct eb_peer_set */
    uint32_t retries_max;
    uint32_t answer_bytes_max;
    bool is_unary; /* lookups are unary calls; otherwise they share a stream per connection */
    bool is_unpaced;
};

/* Callbacks, called on the loop's thread from within eb_dispatcher_run, eb_dispatcher_abandon and
 * the loop's own callbacks. on_over may take and abandon calls; the others must not. */
struct eb_dispatch_handler {
    /* Decodes the answer to a lookup. Returns true if *answer is set; its message is then passed
     * either to accept or to drop. Returns false with *error set if the bytes are malformed; then
     * the stream that they came on must end, and its lookups are sent again as unary calls. */
    bool (*decode)(void *context, const uint8_t *bytes, size_t size,
        struct eb_dispatch_answer *answer, struct eb_error *error);
    /* Returns the call with this id, which may be over; NULL if there is none. */
    struct eb_dispatch_call *(*find)(void *context, uint64_t id);
    /* Takes over the message of an answer. Returns true if it is the answer to the call. Returns
     * false with *error set if the server has refused the call, or if the answer does not suit it;
     * the call is sent again if that status allows it. A server that has answered from another
     * version than the one that was named lacks that version: NOT_FOUND. */
    bool (*accept)(struct eb_dispatch_call *call, void *message, struct eb_error *error);
    /* Drops a message that no call waits for. */
    void (*drop)(void *context, void *message);
    /* A message of a call with a path. Returns whether it is the answer. If not, either *error is
     * set, or the answer is yet to come. NULL: no call has a path. */
    bool (*on_message)(
        struct eb_dispatch_call *call, const uint8_t *bytes, size_t size, struct eb_error *error);
    /* Drops the answer that was accepted: the call has not ended well. */
    void (*discard)(struct eb_dispatch_call *call);
    /* The dispatcher no longer has the call. If *call->error is OK, the call has its answer. */
    void (*on_over)(struct eb_dispatch_call *call);

    /* Called once: when the first connection is open (why is NULL), or when none can be had. */
    void (*on_opened)(void *context, const struct eb_error *why);
    /* Called when either number may have changed. */
    void (*on_servers)(void *context, uint32_t connected, uint32_t known);
    /* Called after eb_dispatcher_end: nothing is left on the loop. */
    void (*on_ended)(void *context);
    /* A connection of a server is open; a server is about to be forgotten. The owner may use
     * peer->user in between. Either may be NULL. */
    void (*on_peer_open)(void *context, struct eb_peer *peer);
    void (*on_peer_gone)(void *context, struct eb_peer *peer);
    /* A server that was asked (asks_instances, or several servers) has told what it is, and
     * peer->instance and peer->is_twin are up to date. If it has not told, `server` is NULL and
     * *why is set. May be NULL. */
    void (*on_peer_told)(void *context, struct eb_peer *peer, const struct eb_wire_server *server,
        const struct eb_error *why);
};

struct eb_dispatcher {
    /* Set by the owner before open. */
    struct eb_dispatcher_options options;
    const struct eb_dispatch_handler *handler;
    void *context;
    /* Room for EB_DISPATCH_CALL_ALARMS per call, and EB_DISPATCHER_ALARMS more. The loop must run a
     * round when the next one is due. */
    struct eb_alarms *alarms;

    struct eb_peer_set servers;
    struct eb_list groups; /* those with waiting calls, and perhaps others */
    uint64_t now_ns;       /* time of this round */
    struct eb_alarm wake;  /* rings only to cause a round */
    /* When to try again to rescue lookups at silent servers; UINT64_MAX: never. */
    uint64_t rescue_ns;
    uint64_t random; /* state of splitmix64.h */
    bool has_new;    /* a call waits since the present round has sent calls */
    bool is_opening;
    bool is_ending;
};
