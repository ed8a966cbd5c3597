/* Decides which version of a model a router serves, and which versions it claims from the part
 * servers. The versions are immutable, so each router decides for itself.
 *
 *   complete   the tables placed everywhere are loaded here, and every part has a server with it
 *   next       the version that the router waits for: it stays until it is served, has failed, or
 *              has kept a higher one waiting for next_wait_ns
 *   flip       to the next version, or to another complete one above the served one, after it has
 *              been complete for 2 s with enough replicas; at once if another router serves it
 *   back out   to the highest complete version of the same lineage below the served one, if the
 *              served one is no longer complete. It must then be complete for 30 s before it is
 *              served again, and for twice as long each time, up to 5 min
 *
 * A router that starts waits until it is settled: until every server has answered or failed. Then
 * it serves the highest complete version at once. A version that another router serves goes before
 * a higher one with too few replicas, and is served even if it is not complete, if none is.
 *
 * Nothing here knows sockets or clocks: the caller steps the state whenever something has changed,
 * and at the latest when *due_ns has come.
 * Thread: one at a time. Memory: part of its owner; does not grow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most claims of one model. Labelled, held and pinned versions beyond it are not claimed. */
#define EB_FLIP_CLAIMS_MAX 8
/* Time for which a version is complete before it is served. */
#define EB_FLIP_STEADY_NS UINT64_C(2000000000)
/* The first time, and the longest one, for which a version that was backed out of must be complete
 * before it is served again. */
#define EB_FLIP_RETURN_NS UINT64_C(30000000000)
#define EB_FLIP_RETURN_NS_MAX UINT64_C(300000000000)

#define EB_FLIP_NEVER UINT64_MAX

/* A version of the model, as its manifest and the part servers describe it. */
struct eb_flip_version {
    uint64_t number;
    uint64_t digest;     /* of its manifest */
    const char *lineage; /* "": equal to none */
    bool is_complete;
    /* Each part has flip_replicas servers with it, or as many as it has at all if fewer. */
    bool has_replicas;
    bool is_failed;  /* all servers of a part say that they cannot load it */
    bool is_served;  /* another router serves it */
    bool is_claimed; /* another router claims it */
    bool is_kept;    /* it has a label, a command holds it, or a request pins it */
};

struct eb_flip_input {
    size_t count;
    const struct eb_flip_version *versions; /* [count] by number, the lowest first */
    uint64_t serve;  /* version that a command or model.yaml serves; 0: the highest */
    bool is_settled; /* every server has answered or failed, or the time for that is over */
    uint64_t now_ns;
    uint64_t next_wait_ns;
};

struct eb_flip_claim {
    uint64_t number;
    uint64_t digest;
    bool is_served;
};

struct eb_flip {
    /* The result of a step. */
    uint64_t served; /* 0: none */
    uint64_t next;   /* 0: none */
    size_t claim_count;
    struct eb_flip_claim claims[EB_FLIP_CLAIMS_MAX]; /* the served version first, then the next */
    uint64_t due_ns; /* when to step again; EB_FLIP_NEVER: when something changes */
    /* Counters. */
    uint64_t flips;
    uint64_t back_outs;

    /* Private. */
    uint64_t served_digest; /* of the served version: other files under its number are another */
    uint64_t next_since_ns;
    uint64_t steady; /* the version that may be served soon; 0: none */
    uint64_t steady_since_ns;
    uint64_t left;      /* the version that was backed out of last; 0: none */
    uint64_t return_ns; /* for how long it must be complete */
};

/* Takes the state forward. A zeroed flip is a router that has just started. */
void eb_flip_step(struct eb_flip *flip, const struct eb_flip_input *input);
