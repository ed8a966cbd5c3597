/* Counting what becomes of requests: how each ended, by its method; what lookups have touched; and,
 * where an answer was sent, how long each stage of its way took.
 *
 * A call that is no stream is one request, which ends with the call. Of a stream each message is
 * one, which ends with its answer: CANCELLED where that does not leave; and where the stream itself
 * ends with an error, that counts as one more.
 * Thread: the loop's. Memory: part of the loop's state. */
#pragma once

#include "proto/grpc_call.h"
#include "server/base/counters.h"

struct eb_lookup;
struct eb_reply_terms;
struct eb_rpc_call;
struct eb_rpc_conn;
struct eb_service_loop;

/* Of answers that are written together, which have much the same times, so many are each looked at,
 * and of those beyond it one in EB_CALL_STATS_SHARE, which stands for those up to the next: where
 * there are many, all that is done for one counts. */
#define EB_CALL_STATS_EACH_MAX 8
#define EB_CALL_STATS_SHARE 8
/* Those that are looked at when they have been written; of more the times end a little too soon. */
#define EB_CALL_STATS_SENT_MAX 1024

struct eb_call_stats_times {
    uint64_t queue_ns;
    uint64_t compute_ns;
    uint64_t ended_ns; /* when the answer was ready, by uv_hrtime */
};

struct eb_call_stats_sample {
    struct eb_call_stats_times times;
    uint64_t answers; /* that it stands for */
};

/* Of one loop. */
struct eb_call_stats {
    struct eb_counters *counters; /* the loop's */
    size_t sent_count;
    struct eb_call_stats_sample sent[EB_CALL_STATS_SENT_MAX]; /* since the last look at the clock */
};

/* A call begins; and is over, in its on_close, before its lookups are forgotten. */
void eb_call_stats_open(struct eb_rpc_conn *conn);
/* A call that the session has refused by its headers. */
void eb_call_stats_refused_call(struct eb_rpc_conn *conn, const struct eb_grpc_call *grpc_call);
void eb_call_stats_close(struct eb_rpc_conn *conn, const struct eb_grpc_call *grpc_call);
/* A request of a stream is over, whose answer was not watched. */
void eb_call_stats_request(const struct eb_rpc_call *call, enum eb_status status);
/* A request was refused. */
void eb_call_stats_refusal(const struct eb_rpc_call *call, enum eb_refusal refusal);
/* A lookup is over and its answer, if it has one, not sent yet: before its inputs are given back.
 */
void eb_call_stats_lookup(const struct eb_lookup *lookup);
/* The lookup's answer, or the last part of it, is going to be sent by these terms. */
void eb_call_stats_watch(
    const struct eb_rpc_call *call, const struct eb_lookup *lookup, struct eb_reply_terms *terms);
/* Bytes were written, by `now_ns` (uv_hrtime). */
void eb_call_stats_settle(struct eb_call_stats *call_stats, uint64_t now_ns);
