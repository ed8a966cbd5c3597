/* Checks of queries on keyed tables whose rows are on other servers. */
#include "kernels/key_index.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

/* Keys whose numbers are those of zero rows, default vectors and skipped rows, among others. */
static const int64_t remote_keys[] = {-1, -2, -3, INT64_MIN, INT64_MAX, 0, -3, 7};

/* Returns a keyed table whose rows are elsewhere. */
static struct eb_table remote_table(void)
{
    struct eb_table remote = table_of(EB_F32, NULL, 3, 2);
    remote.keys = &eb_key_index_remote;
    return remote;
}

static void keeps_keys_that_are_looked_up_elsewhere(void **state)
{
    (void)state;
    static const enum eb_missing policies[] = {
        EB_MISSING_ERROR, EB_MISSING_SKIP, EB_MISSING_ZERO, EB_MISSING_UNKNOWN_ROW};
    struct eb_table remote = remote_table();
    remote.unknown_row = 0;
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        struct eb_bag_query query = query_of(&remote);
        struct bag_fixture fixture;
        query.missing = policies[i];
        query.layout = EB_LAYOUT_LENGTHS;
        query.indices = INTS(remote_keys);
        query.bounds = INTS(((int32_t[]){3, 0, 5}));
        assert_true(bag_fixture_check(&fixture, &query));
        assert_memory_equal(fixture.job.rows, remote_keys, sizeof remote_keys);
        assert_int_equal(fixture.job.missing_count, 0);
        bag_fixture_release(&fixture);
    }
}

static void sorts_keys_that_are_looked_up_elsewhere(void **state)
{
    (void)state;
    static const int64_t expected[] = {-2, INT64_MIN, 0, -3, -1, -3, INT64_MAX, 7};
    struct eb_table remote = remote_table();
    struct eb_bag_query query = query_of(&remote);
    struct bag_fixture fixture;
    query.missing = EB_MISSING_SKIP;
    query.layout = EB_LAYOUT_SEGMENTS;
    query.num_segments = 2;
    query.indices = INTS(remote_keys);
    query.bounds = INTS(((int32_t[]){1, 0, 1, 0, 1, 0, 0, 1}));
    assert_true(bag_fixture_check(&fixture, &query));
    assert_memory_equal(fixture.job.rows, expected, sizeof expected);
    assert_int_equal(fixture.job.starts[1], 4);
    assert_int_equal(fixture.job.starts[2], 8);
    bag_fixture_release(&fixture);
}

static void takes_any_default_key_of_a_table_elsewhere(void **state)
{
    (void)state;
    struct eb_table remote = remote_table();
    struct eb_bag_query query = query_of(&remote);
    struct bag_fixture fixture;
    query.layout = EB_LAYOUT_LENGTHS;
    query.indices = NO_INTS;
    query.bounds = INTS(((int32_t[]){0}));
    query.has_default = true;
    query.default_index = -77;
    assert_true(bag_fixture_check(&fixture, &query));
    assert_int_equal(fixture.job.bag_count, 1);
    bag_fixture_release(&fixture);
}

EB_TEST_GROUP(bag_remote)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_keys_that_are_looked_up_elsewhere),
        cmocka_unit_test(sorts_keys_that_are_looked_up_elsewhere),
        cmocka_unit_test(takes_any_default_key_of_a_table_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
