#include "server/stats/table_sums.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct eb_hot_rows hot[2] = {
    {.count = 1, .samples = 20, .indices_per_sample = 1, .kept = {{5, 15, 0}}},
    {.count = 1, .samples = 20, .indices_per_sample = 1, .kept = {{5, 17, 2}}},
};
static struct eb_table_sum first_sums[] = {
    {"", "", 1, 2, 0, NULL},
    {"a", "bc", 10, 100, 1, &hot[0]},
    {"b", "x", 7, 8, 0, NULL},
};
static struct eb_table_sum second_sums[] = {
    {"a", "b", 3, 3, 3, NULL},
    {"a", "bc", 20, 200, 2, &hot[1]},
    {"ab", "c", 5, 5, 5, NULL},
};
static const struct eb_table_sums first = {3, first_sums};
static const struct eb_table_sums second = {3, second_sums};
static const struct eb_table_sums empty;

static struct eb_stats *stats;

static int set_up(void **state)
{
    (void)state;
    eb_faults_fail_allocation(0);
    stats = eb_stats_make(0);
    assert_non_null(stats);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_stats_free(stats);
    return 0;
}

static void expect(size_t number, const char *model, const char *table, const uint64_t counts[3])
{
    assert_true(number < stats->table_count);
    assert_string_equal(stats->tables[number].model, model);
    assert_string_equal(stats->tables[number].table, table);
    assert_int_equal(stats->tables[number].bags, counts[0]);
    assert_int_equal(stats->tables[number].indices, counts[1]);
    assert_int_equal(stats->tables[number].missing, counts[2]);
}

static void adds_up_by_model_and_table(void **state)
{
    (void)state;
    const struct eb_table_sums *parts[] = {&first, &empty, &second};
    assert_true(eb_table_sums_merge(parts, 3, stats));
    assert_int_equal(stats->table_count, 5);
    expect(0, "", "", (const uint64_t[]){1, 2, 0});
    expect(1, "a", "b", (const uint64_t[]){3, 3, 3});
    expect(2, "a", "bc", (const uint64_t[]){30, 300, 3});
    expect(3, "ab", "c", (const uint64_t[]){5, 5, 5});
    expect(4, "b", "x", (const uint64_t[]){7, 8, 0});
}

static void says_which_rows_are_hot_in_all_parts(void **state)
{
    (void)state;
    const struct eb_table_sums *parts[] = {&first, &second};
    assert_true(eb_table_sums_merge(parts, 2, stats));
    assert_int_equal(stats->tables[2].hot_count, 1);
    assert_int_equal(stats->tables[2].hot[0].id, 5);
    assert_true(stats->tables[2].hot[0].share == 0.75);
    assert_int_equal(stats->tables[1].hot_count, 0);
    assert_int_equal(stats->tables[3].hot_count, 0);
}

static void makes_an_empty_list_of_nothing(void **state)
{
    (void)state;
    const struct eb_table_sums *parts[] = {&empty};
    eb_faults_fail_allocation(0);
    assert_true(eb_table_sums_merge(parts, 1, stats));
    assert_int_equal(stats->table_count, 0);
}

static void makes_an_empty_list_where_there_is_no_loop(void **state)
{
    (void)state;
    assert_true(eb_table_sums_merge(NULL, 0, stats));
    assert_int_equal(stats->table_count, 0);
}

static void fails_cleanly_wherever_memory_ends(void **state)
{
    const struct eb_table_sums *parts[] = {&first, &second};
    bool is_done = false;
    unsigned n = 0;
    while (!is_done) {
        eb_faults_fail_allocation(++n);
        is_done = eb_table_sums_merge(parts, 2, stats);
        eb_faults_fail_allocation(0);
        tear_down(state);
        set_up(state);
    }
    /* Thirteen allocations can fail: slots, scratch memory, the list, and ten names. In the last
     * round nothing fails. */
    assert_int_equal(n, 14);
}

EB_TEST_GROUP(table_sums)
{
#define PART_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PART_TEST(adds_up_by_model_and_table),
        PART_TEST(says_which_rows_are_hot_in_all_parts),
        PART_TEST(makes_an_empty_list_of_nothing),
        PART_TEST(makes_an_empty_list_where_there_is_no_loop),
        PART_TEST(fails_cleanly_wherever_memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
