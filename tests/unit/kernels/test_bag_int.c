/* Integer tables, pooled by every table of functions: which results wrap, which are exact, and
 * which are truncated. */
#include "tests/unit/kernels/bag_fixture.h"

#include "tests/lib/test_group.h"

#include <string.h>

static const enum eb_type types[] = {EB_I8, EB_U8, EB_I16, EB_U16, EB_I32, EB_U32, EB_I64, EB_U64};
#define TYPE_COUNT (sizeof types / sizeof types[0])

/* The last dim is longer than two blocks of the narrowest type, and is not a whole number of
 * vectors. */
static const uint32_t dims[] = {1, 3, 7, 8, 31, 64, 100, 257, 1091};
#define DIM_COUNT (sizeof dims / sizeof dims[0])
#define DIM_MAX 1091

/* A bag is tested only with dims that give it fewer elements than this. */
#define WORK_MAX 100000

#define INDEX_COUNT_MAX 3001

/* A bag of rows in which all columns have the same value. */
struct bag {
    enum eb_type type;
    uint64_t rows[2];
    const int64_t *indices; /* [index_count]; an index past the rows stands for the zero row */
    size_t index_count;
    const void *weights; /* of the type; NULL: none */
    enum eb_reduction reduction;
};

static uint64_t least(enum eb_type type)
{
    return eb_type_is_signed(type) ? -(UINT64_C(1) << (8 * eb_type_bytes(type) - 1)) : 0;
}

static uint64_t greatest(enum eb_type type)
{
    return least(type) + (UINT64_MAX >> (64 - 8 * eb_type_bytes(type)));
}

/* Divides as C does, signed if the type is signed. */
static uint64_t quotient(enum eb_type type, uint64_t sum, uint64_t count)
{
    return eb_type_is_signed(type) ? (uint64_t)((int64_t)sum / (int64_t)count) : sum / count;
}

static void fill_row(enum eb_type type, uint64_t value, uint32_t dim, uint8_t *row)
{
    for (uint32_t i = 0; i < dim; i++) {
        memcpy(row + i * eb_type_bytes(type), &value, eb_type_bytes(type));
    }
}

static void assert_pooled_by_all(const struct eb_bag_query *query, const uint8_t *row, size_t bytes)
{
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        struct bag_fixture fixture;
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        assert_true(bag_fixture_check(&fixture, query));
        bag_fixture_pool(&fixture, ops);
        assert_memory_equal(fixture.out, row, bytes);
        bag_fixture_release(&fixture);
    }
}

/* Expects every column of the bag's result to have the low bits of `expected`, for each number of
 * columns. */
static void expect(const struct bag *bag, uint64_t expected)
{
    static uint8_t rows[2 * DIM_MAX * sizeof(uint64_t)];
    static uint8_t result[DIM_MAX * sizeof(uint64_t)];
    size_t element_bytes = eb_type_bytes(bag->type);
    for (size_t d = 0; d < DIM_COUNT && dims[d] * bag->index_count < WORK_MAX; d++) {
        fill_row(bag->type, bag->rows[0], dims[d], rows);
        fill_row(bag->type, bag->rows[1], dims[d], rows + dims[d] * element_bytes);
        fill_row(bag->type, expected, dims[d], result);
        struct eb_table table = table_of(bag->type, rows, 2, dims[d]);
        struct eb_bag_query query = query_of(&table);
        query.reduction = bag->reduction;
        query.missing = EB_MISSING_ZERO;
        query.num_bags = 1;
        query.indices = (struct eb_int_array){bag->indices, bag->index_count * 8, 8};
        query.weights = bag->weights;
        query.weights_type = bag->weights ? bag->type : EB_TYPE_UNSPECIFIED;
        query.weights_bytes = bag->weights ? bag->index_count * element_bytes : 0;
        assert_pooled_by_all(&query, result, dims[d] * element_bytes);
    }
}

static void sums_wrap(void **state)
{
    (void)state;
    static const int64_t indices[17] = {0, 0, 0, 1, 0, 0, 2, 0};
    for (size_t t = 0; t < TYPE_COUNT; t++) {
        struct bag bag = {
            .type = types[t],
            .rows = {greatest(types[t]), least(types[t])},
            .indices = indices,
            .index_count = 17,
            .reduction = EB_REDUCTION_SUM,
        };
        expect(&bag, 15 * greatest(types[t]) + least(types[t]));
    }
}

static void products_wrap(void **state)
{
    (void)state;
    enum { COUNT = 35 };
    for (size_t t = 0; t < TYPE_COUNT; t++) {
        int64_t indices[COUNT];
        uint8_t weights[COUNT * sizeof(uint64_t)];
        struct bag bag = {
            .type = types[t],
            .rows = {greatest(types[t]), least(types[t]) + 3},
            .indices = indices,
            .index_count = COUNT,
            .weights = weights,
            .reduction = EB_REDUCTION_SUM,
        };
        uint64_t sum = 0;
        for (uint64_t i = 0; i < COUNT; i++) {
            uint64_t weight = i % 5 ? i * UINT64_C(0x9e3779b97f4a7c15) : least(types[t]);
            indices[i] = (int64_t)(i % 3);
            memcpy(weights + i * eb_type_bytes(types[t]), &weight, eb_type_bytes(types[t]));
            sum += indices[i] == 2 ? 0 : weight * bag.rows[indices[i]];
        }
        expect(&bag, sum);
    }
}

static void extremes_know_the_sign(void **state)
{
    (void)state;
    static const int64_t indices[] = {0, 2, 1};
    for (size_t t = 0; t < TYPE_COUNT; t++) {
        struct bag bag = {
            .type = types[t],
            .rows = {least(types[t]), greatest(types[t])},
            .indices = indices,
            .index_count = 3,
            .reduction = EB_REDUCTION_MAX,
        };
        expect(&bag, greatest(types[t]));
        bag.reduction = EB_REDUCTION_MIN;
        expect(&bag, least(types[t]));
        const uint64_t neighbours[2] = {UINT64_MAX, UINT64_MAX - 1};
        memcpy(bag.rows, neighbours, sizeof neighbours);
        bag.indices = (int64_t[]){0, 1, 1};
        expect(&bag, UINT64_MAX - 1);
        bag.reduction = EB_REDUCTION_MAX;
        expect(&bag, UINT64_MAX);
        /* The zero row takes part in the comparison. */
        bag.rows[0] = least(types[t]);
        bag.indices = indices;
        bag.index_count = 2;
        expect(&bag, 0);
    }
}

static void means_are_cut_off(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 3, 4, 5, 7, 16, 17, 1000};
    /* Index 0, and then indices past the two rows, which stand for the zero row. */
    int64_t indices[1000] = {0};
    for (size_t i = 1; i < 1000; i++) {
        indices[i] = 2;
    }
    for (size_t t = 0; t < TYPE_COUNT; t++) {
        const uint64_t values[] = {least(types[t]), least(types[t]) + 1, greatest(types[t]),
            greatest(types[t]) - 1, 100, 14, 15, 1,
            eb_type_is_signed(types[t]) ? -UINT64_C(15) : 0};
        for (size_t i = 0; i < 81; i++) {
            struct bag bag = {
                .type = types[t],
                .rows = {values[i / 9]},
                .indices = indices,
                .index_count = counts[i % 9],
                .reduction = EB_REDUCTION_MEAN,
            };
            expect(&bag, quotient(types[t], values[i / 9], counts[i % 9]));
        }
    }
}

static void means_are_of_the_exact_sum(void **state)
{
    (void)state;
    static int64_t indices[INDEX_COUNT_MAX];
    indices[INDEX_COUNT_MAX - 1] = 1;
    for (size_t i = 0; i < 2 * TYPE_COUNT; i++) {
        enum eb_type type = types[i / 2];
        struct bag bag = {
            .type = type,
            .rows = {i % 2 ? greatest(type) : least(type), 1},
            .indices = indices,
            .index_count = INDEX_COUNT_MAX,
            .reduction = EB_REDUCTION_MEAN,
        };
        /* If the type has 64 bits, the sum wraps. */
        expect(&bag, quotient(type, (INDEX_COUNT_MAX - 1) * bag.rows[0] + 1, INDEX_COUNT_MAX));
    }
}

EB_TEST_GROUP(bag_int)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_wrap),
        cmocka_unit_test(products_wrap),
        cmocka_unit_test(extremes_know_the_sign),
        cmocka_unit_test(means_are_cut_off),
        cmocka_unit_test(means_are_of_the_exact_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
