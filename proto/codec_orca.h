/* Translates between serialised messages of xds.service.orca.v3 and plain values.
 * Thread: pure. Memory: decoding takes from the given arena; encoding writes into the caller's
 * buffer. */
#pragma once

#include "proto/arena.h"
#include "proto/status.h"

/* Longest interval that a request can ask for: a longer one counts as this one, so that no
 * calculation overflows. */
#define EB_ORCA_INTERVAL_MS_MAX (UINT64_C(24) * 60 * 60 * 1000)

/* One of the named metrics. */
struct eb_wire_metric {
    const char *name;
    double value;
};

/* A load report. */
struct eb_wire_load {
    double cpu_utilization;
    double application_utilization;
    double lookups_per_s; /* rps_fractional */
    double errors_per_s;  /* eps */
    size_t metric_count;
    const struct eb_wire_metric *metrics; /* [metric_count] */
};

/* Sets *interval_ms to the interval of an OrcaLoadReportRequest, in whole milliseconds and at most
 * EB_ORCA_INTERVAL_MS_MAX; 0 if it has none. Returns false with *error set, as the decoders of
 * codec.h do. INVALID_ARGUMENT: the interval is negative or no Duration. */
bool eb_orca_request_decode(struct eb_arena *arena, const uint8_t *bytes, size_t size,
    uint64_t *interval_ms, struct eb_error *error);

/* OrcaLoadReport. */
size_t eb_orca_report_bytes(const struct eb_wire_load *load);
void eb_orca_report_encode(const struct eb_wire_load *load, uint8_t *out);
