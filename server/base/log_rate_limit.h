/* How many lines of the log peers may cause: so many a second, the rest is counted.
 * Thread: one at a time; pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define EB_LOG_RATE_LIMIT_LINES 10u
#define EB_LOG_RATE_LIMIT_MS 1000u

/* Zeroed is ready. */
struct eb_log_rate_limit {
    uint32_t lines_max; /* in a second; 0: EB_LOG_RATE_LIMIT_LINES */
    uint64_t since_ms;  /* of the second that goes on */
    uint32_t lines;     /* in it */
    uint64_t left_out;  /* since eb_log_rate_limit_take_left_out */
};

/* Whether one more line may be written now. */
bool eb_log_rate_limit_allows(struct eb_log_rate_limit *limit, uint64_t now_ms);
/* How many were not, once their second is over; 0: none, or it is not over. */
uint64_t eb_log_rate_limit_take_left_out(struct eb_log_rate_limit *limit, uint64_t now_ms);
