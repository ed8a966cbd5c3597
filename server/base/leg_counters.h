/* A loop's counters of legs (requests to part servers), and its view of those servers.
 * Thread: its owner's. Memory: part of its owner; does not grow. */
#pragma once

#include "server/base/counters.h"

/* X(NAME, "name in metrics"): how a leg ended. */
#define EB_LEG_OUTCOME_LIST(X)                                                                     \
    X(OK, "ok")                                                                                    \
    X(UNREACHED, "unreached") /* no server of the part has answered in time */                     \
    X(FAILED, "failed")       /* with another error */                                             \
    X(CANCELLED, "cancelled") /* its request was cancelled, or has failed already */

#define X(name, text) EB_LEG_##name,
enum eb_leg_outcome { EB_LEG_OUTCOME_LIST(X) EB_LEG_OUTCOMES };
#undef X

/* X(NAME, "name in metrics"): why a leg was sent again, in the order of enum eb_resend_reason. */
#define EB_LEG_RESEND_LIST(X)                                                                      \
    X(LOST, "connection_lost")                                                                     \
    X(REFUSED, "refused")                                                                          \
    X(MISSING, "version_missing")                                                                  \
    X(SILENT, "silent")                                                                            \
    X(STREAM, "stream_ended")

#define X(name, text) EB_LEG_RESEND_##name,
enum eb_leg_resend { EB_LEG_RESEND_LIST(X) EB_LEG_RESENDS };
#undef X

/* The counters of the legs to one part, or to several. */
struct eb_leg_counters {
    uint64_t outcomes[EB_LEG_OUTCOMES];
    uint64_t resends[EB_LEG_RESENDS]; /* attempts after the first ones, without hedges */
    uint64_t refusals; /* legs that were not sent, because too many others wait for the part */
    uint64_t hedges_won;
    uint64_t hedges_lost;
    uint64_t sent_bytes;         /* bytes of the messages of all attempts */
    struct eb_histogram answers; /* times from the first attempts to the answers */
};

/* The counters of all legs of a loop. */
struct eb_leg_totals {
    uint64_t received_bytes; /* bytes of all answers, also of those that nobody waits for */
    uint64_t slab_waits;     /* lookups of which not all legs could be sent at once */
    uint64_t unreached;      /* indices that were left out because their part was not reached */
};

#define EB_LEG_ADDRESS_BYTES 128

/* A part server, as one loop sees it, or as all loops do. */
struct eb_leg_peer {
    char address[EB_LEG_ADDRESS_BYTES];
    uint64_t instance; /* number of its process, the last one if it is lost; 0: never known */
    bool is_connected;
    bool is_suspect; /* it does not answer at all: legs go elsewhere */
    bool is_ejected; /* most of its answers were errors: legs go elsewhere for a while */
    uint64_t latency_ns;
    uint64_t sent;   /* attempts */
    uint64_t failed; /* of those, the ones that it did not answer or refused */
};

/* Returns the name in metrics: "ok" and so on. */
const char *eb_leg_outcome_name(enum eb_leg_outcome outcome);
const char *eb_leg_resend_name(enum eb_leg_resend reason);
void eb_leg_counters_merge(struct eb_leg_counters *into, const struct eb_leg_counters *other);
