/* How far a load has come, and whether it may go on.
 * Thread: the one that loads. Memory: none. */
#pragma once

#include "server/base/failure.h"

#include <stdint.h>
#include <time.h>

/* Called while a set loads. Members may be NULL. */
struct eb_load_progress {
    /* Now and then. */
    void (*report)(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    /* After so many bytes more; may take its time. false: the load is given up. */
    bool (*go_on)(void *context, uint64_t bytes);
    /* The load fails for want of memory: with so many bytes more it would not. */
    void (*run_short)(void *context, uint64_t missing_bytes);
    void *context;
};

struct eb_load_meter {
    const struct eb_load_progress *progress; /* may be NULL */
    uint64_t done_bytes;
    uint64_t total_bytes;
    time_t reported_s;
};

void eb_load_meter_init(
    struct eb_load_meter *meter, const struct eb_load_progress *progress, uint64_t total_bytes);
/* So many bytes more are done, of what is at `path`. false: *failure, the load is given up. */
bool eb_load_meter_add(
    struct eb_load_meter *meter, const char *path, uint64_t bytes, struct eb_failure *failure);
/* Tells whoever asked that the load fails, and would not with so many bytes more. */
void eb_load_meter_run_short(const struct eb_load_meter *meter, uint64_t missing_bytes);
