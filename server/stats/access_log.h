/* The access log: a line event=request of each request that is over, or of those that failed, or
 * of some; see the setting access_log.
 * Thread: its loop's. Memory: part of its owner. */
#pragma once

#include "proto/trace_parent.h"
#include "server/base/counters.h"
#include "server/base/log_rate_limit.h"

/* Numbers of the setting's choices. */
enum eb_access_log_mode {
    EB_ACCESS_LOG_ERRORS,  /* what failed */
    EB_ACCESS_LOG_OFF,     /* nothing */
    EB_ACCESS_LOG_SAMPLED, /* what failed, one of some of the others, and those whose caller has
                              sampled their trace */
    EB_ACCESS_LOG_ALL
};

extern const char *const eb_access_log_mode_names[]; /* ended by NULL */

/* A request that is over. Texts are borrowed, and may be whatever a peer can send. */
struct eb_access_record {
    const char *method; /* "embag.v1.EmbeddingBag/Lookup"; of what is none, as it was named */
    const char *error;  /* why it failed; NULL: it did not, or nothing is known */
    const char *peer;
    const char *principal;               /* by its name in the auth_file; NULL: none is known */
    const struct eb_trace_parent *trace; /* of the call */
    enum eb_status status;
    bool is_good;  /* it did not fail, or ended as such a thing does */
    bool is_timed; /* total_ns is known */
    bool is_stream;
    bool is_unsent; /* its answer was ready and has not left: event=answer_unsent, beside the line
                       that it may have had when it was over */
    bool is_lookup; /* what follows total_ns is known, as far as it was read */
    uint64_t total_ns;
    uint64_t queue_ns;
    uint64_t compute_ns;
    const char *model; /* "": not known */
    uint64_t version;  /* that answered; 0: none */
    uint64_t request_id;
    uint64_t queries;
    uint64_t bags;
    uint64_t rows;
    uint64_t missing;
    uint64_t in_bytes; /* of the message as it came, and of the answer */
    uint64_t out_bytes;
    uint64_t value_bytes; /* of the answer's, pooled values */
    bool is_batch;
};

/* Of one loop. Zeroed it logs what failed, EB_LOG_RATE_LIMIT_LINES a second. */
struct eb_access_log {
    enum eb_access_log_mode mode;
    uint32_t sample; /* of so many that are good one is logged, the first of them */
    uint32_t passed; /* good ones since the last that was */
    struct eb_log_rate_limit failures;  /* lines of them ... */
    struct eb_log_rate_limit successes; /* ... and of others, which so cannot keep each other out */
};

/* Of so many lines of either kind a second. */
void eb_access_log_init(
    struct eb_access_log *log, enum eb_access_log_mode mode, uint32_t sample, uint32_t per_s_max);

/* Whether a request is to be logged; it counts as one that is over. `is_sampled`: its trace is. */
static inline bool eb_access_log_wants(struct eb_access_log *log, bool is_good, bool is_sampled)
{
    if (log->mode == EB_ACCESS_LOG_ERRORS) {
        return !is_good;
    }
    if (log->mode != EB_ACCESS_LOG_SAMPLED || !is_good) {
        return log->mode != EB_ACCESS_LOG_OFF;
    }
    const bool is_next = log->passed == 0;
    log->passed = log->passed + 1 < log->sample ? log->passed + 1 : 0;
    return is_next || is_sampled;
}

/* Whether there may be one more line now; otherwise it counts among those left out. */
bool eb_access_log_admits(struct eb_access_log *log, bool is_good, uint64_t now_ms);
/* Writes the line. */
void eb_access_log_write(const struct eb_access_record *record);
/* Says how many lines of past seconds were left out, if any were: event=requests_not_logged. true:
 * some are left out of a second that goes on. */
bool eb_access_log_report(struct eb_access_log *log, uint64_t now_ms);
