#include "tests/unit/kernels/bag_fixture.h"

#include <string.h>

#define ROW_BYTES 8
static const float floats[2];
static struct eb_table table;
static struct eb_bag_job job;

static void use_starts(const uint32_t *starts, uint32_t bag_count)
{
    table = table_of(EB_F32, floats, 1, 2);
    job = (struct eb_bag_job){.table = &table, .starts = starts, .bag_count = bag_count};
}

static void cuts_where_enough_rows_are_gathered(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 4, 8, 9, 20, 22};
    use_starts(starts, 5);
    assert_int_equal(eb_bag_tile_end(&job, 0, 8 * ROW_BYTES), 2);
    assert_int_equal(eb_bag_tile_end(&job, 0, 9 * ROW_BYTES), 3);
    assert_int_equal(eb_bag_tile_end(&job, 2, 2 * ROW_BYTES), 4);
    assert_int_equal(eb_bag_tile_end(&job, 0, UINT64_MAX), 5);
}

static void takes_one_bag_at_least(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 1000, 1000, 2000};
    use_starts(starts, 3);
    assert_int_equal(eb_bag_tile_end(&job, 0, 1), 1);
    assert_int_equal(eb_bag_tile_end(&job, 1, 0), 2);
    assert_int_equal(eb_bag_tile_end(&job, 2, 0), 3);
}

static void counts_empty_bags_as_rows(void **state)
{
    (void)state;
    static const uint32_t starts[101];
    use_starts(starts, 100);
    assert_int_equal(eb_bag_tile_end(&job, 0, 10 * ROW_BYTES), 10);
    assert_int_equal(eb_bag_tile_end(&job, 95, 10 * ROW_BYTES), 100);
}

static void cuts_rows_of_none(void **state)
{
    (void)state;
    use_starts(NULL, 100);
    assert_int_equal(eb_bag_tile_end(&job, 20, 10 * ROW_BYTES), 30);
    assert_int_equal(eb_bag_tile_end(&job, 20, 1), 21);
    assert_int_equal(eb_bag_tile_end(&job, 20, 1000 * ROW_BYTES), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_where_enough_rows_are_gathered),
        cmocka_unit_test(takes_one_bag_at_least),
        cmocka_unit_test(counts_empty_bags_as_rows),
        cmocka_unit_test(cuts_rows_of_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
