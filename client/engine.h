/* A client's thread with everything it needs: its loop, its memory, and the mailbox through which
 * it gets calls.
 * Thread: post and post_cancel from any; open, close and deinit from any but its own. Memory:
 * allocated by open, except the blocks of the pools; the engine must not move. */
#pragma once

#include "client/block_pool.h"
#include "client/calls.h"
#include "client/embag_servers.h"
#include "proto/link/credentials_watch.h"
#include "proto/net/fine_timer.h"

struct eb_engine_options {
    struct eb_dispatcher_options dispatcher;
    /* Initialised with the credentials of the dispatcher's options; used until close. */
    struct eb_credentials_watch *renewal;
    uint32_t in_flight_max;
    uint32_t hedge_percent; /* hedges per hundred lookups at most; 0: none */
};

/* Where figures are to be written. */
struct eb_engine_figures {
    struct embag_stats *stats;
    struct embag_server_stats *servers; /* [servers_max] */
    uint32_t servers_max;
};

/* Counts of servers, for threads that wait for them. */
struct eb_engine_servers {
    uv_mutex_t lock; /* guards the others */
    uv_cond_t changed;
    uint32_t connected;
    uint32_t known;
    bool is_closed; /* the client is being closed */
};

struct eb_engine {
    struct eb_engine_servers servers;
    struct eb_calls calls;
    struct eb_block_pool requests;
    struct eb_block_pool messages;
    struct eb_mailbox mailbox;
    uv_thread_t thread;
    struct eb_mail end;
    uv_sem_t opened;
    struct eb_error open_error; /* valid once `opened` is posted */
    struct eb_credentials_watch *renewal;

    /* Used by the engine's thread only. */
    uv_loop_t loop;
    uv_prepare_t before_sleep;
    uv_timer_t timer;
    struct eb_fine_timer fine_timer; /* used instead of `timer` if lookups are hedged */
    struct eb_alarms alarms;
    struct eb_dispatcher dispatcher;
    struct eb_dispatch_group group; /* of all calls */
    char *read_buffer;
    bool has_ended;
};

/* Starts the thread and waits for the first connection. Returns false with *error set and nothing
 * left to undo. */
bool eb_engine_open(
    struct eb_engine *engine, const struct eb_engine_options *options, struct eb_error *error);
/* Ends every call with CANCELLED, closes everything, and joins the thread. The table of calls is
 * closed; it and the pools live until eb_engine_deinit. */
void eb_engine_close(struct eb_engine *engine);
/* Every call must have been given back. */
void eb_engine_deinit(struct eb_engine *engine);

/* Hands a call to the engine's thread. The call is a record from engine->calls with kind, request,
 * deadline_ns and on_over set. Returns false if the client is being closed; then the record is
 * still the caller's. */
bool eb_engine_post(struct eb_engine *engine, struct eb_call *call);
/* Withdraws the call with this number. */
void eb_engine_post_cancel(struct eb_engine *engine, uint64_t id);
/* Returns whether the caller runs on the engine's thread. */
bool eb_engine_is_here(const struct eb_engine *engine);

/* Waits until at least `wanted` servers are connected, or all that are known if `wanted` is 0.
 * Returns false with *error set: DEADLINE_EXCEEDED, or CANCELLED if the client is being closed.
 * Must not be called on the engine's thread. */
bool eb_engine_await_servers(
    struct eb_engine *engine, uint32_t wanted, uint64_t deadline_ns, struct eb_error *error);
/* Fills in the figures as they are now, and those of the first servers. Returns false if the client
 * is being closed. */
bool eb_engine_fill_figures(struct eb_engine *engine, const struct eb_engine_figures *figures);
