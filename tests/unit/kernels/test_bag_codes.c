/* The reference on rows of codes, and on tables whose type T is narrower than the type of the
 * sums. */
#include "tests/unit/kernels/bag_fixture.h"

#include "tests/lib/test_group.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Rows of two values, s * q + b. */
#define A -1.0f, 0.5f
#define B 71.75f, 8.25f
#define C -7.875f, -255.875f
static const uint8_t codes[] = {0, 3, 255, 1, 4, 128};
static const struct eb_row_scale scales[] = {{0.5f, -1}, {0.25f, 8}, {-2, 0.125f}};
static struct eb_table table;
static struct eb_bag_query query;

static int set_up(void **state)
{
    (void)state;
    table = table_of_codes(EB_STORAGE_INT8, codes, scales, 3, 2);
    query = query_of(&table);
    query.num_bags = 1;
    return 0;
}

/* Rows of one code each. */
static void use_rows(const uint8_t *rows, const struct eb_row_scale *of_rows, uint64_t count)
{
    table = table_of_codes(EB_STORAGE_INT8, rows, of_rows, count, 1);
}

static void takes_low_bits_first(void **state)
{
    (void)state;
    static const struct eb_row_scale plain = {1, 0};
    /* The unused bits of the last byte belong to no element. */
    static const uint8_t row[] = {0xe4, 0xf2};
    query.indices = INTS(((int64_t[]){0}));
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_COUNT; reduction++) {
        query.reduction = (enum eb_reduction)reduction;
        table = table_of_codes(EB_STORAGE_INT8, row, &plain, 1, 2);
        assert_pools(&query, (float[]){0xe4, 0xf2}, 8);
        table = table_of_codes(EB_STORAGE_INT4, row, &plain, 1, 3);
        assert_pools(&query, (float[]){4, 14, 2}, 12);
        table = table_of_codes(EB_STORAGE_INT2, row, &plain, 1, 5);
        assert_pools(&query, (float[]){0, 1, 2, 3, 2}, 20);
    }
}

static void reduces_without_weights_of_codes(void **state)
{
    (void)state;
    const float sum[] = {62.875f, -247.125f};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1, 2), LIST(sum[0], sum[1]));
    assert_reduces(&query, EB_REDUCTION_MEAN, LIST(0, 1, 2), LIST(sum[0] / 3, sum[1] / 3));
    assert_reduces(&query, EB_REDUCTION_WEIGHTED_MEAN, LIST(0, 1, 2), LIST(sum[0] / 3, sum[1] / 3));
    assert_reduces(&query, EB_REDUCTION_SQRTN, LIST(0, 0, 1, 2), LIST(30.9375f, -123.3125f));
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(0, 1, 2), LIST(B));
    assert_reduces(&query, EB_REDUCTION_MIN, LIST(0, 1, 2), LIST(C));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(2, 0), LIST(C, A));
}

static void reduces_with_weights_of_codes(void **state)
{
    (void)state;
    query.weights = (float[]){3, 4};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1), LIST(284, 34.5f));
    assert_reduces(&query, EB_REDUCTION_WEIGHTED_MEAN, LIST(0, 1), LIST(284.0f / 7, 34.5f / 7));
    assert_reduces(&query, EB_REDUCTION_SQRTN, LIST(0, 1), LIST(56.8f, 6.9f));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(0, 1), LIST(-3, 1.5f, 287, 33));
}

static void sums_biases_apart(void **state)
{
    (void)state;
    /* If each value were computed before the sum, the first code would be lost in its bias. */
    static const uint8_t rows[] = {1, 1};
    static const struct eb_row_scale of_rows[] = {{1, 0x1p24f}, {1, -0x1p24f}};
    use_rows(rows, of_rows, 2);
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1), LIST(2));
    query.weights = (float[]){1, 1};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1), LIST(2));
}

static void rounds_weighted_scales(void **state)
{
    (void)state;
    /* The product of weight and scale is rounded and loses 2^-24 before it meets the code. */
    static const uint8_t rows[] = {1, 1};
    static const struct eb_row_scale of_rows[] = {{1 + 0x1p-12f, 0}, {-1 - 0x1p-11f, 0}};
    use_rows(rows, of_rows, 2);
    query.weights = (float[]){1, 1 + 0x1p-12f};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(1, 0), LIST(0));
}

static void fuses_products_with_codes(void **state)
{
    (void)state;
    /* If the first product were rounded, it would be 3 + 2^-21. */
    static const uint8_t rows[] = {3, 3};
    static const struct eb_row_scale of_rows[] = {{1 + 0x1p-23f, -3}, {-1, 0}};
    use_rows(rows, of_rows, 1);
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(0), LIST(0x3p-23f));
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(0), LIST(0x3p-23f));
    query.has_default = true;
    query.indices = NO_INTS;
    query.reduction = EB_REDUCTION_SUM;
    assert_pools(&query, (float[]){0x3p-23f}, 4);
    static const struct eb_row_scale without_bias[] = {{1 + 0x1p-23f, 0}, {-1, 0}};
    use_rows(rows, without_bias, 2);
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(1, 0), LIST(0x3p-23f));
    query.weights = (float[]){1, 1};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(1, 0), LIST(0x3p-23f));
}

static void fuses_products_with_biases(void **state)
{
    (void)state;
    static const uint8_t rows[] = {0, 0};
    static const struct eb_row_scale of_rows[] = {{1, 1 + 0x1p-12f}, {1, -1 - 0x1p-11f}};
    use_rows(rows, of_rows, 2);
    query.weights = (float[]){1, 1 + 0x1p-12f};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(1, 0), LIST(0x1p-24f));
}

static void weighs_values_after_they_are_rounded(void **state)
{
    (void)state;
    /* x = 2^24 + 1 is a tie and is rounded to 2^24. */
    static const uint8_t rows[] = {1};
    static const struct eb_row_scale of_rows[] = {{1, 0x1p24f}};
    use_rows(rows, of_rows, 1);
    query.weights = (float[]){3};
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(0), LIST(0x3p24f));
}

static void keeps_sign_of_zero_of_codes(void **state)
{
    (void)state;
    static const uint8_t rows[] = {0, 0};
    static const struct eb_row_scale of_rows[] = {{-1, -0.0f}, {1, 0}};
    use_rows(rows, of_rows, 2);
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 0), LIST(-0.0f));
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1), LIST(0.0f));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(0, 1), LIST(-0.0f, 0.0f));
    /* If two values are equal, the earlier one is kept. */
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(0, 1), LIST(-0.0f));
    assert_reduces(&query, EB_REDUCTION_MIN, LIST(1, 0), LIST(0.0f));
    query.missing = EB_MISSING_ZERO;
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 99), LIST(0.0f));
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(99), LIST(0.0f));
}

static void keeps_subnormals_of_codes(void **state)
{
    (void)state;
    static const uint8_t rows[] = {3, 255};
    static const struct eb_row_scale of_rows[] = {{0x1p-149f, 0x1p-148f}, {0x1p-140f, 0}};
    use_rows(rows, of_rows, 2);
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0), LIST(0x5p-149f));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(0, 1), LIST(0x5p-149f, 0xffp-140f));
    assert_reduces(&query, EB_REDUCTION_MEAN, LIST(0, 0), LIST(0x5p-149f));
}

static void zero_rows_count_of_codes(void **state)
{
    (void)state;
    query.missing = EB_MISSING_ZERO;
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(2, 99), LIST(C));
    assert_reduces(&query, EB_REDUCTION_MEAN, LIST(2, 99), LIST(-3.9375f, -127.9375f));
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(2, 99), LIST(0, 0));
    assert_reduces(&query, EB_REDUCTION_MIN, LIST(99, 1), LIST(0, 0));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(99, 2), LIST(0, 0, C));
    query.weights = (float[]){1, -INFINITY};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(2, 99), LIST(C));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(2, 99), LIST(C, 0, 0));
    query.weights = (float[]){1, 3};
    assert_reduces(&query, EB_REDUCTION_WEIGHTED_MEAN, LIST(2, 99), LIST(-1.96875f, -63.96875f));
}

static void skipped_rows_do_not_count_of_codes(void **state)
{
    (void)state;
    query.missing = EB_MISSING_SKIP;
    assert_reduces(&query, EB_REDUCTION_MEAN, LIST(0, 99, 1), LIST(35.375f, 4.375f));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(99, 1), LIST(0, 0, B));
    query.weights = (float[]){3, NAN, 5};
    assert_reduces(&query, EB_REDUCTION_WEIGHTED_MEAN, LIST(0, 99, 0), LIST(A));
}

static void unknown_row_is_weighted_of_codes(void **state)
{
    (void)state;
    table.unknown_row = 2;
    query.missing = EB_MISSING_UNKNOWN_ROW;
    query.weights = (float[]){1, 2};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 99), LIST(-16.75f, -511.25f));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(0, -7), LIST(A, -15.75f, -511.75f));
}

static void fills_empty_bags_with_values(void **state)
{
    (void)state;
    query.missing = EB_MISSING_SKIP;
    query.has_default = true;
    query.default_index = 1;
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_NONE; reduction++) {
        assert_reduces(&query, (enum eb_reduction)reduction, LIST(99), LIST(B));
    }
    query.weights = (float[]){7};
    assert_reduces(&query, EB_REDUCTION_SQRTN, LIST(99), LIST(B));
    query.default_index = -1;
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(99), LIST(0, 0));
}

/* Expects this result, with every reduction, for a bag of one row with the codes 0 and 1, and also
 * for an empty bag that has the same row as its default row. */
static void assert_row_is(float scale, float bias, const uint32_t *expected)
{
    static const uint8_t row[] = {0, 1};
    static struct eb_row_scale of_row;
    of_row = (struct eb_row_scale){scale, bias};
    table = table_of_codes(EB_STORAGE_INT8, row, &of_row, 1, 2);
    query.has_default = true;
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_COUNT; reduction++) {
        query.reduction = (enum eb_reduction)reduction;
        query.indices = INTS(((int64_t[]){0}));
        assert_pools(&query, expected, 8);
    }
    query.reduction = EB_REDUCTION_SUM;
    query.indices = NO_INTS;
    assert_pools(&query, expected, 8);
}

static void computes_with_scales_that_are_no_numbers(void **state)
{
    (void)state;
    uint32_t quiet = 0x7fc00000;
    uint32_t infinity = 0x7f800000;
    float odd = -NAN;
    assert_row_is(INFINITY, 1, (uint32_t[]){quiet, infinity});
    assert_row_is(-INFINITY, INFINITY, (uint32_t[]){quiet, quiet});
    assert_row_is(odd, 1, (uint32_t[]){quiet, quiet});
    assert_row_is(1, odd, (uint32_t[]){quiet, quiet});
    assert_row_is(1, INFINITY, (uint32_t[]){infinity, infinity});
    assert_row_is(FLT_MAX, FLT_MAX, (uint32_t[]){0x7f7fffff, infinity});
    query.output_type = EB_F16;
    query.indices = INTS(((int64_t[]){0}));
    assert_pools(&query, (uint16_t[]){0x7c00, 0x7c00}, 4);
    table.type = EB_BF16;
    query.output_type = EB_TYPE_UNSPECIFIED;
    assert_pools(&query, (uint16_t[]){0x7f80, 0x7f80}, 4);
}

static void answers_in_the_tables_type(void **state)
{
    (void)state;
    query.indices = INTS(((int64_t[]){0}));
    query.reduction = EB_REDUCTION_NONE;
    table.type = EB_F16;
    assert_pools(&query, (uint16_t[]){0xbc00, 0x3800}, 4);
    table.type = EB_BF16;
    assert_pools(&query, (uint16_t[]){0xbf80, 0x3f00}, 4);
    query.output_type = EB_F32;
    assert_pools(&query, (float[]){A}, 8);
}

static void takes_weights_of_the_tables_type(void **state)
{
    (void)state;
    table.type = EB_F16;
    query.indices = INTS(((int64_t[]){0, 1}));
    query.weights = (uint16_t[]){0x4200, 0x4400}; /* 3, 4 */
    query.weights_type = EB_F16;
    query.weights_bytes = 4;
    assert_pools(&query, (uint16_t[]){0x5c70, 0x5050}, 4); /* 284, 34.5 */
    table.type = EB_BF16;
    query.weights = (uint16_t[]){0x4040, 0x4080};
    query.weights_type = EB_BF16;
    assert_pools(&query, (uint16_t[]){0x438e, 0x420a}, 4);
}

static void converts_to_the_tables_type_once(void **state)
{
    (void)state;
    /* Sums in f16 would lose each of the small rows. */
    static const uint8_t rows[] = {1, 1};
    static const struct eb_row_scale of_rows[] = {{1, 0}, {0x1p-12f, 0}};
    use_rows(rows, of_rows, 2);
    table.type = EB_F16;
    query.indices = INTS(((int64_t[]){0, 1, 1, 1, 1}));
    assert_pools(&query, (uint16_t[]){0x3c01}, 2);
}

static void answers_in_the_type_of_tables_stored_as_fp8(void **state)
{
    (void)state;
    static const uint8_t rows[] = {0x38, 0x7e, 0x01, 0xff}; /* 1, 448, 2^-9, NaN */
    table = table_of(EB_F16, rows, 2, 2);
    table.storage = EB_STORAGE_F8_E4M3;
    table.row_stride_bytes = 2;
    query.indices = INTS(((int64_t[]){0, 1}));
    assert_pools(&query, (uint16_t[]){0x3c02, 0x7e00}, 4);
    query.reduction = EB_REDUCTION_NONE;
    query.indices = INTS(((int64_t[]){0}));
    assert_pools(&query, (uint16_t[]){0x3c00, 0x5f00}, 4);
    table.type = EB_BF16;
    assert_pools(&query, (uint16_t[]){0x3f80, 0x43e0}, 4);
    table.storage = EB_STORAGE_F8_E5M2;
    assert_pools(&query, (uint16_t[]){0x3f00, 0x7fc0}, 4);
}

static void honours_strides_of_codes(void **state)
{
    (void)state;
    /* Each row: two codes, a gap, then scale and bias at addresses that are not aligned for a
     * float. */
    static uint8_t rows[3 * 11];
    for (size_t row = 0; row < 3; row++) {
        memcpy(rows + row * 11, codes + row * 2, 2);
        memcpy(rows + row * 11 + 3, &scales[row], 8);
    }
    table.rows = rows;
    table.row_stride_bytes = 11;
    table.scales = rows + 3;
    table.scale_stride_bytes = 11;
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1, 2), LIST(62.875f, -247.125f));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(2, 0), LIST(C, A));
}

static void counts_scales_as_gathered(void **state)
{
    (void)state;
    static const uint8_t rows[3 * 2];
    struct bag_fixture fixture;
    table = table_of_codes(EB_STORAGE_INT4, rows, scales, 3, 3);
    query.indices = INTS(((int64_t[]){0, 1, 0}));
    assert_true(bag_fixture_check(&fixture, &query));
    assert_int_equal(fixture.job.gather_bytes, 3 * (2 + 8));
    bag_fixture_release(&fixture);
    /* A missing row and its scale are not counted. */
    query.missing = EB_MISSING_ZERO;
    query.indices = INTS(((int64_t[]){0, 99}));
    assert_true(bag_fixture_check(&fixture, &query));
    assert_int_equal(fixture.job.gather_bytes, 2 + 8);
    bag_fixture_release(&fixture);
    query.indices = NO_INTS;
    query.has_default = true;
    assert_true(bag_fixture_check(&fixture, &query));
    assert_int_equal(fixture.job.gather_bytes, 2 + 8);
    bag_fixture_release(&fixture);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

EB_TEST_GROUP(bag_codes)
{
    const struct CMUnitTest tests[] = {
        TEST(takes_low_bits_first),
        TEST(reduces_without_weights_of_codes),
        TEST(reduces_with_weights_of_codes),
        TEST(sums_biases_apart),
        TEST(rounds_weighted_scales),
        TEST(fuses_products_with_codes),
        TEST(fuses_products_with_biases),
        TEST(weighs_values_after_they_are_rounded),
        TEST(keeps_sign_of_zero_of_codes),
        TEST(keeps_subnormals_of_codes),
        TEST(zero_rows_count_of_codes),
        TEST(skipped_rows_do_not_count_of_codes),
        TEST(unknown_row_is_weighted_of_codes),
        TEST(fills_empty_bags_with_values),
        TEST(computes_with_scales_that_are_no_numbers),
        TEST(answers_in_the_tables_type),
        TEST(takes_weights_of_the_tables_type),
        TEST(converts_to_the_tables_type_once),
        TEST(answers_in_the_type_of_tables_stored_as_fp8),
        TEST(honours_strides_of_codes),
        TEST(counts_scales_as_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
