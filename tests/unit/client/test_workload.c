#include "client/cli/workload.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The expected numbers were computed from the published formulas by another program. */
static void derives_seeds_as_published(void **state)
{
    (void)state;
    assert_true(eb_workload_seed("t00", 1) == UINT64_C(0xa09bae7452d3cb05));
    assert_true(eb_workload_seed("t25", 3) == UINT64_C(0x9c4dc8f6b2b159c8));
}

static void gives_values_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *table;
        uint64_t version, row, column;
        float value;
    } cases[] = {
        {"t00", 1, 0, 0, 0.15625f},
        {"t00", 1, 0, 7, -0.515625f},
        {"t00", 1, 0, 8, -0.921875f},
        {"t00", 1, 1, 0, 0.1640625f},
        {"t25", 3, 35, 127, 0.0546875f},
        {"t00", 1, 39999999, 63, -0.375f},
        {"t00", 2, 0, 0, 0.5625f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t seed = eb_workload_seed(cases[i].table, cases[i].version);
        float value = eb_workload_value(seed, cases[i].row, cases[i].column);
        assert_memory_equal(&value, &cases[i].value, sizeof value);
    }
}

static void fills_a_row_of_any_length_with_its_values(void **state)
{
    (void)state;
    static const int expected[19] = {
        22, -85, 119, 54, 64, 42, 50, -68, -108, 99, -123, -83, -77, -8, 90, -89, 103, -16, 118};
    uint64_t seed = eb_workload_seed("t00", 1);
    for (size_t columns = 0; columns <= 19; columns++) {
        float row[20];
        memset(row, 0x7f, sizeof row);
        float untouched = row[19];
        eb_workload_fill_row(seed, 4, row, columns);
        for (size_t column = 0; column < columns; column++) {
            assert_true(row[column] == (float)expected[column] / 128.0f);
        }
        assert_memory_equal(&row[19], &untouched, sizeof untouched);
    }
}

static void knows_the_workloads(void **state)
{
    (void)state;
    const struct eb_workload *dlrm = eb_workload_find("dlrm-v2");
    assert_non_null(dlrm);
    uint32_t indices = 0;
    for (uint32_t table = 0; table < dlrm->table_count; table++) {
        indices += eb_workload_indices_per_bag(dlrm, table);
    }
    assert_int_equal(indices, 214);
    assert_int_equal(eb_workload_rows(dlrm, 10, 1), 3067956);
    assert_int_equal(eb_workload_rows(dlrm, 10, 1000), 3067);
    assert_int_equal(eb_workload_rows(dlrm, 5, 1000), 1);
    const struct eb_workload *rm2 = eb_workload_find("rm2");
    assert_non_null(rm2);
    assert_int_equal(rm2->table_count, 32);
    assert_int_equal(eb_workload_rows(rm2, 31, 10), 50000);
    assert_int_equal(eb_workload_indices_per_bag(rm2, 31), 120);
    assert_null(eb_workload_find("dlrm"));
}

static void has_models_of_so_many_tables(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t tables;
    } wide[] = {{"wide-26", 26}, {"wide-200", 200}, {"wide-856", 856}};
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        const struct eb_workload *workload = eb_workload_find(wide[i].name);
        assert_non_null(workload);
        assert_int_equal(workload->table_count, wide[i].tables);
        assert_non_null(strstr(eb_workload_names(), wide[i].name));
    }
}

static void names_tables_by_two_digits_or_more(void **state)
{
    (void)state;
    char name[EB_WORKLOAD_TABLE_NAME_BYTES];
    eb_workload_table_name(0, name);
    assert_string_equal(name, "t00");
    eb_workload_table_name(25, name);
    assert_string_equal(name, "t25");
    eb_workload_table_name(99, name);
    assert_string_equal(name, "t99");
    eb_workload_table_name(100, name);
    assert_string_equal(name, "t100");
    eb_workload_table_name(855, name);
    assert_string_equal(name, "t855");
}

EB_TEST_GROUP(workload)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derives_seeds_as_published),
        cmocka_unit_test(gives_values_as_published),
        cmocka_unit_test(fills_a_row_of_any_length_with_its_values),
        cmocka_unit_test(knows_the_workloads),
        cmocka_unit_test(has_models_of_so_many_tables),
        cmocka_unit_test(names_tables_by_two_digits_or_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
