/* The default vector of a table: in empty bags, and in the place of missing rows. */
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
    /* Just above the middle between two f16, by less than f32 holds. */
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

/* Expects every variant to pool bags of `count` indices, of which the first and the last are
 * missing, as the reference does. The vector lies before or behind the rows. */
static void compare_long_bags(uint32_t count, bool is_before)
{
    enum { DIM = 72, ROWS = 50 };
    float *memory = malloc((ROWS + 1) * DIM * sizeof *memory);
    int64_t *indices = malloc(2 * count * sizeof *indices);
    float *weights = malloc(2 * count * sizeof *weights);
    assert_true(memory && indices && weights);
    for (int i = 0; i < (ROWS + 1) * DIM; i++) {
        memory[i] = (float)(i * 37 % 101) / 7 - 5;
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        bool is_missing = i % count == 0 || i % count == count - 1;
        indices[i] = is_missing ? -1 : (int64_t)i * 7 % ROWS;
        weights[i] = (float)(i % 13) / 3 - 1;
    }
    struct eb_table table = table_of(EB_F32, memory + (is_before ? DIM : 0), ROWS, DIM);
    table.vector = is_before ? memory : memory + ROWS * DIM;
    table.unknown_row = EB_ROW_VECTOR;
    struct eb_bag_query query = query_of(&table);
    query.missing = EB_MISSING_UNKNOWN_ROW;
    query.layout = EB_LAYOUT_PACKED;
    query.indices_per_bag = count;
    query.indices = (struct eb_int_array){indices, 2 * count * sizeof *indices, 8};
    query.weights = weights;
    query.weights_bytes = 2 * count * sizeof *weights;
    query.weights_type = EB_F32;
    struct bag_fixture expected;
    assert_true(bag_fixture_check(&expected, &query));
    bag_fixture_pool(&expected, eb_bag_ops_find("ref"));
    const struct eb_bag_ops *ops;
    for (size_t n = 1; (ops = eb_bag_ops_at(n)); n++) {
        float out[2 * DIM] = {0};
        expected.job.out = (uint8_t *)out;
        if (eb_bag_ops_runs_here(ops)) {
            eb_bag_pool(ops, &expected.job, 0, 2);
            assert_memory_equal(out, expected.out, sizeof out);
        }
    }
    bag_fixture_release(&expected);
    free(memory);
    free(indices);
    free(weights);
}

static void long_bags_equal_the_reference(void **state)
{
    (void)state;
    /* 1024 is the most rows of a bag that a variant's own function pools. */
    static const uint32_t counts[] = {1, 2, 1023, 1024, 1025, 3000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        compare_long_bags(counts[i], true);
        compare_long_bags(counts[i], false);
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
