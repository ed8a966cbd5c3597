/* The bytes of an answer, with everything written but the pooled values.
 * Thread: the loop's. Memory: descriptions from the request's arena, the answer from the loop's
 * answer pool. */
#pragma once

#include "proto/send_queue.h"
#include "server/rpc/plan.h"

/* Lays out the answer, a LookupResponse or a ModelInferResponse, of a checked plan with results
 * [first, first + count), whose jobs it points into it; a LookupResponse's times are still to be
 * set, and where these are not all results, which one is the last. NULL: *error. */
struct eb_outgoing *eb_plan_answer(
    struct eb_plan *plan, size_t first, size_t count, struct eb_error *error);
