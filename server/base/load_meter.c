#include "server/base/load_meter.h"

#include <assert.h>

#define REPORT_INTERVAL_S 1

static time_t read_clock_s(void)
{
    struct timespec now;
    int result = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(result == 0);
    (void)result;
    return now.tv_sec;
}

void eb_load_meter_init(
    struct eb_load_meter *meter, const struct eb_load_progress *progress, uint64_t total_bytes)
{
    *meter = (struct eb_load_meter){
        .progress = progress,
        .total_bytes = total_bytes,
        .reported_s = read_clock_s(),
    };
}

bool eb_load_meter_add(
    struct eb_load_meter *meter, const char *path, uint64_t bytes, struct eb_failure *failure)
{
    const struct eb_load_progress *progress = meter->progress;
    time_t now_s = read_clock_s();
    meter->done_bytes += bytes;
    if (progress && progress->report && now_s - meter->reported_s >= REPORT_INTERVAL_S) {
        meter->reported_s = now_s;
        progress->report(progress->context, path, meter->done_bytes, meter->total_bytes);
    }
    return !progress || !progress->go_on || progress->go_on(progress->context, bytes) ||
           eb_failure_set(failure, "%s: the load was cancelled", path);
}

void eb_load_meter_run_short(const struct eb_load_meter *meter, uint64_t missing_bytes)
{
    const struct eb_load_progress *progress = meter->progress;
    if (progress && progress->run_short) {
        progress->run_short(progress->context, missing_bytes);
    }
}
