#include "client/cli/load_chart.h"

#include <math.h>
#include <stdbool.h>

#define WIDTH 840
#define HEIGHT 480
#define LEFT 84
#define RIGHT 150
#define TOP 76
#define BOTTOM 64
#define X_TICKS 6
#define DECADES_MAX 12

/* Where values lie on the page. */
struct scale {
    double x_max;
    double x_step;
    int decade_first; /* powers of ten at the ends of the axis */
    int decade_last;
};

static double place_x(const struct scale *scale, double x)
{
    return LEFT + x / scale->x_max * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct scale *scale, double y)
{
    double part = (log10(y) - scale->decade_first) / (scale->decade_last - scale->decade_first);
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

/* The least of 1, 2 and 5 times a power of ten that makes few enough steps. */
static double find_step(double max)
{
    double power = pow(10, floor(log10(max / X_TICKS)));
    static const double factors[] = {1, 2, 5};
    for (unsigned i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        if (max / (factors[i] * power) <= X_TICKS) {
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

/* A text element of a class at a place. */
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
        WIDTH, HEIGHT);
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
    fprintf(out, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n<title>", WIDTH, HEIGHT);
    write_text(out, chart->title);
    fputs("</title>\n", out);
    write_label(out, "title", LEFT, 30, chart->title);
    write_label(out, "subtitle", LEFT, 52, chart->subtitle);
}

static void write_rule(FILE *out, const char *class, double x1, double y1, bool is_level)
{
    double x2 = is_level ? WIDTH - RIGHT : x1;
    double y2 = is_level ? y1 : TOP;
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
        write_rule(out, "grid", x, HEIGHT - BOTTOM, false);
        write_label(out, "x", x, HEIGHT - BOTTOM + 20, number);
    }
    write_label(out, "mid", (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 44, chart->x_label);
}

static void write_y_axis(FILE *out, const struct eb_load_chart *chart, const struct scale *scale)
{
    for (int decade = scale->decade_first; decade <= scale->decade_last; decade++) {
        char number[32];
        double value = pow(10, decade);
        snprintf(number, sizeof number, "%.10g", value);
        write_rule(out, "grid", LEFT, place_y(scale, value), true);
        write_label(out, "y", LEFT - 8, place_y(scale, value) + 4, number);
        for (int i = 2; i < 10 && decade < scale->decade_last; i++) {
            write_rule(out, "minor", LEFT, place_y(scale, i * value), true);
        }
    }
    fprintf(
        out, "<g transform=\"translate(22 %.1f) rotate(-90)\">\n", (TOP + HEIGHT - BOTTOM) / 2.0);
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
    /* A legend beside the plot, the highest line first. */
    double legend_y = TOP + 16 + 22.0 * (EB_LOAD_CHART_LINES - 1 - line);
    fprintf(out, "<rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\"14\" height=\"4\"/>\n", class,
        WIDTH - RIGHT + 16, legend_y - 6);
    write_label(out, "legend", WIDTH - RIGHT + 38, legend_y, chart->names[line]);
}

void eb_load_chart_write(FILE *out, const struct eb_load_chart *chart)
{
    struct scale scale = find_scale(chart);
    write_chart_head(out, chart);
    write_x_axis(out, chart, &scale);
    write_y_axis(out, chart, &scale);
    if (chart->limit_x > 0) {
        double x = place_x(&scale, chart->limit_x);
        write_rule(out, "limit", x, HEIGHT - BOTTOM, false);
        write_label(out, "mid", x, TOP - 6, chart->limit_label);
    }
    for (unsigned line = 0; line < EB_LOAD_CHART_LINES; line++) {
        write_chart_line(out, chart, &scale, line);
    }
    fputs("</svg>\n", out);
}
