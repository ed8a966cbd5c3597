#include "client/cli/load_sweep.h"

#include "client/cli/output.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEEPING_UP 0.95

static const double quantiles[EB_LOAD_CHART_LINES] = {0.5, 0.99, 0.999};

struct sweep {
    const struct eb_load_subject *subject;
    struct eb_load_result result; /* result of the current step */
    unsigned step_count;          /* steps that were run */
    double rates[EB_LOAD_STEPS_MAX];
    double latencies_us[EB_LOAD_CHART_LINES][EB_LOAD_STEPS_MAX];
    double kept_rate; /* highest rate that the server kept up with; 0: none */
    double best_per_s;
    bool is_saturated;
    bool was_interrupted;
    bool has_answers;
    uint64_t wrong_count;
    struct embag_error first_error; /* status EMBAG_OK: none */
    json_t *steps;
    FILE *svg; /* file for the curve, which is drawn at the end */
    bool is_drawn;
};

bool eb_load_sweep_is_saturated(const struct eb_load_result *result)
{
    const struct eb_load_stats *stats = &result->stats;
    double due = (double)eb_load_stats_requests(stats);
    double answered = (double)stats->window_answers;
    answered = answered < (double)stats->by_status[0] ? answered : (double)stats->by_status[0];
    /* Requests on their way when the window ends do not count against the server. */
    double on_its_way =
        eb_load_histogram_mean_us(&stats->latency) / 1e6 * due / fmax(result->seconds, 1e-9);
    return due > 0 && answered + fmin(on_its_way, due * KEEPING_UP / 10) < due * KEEPING_UP;
}

static void note_step(struct sweep *sweep)
{
    const struct eb_load_result *result = &sweep->result;
    unsigned step = sweep->step_count++;
    sweep->rates[step] = result->rate;
    for (unsigned i = 0; i < EB_LOAD_CHART_LINES; i++) {
        sweep->latencies_us[i][step] = eb_load_stats_quantile_us(&result->stats, quantiles[i]);
    }
    sweep->has_answers = sweep->has_answers || eb_load_stats_has_answers(&result->stats);
    sweep->wrong_count += result->stats.wrong_count;
    if (sweep->first_error.status == EMBAG_OK) {
        sweep->first_error = result->stats.first_error;
    }
    sweep->best_per_s = fmax(sweep->best_per_s, eb_load_run_answers_per_s(result));
    sweep->was_interrupted = result->was_interrupted;
    sweep->is_saturated = eb_load_sweep_is_saturated(result);
    if (!sweep->is_saturated) {
        sweep->kept_rate = result->rate;
    }
    if (!sweep->subject->options->is_json) {
        eb_load_report_table_row(stdout, result);
        fflush(stdout);
    }
    json_t *figures = eb_load_report_result_json(result);
    if (figures) {
        (void)json_object_set_new(figures, "rate", json_real(result->rate));
    }
    (void)json_array_append_new(sweep->steps, figures);
}

static void run_steps(struct sweep *sweep, const struct eb_load_run *run)
{
    const struct eb_load_sweep *wanted = &run->options->sweep;
    double step = (wanted->to - wanted->from) / (wanted->step_count - 1);
    bool goes_on = true;
    for (unsigned i = 0; i < wanted->step_count && goes_on; i++) {
        struct eb_load_run one = *run;
        one.rate = wanted->from + step * i;
        one.seed = run->seed + i;
        eb_load_run(&one, &sweep->result);
        note_step(sweep);
        goes_on = !sweep->is_saturated && !sweep->was_interrupted && sweep->result.lost_count == 0;
    }
}

static void say_unwritable(const struct sweep *sweep)
{
    fprintf(stderr, "embag-load: cannot write %s: %s; name another with --svg\n",
        sweep->subject->options->svg, strerror(errno));
}

/* Opens the file for the curve before the first step, so that an error shows before hours of steps,
 * not after. Returns false after printing an error to stderr. */
static bool open_svg(struct sweep *sweep)
{
    sweep->svg = fopen(sweep->subject->options->svg, "w");
    if (!sweep->svg) {
        say_unwritable(sweep);
    }
    return sweep->svg;
}

/* Draws the curve. Prints an error to stderr if it cannot be written. */
static void draw_sweep(struct sweep *sweep)
{
    const struct eb_load_options *options = sweep->subject->options;
    char title[160];
    char subtitle[160];
    snprintf(title, sizeof title, "%.80s: latency against rate",
        eb_output_printable(sweep->subject->target->model).bytes);
    snprintf(subtitle, sizeof subtitle,
        "%s, %u connection%s, %u bag%s of each of %u tables; no answer counts as %" PRIu64
        " us or more",
        options->is_unary ? "unary" : "stream", options->connection_count,
        options->connection_count == 1 ? "" : "s", options->bag_count,
        options->bag_count == 1 ? "" : "s", sweep->subject->target->table_count,
        eb_load_options_unanswered_us(options));
    struct eb_load_chart chart = {
        .title = title,
        .subtitle = subtitle,
        .x_label = "requests per second",
        .y_label = "latency of all requests due, microseconds",
        .names = {"p50", "p99", "p99.9"},
        .point_count = sweep->step_count,
        .x = sweep->rates,
        .y = {sweep->latencies_us[0], sweep->latencies_us[1], sweep->latencies_us[2]},
        .limit_x = sweep->is_saturated ? sweep->rates[sweep->step_count - 1] : 0,
        .limit_label = "saturated",
    };
    eb_load_chart_write(sweep->svg, &chart);
    bool has_arrived = fflush(sweep->svg) == 0 && ferror(sweep->svg) == 0;
    sweep->is_drawn = fclose(sweep->svg) == 0 && has_arrived;
    if (!sweep->is_drawn) {
        say_unwritable(sweep);
    }
}

/* Prints how the sweep ended, and the servers of the last step. */
static void print_end(const struct sweep *sweep)
{
    if (sweep->is_saturated && sweep->kept_rate > 0) {
        printf("saturated: the server kept up with %.0f requests/s, but not with %.0f; its highest "
               "rate was %.0f answers/s\n",
            sweep->kept_rate, sweep->rates[sweep->step_count - 1], sweep->best_per_s);
    } else if (sweep->is_saturated) {
        printf("saturated at the first step: begin with a lower rate\n");
    } else if (!sweep->was_interrupted) {
        printf("not saturated: the server kept up with %.0f requests/s; raise the rate to "
               "find its limit\n",
            sweep->kept_rate);
    } else {
        printf("interrupted: the figures cover the time until then\n");
    }
    eb_load_report_servers(stdout, &sweep->result.servers);
    if (sweep->is_drawn) {
        printf("the curve is in %s\n", sweep->subject->options->svg);
    }
}

/* Prints the settings, then the results. */
static void print_sweep_json(struct sweep *sweep)
{
    json_t *object = eb_load_report_json(sweep->subject, &sweep->result);
    json_t *summary = json_pack("{s:O, s:b, s:f, s:f, s:s?}", "steps", sweep->steps, "saturated",
        (int)sweep->is_saturated, "kept_up_per_s", sweep->kept_rate, "best_per_s",
        sweep->best_per_s, "svg", sweep->is_drawn ? sweep->subject->options->svg : NULL);
    if (object && summary && json_object_update(object, summary) == 0) {
        (void)json_dumpf(object, stdout, JSON_REAL_PRECISION(9));
        printf("\n");
    }
    json_decref(object);
    json_decref(summary);
}

static int conclude_sweep(struct sweep *sweep)
{
    draw_sweep(sweep);
    if (sweep->subject->options->is_json) {
        print_sweep_json(sweep);
    } else {
        print_end(sweep);
    }
    if (sweep->first_error.status != EMBAG_OK) {
        fprintf(stderr, "embag-load: requests failed, the first with %s: %s\n",
            embag_status_name(sweep->first_error.status),
            eb_output_printable(sweep->first_error.text).bytes);
    }
    if (sweep->wrong_count > 0) {
        fprintf(stderr, "embag-load: %llu answers were wrong\n",
            (unsigned long long)sweep->wrong_count);
    }
    return sweep->is_drawn && sweep->has_answers && sweep->wrong_count == 0 ? 0 : 1;
}

int eb_load_sweep_run(const struct eb_load_run *run, const struct eb_load_subject *subject)
{
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep) {
        fprintf(stderr, "embag-load: out of memory for a sweep\n");
        return 1;
    }
    int status = 1;
    sweep->subject = subject;
    sweep->steps = json_array();
    if (open_svg(sweep)) {
        if (!subject->options->is_json) {
            eb_load_report_table_head(stdout, subject->options);
        }
        run_steps(sweep, run);
        status = conclude_sweep(sweep);
    }
    json_decref(sweep->steps);
    free(sweep);
    return status;
}
