/* How much is looked up in tables, read from a server's metrics. */
#include "client/cli/split_metrics.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS "embag_table_rows_touched_total"
#define BAGS "embag_table_bags_total"

/* A plan of two tables, whose names need escapes in metrics. */
struct metrics_fixture {
    struct eb_split_plan plan;
    struct eb_split_table tables[2];
    struct eb_failure failure;
};

static int set_up(void **state)
{
    struct metrics_fixture *f = calloc(1, sizeof *f);
    if (!f) {
        return -1;
    }
    f->tables[0].name = "a\"\\";
    f->tables[1].name = "b\n";
    f->plan.count = 2;
    f->plan.tables = f->tables;
    *state = f;
    return eb_split_plan_index(&f->plan, &f->failure) ? 0 : -1;
}

static int tear_down(void **state)
{
    struct metrics_fixture *f = *state;
    eb_split_plan_deinit(&f->plan);
    free(f);
    return 0;
}

/* Reads the text from a buffer of just its size. */
static bool parse_bytes(struct metrics_fixture *f, const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    assert_non_null(copy);
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    bool is_good = eb_split_metrics_parse(&f->plan, copy, bytes, "m", &f->failure);
    free(copy);
    return is_good;
}

static void expect_refused(struct metrics_fixture *f, const char *text, const char *what)
{
    f->failure.text[0] = '\0';
    assert_false(parse_bytes(f, text, strlen(text)));
    if (!strstr(f->failure.text, what)) {
        fail_msg("'%s' is not in '%s'", what, f->failure.text);
    }
}

static const char sound[] =
    "# HELP " BAGS " Bags.\n"
    "# TYPE " BAGS " counter\n" BAGS "{model=\"other\",table=\"b\\n\"} 1000\n" BAGS
    "{model=\"m\",table=\"a\\\"\\\\\"} 10\n" BAGS "{model=\"m\",table=\"b\\n\"} 1\n" BAGS
    "_other{\n" ROWS "{model=\"m\",table=\"a\\\"\\\\\"} 200\n" ROWS
    "{model=\"m\",table=\"b\\n\"} 0\n" ROWS "{model=\"m\",table=\"gone\"} 7\n" ROWS
    "{model=\"\",table=\"\"} 60\n";

static void adds_up_the_counts_of_the_model(void **state)
{
    struct metrics_fixture *f = *state;
    assert_true(parse_bytes(f, sound, strlen(sound)));
    assert_true(f->tables[0].rows_touched == 200 && f->tables[0].bags == 10);
    assert_true(f->tables[1].rows_touched == 0 && f->tables[1].bags == 1);
    assert_true(f->tables[0].is_counted && f->tables[1].is_counted);
}

static void takes_other_labels_in_any_order(void **state)
{
    struct metrics_fixture *f = *state;
    static const char text[] =
        BAGS " { instance = \"x,}\" , table=\"b\\n\",job=\"\", model=\"m\", } 1.5e3 "
             "1712345678000\r\n" BAGS "{table=\"b\\n\",model=\"m\",instance=\"y\"}500";
    assert_true(parse_bytes(f, text, strlen(text)));
    assert_true(f->tables[1].bags == 2000);
    assert_false(f->tables[0].is_counted);
}

static void refuses_malformed_samples(void **state)
{
    struct metrics_fixture *f = *state;
    static const char *const samples[] = {"{", "{}", "{model=\"m\",table=\"a\"}", "{model=\"m\"} x",
        "{model=\"m\",table=\"a\"} 1x", "{model=\"m\",table=\"a\"} -1",
        "{model=\"m\",table=\"a\"} NaN", "{model=\"m\",table=\"a\"} +Inf",
        "{model=\"m\",table=\"a\"} 1e19", "{model=m} 1", "{model=\"m} 1", "{model=\"m\\",
        "{model \"m\"} 1", "{=\"m\"} 1", "{model=\"m\";table=\"a\"} 1",
        "{model=\"m\",table=\"a\" 1", "{,} 1"};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "\n" ROWS "%s\n", samples[i]);
        expect_refused(f, text, "line 2: invalid sample: expected " ROWS "{model=");
    }
    expect_refused(f, BAGS "{", "expected " BAGS "{model=");
    assert_false(parse_bytes(f, "a\0b", 3));
    assert_non_null(strstr(f->failure.text, "a byte of 0"));
}

static void names_have_a_limit(void **state)
{
    struct metrics_fixture *f = *state;
    char text[EB_PARTS_NAME_BYTES_MAX + 100];
    char name[EB_PARTS_NAME_BYTES_MAX + 2] = "";
    memset(name, 'x', EB_PARTS_NAME_BYTES_MAX);
    snprintf(text, sizeof text, BAGS "{model=\"m\",table=\"%s\"} 1", name);
    expect_refused(f, text, "none of a table of the version");
    name[EB_PARTS_NAME_BYTES_MAX] = 'x';
    snprintf(text, sizeof text, BAGS "{model=\"m\",table=\"%s\"} 1", name);
    expect_refused(f, text, "line 1: invalid sample");
}

static void refuses_metrics_that_say_nothing(void **state)
{
    struct metrics_fixture *f = *state;
    expect_refused(f, "", "there is no " ROWS " in it");
    expect_refused(f, "<html>\n" BAGS " 7\n", "there is no " ROWS " in it");
    expect_refused(f, BAGS "{model=\"n\",table=\"a\"} 1",
        "it has counts of model 'n', but none of 'm'; expected the metrics of a server that "
        "serves");
    expect_refused(f, BAGS "{model=\"m\",table=\"b\\n\"} 0\n" BAGS "{model=\"m\",table=\"c\"} 0",
        "nothing has been looked up in model 'm' yet");
    expect_refused(f, BAGS "{model=\"m\",table=\"b\\n\"} 0\n" BAGS "{model=\"m\",table=\"c\"} 1",
        "lookups of table 'c', but none of a table of the version");
}

static void takes_every_beginning_of_a_text(void **state)
{
    struct metrics_fixture *f = *state;
    for (size_t bytes = 0; bytes < strlen(sound); bytes++) {
        f->failure.text[0] = '\0';
        bool is_good = parse_bytes(f, sound, bytes);
        assert_true(is_good || f->failure.text[0] != '\0');
    }
}

static void reads_a_file(void **state)
{
    struct metrics_fixture *f = *state;
    char path[] = "/tmp/test_split_metrics.XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, sound, strlen(sound)), strlen(sound));
    bool is_good = eb_split_metrics_read(&f->plan, path, "m", &f->failure);
    bool is_other = eb_split_metrics_read(&f->plan, path, "n", &f->failure);
    /* A file with one byte more than the most. It has no blocks. */
    bool is_long = ftruncate(file, EB_SPLIT_METRICS_BYTES_MAX + 1) != 0;
    char other[EB_FAILURE_BYTES];
    strcpy(other, f->failure.text);
    is_long = is_long || eb_split_metrics_read(&f->plan, path, "m", &f->failure);
    close(file);
    unlink(path);
    assert_true(is_good && f->tables[0].bags == 10);
    assert_false(is_other);
    assert_memory_equal(other, path, strlen(path));
    assert_false(is_long);
    assert_non_null(strstr(f->failure.text, "it has more than 67108864 bytes"));
}

static void refuses_sources_that_it_cannot_read(void **state)
{
    struct metrics_fixture *f = *state;
    static const struct {
        const char *source;
        const char *what;
    } cases[] = {{"/nowhere/metrics", "/nowhere/metrics: it cannot be opened (No such file"},
        {"/", "/: it cannot be read"}, {"https://host:1/", "expected an http:// URL, a file or -"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_false(eb_split_metrics_read(&f->plan, cases[i].source, "m", &f->failure));
        assert_non_null(strstr(f->failure.text, cases[i].what));
    }
}

EB_TEST_GROUP(split_metrics)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(adds_up_the_counts_of_the_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_other_labels_in_any_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_malformed_samples, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_have_a_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_metrics_that_say_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_every_beginning_of_a_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_sources_that_it_cannot_read, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
