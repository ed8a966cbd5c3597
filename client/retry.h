/* Whether and when a call that has failed is sent again.
 * Thread: pure. Memory: none. */
#pragma once

#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

#define EB_RETRY_NEVER UINT64_MAX

/* How a call has failed. */
struct eb_retry_case {
    enum eb_status status;
    uint32_t retry_after_ms; /* what the server asked for; 0: nothing */
    uint32_t attempts;       /* times it has been sent, or tried to be, this one included */
    uint32_t retries_max;
    uint64_t now_ns;
    uint64_t deadline_ns;
};

/* A pause before attempt number `attempts` + 1, or before connecting after so many failures: from
 * 10 ms doubling to 1 s, less up to half of it as `random` (any number) says. */
uint64_t eb_retry_pause_ns(uint32_t attempts, uint32_t random);
/* When to send it again; EB_RETRY_NEVER: the failure is final. */
uint64_t eb_retry_at_ns(const struct eb_retry_case *failure, uint32_t random);
