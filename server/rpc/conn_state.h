/* The state that the service keeps of the process, of a loop, of a connection and of a call. Also
 * the lists of lookups and calls that a connection works on. Nothing is decided here: see
 * backpressure.h for when work waits, rpc_call.h for how a call is answered, outcome.h for how a
 * request ends.
 * Thread: the loop's. Memory: states are on the heap, bounded by the limits of connections and
 * calls. service.c creates and frees each of them. */
#pragma once

#include "server/net/secret.h"
#include "server/rpc/lookup_state.h"
#include "server/rpc/method.h"
#include "server/rpc/sent_times.h"
#include "server/rpc/table_counters.h"
#include "server/stats/access_log.h"
#include "server/stats/load_figures.h"
#include "server/stats/slow_list.h"

/* Hash buckets of a loop's lookups, by call and id; a power of two. At the busiest times there are
 * some thousands of lookups. */
#define EB_RPC_BUCKETS 4096

/* A server-streaming call sends nothing more while this many bytes wait to be written to its
 * connection. */
#define EB_RPC_STREAMING_WAITING_BYTES_MAX 4096

struct eb_claim_set;
struct eb_model_command;
struct eb_settings_request;

/* The address of the model manager, for commands, and of the keeper of the settings. Both run on
 * one thread. */
struct eb_admin_endpoint {
    struct eb_mailbox *mailbox; /* mailbox of the thread of both; open as long as any loop is */
    /* Starts the command. Called on that thread. The command's on_done follows. */
    void (*ask)(void *context, struct eb_model_command *command);
    /* Takes over the claims of a router, until `unclaim`. Called on that thread. */
    void (*claim)(void *context, struct eb_claim_set *set);
    void (*unclaim)(void *context, struct eb_claim_set *set);
    void *context;
    /* Starts the request. Called on that thread. The request's on_done follows. */
    void (*ask_settings)(void *settings_context, struct eb_settings_request *request);
    void *settings_context;
};

/* The settings of the service, of which each loop has a copy. */
struct eb_service_settings {
    struct eb_limits limits;
    enum eb_access_log_mode access_log;
};

/* The service of all loops of a process; read-only while serving. */
struct eb_service {
    struct eb_lookup_context lookups;
    struct eb_service_settings settings; /* those that a new loop begins with */
    struct eb_snapshot *snapshot;        /* the snapshot that a new loop begins with */
    struct eb_server_facts facts;        /* for GetServer */
    struct eb_admin_endpoint admin;
    /* The rules that a new loop begins with; NULL if callers are not authenticated. */
    struct eb_auth *auth;
};

/* The service's state of one loop. */
struct eb_service_loop {
    struct eb_lookup_pool lookups;
    struct eb_table_counters tables;
    const struct eb_service *service;
    struct eb_auth *auth;   /* NULL if callers are not authenticated */
    struct eb_arena arena;  /* for unary requests, commands and watches */
    unsigned command_count; /* unfinished commands of ModelAdmin, and requests about settings */
    /* Whether the server drains, or will after drain_delay_ms. Health reports this. */
    bool is_leaving;
    bool is_unready;              /* whether this is a router that should get no requests now */
    struct eb_list watches;       /* struct eb_health_watch, linked by eb_health_watch.link */
    struct eb_list model_watches; /* struct eb_model_watch, linked by eb_model_watch.link */
    uint64_t holdings_told_ms;    /* time when all of them were last sent a change */
    size_t claim_count;           /* claims of the loop's calls that are not taken back yet */
    struct eb_access_log access_log;
    struct eb_slow_list slow;
    struct eb_lookup *buckets[EB_RPC_BUCKETS]; /* the lookups that have a call */
    struct eb_counters *counters;              /* the loop's */
    struct eb_sent_times sent;
    struct eb_loop_load load; /* what other loops may read of `counters` */
};

/* Counters of the lookups of one connection and one priority that are in progress. */
struct eb_rpc_load {
    uint64_t count;
    uint64_t held_bytes; /* messages, working memory and answers of the lookups that are with the
                            executor */
};

/* The principal that a connection's certificate names. */
struct eb_auth_conn {
    uint64_t generation; /* generation of the rules that gave `principal`; 0 if it was not searched
                            for yet */
    const struct eb_principal *principal;
};

/* The caller of a call. */
struct eb_auth_call {
    uint64_t generation; /* generation of the rules that gave `principal`; 0 if it was not searched
                            for yet */
    const struct eb_principal *principal; /* NULL if unknown */
    struct eb_secret_digest token;
    enum eb_method_access access; /* the access of its method */
    bool has_token;
    bool is_junk; /* whether the authorization header cannot hold a token */
};

/* The service's state of one connection. */
struct eb_rpc_conn {
    struct eb_conn *conn;
    struct eb_service_loop *loop;
    struct eb_auth_conn auth;
    struct eb_list lookups; /* those in progress, linked by eb_lookup.link */
    struct eb_rpc_load interactive;
    struct eb_rpc_load batch;
    uint64_t answer_bytes; /* bytes that answers hold, from when they are given out until they are
                              sent */
    unsigned watch_count;
    unsigned orca_count; /* streams of load reports */
    unsigned model_watch_count;
    uint64_t waiting_count; /* calls that wait until the connection may do more */
    bool is_resuming;
    uint64_t paused_count;            /* streams that are not being read */
    struct eb_grpc_hold held_lookups; /* messages of unary lookups that wait or have not ended */
    struct eb_grpc_hold held_unary;   /* the same for calls that are not lookups */
    struct eb_list calls; /* in the order in which they are served, linked by eb_rpc_call.link */
};

/* The service's state of one call. */
struct eb_rpc_call {
    struct eb_grpc_call *call;
    struct eb_rpc_conn *conn;
    const struct eb_method *method;
    unsigned method_index; /* as in eb_method_entry */
    struct eb_auth_call auth;
    struct eb_list link;  /* in the connection's calls */
    uint64_t arrival_ns;  /* uv_hrtime when its message was complete; not used for a stream */
    uint64_t in_flight;   /* lookups of this call that are being worked on */
    uint64_t deadline_ns; /* uv_hrtime; UINT64_MAX if there is none */
    struct eb_admin_command *command;  /* the command in progress; NULL if there is none */
    struct eb_settings_call *settings; /* the request about settings; NULL if there is none */
    struct eb_health_watch *watch;     /* NULL if there is none */
    struct eb_orca_stream *orca;       /* NULL if there is none */
    struct eb_model_watch *models;     /* NULL if there is none */
    bool is_request_ended; /* of a stream: whether its peer has sent all of its requests */
    bool is_draining; /* of a stream: whether it takes no more requests, but answers those it has */
    bool has_dropped; /* while draining: whether a message came that will not be answered */
    bool is_finished; /* whether its status has been sent */
    bool is_paused;   /* of a stream: whether it is not being read */
    bool is_reported; /* whether its outcome was logged, or will be logged with its lookup's */
    bool is_undecodable; /* whether it ends because a message could not be decoded */
    bool is_waiting;     /* whether its whole message has come and waits; not used for a stream */
};

/* Returns whether the call's method is bidirectional: it takes many requests and gives many
 * answers. */
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

/* Returns the limits of new requests, borrowed until the next request. */
const struct eb_limits *eb_rpc_conn_limits(const struct eb_rpc_conn *conn);

/* Adds a lookup to its connection and call, which keep it until it is over. */
void eb_rpc_conn_link(struct eb_lookup *lookup, struct eb_rpc_call *call);
/* Removes a lookup from its connection and call. Does nothing if the connection is gone. */
void eb_rpc_conn_unlink(struct eb_lookup *lookup);
/* Removes a lookup from its call, which is over or has withdrawn the lookup. */
void eb_rpc_call_forget(struct eb_lookup *lookup);
/* Counts the bytes that a linked lookup holds while it waits, until it is unlinked. */
void eb_rpc_conn_hold(struct eb_lookup *lookup, uint64_t bytes);
/* Subtracts bytes that were given back, or are counted elsewhere now. Does nothing if the
 * connection is gone. */
void eb_rpc_conn_drop(struct eb_lookup *lookup, uint64_t bytes);
/* Returns the call's lookup with that id. Returns the one linked last if there are several, and
 * NULL if there is none. Takes time in proportion to the number of lookups in the same bucket,
 * whatever the number in flight. */
struct eb_lookup *eb_rpc_call_find(const struct eb_rpc_call *call, uint64_t request_id);
