/* Decides when a connection ends because of time: it is old, it has had no calls for long, or its
 * peer is gone. Each kind can be off.
 * Thread: one at a time; pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The limits, all in milliseconds. */
struct eb_conn_age_limits {
    /* Times after which the connection begins to end; 0 means never. */
    uint64_t idle_max_ms;    /* without a call */
    uint64_t unknown_max_ms; /* without a call by a known principal */
    uint64_t age_max_ms;     /* plus or minus a tenth, so that connections do not end together */
    uint64_t silence_ms;     /* without a byte from the peer, before it is sent a ping */
    /* Times allowed once the connection has begun to end or the ping was sent. If one is 0, the
     * next check takes the next step. */
    uint64_t grace_ms;        /* for calls to end, before streams are ended */
    uint64_t end_ms;          /* for streams to end, before the connection is cut */
    uint64_t silence_more_ms; /* for the peer's answer to the ping */
};

/* The steps to take. */
enum eb_conn_age_step {
    EB_CONN_AGE_NOTHING,
    EB_CONN_AGE_PING,
    EB_CONN_AGE_RETIRE, /* take no new calls and let the open ones end */
    EB_CONN_AGE_FINISH, /* end calls that would not end by themselves */
    EB_CONN_AGE_CUT,
    EB_CONN_AGE_DEAD /* the peer does not answer */
};

/* The state of one connection. */
struct eb_conn_age {
    uint64_t old_ms; /* time at which it is old; UINT64_MAX means never */
    uint64_t opened_ms;
    bool is_known;       /* a known principal has called; set by the caller */
    uint64_t heard_ms;   /* time of the last bytes from the peer; set by the caller */
    uint64_t pinged_ms;  /* time of a ping that has not been answered; 0 if there is none */
    uint64_t busy_ms;    /* time of the last check that found open calls, or calls begun since the
                            check before */
    uint64_t seen_calls; /* number of calls begun until then */
    uint64_t step_ms;    /* time at which the last of RETIRE, FINISH and CUT was due */
    enum eb_conn_age_step step; /* that step; NOTHING if there was none yet */
};

/* Sets the state of a connection that opens. `chance` is any number, different for each
 * connection. */
void eb_conn_age_init(struct eb_conn_age *age, const struct eb_conn_age_limits *limits,
    uint64_t now_ms, uint64_t chance);
/* Excludes `unread_ms`, the time for which the peer's bytes were not read, from the limits. If it
 * is above 0, the peer also counts as heard now. */
void eb_conn_age_postpone(struct eb_conn_age *age, uint64_t unread_ms, uint64_t now_ms);
/* Returns the step that is due now; each step is returned once. `calls` is the number of open
 * calls, `calls_begun` that of all calls so far. */
enum eb_conn_age_step eb_conn_age_look(struct eb_conn_age *age,
    const struct eb_conn_age_limits *limits, uint64_t now_ms, uint64_t calls, uint64_t calls_begun);
