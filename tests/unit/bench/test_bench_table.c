#include "kernels/element.h"
#include "kernels/fused_row.h"
#include "kernels/table.h"
#include "tests/lib/test_group.h"
#include "tests/unit/bench/bench_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 300
#define DIM 20

static struct eb_bench_table make(enum eb_storage storage, bool has_scales_apart)
{
    struct eb_bench_table_spec spec = {.storage = storage,
        .dim = DIM,
        .row_count = ROWS,
        .seed = 3,
        .has_scales_apart = has_scales_apart,
        .pages = EB_PAGE_2M,
        .has_peer = true,
        .peer_pages = EB_PAGE_2M};
    struct eb_bench_table table;
    struct eb_failure failure;
    assert_true(eb_bench_table_init(&table, &spec, &failure));
    return table;
}

static const uint8_t *row_of(const struct eb_bench_table *table, uint64_t row)
{
    return (const uint8_t *)table->table.rows + row * table->table.row_stride_bytes;
}

static void fills_rows_with_finite_values_that_differ(void **state)
{
    (void)state;
    static const enum eb_storage storages[] = {EB_STORAGE_F32, EB_STORAGE_F64, EB_STORAGE_F16,
        EB_STORAGE_BF16, EB_STORAGE_F8_E4M3, EB_STORAGE_F8_E5M2};
    for (size_t n = 0; n < sizeof storages / sizeof storages[0]; n++) {
        struct eb_bench_table table = make(storages[n], false);
        uint64_t bytes = eb_storage_row_bytes(storages[n], DIM);
        for (uint64_t row = 0; row < ROWS; row++) {
            for (uint32_t i = 0; i < DIM; i++) {
                double x = eb_element_load_float(
                    storages[n], row_of(&table, row) + i * eb_storage_bytes(storages[n]));
                assert_true(isfinite(x) && fabs(x) <= 2);
            }
            assert_memory_not_equal(row_of(&table, row), row_of(&table, (row + 1) % ROWS), bytes);
        }
        eb_bench_table_deinit(&table);
    }
}

static void lends_dense_rows_to_the_peer(void **state)
{
    (void)state;
    struct eb_bench_table table = make(EB_STORAGE_F16, false);
    assert_ptr_equal(table.peer_rows, table.table.rows);
    assert_int_equal(table.peer_stride_bytes, table.table.row_stride_bytes);
    eb_bench_table_deinit(&table);
}

static void copies_dense_rows_into_other_pages(void **state)
{
    (void)state;
    struct eb_bench_table_spec spec = {.storage = EB_STORAGE_F32,
        .dim = DIM,
        .row_count = ROWS,
        .has_peer = true,
        .pages = EB_PAGE_2M,
        .peer_pages = EB_PAGE_SMALL};
    struct eb_bench_table table;
    struct eb_failure failure;
    assert_true(eb_bench_table_init(&table, &spec, &failure));
    assert_ptr_not_equal(table.peer_rows, table.table.rows);
    assert_memory_equal(table.peer_rows, table.table.rows, ROWS * table.table.row_stride_bytes);
    eb_bench_table_deinit(&table);
}

static void tells_the_peer_the_same_codes_and_scales(void **state)
{
    (void)state;
    static const enum eb_storage storages[] = {EB_STORAGE_INT8, EB_STORAGE_INT4, EB_STORAGE_INT2};
    for (size_t n = 0; n < 6; n++) {
        enum eb_storage storage = storages[n / 2];
        struct eb_bench_table table = make(storage, n % 2 > 0);
        struct eb_fused_format format = {.storage = storage,
            .layout = storage == EB_STORAGE_INT8 ? EB_FUSED_F32_LAST : EB_FUSED_F16_LAST,
            .elements = DIM};
        uint64_t bytes = eb_storage_row_bytes(storage, DIM);
        assert_int_equal(table.peer_stride_bytes, eb_fused_row_bytes(&format));
        for (uint64_t row = 0; row < ROWS; row++) {
            uint8_t codes[DIM];
            struct eb_row_scale scale;
            struct eb_row_scale own = eb_table_scale(&table.table, row);
            eb_fused_row_split(&format,
                (const uint8_t *)table.peer_rows + row * table.peer_stride_bytes, codes, &scale);
            assert_memory_equal(codes, row_of(&table, row), bytes);
            assert_memory_equal(&scale, &own, sizeof scale);
            assert_true(own.scale > 0 && isfinite(own.bias));
        }
        eb_bench_table_deinit(&table);
    }
}

static void puts_scales_where_they_are_wanted(void **state)
{
    (void)state;
    struct eb_bench_table apart = make(EB_STORAGE_INT8, true);
    struct eb_bench_table own = make(EB_STORAGE_INT8, false);
    struct eb_row_format format = eb_row_format_of(EB_STORAGE_INT8, DIM);
    assert_int_equal(apart.table.scale_stride_bytes, sizeof(struct eb_row_scale));
    assert_int_equal(own.table.row_stride_bytes, format.stride_bytes);
    assert_int_equal(own.table.scale_stride_bytes, format.stride_bytes);
    assert_ptr_equal((const uint8_t *)own.table.scales + format.row_offset_bytes, own.table.rows);
    eb_bench_table_deinit(&apart);
    eb_bench_table_deinit(&own);
}

static void refuses_more_than_there_is_memory(void **state)
{
    (void)state;
    struct eb_bench_table_spec spec = {
        .storage = EB_STORAGE_F64, .dim = EB_BENCH_DIM_MAX, .row_count = UINT32_MAX};
    struct eb_bench_table table;
    struct eb_failure failure;
    assert_false(eb_bench_table_init(&table, &spec, &failure));
    assert_non_null(strstr(failure.text, "available"));
    eb_bench_table_deinit(&table);
}

static void names_the_pages_that_there_are(void **state)
{
    (void)state;
    const struct eb_page_count cases[] = {
        {.bytes = 1000, .bytes_2m = 1000},
        {.bytes = 1000, .bytes_1g = 995},
        {.bytes = 1000, .bytes_2m = 5},
        {.bytes = 1000, .bytes_2m = 500},
        {.bytes = 0},
    };
    static const char *const names[] = {"2m", "1g", "4k", "mixed", "unknown"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(eb_bench_table_page_name(&cases[i]), names[i]);
    }
}

EB_TEST_GROUP(bench_table)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_rows_with_finite_values_that_differ),
        cmocka_unit_test(lends_dense_rows_to_the_peer),
        cmocka_unit_test(copies_dense_rows_into_other_pages),
        cmocka_unit_test(tells_the_peer_the_same_codes_and_scales),
        cmocka_unit_test(puts_scales_where_they_are_wanted),
        cmocka_unit_test(refuses_more_than_there_is_memory),
        cmocka_unit_test(names_the_pages_that_there_are),
    };
    return cmocka_run_group_tests_name("bench_table", tests, NULL, NULL);
}
