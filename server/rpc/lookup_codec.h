/* In which messages a lookup is asked for: those of embag.v1, or another service's; the request
 * says on to the answer which.
 *
 * Thread: the loop's. Memory: from the lookup's arena. */
#pragma once

#include "proto/codec.h"

struct eb_lookup;

/* Streams of lookups take the form of embag.v1 only. */
struct eb_lookup_codec {
    /* What lookup->message says, in lookup->arena. NULL: *failure. */
    struct eb_wire_request *(*read)(struct eb_lookup *lookup, const struct eb_codec_limits *limits,
        struct eb_decode_failure *failure);
    /* Completes the request, now that lookup->version is known, which it may take from. false:
     * lookup->error. NULL: there is nothing to complete. */
    bool (*resolve)(struct eb_lookup *lookup);
    /* Writes how long it took into the message of an answer. NULL: it does not say. */
    void (*set_times)(uint8_t *message, uint32_t queue_us, uint32_t compute_us);
};

/* LookupRequest and LookupResponse. */
extern const struct eb_lookup_codec eb_lookup_codec_embag;
