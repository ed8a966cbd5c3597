/* A Lookup between the public structs of embag.h and the wire: a request's bytes, an answer's
 * structs.
 * Thread: pure. Memory: requests and answers on the heap. */
#pragma once

#include "client/embag.h"
#include "proto/arena.h"
#include "proto/send_queue.h"
#include "proto/status.h"

/* An answer and all that its pointers lead to. */
struct eb_lookup_answer {
    struct embag_answer answer; /* first: what the caller gets points here */
    struct eb_arena arena;
};

/* Serialises a request behind its gRPC prefix. NULL: *error says why. */
struct eb_outgoing *eb_lookup_call_encode(
    const struct embag_request *request, struct eb_error *error);

/* Reads a serialised LookupResponse to `request`. NULL: *error is set, INTERNAL where the bytes are
 * no answer to that request. */
struct eb_lookup_answer *eb_lookup_call_decode(
    const struct embag_request *request, const uint8_t *bytes, size_t size, struct eb_error *error);
/* Accepts NULL. */
void eb_lookup_call_free(struct eb_lookup_answer *answer);
