/* A Lookup between the public structs of embag.h and the wire: a request's bytes, an answer's
 * structs.
 * Thread: pure. Memory: requests from the eb_memory given, answers on the heap. */
#pragma once

#include "client/embag.h"
#include "client/lookup_check.h"
#include "proto/arena.h"
#include "proto/message.h"
#include "proto/send_queue.h"
#include "proto/status.h"

/* An answer and all that its pointers lead to. */
struct eb_lookup_answer {
    struct embag_answer answer; /* first: what the caller gets points here */
    struct eb_arena arena;
    const struct eb_wire_response *response; /* as decoded, until it is checked */
};

/* What the client adds to a request. */
struct eb_lookup_label {
    uint64_t request_id; /* by which a stream's answers are told apart */
    uint64_t timeout_us; /* of the call as a whole */
};

/* A request of `size` bytes from `memory`, which must outlive it, its gRPC prefix written; the
 * message goes to its bytes + EB_GRPC_PREFIX_BYTES. NULL: no memory. */
struct eb_outgoing *eb_lookup_call_outgoing(const struct eb_memory *memory, size_t size);
/* Serialises a request behind its gRPC prefix. NULL: *error says why. */
struct eb_outgoing *eb_lookup_call_encode(const struct embag_request *request,
    const struct eb_lookup_label *label, const struct eb_memory *memory, struct eb_error *error);
/* What the answer to a request must fit, which has become `outgoing` and is to outlive *expected;
 * NULL: it has not, and there will be no answer. */
void eb_lookup_call_expect(const struct embag_request *request, const struct eb_outgoing *outgoing,
    struct eb_lookup_expected *expected);

/* What is left of a request's timeout, at least 1, as it is sent. */
void eb_lookup_call_set_timeout(struct eb_outgoing *request, uint64_t timeout_us);
/* A request to forget that of the same number on the same stream. NULL: no memory. */
struct eb_outgoing *eb_lookup_call_encode_cancel(
    uint64_t request_id, const struct eb_memory *memory);

/* Reads a serialised LookupResponse, which is an answer once it is checked: until then it borrows
 * the bytes. NULL: *error is set, INTERNAL where the bytes are no LookupResponse. */
struct eb_lookup_answer *eb_lookup_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error);
/* Whether it answers a request; its memory is then all its own, and its values have been copied
 * once, together. false: *error says what the server
 * reports, or is INTERNAL where the answer does not fit the request. */
bool eb_lookup_call_check(struct eb_lookup_answer *answer,
    const struct eb_lookup_expected *expected, struct eb_error *error);
/* Accepts NULL. */
void eb_lookup_call_free(struct eb_lookup_answer *answer);
