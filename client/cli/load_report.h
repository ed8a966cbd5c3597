/* Reports the results of runs: as text, as JSON, and as a chart in SVG.
 * Thread: main. Memory: JSON objects belong to the caller. */
#pragma once

#include "client/cli/load_run.h"

#include <jansson.h>
#include <stdio.h>

/* The subject of a report. */
struct eb_load_subject {
    const struct eb_load_options *options;
    const struct eb_load_target *target;
    const struct eb_load_pool *pool;
};

/* Prints what was requested, in one or two lines. */
void eb_load_report_subject(FILE *out, const struct eb_load_subject *subject);
/* Prints the figures of one run, and why requests failed if some did. */
void eb_load_report_result(
    FILE *out, const struct eb_load_subject *subject, const struct eb_load_result *result);

/* Prints a line for each server if there are several, and how often requests were sent again or
 * hedged. */
void eb_load_report_servers(FILE *out, const struct eb_load_servers *servers);

/* Print the heading of a table of runs, and one run as a row of it. */
void eb_load_report_table_head(FILE *out, const struct eb_load_options *options);
void eb_load_report_table_row(FILE *out, const struct eb_load_result *result);

/* Returns settings and figures in one flat object; NULL if out of memory. */
json_t *eb_load_report_json(
    const struct eb_load_subject *subject, const struct eb_load_result *result);
/* Returns the figures alone. */
json_t *eb_load_report_result_json(const struct eb_load_result *result);

/* ---- the chart ---- */

#define EB_LOAD_CHART_LINES 3

/* A line chart: latency against rate. Colours follow the reader's light or dark scheme. */
struct eb_load_chart {
    const char *title;
    const char *subtitle;
    const char *x_label;
    const char *y_label;                    /* label of the logarithmic axis */
    const char *names[EB_LOAD_CHART_LINES]; /* names of the lines */
    unsigned point_count;                   /* at least 1 */
    const double *x;                        /* [point_count], above 0, ascending */
    const double *y[EB_LOAD_CHART_LINES];   /* [point_count]; 0: not measured, left out */
    double limit_x;                         /* x of a vertical line; 0: none */
    const char *limit_label;
};

/* Writes a complete SVG file. */
void eb_load_chart_write(FILE *out, const struct eb_load_chart *chart);
