#include "client/cli/load_report.h"

#include "client/cli/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#define LATE_US_MAX 1000

/* Dimensions of the chart, in the units of the picture. */
#define CHART_WIDTH 840
#define CHART_HEIGHT 480
#define CHART_LEFT 84
#define CHART_RIGHT 150
#define CHART_TOP 76
#define CHART_BOTTOM 64
#define CHART_X_TICKS 6

/* ---- figures, for people and as JSON ---- */

static double quantile_us(const struct eb_load_result *result, double quantile)
{
    return eb_load_stats_quantile_us(&result->stats, quantile);
}

/* Divides a sum over all answers by their number. */
static double per_answer(const struct eb_load_stats *stats, uint64_t sum)
{
    return stats->by_status[0] > 0 ? (double)sum / (double)stats->by_status[0] : 0;
}

/* Returns the ending of a noun after this number: "s", or "" after 1. */
static const char *plural(uint64_t number)
{
    return number == 1 ? "" : "s";
}

static void print_load(FILE *out, const struct eb_load_options *options)
{
    fprintf(out, "%s, %s%s%u connection%s, ", options->is_unary ? "unary" : "stream",
        options->priority == EMBAG_BATCH ? "batch priority, " : "",
        options->is_unpaced ? "unpaced, " : "", options->connection_count,
        plural(options->connection_count));
    if (options->retries > 0) {
        fprintf(
            out, "%" PRIu32 " %s, ", options->retries, options->retries == 1 ? "retry" : "retries");
    }
    if (options->hedge_percent > 0) {
        fprintf(out, "hedges for %" PRIu32 " %%, ", options->hedge_percent);
    }
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
        " row%s per request, %s; %" PRIu64 " different request%s\n",
        eb_output_printable(subject->target->model).bytes, subject->target->version,
        subject->target->table_count, plural(subject->target->table_count),
        options->is_grouped ? " as one group" : "", options->bag_count, plural(options->bag_count),
        subject->pool->request_indices, plural(subject->pool->request_indices),
        options->distribution.text, subject->pool->count, plural(subject->pool->count));
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

/* Reports that requests were sent late if half of them were over LATE_US_MAX late. The scheduler of
 * the operating system alone does not delay that many. */
static void print_lateness(FILE *out, const struct eb_load_result *result)
{
    double late_us = eb_load_histogram_quantile_us(&result->stats.late, 0.5);
    if (result->rate > 0 && late_us > LATE_US_MAX) {
        fprintf(out,
            "half of the requests were sent over %.0f us after they were due: the limit of "
            "requests in flight was reached (--in-flight), or the client is too slow (--threads, "
            "--connections)\n",
            late_us);
    }
}

/* Prints what went wrong, if anything did. */
static void print_troubles(FILE *out, const struct eb_load_result *result)
{
    const struct eb_load_stats *stats = &result->stats;
    if (stats->unsent_count > 0) {
        fprintf(out,
            "requests that were due and never sent: %" PRIu64
            "; the limit of requests in flight was reached during their timeout (--in-flight), or "
            "the client withheld them because they would have been answered too late (--unpaced "
            "sends them)\n",
            stats->unsent_count);
    }
    print_lateness(out, result);
    if (result->lost_count > 0) {
        fprintf(out, "requests that had not ended a second after their timeout: %" PRIu64 "\n",
            result->lost_count);
    }
    if (!eb_load_stats_has_answers(stats)) {
        fprintf(out, "no request was answered\n");
    }
    if (result->was_interrupted) {
        fprintf(out, "interrupted: the figures cover the time until then\n");
    }
}

void eb_load_report_servers(FILE *out, const struct eb_load_servers *servers)
{
    for (uint32_t i = 0; i < servers->count && servers->count > 1; i++) {
        const struct eb_load_server *server = &servers->items[i];
        fprintf(out,
            "server %s: %.1f %% of all requests sent, %" PRIu64 " failed, left out %" PRIu64
            " time%s, %s\n",
            eb_output_printable(server->address).bytes, eb_load_servers_share(servers, server),
            server->failed, server->left_out, plural(server->left_out),
            server->is_connected ? "connected" : "not connected");
    }
    if (servers->count > 1 || servers->resends > 0) {
        fprintf(out, "resends %" PRIu64 ", hedges %" PRIu64 " (%" PRIu64 " won)\n",
            servers->resends, servers->hedges, servers->hedges_won);
    }
}

static void print_verdict(FILE *out, uint64_t wrong_count)
{
    if (wrong_count > 0) {
        fprintf(out, "WRONG answers: %" PRIu64 "\n", wrong_count);
    } else {
        fprintf(out, "verified: every value as published\n");
    }
}

void eb_load_report_result(
    FILE *out, const struct eb_load_subject *subject, const struct eb_load_result *result)
{
    const struct eb_load_stats *stats = &result->stats;
    fprintf(out, "%.1f answers/s in %.2f s; %" PRIu64 " request%s, %" PRIu64 " error%s\n",
        eb_load_run_answers_per_s(result), result->seconds, eb_load_stats_requests(stats),
        plural(eb_load_stats_requests(stats)), eb_load_stats_errors(stats),
        plural(eb_load_stats_errors(stats)));
    print_errors(out, stats);
    fprintf(out,
        "latency of all requests due: p50 %.0f us, p90 %.0f, p99 %.0f, p99.9 %.0f, max %.0f us\n",
        quantile_us(result, 0.5), quantile_us(result, 0.9), quantile_us(result, 0.99),
        quantile_us(result, 0.999), quantile_us(result, 1));
    if (stats->unanswered.count > 0) {
        fprintf(out,
            "  requests without an answer: %" PRIu64 "; each counts with %" PRIu64 " us or more\n",
            stats->unanswered.count, eb_load_options_unanswered_us(subject->options));
    }
    fprintf(out, "  of answers only: mean %.0f us, p99 %.0f\n",
        eb_load_histogram_mean_us(&stats->latency),
        eb_load_histogram_quantile_us(&stats->latency, 0.99));
    if (result->rate > 0) {
        fprintf(out, "  from due to sent, which is included: p50 %.0f us, p99 %.0f\n",
            eb_load_histogram_quantile_us(&stats->late, 0.5),
            eb_load_histogram_quantile_us(&stats->late, 0.99));
    }
    eb_load_report_servers(out, &result->servers);
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
        "latency of all requests due; one without an answer counts with %" PRIu64 " us or more\n",
        eb_load_options_unanswered_us(options));
    fprintf(out, "%12s %12s %12s %10s %10s %10s %10s %10s %10s\n", "due/s", "answers/s", "good/s",
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

static json_t *servers_json(const struct eb_load_servers *servers)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < servers->count; i++) {
        const struct eb_load_server *server = &servers->items[i];
        (void)json_array_append_new(
            array, json_pack("{s:s, s:I, s:f, s:I, s:I, s:b}", "address", server->address, "sent",
                       (json_int_t)server->sent, "share", eb_load_servers_share(servers, server),
                       "failed", (json_int_t)server->failed, "left_out",
                       (json_int_t)server->left_out, "connected", (int)server->is_connected));
    }
    return array;
}

json_t *eb_load_report_result_json(const struct eb_load_result *result)
{
    const struct eb_load_stats *stats = &result->stats;
    return json_pack("{s:f, s:I, s:I, s:f, s:f, s:I, s:o, s:I, s:I, s:I, s:b,"
                     " s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:I, s:I, s:I}",
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
        "compute_us", per_answer(stats, stats->compute_us), "servers",
        servers_json(&result->servers), "resends", (json_int_t)result->servers.resends, "hedges",
        (json_int_t)result->servers.hedges, "hedges_won", (json_int_t)result->servers.hedges_won);
}

/* Returns the text as a JSON string, or null if there is no text. */
static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *settings_json(const struct eb_load_subject *subject)
{
    const struct eb_load_options *options = subject->options;
    return json_pack("{s:s, s:s, s:I, s:o, s:I, s:I, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f,"
                     " s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:s}",
        "server", options->server, "model", subject->target->model, "version",
        (json_int_t)subject->target->version, "workload",
        text_or_null(options->workload ? options->workload->name : NULL), "tables",
        (json_int_t)subject->target->table_count, "bags", (json_int_t)options->bag_count,
        "rows_per_request", (json_int_t)subject->pool->request_indices, "distribution",
        options->distribution.text, "mode", options->is_unary ? "unary" : "stream", "arrival",
        options->is_open ? "open" : "closed", "connections", (json_int_t)options->connection_count,
        "threads", (json_int_t)options->thread_count, "in_flight", (json_int_t)options->in_flight,
        "duration_s", options->duration_s, "warmup_s", options->warmup_s, "timeout_us",
        (json_int_t)options->timeout_us, "deadline_us", (json_int_t)options->deadline_us, "retries",
        (json_int_t)options->retries, "hedge", (json_int_t)options->hedge_percent, "seed",
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

/* ---- the chart ---- */

/* Maps values to positions in the picture. */
struct scale {
    double x_max;
    double x_step;
    int decade_first; /* powers of ten at both ends of the axis */
    int decade_last;
};

static double place_x(const struct scale *scale, double x)
{
    return CHART_LEFT + x / scale->x_max * (CHART_WIDTH - CHART_LEFT - CHART_RIGHT);
}

static double place_y(const struct scale *scale, double y)
{
    double part = (log10(y) - scale->decade_first) / (scale->decade_last - scale->decade_first);
    return CHART_HEIGHT - CHART_BOTTOM - part * (CHART_HEIGHT - CHART_TOP - CHART_BOTTOM);
}

/* Returns the smallest step, 1, 2 or 5 times a power of ten, that gives few enough ticks. */
static double find_step(double max)
{
    double power = pow(10, floor(log10(max / CHART_X_TICKS)));
    static const double factors[] = {1, 2, 5};
    for (unsigned i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        if (max / (factors[i] * power) <= CHART_X_TICKS) {
            return factors[i] * power;
        }
    }
    return 10 * power;
}

static struct scale find_scale(const struct eb_load_chart *chart)
{
    double low = INFINITY;
    double high = 0;
    for (unsigned i = 0; i < chart->point_count * EB_LOAD_CHART_LINES; i++) {
        double y = chart->y[i % EB_LOAD_CHART_LINES][i / EB_LOAD_CHART_LINES];
        low = y > 0 && y < low ? y : low;
        high = y > high ? y : high;
    }
    low = high > 0 ? low : 1;
    high = high > 0 ? high : 1;
    struct scale scale = {
        .x_step = find_step(chart->x[chart->point_count - 1]),
        .decade_first = (int)floor(log10(low)),
        .decade_last = (int)ceil(log10(high)),
    };
    scale.x_max = ceil(chart->x[chart->point_count - 1] / scale.x_step) * scale.x_step;
    scale.decade_last += scale.decade_last == scale.decade_first;
    return scale;
}

static void write_text(FILE *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        switch (*c) {
        case '<': (void)fputs("&lt;", out); break;
        case '>': (void)fputs("&gt;", out); break;
        case '&': (void)fputs("&amp;", out); break;
        default: (void)fputc((unsigned char)*c < ' ' ? ' ' : *c, out); break;
        }
    }
}

/* Writes a text element of a class at a position. */
static void write_label(FILE *out, const char *class, double x, double y, const char *text)
{
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    write_text(out, text);
    fputs("</text>\n", out);
}

static void write_chart_head(FILE *out, const struct eb_load_chart *chart)
{
    fprintf(out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n",
        CHART_WIDTH, CHART_HEIGHT);
    fputs("<style>\n"
          ".paper{fill:#fff}text{fill:#1f2328}.limit{stroke:#1f2328}\n"
          ".grid,.minor{stroke:#d5d9de}\n"
          ".l0{stroke:#0969da}.l1{stroke:#bc4c00}.l2{stroke:#8250df}\n"
          ".d0{fill:#0969da}.d1{fill:#bc4c00}.d2{fill:#8250df}\n"
          "@media (prefers-color-scheme:dark){\n"
          ".paper{fill:#0d1117}text{fill:#e6edf3}.limit{stroke:#e6edf3}\n"
          ".grid,.minor{stroke:#30363d}\n"
          ".l0{stroke:#58a6ff}.l1{stroke:#f0883e}.l2{stroke:#bc8cff}\n"
          ".d0{fill:#58a6ff}.d1{fill:#f0883e}.d2{fill:#bc8cff}}\n"
          ".title{font-size:17px;font-weight:bold}\n"
          ".x,.mid{text-anchor:middle}.y{text-anchor:end}\n"
          ".grid{stroke-width:1}.minor{stroke-width:.4}.limit{stroke-dasharray:5 4}\n"
          ".line{fill:none;stroke-width:2}\n"
          "</style>\n",
        out);
    fprintf(out, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n<title>", CHART_WIDTH,
        CHART_HEIGHT);
    write_text(out, chart->title);
    fputs("</title>\n", out);
    write_label(out, "title", CHART_LEFT, 30, chart->title);
    write_label(out, "subtitle", CHART_LEFT, 52, chart->subtitle);
}

static void write_rule(FILE *out, const char *class, double x1, double y1, bool is_level)
{
    double x2 = is_level ? CHART_WIDTH - CHART_RIGHT : x1;
    double y2 = is_level ? y1 : CHART_TOP;
    fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class,
        x1, y1, x2, y2);
}

static void write_x_axis(FILE *out, const struct eb_load_chart *chart, const struct scale *scale)
{
    int count = (int)lround(scale->x_max / scale->x_step);
    for (int i = 0; i <= count; i++) {
        char number[32];
        double x = place_x(scale, i * scale->x_step);
        snprintf(number, sizeof number, "%.10g", i * scale->x_step);
        write_rule(out, "grid", x, CHART_HEIGHT - CHART_BOTTOM, false);
        write_label(out, "x", x, CHART_HEIGHT - CHART_BOTTOM + 20, number);
    }
    write_label(out, "mid", (CHART_LEFT + CHART_WIDTH - CHART_RIGHT) / 2.0,
        CHART_HEIGHT - CHART_BOTTOM + 44, chart->x_label);
}

static void write_y_axis(FILE *out, const struct eb_load_chart *chart, const struct scale *scale)
{
    for (int decade = scale->decade_first; decade <= scale->decade_last; decade++) {
        char number[32];
        double value = pow(10, decade);
        snprintf(number, sizeof number, "%.10g", value);
        write_rule(out, "grid", CHART_LEFT, place_y(scale, value), true);
        write_label(out, "y", CHART_LEFT - 8, place_y(scale, value) + 4, number);
        for (int i = 2; i < 10 && decade < scale->decade_last; i++) {
            write_rule(out, "minor", CHART_LEFT, place_y(scale, i * value), true);
        }
    }
    fprintf(out, "<g transform=\"translate(22 %.1f) rotate(-90)\">\n",
        (CHART_TOP + CHART_HEIGHT - CHART_BOTTOM) / 2.0);
    write_label(out, "mid", 0, 0, chart->y_label);
    fputs("</g>\n", out);
}

static void write_chart_line(
    FILE *out, const struct eb_load_chart *chart, const struct scale *scale, unsigned line)
{
    const double *y = chart->y[line];
    char class[16];
    fprintf(out, "<polyline class=\"line l%u\" points=\"", line);
    for (unsigned i = 0; i < chart->point_count; i++) {
        if (y[i] > 0) {
            fprintf(out, "%.1f,%.1f ", place_x(scale, chart->x[i]), place_y(scale, y[i]));
        }
    }
    fputs("\"/>\n", out);
    for (unsigned i = 0; i < chart->point_count; i++) {
        if (y[i] > 0) {
            fprintf(out,
                "<circle class=\"d%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%s: %.0f at "
                "%.10g</title></circle>\n",
                line, place_x(scale, chart->x[i]), place_y(scale, y[i]), chart->names[line], y[i],
                chart->x[i]);
        }
    }
    snprintf(class, sizeof class, "d%u", line);
    /* The legend is beside the plot, with the highest line first. */
    double legend_y = CHART_TOP + 16 + 22.0 * (EB_LOAD_CHART_LINES - 1 - line);
    fprintf(out, "<rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\"14\" height=\"4\"/>\n", class,
        CHART_WIDTH - CHART_RIGHT + 16, legend_y - 6);
    write_label(out, "legend", CHART_WIDTH - CHART_RIGHT + 38, legend_y, chart->names[line]);
}

void eb_load_chart_write(FILE *out, const struct eb_load_chart *chart)
{
    struct scale scale = find_scale(chart);
    write_chart_head(out, chart);
    write_x_axis(out, chart, &scale);
    write_y_axis(out, chart, &scale);
    if (chart->limit_x > 0) {
        double x = place_x(&scale, chart->limit_x);
        write_rule(out, "limit", x, CHART_HEIGHT - CHART_BOTTOM, false);
        write_label(out, "mid", x, CHART_TOP - 6, chart->limit_label);
    }
    for (unsigned line = 0; line < EB_LOAD_CHART_LINES; line++) {
        write_chart_line(out, chart, &scale, line);
    }
    fputs("</svg>\n", out);
}
