/* One loop's link to the part servers: sends legs to servers that have their parts, and gives the
 * answers to the legs' owners. Which server gets a leg, when it is sent again and when it is hedged
 * is decided by proto/link/dispatcher.h; each part has a budget of its own for that.
 *
 * Only servers that the route table names get legs. It is replaced while legs are in flight;
 * waiting legs then use the new one.
 * Thread: the loop's, apart from open and destroy. Memory: on the heap, and 25 KB for each part
 * that has had a leg; legs belong to their owners. */
#pragma once

#include "proto/link/credentials_watch.h"
#include "proto/link/dispatch_host.h"
#include "proto/message.h"
#include "server/base/leg_counters.h"
#include "server/route/route_table.h"

/* Most legs of one loop at the same time. A leg beyond that is refused. */
#define EB_LEGS_MAX 16384
/* Pause that a caller is told if its request's legs were refused. */
#define EB_LEG_RETRY_AFTER_MS 20

struct eb_leg_link; /* opaque */

struct eb_leg_link_options {
    const struct eb_targets *targets; /* borrowed */
    /* Files with which router and servers authenticate each other; copied, and watched. */
    struct eb_access access;
    uint64_t connect_timeout_ns;
    unsigned int unacknowledged_ms_max; /* as in struct eb_transport */
    uint64_t resolve_interval_ns;
    uint64_t hedge_delay_min_ns;
    uint32_t hedge_percent;
    uint32_t values_bytes_max; /* most bytes of values in the answer to a leg */
    /* Most bytes of the legs to one part. More are refused, so that a part that answers slowly does
     * not take the memory that requests to the others need. A single leg is not refused. */
    uint64_t part_bytes_max;
    struct eb_memory memory; /* for the legs' messages; must live until the link is destroyed */
};

struct eb_leg {
    /* Set by the owner before eb_leg_link_send. All is borrowed until on_over. */
    const char *model;
    uint64_t version;
    uint64_t digest; /* of its manifest */
    uint32_t part;
    const void *source; /* whose leg it is; only compared. Sources take turns */
    bool is_batch;
    bool is_further; /* part_bytes_max does not apply: another leg of its request has passed it */
    uint64_t deadline_ns;
    struct eb_outgoing *request; /* the LookupRequest; the owner's hold passes to the link */
    uint64_t request_id;         /* in that message */
    uint64_t held_bytes;         /* memory that is in use until the leg is over */
    /* Takes the answer, which is not an error, before this returns. Returns false with *error set
     * if it is not an answer to the leg. NOT_FOUND then means that another server may have one. May
     * be called again if a server takes back its answer. */
    bool (*take)(
        struct eb_leg *leg, const struct eb_wire_response *response, struct eb_error *error);
    /* The link no longer has the leg. leg->error is OK if its answer has been taken. Never called
     * from within eb_leg_link_send. */
    void (*on_over)(struct eb_leg *leg);

    /* The outcome. */
    struct eb_error error;
    uint32_t retry_after_ms; /* the pause that a server has asked for; 0: none */

    /* Private. */
    struct eb_leg_link *link;
    struct eb_list node; /* of the link's legs */
    struct eb_dispatch_call call;
};

/* Opens a link, which connects to all servers. Before the loop runs, or on its thread. Returns
 * false with *error set if that fails. If *link is not NULL then, its handles are being closed: it
 * must not be used or closed, only destroyed once the loop has closed them. */
bool eb_leg_link_open(const struct eb_leg_link_options *options, uv_loop_t *loop,
    struct eb_leg_link **link, struct eb_error *error);
/* Begins to close all connections. No leg may be left. */
void eb_leg_link_close(struct eb_leg_link *link);
/* Frees a link whose loop has closed all handles. Accepts NULL. */
void eb_leg_link_destroy(struct eb_leg_link *link);

/* Replaces the route table, which the link then owns. Sends what it can of the legs that were given
 * before; those that no server of the new table can take end with UNAVAILABLE. */
void eb_leg_link_set_routes(struct eb_leg_link *link, struct eb_route_table *table);
/* Returns the route table; NULL if there is none yet. */
const struct eb_route_table *eb_leg_link_routes(const struct eb_leg_link *link);

/* Returns the memory for the legs' messages. A connection may still hold one after its leg is over,
 * until the link is destroyed. */
const struct eb_memory *eb_leg_link_memory(const struct eb_leg_link *link);
/* Returns the option values_bytes_max. A leg must not ask for more. */
uint32_t eb_leg_link_values_bytes_max(const struct eb_leg_link *link);

/* Returns an id for a leg's message, which must then be sent with it or given back. Returns 0 if
 * there are too many legs. */
uint64_t eb_leg_link_take_id(struct eb_leg_link *link);
void eb_leg_link_give_id(struct eb_leg_link *link, uint64_t request_id);
/* Sends a leg in the next round. on_over follows, also if no server has the part. Returns false
 * with leg->error set to RESOURCE_EXHAUSTED if out of memory, or if the legs to the part have
 * part_bytes_max; the leg's message and id then stay the owner's. */
bool eb_leg_link_send(struct eb_leg_link *link, struct eb_leg *leg);
/* Ends a leg with this error; on_over follows from within this function. Must not be called from a
 * leg's `take`. */
void eb_leg_link_abandon(struct eb_leg *leg, enum eb_status status, const char *text);
/* Does everything that is due. Must be called before the loop sleeps. Returns whether it must be
 * called again before that. */
bool eb_leg_link_run(struct eb_leg_link *link);

/* Returns how a leg that is over has ended. */
enum eb_leg_outcome eb_leg_outcome_of(const struct eb_leg *leg);
/* Counts a request of which not all legs could be sent at once. */
void eb_leg_link_note_slab_wait(struct eb_leg_link *link);
/* Counts indices that were left out because their part was not reached. */
void eb_leg_link_note_unreached(struct eb_leg_link *link, uint64_t indices);
/* Adds the counters of a part to *sum. */
void eb_leg_link_count(const struct eb_leg_link *link, uint32_t part, struct eb_leg_counters *sum);
struct eb_leg_totals eb_leg_link_totals(const struct eb_leg_link *link);
/* Returns how many servers the link knows. */
uint32_t eb_leg_link_peer_count(const struct eb_leg_link *link);
/* Describes the server at an index. Returns false if it should not be listed: its address is no
 * longer in use, or leads to the same process as another one. */
bool eb_leg_link_describe_peer(
    const struct eb_leg_link *link, uint32_t index, struct eb_leg_peer *out);
