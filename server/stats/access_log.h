/* The access log: a line event=request for every finished request, only for failed ones, or for a
 * selection; see the setting access_log.
 * Thread: its loop's. Memory: part of its owner. */
#pragma once

#include "proto/trace_parent.h"
#include "server/base/counters.h"
#include "server/base/log_rate_limit.h"

/* The values of the setting access_log. */
enum eb_access_log_mode {
    EB_ACCESS_LOG_ERRORS,  /* requests that failed */
    EB_ACCESS_LOG_OFF,     /* nothing */
    EB_ACCESS_LOG_SAMPLED, /* requests that failed, a fraction of the others, and those whose caller
                              has sampled their trace */
    EB_ACCESS_LOG_ALL
};

extern const char *const eb_access_log_mode_names[]; /* ended by NULL */

/* A finished request. Texts are borrowed and may be anything that a peer can send. */
struct eb_access_record {
    const char *method; /* "embag.v1.EmbeddingBag/Lookup"; if unknown, as the caller named it */
    const char *error;  /* reason why it failed; NULL if it did not fail or no reason is known */
    const char *peer;
    const char *principal;               /* name in the auth_file; NULL if no principal is known */
    const struct eb_trace_parent *trace; /* trace of the request; its trace_id may be "" */
    enum eb_status status;
    bool is_good;  /* whether it did not fail, or ended as calls of its method usually do */
    bool is_timed; /* whether total_ns is known */
    bool is_stream;
    bool is_unsent; /* whether its answer was ready but was never sent; logged as
                       event=answer_unsent, in addition to the line that may have been logged when
                       the answer was ready */
    bool is_lookup; /* whether it has the members after total_ns, if it was read that far */
    uint64_t total_ns;
    uint64_t queue_ns;
    uint64_t compute_ns;
    const char *model; /* "" if unknown */
    uint64_t version;  /* the version that answered; 0 if none */
    uint64_t request_id;
    uint64_t queries;
    uint64_t bags;
    uint64_t rows;
    uint64_t missing;
    uint64_t in_bytes;    /* size of the request message as it came */
    uint64_t out_bytes;   /* size of the answer */
    uint64_t value_bytes; /* bytes of pooled values in the answer */
    bool is_batch;
};

/* The log of one loop. Zeroed, it logs requests that failed, EB_LOG_RATE_LIMIT_LINES a second. */
struct eb_access_log {
    enum eb_access_log_mode mode;
    uint32_t sample; /* one in this many good requests is logged: the first of them */
    uint32_t passed; /* good requests since the last one logged */
    struct eb_log_rate_limit failures;  /* for lines of failed requests */
    struct eb_log_rate_limit successes; /* for lines of good ones, so neither keeps out the other */
};

/* Sets the mode; the log may be in use. From now on, one in `sample` good requests is logged, and
 * at most `per_s_max` lines a second for failed requests and as many for good ones. */
void eb_access_log_set(
    struct eb_access_log *log, enum eb_access_log_mode mode, uint32_t sample, uint32_t per_s_max);

/* Returns whether a request must be logged, and counts it as finished. `is_sampled` says whether
 * its trace is sampled. */
static inline bool eb_access_log_wants(struct eb_access_log *log, bool is_good, bool is_sampled)
{
    if (log->mode == EB_ACCESS_LOG_ERRORS) {
        return !is_good;
    }
    if (log->mode != EB_ACCESS_LOG_SAMPLED || !is_good) {
        return log->mode != EB_ACCESS_LOG_OFF;
    }
    bool is_next = log->passed == 0;
    log->passed = log->passed + 1 < log->sample ? log->passed + 1 : 0;
    return is_next || is_sampled;
}

/* Returns whether one more line may be written now. If not, counts it as left out. */
bool eb_access_log_admits(struct eb_access_log *log, bool is_good, uint64_t now_ms);
/* Writes the line. */
void eb_access_log_write(const struct eb_access_record *record);
/* Logs how many lines were left out in past seconds, if any were: event=requests_not_logged.
 * Returns true if lines were left out in the current second. */
bool eb_access_log_report(struct eb_access_log *log, uint64_t now_ms);
