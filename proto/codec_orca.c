#include "proto/codec_orca.h"

#include "proto/codec_common.h"
#include "proto/field.h"

#include "google/protobuf/duration.pb-c.h"
#include "xds/data/orca/v3/orca_load_report.fields.h"
#include "xds/service/orca/v3/orca.pb-c.h"

/* Largest accepted number of fields, including unknown ones such as the names of request costs. */
#define REQUEST_FIELDS_MAX 64
/* The limits of a google.protobuf.Duration. */
#define DURATION_SECONDS_MAX INT64_C(315576000000)
#define DURATION_NANOS_MAX 999999999

/* Converts a duration, which is not negative, to milliseconds. */
static uint64_t convert_duration(const Google__Protobuf__Duration *duration)
{
    uint64_t seconds = (uint64_t)duration->seconds;
    uint64_t ms = seconds * 1000 + (uint64_t)duration->nanos / 1000000;
    return ms < EB_ORCA_INTERVAL_MS_MAX ? ms : EB_ORCA_INTERVAL_MS_MAX;
}

bool eb_orca_request_decode(struct eb_arena *arena, const uint8_t *bytes, size_t size,
    uint64_t *interval_ms, struct eb_error *error)
{
    struct eb_codec_input input = {&xds__service__orca__v3__orca_load_report_request__descriptor,
        bytes, size, {.fields_max = REQUEST_FIELDS_MAX}};
    const Xds__Service__Orca__V3__OrcaLoadReportRequest *message =
        eb_codec_unpack(arena, &input, error);
    if (!message) {
        return false;
    }
    const Google__Protobuf__Duration *interval = message->report_interval;
    if (interval && (interval->seconds < 0 || interval->seconds > DURATION_SECONDS_MAX ||
                        interval->nanos < 0 || interval->nanos > DURATION_NANOS_MAX)) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "report_interval: invalid duration of %lld seconds and %d nanoseconds: expected 0 to "
            "315576000000 and 0 to 999999999",
            (long long)interval->seconds, interval->nanos);
        return false;
    }
    *interval_ms = interval ? convert_duration(interval) : 0;
    return true;
}

/* Writes an entry of the map: the name and its number. */
static void write_metric(struct eb_field_writer *writer, const struct eb_wire_metric *metric)
{
    eb_field_put_text(writer, EB_FIELD_ORCA_LOAD_REPORT_NAMED_METRICS_ENTRY_KEY, metric->name);
    eb_field_put_double(writer, EB_FIELD_ORCA_LOAD_REPORT_NAMED_METRICS_ENTRY_VALUE, metric->value);
}

static void write_report(struct eb_field_writer *writer, const struct eb_wire_load *load)
{
    eb_field_put_double(writer, EB_FIELD_ORCA_LOAD_REPORT_CPU_UTILIZATION, load->cpu_utilization);
    eb_field_put_double(writer, EB_FIELD_ORCA_LOAD_REPORT_RPS_FRACTIONAL, load->lookups_per_s);
    eb_field_put_double(writer, EB_FIELD_ORCA_LOAD_REPORT_EPS, load->errors_per_s);
    for (size_t i = 0; i < load->metric_count; i++) {
        struct eb_field_writer counter = {.out = NULL};
        write_metric(&counter, &load->metrics[i]);
        eb_field_put_length(writer, EB_FIELD_ORCA_LOAD_REPORT_NAMED_METRICS, counter.bytes);
        write_metric(writer, &load->metrics[i]);
    }
    eb_field_put_double(
        writer, EB_FIELD_ORCA_LOAD_REPORT_APPLICATION_UTILIZATION, load->application_utilization);
}

size_t eb_orca_report_bytes(const struct eb_wire_load *load)
{
    struct eb_field_writer counter = {.out = NULL};
    write_report(&counter, load);
    return counter.bytes;
}

void eb_orca_report_encode(const struct eb_wire_load *load, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_report(&writer, load);
}
