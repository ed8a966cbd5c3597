#include "tests/bench/bench_report.h"
#include "tests/lib/test_group.h"
#include "tests/unit/bench/bench_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static struct bench_fixture fixture;
static struct eb_bench_options options;
static struct eb_sampler_distribution distribution;

static int set_up(void **state)
{
    (void)state;
    bench_fixture_init(&fixture, EB_STORAGE_INT8, true);
    options = (struct eb_bench_options){
        .seed = 11, .pairs = 9, .reduction = EB_REDUCTION_SUM, .ops = fixture.bench.ops};
    return eb_sampler_parse("zipf:1.05", &distribution) ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    bench_fixture_deinit(&fixture);
    return 0;
}

static struct eb_bench_report make_report(bool has_peer)
{
    struct eb_bench_report report = {.options = &options,
        .bench = &fixture.bench,
        .distribution = &distribution,
        .figures = {.ns_per_row = 4, .check_ns_per_row = 1, .call_count = 12},
        .roofline_ns_per_row = 3,
        .roofline_way = "l2:32",
        .pages = {.bytes = 2400, .bytes_2m = 2400}};
    if (has_peer) {
        report.figures.peer_ns_per_row = 8;
        report.figures.ratio = 2;
        report.figures.ratio_low = 1.75;
        report.figures.ratio_high = 2.5;
        report.figures.ratio_checked = 1.6;
        report.peer_pages = (struct eb_page_count){.bytes = 3200};
        report.is_peer_tuned = true;
    }
    return report;
}

/* Returns what is printed. The text is valid until the next call. */
static const char *print(const struct eb_bench_report *report)
{
    static char text[8192];
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_non_null(out);
    eb_bench_report_print_head(out, report->options);
    eb_bench_report_print(out, report);
    assert_int_equal(fclose(out), 0);
    return text;
}

static json_t *print_json(const struct eb_bench_report *report)
{
    options.is_json = true;
    const char *text = print(report);
    assert_int_equal(strcspn(text, "\n") + 1, strlen(text));
    json_t *object = json_loads(text, 0, NULL);
    assert_true(json_is_object(object));
    return object;
}

static void assert_number(const json_t *object, const char *key, double wanted)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) || fabs(json_number_value(value) - wanted) > 1e-5 * wanted) {
        fail_msg("%s is %g, not %g", key, json_number_value(value), wanted);
    }
}

static void assert_text(const json_t *object, const char *key, const char *wanted)
{
    assert_string_equal(json_string_value(json_object_get(object, key)), wanted);
}

static void prints_an_object_on_a_line(void **state)
{
    (void)state;
    struct eb_bench_report report = make_report(true);
    json_t *object = print_json(&report);
    assert_text(object, "row_type", "int8");
    assert_number(object, "dim", 24);
    assert_number(object, "rows", 100);
    assert_number(object, "bags", BENCH_FIXTURE_BAGS);
    assert_number(object, "indices_per_bag", BENCH_FIXTURE_INDICES);
    assert_number(object, "rows_per_call", 15);
    assert_text(object, "distribution", "zipf:1.05");
    assert_number(object, "threads", 1);
    assert_text(object, "pages", "2m");
    assert_text(object, "pages_got", "2m");
    assert_text(object, "state", "steady");
    assert_text(object, "isa", eb_bag_ops_name(fixture.bench.ops));
    assert_text(object, "output_type", "f32");
    assert_true(json_is_true(json_object_get(object, "weighted")));
    assert_number(object, "seed", 11);
    assert_number(object, "repeats", 9);
    json_decref(object);
}

static void computes_rates_and_parts(void **state)
{
    (void)state;
    struct eb_bench_report report = make_report(true);
    json_t *object = print_json(&report);
    assert_number(object, "ns_per_row", 4);
    assert_number(object, "gb_per_s", (24 + 8) / 4.0);
    assert_number(object, "check_ns_per_row", 1);
    assert_number(object, "us_per_call", 15 * 4 / 1e3);
    assert_number(object, "roofline_ns_per_row", 3);
    assert_number(object, "roofline_fraction", 0.75);
    assert_number(object, "peer_ns_per_row", 8);
    assert_number(object, "ratio", 2);
    assert_number(object, "ratio_low", 1.75);
    assert_number(object, "ratio_high", 2.5);
    assert_number(object, "ratio_checked", 1.6);
    assert_true(json_is_true(json_object_get(object, "peer_tuned")));
    assert_text(object, "peer_pages_got", "4k");
    json_decref(object);
}

static void leaves_out_what_was_not_measured(void **state)
{
    (void)state;
    struct eb_bench_report report = make_report(false);
    report.roofline_ns_per_row = 0;
    json_t *object = print_json(&report);
    assert_null(json_object_get(object, "peer"));
    assert_null(json_object_get(object, "ratio"));
    assert_null(json_object_get(object, "roofline_fraction"));
    json_decref(object);
}

static void prints_a_table_for_people(void **state)
{
    (void)state;
    struct eb_bench_report report = make_report(true);
    const char *text = print(&report);
    assert_non_null(strstr(text, "seed 11"));
    const char *line = strstr(text, "\nint8");
    assert_non_null(line);
    assert_non_null(strstr(line, " 2.000 (1.750-2.500)"));
    assert_non_null(strstr(line, " 0.75 "));
}

static void marks_a_peer_that_is_no_match(void **state)
{
    (void)state;
    struct eb_bench_report report = make_report(true);
    report.is_peer_tuned = false;
    const char *text = print(&report);
    assert_non_null(strstr(strstr(text, "\nint8"), "8.00~"));
}

EB_TEST_GROUP(bench_report)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(prints_an_object_on_a_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(computes_rates_and_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leaves_out_what_was_not_measured, set_up, tear_down),
        cmocka_unit_test_setup_teardown(prints_a_table_for_people, set_up, tear_down),
        cmocka_unit_test_setup_teardown(marks_a_peer_that_is_no_match, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("bench_report", tests, NULL, NULL);
}
