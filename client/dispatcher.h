/* Decides which call goes over which connection, when, and how often, and when connections are
 * opened.
 * Thread: the loop's. Memory: the connections, from init until deinit; the dispatcher must not
 * move. */
#pragma once

#include "client/connection.h"

struct eb_dispatcher_options {
    struct eb_endpoint endpoint;
    const char *authority;                    /* borrowed */
    const struct eb_credentials *credentials; /* borrowed */
    uint64_t connect_timeout_ns;
    uint32_t connections;
    uint32_t retries_max;
    uint32_t answer_bytes_max;
    enum embag_mode mode;
    bool is_unpaced;
};

struct eb_dispatcher_handler {
    /* Called once: when the first connection is open (why is NULL), or when none can be had. */
    void (*on_opened)(void *context, const struct eb_error *why);
    /* Called after eb_dispatcher_end: nothing is left on the loop. */
    void (*on_ended)(void *context);
};

struct eb_dispatcher {
    /* Set by the owner before init. */
    struct eb_dispatcher_options options;
    const struct eb_dispatcher_handler *handler;
    void *context;
    struct eb_calls *calls;
    struct eb_alarms *alarms; /* room for one alarm per call, one per connection, and one more */

    struct eb_connection_config config;
    /* Twice as many as wanted: new ones replace those that are draining. */
    struct eb_connection *connections;
    uint32_t connection_count;
    struct eb_call_list waiting[EB_CALL_PRIORITIES];
    uint64_t now_ns;           /* time of this round */
    uint32_t connect_failures; /* failed attempts in a row */
    /* Why the last attempt failed; OK if it succeeded or is still in progress. */
    struct eb_error connect_error;
    uint64_t connect_not_before_ns;
    /* A connection that served well is gone; it is replaced before a call needs it. */
    bool connects_early;
    struct eb_alarm wake; /* rings only to cause a round */
    uint32_t random;
    bool is_opening;
    bool is_ending;
};

/* Returns false if out of memory. The first round opens connections. */
bool eb_dispatcher_init(struct eb_dispatcher *dispatcher, uv_loop_t *loop,
    const struct eb_memory *memory, uv_buf_t read_buffer);
/* Accepts a zeroed struct. */
void eb_dispatcher_deinit(struct eb_dispatcher *dispatcher);

/* Takes a call over until its on_over. The call is sent in the next round at the earliest. */
void eb_dispatcher_enqueue(struct eb_dispatcher *dispatcher, struct eb_call *call);
/* Ends a call that the dispatcher has. */
void eb_dispatcher_abandon(struct eb_call *call, enum eb_status status, const char *text);
/* Does everything that is due, with one write per connection. Returns whether another round must
 * follow at once. */
bool eb_dispatcher_run(struct eb_dispatcher *dispatcher);
/* Must be called when the credentials have changed. An attempt to connect that was delayed after a
 * failure is made at once. If the token is another one, it is sent with all later calls.
 * Connections and the calls on them continue. */
void eb_dispatcher_renew(struct eb_dispatcher *dispatcher, bool is_token_new);
/* Ends every call with CANCELLED and closes every connection; on_ended follows. */
void eb_dispatcher_end(struct eb_dispatcher *dispatcher);
