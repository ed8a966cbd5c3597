/* Reports what runs measured: to people, as JSON, and as a chart in SVG.
 * Thread: main. Memory: JSON objects are the caller's. */
#pragma once

#include "client/cli/load_run.h"

#include <jansson.h>
#include <stdio.h>

/* What was run. */
struct eb_load_subject {
    const struct eb_load_options *options;
    const struct eb_load_target *target;
    const struct eb_load_pool *pool;
};

/* What was asked, as one line or two. */
void eb_load_report_subject(FILE *out, const struct eb_load_subject *subject);
/* The figures of one run; and why requests failed, where some did. */
void eb_load_report_result(
    FILE *out, const struct eb_load_subject *subject, const struct eb_load_result *result);

/* One run as a line of a table, and the lines above the first. */
void eb_load_report_table_head(FILE *out, const struct eb_load_options *options);
void eb_load_report_table_row(FILE *out, const struct eb_load_result *result);

/* Settings and figures in one flat object. NULL: no memory. */
json_t *eb_load_report_json(
    const struct eb_load_subject *subject, const struct eb_load_result *result);
/* The figures alone. */
json_t *eb_load_report_result_json(const struct eb_load_result *result);

/* ---- the chart ---- */

#define EB_LOAD_CHART_LINES 3

/* A line chart: latency against rate. Colours follow the reader's light or dark scheme. */
struct eb_load_chart {
    const char *title;
    const char *subtitle;
    const char *x_label;
    const char *y_label;                    /* of the logarithmic axis */
    const char *names[EB_LOAD_CHART_LINES]; /* of the lines */
    unsigned point_count;                   /* at least 1 */
    const double *x;                        /* [point_count], above 0, rising */
    const double *y[EB_LOAD_CHART_LINES];   /* [point_count]; 0: not measured, left out */
    double limit_x;                         /* where a vertical line is drawn; 0: none */
    const char *limit_label;
};

/* Writes a whole SVG file. */
void eb_load_chart_write(FILE *out, const struct eb_load_chart *chart);
