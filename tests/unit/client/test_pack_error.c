#include "client/cli/pack_table.h"

#include "tests/lib/test_group.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void counts_the_errors_of_values(void **state)
{
    (void)state;
    static const float exact[3][2] = {{1, 2}, {3, 4}, {5, 6}};
    static const float stored[3][2] = {{1, 2.5f}, {2, 4}, {5, 6}};
    struct eb_pack_error error;
    assert_true(eb_pack_error_init(&error, 3, 2));
    for (uint64_t row = 0; row < 3; row++) {
        eb_pack_deviation_add(&error.values, row, 2, exact[row], stored[row]);
    }
    assert_true(error.values.max == 1);
    assert_int_equal(error.values.max_row, 1);
    assert_int_equal(error.values.count, 6);
    assert_true(eb_pack_error_mean(&error.values) == 1.5 / 6);
    eb_pack_error_deinit(&error);
}

static void takes_what_is_not_finite_for_what_it_is(void **state)
{
    (void)state;
    static const float exact[3] = {NAN, INFINITY, -INFINITY};
    static const float wrong[3] = {NAN, INFINITY, FLT_MAX};
    struct eb_pack_error error;
    assert_true(eb_pack_error_init(&error, 2, 3));
    eb_pack_deviation_add(&error.values, 0, 3, exact, exact);
    assert_true(error.values.max == 0);
    eb_pack_deviation_add(&error.values, 1, 3, exact, wrong);
    assert_true(isinf(error.values.max));
    assert_int_equal(error.values.max_row, 1);
    eb_pack_error_deinit(&error);
}

static void joins_the_errors_of_later_rows(void **state)
{
    (void)state;
    static const float exact[1] = {4};
    static const float near[1] = {5};
    static const float far[1] = {7};
    struct eb_pack_deviation all = {0};
    struct eb_pack_deviation parts[3] = {{0}};
    eb_pack_deviation_add(&parts[0], 2, 1, exact, near);
    eb_pack_deviation_add(&parts[1], 3, 1, exact, near);
    eb_pack_deviation_add(&parts[2], 4, 1, exact, far);
    for (int i = 0; i < 2; i++) {
        eb_pack_deviation_join(&all, &parts[i]);
    }
    assert_true(all.max == 1);
    assert_int_equal(all.max_row, 2);
    eb_pack_deviation_join(&all, &parts[2]);
    assert_true(all.max == 3);
    assert_int_equal(all.max_row, 4);
    assert_int_equal(all.count, 3);
    assert_true(eb_pack_error_mean(&all) == 5.0 / 3);
}

/* Every row is off by one, so the sum of each bag is off by its number of rows. */
static void sums_whole_bags(void **state)
{
    (void)state;
    struct eb_pack_error error;
    assert_true(eb_pack_error_init(&error, 1000, 1));
    assert_int_equal(error.bag_count, EB_PACK_ERROR_BAGS_MAX);
    uint64_t row;
    for (uint64_t end = 100; end <= 1000; end += 100) {
        while ((row = eb_pack_error_next_row(&error, end)) < end) {
            float exact = (float)row;
            float stored = exact - 1;
            eb_pack_error_add_row(&error, row, &exact, &stored);
        }
        assert_int_equal(row, end);
    }
    struct eb_pack_deviation bags = eb_pack_error_bags(&error);
    assert_int_equal(bags.count, EB_PACK_ERROR_BAGS_MAX);
    assert_true(bags.max == EB_PACK_ERROR_BAG_ROWS);
    assert_true(eb_pack_error_mean(&bags) == EB_PACK_ERROR_BAG_ROWS);
    eb_pack_error_deinit(&error);
}

static void takes_fewer_bags_of_wide_rows(void **state)
{
    (void)state;
    struct eb_pack_error error;
    assert_true(eb_pack_error_init(&error, 5, 1 << 20));
    assert_int_equal(error.bag_count, 4);
    eb_pack_error_deinit(&error);
    assert_true(eb_pack_error_init(&error, 5, 1 << 23));
    assert_int_equal(error.bag_count, 1);
    eb_pack_error_deinit(&error);
}

static void has_no_error_where_there_is_no_row(void **state)
{
    (void)state;
    struct eb_pack_error error;
    assert_true(eb_pack_error_init(&error, 0, 4));
    assert_int_equal(error.bag_count, 0);
    struct eb_pack_deviation bags = eb_pack_error_bags(&error);
    assert_true(eb_pack_error_mean(&bags) == 0);
    eb_pack_error_deinit(&error);
}

EB_TEST_GROUP(pack_error)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_the_errors_of_values),
        cmocka_unit_test(takes_what_is_not_finite_for_what_it_is),
        cmocka_unit_test(joins_the_errors_of_later_rows),
        cmocka_unit_test(sums_whole_bags),
        cmocka_unit_test(takes_fewer_bags_of_wide_rows),
        cmocka_unit_test(has_no_error_where_there_is_no_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
