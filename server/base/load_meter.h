/* Measures the progress of a load, and asks whether the load may continue.
 * Thread: the one that loads. Memory: none. */
#pragma once

#include "server/base/failure.h"

#include <stdint.h>
#include <time.h>

/* Callbacks while a set loads. Members may be NULL. */
struct eb_load_progress {
    /* Called now and then. */
    void (*report)(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    /* Called after `bytes` more bytes were loaded; may block. Returns false to give up the load. */
    bool (*go_on)(void *context, uint64_t bytes);
    /* Called if the load fails for lack of memory. `missing_bytes` is how much more would be
     * enough. */
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
/* Counts `bytes` more that were loaded from `path`. Returns false, with *failure set, if the load
 * is given up. */
bool eb_load_meter_add(
    struct eb_load_meter *meter, const char *path, uint64_t bytes, struct eb_failure *failure);
/* Reports that the load fails for lack of memory, and that `missing_bytes` more would be enough. */
void eb_load_meter_run_short(const struct eb_load_meter *meter, uint64_t missing_bytes);
