/* The service's states: of the process, a loop, a connection and a call; and the lists of lookups
 * and calls that a connection works on. Nothing here decides: see backpressure.h for when work
 * waits, rpc_call.h for what a call is answered, outcome.h for how a request ends.
 * Thread: the loop's. Memory: states are on the heap, bounded by the limits of connections and
 * calls; each is freed by service.c, which made it. */
#pragma once

#include "server/net/secret.h"
#include "server/rpc/lookup_state.h"
#include "server/rpc/method.h"
#include "server/rpc/sent_times.h"
#include "server/rpc/table_counters.h"
#include "server/stats/access_log.h"
#include "server/stats/slow_list.h"

/* Buckets in which a loop's lookups are found by call and id; a power of two. Some thousands are
 * being worked on at the busiest times. */
#define EB_RPC_BUCKETS 4096

/* A server-streaming call sends nothing more over a connection on which so many bytes wait to
 * leave. */
#define EB_RPC_STREAMING_WAITING_BYTES_MAX 4096

struct eb_model_command;

/* Where commands to the model manager are sent. */
struct eb_admin_endpoint {
    struct eb_mailbox *mailbox; /* of the manager's thread; open as long as any loop is */
    /* Runs on that thread; the command's on_done follows. */
    void (*ask)(void *context, struct eb_model_command *command);
    void *context;
};

/* What all loops of a process serve; read-only while serving. */
struct eb_service {
    struct eb_lookup_context lookups;
    struct eb_snapshot *snapshot; /* what a new loop begins with */
    struct eb_server_facts facts; /* what GetServer says */
    struct eb_admin_endpoint admin;
    struct eb_auth *auth; /* what a new loop begins with; NULL: callers are not authenticated */
};

/* The service's state of one loop. */
struct eb_service_loop {
    struct eb_lookup_pool lookups;
    struct eb_table_counters tables;
    const struct eb_service *service;
    struct eb_auth *auth;   /* NULL: callers are not authenticated */
    struct eb_arena arena;  /* of unary requests, commands and watches */
    unsigned command_count; /* commands of ModelAdmin that are not done */
    bool is_leaving;        /* the server drains, or will after drain_delay_ms; health says so */
    struct eb_list watches; /* struct eb_health_watch, by link */
    struct eb_access_log access_log;
    struct eb_slow_list slow;
    struct eb_lookup *buckets[EB_RPC_BUCKETS]; /* the lookups that have a call */
    struct eb_counters *counters;              /* the loop's */
    struct eb_sent_times sent;
};

/* Lookups of one connection and priority that are being worked on. */
struct eb_rpc_load {
    uint64_t count;
    uint64_t held_bytes; /* messages, working memory and answers of those the executor has */
};

/* Whom a connection's certificate names. */
struct eb_auth_conn {
    uint64_t generation; /* of the rules by which `principal` was found; 0: not looked for yet */
    const struct eb_principal *principal;
};

/* Who makes a call. */
struct eb_auth_call {
    uint64_t generation; /* of the rules by which `principal` was found; 0: not looked for yet */
    const struct eb_principal *principal; /* NULL: unknown */
    struct eb_secret_digest token;
    enum eb_method_access access; /* of its method: who may make it */
    bool has_token;
    bool is_junk; /* what was shown cannot be a token */
};

/* The service's state of one connection. */
struct eb_rpc_conn {
    struct eb_conn *conn;
    struct eb_service_loop *loop;
    struct eb_auth_conn auth;
    struct eb_list lookups; /* being worked on, by eb_lookup.link */
    struct eb_rpc_load interactive;
    struct eb_rpc_load batch;
    uint64_t answer_bytes; /* that answers hold, from when they are given out until they are sent */
    unsigned watch_count;
    uint64_t waiting_count; /* calls that wait until answers have been taken */
    bool is_resuming;
    uint64_t paused_count;     /* streams that are not read further */
    uint64_t kept_bytes;       /* messages of unary lookups that are not ended, or waiting */
    uint64_t kept_unary_bytes; /* the same of calls that are not lookups */
    struct eb_list calls;      /* in the order in which they are served, by eb_rpc_call.link */
};

/* The service's state of one call. */
struct eb_rpc_call {
    struct eb_grpc_call *call;
    struct eb_rpc_conn *conn;
    const struct eb_method *method;
    unsigned method_index; /* as in eb_method_place */
    struct eb_auth_call auth;
    struct eb_list link;              /* of the connection's calls */
    struct eb_grpc_message message;   /* unless it is a stream: the request, until it is started */
    uint64_t arrival_ns;              /* uv_hrtime: when that message was complete */
    uint64_t in_flight;               /* lookups of this call being worked on */
    uint64_t deadline_ns;             /* uv_hrtime; UINT64_MAX: none */
    struct eb_admin_command *command; /* that is being done; NULL: none */
    struct eb_health_watch *watch;    /* NULL: none */
    bool has_message;
    bool is_request_ended;
    bool is_draining;    /* a stream: no more is read; what was read is answered */
    bool has_dropped;    /* draining: a message came that has no answer */
    bool is_finished;    /* its status has been sent */
    bool is_paused;      /* a stream: not read further */
    bool is_reported;    /* its outcome was logged, or is logged with its lookup's */
    bool is_undecodable; /* it ends because a message could not be decoded */
    bool is_waiting;     /* unless it is a stream: its whole message has come and waits */
};

/* Returns whether its method takes many requests and gives many answers. */
static inline bool eb_rpc_call_is_stream(const struct eb_rpc_call *call)
{
    return call->method->kind == EB_METHOD_BIDIRECTIONAL;
}

static inline struct eb_loop *eb_rpc_conn_loop(const struct eb_rpc_conn *conn)
{
    return conn->loop->lookups.loop;
}

static inline struct eb_loop *eb_rpc_call_loop(const struct eb_rpc_call *call)
{
    return eb_rpc_conn_loop(call->conn);
}

const struct eb_limits *eb_rpc_conn_limits(const struct eb_rpc_conn *conn);

/* Adds a lookup to its connection and call, until it is over. */
void eb_rpc_conn_link(struct eb_lookup *lookup, struct eb_rpc_call *call);
/* Removes it from both. Does nothing if the connection is gone. */
void eb_rpc_conn_unlink(struct eb_lookup *lookup);
/* Takes a lookup from its call, which is over or has withdrawn it. */
void eb_rpc_call_forget(struct eb_lookup *lookup);
/* Counts the bytes that a linked lookup holds while it waits, until it is unlinked. */
void eb_rpc_conn_hold(struct eb_lookup *lookup, uint64_t bytes);
/* Uncounts bytes that were given back, or are counted elsewhere now. Does nothing if the connection
 * is gone. */
void eb_rpc_conn_drop(struct eb_lookup *lookup, uint64_t bytes);
/* Returns the call's lookup with that id that was linked last; NULL: none. Takes time by the
 * lookups in the same bucket, whatever the number in flight. */
struct eb_lookup *eb_rpc_call_find(const struct eb_rpc_call *call, uint64_t request_id);
