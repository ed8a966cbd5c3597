/* Decides which call goes to which server, when, and how often.
 * Thread: the loop's. Memory: the servers' connections, from open until deinit; the dispatcher must
 * not move. */
#pragma once

#include "client/calls.h"
#include "client/embag_servers.h"
#include "proto/link/hedge.h"
#include "proto/link/peer_set.h"
#include "proto/link/resend_budget.h"

/* Alarms apart from those of calls: one per connection, and one to cause a round. */
#define EB_DISPATCHER_ALARMS (2 * EB_PEER_SET_CONNECTIONS_MAX + 1)

struct eb_dispatcher_options {
    const struct eb_targets *targets;         /* borrowed */
    const struct eb_credentials *credentials; /* borrowed */
    uint64_t connect_timeout_ns;
    uint32_t connections; /* to each server */
    uint32_t retries_max;
    uint32_t answer_bytes_max;
    enum embag_mode mode;
    bool is_unpaced;
    uint32_t hedge_percent; /* hedges per hundred lookups at most; 0: none */
};

/* Where figures are to be written. */
struct eb_dispatcher_figures {
    struct embag_stats *stats;
    struct embag_server_stats *servers; /* [servers_max] */
    uint32_t servers_max;
};

struct eb_dispatcher_handler {
    /* Called once: when the first connection is open (why is NULL), or when none can be had. */
    void (*on_opened)(void *context, const struct eb_error *why);
    /* Called when either number may have changed. */
    void (*on_servers)(void *context, uint32_t connected, uint32_t known);
    /* Called after eb_dispatcher_end: nothing is left on the loop. */
    void (*on_ended)(void *context);
};

struct eb_dispatcher {
    /* Set by the owner before init. */
    struct eb_dispatcher_options options;
    const struct eb_dispatcher_handler *handler;
    void *context;
    struct eb_calls *calls;
    struct eb_alarms *alarms; /* room for one alarm per call, EB_DISPATCHER_ALARMS more */

    struct eb_peer_set servers;
    struct eb_attempt_list waiting[EB_PRIORITY_COUNT];
    uint64_t now_ns; /* time of this round */
    struct eb_resend_budget resends;
    struct eb_hedge hedging;
    struct eb_alarm wake; /* rings only to cause a round */
    /* When to try again to rescue lookups at silent servers; UINT64_MAX: never. */
    uint64_t rescue_ns;
    uint64_t lookups; /* sent at least once */
    uint64_t resent;  /* attempts after the first ones, without hedges */
    uint64_t hedges;
    uint64_t hedges_won; /* hedges that were answered first */
    uint64_t random;     /* state of splitmix64.h */
    bool has_new;        /* a call waits since the present round has sent calls */
    bool is_opening;
    bool is_ending;
};

/* Returns 0, or a negative libuv code with nothing left. The first round opens connections. */
int eb_dispatcher_open(struct eb_dispatcher *dispatcher, uv_loop_t *loop,
    const struct eb_memory *memory, uv_buf_t read_buffer);
/* Accepts a zeroed struct. */
void eb_dispatcher_deinit(struct eb_dispatcher *dispatcher);

/* Takes a call over until its on_over. The call is sent in the next round at the earliest. */
void eb_dispatcher_take(struct eb_dispatcher *dispatcher, struct eb_call *call);
/* Ends a call that the dispatcher has. */
void eb_dispatcher_abandon(struct eb_call *call, enum eb_status status, const char *text);
/* Does everything that is due, with one write per connection. Returns whether another round must
 * follow at once. */
bool eb_dispatcher_run(struct eb_dispatcher *dispatcher);
/* Writes the figures, and those of the first servers. */
void eb_dispatcher_fill_figures(
    const struct eb_dispatcher *dispatcher, const struct eb_dispatcher_figures *figures);
/* Must be called when the credentials have changed. An attempt to connect that was delayed after a
 * failure is made at once. If the token is another one, it is sent with all later calls.
 * Connections and the calls on them continue. */
void eb_dispatcher_renew(struct eb_dispatcher *dispatcher, bool is_token_new);
/* Ends every call with CANCELLED and closes every connection; on_ended follows. */
void eb_dispatcher_end(struct eb_dispatcher *dispatcher);
