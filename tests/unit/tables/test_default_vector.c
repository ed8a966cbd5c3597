/* Default vectors of model.yaml, in tables of every kind. */
#include "server/tables/default_vector.h"

#include "tests/lib/test_group.h"
#include "tests/unit/tables/set_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state)
{
    struct eb_set_fixture *fixture = malloc(sizeof *fixture);
    assert_non_null(fixture);
    eb_set_fixture_init(fixture);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    eb_set_fixture_deinit(*state);
    free(*state);
    return 0;
}

/* Writes a table of two rows of two zeros. */
static void write_zeros(const struct eb_set_fixture *fixture, enum eb_storage storage)
{
    static const uint64_t dims[2] = {2, 2};
    static const uint8_t zeros[32] = {0};
    eb_set_fixture_write_npy(fixture, "t.npy", storage, dims, zeros);
}

/* Expects the list of values in model.yaml to become this vector of the table. */
static void expect_vector(const struct eb_set_fixture *fixture, enum eb_storage storage,
    const char *list, const void *values, size_t bytes)
{
    struct eb_table_set set;
    char yaml[256];
    snprintf(yaml, sizeof yaml, "tables: [{name: t, default_vector: [%s]}]", list);
    write_zeros(fixture, storage);
    eb_set_fixture_load(fixture, yaml, &set);
    assert_int_equal(bytes, 2 * eb_type_bytes(set.tables->table.type));
    assert_memory_equal(set.tables->table.vector, values, bytes);
    assert_int_equal(set.tables->table.unknown_row, -1);
    assert_false(set.tables->has_default);
    eb_table_set_deinit(&set);
}

#define EXPECT_VECTOR(storage, list, type, ...)                                                    \
    expect_vector(*state, storage, list, (type[]){__VA_ARGS__}, 2 * sizeof(type))

static void rounds_to_the_nearest_float(void **state)
{
    EXPECT_VECTOR(EB_STORAGE_F32, "0.1, -0.0", float, 0.1f, -0.0f);
    EXPECT_VECTOR(EB_STORAGE_F32, "1e-50, 3.4028235e38", float, 0, 0x1.fffffep127f);
    EXPECT_VECTOR(EB_STORAGE_F64, "0.1, 1e300", double, 0.1, 1e300);
    /* 65519 is the last integer that f16 does not round to infinity. */
    EXPECT_VECTOR(EB_STORAGE_F16, "0.1, 65519", uint16_t, 0x2e66, 0x7bff);
}

static void gives_all_elements_a_single_value(void **state)
{
    EXPECT_VECTOR(EB_STORAGE_F32, "0.25", float, 0.25f, 0.25f);
    EXPECT_VECTOR(EB_STORAGE_U8, "255", uint8_t, 255, 255);
}

static void takes_the_extremes_of_integers(void **state)
{
    EXPECT_VECTOR(EB_STORAGE_I8, "-128, 127", int8_t, -128, 127);
    EXPECT_VECTOR(EB_STORAGE_U16, "0, 65535", uint16_t, 0, 65535);
    EXPECT_VECTOR(
        EB_STORAGE_I64, "-9223372036854775808, 9223372036854775807", int64_t, INT64_MIN, INT64_MAX);
    EXPECT_VECTOR(EB_STORAGE_U64, "+0, 18446744073709551615", uint64_t, 0, UINT64_MAX);
}

static void refuses_values_that_the_type_does_not_have(void **state)
{
    static const struct {
        enum eb_storage storage;
        const char *list;
        const char *part;
    } cases[] = {
        {EB_STORAGE_F32, "1, 2, 3",
            "default_vector has 3 values; expected 2, one for each element of a row, or one for "
            "all"},
        {EB_STORAGE_F32, "1, 3.5e38", "default_vector[1]: '3.5e38' is not in the range of f32"},
        {EB_STORAGE_F16, "65520", "default_vector[0]: '65520' is not in the range of f16"},
        {EB_STORAGE_I8, "0, 128", "default_vector[1]: '128' is not an integer in the range of i8"},
        {EB_STORAGE_I8, "-129", "'-129' is not an integer in the range of i8"},
        {EB_STORAGE_I8, "1.5", "'1.5' is not an integer in the range of i8"},
        {EB_STORAGE_I8, "1e1", "'1e1' is not an integer in the range of i8"},
        {EB_STORAGE_U8, "256", "'256' is not an integer in the range of u8"},
        {EB_STORAGE_U8, "-1", "'-1' is not an integer in the range of u8"},
        {EB_STORAGE_U64, "-1", "'-1' is not an integer in the range of u64"},
        {EB_STORAGE_U64, "18446744073709551616", "is not an integer in the range of u64"},
        {EB_STORAGE_I64, "9223372036854775808", "is not an integer in the range of i64"},
        {EB_STORAGE_I64, "-9223372036854775809", "is not an integer in the range of i64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char yaml[256];
        snprintf(yaml, sizeof yaml, "tables: [{name: t, default_vector: [%s]}]", cases[i].list);
        write_zeros(*state, cases[i].storage);
        eb_set_fixture_expect_failure(*state, yaml, "model.yaml: table 't': ", cases[i].part);
    }
}

static void does_not_depend_on_the_storage(void **state)
{
    static const char *const storages[] = {"f16", "bf16", "f8_e4m3", "int8", "int4", "int2"};
    static const float expected[2] = {0.1f, 1e30f};
    write_zeros(*state, EB_STORAGE_F32);
    for (size_t i = 0; i < sizeof storages / sizeof storages[0]; i++) {
        struct eb_table_set set;
        char yaml[256];
        snprintf(yaml, sizeof yaml,
            "tables: [{name: t, storage: %s, default_vector: [0.1, 1e30],\n"
            "   missing: unknown_row, unknown_row: default_vector}]",
            storages[i]);
        eb_set_fixture_load(*state, yaml, &set);
        assert_memory_equal(set.tables->table.vector, expected, sizeof expected);
        assert_int_equal(set.tables->table.unknown_row, EB_ROW_VECTOR);
        eb_table_set_deinit(&set);
    }
}

static void lets_features_name_the_unknown_row(void **state)
{
    struct eb_table_set set;
    write_zeros(*state, EB_STORAGE_F32);
    eb_set_fixture_load(*state,
        "tables: [{name: t, default_vector: [1], unknown_row: default_vector}]\n"
        "features: [{name: f, table: t, missing: unknown_row}]",
        &set);
    eb_table_set_deinit(&set);
    eb_set_fixture_expect_failure(*state,
        "tables: [{name: t, default_vector: [1]}]\n"
        "features: [{name: f, table: t, missing: unknown_row}]",
        "model.yaml: ", "missing: unknown_row needs an unknown_row of table 't'");
}

EB_TEST_GROUP(default_vector)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(rounds_to_the_nearest_float),
        TEST(gives_all_elements_a_single_value),
        TEST(takes_the_extremes_of_integers),
        TEST(refuses_values_that_the_type_does_not_have),
        TEST(does_not_depend_on_the_storage),
        TEST(lets_features_name_the_unknown_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
