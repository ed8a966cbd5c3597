/* The default vector of a table: in empty bags, and in place of missing rows. */
#include "tests/unit/kernels/bag_fixture.h"

#include "kernels/element.h"
#include "tests/lib/test_group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of two values, s * q + b. */
#define A -1.0f, 0.5f
#define B 71.75f, 8.25f
/* The default vector. */
#define V 0.1f, -7.0f
static const uint8_t codes[] = {0, 3, 255, 1, 4, 128};
static const struct eb_row_scale scales[] = {{0.5f, -1}, {0.25f, 8}, {-2, 0.125f}};
static const float vector[] = {V};

struct vector_fixture {
    struct eb_table table;
    struct eb_bag_query query;
};

static int set_up(void **state)
{
    struct vector_fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    fixture->table = table_of_codes(EB_STORAGE_INT8, codes, scales, 3, 2);
    fixture->table.vector = vector;
    fixture->table.unknown_row = EB_ROW_VECTOR;
    fixture->query = query_of(&fixture->table);
    fixture->query.num_bags = 1;
    fixture->query.missing = EB_MISSING_UNKNOWN_ROW;
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static void fills_empty_bags_whatever_the_reduction(void **state)
{
    struct vector_fixture *fixture = *state;
    struct eb_bag_query *query = &fixture->query;
    query->missing = EB_MISSING_SKIP;
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_NONE; reduction++) {
        assert_reduces(query, (enum eb_reduction)reduction, LIST(99), LIST(V));
    }
    query->weights = (float[]){7};
    assert_reduces(query, EB_REDUCTION_SUM, LIST(99), LIST(V));
    assert_reduces(query, EB_REDUCTION_SQRTN, LIST(99), LIST(V));
}

static void yields_to_the_default_of_a_query(void **state)
{
    struct vector_fixture *fixture = *state;
    struct eb_bag_query *query = &fixture->query;
    query->missing = EB_MISSING_SKIP;
    query->has_default = true;
    query->default_index = 1;
    assert_reduces(query, EB_REDUCTION_SUM, LIST(99), LIST(B));
    query->default_index = -1;
    assert_reduces(query, EB_REDUCTION_SUM, LIST(99), LIST(0, 0));
}

static void leaves_the_rows_of_missing_indices_zero_with_none_and_skip(void **state)
{
    struct vector_fixture *fixture = *state;
    fixture->query.missing = EB_MISSING_SKIP;
    assert_reduces(&fixture->query, EB_REDUCTION_NONE, LIST(99, 0), LIST(0, 0, A));
}

static void takes_the_place_of_missing_rows_of_codes(void **state)
{
    struct vector_fixture *fixture = *state;
    struct eb_bag_query *query = &fixture->query;
    /* Codes 0 and 3 with scale 0.5 and bias -1: only their bias is added at the end. */
    assert_reduces(query, EB_REDUCTION_SUM, LIST(0, 99), LIST(0.1f + -1, (1.5f - 7) + -1));
    assert_reduces(
        query, EB_REDUCTION_MEAN, LIST(0, 99), LIST((0.1f + -1) / 2, ((1.5f - 7) + -1) / 2));
    assert_reduces(query, EB_REDUCTION_SUM, LIST(99), LIST(V));
    assert_reduces(query, EB_REDUCTION_MAX, LIST(0, 99), LIST(0.1f, 0.5f));
    assert_reduces(query, EB_REDUCTION_MIN, LIST(99, 0), LIST(-1, -7));
    assert_reduces(query, EB_REDUCTION_NONE, LIST(99, 1), LIST(V, B));
}

static void is_weighted_in_the_place_of_missing_rows(void **state)
{
    struct vector_fixture *fixture = *state;
    struct eb_bag_query *query = &fixture->query;
    query->weights = (float[]){2, 3};
    float sums[] = {fmaf(3, 0.1f, 0) + -2, fmaf(3, -7, 3) + -2};
    assert_reduces(query, EB_REDUCTION_SUM, LIST(0, 99), LIST(sums[0], sums[1]));
    assert_reduces(query, EB_REDUCTION_WEIGHTED_MEAN, LIST(0, 99), LIST(sums[0] / 5, sums[1] / 5));
    assert_reduces(query, EB_REDUCTION_NONE, LIST(0, 99), LIST(-2, 1, 3 * 0.1f, -21));
}

static void is_rounded_once_to_the_output_type(void **state)
{
    struct vector_fixture *fixture = *state;
    struct eb_bag_query *query = &fixture->query;
    /* Above the middle between two f16 by less than f32 can express. */
    static const double precise[] = {1.0 + 0x1p-11 + 0x1p-40, -0.0};
    static const double rows[] = {1, 2};
    fixture->table = table_of(EB_F64, rows, 1, 2);
    fixture->table.vector = precise;
    query->missing = EB_MISSING_SKIP;
    query->indices = INTS(((int64_t[]){99}));
    assert_pools(query, precise, sizeof precise);
    query->output_type = EB_F32;
    assert_pools(query, (float[]){1.0f + 0x1p-11f, -0.0f}, 8);
    query->output_type = EB_F16;
    assert_pools(query, (uint16_t[]){0x3c01, 0x8000}, 4);
}

static void keeps_the_bits_of_a_vector_wider_than_the_storage(void **state)
{
    struct vector_fixture *fixture = *state;
    struct eb_bag_query *query = &fixture->query;
    static const uint8_t rows[] = {0x38, 0x40};
    static const float fine[] = {0x1.234568p-140f, 1e38f};
    fixture->table = table_of(EB_F32, rows, 1, 2);
    fixture->table.storage = EB_STORAGE_F8_E4M3;
    fixture->table.row_stride_bytes = 2;
    fixture->table.vector = fine;
    fixture->table.unknown_row = EB_ROW_VECTOR;
    query->indices = INTS(((int64_t[]){99}));
    assert_pools(query, fine, sizeof fine);
    query->missing = EB_MISSING_SKIP;
    assert_pools(query, fine, sizeof fine);
}

static void sums_of_integers_wrap(void **state)
{
    struct vector_fixture *fixture = *state;
    struct eb_bag_query *query = &fixture->query;
    static const int8_t rows[] = {100, -3};
    static const int8_t of_ints[] = {100, 5};
    fixture->table = table_of(EB_I8, rows, 1, 2);
    fixture->table.vector = of_ints;
    fixture->table.unknown_row = EB_ROW_VECTOR;
    query->indices = INTS(((int64_t[]){0, 99}));
    assert_pools(query, (int8_t[]){-56, 2}, 2);
    query->reduction = EB_REDUCTION_MEAN;
    assert_pools(query, (int8_t[]){100, 1}, 2);
    query->missing = EB_MISSING_SKIP;
    query->indices = INTS(((int64_t[]){99}));
    assert_pools(query, of_ints, 2);
}

static void counts_and_lists_what_it_replaces(void **state)
{
    struct vector_fixture *fixture = *state;
    struct eb_bag_query *query = &fixture->query;
    struct bag_fixture checked;
    uint32_t positions[2];
    query->indices = INTS(((int64_t[]){0, 99, 1, -5}));
    assert_true(bag_fixture_check(&checked, query));
    assert_memory_equal(
        checked.job.rows, ((int64_t[]){0, EB_ROW_VECTOR, 1, EB_ROW_VECTOR}), 4 * sizeof(int64_t));
    assert_int_equal(checked.job.missing_count, 2);
    assert_true(checked.job.has_vector_rows);
    assert_false(checked.job.has_zero_rows);
    eb_bag_list_missing(query, 10, 2, positions);
    assert_memory_equal(positions, ((uint32_t[]){11, 13}), sizeof positions);
    bag_fixture_release(&checked);
}

static void needs_no_vector_rows_if_nothing_is_missing(void **state)
{
    struct vector_fixture *fixture = *state;
    struct bag_fixture checked;
    fixture->query.indices = INTS(((int64_t[]){0, 2}));
    assert_true(bag_fixture_check(&checked, &fixture->query));
    assert_false(checked.job.has_vector_rows);
    bag_fixture_release(&checked);
}

/* ---- long bags ---- */

#define LONG_DIM 72
#define LONG_ROWS 50
#define LONG_BAGS 2
#define LONG_ROW_BYTES_MAX (LONG_DIM * sizeof(float))

/* Two bags of `count` indices each. The first and the last index of each are missing. */
struct long_bags {
    struct eb_table table;
    struct eb_bag_query query;
    uint8_t *memory; /* the rows, with the vector before or behind them */
    struct eb_row_scale scales[LONG_ROWS];
    int64_t *indices;
    float *weights;
};

static void make_long_bags(
    struct long_bags *bags, enum eb_storage storage, uint32_t count, bool is_before)
{
    size_t index_count = (size_t)LONG_BAGS * count;
    bags->memory = malloc((LONG_ROWS + 1) * LONG_ROW_BYTES_MAX);
    bags->indices = malloc(index_count * sizeof bags->indices[0]);
    bags->weights = malloc(index_count * sizeof bags->weights[0]);
    assert_true(bags->memory && bags->indices && bags->weights);
    for (size_t i = 0; i < (LONG_ROWS + 1) * LONG_DIM; i++) {
        float value = (float)(i * 37 % 101) / 7 - 5;
        memcpy(bags->memory + i * sizeof value, &value, sizeof value);
    }
    for (size_t i = 0; i < LONG_ROWS; i++) {
        bags->scales[i] = (struct eb_row_scale){(float)(i + 1) / 9, (float)i / 7 - 3};
    }
    for (size_t i = 0; i < index_count; i++) {
        bool is_missing = i % count == 0 || i % count == count - 1;
        bags->indices[i] = is_missing ? -1 : (int64_t)i * 7 % LONG_ROWS;
        bags->weights[i] = (float)(i % 13) / 3 - 1;
    }
    bool is_code = eb_storage_is_code(storage);
    bags->table =
        table_of(EB_F32, bags->memory + (is_before ? LONG_ROW_BYTES_MAX : 0), LONG_ROWS, LONG_DIM);
    bags->table.storage = storage;
    bags->table.scales = is_code ? bags->scales : NULL;
    bags->table.scale_stride_bytes = sizeof bags->scales[0];
    bags->table.vector = bags->memory + (is_before ? 0 : LONG_ROWS * LONG_ROW_BYTES_MAX);
    bags->table.unknown_row = EB_ROW_VECTOR;
    bags->query = query_of(&bags->table);
    bags->query.missing = EB_MISSING_UNKNOWN_ROW;
    bags->query.layout = EB_LAYOUT_PACKED;
    bags->query.indices_per_bag = count;
    bags->query.indices = (struct eb_int_array){bags->indices, index_count * 8, 8};
}

static void release_long_bags(struct long_bags *bags)
{
    free(bags->memory);
    free(bags->indices);
    free(bags->weights);
}

/* Expects every variant to pool the bags as the reference does. */
static void compare_long_bags(const struct eb_bag_query *query)
{
    struct bag_fixture expected;
    assert_true(bag_fixture_check(&expected, query));
    assert_true(expected.job.has_vector_rows);
    bag_fixture_pool(&expected, eb_bag_ops_find("ref"));
    const struct eb_bag_ops *ops;
    for (size_t n = 1; (ops = eb_bag_ops_at(n)); n++) {
        float out[LONG_BAGS * LONG_DIM] = {0};
        expected.job.out = (uint8_t *)out;
        if (eb_bag_ops_runs_here(ops)) {
            eb_bag_pool(ops, &expected.job, 0, LONG_BAGS);
            assert_memory_equal(out, expected.out, sizeof out);
        }
    }
    bag_fixture_release(&expected);
}

static void compare_long_reductions(enum eb_storage storage, uint32_t count, bool is_before)
{
    static const enum eb_reduction weighted[] = {
        EB_REDUCTION_SUM, EB_REDUCTION_WEIGHTED_MEAN, EB_REDUCTION_SQRTN};
    struct long_bags bags;
    make_long_bags(&bags, storage, count, is_before);
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_NONE; reduction++) {
        bags.query.reduction = (enum eb_reduction)reduction;
        compare_long_bags(&bags.query);
    }
    bags.query.weights = bags.weights;
    bags.query.weights_bytes = bags.query.indices.bytes / 2;
    bags.query.weights_type = EB_F32;
    for (size_t i = 0; i < sizeof weighted / sizeof weighted[0]; i++) {
        bags.query.reduction = weighted[i];
        compare_long_bags(&bags.query);
    }
    release_long_bags(&bags);
}

static void long_bags_equal_the_reference(void **state)
{
    (void)state;
    /* Variants pool bags of at most 1024 rows of tables stored as T, and of at most 512 of others.
     */
    static const uint32_t counts[] = {1, 2, 100, 511, 512, 513, 1023, 1024, 1025, 3000};
    static const enum eb_storage storages[] = {
        EB_STORAGE_F32, EB_STORAGE_BF16, EB_STORAGE_F8_E5M2, EB_STORAGE_INT8, EB_STORAGE_INT2};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (size_t k = 0; k < sizeof storages / sizeof storages[0]; k++) {
            compare_long_reductions(storages[k], counts[i], i % 2);
            compare_long_reductions(storages[k], counts[i], i % 2 == 0);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(bag_vector)
{
    const struct CMUnitTest tests[] = {
        TEST(fills_empty_bags_whatever_the_reduction),
        TEST(yields_to_the_default_of_a_query),
        TEST(leaves_the_rows_of_missing_indices_zero_with_none_and_skip),
        TEST(takes_the_place_of_missing_rows_of_codes),
        TEST(is_weighted_in_the_place_of_missing_rows),
        TEST(is_rounded_once_to_the_output_type),
        TEST(keeps_the_bits_of_a_vector_wider_than_the_storage),
        TEST(sums_of_integers_wrap),
        TEST(counts_and_lists_what_it_replaces),
        TEST(needs_no_vector_rows_if_nothing_is_missing),
        TEST(long_bags_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
