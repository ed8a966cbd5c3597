/* Every table of functions rounds results of f64 tables once, whatever the output type is. */
#include "tests/unit/kernels/bag_fixture.h"

#include "kernels/element.h"
#include "tests/lib/test_group.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CODE_COUNT 65536
#define VALUES_PER_CODE 5
#define VALUE_COUNT (CODE_COUNT * VALUES_PER_CODE)

/* Makes numbers at and beside every code of a 16-bit type, or some codes of f32, and at and beside
 * the midpoint between each code and the next. */
static void make_values(enum eb_type type, double *values)
{
    size_t count = 0;
    for (uint32_t i = 0; i < CODE_COUNT; i++) {
        uint32_t code = type == EB_F32 ? i * 65537 : i;
        uint32_t next_code = code + 1;
        double value = eb_element_load_float((enum eb_storage)type, &code);
        double middle = value / 2 + eb_element_load_float((enum eb_storage)type, &next_code) / 2;
        values[count++] = value;
        values[count++] = nextafter(value, INFINITY);
        values[count++] = middle;
        values[count++] = nextafter(middle, INFINITY);
        values[count++] = nextafter(middle, -INFINITY);
    }
    assert_int_equal(count, VALUE_COUNT);
}

/* Overwrites the first values. */
static void put_extremes(double *values)
{
    static const double extremes[] = {0x1p-1074, -0x1p-1074, 0x1p-1022, DBL_MAX, -DBL_MAX, FLT_MAX,
        FLT_MAX + 0x1p103, -FLT_MAX - 0x1p102, 0x1p-149, 0x1p-150, 0x1.8p-150, -0x1.8p-149, 65504,
        65519.999, 65520, -65520};
    memcpy(values, extremes, sizeof extremes);
}

static void assert_rounded_once(const double *values, enum eb_type type)
{
    struct eb_table table = table_of(EB_F64, values, 1, VALUE_COUNT);
    struct eb_bag_query query = query_of(&table);
    query.num_bags = 1;
    query.output_type = type;
    query.indices = INTS(((int64_t[]){0}));
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        struct bag_fixture fixture;
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        assert_true(bag_fixture_check(&fixture, &query));
        bag_fixture_pool(&fixture, ops);
        for (size_t i = 0; i < VALUE_COUNT; i++) {
            uint64_t expected = 0;
            eb_element_store_float(type, values[i], &expected);
            size_t bytes = eb_type_bytes(type);
            if (memcmp(fixture.out + i * bytes, &expected, bytes) != 0) {
                fail_msg("%s: %a to %s", eb_bag_ops_name(ops), values[i], eb_type_name(type));
            }
        }
        bag_fixture_release(&fixture);
    }
}

static void rounds_once(void **state)
{
    (void)state;
    static const enum eb_type types[] = {EB_F16, EB_BF16, EB_F32};
    double *values = malloc(VALUE_COUNT * sizeof values[0]);
    assert_non_null(values);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        make_values(types[t], values);
        assert_rounded_once(values, types[t]);
        put_extremes(values);
        assert_rounded_once(values, types[t]);
    }
    free(values);
}

EB_TEST_GROUP(bag_f64)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
