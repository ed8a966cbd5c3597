#include "server/base/load_meter.h"

#include <assert.h>
#include <time.h>

#define REPORT_INTERVAL_S 1

static uint64_t read_clock_s(void)
{
    struct timespec now;
    int result = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(result == 0);
    (void)result;
    return (uint64_t)now.tv_sec;
}

void eb_load_meter_init(
    struct eb_load_meter *meter, const struct eb_load_progress *progress, uint64_t total_bytes)
{
    *meter = (struct eb_load_meter){.progress = progress, .total_bytes = total_bytes};
    atomic_init(&meter->reported_s, read_clock_s());
}

/* Returns whether a report is due. If so, it is due to the caller alone. */
static bool take_report(struct eb_load_meter *meter)
{
    uint64_t now_s = read_clock_s();
    uint_fast64_t reported_s = atomic_load_explicit(&meter->reported_s, memory_order_relaxed);
    return now_s - reported_s >= REPORT_INTERVAL_S &&
           atomic_compare_exchange_strong_explicit(
               &meter->reported_s, &reported_s, now_s, memory_order_relaxed, memory_order_relaxed);
}

bool eb_load_meter_add(
    struct eb_load_meter *meter, const char *path, uint64_t bytes, struct eb_failure *failure)
{
    const struct eb_load_progress *progress = meter->progress;
    atomic_fetch_add_explicit(&meter->done_bytes, bytes, memory_order_relaxed);
    if (progress && progress->report && take_report(meter)) {
        /* Other threads may have added more before the report became due to this one. */
        uint64_t done_bytes = atomic_load_explicit(&meter->done_bytes, memory_order_relaxed);
        progress->report(progress->context, path, done_bytes, meter->total_bytes);
    }
    return !progress || !progress->go_on || progress->go_on(progress->context, bytes) ||
           eb_failure_set(failure, "%s: the load was cancelled", path);
}

void eb_load_meter_stall(const struct eb_load_meter *meter, const char *path, uint64_t seconds)
{
    const struct eb_load_progress *progress = meter->progress;
    if (progress && progress->stalled) {
        progress->stalled(progress->context, path, seconds);
    }
}

void eb_load_meter_resume(const struct eb_load_meter *meter)
{
    const struct eb_load_progress *progress = meter->progress;
    if (progress && progress->resumed) {
        progress->resumed(progress->context);
    }
}

void eb_load_meter_run_short(const struct eb_load_meter *meter, uint64_t missing_bytes)
{
    const struct eb_load_progress *progress = meter->progress;
    if (progress && progress->run_short) {
        progress->run_short(progress->context, missing_bytes);
    }
}
