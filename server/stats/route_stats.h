/* A router's share of the stats: its loops' counters of legs and their view of the part servers,
 * and the main thread's facts about models, versions and parts. Threads: one owner at a time.
 * Memory: on the heap. Its size does not depend on the number of parts: those above
 * EB_ROUTE_PARTS_SHOWN are taken together. */
#pragma once

#include "server/base/leg_counters.h"

/* Parts that have rows of their own, from part 0. All others share the row after these. */
#define EB_ROUTE_PARTS_SHOWN 64
#define EB_ROUTE_ROWS (EB_ROUTE_PARTS_SHOWN + 1)

/* Most instances whose part main remembers. */
#define EB_ROUTE_INSTANCES_MAX 1024

/* ---- what main knows ---- */

/* X(NAME, "name in metrics"): the versions of a model that a router tells of. */
#define EB_ROUTE_SLOT_LIST(X)                                                                      \
    X(SERVED, "served")                                                                            \
    X(NEXT, "next")         /* the version that it waits for */                                    \
    X(PREVIOUS, "previous") /* the one that was served before the served one */

#define X(name, text) EB_ROUTE_##name,
enum eb_route_slot_name { EB_ROUTE_SLOT_LIST(X) EB_ROUTE_SLOTS };
#undef X

struct eb_route_slot {
    uint64_t version;     /* 0: there is none, and the members below are not set */
    uint32_t parts;       /* 0: the repository no longer has it */
    uint32_t ready_parts; /* those that are READY at some server */
    bool is_complete;     /* every part is, and the tables placed everywhere are loaded here */
    uint16_t replicas[EB_ROUTE_ROWS]; /* servers with the part READY; last: the fewest of a part */
};

struct eb_route_model {
    char *name;
    bool is_behind; /* the version that should be served is another one than the served one */
    struct eb_route_slot slots[EB_ROUTE_SLOTS];
};

/* The part that a server process has, which never changes. */
struct eb_route_instance {
    uint64_t instance;
    uint32_t part;
};

struct eb_route_facts {
    unsigned holds;        /* changed only by the stats thread once it has the facts */
    const char *not_ready; /* why the router is not ready; NULL if it is. A constant */
    bool has_conflict;     /* a part server has other files under a version's number */
    uint32_t connected;    /* part servers that have said what they have */
    uint32_t replicas;     /* flip_replicas */
    uint64_t flips;
    uint64_t back_outs;
    size_t model_count;
    struct eb_route_model *models; /* in the order of their names */
    size_t instance_count;
    struct eb_route_instance instances[EB_ROUTE_INSTANCES_MAX]; /* by instance */
};

/* Returns empty facts with room for models and one hold; NULL if out of memory. */
struct eb_route_facts *eb_route_facts_make(size_t model_count);
/* Drops a hold. Accepts NULL. */
void eb_route_facts_drop(struct eb_route_facts *facts);
/* Returns the part of a server process, or EB_ROUTE_NO_PART if it is not known. */
#define EB_ROUTE_NO_PART UINT32_MAX
uint32_t eb_route_facts_part(const struct eb_route_facts *facts, uint64_t instance);

const char *eb_route_slot_name(enum eb_route_slot_name slot);

/* Returns the row of a part. */
static inline uint32_t eb_route_row(uint32_t part)
{
    return part < EB_ROUTE_PARTS_SHOWN ? part : EB_ROUTE_PARTS_SHOWN;
}

/* Returns the number of rows for `parts` parts. */
static inline uint32_t eb_route_stats_row_count(uint32_t parts)
{
    return parts < EB_ROUTE_ROWS ? parts : EB_ROUTE_ROWS;
}

/* ---- what loops count ---- */

/* The counts of one loop, or of all. */
struct eb_route_counts {
    struct eb_leg_counters rows[EB_ROUTE_ROWS];
    struct eb_leg_totals totals;
    size_t peer_count;
    struct eb_leg_peer peers[]; /* [peer_count] by address and instance in the counts of all */
};

/* Returns empty counts with room for peers, to be freed by free(); NULL if out of memory. */
struct eb_route_counts *eb_route_counts_make(size_t peers_max);
/* Returns the sum of the counts of all loops, none of which is NULL. A server is connected, suspect
 * or ejected if one loop says so, and its latency is the longest of any loop. Returns NULL if out
 * of memory. */
struct eb_route_counts *eb_route_counts_merge(
    const struct eb_route_counts *const *loops, size_t count);
