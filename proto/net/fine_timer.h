/* A timer that rings within microseconds of its time. libuv's timers count milliseconds, which is
 * too coarse for hedges.
 * Thread: the loop's. Memory: only the struct, and a file descriptor. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct eb_fine_timer {
    /* Called on the loop's thread at the time that was set, or earlier: a time that is set while an
     * earlier one is set does not replace it. Set by the owner before open. */
    void (*on_ring)(struct eb_fine_timer *timer);
    /* Private. */
    uv_poll_t poll;
    int fd;
    uint64_t at_ns; /* time that is set, of uv_hrtime; 0: none */
};

/* Returns 0, or a negative libuv code with nothing open. */
int eb_fine_timer_open(struct eb_fine_timer *timer, uv_loop_t *loop);
/* Sets the time. Costs a system call only if no earlier time is set. */
void eb_fine_timer_set(struct eb_fine_timer *timer, uint64_t at_ns);
/* Closes an open timer, which must stay in place until the loop has closed its handle. */
void eb_fine_timer_close(struct eb_fine_timer *timer);
