/* Runs a state machine through every order of a few kinds of events, and through long random ones.
 * The machine's step applies an event and asserts what must hold after it.
 * Thread: one at a time. Memory: the state is the caller's. */
#pragma once

#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EB_ORDER_LENGTH 5
#define EB_WALK_STEPS UINT64_C(100000)
#else
#define EB_ORDER_LENGTH 6
#define EB_WALK_STEPS UINT64_C(1000000)
#endif

struct eb_event_machine {
    unsigned kinds; /* kinds of events, at most 12 */
    void (*reset)(void *state);
    /* Applies the event. `random` is for what is left open, such as its size. */
    void (*step)(void *state, unsigned kind, uint64_t random);
};

/* Runs all orders of EB_ORDER_LENGTH events, each from a state that was reset. Shorter orders are
 * the beginnings of these. */
void eb_run_every_order(const struct eb_event_machine *machine, void *state);
/* Runs EB_WALK_STEPS random events in a row. */
void eb_run_walk(const struct eb_event_machine *machine, void *state, uint64_t seed);
