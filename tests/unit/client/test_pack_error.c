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
        eb_pack_error_add(&error, row, exact[row], stored[row]);
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
    eb_pack_error_add(&error, 0, exact, exact);
    assert_true(error.values.max == 0);
    eb_pack_error_add(&error, 1, exact, wrong);
    assert_true(isinf(error.values.max));
    assert_int_equal(error.values.max_row, 1);
    eb_pack_error_deinit(&error);
}

/* Every row is off by one, so the sum of each bag is off by its number of rows. */
static void sums_whole_bags(void **state)
{
    (void)state;
    struct eb_pack_error error;
    assert_true(eb_pack_error_init(&error, 1000, 1));
    assert_int_equal(error.bag_count, EB_PACK_ERROR_BAGS_MAX);
    for (uint64_t row = 0; row < 1000; row++) {
        float exact = (float)row;
        float stored = exact - 1;
        eb_pack_error_add(&error, row, &exact, &stored);
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
        cmocka_unit_test(sums_whole_bags),
        cmocka_unit_test(takes_fewer_bags_of_wide_rows),
        cmocka_unit_test(has_no_error_where_there_is_no_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
