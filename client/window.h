/* How many calls of one connection and priority may be under way, so that their answers come in
 * time: a window that opens while answers come soon enough and closes while they do not, as TCP's
 * does for segments. Soon enough: within the shortest latency of a call that was sent alone and
 * half of what the call had left beyond it, so that waiting for others takes at most that half.
 *
 * Without it, a server that is asked for more than it can do answers everything late: calls wait in
 * the buffers of sockets, where neither side can drop them.
 * Thread: one at a time. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Calls under way before anything is known. */
#define EB_WINDOW_FIRST 64
/* Steps are parts of a call, 1 / so much: an answer in time opens the window by one, so that it
 * grows by a quarter in the time of one latency; one that is late closes it by two. */
#define EB_WINDOW_STEPS 4
#define EB_WINDOW_LATE_STEPS 2
/* Of the smoothed latency, the latest has this part: 1 / so much. */
#define EB_WINDOW_SMOOTHING 8

struct eb_window {
    uint64_t base_ns;    /* the shortest latency of one that was sent alone; 0: not known */
    uint64_t latency_ns; /* smoothed; 0: no call has been answered */
    uint32_t steps;      /* of the window's size */
    uint32_t sent_count; /* calls under way, the late ones too */
    uint32_t late_count; /* of those, given up, though an answer is still to come */
};

void eb_window_init(struct eb_window *window);
/* Whether one more call may be sent. One always may where none is under way. */
bool eb_window_has_room(const struct eb_window *window);
/* Whether a call that has left_ns will likely be answered in time. */
bool eb_window_is_in_time(const struct eb_window *window, uint64_t left_ns);

/* Returns whether it is sent alone: while no other is under way. */
bool eb_window_send(struct eb_window *window);

/* A call that was answered. */
struct eb_window_sample {
    uint64_t latency_ns; /* from when it was sent */
    uint64_t left_ns;    /* at that time, to its deadline */
    bool was_alone;
};

/* What becomes of a call that was sent, exactly one of: */
/* Answered. */
void eb_window_answer(struct eb_window *window, const struct eb_window_sample *sample);
/* Refused, or of no use any more; for_load: the server has too much to do. */
void eb_window_drop(struct eb_window *window, bool for_load);
/* Its time is over; will_answer: an answer comes all the same, and is told by: */
void eb_window_expire(struct eb_window *window, bool will_answer);
/* The answer of such a call. false: none is still to come. */
bool eb_window_settle_late(struct eb_window *window);
/* No late answer comes any more. */
void eb_window_forget_late(struct eb_window *window);
