#include "tests/unit/bench/bench_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void holds_rows_of_the_table_and_small_weights(void **state)
{
    (void)state;
    struct bench_fixture fixture;
    bench_fixture_init(&fixture, EB_STORAGE_F16, true);
    const float *weights = fixture.stock.weights;
    for (uint64_t i = 0; i < fixture.stock.count; i++) {
        assert_in_range(fixture.stock.indices[i], 0, 99);
        assert_true(weights[i] >= -1 && weights[i] < 1);
    }
    bench_fixture_deinit(&fixture);
}

static void gives_integer_tables_weights_of_their_type(void **state)
{
    (void)state;
    struct bench_fixture fixture;
    bench_fixture_init(&fixture, EB_STORAGE_I8, true);
    const int8_t *weights = fixture.stock.weights;
    for (uint64_t i = 0; i < fixture.stock.count; i++) {
        assert_in_range(weights[i], 0, 3);
    }
    bench_fixture_deinit(&fixture);
}

static void has_no_weights_unless_wanted(void **state)
{
    (void)state;
    struct bench_fixture fixture;
    bench_fixture_init(&fixture, EB_STORAGE_F32, false);
    assert_null(fixture.stock.weights);
    bench_fixture_deinit(&fixture);
}

static void is_as_large_as_the_caches_ask_for(void **state)
{
    (void)state;
    struct eb_table small = {
        .row_count = 100, .row_stride_bytes = 512, .row_elements = 128, .storage = EB_STORAGE_F32};
    struct eb_table large = {.row_count = UINT32_MAX,
        .row_stride_bytes = 16,
        .row_elements = 4,
        .storage = EB_STORAGE_F32};
    uint64_t of_small = eb_bench_stock_size(&small, 1);
    assert_true(of_small > 0 && of_small <= eb_bench_stock_size(&large, 1));
    assert_int_equal(eb_bench_stock_size(&large, UINT64_C(1) << 30), UINT64_C(1) << 30);
}

static void starts_bags_evenly(void **state)
{
    (void)state;
    int32_t *offsets = eb_bench_stock_make_offsets(3, 7);
    for (int32_t bag = 0; bag <= 3; bag++) {
        assert_int_equal(offsets[bag], bag * 7);
    }
    free(offsets);
}

EB_TEST_GROUP(bench_stock)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_rows_of_the_table_and_small_weights),
        cmocka_unit_test(gives_integer_tables_weights_of_their_type),
        cmocka_unit_test(has_no_weights_unless_wanted),
        cmocka_unit_test(is_as_large_as_the_caches_ask_for),
        cmocka_unit_test(starts_bags_evenly),
    };
    return cmocka_run_group_tests_name("bench_stock", tests, NULL, NULL);
}
