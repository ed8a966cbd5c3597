#include "tests/unit/kernels/bag_fixture.h"

#include "tests/lib/test_group.h"

static void names_and_sizes_every_type(void **state)
{
    (void)state;
    /* Numbers and names as embedding_bag.proto and the file formats define them. */
    static const struct {
        enum eb_type type;
        enum eb_storage storage;
        int number;
        unsigned bytes;
        const char *name;
    } types[] = {
        {EB_F32, EB_STORAGE_F32, 1, 4, "f32"},
        {EB_F64, EB_STORAGE_F64, 2, 8, "f64"},
        {EB_F16, EB_STORAGE_F16, 3, 2, "f16"},
        {EB_BF16, EB_STORAGE_BF16, 4, 2, "bf16"},
        {EB_I8, EB_STORAGE_I8, 5, 1, "i8"},
        {EB_U8, EB_STORAGE_U8, 6, 1, "u8"},
        {EB_I16, EB_STORAGE_I16, 7, 2, "i16"},
        {EB_U16, EB_STORAGE_U16, 8, 2, "u16"},
        {EB_I32, EB_STORAGE_I32, 9, 4, "i32"},
        {EB_U32, EB_STORAGE_U32, 10, 4, "u32"},
        {EB_I64, EB_STORAGE_I64, 11, 8, "i64"},
        {EB_U64, EB_STORAGE_U64, 12, 8, "u64"},
    };
    assert_int_equal(EB_TYPE_COUNT, 13);
    assert_int_equal(sizeof types / sizeof types[0], 12);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        assert_int_equal(types[i].type, types[i].number);
        assert_int_equal(types[i].storage, types[i].number);
        assert_int_equal(eb_type_bytes(types[i].type), types[i].bytes);
        assert_string_equal(eb_type_name(types[i].type), types[i].name);
        assert_int_equal(eb_storage_bytes(types[i].storage), types[i].bytes);
        assert_int_equal(eb_storage_bits(types[i].storage), 8 * types[i].bytes);
        assert_string_equal(eb_storage_name(types[i].storage), types[i].name);
        assert_int_equal(eb_storage_type(types[i].storage), types[i].number);
    }
}

static void narrow_storages_are_f32_to_their_users(void **state)
{
    (void)state;
    static const struct {
        enum eb_storage storage;
        int number;
        unsigned bits;
        const char *name;
    } storages[] = {
        {EB_STORAGE_F8_E4M3, 13, 8, "f8_e4m3"},
        {EB_STORAGE_F8_E5M2, 14, 8, "f8_e5m2"},
        {EB_STORAGE_INT8, 15, 8, "int8"},
        {EB_STORAGE_INT4, 16, 4, "int4"},
        {EB_STORAGE_INT2, 17, 2, "int2"},
    };
    assert_int_equal(EB_STORAGE_COUNT, 18);
    for (size_t i = 0; i < sizeof storages / sizeof storages[0]; i++) {
        assert_int_equal(storages[i].storage, storages[i].number);
        assert_int_equal(eb_storage_bits(storages[i].storage), storages[i].bits);
        assert_string_equal(eb_storage_name(storages[i].storage), storages[i].name);
        assert_int_equal(eb_storage_type(storages[i].storage), EB_F32);
    }
    assert_int_equal(eb_storage_bytes(EB_STORAGE_F8_E4M3), 1);
    assert_int_equal(eb_storage_bytes(EB_STORAGE_F8_E5M2), 1);
    assert_int_equal(eb_storage_bytes(EB_STORAGE_INT8), 1);
}

static void tells_codes(void **state)
{
    (void)state;
    for (int storage = EB_STORAGE_F32; storage < EB_STORAGE_COUNT; storage++) {
        assert_int_equal(eb_storage_is_code((enum eb_storage)storage), storage >= EB_STORAGE_INT8);
    }
}

static void rounds_row_bytes_up(void **state)
{
    (void)state;
    assert_true(eb_storage_row_bytes(EB_STORAGE_F64, 3) == 24);
    assert_true(eb_storage_row_bytes(EB_STORAGE_F8_E5M2, 3) == 3);
    assert_true(eb_storage_row_bytes(EB_STORAGE_INT8, 3) == 3);
    assert_true(eb_storage_row_bytes(EB_STORAGE_INT4, 4) == 2);
    assert_true(eb_storage_row_bytes(EB_STORAGE_INT4, 5) == 3);
    assert_true(eb_storage_row_bytes(EB_STORAGE_INT2, 4) == 1);
    for (uint64_t rest = 1; rest <= 4; rest++) {
        assert_true(eb_storage_row_bytes(EB_STORAGE_INT2, 4 + rest) == 2);
    }
    assert_true(eb_storage_row_bytes(EB_STORAGE_INT2, UINT32_MAX) == UINT64_C(1) << 30);
}

static void knows_what_is_no_type(void **state)
{
    (void)state;
    assert_false(eb_type_is_valid(-1));
    assert_false(eb_type_is_valid(0));
    assert_true(eb_type_is_valid(1));
    assert_true(eb_type_is_valid(12));
    assert_false(eb_type_is_valid(13));
    assert_string_equal(eb_type_name((enum eb_type)99), "unspecified");
    assert_string_equal(eb_storage_name((enum eb_storage)99), "unspecified");
}

static void tells_floats_and_signs(void **state)
{
    (void)state;
    for (int type = EB_F32; type <= EB_BF16; type++) {
        assert_true(eb_type_is_float((enum eb_type)type));
        assert_false(eb_type_is_signed((enum eb_type)type));
    }
    for (int type = EB_I8; type <= EB_U64; type++) {
        assert_false(eb_type_is_float((enum eb_type)type));
        /* Signed and unsigned types alternate, signed ones first. */
        assert_int_equal(eb_type_is_signed((enum eb_type)type), (type - EB_I8) % 2 == 0);
    }
}

/* Returns how many types this storage can hold. */
static unsigned count_types(enum eb_storage storage)
{
    unsigned count = 0;
    for (int type = EB_F32; type < EB_TYPE_COUNT; type++) {
        count += eb_storage_holds(storage, (enum eb_type)type);
    }
    return count;
}

static void says_which_tables_a_storage_holds(void **state)
{
    (void)state;
    for (int storage = EB_STORAGE_F32; storage < EB_STORAGE_COUNT; storage++) {
        bool is_half = storage == EB_STORAGE_F16 || storage == EB_STORAGE_BF16;
        assert_int_equal(count_types((enum eb_storage)storage), storage >= EB_STORAGE_F8_E4M3 ? 3
                                                                : is_half                     ? 2
                                                                                              : 1);
    }
    assert_true(eb_storage_holds(EB_STORAGE_BF16, EB_F32));
    assert_true(eb_storage_holds(EB_STORAGE_INT4, EB_BF16));
    assert_true(eb_storage_holds(EB_STORAGE_F8_E5M2, EB_F16));
    assert_false(eb_storage_holds(EB_STORAGE_F16, EB_BF16));
    assert_false(eb_storage_holds(EB_STORAGE_F32, EB_F16));
    assert_false(eb_storage_holds(EB_STORAGE_INT8, EB_F64));
}

EB_TEST_GROUP(types)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes_every_type),
        cmocka_unit_test(narrow_storages_are_f32_to_their_users),
        cmocka_unit_test(tells_codes),
        cmocka_unit_test(rounds_row_bytes_up),
        cmocka_unit_test(knows_what_is_no_type),
        cmocka_unit_test(tells_floats_and_signs),
        cmocka_unit_test(says_which_tables_a_storage_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
