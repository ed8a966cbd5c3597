/* A line chart as SVG: latency against rate. Colours follow the reader's light or dark scheme.
 * Thread: pure but for the stream. Memory: none. */
#pragma once

#include <stdio.h>

#define EB_LOAD_CHART_LINES 3

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

/* Writes a whole file. */
void eb_load_chart_write(FILE *out, const struct eb_load_chart *chart);
