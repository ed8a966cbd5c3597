/* How fast a server answers, as one connection sees it, and whether one more call would be answered
 * in time behind those that wait for answers already.
 * Thread: one at a time. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The mean is over as many of the last answers as are to come, so that the bursts in which they
 * come are part of it, but over so many at least. */
#define EB_PACE_ANSWERS_MIN 64
/* A call is in time where its answer is expected within this part of what is left: 1 / so much.
 * Answers do not come evenly. */
#define EB_PACE_SPARE 2
/* So many calls are under way at most before the first answer. */
#define EB_PACE_UNKNOWN_MAX 64

/* Zeroes: nothing is known. */
struct eb_pace {
    uint64_t since_ns; /* the last answer, or when the first call was sent after a rest */
    uint64_t busy_ns;  /* spent waiting for `answers` */
    uint32_t answers;
};

/* A call is sent while none is under way. */
void eb_pace_begin(struct eb_pace *pace, uint64_t now_ns);
/* A call has been answered, not refused; sent_count are still under way. */
void eb_pace_answer(struct eb_pace *pace, uint32_t sent_count, uint64_t now_ns);
/* Whether a call that has left_ns would be answered in time behind sent_count others; true where
 * there are none, or where nothing is known and they are few. */
bool eb_pace_is_in_time(const struct eb_pace *pace, uint32_t sent_count, uint64_t left_ns);
