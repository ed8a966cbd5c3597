#include "client/cli/load_report.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double x[] = {100, 200, 350};
static const double p50[] = {10, 20, 40};
static const double p99[] = {50, 90, 4000};
static const double p999[] = {100, 0, 20000};

static const struct eb_load_chart example = {
    .title = "a < b & c",
    .subtitle = "how",
    .x_label = "requests per second",
    .y_label = "latency",
    .names = {"p50", "p99", "p99.9"},
    .point_count = 3,
    .x = x,
    .y = {p50, p99, p999},
};

/* Returns the file as text, which is valid until the next call. */
static const char *draw_chart(const struct eb_load_chart *chart)
{
    static char page[64 * 1024];
    FILE *out = fmemopen(page, sizeof page, "w");
    assert_non_null(out);
    eb_load_chart_write(out, chart);
    assert_int_equal(fclose(out), 0);
    return page;
}

static unsigned count_of(const char *text, const char *what)
{
    unsigned found = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what)) {
        found++;
    }
    return found;
}

static void draws_a_line_of_each_and_a_dot_for_each_point(void **state)
{
    (void)state;
    const char *text = draw_chart(&example);
    assert_int_equal(count_of(text, "<polyline"), 3);
    assert_int_equal(count_of(text, "<circle"), 8);
    assert_int_equal(count_of(text, ">p99.9</text>"), 1);
    assert_int_equal(count_of(text, ">requests per second</text>"), 1);
    assert_non_null(strstr(text, "prefers-color-scheme:dark"));
}

static void names_powers_of_ten_around_the_values(void **state)
{
    (void)state;
    const char *text = draw_chart(&example);
    assert_int_equal(count_of(text, ">10</text>"), 1);
    assert_int_equal(count_of(text, ">100000</text>"), 1);
    assert_int_equal(count_of(text, ">1</text>"), 0);
    assert_int_equal(count_of(text, ">1000000</text>"), 0);
}

static void escapes_what_would_be_markup(void **state)
{
    (void)state;
    const char *text = draw_chart(&example);
    assert_int_equal(count_of(text, "a &lt; b &amp; c"), 2);
    assert_null(strstr(text, "a < b"));
}

static void marks_the_limit_where_there_is_one(void **state)
{
    (void)state;
    struct eb_load_chart chart = example;
    assert_null(strstr(draw_chart(&chart), "saturated"));
    chart.limit_x = 350;
    chart.limit_label = "saturated";
    const char *with = draw_chart(&chart);
    assert_int_equal(count_of(with, ">saturated</text>"), 1);
    assert_int_equal(count_of(with, "class=\"limit\""), 1);
}

/* Every coordinate is a number within the page. */
static void stays_on_the_page(void **state)
{
    (void)state;
    static const double nothing[] = {0, 0, 0};
    static const double same[] = {100, 100, 100};
    const double *const lines[] = {nothing, same, p50};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        for (unsigned points = 1; points <= 3; points++) {
            struct eb_load_chart chart = example;
            chart.point_count = points;
            chart.y[0] = chart.y[1] = chart.y[2] = lines[i];
            const char *text = draw_chart(&chart);
            assert_null(strstr(text, "nan"));
            assert_null(strstr(text, "inf"));
            for (const char *at = strstr(text, "cy=\""); at; at = strstr(at + 1, "cy=\"")) {
                double y = strtod(at + 4, NULL);
                assert_true(y >= 0 && y <= 480);
            }
        }
    }
}

EB_TEST_GROUP(load_chart)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_a_line_of_each_and_a_dot_for_each_point),
        cmocka_unit_test(names_powers_of_ten_around_the_values),
        cmocka_unit_test(escapes_what_would_be_markup),
        cmocka_unit_test(marks_the_limit_where_there_is_one),
        cmocka_unit_test(stays_on_the_page),
    };
    return cmocka_run_group_tests_name("load_chart", tests, NULL, NULL);
}
