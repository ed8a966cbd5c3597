/* Measures the progress of a load, and asks whether the load may continue.
 * Thread: one calls init and changes total_bytes while no other uses the meter; any may call the
 * rest. Memory: none. */
#pragma once

#include "server/base/failure.h"

#include <stdatomic.h>
#include <stdint.h>

/* Callbacks while a set loads. They are called by the threads that load, several of them at the
 * same time, except run_short. Members may be NULL. */
struct eb_load_progress {
    /* Called at most once a second. */
    void (*report)(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    /* Called after `bytes` more bytes were loaded; may block. Returns false to give up the load. */
    bool (*go_on)(void *context, uint64_t bytes);
    /* Called once for each read that takes long, after `seconds`, and once more when it has
     * ended. */
    void (*stalled)(void *context, const char *path, uint64_t seconds);
    void (*resumed)(void *context);
    /* Called if the load fails for lack of memory. `missing_bytes` is how much more would be
     * enough. */
    void (*run_short)(void *context, uint64_t missing_bytes);
    void *context;
};

struct eb_load_meter {
    const struct eb_load_progress *progress; /* may be NULL */
    atomic_uint_fast64_t done_bytes;
    uint64_t total_bytes;
    atomic_uint_fast64_t reported_s; /* time of the last report */
};

void eb_load_meter_init(
    struct eb_load_meter *meter, const struct eb_load_progress *progress, uint64_t total_bytes);
/* Counts `bytes` more that were loaded from `path`. Returns false, with *failure set, if the load
 * is given up. */
bool eb_load_meter_add(
    struct eb_load_meter *meter, const char *path, uint64_t bytes, struct eb_failure *failure);
/* Reports a read from `path` that has taken `seconds`. */
void eb_load_meter_stall(const struct eb_load_meter *meter, const char *path, uint64_t seconds);
/* Reports that such a read has ended. */
void eb_load_meter_resume(const struct eb_load_meter *meter);
/* Reports that the load fails for lack of memory, and that `missing_bytes` more would be enough. */
void eb_load_meter_run_short(const struct eb_load_meter *meter, uint64_t missing_bytes);
