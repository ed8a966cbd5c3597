#include "tests/unit/kernels/bag_fixture.h"

#include "tests/lib/test_group.h"

#include <string.h>

static void reference_runs_everywhere(void **state)
{
    (void)state;
    const struct eb_bag_ops *ops = eb_bag_ops_find("ref");
    assert_non_null(ops);
    assert_ptr_equal(ops, eb_bag_ops_at(0));
    assert_true(eb_bag_ops_runs_here(ops));
    assert_string_equal(eb_bag_ops_name(ops), "ref");
}

static void finds_every_table_that_runs_here(void **state)
{
    (void)state;
    size_t count = 0;
    for (const struct eb_bag_ops *ops; (ops = eb_bag_ops_at(count)); count++) {
        const struct eb_bag_ops *found = eb_bag_ops_find(eb_bag_ops_name(ops));
        assert_ptr_equal(found, eb_bag_ops_runs_here(ops) ? ops : NULL);
    }
    assert_null(eb_bag_ops_at(count + 1));
}

static void picks_the_last_that_runs_here(void **state)
{
    (void)state;
    const struct eb_bag_ops *best = NULL;
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        best = eb_bag_ops_runs_here(ops) ? ops : best;
    }
    for (int family = 0; family < EB_PROCESSOR_FAMILY_COUNT; family++) {
        if (family != EB_PROCESSOR_SKYLAKE) {
            assert_ptr_equal(eb_bag_ops_fastest_on((enum eb_processor_family)family), best);
        }
    }
}

static void picks_narrow_vectors_if_wide_ones_lower_the_clock(void **state)
{
    (void)state;
    const struct eb_bag_ops *narrow = eb_bag_ops_find("avx512vl");
    if (!narrow) {
        skip();
    }
    assert_ptr_equal(eb_bag_ops_fastest_on(EB_PROCESSOR_SKYLAKE), narrow);
}

static void picks_by_the_family_of_this_processor(void **state)
{
    (void)state;
    struct eb_processor processor = eb_processor_read();
    enum eb_processor_family family = eb_processor_family_of(&processor);
    assert_ptr_equal(eb_bag_ops_find(NULL), eb_bag_ops_fastest_on(family));
}

static void knows_no_other_names(void **state)
{
    (void)state;
    assert_null(eb_bag_ops_find(""));
    assert_null(eb_bag_ops_find("avx"));
    assert_null(eb_bag_ops_find("REF"));
}

EB_TEST_GROUP(bag_ops)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_runs_everywhere),
        cmocka_unit_test(finds_every_table_that_runs_here),
        cmocka_unit_test(picks_the_last_that_runs_here),
        cmocka_unit_test(picks_narrow_vectors_if_wide_ones_lower_the_clock),
        cmocka_unit_test(picks_by_the_family_of_this_processor),
        cmocka_unit_test(knows_no_other_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
