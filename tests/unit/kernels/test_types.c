#include "tests/unit/kernels/bag_fixture.h"

#include "tests/lib/test_group.h"

static void names_and_sizes_every_type(void **state)
{
    (void)state;
#define X(name, number, bytes, text)                                                               \
    assert_int_equal(eb_type_bytes(EB_##name), bytes);                                             \
    assert_string_equal(eb_type_name(EB_##name), text);                                            \
    assert_int_equal(eb_storage_bytes(EB_STORAGE_##name), bytes);                                  \
    assert_string_equal(eb_storage_name(EB_STORAGE_##name), text);                                 \
    assert_int_equal(eb_storage_type(EB_STORAGE_##name), EB_##name);                               \
    assert_int_equal(EB_##name, number);
    EB_TYPE_LIST(X)
#undef X
}

static void narrow_storages_are_f32_to_their_users(void **state)
{
    (void)state;
#define X(name, number, bits, text)                                                                \
    assert_int_equal(eb_storage_bits(EB_STORAGE_##name), bits);                                    \
    assert_string_equal(eb_storage_name(EB_STORAGE_##name), text);                                 \
    assert_int_equal(eb_storage_type(EB_STORAGE_##name), EB_F32);                                  \
    assert_int_equal(EB_STORAGE_##name, number);
    EB_STORAGE_FP8_LIST(X)
    EB_STORAGE_CODE_LIST(X)
#undef X
    assert_int_equal(eb_storage_bytes(EB_STORAGE_F8_E4M3), 1);
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
        /* They alternate, signed ones first. */
        assert_int_equal(eb_type_is_signed((enum eb_type)type), (type - EB_I8) % 2 == 0);
    }
}

/* How many types may be stored so. */
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
