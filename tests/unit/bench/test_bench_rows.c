#include "tests/bench/bench_roofline.h"
#include "tests/bench/bench_rows.h"
#include "tests/lib/test_group.h"
#include "tests/unit/bench/bench_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void lists_rows_in_the_order_of_pooling(void **state)
{
    (void)state;
    struct bench_fixture fixture;
    struct eb_bench_rows rows;
    bench_fixture_init(&fixture, EB_STORAGE_INT8, false);
    struct eb_table *table = &fixture.table.table;
    /* Makes the table look as if its scales were stored apart from its rows. */
    table->scale_stride_bytes = sizeof(struct eb_row_scale);
    eb_bench_rows_init(&rows, &fixture.bench, 2);
    eb_bench_rows_list(&rows, &fixture.bench, 0, 3);
    assert_int_equal(rows.count, 30);
    assert_int_equal(rows.row_bytes, 24);
    for (uint64_t i = 0; i < rows.count; i++) {
        uint64_t row = (uint64_t)fixture.stock.indices[45 + i];
        assert_ptr_equal(
            rows.rows[i], (const uint8_t *)table->rows + row * table->row_stride_bytes);
        assert_ptr_equal(
            rows.scales[i], (const uint8_t *)table->scales + row * table->scale_stride_bytes);
    }
    eb_bench_rows_list_peer(&rows, &fixture.bench, 0, 3);
    assert_int_equal(rows.count, 30);
    assert_ptr_equal(
        rows.rows[0], (const uint8_t *)fixture.table.peer_rows +
                          (uint64_t)fixture.stock.indices[45] * fixture.table.peer_stride_bytes);
    eb_bench_rows_deinit(&rows);
    bench_fixture_deinit(&fixture);
}

static void takes_scales_in_front_for_a_part_of_the_row(void **state)
{
    (void)state;
    struct bench_fixture fixture;
    struct eb_bench_rows rows;
    bench_fixture_init(&fixture, EB_STORAGE_INT8, false);
    const struct eb_table *table = &fixture.table.table;
    eb_bench_rows_init(&rows, &fixture.bench, 1);
    eb_bench_rows_list(&rows, &fixture.bench, 0, 0);
    assert_null(rows.scales);
    assert_int_equal(rows.row_bytes, sizeof(struct eb_row_scale) + 24);
    assert_ptr_equal(
        rows.rows[0], (const uint8_t *)table->scales +
                          (uint64_t)fixture.stock.indices[0] * table->scale_stride_bytes);
    eb_bench_rows_deinit(&rows);
    bench_fixture_deinit(&fixture);
}

static void reads_the_same_words_whatever_the_way(void **state)
{
    (void)state;
    struct bench_fixture fixture;
    bench_fixture_init(&fixture, EB_STORAGE_F32, false);
    uint64_t first = 0;
    for (unsigned way = 0; way < eb_bench_roofline_way_count(); way++) {
        struct eb_bench_roofline roofline;
        eb_bench_roofline_init(&roofline, &fixture.bench, 0, 4);
        roofline.way = way;
        struct eb_bench_runner runner = eb_bench_roofline_runner(&roofline);
        runner.prepare(runner.self, 1);
        runner.run(runner.self);
        first = way == 0 ? roofline.sum : first;
        assert_true(roofline.sum == first && first != 0);
        eb_bench_roofline_deinit(&roofline);
    }
    bench_fixture_deinit(&fixture);
}

static void leaves_flushed_rows_as_they_are(void **state)
{
    (void)state;
    struct bench_fixture fixture;
    struct eb_bench_rows rows;
    bench_fixture_init(&fixture, EB_STORAGE_F32, false);
    eb_bench_rows_init(&rows, &fixture.bench, 1);
    eb_bench_rows_list(&rows, &fixture.bench, 0, 0);
    float before = *(const float *)(const void *)rows.rows[0];
    eb_bench_rows_flush(&rows);
    assert_memory_equal(rows.rows[0], &before, sizeof before);
    eb_bench_rows_deinit(&rows);
    bench_fixture_deinit(&fixture);
}

EB_TEST_GROUP(bench_rows)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_rows_in_the_order_of_pooling),
        cmocka_unit_test(takes_scales_in_front_for_a_part_of_the_row),
        cmocka_unit_test(reads_the_same_words_whatever_the_way),
        cmocka_unit_test(leaves_flushed_rows_as_they_are),
    };
    return cmocka_run_group_tests_name("bench_rows", tests, NULL, NULL);
}
