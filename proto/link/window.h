/* Limits how many calls of one connection and priority are in flight, so that answers come in time.
 * The window opens while answers come soon enough and closes while they do not, as TCP's does for
 * segments. An answer is soon enough if its latency is at most the base latency (the shortest of a
 * call that was sent alone) plus half of the time from there to the call's deadline. So waiting for
 * other calls takes at most half of the time to spare.
 * Without the window, a server that gets more calls than it can answer answers all of them late:
 * calls wait in the buffers of sockets, where neither side can drop them.
 * Thread: one at a time. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Size of the window before any latency is known. */
#define EB_WINDOW_FIRST 64
/* The window's size is counted in steps of 1 / EB_WINDOW_STEPS call. An answer in time opens it by
 * one step, so that it grows by a quarter in the time of one latency. A late answer closes it by
 * EB_WINDOW_LATE_STEPS. */
#define EB_WINDOW_STEPS 4
#define EB_WINDOW_LATE_STEPS 2
/* Each new latency has a weight of 1 / EB_WINDOW_SMOOTHING in the smoothed latency. */
#define EB_WINDOW_SMOOTHING 8

struct eb_window {
    uint64_t base_ns;    /* shortest latency of a call that was sent alone; 0: not known */
    uint64_t latency_ns; /* smoothed; 0: no call has been answered */
    uint32_t steps;      /* size of the window */
    uint32_t sent_count; /* calls in flight, including late ones */
    uint32_t late_count; /* calls in flight that were given up, but will still be answered */
};

void eb_window_init(struct eb_window *window);
/* Returns whether one more call may be sent: always true if none is in flight. */
bool eb_window_has_room(const struct eb_window *window);
/* Returns whether a call that has left_ns will likely be answered in time. */
bool eb_window_is_in_time(const struct eb_window *window, uint64_t left_ns);

/* Counts a call that is sent. Returns whether it is sent alone, with no other call in flight. */
bool eb_window_send(struct eb_window *window);

/* A call that was answered. */
struct eb_window_sample {
    uint64_t latency_ns; /* time from sending to the answer */
    uint64_t left_ns;    /* time from sending to the deadline */
    bool was_alone;
};

/* For each call that was sent, one of the next three functions is called. */
/* Counts a call that was answered. */
void eb_window_answer(struct eb_window *window, const struct eb_window_sample *sample);
/* Counts a call that was refused or is no longer needed. `for_load` says that the server is
 * overloaded. */
void eb_window_drop(struct eb_window *window, bool for_load);
/* Counts a call whose deadline has passed. `will_answer` says that an answer is still to come;
 * eb_window_settle_late will count it. */
void eb_window_expire(struct eb_window *window, bool will_answer);
/* Counts the answer to an expired call. Returns false if no such answer was still to come. */
bool eb_window_settle_late(struct eb_window *window);
/* Notes that no more late answers will come. */
void eb_window_forget_late(struct eb_window *window);
