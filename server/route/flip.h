/* Decides which version of a model a router serves, and which versions it claims from the part
 * servers. The versions are immutable, so each router decides for itself.
 *
 *   complete   the tables placed everywhere are loaded here, and every part has a server with it
 *   next       the version that the router waits for: what a command serves, else the lowest above
 *              the served one that another router claims, else the highest. It stays until it is
 *              served, has failed, or has kept a higher one waiting for next_wait_ns
 *   flip       to the next version, or to another complete one above the served one, after it has
 *              been complete for 2 s with enough replicas; at once, and with too few replicas too,
 *              if another router serves it
 *   back out   to the highest complete version of the same lineage below the served one, if the
 *              served one is no longer complete and there is nothing to flip to. It must then be
 *              complete for 30 s before it is served again, and for twice as long each time, up to
 *              5 min. A version that was served for 5 min since then begins with 30 s again
 *
 * A router that starts waits until it is settled: until every server has answered or failed. Then
 * it serves the highest complete version at once. A version that another router serves goes before
 * a higher one with too few replicas, and is served even if it is not complete, if none is.
 *
 * Rules that are not obvious:
 *   - The files are part of a version's identity. Other files under the served number take its
 *     place as a higher version would, but only once the served one is no longer complete.
 *   - A command does not keep a version from being backed out of: equal lineage says that the
 *     vectors may take each other's place. The router returns to what the command says.
 *   - A version that was never complete here while it was served is no worse for it: once it is
 *     complete, the router goes back to it as to any other version.
 *   - A version backed out of stays the measure of what is above: while a router serves 6 because 8
 *     is incomplete, it flips to 7 only if that has the lineage of 6.
 *   - Part servers tell that a router claims a version, not which one. A router's own claim of a
 *     kept or pinned version must not make it the next one, so the claims of these do not count.
 *   - Pinned versions must not keep the next one from being loaded for ever: if a version is waited
 *     for and none has been flipped to for next_wait_ns, pins are no longer claimed until one is,
 *     or until none is waited for.
 *   - If all higher versions have failed, there is no next version until a server tries again. If
 *     none has tried for 10 min, no version is waited for.
 *   - The router keeps serving a version that is missing in the list. It counts as incomplete.
 *
 * Nothing here knows sockets or clocks: the caller steps the state whenever something has changed,
 * and at the latest when due_ns has come.
 * Thread: one at a time. Memory: part of its owner; does not grow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most claims of one model. Kept and pinned versions beyond it are not claimed. */
#define EB_FLIP_CLAIMS_MAX 8
/* Most versions that could be served, or were backed out of, that are remembered: what is served,
 * what a command serves and the next one, then the highest. A version beyond them is not flipped
 * to. */
#define EB_FLIP_TIMES_MAX 16
/* Time for which a version is complete before it is served. */
#define EB_FLIP_STEADY_NS UINT64_C(2000000000)
/* The first time, and the longest one, for which a version that was backed out of must be complete
 * before it is served again. */
#define EB_FLIP_RETURN_NS UINT64_C(30000000000)
#define EB_FLIP_RETURN_NS_MAX UINT64_C(300000000000)

#define EB_FLIP_NEVER UINT64_MAX

/* A version of the model, as its manifest and the part servers describe it. */
struct eb_flip_version {
    uint64_t number;     /* not 0 */
    uint64_t digest;     /* of its manifest */
    const char *lineage; /* "": equal to none */
    bool is_complete;
    /* Each part has flip_replicas servers with it, or as many as it has at all if fewer. */
    bool has_replicas;
    bool is_failed;   /* all servers of a part say that they cannot load it */
    bool is_served;   /* a router serves it */
    bool is_claimed;  /* a router claims it */
    bool is_kept;     /* it has a label, or a command holds it */
    bool is_pinned;   /* it is loaded, and a request has named it by its number lately */
    bool is_conflict; /* a server has other files under its number */
};

struct eb_flip_input {
    size_t count;
    /* [count] by number, the lowest first: what is published, and the served version until another
     * one is served. Two of them may have one number if their digests differ. */
    const struct eb_flip_version *versions;
    uint64_t serve;           /* version that a command or model.yaml serves; 0: the highest */
    bool has_all_answers;     /* every server has answered or failed; matters only at the start */
    uint64_t settle_until_ns; /* when a router that starts no longer waits for all answers */
    uint64_t now_ns;
    uint64_t next_wait_ns;
};

struct eb_flip_claim {
    uint64_t number;
    uint64_t digest;
    bool is_served;
};

/* Times that a step remembers for a version. */
struct eb_flip_time {
    uint64_t number;
    uint64_t digest;
    uint64_t since_ns;  /* since when it could be served; EB_FLIP_NEVER: it cannot be */
    uint64_t return_ns; /* for how long it must be complete since it was backed out of; or 0 */
};

struct eb_flip {
    /* The result of a step. */
    uint64_t served; /* 0: none */
    uint64_t served_digest;
    uint64_t next; /* 0: none */
    uint64_t next_digest;
    size_t claim_count;
    struct eb_flip_claim claims[EB_FLIP_CLAIMS_MAX]; /* the served version first, then the next */
    bool has_conflict; /* some server has other files under a version's number */
    uint64_t due_ns;   /* when to step again; EB_FLIP_NEVER: when something changes */
    /* Counters. The first version that is served counts as neither. */
    uint64_t flips;
    uint64_t back_outs;

    /* Private. */
    uint64_t served_since_ns;
    bool was_complete; /* the served version was complete since then */
    uint64_t next_since_ns;
    bool is_behind; /* a version above the served one has been the next one since behind_since_ns */
    uint64_t behind_since_ns;
    uint64_t behind_end_ns; /* when is_behind ends, because there is no next version; 0: there is */
    bool are_pins_void;     /* pinned versions have kept it waiting for too long */
    uint64_t passed; /* the highest version that has kept a higher one waiting for too long */
    uint64_t top;    /* the version backed out of that is the measure of what is above; 0: none */
    size_t time_count;
    struct eb_flip_time times[EB_FLIP_TIMES_MAX];
};

/* Takes the state forward. A zeroed flip is a router that has just started. */
void eb_flip_step(struct eb_flip *flip, const struct eb_flip_input *input);
