/* A client's own thread and what it needs: the loop, memory, and the way for calls to get there.
 * Thread: post and post_cancel from any; open, close and deinit from one that is not its own.
 * Memory: all at open; the engine must not move. */
#pragma once

#include "client/block_pool.h"
#include "client/dispatcher.h"

struct eb_engine {
    struct eb_calls calls;
    struct eb_block_pool requests;
    struct eb_block_pool messages;
    struct eb_mailbox mailbox;
    uv_thread_t thread;
    struct eb_mail end;
    uv_sem_t opened;
    struct eb_error open_error; /* once `opened` is posted */

    /* The thread's alone. */
    uv_loop_t loop;
    uv_prepare_t before_sleep;
    uv_timer_t timer;
    struct eb_alarms alarms;
    struct eb_dispatcher dispatcher;
    char *read_buffer;
    bool has_ended;
};

/* Starts the thread and waits for the first connection. false: *error is set and nothing is left to
 * undo. */
bool eb_engine_open(struct eb_engine *engine, const struct eb_dispatcher_options *options,
    uint32_t in_flight_max, struct eb_error *error);
/* Ends every call with CANCELLED, closes everything, and joins the thread. The table of calls is
 * closed; it and the pools live on until eb_engine_deinit. */
void eb_engine_close(struct eb_engine *engine);
/* Every call has been given back. */
void eb_engine_deinit(struct eb_engine *engine);

/* Makes a call: a record from engine->calls with kind, request, deadline_ns and on_over set. false:
 * the client is being closed; the record is still the caller's. */
bool eb_engine_post(struct eb_engine *engine, struct eb_call *call);
/* Withdraws the call with this number. */
void eb_engine_post_cancel(struct eb_engine *engine, uint64_t id);
/* Whether this is the engine's thread. */
bool eb_engine_is_here(const struct eb_engine *engine);
