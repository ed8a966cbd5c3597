/* Decides whether and when a failed call is sent again.
 * Thread: pure. Memory: none. */
#pragma once

#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

#define EB_RETRY_NEVER UINT64_MAX

/* A failed call. */
struct eb_retry_case {
    enum eb_status status;
    bool names_version;      /* the request names a version, which other servers may have */
    bool has_replicas;       /* other servers answer the same request by themselves */
    uint32_t retry_after_ms; /* the pause that the server asked for; 0: none */
    uint32_t attempts;       /* attempts to send it so far, including this one */
    uint32_t retries_max;
    uint64_t now_ns;
    uint64_t deadline_ns;
};

/* Returns the pause before attempt number `attempts` + 1, or before connecting again after that
 * many failures. It doubles from 10 ms to 1 s; up to half of it is subtracted in proportion to
 * `random`, which may be any number. */
uint64_t eb_retry_pause_ns(uint32_t attempts, uint32_t random);
/* Returns whether the call may be sent to another server, at once: the connection was lost, the
 * server cannot answer now or not in time, it does not have the version that the request names, or
 * the fault seems to be that of one of several replicas. */
bool eb_retry_may_move(const struct eb_retry_case *failure);
/* Returns when to send the call again; EB_RETRY_NEVER if the failure is final. */
uint64_t eb_retry_at_ns(const struct eb_retry_case *failure, uint32_t random);
