#include "tests/bench/bench_options.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ARGUMENTS_MAX 16

static struct eb_bench_options options;

/* Reads a command line, split at spaces. */
static enum eb_arguments_outcome read_line(const char *line)
{
    static char text[512];
    char *arguments[ARGUMENTS_MAX + 1] = {(char[]){"embag-bench"}};
    char *rest = NULL;
    int count = 1;
    assert_true(strlen(line) < sizeof text);
    memcpy(text, line, strlen(line) + 1);
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        assert_true(count < ARGUMENTS_MAX);
        arguments[count++] = word;
    }
    return eb_bench_options_read(&options, count, arguments);
}

static void assert_list(const struct eb_bench_list *list, unsigned count, const uint64_t *values)
{
    assert_int_equal(list->count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(list->values[i], values[i]);
    }
}

static void measures_one_f32_table_unless_told_otherwise(void **state)
{
    (void)state;
    assert_int_equal(read_line(""), EB_ARGUMENTS_READ);
    assert_list(&options.storages, 1, (uint64_t[]){EB_STORAGE_F32});
    assert_list(&options.dims, 1, (uint64_t[]){128});
    assert_list(&options.bags, 1, (uint64_t[]){64});
    assert_list(&options.indices_per_bag, 1, (uint64_t[]){20});
    assert_list(&options.states, 1, (uint64_t[]){EB_BENCH_STEADY});
    assert_list(&options.thread_counts, 1, (uint64_t[]){1});
    assert_int_equal(options.distribution_count, 1);
    assert_int_equal(options.distributions[0].law, EB_SAMPLER_UNIFORM);
    assert_int_equal(options.pages, EB_PAGE_2M);
    assert_int_equal(options.peer_pages, EB_PAGE_2M);
    assert_int_equal(options.reduction, EB_REDUCTION_SUM);
    assert_int_equal(options.output_type, EB_TYPE_UNSPECIFIED);
    assert_true(options.pairs >= 7);
    assert_non_null(options.ops);
    assert_null(options.workload);
}

static void reads_lists(void **state)
{
    (void)state;
    assert_int_equal(read_line("--row-type f32,int4,f8_e4m3 --dim 16,256 --bags 1,8,64 "
                               "--indices-per-bag 5 --state hot,steady,flushed --threads 1,2 "
                               "--distribution uniform,zipf:1.05,meta2021"),
        EB_ARGUMENTS_READ);
    assert_list(
        &options.storages, 3, (uint64_t[]){EB_STORAGE_F32, EB_STORAGE_INT4, EB_STORAGE_F8_E4M3});
    assert_list(&options.dims, 2, (uint64_t[]){16, 256});
    assert_list(&options.bags, 3, (uint64_t[]){1, 8, 64});
    assert_list(&options.indices_per_bag, 1, (uint64_t[]){5});
    assert_list(&options.states, 3, (uint64_t[]){EB_BENCH_HOT, EB_BENCH_STEADY, EB_BENCH_FLUSHED});
    assert_list(&options.thread_counts, 2, (uint64_t[]){1, 2});
    assert_int_equal(options.distribution_count, 3);
    assert_int_equal(options.distributions[1].law, EB_SAMPLER_ZIPF);
    assert_int_equal(options.distributions[2].law, EB_SAMPLER_META2021);
}

static void reads_every_type(void **state)
{
    (void)state;
    assert_int_equal(read_line("--row-type f32,f64,f16,bf16,i8,u8,i16,u16,i32,u32,i64,u64,int8,"
                               "int4,int2,f8_e4m3"),
        EB_ARGUMENTS_READ);
    assert_int_equal(options.storages.count, EB_BENCH_LIST_MAX);
    assert_int_equal(read_line("--row-type f8_e5m2"), EB_ARGUMENTS_READ);
}

static void reads_single_values(void **state)
{
    (void)state;
    assert_int_equal(read_line("--table-bytes 2g --pages 1g --peer-pages 4k --reduction mean "
                               "--output-type bf16 --isa ref --seed 42"),
        EB_ARGUMENTS_READ);
    assert_int_equal(options.table_bytes, UINT64_C(2) << 30);
    assert_int_equal(options.pages, EB_PAGE_1G);
    assert_int_equal(options.peer_pages, EB_PAGE_SMALL);
    assert_int_equal(options.reduction, EB_REDUCTION_MEAN);
    assert_int_equal(options.output_type, EB_BF16);
    assert_string_equal(eb_bag_ops_name(options.ops), "ref");
    assert_int_equal(options.seed, 42);
    assert_int_equal(
        read_line("--rows 40m --repeats 7 --weighted --keyed --ahead --json"), EB_ARGUMENTS_READ);
    assert_int_equal(options.rows, UINT64_C(40) << 20);
    assert_int_equal(options.pairs, 7);
    assert_true(options.is_weighted && options.is_ahead && options.is_json && options.is_keyed);
}

static void gives_the_peer_the_same_pages(void **state)
{
    (void)state;
    assert_int_equal(read_line("--pages 4k"), EB_ARGUMENTS_READ);
    assert_int_equal(options.peer_pages, EB_PAGE_SMALL);
}

/* Expects the line to set this schedule, or no schedule if `schedule` is NULL. */
static void expect_prefetch(const char *line, bool is_measured, const char *schedule)
{
    char text[EB_BAG_SCHEDULE_TEXT_BYTES];
    assert_int_equal(read_line(line), EB_ARGUMENTS_READ);
    assert_int_equal(options.is_prefetch_measured, is_measured);
    assert_int_equal(options.is_prefetch_set, !!schedule);
    if (!schedule) {
        return;
    }
    eb_bag_schedule_format(&options.schedule, text);
    assert_string_equal(text, schedule);
}

static void reads_how_far_ahead_rows_are_prefetched(void **state)
{
    (void)state;
    expect_prefetch("", true, NULL);
    expect_prefetch("--prefetch auto", true, NULL);
    expect_prefetch("--prefetch default", false, NULL);
    expect_prefetch("--prefetch off", false, "off");
    expect_prefetch("--prefetch 64w:4:l1", false, "64w:4:l1");
}

static void reads_what_is_served(void **state)
{
    (void)state;
    assert_int_equal(read_line(""), EB_ARGUMENTS_READ);
    assert_int_equal(options.served.answer_count, 0);
    assert_int_equal(read_line("--serve 100:4k:8 --state hot"), EB_ARGUMENTS_READ);
    assert_int_equal(options.served.request_bytes, 100);
    assert_int_equal(options.served.answer_bytes, 4096);
    assert_int_equal(options.served.answer_count, 8);
}

static void reads_workloads(void **state)
{
    (void)state;
    assert_int_equal(read_line("--workload dlrm-v2 --samples 8 --scale 20 --row-type f32,int8"),
        EB_ARGUMENTS_READ);
    assert_string_equal(options.workload->name, "dlrm-v2");
    assert_int_equal(options.samples, 8);
    assert_int_equal(options.scale, 20);
    assert_int_equal(options.storages.count, 2);
}

static void refuses_what_a_flag_does_not_take(void **state)
{
    (void)state;
    static const char *const wrong[] = {"--row-type f31", "--row-type f32,", "--row-type ,f32",
        "--dim 0", "--dim 8193", "--dim 1,,2", "--dim 12x", "--dim -1", "--bags 0", "--threads 0",
        "--threads 257", "--rows 0", "--rows 5g", "--rows 18446744073709551616",
        "--table-bytes 99999999999g", "--distribution zipf", "--distribution uniform,",
        "--state warm", "--pages 2M", "--reduction avg", "--output-type int8", "--isa mmx",
        "--prefetch x", "--repeats 0", "--workload none", "--seed x", "--samples 0",
        "--reading-us 0", "--serve 1", "--serve 1:2", "--serve 1:2:3:4",
        "--serve 1:2:3:", "--serve 0:2:3", "--serve 1:2:0", "--serve 1:5g:3", "--serve x:2:3",
        "--serve :2:3", "--dim 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "--what", "extra"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (read_line(wrong[i]) != EB_ARGUMENTS_WRONG) {
            fail_msg("%s is taken", wrong[i]);
        }
    }
}

static void refuses_what_does_not_go_together(void **state)
{
    (void)state;
    assert_int_equal(read_line("--rows 100 --table-bytes 1g"), EB_ARGUMENTS_WRONG);
    assert_int_equal(read_line("--workload tbe --dim 64"), EB_ARGUMENTS_WRONG);
    assert_int_equal(read_line("--workload tbe --rows 64"), EB_ARGUMENTS_WRONG);
    assert_int_equal(read_line("--workload tbe --bags 64"), EB_ARGUMENTS_WRONG);
    static const char *const unserved[] = {"--dim 1,2", "--bags 1,2", "--state hot,steady",
        "--state flushed", "--threads 2", "--row-type f32,f16", "--indices-per-bag 1,2",
        "--distribution uniform,meta2021", "--keyed", "--ahead"};
    for (size_t i = 0; i < sizeof unserved / sizeof unserved[0]; i++) {
        char line[128] = "--serve 1:2:3 ";
        if (read_line(strcat(line, unserved[i])) != EB_ARGUMENTS_WRONG) {
            fail_msg("%s is taken", line);
        }
    }
}

EB_TEST_GROUP(bench_options)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_one_f32_table_unless_told_otherwise),
        cmocka_unit_test(reads_lists),
        cmocka_unit_test(reads_every_type),
        cmocka_unit_test(reads_single_values),
        cmocka_unit_test(gives_the_peer_the_same_pages),
        cmocka_unit_test(reads_how_far_ahead_rows_are_prefetched),
        cmocka_unit_test(reads_what_is_served),
        cmocka_unit_test(reads_workloads),
        cmocka_unit_test(refuses_what_a_flag_does_not_take),
        cmocka_unit_test(refuses_what_does_not_go_together),
    };
    return cmocka_run_group_tests_name("bench_options", tests, NULL, NULL);
}
