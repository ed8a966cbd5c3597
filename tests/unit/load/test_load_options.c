#include "tests/unit/load/load_fixture.h"

#include "tests/lib/test_group.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct eb_load_options read_options(const char *words)
{
    struct eb_load_options options;
    assert_int_equal(load_fixture_read(&options, words), EB_ARGUMENTS_READ);
    return options;
}

static void has_defaults_for_all_but_what_is_asked(void **state)
{
    (void)state;
    struct eb_load_options options = read_options("--workload dlrm-v2");
    assert_string_equal(options.server, "x:1");
    assert_string_equal(options.model, "dlrm-v2");
    assert_int_equal(options.bag_count, 1);
    assert_int_equal(options.in_flight, 32);
    assert_int_equal(options.connection_count, 1);
    assert_int_equal(options.thread_count, 1);
    assert_int_equal(options.seed, 1);
    assert_int_equal(options.timeout_us, 1000000);
    assert_int_equal(options.deadline_us, 0);
    assert_int_equal(options.retries, 0);
    assert_int_equal(options.hedge_percent, 0);
    assert_int_equal(options.distribution.law, EB_SAMPLER_UNIFORM);
    assert_false(options.is_unary || options.is_open || options.is_json || options.is_verified);
    assert_false(options.is_grouped);
    assert_false(options.is_unpaced);
    assert_int_equal(options.priority, EMBAG_INTERACTIVE);
    assert_true(options.duration_s == 10 && options.warmup_s == 1);
}

static void reads_what_the_user_says(void **state)
{
    (void)state;
    struct eb_load_options options =
        read_options("--tables a,b --bags 3 --indices-per-bag 5 --mode unary "
                     "--rate 1500.5 --connections 4 --duration 0.5 --warmup "
                     "0 --deadline-us 2000 --seed -3 --distribution zipf:1.2 "
                     "--output-type bf16 --verify --json --requests 77");
    assert_null(options.model);
    assert_null(options.workload);
    assert_string_equal(options.tables, "a,b");
    assert_int_equal(options.bag_count, 3);
    assert_int_equal(options.indices_per_bag, 5);
    assert_int_equal(options.connection_count, 4);
    assert_int_equal(options.deadline_us, 2000);
    assert_int_equal(options.timeout_us, 2000);
    assert_int_equal(options.in_flight, 8192);
    assert_int_equal(options.pool_count, 77);
    assert_true(options.seed == UINT64_MAX - 2);
    assert_int_equal(options.output_type, EMBAG_BF16);
    assert_int_equal(options.distribution.law, EB_SAMPLER_ZIPF);
    assert_true(options.is_unary && options.is_open && options.is_json && options.is_verified);
    assert_true(fabs(options.rate - 1500.5) < 1e-9);
    assert_true(options.duration_s == 0.5 && options.warmup_s == 0);
}

static void reads_how_tables_are_asked_for(void **state)
{
    (void)state;
    struct eb_load_options options =
        read_options("--workload wide-856 --groups --priority batch --unpaced");
    assert_true(options.is_grouped);
    assert_true(options.is_unpaced);
    assert_int_equal(options.priority, EMBAG_BATCH);
    assert_int_equal(options.workload->table_count, 856);
    assert_int_equal(read_options("--tables a --priority interactive").priority, EMBAG_INTERACTIVE);
    assert_true(read_options("--tables a,b --groups").is_grouped);
}

static void reads_how_often_requests_may_be_sent(void **state)
{
    (void)state;
    struct eb_load_options options = read_options("--tables a --retries 2 --hedge 5");
    assert_int_equal(options.retries, 2);
    assert_int_equal(options.hedge_percent, 5);
    options = read_options("--tables a --retries 100 --hedge 100");
    assert_int_equal(options.retries, 100);
    assert_int_equal(options.hedge_percent, 100);
    options = read_options("--tables a --retries 0 --hedge 0");
    assert_int_equal(options.retries, 0);
    assert_int_equal(options.hedge_percent, 0);
}

static void reads_a_sweep(void **state)
{
    (void)state;
    struct eb_load_options options = read_options("--workload rows --samples 9 --sweep 100:2e3:7");
    assert_true(options.sweep.from == 100 && options.sweep.to == 2000);
    assert_int_equal(options.sweep.step_count, 7);
    assert_int_equal(options.bag_count, 9);
    assert_true(options.is_open);
    assert_string_equal(options.svg, "embag-load.svg");
}

static void draws_where_the_name_says_svg_or_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"a/b.svg", "B.SVG", "/dev/stdout", "/dev/fd/63"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char words[80];
        snprintf(words, sizeof words, "--workload rows --sweep 1:2:3 --svg %s", names[i]);
        assert_string_equal(read_options(words).svg, names[i]);
    }
}

static void takes_a_thread_for_every_64_connections(void **state)
{
    (void)state;
    assert_int_equal(
        read_options("--workload rows --connections 64 --in-flight 64").thread_count, 1);
    assert_int_equal(
        read_options("--workload rows --connections 65 --in-flight 65").thread_count, 2);
    assert_int_equal(read_options("--workload rows --connections 4 --threads 3").thread_count, 3);
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "--workload dlrm", "--workload rows --tables a",
        "--workload rows --bags 2", "--workload rows --indices-per-bag 2", "--tables a --samples 2",
        "--tables a,", "--tables ,a", "--tables a,,b", "--tables a --bags 0",
        "--tables a --indices-per-bag 0", "--workload rows --samples 0",
        "--workload rows --mode fast", "--workload rows --in-flight 0",
        "--workload rows --in-flight 65001", "--workload rows --connections 0",
        "--workload rows --in-flight 3 --connections 4", "--workload rows --threads 2",
        "--workload rows --rate 0", "--workload rows --rate -1", "--workload rows --rate x",
        "--workload rows --rate 1e9", "--workload rows --rate nan", "--workload rows --rate 5x",
        "--workload rows --duration 0", "--workload rows --duration 1s",
        "--workload rows --duration 1e9", "--workload rows --duration inf",
        "--workload rows --warmup -1", "--workload rows --sweep 1:2",
        "--workload rows --sweep 1:2:", "--workload rows --sweep 2:1:3",
        "--workload rows --sweep 1:2:1", "--workload rows --sweep 1:2:101",
        "--workload rows --sweep 0:2:3", "--workload rows --sweep 1:2:3x",
        "--workload rows --sweep 1:2:-3", "--workload rows --sweep 1:2:3 --rate 5",
        "--workload rows --svg x.svg", "--workload rows --sweep 1:2:3 --svg c.png",
        "--workload rows --sweep 1:2:3 --svg svg", "--workload rows --distribution zipf:0",
        "--workload rows --output-type i8", "--workload rows --priority low",
        "--workload rows --groups=yes", "--workload wide-27", "--workload rows --requests 0",
        "--workload rows --seed x", "--workload rows --timeout-us 0",
        "--workload rows --retries 101", "--workload rows --retries -1",
        "--workload rows --hedge 101", "--workload rows --hedge 5%",
        "--workload rows --deadline-us 60000001", "--workload rows extra", "--workload"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct eb_load_options options;
        if (load_fixture_read(&options, wrong[i]) != EB_ARGUMENTS_WRONG) {
            fail_msg("took: %s", wrong[i]);
        }
    }
}

static void wants_a_server(void **state)
{
    (void)state;
    char program[] = "embag-load";
    char flag[] = "--workload";
    char name[] = "rows";
    char *arguments[] = {program, flag, name, NULL};
    struct eb_load_options options;
    assert_int_equal(eb_load_options_read(&options, 3, arguments), EB_ARGUMENTS_WRONG);
}

EB_TEST_GROUP(load_options)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_defaults_for_all_but_what_is_asked),
        cmocka_unit_test(reads_what_the_user_says),
        cmocka_unit_test(reads_how_tables_are_asked_for),
        cmocka_unit_test(reads_how_often_requests_may_be_sent),
        cmocka_unit_test(reads_a_sweep),
        cmocka_unit_test(draws_where_the_name_says_svg_or_nothing),
        cmocka_unit_test(takes_a_thread_for_every_64_connections),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(wants_a_server),
    };
    return cmocka_run_group_tests_name("load_options", tests, NULL, NULL);
}
