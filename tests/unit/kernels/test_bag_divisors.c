/* Jobs that bring the divisors of their means, as those that merge the sums of parts do. */
#include "kernels/element.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 16
#define BAGS 9
#define ELEMENTS_MAX 67

/* Bags of one row, empty bags, and equal bags one after the other with more than a few rows. */
static const int64_t indices[] = {
    3, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 7, 7, 0, 15, 8, 9};
static const int32_t lengths[BAGS] = {1, 5, 5, 5, 0, 2, 1, 0, 3};
/* Of equal bags, each has a divisor of its own. */
static const double divisors[BAGS] = {2, 5, 3, 0, 9, INFINITY, NAN, 1, -7.5};

struct fixture {
    struct eb_table table;
    struct bag_fixture bag;
    uint8_t rows[ROWS * ELEMENTS_MAX * sizeof(double)];
    float narrow[BAGS];
    double wide[BAGS];
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    for (size_t bag = 0; bag < BAGS; bag++) {
        fixture->narrow[bag] = (float)divisors[bag];
        fixture->wide[bag] = divisors[bag];
    }
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

/* Fills a table of `elements` columns with values whose sums are rounded. */
static void fill_table(struct fixture *fixture, enum eb_type type, uint32_t elements)
{
    for (uint32_t i = 0; i < ROWS * elements; i++) {
        double value = (i % 31 == 7 ? -0.0 : (double)(i * 7919 % 1013) / 997 - 0.5) * (i % 5);
        eb_element_store_float(type, value, fixture->rows + i * eb_type_bytes(type));
    }
    fixture->table = table_of(type, fixture->rows, ROWS, elements);
}

static struct eb_bag_query mean_of(
    const struct fixture *fixture, enum eb_reduction reduction, enum eb_type output_type)
{
    struct eb_bag_query query = query_of(&fixture->table);
    query.reduction = reduction;
    query.output_type = output_type;
    query.layout = EB_LAYOUT_LENGTHS;
    query.indices = INTS(indices);
    query.bounds = INTS(lengths);
    return query;
}

/* Returns the result of a query with these functions, with or without the divisors. The caller
 * frees it. */
static uint8_t *pool_divided(struct fixture *fixture, const struct eb_bag_query *query,
    const struct eb_bag_ops *ops, bool is_divided)
{
    assert_true(bag_fixture_check(&fixture->bag, query));
    bool is_wide = fixture->table.type == EB_F64;
    const void *given = is_wide ? (const void *)fixture->wide : fixture->narrow;
    assert_null(fixture->bag.job.divisors);
    fixture->bag.job.divisors = is_divided ? given : NULL;
    bag_fixture_pool(&fixture->bag, ops);
    size_t bytes = BAGS * fixture->bag.extent.result_row_bytes;
    uint8_t *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, fixture->bag.out, bytes);
    bag_fixture_release(&fixture->bag);
    return copy;
}

/* Expects sums of the table's own type, divided. */
static void assert_divided(const struct fixture *fixture, const uint8_t *sums, const uint8_t *means)
{
    enum eb_type type = fixture->table.type;
    uint32_t elements = fixture->table.row_elements;
    for (uint32_t i = 0; i < BAGS * elements; i++) {
        double divisor = lengths[i / elements] == 0 ? 1 : divisors[i / elements];
        size_t at = i * eb_type_bytes(type);
        double sum = eb_element_load_float((enum eb_storage)type, sums + at);
        double mean = type == EB_F64 ? sum / divisor : (double)((float)sum / (float)divisor);
        uint8_t expected[sizeof(double)];
        eb_element_store_float(type, divisor == 0 ? 0 : mean, expected);
        assert_memory_equal(means + at, expected, eb_type_bytes(type));
    }
}

static void divides_each_bag_by_its_divisor(void **state)
{
    struct fixture *fixture = *state;
    static const enum eb_type types[] = {EB_F32, EB_F64};
    static const enum eb_reduction means[] = {
        EB_REDUCTION_MEAN, EB_REDUCTION_WEIGHTED_MEAN, EB_REDUCTION_SQRTN};
    for (size_t t = 0; t < 2; t++) {
        for (uint32_t elements = 1; elements <= ELEMENTS_MAX; elements += 6) {
            fill_table(fixture, types[t], elements);
            struct eb_bag_query query = mean_of(fixture, EB_REDUCTION_SUM, EB_TYPE_UNSPECIFIED);
            uint8_t *sums = pool_divided(fixture, &query, eb_bag_ops_find("ref"), false);
            query.reduction = means[elements % 3];
            uint8_t *divided = pool_divided(fixture, &query, eb_bag_ops_find("ref"), true);
            assert_divided(fixture, sums, divided);
            free(sums);
            free(divided);
        }
    }
}

/* Compares the divided results of a query with the reference's. */
static void assert_variants_agree(struct fixture *fixture, const struct eb_bag_query *query)
{
    uint8_t *expected = pool_divided(fixture, query, eb_bag_ops_find("ref"), true);
    for (size_t n = 0; eb_bag_ops_at(n); n++) {
        if (eb_bag_ops_runs_here(eb_bag_ops_at(n))) {
            uint8_t *actual = pool_divided(fixture, query, eb_bag_ops_at(n), true);
            assert_memory_equal(actual, expected, BAGS * fixture->bag.extent.result_row_bytes);
            free(actual);
        }
    }
    free(expected);
}

static void every_variant_gives_the_same_bits(void **state)
{
    struct fixture *fixture = *state;
    static const enum eb_type types[] = {EB_F32, EB_F64, EB_F16, EB_BF16};
    static const enum eb_type outputs[] = {EB_TYPE_UNSPECIFIED, EB_F32, EB_F16, EB_BF16};
    for (size_t t = 0; t < 4; t++) {
        for (uint32_t elements = 1; elements <= ELEMENTS_MAX; elements += 3) {
            fill_table(fixture, types[t], elements);
            struct eb_bag_query query = mean_of(fixture, EB_REDUCTION_MEAN, outputs[elements % 4]);
            assert_variants_agree(fixture, &query);
        }
    }
}

static void sums_ignore_divisors(void **state)
{
    struct fixture *fixture = *state;
    fill_table(fixture, EB_F32, 8);
    struct eb_bag_query query = mean_of(fixture, EB_REDUCTION_SUM, EB_F16);
    for (size_t n = 0; eb_bag_ops_at(n); n++) {
        if (eb_bag_ops_runs_here(eb_bag_ops_at(n))) {
            uint8_t *with = pool_divided(fixture, &query, eb_bag_ops_at(n), true);
            uint8_t *without = pool_divided(fixture, &query, eb_bag_ops_at(n), false);
            assert_memory_equal(with, without, BAGS * 8 * 2);
            free(with);
            free(without);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(bag_divisors)
{
    const struct CMUnitTest tests[] = {
        TEST(divides_each_bag_by_its_divisor),
        TEST(every_variant_gives_the_same_bits),
        TEST(sums_ignore_divisors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
