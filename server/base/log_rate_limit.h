/* Limits how many log lines per second peers can cause. Lines above the limit are only counted.
 * Thread: one at a time; pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define EB_LOG_RATE_LIMIT_LINES 10u
#define EB_LOG_RATE_LIMIT_MS 1000u

/* Ready for use when zeroed. */
struct eb_log_rate_limit {
    uint32_t lines_max; /* most lines per second; 0 means EB_LOG_RATE_LIMIT_LINES */
    uint64_t since_ms;  /* start of the current second */
    uint32_t lines;     /* lines written in the current second */
    uint64_t left_out;  /* lines not written since eb_log_rate_limit_take_left_out */
};

/* Returns whether one more line may be written now. Counts it. */
bool eb_log_rate_limit_allows(struct eb_log_rate_limit *limit, uint64_t now_ms);
/* Returns how many lines were left out, and resets the count. Returns 0 while the current second
 * lasts. */
uint64_t eb_log_rate_limit_take_left_out(struct eb_log_rate_limit *limit, uint64_t now_ms);
