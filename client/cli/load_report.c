#include "client/cli/load_report.h"

#include "client/cli/output.h"

#include <inttypes.h>

#define LATE_US_MAX 1000

static double quantile_us(const struct eb_load_result *result, double quantile)
{
    return eb_load_stats_quantile_us(&result->stats, quantile);
}

/* Of what all answers together have. */
static double per_answer(const struct eb_load_stats *stats, uint64_t sum)
{
    return stats->by_status[0] > 0 ? (double)sum / (double)stats->by_status[0] : 0;
}

static void print_load(FILE *out, const struct eb_load_options *options)
{
    fprintf(out, "%s, %s%s%u connection%s, ", options->is_unary ? "unary" : "stream",
        options->priority == EMBAG_BATCH ? "batch priority, " : "",
        options->is_unpaced ? "unpaced, " : "", options->connection_count,
        options->connection_count == 1 ? "" : "s");
    if (options->sweep.step_count > 0) {
        fprintf(out, "open load of %g to %g requests/s", options->sweep.from, options->sweep.to);
    } else if (options->is_open) {
        fprintf(out, "open load of %g requests/s", options->rate);
    } else {
        fprintf(out, "closed load, %" PRIu64 " in flight", options->in_flight);
    }
    fprintf(out, ", seed %" PRIu64 "\n", options->seed);
}

void eb_load_report_subject(FILE *out, const struct eb_load_subject *subject)
{
    const struct eb_load_options *options = subject->options;
    fprintf(out,
        "model %s, version %" PRIu64 ": %" PRIu32 " table%s%s, %" PRIu32 " bag%s of each, %" PRIu64
        " rows per request, %s; %" PRIu64 " different requests\n",
        eb_output_printable(subject->target->model).bytes, subject->target->version,
        subject->target->table_count, subject->target->table_count == 1 ? "" : "s",
        options->is_grouped ? " as one group" : "", options->bag_count,
        options->bag_count == 1 ? "" : "s", subject->pool->request_indices,
        options->distribution.text, subject->pool->count);
    print_load(out, options);
}

static void print_errors(FILE *out, const struct eb_load_stats *stats)
{
    for (unsigned i = 1; i < EB_LOAD_STATUS_COUNT; i++) {
        if (stats->by_status[i] > 0) {
            fprintf(out, "  %s: %" PRIu64 "\n", embag_status_name((enum embag_status)i),
                stats->by_status[i]);
        }
    }
    if (stats->first_error.status != EMBAG_OK) {
        fprintf(out, "  the first: %s\n", eb_output_printable(stats->first_error.text).bytes);
    }
}

/* Half of all requests this late are no accident of the scheduler. */
static void print_lateness(FILE *out, const struct eb_load_result *result)
{
    double late_us = eb_load_histogram_quantile_us(&result->stats.late, 0.5);
    if (result->rate > 0 && late_us > LATE_US_MAX) {
        fprintf(out,
            "half of the requests were sent over %.0f us after they were due: as many were in "
            "flight as may be (--in-flight), or this side is too slow (--threads, --connections)\n",
            late_us);
    }
}

/* What went wrong, where something did. */
static void print_troubles(FILE *out, const struct eb_load_result *result)
{
    const struct eb_load_stats *stats = &result->stats;
    if (stats->unsent_count > 0) {
        fprintf(out,
            "%" PRIu64 " requests were due and never sent: there was no room within their timeout "
            "(--in-flight), or the client withheld what would have been answered too late "
            "(--unpaced sends it)\n",
            stats->unsent_count);
    }
    print_lateness(out, result);
    if (result->lost_count > 0) {
        fprintf(out, "%" PRIu64 " requests have not ended, long after their timeout\n",
            result->lost_count);
    }
    if (!eb_load_stats_has_answers(stats)) {
        fprintf(out, "no request was answered\n");
    }
    if (result->was_interrupted) {
        fprintf(out, "interrupted: these are the figures up to then\n");
    }
}

static void print_verdict(FILE *out, uint64_t wrong_count)
{
    if (wrong_count > 0) {
        fprintf(out, "%" PRIu64 " answers were WRONG\n", wrong_count);
    } else {
        fprintf(out, "verified: every value as published\n");
    }
}

void eb_load_report_result(
    FILE *out, const struct eb_load_subject *subject, const struct eb_load_result *result)
{
    const struct eb_load_stats *stats = &result->stats;
    fprintf(out, "%.1f answers/s in %.2f s; %" PRIu64 " requests, %" PRIu64 " errors\n",
        eb_load_run_answers_per_s(result), result->seconds, eb_load_stats_requests(stats),
        eb_load_stats_errors(stats));
    print_errors(out, stats);
    fprintf(out,
        "latency of all that was due: p50 %.0f us, p90 %.0f, p99 %.0f, p99.9 %.0f, max %.0f us\n",
        quantile_us(result, 0.5), quantile_us(result, 0.9), quantile_us(result, 0.99),
        quantile_us(result, 0.999), quantile_us(result, 1));
    if (stats->unanswered.count > 0) {
        fprintf(out, "  %" PRIu64 " without an answer count with %" PRIu64 " us or more\n",
            stats->unanswered.count, eb_load_options_unanswered_us(subject->options));
    }
    fprintf(out, "  of answers alone: mean %.0f us, p99 %.0f\n",
        eb_load_histogram_mean_us(&stats->latency),
        eb_load_histogram_quantile_us(&stats->latency, 0.99));
    if (result->rate > 0) {
        fprintf(out, "sent after they were due, which is part of it: p50 %.0f us, p99 %.0f\n",
            eb_load_histogram_quantile_us(&stats->late, 0.5),
            eb_load_histogram_quantile_us(&stats->late, 0.99));
    }
    fprintf(out, "at the server, mean: %.0f us before pooling, %.0f us pooling\n",
        per_answer(stats, stats->queue_us), per_answer(stats, stats->compute_us));
    fprintf(out, "%.0f bytes of values per answer\n", per_answer(stats, stats->answer_bytes));
    if (subject->options->deadline_us > 0) {
        fprintf(out, "within %" PRIu64 " us: %.1f answers/s\n", subject->options->deadline_us,
            eb_load_run_good_per_s(result));
    }
    if (subject->options->is_verified) {
        print_verdict(out, stats->wrong_count);
    }
    print_troubles(out, result);
}

void eb_load_report_table_head(FILE *out, const struct eb_load_options *options)
{
    fprintf(out,
        "latency of all that was due; without an answer it counts with %" PRIu64 " us or more\n",
        eb_load_options_unanswered_us(options));
    fprintf(out, "%12s %12s %12s %10s %10s %10s %10s %10s %10s\n", "asked/s", "answers/s", "good/s",
        "p50 us", "p90 us", "p99 us", "p99.9 us", "max us", "no answer");
}

void eb_load_report_table_row(FILE *out, const struct eb_load_result *result)
{
    const struct eb_load_stats *stats = &result->stats;
    fprintf(out, "%12.1f %12.1f %12.1f %10.0f %10.0f %10.0f %10.0f %10.0f %10" PRIu64 "\n",
        result->rate, eb_load_run_answers_per_s(result), eb_load_run_good_per_s(result),
        quantile_us(result, 0.5), quantile_us(result, 0.9), quantile_us(result, 0.99),
        quantile_us(result, 0.999), quantile_us(result, 1),
        eb_load_stats_errors(stats) + stats->unsent_count);
}

static json_t *errors_json(const struct eb_load_stats *stats)
{
    json_t *errors = json_object();
    for (unsigned i = 1; i < EB_LOAD_STATUS_COUNT; i++) {
        if (stats->by_status[i] > 0) {
            (void)json_object_set_new(errors, embag_status_name((enum embag_status)i),
                json_integer((json_int_t)stats->by_status[i]));
        }
    }
    return errors;
}

json_t *eb_load_report_result_json(const struct eb_load_result *result)
{
    const struct eb_load_stats *stats = &result->stats;
    return json_pack("{s:f, s:I, s:I, s:f, s:f, s:I, s:o, s:I, s:I, s:I, s:b,"
                     " s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
        "seconds", result->seconds, "requests", (json_int_t)eb_load_stats_requests(stats),
        "answers", (json_int_t)stats->by_status[0], "requests_per_s",
        eb_load_run_answers_per_s(result), "goodput_per_s", eb_load_run_good_per_s(result),
        "errors", (json_int_t)eb_load_stats_errors(stats), "errors_by_code", errors_json(stats),
        "unsent", (json_int_t)stats->unsent_count, "lost", (json_int_t)result->lost_count, "wrong",
        (json_int_t)stats->wrong_count, "interrupted", (int)result->was_interrupted, "mean_us",
        eb_load_histogram_mean_us(&stats->latency), "p50_us", quantile_us(result, 0.5), "p90_us",
        quantile_us(result, 0.9), "p99_us", quantile_us(result, 0.99), "p999_us",
        quantile_us(result, 0.999), "max_us", quantile_us(result, 1), "answered_p99_us",
        eb_load_histogram_quantile_us(&stats->latency, 0.99), "late_p99_us",
        eb_load_histogram_quantile_us(&stats->late, 0.99), "answer_bytes",
        per_answer(stats, stats->answer_bytes), "queue_us", per_answer(stats, stats->queue_us),
        "compute_us", per_answer(stats, stats->compute_us));
}

/* null where there is none. */
static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *settings_json(const struct eb_load_subject *subject)
{
    const struct eb_load_options *options = subject->options;
    return json_pack("{s:s, s:s, s:I, s:o, s:I, s:I, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f,"
                     " s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:s}",
        "server", options->server, "model", subject->target->model, "version",
        (json_int_t)subject->target->version, "workload",
        text_or_null(options->workload ? options->workload->name : NULL), "tables",
        (json_int_t)subject->target->table_count, "bags", (json_int_t)options->bag_count,
        "rows_per_request", (json_int_t)subject->pool->request_indices, "distribution",
        options->distribution.text, "mode", options->is_unary ? "unary" : "stream", "arrival",
        options->is_open ? "open" : "closed", "connections", (json_int_t)options->connection_count,
        "threads", (json_int_t)options->thread_count, "in_flight", (json_int_t)options->in_flight,
        "duration_s", options->duration_s, "warmup_s", options->warmup_s, "timeout_us",
        (json_int_t)options->timeout_us, "deadline_us", (json_int_t)options->deadline_us, "seed",
        (json_int_t)options->seed, "pool", (json_int_t)subject->pool->count, "verified",
        (int)options->is_verified, "groups", (int)options->is_grouped, "unpaced",
        (int)options->is_unpaced, "priority",
        options->priority == EMBAG_BATCH ? "batch" : "interactive");
}

json_t *eb_load_report_json(
    const struct eb_load_subject *subject, const struct eb_load_result *result)
{
    json_t *object = settings_json(subject);
    json_t *figures = eb_load_report_result_json(result);
    if (object && result->rate > 0) {
        (void)json_object_set_new(object, "rate", json_real(result->rate));
    }
    if (!object || !figures || json_object_update(object, figures) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(figures);
    return object;
}
