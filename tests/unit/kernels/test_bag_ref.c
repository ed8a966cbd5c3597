#include "tests/unit/kernels/bag_fixture.h"

#include "tests/lib/test_group.h"

#include <math.h>
#include <string.h>

/* Rows of two values. */
#define A 1.5f, -2.0f
#define B 0.25f, 8.0f
#define C -4.0f, -0.5f
static const float floats[] = {A, B, C};
static struct eb_table table;
static struct eb_bag_query query;

static int set_up(void **state)
{
    (void)state;
    table = table_of(EB_F32, floats, 3, 2);
    query = query_of(&table);
    query.num_bags = 1;
    return 0;
}

static void reduces_without_weights(void **state)
{
    (void)state;
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1, 2), LIST(-2.25f, 5.5f));
    assert_reduces(&query, EB_REDUCTION_MEAN, LIST(0, 1, 2), LIST(-0.75f, 5.5f / 3));
    assert_reduces(&query, EB_REDUCTION_WEIGHTED_MEAN, LIST(0, 1, 2), LIST(-0.75f, 5.5f / 3));
    assert_reduces(&query, EB_REDUCTION_SQRTN, LIST(0, 0, 1, 2), LIST(-0.375f, 1.75f));
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(0, 1, 2), LIST(1.5f, 8));
    assert_reduces(&query, EB_REDUCTION_MIN, LIST(0, 1, 2), LIST(-4, -2));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(2, 0), LIST(C, A));
}

static void reduces_with_weights(void **state)
{
    (void)state;
    query.weights = (float[]){3, 4};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1), LIST(5.5f, 26));
    assert_reduces(&query, EB_REDUCTION_WEIGHTED_MEAN, LIST(0, 1), LIST(5.5f / 7, 26.0f / 7));
    assert_reduces(&query, EB_REDUCTION_SQRTN, LIST(0, 1), LIST(1.1f, 5.2f));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(0, 1), LIST(4.5f, -6, 1, 32));
}

static void divides_by_nothing_to_zero(void **state)
{
    (void)state;
    query.weights = (float[]){1, -1};
    assert_reduces(&query, EB_REDUCTION_WEIGHTED_MEAN, LIST(0, 1), LIST(0, 0));
    query.weights = (float[]){-0.0f, 0};
    assert_reduces(&query, EB_REDUCTION_SQRTN, LIST(0, 1), LIST(0, 0));
}

static void fuses_products(void **state)
{
    (void)state;
    /* The result is the low bits of the product. It would be 0 if the product were rounded
     * first. */
    static const float rows[] = {1 + 0x1p-12f, -1 - 0x1p-11f};
    table = table_of(EB_F32, rows, 2, 1);
    query.weights = (float[]){1, 1 + 0x1p-12f};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(1, 0), LIST(0x1p-24f));
}

static void keeps_sign_of_zero(void **state)
{
    (void)state;
    static const float rows[] = {-0.0f, 0.0f};
    table = table_of(EB_F32, rows, 2, 1);
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 0), LIST(-0.0f));
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1), LIST(0.0f));
    assert_reduces(&query, EB_REDUCTION_MEAN, LIST(0), LIST(-0.0f));
    /* If two values are equal, the earlier one is kept. */
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(0, 1), LIST(-0.0f));
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(1, 0), LIST(0.0f));
    assert_reduces(&query, EB_REDUCTION_MIN, LIST(1, 0), LIST(0.0f));
    query.weights = (float[]){1, 1};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 0), LIST(-0.0f));
    query.weights = (float[]){-1, 1};
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(1, 0), LIST(-0.0f, -0.0f));
}

static void keeps_subnormals(void **state)
{
    (void)state;
    static const float rows[] = {0x1p-149f, 0x1p-126f};
    table = table_of(EB_F32, rows, 2, 1);
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 0, 0), LIST(0x3p-149f));
    assert_reduces(&query, EB_REDUCTION_MEAN, LIST(1, 0), LIST(0x1p-127f));
}

static void makes_nans_canonical_unless_it_copies(void **state)
{
    (void)state;
    static const uint32_t rows[] = {0xffc01234, 0x7f800001, 0x3f800000};
    uint32_t quiet = 0x7fc00000;
    table = table_of(EB_F32, rows, 3, 1);
    const enum eb_reduction reductions[] = {EB_REDUCTION_SUM, EB_REDUCTION_MEAN,
        EB_REDUCTION_WEIGHTED_MEAN, EB_REDUCTION_SQRTN, EB_REDUCTION_MAX, EB_REDUCTION_MIN};
    for (int64_t row = 0; row < 2; row++) {
        query.indices = (struct eb_int_array){&row, 8, 8};
        for (size_t i = 0; i < sizeof reductions / sizeof reductions[0]; i++) {
            query.reduction = reductions[i];
            assert_pools(&query, &quiet, 4);
        }
        query.reduction = EB_REDUCTION_NONE;
        assert_pools(&query, &rows[row], 4);
        query.weights = (float[]){1};
        query.weights_bytes = 4;
        query.weights_type = EB_F32;
        assert_pools(&query, &quiet, 4);
        query.weights = NULL;
        query.weights_bytes = 0;
        query.output_type = EB_F16;
        assert_pools(&query, (uint16_t[]){0x7e00}, 2);
        query.output_type = EB_TYPE_UNSPECIFIED;
    }
}

static void extremes_take_nans_wherever_they_are(void **state)
{
    (void)state;
    static const uint32_t rows[] = {0x7f800001, 0x3f800000};
    uint32_t quiet = 0x7fc00000;
    const int64_t orders[][3] = {{0, 1, 1}, {1, 0, 1}, {1, 1, 0}};
    table = table_of(EB_F32, rows, 2, 1);
    for (size_t i = 0; i < 3; i++) {
        query.indices = INTS(orders[i]);
        query.reduction = EB_REDUCTION_MAX;
        assert_pools(&query, &quiet, 4);
        query.reduction = EB_REDUCTION_MIN;
        assert_pools(&query, &quiet, 4);
    }
}

static void extremes_take_infinities(void **state)
{
    (void)state;
    static const float rows[] = {-INFINITY, INFINITY};
    table = table_of(EB_F32, rows, 2, 1);
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(0), LIST(-INFINITY));
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(0, 1), LIST(INFINITY));
    assert_reduces(&query, EB_REDUCTION_MIN, LIST(1), LIST(INFINITY));
}

static void fills_empty_bags(void **state)
{
    (void)state;
    const enum eb_reduction reductions[] = {EB_REDUCTION_SUM, EB_REDUCTION_MEAN,
        EB_REDUCTION_WEIGHTED_MEAN, EB_REDUCTION_SQRTN, EB_REDUCTION_MAX, EB_REDUCTION_MIN};
    for (size_t i = 0; i < sizeof reductions / sizeof reductions[0]; i++) {
        query.reduction = reductions[i];
        query.has_default = false;
        assert_pools(&query, (float[]){0, 0}, 8);
        query.has_default = true;
        query.default_index = -1;
        assert_pools(&query, (float[]){0, 0}, 8);
        query.default_index = 1;
        assert_pools(&query, (float[]){B}, 8);
    }
}

static void copies_default_rows(void **state)
{
    (void)state;
    static const uint32_t rows[] = {0xffc01234};
    table = table_of(EB_F32, rows, 1, 1);
    query.has_default = true;
    assert_pools(&query, rows, 4);
    query.output_type = EB_BF16;
    assert_pools(&query, (uint16_t[]){0x7fc0}, 2);
}

static void weighs_no_default_row(void **state)
{
    (void)state;
    query.missing = EB_MISSING_SKIP;
    query.has_default = true;
    query.weights = (float[]){7};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(99), LIST(A));
    assert_reduces(&query, EB_REDUCTION_SQRTN, LIST(-1), LIST(A));
}

static void skipped_rows_do_not_count(void **state)
{
    (void)state;
    query.missing = EB_MISSING_SKIP;
    assert_reduces(&query, EB_REDUCTION_MEAN, LIST(0, 99, 1), LIST(0.875f, 3));
    assert_reduces(&query, EB_REDUCTION_MIN, LIST(99, 1), LIST(B));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(99, 1), LIST(0, 0, B));
    query.weights = (float[]){3, NAN, 5};
    assert_reduces(&query, EB_REDUCTION_WEIGHTED_MEAN, LIST(0, 99, 0), LIST(A));
}

static void zero_rows_count(void **state)
{
    (void)state;
    static const float rows[] = {-0.0f, -8};
    table = table_of(EB_F32, rows, 2, 1);
    query.missing = EB_MISSING_ZERO;
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 99), LIST(0.0f));
    assert_reduces(&query, EB_REDUCTION_MEAN, LIST(1, 99), LIST(-4));
    assert_reduces(&query, EB_REDUCTION_MAX, LIST(1, 99), LIST(0.0f));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(99), LIST(0.0f));
    /* The zero row is not multiplied, even if the product would be NaN or -0. Its weight is still
     * part of the divisor. */
    query.weights = (float[]){1, -INFINITY};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(1, 99), LIST(-8));
    query.weights = (float[]){-1, 1};
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(99, 0), LIST(0.0f, -0.0f));
    query.weights = (float[]){1, 3};
    assert_reduces(&query, EB_REDUCTION_WEIGHTED_MEAN, LIST(1, 99), LIST(-2));
    query.weights = (float[]){3, 4};
    assert_reduces(&query, EB_REDUCTION_SQRTN, LIST(1, 99), LIST(-24.0f / 5));
}

static void unknown_row_is_weighted(void **state)
{
    (void)state;
    table.unknown_row = 2;
    query.missing = EB_MISSING_UNKNOWN_ROW;
    query.weights = (float[]){1, 2};
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 99), LIST(-6.5f, -3));
}

static void rounds_output_once(void **state)
{
    (void)state;
    /* The sum is a tie in f16, plus a little that only f64 keeps. */
    static const double rows[] = {1, 0x1p-11, 0x1p-40};
    table = table_of(EB_F64, rows, 3, 1);
    query.indices = INTS(((int64_t[]){0, 1, 2}));
    query.output_type = EB_F16;
    assert_pools(&query, (uint16_t[]){0x3c01}, 2);
    query.output_type = EB_F32;
    assert_pools(&query, (float[]){1 + 0x1p-11f}, 4);
    query.output_type = EB_F64;
    assert_pools(&query, (double[]){1 + 0x1p-11 + 0x1p-40}, 8);
}

static void sums_halves_in_f32(void **state)
{
    (void)state;
    /* The sum is 1 + 2^-10. A sum in f16 would lose each of the small rows. */
    static const uint16_t rows[] = {0x3c00, 0x0c00}; /* 1, 2^-12 */
    table = table_of(EB_F16, rows, 2, 1);
    query.indices = INTS(((int64_t[]){0, 1, 1, 1, 1}));
    assert_pools(&query, (uint16_t[]){0x3c01}, 2);
    query.output_type = EB_F32;
    assert_pools(&query, (float[]){1 + 0x1p-10f}, 4);
}

static void dequantises_fp8(void **state)
{
    (void)state;
    static const uint8_t rows[] = {0x38, 0x7e, 0x01, 0xff}; /* 1, 448, 2^-9, NaN */
    table = table_of(EB_F32, rows, 2, 2);
    table.storage = EB_STORAGE_F8_E4M3;
    table.row_stride_bytes = 2;
    query.indices = INTS(((int64_t[]){0, 1}));
    const uint32_t sum[] = {0x3f804000, 0x7fc00000}; /* 1 + 2^-9, NaN */
    assert_pools(&query, sum, 8);
    query.reduction = EB_REDUCTION_NONE;
    query.indices = INTS(((int64_t[]){0}));
    assert_pools(&query, (float[]){1, 448}, 8);
    table.storage = EB_STORAGE_F8_E5M2;
    assert_pools(&query, (uint32_t[]){0x3f000000, 0x7fc00000}, 8);
}

static void widens_rows_stored_as_halves(void **state)
{
    (void)state;
    static const uint16_t rows[] = {0x3c00, 0xfe01}; /* 1, a NaN */
    table = table_of(EB_F32, rows, 2, 1);
    table.storage = EB_STORAGE_F16;
    table.row_stride_bytes = 2;
    query.indices = INTS(((int64_t[]){0, 1}));
    query.reduction = EB_REDUCTION_NONE;
    assert_pools(&query, (uint32_t[]){0x3f800000, 0x7fc00000}, 8);
    table.storage = EB_STORAGE_BF16;
    query.indices = INTS(((int64_t[]){0}));
    query.output_type = EB_BF16;
    assert_pools(&query, rows, 2);
}

static void wraps_integers(void **state)
{
    (void)state;
    static const int8_t bytes[] = {100, -128};
    table = table_of(EB_I8, bytes, 2, 1);
    query.indices = INTS(((int64_t[]){0, 0}));
    assert_pools(&query, (int8_t[]){-56}, 1);
    query.weights = (int8_t[]){3, -1};
    query.weights_type = EB_I8;
    query.weights_bytes = 2;
    query.indices = INTS(((int64_t[]){0, 1}));
    assert_pools(&query, (uint8_t[]){(300 + 128) & 0xff}, 1);
    query.reduction = EB_REDUCTION_NONE;
    assert_pools(&query, (uint8_t[]){300 & 0xff, 128}, 2);
    static const uint64_t words[] = {UINT64_MAX, 3};
    table = table_of(EB_U64, words, 2, 1);
    query = query_of(&table);
    query.num_bags = 1;
    query.indices = INTS(((int64_t[]){0, 1}));
    assert_pools(&query, (uint64_t[]){2}, 8);
}

static void truncates_means_of_integers(void **state)
{
    (void)state;
    static const int8_t bytes[] = {127, -128, -3, 0};
    table = table_of(EB_I8, bytes, 4, 1);
    query.reduction = EB_REDUCTION_MEAN;
    query.indices = INTS(((int64_t[]){2, 3}));
    assert_pools(&query, (int8_t[]){-1}, 1);
    /* The mean divides the exact sum, not the wrapped one. */
    query.indices = INTS(((int64_t[]){0, 0, 0}));
    assert_pools(&query, (int8_t[]){127}, 1);
    static const uint32_t words[] = {UINT32_MAX, UINT32_MAX - 1};
    table = table_of(EB_U32, words, 2, 1);
    query.indices = INTS(((int64_t[]){0, 1}));
    assert_pools(&query, (uint32_t[]){UINT32_MAX - 1}, 4);
    static const int64_t wide[] = {INT64_MAX, INT64_MIN};
    table = table_of(EB_I64, wide, 2, 1);
    query.indices = INTS(((int64_t[]){0, 0}));
    assert_pools(&query, (int64_t[]){-1}, 8); /* -2 / 2 */
    static const uint64_t unsigned_wide[] = {UINT64_MAX, 0};
    table = table_of(EB_U64, unsigned_wide, 2, 1);
    query.indices = INTS(((int64_t[]){0, 1}));
    assert_pools(&query, (uint64_t[]){UINT64_MAX / 2}, 8);
}

static void orders_integers_by_their_sign(void **state)
{
    (void)state;
    static const uint16_t words[] = {0xffff, 1, 0};
    query.indices = INTS(((int64_t[]){1, 0, 2}));
    query.reduction = EB_REDUCTION_MAX;
    table = table_of(EB_U16, words, 3, 1);
    assert_pools(&query, (uint16_t[]){0xffff}, 2);
    table = table_of(EB_I16, words, 3, 1);
    assert_pools(&query, (int16_t[]){1}, 2);
    query.reduction = EB_REDUCTION_MIN;
    assert_pools(&query, (int16_t[]){-1}, 2);
    query.missing = EB_MISSING_ZERO;
    query.indices = INTS(((int64_t[]){1, 77}));
    assert_pools(&query, (int16_t[]){0}, 2);
}

static void honours_strides(void **state)
{
    (void)state;
    static const float rows[] = {1, 2, 99, 3, 4, 99};
    table = table_of(EB_F32, rows, 2, 2);
    table.row_stride_bytes = 12;
    assert_reduces(&query, EB_REDUCTION_SUM, LIST(0, 1), LIST(4, 6));
    assert_reduces(&query, EB_REDUCTION_NONE, LIST(1), LIST(3, 4));
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

EB_TEST_GROUP(bag_ref)
{
    const struct CMUnitTest tests[] = {
        TEST(reduces_without_weights),
        TEST(reduces_with_weights),
        TEST(divides_by_nothing_to_zero),
        TEST(fuses_products),
        TEST(keeps_sign_of_zero),
        TEST(keeps_subnormals),
        TEST(makes_nans_canonical_unless_it_copies),
        TEST(extremes_take_nans_wherever_they_are),
        TEST(extremes_take_infinities),
        TEST(fills_empty_bags),
        TEST(copies_default_rows),
        TEST(weighs_no_default_row),
        TEST(skipped_rows_do_not_count),
        TEST(zero_rows_count),
        TEST(unknown_row_is_weighted),
        TEST(rounds_output_once),
        TEST(sums_halves_in_f32),
        TEST(dequantises_fp8),
        TEST(widens_rows_stored_as_halves),
        TEST(wraps_integers),
        TEST(truncates_means_of_integers),
        TEST(orders_integers_by_their_sign),
        TEST(honours_strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
