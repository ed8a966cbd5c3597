#include "tests/unit/kernels/bag_fixture.h"

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
    assert_int_equal(eb_storage_bytes(EB_STORAGE_F8_E4M3), 1);
    assert_string_equal(eb_storage_name(EB_STORAGE_F8_E5M2), "f8_e5m2");
    assert_int_equal(eb_storage_type(EB_STORAGE_F8_E4M3), EB_F32);
    assert_int_equal(eb_storage_type(EB_STORAGE_F8_E5M2), EB_F32);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes_every_type),
        cmocka_unit_test(narrow_storages_are_f32_to_their_users),
        cmocka_unit_test(knows_what_is_no_type),
        cmocka_unit_test(tells_floats_and_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
