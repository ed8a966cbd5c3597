/* When a connection ends by the clock: because it is old, has had no calls for long, or nobody is
 * there any more. Each kind can be off.
 * Thread: one at a time; pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* All in milliseconds. */
struct eb_conn_age_limits {
    /* What begins it; 0: never. */
    uint64_t idle_max_ms;    /* without a call */
    uint64_t unknown_max_ms; /* without a call by someone who is known */
    uint64_t age_max_ms;     /* more or less by a tenth, so that connections do not end together */
    uint64_t silence_ms; /* without a byte of the peer's, before it is asked whether it is there */
    /* What there is time for then; 0: none, so that the next look goes on. */
    uint64_t grace_ms;        /* for calls to end, before streams are ended */
    uint64_t end_ms;          /* for those to end, before the connection is cut */
    uint64_t silence_more_ms; /* for the peer's answer */
};

/* What is to be done. */
enum eb_conn_age_step {
    EB_CONN_AGE_NOTHING,
    EB_CONN_AGE_PING,
    EB_CONN_AGE_RETIRE, /* take no new calls, let those there are end */
    EB_CONN_AGE_FINISH, /* end what would not end by itself */
    EB_CONN_AGE_CUT,
    EB_CONN_AGE_DEAD /* nobody answers */
};

/* How far a connection is. */
struct eb_conn_age {
    uint64_t old_ms; /* when it is old; UINT64_MAX: never */
    uint64_t opened_ms;
    bool is_known;              /* somebody who is known has called: the caller's to set */
    uint64_t heard_ms;          /* when bytes came last: the caller's to set */
    uint64_t pinged_ms;         /* a ping is not answered since then; 0: none is */
    uint64_t busy_ms;           /* when it has been seen to have calls, or to have had some, last */
    uint64_t seen_calls;        /* that there had been by then */
    uint64_t step_ms;           /* when the last of RETIRE, FINISH and CUT was due */
    enum eb_conn_age_step step; /* that one; NOTHING: none yet */
};

/* A connection opens. `chance` is any number, different for each. */
void eb_conn_age_init(struct eb_conn_age *age, const struct eb_conn_age_limits *limits,
    uint64_t now_ms, uint64_t chance);
/* So much time has passed in which what the peer had sent was not read: it does not count as time
 * without a call. The peer has been heard now, if there was any. */
void eb_conn_age_postpone(struct eb_conn_age *age, uint64_t unread_ms, uint64_t now_ms);
/* What is due now: each step once. `calls` are open, `calls_begun` have been in all. */
enum eb_conn_age_step eb_conn_age_look(struct eb_conn_age *age,
    const struct eb_conn_age_limits *limits, uint64_t now_ms, uint64_t calls, uint64_t calls_begun);
