/* Encodes a lookup's request from the public structs of embag.h, and decodes and checks its answer.
 * Thread: pure. Memory: requests come from the given eb_memory, answers from the heap. */
#pragma once

#include "client/embag.h"
#include "client/lookup_check.h"
#include "proto/arena.h"
#include "proto/message.h"
#include "proto/send_queue.h"
#include "proto/status.h"

/* An answer and everything that its pointers lead to. */
struct eb_lookup_answer {
    struct embag_answer answer; /* first: the caller gets a pointer to this */
    struct eb_arena arena;
    const struct eb_wire_response *response; /* response as decoded, until the answer is checked */
};

/* The fields that the client adds to a request. */
struct eb_lookup_label {
    uint64_t request_id; /* identifies the answer on a stream */
    uint64_t timeout_us; /* timeout of the whole call */
};

/* Returns a serialised request that begins with its gRPC prefix. Returns NULL with *error set. */
struct eb_outgoing *eb_lookup_call_encode(const struct embag_request *request,
    const struct eb_lookup_label *label, const struct eb_memory *memory, struct eb_error *error);
/* Fills in the facts that the answer to `request` is checked against. `outgoing` is the encoded
 * request and must outlive *expected; NULL if encoding failed, so that there will be no answer. */
void eb_lookup_call_expect(const struct embag_request *request, struct eb_outgoing *outgoing,
    struct eb_lookup_expected *expected);

/* Decodes a serialised LookupResponse. The answer borrows the bytes until eb_lookup_call_check has
 * accepted it. Returns NULL with *error set: INTERNAL if the bytes are not a LookupResponse. */
struct eb_lookup_answer *eb_lookup_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error);
/* Returns whether the decoded response answers the request. If so, its values have been copied, all
 * together, into memory of their own. If not, *error is the one that the server reports, or
 * INTERNAL if the answer does not fit the request, or RESOURCE_EXHAUSTED if out of memory. */
bool eb_lookup_call_check(struct eb_lookup_answer *answer,
    const struct eb_lookup_expected *expected, struct eb_error *error);
/* Accepts NULL. */
void eb_lookup_call_free(struct eb_lookup_answer *answer);
