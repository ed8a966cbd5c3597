/* How requests end. A request is a call, or one message of a bidirectional call. One function is
 * told of its outcome: it counts it (counters.h, table_counters.h, sent_times.h), logs it
 * (access_log.h) and keeps it if it was slow (slow_list.h).
 *
 * A request ends in two phases. READY: its values are computed, or an error says why not; its
 * inputs are still there. It is logged then, and what it touched is counted. GONE: its answer has
 * left or never will. Its status is counted then, and how long its stages took. A call other than a
 * stream is GONE when it is closed, with whatever its peer was told. On a stream each message is
 * GONE with its answer: CANCELLED if that does not leave. A stream that ends with an error of its
 * own counts as one more request. Thread: the loop's. Memory: none. */
#pragma once

#include "server/rpc/conn_state.h"

enum eb_outcome_phase { EB_OUTCOME_READY, EB_OUTCOME_GONE };

enum eb_outcome_subject {
    EB_OUTCOME_LOOKUP,  /* a lookup: a unary call's, or a message of a stream */
    EB_OUTCOME_REQUEST, /* a message of a bidirectional call that is not a lookup, or a call that
                           the session refused by its headers */
    EB_OUTCOME_CALL     /* a call as a whole */
};

struct eb_outcome {
    enum eb_outcome_subject subject;
    enum eb_status status;
    const char *text; /* why it failed; NULL: nothing to say */
    struct eb_rpc_conn *conn;
    struct eb_rpc_call *call;             /* NULL: the call was refused before it had a state */
    const struct eb_grpc_call *grpc_call; /* of a CALL, or if `call` is NULL */
    const struct eb_lookup *lookup;       /* of a LOOKUP, READY, unless is_unsent */
    uint64_t over_ns;                     /* of a LOOKUP, READY: uv_hrtime */
    unsigned method_index;                /* GONE, unless of a CALL: as in eb_method_place */
    /* Of a LOOKUP, GONE. */
    bool is_of_stream;
    const struct eb_answer_times *times; /* NULL: its answer was not sent */
    /* Of a LOOKUP, READY: its answer was ready in time and waited beyond its deadline. */
    bool is_unsent;
    uint64_t request_id; /* if is_unsent */
};

/* The text of a request whose client has reset or cancelled it. */
extern const char eb_outcome_given_up_text[];

/* Reports an outcome. A call is logged once: with its lookup, or by itself. Does not read
 * outcome->text after it returns. */
void eb_outcome_report(const struct eb_outcome *outcome, enum eb_outcome_phase phase);

/* Counts why a valid request was not served. The status of its call is reported beside it. */
static inline void eb_outcome_count_refusal(struct eb_rpc_conn *conn, enum eb_refusal refusal)
{
    conn->loop->counters->refusals[refusal]++;
}

/* Reports what became of a lookup that is over, answer or error set. Does nothing to log if it has
 * lost its call. */
void eb_outcome_lookup_ready(const struct eb_lookup *lookup);
/* Reports a lookup that is about to lose its call: nobody waits for it any longer. */
void eb_outcome_lookup_lost(const struct eb_lookup *lookup);

/* Reports what was not logged, and forgets old slow requests. Returns whether it must be called
 * again soon. */
bool eb_outcome_tick(struct eb_service_loop *loop);
