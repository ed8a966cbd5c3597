/* Reports how requests end. A request is a call, or one message of a bidirectional call.
 * eb_outcome_report receives each outcome. It counts the outcome (counters.h, table_counters.h,
 * sent_times.h), logs it (access_log.h) and keeps it if the request was slow (slow_list.h).
 *
 * A request ends in two phases. READY: its values are computed, or an error says why not; its
 * inputs still exist. At READY the request is logged, and the rows that it read are counted. GONE:
 * its answer has been sent or never will be. At GONE its status and the times of its stages are
 * counted. A call other than a stream is GONE when it is closed, with the status that its peer was
 * sent. On a stream each message is GONE with its answer; its status is CANCELLED if the answer is
 * not sent. A stream that ends with an error of its own counts as one more request.
 *
 * Thread: the loop's. Memory: none. */
#pragma once

#include "server/rpc/conn_state.h"

enum eb_outcome_phase { EB_OUTCOME_READY, EB_OUTCOME_GONE };

/* The subject of a report. Apart from subject, status, text and conn, these members of struct
 * eb_outcome must be set:
 *
 * subject  phase  members
 * -------  -----  ---------------------------------------------------------------
 * LOOKUP   READY  call, lookup, over_ns
 * LOOKUP   GONE   method_index, is_of_stream; times if its answer was sent
 * UNSENT   READY  call, request_id, has_lost_trace
 * REQUEST  READY  call; or grpc_call if the session refused it by its headers
 * REQUEST  GONE   method_index
 * CALL     READY  grpc_call; call unless it was refused before it had a state
 * CALL     GONE   the same
 */
enum eb_outcome_subject {
    EB_OUTCOME_LOOKUP, /* a lookup: a unary call's, or a message of a stream */
    EB_OUTCOME_UNSENT, /* a lookup's answer that was ready in time and expired before it was sent */
    EB_OUTCOME_REQUEST, /* a message of a bidirectional call that is not a lookup, or a call that
                           the session refused because of its headers */
    EB_OUTCOME_CALL     /* a call as a whole */
};

struct eb_outcome {
    enum eb_outcome_subject subject;
    enum eb_status status;
    const char *text; /* why it failed; NULL if not given */
    struct eb_rpc_conn *conn;
    struct eb_rpc_call *call;
    const struct eb_grpc_call *grpc_call;
    const struct eb_lookup *lookup;
    const struct eb_answer_times *times;
    uint64_t over_ns; /* when the values or the error were ready (uv_hrtime) */
    uint64_t request_id;
    unsigned method_index; /* as in eb_method_entry */
    bool is_of_stream;
    bool has_lost_trace; /* UNSENT: whether the request named a trace of its own, which is no longer
                            known */
};

/* The text of a request whose client has reset or cancelled it. */
extern const char eb_outcome_given_up_text[];

/* Reports an outcome. A call is logged once: either with its lookup or by itself. Does not read
 * outcome->text after it returns. */
void eb_outcome_report(const struct eb_outcome *outcome, enum eb_outcome_phase phase);

/* Counts why a valid request was not served. The status of its call is reported separately. */
static inline void eb_outcome_count_refusal(struct eb_rpc_conn *conn, enum eb_refusal refusal)
{
    conn->loop->counters->refusals[refusal]++;
}

/* Reports a lookup that is over, with its answer or error set. Logs nothing if the lookup no longer
 * has a call. */
void eb_outcome_lookup_ready(const struct eb_lookup *lookup);
/* Reports a lookup that is about to lose its call: nobody waits for it any longer. */
void eb_outcome_lookup_lost(const struct eb_lookup *lookup);

/* Logs how many lines were left out, and forgets old slow requests. Returns whether it must be
 * called again soon. */
bool eb_outcome_tick(struct eb_service_loop *loop);
