#include "proto/link/window.h"

#include <assert.h>

#define STEPS_MAX (UINT32_C(1) << 24)

void eb_window_init(struct eb_window *window)
{
    *window = (struct eb_window){.steps = EB_WINDOW_FIRST * EB_WINDOW_STEPS};
}

bool eb_window_has_room(const struct eb_window *window)
{
    return window->sent_count < window->steps / EB_WINDOW_STEPS;
}

bool eb_window_is_in_time(const struct eb_window *window, uint64_t left_ns)
{
    return left_ns >= window->latency_ns + window->latency_ns / 4;
}

bool eb_window_send(struct eb_window *window)
{
    return window->sent_count++ == 0;
}

static void remove_call(struct eb_window *window)
{
    assert(window->sent_count > window->late_count);
    window->sent_count--;
}

static void shrink(struct eb_window *window)
{
    uint32_t least = EB_WINDOW_STEPS + EB_WINDOW_LATE_STEPS;
    window->steps = window->steps > least ? window->steps - EB_WINDOW_LATE_STEPS : EB_WINDOW_STEPS;
}

/* Opens the window by one step, but only if half of it is used. Otherwise the answers say nothing
 * about a larger window. */
static void grow_window(struct eb_window *window)
{
    bool is_used = window->sent_count >= window->steps / EB_WINDOW_STEPS / 2;
    window->steps += is_used && window->steps < STEPS_MAX;
}

static void note_latency(struct eb_window *window, const struct eb_window_sample *sample)
{
    uint64_t latency_ns = sample->latency_ns;
    if (sample->was_alone && (window->base_ns == 0 || latency_ns < window->base_ns)) {
        window->base_ns = latency_ns;
    }
    if (window->latency_ns == 0) {
        window->latency_ns = latency_ns;
    }
    window->latency_ns -= window->latency_ns / EB_WINDOW_SMOOTHING;
    window->latency_ns += latency_ns / EB_WINDOW_SMOOTHING;
}

void eb_window_answer(struct eb_window *window, const struct eb_window_sample *sample)
{
    note_latency(window, sample);
    if (sample->latency_ns <= window->base_ns / 2 + sample->left_ns / 2) {
        grow_window(window);
    } else {
        shrink(window);
    }
    remove_call(window);
}

void eb_window_drop(struct eb_window *window, bool for_load)
{
    remove_call(window);
    if (for_load) {
        shrink(window);
    }
}

void eb_window_expire(struct eb_window *window, bool will_answer)
{
    shrink(window);
    if (will_answer) {
        window->late_count++;
    } else {
        remove_call(window);
    }
}

bool eb_window_settle_late(struct eb_window *window)
{
    if (window->late_count == 0) {
        return false;
    }
    window->late_count--;
    window->sent_count--;
    return true;
}

void eb_window_forget_late(struct eb_window *window)
{
    window->sent_count -= window->late_count;
    window->late_count = 0;
}
