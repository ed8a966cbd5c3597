/* The service's states of a loop, a connection and a call: what is being worked on, what waits, and
 * how much of both there may be.
 * Thread: the loop's. Memory: states are on the heap, bounded by the limits of connections and
 * calls; each is freed by service.c, which made it. */
#pragma once

#include "server/rpc/auth_call.h"
#include "server/rpc/call_stats.h"
#include "server/rpc/lookup.h"
#include "server/rpc/method.h"
#include "server/rpc/table_counters.h"
#include "server/stats/access_log.h"
#include "server/stats/slow_list.h"

/* Lookups of batch priority may be this part of in_flight_max, and hold this part of what makes the
 * connection full: 1 / EB_RPC_BATCH_PART. */
#define EB_RPC_BATCH_PART 2

/* The last of a loop's answer memory, 1 / EB_RPC_LAST_PART of it, is shared out, so that
 * connections that do not read leave some to the others; until then each takes what it needs. */
#define EB_RPC_LAST_PART 4
/* While no more than this is taken, which is what idle connections and small lookups have, one
 * lookup may have all the rest: what a loop can hold it can answer. */
#define EB_RPC_LITTLE_PART 64

/* Places in which a loop's lookups are found by call and id; a power of two. Some thousands are
 * being worked on at the most busy times. */
#define EB_RPC_BUCKETS 4096

/* A feed tells nothing more over a connection on which so many bytes wait to leave. */
#define EB_RPC_STREAMING_WAITING_BYTES_MAX 4096

/* The service's state of one loop. */
struct eb_service_loop {
    struct eb_lookup_home home;
    struct eb_table_counters tables;
    const struct eb_service *service;
    struct eb_auth *auth;   /* NULL: nobody is asked who he is */
    struct eb_arena arena;  /* of unary requests, commands and watches */
    unsigned command_count; /* of ModelAdmin, that are not done */
    bool is_leaving;        /* the server drains, or will after drain_delay_ms; health says so */
    struct eb_health_watch *watches;
    struct eb_access_log access_log;
    struct eb_slow_list slow;
    struct eb_lookup *buckets[EB_RPC_BUCKETS]; /* those that have a call */
    struct eb_call_stats call_stats;
};

/* Lookups of one connection and priority that are being worked on. */
struct eb_rpc_load {
    uint64_t count;
    uint64_t held_bytes; /* messages, working memory and answers of those the executor has */
};

/* The service's state of one connection. */
struct eb_rpc_conn {
    struct eb_conn *conn;
    struct eb_service_loop *loop;
    struct eb_auth_conn auth;
    struct eb_lookup *lookups; /* being worked on */
    struct eb_rpc_load interactive;
    struct eb_rpc_load batch;
    uint64_t answer_bytes; /* that answers hold, from when they are given out until they are sent */
    unsigned watch_count;
    uint64_t waiting_count; /* calls that wait until answers have been taken */
    bool resuming;
    uint64_t paused_count;     /* streams that are not read further */
    uint64_t kept_bytes;       /* messages of lookups whose request is not ended, or waiting */
    uint64_t kept_unary_bytes; /* likewise of calls that are no lookups */
    struct eb_rpc_call *calls; /* in the order in which they are served */
    struct eb_rpc_call *last_call;
};

/* The service's state of one call. */
struct eb_rpc_call {
    struct eb_grpc_call *call;
    struct eb_rpc_conn *conn;
    const struct eb_method *method;
    unsigned method_index; /* as in eb_method_place */
    struct eb_auth_call auth;
    struct eb_rpc_call *next;
    struct eb_rpc_call *previous;
    struct eb_grpc_message message;   /* but of a stream: the request, until it is begun */
    uint64_t arrival_ns;              /* uv_hrtime: when that message was complete */
    uint64_t in_flight;               /* lookups of this call being worked on */
    uint64_t deadline_ns;             /* uv_hrtime; UINT64_MAX: none */
    struct eb_admin_command *command; /* that is being done; NULL: none */
    struct eb_health_watch *watch;    /* NULL: none */
    bool has_message;
    bool request_ended;
    bool draining;       /* a stream: no more is read, what was read is answered */
    bool has_dropped;    /* draining: a message came that has no answer */
    bool finished;       /* its status has been sent */
    bool paused;         /* a stream: not read further */
    bool is_recorded;    /* what is to be known of it was said, or kept: request_end.h */
    bool is_undecodable; /* it ends since a message's bytes are none */
    bool waiting;        /* but a stream: its whole message is there and waits */
};

const struct eb_limits *eb_rpc_conn_limits(const struct eb_rpc_conn *conn);
/* Gives a message's bytes back. */
void eb_rpc_conn_give_message(struct eb_rpc_conn *conn, struct eb_grpc_message *message);

/* A lookup and its call are the connection's until it is over. */
void eb_rpc_conn_link(struct eb_lookup *lookup, struct eb_rpc_call *call);
/* It has neither any longer. Does nothing where the connection is gone. */
void eb_rpc_conn_unlink(struct eb_lookup *lookup);
/* It has no call any longer: that is over, or has withdrawn it. */
void eb_rpc_call_forget(struct eb_lookup *lookup);
/* A linked lookup waits and holds so many bytes, to be counted until it is unlinked. */
void eb_rpc_conn_hold(struct eb_lookup *lookup, uint64_t bytes);
/* So many of these are given back, or counted elsewhere. Does nothing where the connection is gone.
 */
void eb_rpc_conn_drop(struct eb_lookup *lookup, uint64_t bytes);

/* Whether as many requests are being worked on as may be, in_flight_max. */
bool eb_rpc_conn_is_over_limit(const struct eb_rpc_conn *conn);
/* What the connection's next lookup may take of the loop's answer memory: all of it where next to
 * nothing is taken and the connection holds none; else all but its last part, or in that half of
 * what is free beyond what the connection holds. So each leaves at least half of
 * what was free of that part before it held anything. */
uint64_t eb_rpc_conn_room_bytes(const struct eb_rpc_conn *conn);
/* Whether lookups that wait and answers that are not taken hold what they may of memory:
 * outbound_bytes_max, or more than eb_rpc_conn_room_bytes. What one lookup will hold is not known
 * before it is there: all together hold less than outbound_bytes_max and what one interactive and
 * one batch lookup take. Never where nothing is held: what is has an end, upon which it is asked
 * again. */
bool eb_rpc_conn_is_over_share(const struct eb_rpc_conn *conn);
/* Whether the connection has as much going on as it may, or its turn is over. Batch lookups alone,
 * for which nothing is done while others wait, do not make it so: it can still ask, and withdraw
 * what it asked for. */
bool eb_rpc_conn_is_busy(const struct eb_rpc_conn *conn);
/* Whether batch lookups have their part of both. */
bool eb_rpc_conn_is_over_batch_share(const struct eb_rpc_conn *conn);
/* Reads no stream further. */
void eb_rpc_conn_pause(struct eb_rpc_conn *conn);

/* At the end of the line of the connection's calls, and out of it. */
void eb_rpc_call_append(struct eb_rpc_call *call);
void eb_rpc_call_unlink(struct eb_rpc_call *call);
/* Reads a stream no further; other calls do not care. */
void eb_rpc_call_pause(struct eb_rpc_call *call);
/* Whether its method is one of many requests and answers. */
static inline bool eb_rpc_call_is_stream(const struct eb_rpc_call *call)
{
    return call->method->kind == EB_METHOD_BIDIRECTIONAL;
}
/* Sends a message, which it takes. */
void eb_rpc_call_answer(struct eb_rpc_call *call, struct eb_outgoing *message);
/* A stream whose peer has sent all, or that is being drained, ends where nothing of it is being
 * worked on; other calls do not. */
void eb_rpc_call_finish_if_over(struct eb_rpc_call *call);
/* Ends the call, unless it is finished already; see eb_grpc_call_finish. It waits no longer, and
 * the message that it keeps is given back. */
void eb_rpc_call_finish(
    struct eb_rpc_call *call, enum eb_status status, const char *text, uint32_t pushback_ms);
/* The same for what is wrong with a unary request, of which INTERNAL says that its bytes are none.
 */
void eb_rpc_call_refuse(struct eb_rpc_call *call, const struct eb_error *error);
/* A call waits no longer. */
void eb_rpc_call_end_waiting(struct eb_rpc_call *call);
/* The call, but of a stream, keeps its message, which it takes. false: the connection keeps more
 * than it may. */
bool eb_rpc_call_keep_message(struct eb_rpc_call *call, struct eb_grpc_message message);
/* The message that a call keeps becomes the caller's. */
struct eb_grpc_message eb_rpc_call_take_message(struct eb_rpc_call *call);
/* Gives back the message that a call keeps, if it does. */
void eb_rpc_call_drop_message(struct eb_rpc_call *call);
/* Whether it is a bidirectional call that is no lookup that must wait until its peer has taken
 * answers. */
bool eb_rpc_call_is_queue_full(const struct eb_rpc_call *call);
/* Reads those no further. */
void eb_rpc_conn_pause_queue_full(struct eb_rpc_conn *conn);
/* The call's lookup of that id that was linked last; NULL: none. Takes time by those that are in
 * the same place, whatever the number of those in flight. */
struct eb_lookup *eb_rpc_call_find(const struct eb_rpc_call *call, uint64_t request_id);
