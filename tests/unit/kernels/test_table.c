#include "kernels/table.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#define ROW_BYTES_TRIED 5000

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
    table.unknown_row = -3;
    assert_false(eb_table_is_sound(&table));
}

static void finds_an_unknown_row_that_names_no_vector(void **state)
{
    (void)state;
    static const float vector[16];
    struct eb_table table = sound_codes;
    table.unknown_row = EB_ROW_VECTOR;
    assert_false(eb_table_is_sound(&table));
    table.vector = vector;
    assert_true(eb_table_is_sound(&table));
    table.unknown_row = -3;
    assert_false(eb_table_is_sound(&table));
}

/* Returns whether rows of `row_bytes` at `stride` touch no more cache lines than they must. The
 * positions of rows within a line repeat after at most 64 rows. */
static bool straddles_least(uint64_t row_bytes, uint64_t stride)
{
    uint64_t lines_least = (row_bytes + 63) / 64;
    for (uint64_t row = 0; row < 64; row++) {
        uint64_t first = row * stride / 64;
        uint64_t last = (row * stride + row_bytes - 1) / 64;
        if (last - first + 1 > lines_least) {
            return false;
        }
    }
    return true;
}

/* Returns the stride that the header promises, found by trying every stride. */
static uint64_t find_stride(uint64_t row_bytes)
{
    for (uint64_t stride = row_bytes; 4 * stride <= 5 * row_bytes; stride++) {
        if (straddles_least(row_bytes, stride)) {
            return stride;
        }
    }
    return row_bytes;
}

static void is_the_smallest_stride_that_straddles_least(void **state)
{
    (void)state;
    for (uint64_t row_bytes = 1; row_bytes <= ROW_BYTES_TRIED; row_bytes++) {
        assert_int_equal(eb_row_stride(row_bytes), find_stride(row_bytes));
    }
}

static void straddles_least_whenever_rows_are_wide(void **state)
{
    (void)state;
    /* From here on, padding by a whole cache line adds at most a quarter. */
    for (uint64_t row_bytes = 4 * 64; row_bytes <= ROW_BYTES_TRIED; row_bytes++) {
        assert_true(straddles_least(row_bytes, eb_row_stride(row_bytes)));
    }
}

static void keeps_elements_aligned(void **state)
{
    (void)state;
    for (uint64_t row_bytes = 1; row_bytes <= ROW_BYTES_TRIED; row_bytes++) {
        for (uint64_t element = 2; element <= 64; element *= 2) {
            if (row_bytes % element == 0) {
                assert_int_equal(eb_row_stride(row_bytes) % element, 0);
            }
        }
    }
}

static void gives_the_strides_of_common_rows(void **state)
{
    (void)state;
    static const uint64_t strides[][2] = {{1, 1}, {2, 2}, {3, 3}, {8, 8}, {13, 16}, {16, 16},
        {20, 20}, {32, 32}, {48, 48}, {52, 64}, {64, 64}, {96, 96}, {100, 100}, {104, 128},
        {128, 128}, {136, 136}, {192, 192}, {272, 272}, {300, 320}, {400, 400}, {1200, 1216}};
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        assert_int_equal(eb_row_stride(strides[i][0]), strides[i][1]);
    }
}

static void takes_the_largest_row(void **state)
{
    (void)state;
    uint64_t largest = UINT64_C(1) << 62;
    assert_true(eb_row_stride(largest) == largest);
    assert_true(eb_row_stride(largest - 1) == largest);
}

static void puts_scales_in_front_of_codes(void **state)
{
    (void)state;
    for (uint32_t elements = 1; elements <= 600; elements++) {
        struct eb_row_format format = eb_row_format_of(EB_STORAGE_INT4, elements);
        assert_int_equal(format.row_offset_bytes, sizeof(struct eb_row_scale));
        assert_int_equal(format.bytes_max, 8 + (elements + 1) / 2);
        assert_true(format.stride_bytes >= format.bytes_max);
        assert_int_equal(format.stride_bytes % sizeof(float), 0);
    }
    assert_int_equal(eb_row_format_of(EB_STORAGE_INT8, 128).stride_bytes, 136);
    assert_int_equal(eb_row_format_of(EB_STORAGE_INT2, 64).stride_bytes, 24);
}

static void leaves_other_rows_as_they_are(void **state)
{
    (void)state;
    struct eb_row_format format = eb_row_format_of(EB_STORAGE_F32, 26);
    assert_int_equal(format.row_offset_bytes, 0);
    assert_int_equal(format.bytes_max, 104);
    assert_int_equal(format.stride_bytes, 128);
    format = eb_row_format_of(EB_STORAGE_I8, 7);
    assert_int_equal(format.stride_bytes, 8);
}

EB_TEST_GROUP(table)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_sound_tables),
        cmocka_unit_test(finds_rows_that_overlap_or_are_empty),
        cmocka_unit_test(finds_types_that_no_such_row_has),
        cmocka_unit_test(finds_scales_that_are_amiss),
        cmocka_unit_test(finds_an_unknown_row_that_is_none),
        cmocka_unit_test(finds_an_unknown_row_that_names_no_vector),
        cmocka_unit_test(is_the_smallest_stride_that_straddles_least),
        cmocka_unit_test(straddles_least_whenever_rows_are_wide),
        cmocka_unit_test(keeps_elements_aligned),
        cmocka_unit_test(gives_the_strides_of_common_rows),
        cmocka_unit_test(takes_the_largest_row),
        cmocka_unit_test(puts_scales_in_front_of_codes),
        cmocka_unit_test(leaves_other_rows_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
