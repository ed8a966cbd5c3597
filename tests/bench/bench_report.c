#include "tests/bench/bench_report.h"

#include <jansson.h>
#include <stdlib.h>

/* Significant digits of measured numbers. */
#define DIGITS 6

/* Returns the bytes of a row, including scale and bias. */
static double count_row_bytes(const struct eb_bench_case *bench)
{
    const struct eb_table *table = &bench->feeds[0].table->table;
    return (double)eb_bench_table_row_bytes(table->storage, table->row_elements);
}

static double count_call_us(const struct eb_bench_report *report, double ns_per_row)
{
    return ns_per_row * (double)eb_bench_case_rows(report->bench) * report->bench->thread_count /
           1e3;
}

static const char *name_storage(const struct eb_bench_case *bench)
{
    return eb_storage_name(bench->feeds[0].table->table.storage);
}

/* Formats the prefetch schedule of the first table. */
static void format_schedule(const struct eb_bench_case *bench, char out[EB_BAG_SCHEDULE_TEXT_BYTES])
{
    const struct eb_table *table = &bench->feeds[0].table->table;
    struct eb_bag_lines lines = eb_bag_lines_find(table, 0, table->row_elements);
    const struct eb_bag_schedule *found = eb_bag_schedule_find(bench->schedules, &lines);
    struct eb_bag_schedule schedule = found ? *found : (struct eb_bag_schedule){0};
    eb_bag_schedule_format(&schedule, out);
}

static uint64_t count_table_rows(const struct eb_bench_case *bench)
{
    uint64_t rows = 0;
    for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
        rows += bench->feeds[feed].table->table.row_count;
    }
    return rows;
}

static void set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0) {
        fprintf(stderr, "embag-bench: not enough memory for the results\n");
        exit(1);
    }
}

static void set_real(json_t *object, const char *key, double value)
{
    set(object, key, json_real(value));
}

static void set_integer(json_t *object, const char *key, uint64_t value)
{
    set(object, key, json_integer((json_int_t)value));
}

static void set_text(json_t *object, const char *key, const char *text)
{
    set(object, key, json_string(text));
}

static void set_shape(json_t *object, const struct eb_bench_report *report)
{
    const struct eb_bench_case *bench = report->bench;
    const struct eb_bench_options *options = report->options;
    if (options->workload) {
        set_text(object, "workload", options->workload->name);
        set_integer(object, "scale", options->scale);
    }
    set_text(object, "row_type", name_storage(bench));
    set_integer(object, "dim", bench->feeds[0].table->table.row_elements);
    set_integer(object, "tables", bench->feed_count);
    set_integer(object, "rows", count_table_rows(bench));
    set_integer(object, "bags", bench->bag_count);
    set(object, "indices_per_bag",
        options->workload ? json_null() : json_integer(bench->feeds[0].indices_per_bag));
    set_integer(object, "rows_per_call", eb_bench_case_rows(bench));
    set_text(object, "distribution", report->distribution->text);
    set_text(object, "state", eb_bench_options_state_name(bench->state));
    set_integer(object, "threads", bench->thread_count);
    set_text(object, "reduction", eb_reduction_name(bench->reduction));
    set(object, "weighted", json_boolean(!!bench->feeds[0].weights));
    set_text(object, "output_type", eb_type_name(bench->output_type));
    char schedule[EB_BAG_SCHEDULE_TEXT_BYTES];
    format_schedule(bench, schedule);
    set_text(object, "prefetch", schedule);
    set_text(object, "isa", eb_bag_ops_name(bench->ops));
    set_integer(object, "seed", options->seed);
}

static void set_pages(json_t *object, const struct eb_bench_report *report)
{
    set_text(object, "pages", eb_bench_options_page_name(report->options->pages));
    set_text(object, "pages_got", eb_bench_table_page_name(&report->pages));
    set_integer(object, "table_bytes", report->pages.bytes);
    set_integer(object, "bytes_2m", report->pages.bytes_2m);
    set_integer(object, "bytes_1g", report->pages.bytes_1g);
}

static void set_figures(json_t *object, const struct eb_bench_report *report)
{
    const struct eb_bench_figures *figures = &report->figures;
    set_real(object, "ns_per_row", figures->ns_per_row);
    set_real(object, "gb_per_s", count_row_bytes(report->bench) / figures->ns_per_row);
    set_real(object, "check_ns_per_row", figures->check_ns_per_row);
    set_real(object, "us_per_call", count_call_us(report, figures->ns_per_row));
    set_real(object, "check_us_per_call", count_call_us(report, figures->check_ns_per_row));
    set_integer(object, "calls_per_reading", figures->call_count);
    set_integer(object, "repeats", report->options->pairs);
    if (figures->keyed_check_ns_per_row > 0) {
        set_real(object, "keyed_check_ns_per_row", figures->keyed_check_ns_per_row);
        set_real(object, "keyed_ratio", figures->keyed_ratio);
        set_real(object, "key_build_ns_per_row", report->bench->feeds[0].keyed->build_ns_per_row);
    }
    if (report->roofline_ns_per_row > 0) {
        set_real(object, "roofline_ns_per_row", report->roofline_ns_per_row);
        set_real(object, "roofline_fraction", report->roofline_ns_per_row / figures->ns_per_row);
        set_text(object, "roofline_way", report->roofline_way);
    }
}

static void set_peer(json_t *object, const struct eb_bench_report *report)
{
    const struct eb_bench_figures *figures = &report->figures;
    set_text(object, "peer", "fbgemm");
    set(object, "peer_tuned", json_boolean(report->is_peer_tuned));
    set_text(object, "peer_pages", eb_bench_options_page_name(report->options->peer_pages));
    set_text(object, "peer_pages_got", eb_bench_table_page_name(&report->peer_pages));
    set_real(object, "peer_ns_per_row", figures->peer_ns_per_row);
    set_real(object, "peer_us_per_call", count_call_us(report, figures->peer_ns_per_row));
    set_real(object, "ratio", figures->ratio);
    set_real(object, "ratio_low", figures->ratio_low);
    set_real(object, "ratio_high", figures->ratio_high);
    set_real(object, "ratio_checked", figures->ratio_checked);
}

static void print_json(FILE *out, const struct eb_bench_report *report)
{
    json_t *object = json_object();
    set_shape(object, report);
    set_pages(object, report);
    set_figures(object, report);
    if (report->figures.peer_ns_per_row > 0) {
        set_peer(object, report);
    }
    (void)json_dumpf(object, out, JSON_REAL_PRECISION(DIGITS));
    fputc('\n', out);
    json_decref(object);
}

void eb_bench_report_print_head(FILE *out, const struct eb_bench_options *options)
{
    if (options->is_json) {
        return;
    }
    fprintf(out,
        "isa %s, %s, output %s%s, seed %llu; times per row, for all threads together; medians of "
        "%llu turns\n"
        "roof: time in which this machine reads a row at random, as a fraction of ours; ratio: "
        "FBGEMM / ours,\nwith quartiles in brackets; +check: FBGEMM / (ours with the check pass); "
        "~: FBGEMM's plain reference,\nnot a comparable kernel\n\n",
        eb_bag_ops_name(options->ops), eb_reduction_name(options->reduction),
        options->output_type ? eb_type_name(options->output_type) : "as the table",
        options->is_weighted ? ", weighted" : "", (unsigned long long)options->seed,
        (unsigned long long)options->pairs);
    fprintf(out,
        "%-8s %4s %10s %-5s %5s %5s %-12s %-7s %-10s %3s %8s %7s %8s %9s %5s %8s %-18s %s\n",
        "type", "dim", "rows", "pages", "bags", "L", "indices", "state", "prefetch", "thr",
        "ns/row", "GB/s", "check", "us/call", "roof", "FBGEMM", "ratio", "+check");
}

static void print_line(FILE *out, const struct eb_bench_report *report)
{
    const struct eb_bench_case *bench = report->bench;
    const struct eb_bench_figures *figures = &report->figures;
    char schedule[EB_BAG_SCHEDULE_TEXT_BYTES];
    format_schedule(bench, schedule);
    fprintf(out, "%-8s %4u %10llu %-5s %5u %5.4g %-12s %-7s %-10s %3u %8.2f %7.2f %8.2f %9.1f",
        name_storage(bench), bench->feeds[0].table->table.row_elements,
        (unsigned long long)count_table_rows(bench), eb_bench_table_page_name(&report->pages),
        bench->bag_count, (double)eb_bench_case_rows(bench) / bench->feed_count / bench->bag_count,
        report->distribution->text, eb_bench_options_state_name(bench->state), schedule,
        bench->thread_count, figures->ns_per_row, count_row_bytes(bench) / figures->ns_per_row,
        figures->check_ns_per_row, count_call_us(report, figures->ns_per_row));
    if (report->roofline_ns_per_row > 0) {
        fprintf(out, " %5.2f", report->roofline_ns_per_row / figures->ns_per_row);
    } else {
        fprintf(out, " %5s", "-");
    }
    if (figures->peer_ns_per_row > 0) {
        fprintf(out, " %7.2f%s %5.3f (%.3f-%.3f) %6.3f", figures->peer_ns_per_row,
            report->is_peer_tuned ? " " : "~", figures->ratio, figures->ratio_low,
            figures->ratio_high, figures->ratio_checked);
    }
    if (figures->keyed_check_ns_per_row > 0) {
        fprintf(out, "\n  by key: check %.2f, dense / keyed %.3f; index built in %.1f ns/row",
            figures->keyed_check_ns_per_row, figures->keyed_ratio,
            bench->feeds[0].keyed->build_ns_per_row);
    }
    fputc('\n', out);
}

void eb_bench_report_print(FILE *out, const struct eb_bench_report *report)
{
    if (report->options->is_json) {
        print_json(out, report);
    } else {
        print_line(out, report);
    }
    fflush(out);
}
