#include "kernels/table.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

static const struct eb_table sound_floats = {
    .rows = "rows",
    .row_count = 5,
    .row_stride_bytes = 16,
    .row_elements = 4,
    .storage = EB_STORAGE_F32,
    .type = EB_F32,
    .unknown_row = -1,
};

static const struct eb_table sound_codes = {
    .rows = "rows",
    .row_count = 5,
    .row_stride_bytes = 4,
    .scales = "scales",
    .scale_stride_bytes = sizeof(struct eb_row_scale),
    .row_elements = 4,
    .storage = EB_STORAGE_INT8,
    .type = EB_F32,
    .unknown_row = 4,
};

static void knows_sound_tables(void **state)
{
    (void)state;
    assert_true(eb_table_is_sound(&sound_floats));
    assert_true(eb_table_is_sound(&sound_codes));
    struct eb_table table = sound_codes;
    table.type = EB_BF16;
    assert_true(eb_table_is_sound(&table));
    table = sound_codes;
    table.row_count = 0;
    table.scales = NULL;
    table.unknown_row = -1;
    assert_true(eb_table_is_sound(&table));
}

static void finds_rows_that_overlap_or_are_empty(void **state)
{
    (void)state;
    struct eb_table table = sound_floats;
    table.row_stride_bytes = 15;
    assert_false(eb_table_is_sound(&table));
    table = sound_floats;
    table.row_elements = 0;
    assert_false(eb_table_is_sound(&table));
}

static void finds_types_that_no_such_row_has(void **state)
{
    (void)state;
    struct eb_table table = sound_floats;
    table.type = EB_F16;
    assert_false(eb_table_is_sound(&table));
    table = sound_codes;
    table.type = EB_F64;
    assert_false(eb_table_is_sound(&table));
}

static void finds_scales_that_are_amiss(void **state)
{
    (void)state;
    struct eb_table table = sound_floats;
    table.scales = "scales";
    assert_false(eb_table_is_sound(&table));
    table = sound_codes;
    table.scales = NULL;
    assert_false(eb_table_is_sound(&table));
    table = sound_codes;
    table.scale_stride_bytes = 7;
    assert_false(eb_table_is_sound(&table));
}

static void finds_an_unknown_row_that_is_none(void **state)
{
    (void)state;
    struct eb_table table = sound_codes;
    table.unknown_row = 5;
    assert_false(eb_table_is_sound(&table));
    table.unknown_row = -2;
    assert_false(eb_table_is_sound(&table));
}

EB_TEST_GROUP(table)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_sound_tables),
        cmocka_unit_test(finds_rows_that_overlap_or_are_empty),
        cmocka_unit_test(finds_types_that_no_such_row_has),
        cmocka_unit_test(finds_scales_that_are_amiss),
        cmocka_unit_test(finds_an_unknown_row_that_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
