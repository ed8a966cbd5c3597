#include "server/formats/tensor.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct eb_tensor make_tensor(enum eb_storage storage, uint32_t rank, const uint64_t *dims)
{
    struct eb_tensor tensor = {.storage = storage, .rank = rank};
    memcpy(tensor.dims, dims, rank * sizeof *dims);
    return tensor;
}

static void multiplies_dims_and_element(void **state)
{
    (void)state;
    struct eb_failure failure;
    struct eb_tensor tensor = make_tensor(EB_STORAGE_BF16, 3, (const uint64_t[]){5, 3, 7});
    assert_true(eb_tensor_measure(&tensor, &failure));
    assert_int_equal(tensor.data_bytes, 5 * 3 * 7 * 2);
    assert_int_equal(eb_tensor_row_elements(&tensor), 21);
}

static void takes_rank_one_as_rows_of_one_value(void **state)
{
    (void)state;
    struct eb_failure failure;
    struct eb_tensor tensor = make_tensor(EB_STORAGE_F64, 1, (const uint64_t[]){5});
    assert_true(eb_tensor_measure(&tensor, &failure));
    assert_int_equal(eb_tensor_row_elements(&tensor), 1);
}

static void accepts_a_table_of_no_rows(void **state)
{
    (void)state;
    struct eb_failure failure;
    struct eb_tensor tensor = make_tensor(EB_STORAGE_F32, 2, (const uint64_t[]){0, 7});
    assert_true(eb_tensor_measure(&tensor, &failure));
    assert_int_equal(tensor.data_bytes, 0);
    assert_int_equal(eb_tensor_row_elements(&tensor), 7);
}

static void rejects_rank_zero(void **state)
{
    (void)state;
    struct eb_failure failure;
    struct eb_tensor tensor = {.storage = EB_STORAGE_F32};
    assert_false(eb_tensor_measure(&tensor, &failure));
    assert_non_null(strstr(failure.text, "scalar"));
}

static void rejects_rows_of_no_value(void **state)
{
    (void)state;
    struct eb_failure failure;
    struct eb_tensor tensor = make_tensor(EB_STORAGE_F32, 3, (const uint64_t[]){5, 0, 7});
    assert_false(eb_tensor_measure(&tensor, &failure));
    assert_non_null(strstr(failure.text, "(5, 0, 7)"));
}

static void rejects_sizes_past_64_bits(void **state)
{
    (void)state;
    struct eb_failure failure;
    uint64_t half = UINT64_C(1) << 32;
    struct eb_tensor tensor = make_tensor(EB_STORAGE_U8, 2, (const uint64_t[]){half - 1, half});
    assert_true(eb_tensor_measure(&tensor, &failure));
    tensor = make_tensor(EB_STORAGE_U8, 2, (const uint64_t[]){half, half});
    assert_false(eb_tensor_measure(&tensor, &failure));
    tensor = make_tensor(EB_STORAGE_U8, 3, (const uint64_t[]){0, half, half});
    assert_false(eb_tensor_measure(&tensor, &failure));
    tensor = make_tensor(EB_STORAGE_F32, 2, (const uint64_t[]){half, half / 4});
    assert_false(eb_tensor_measure(&tensor, &failure));
}

static void takes_eight_dims_and_no_more(void **state)
{
    (void)state;
    struct eb_failure failure;
    struct eb_tensor tensor = {.storage = EB_STORAGE_F32};
    for (int i = 0; i < EB_TENSOR_RANK_MAX; i++) {
        assert_true(eb_tensor_add_dim(&tensor, 2, &failure));
    }
    assert_false(eb_tensor_add_dim(&tensor, 2, &failure));
    assert_int_equal(tensor.rank, EB_TENSOR_RANK_MAX);
}

static void writes_shapes_as_python_does(void **state)
{
    (void)state;
    char text[EB_TENSOR_SHAPE_BYTES];
    struct eb_tensor tensor = make_tensor(EB_STORAGE_F32, 2, (const uint64_t[]){5, 2});
    assert_int_equal(eb_tensor_shape_text(&tensor, text), 6);
    assert_string_equal(text, "(5, 2)");
    tensor.rank = 1;
    eb_tensor_shape_text(&tensor, text);
    assert_string_equal(text, "(5,)");
    tensor.rank = 0;
    eb_tensor_shape_text(&tensor, text);
    assert_string_equal(text, "()");
    tensor.rank = EB_TENSOR_RANK_MAX;
    memset(tensor.dims, 0xff, sizeof tensor.dims);
    assert_in_range(eb_tensor_shape_text(&tensor, text), 170, EB_TENSOR_SHAPE_BYTES - 1);
}

EB_TEST_GROUP(tensor)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multiplies_dims_and_element),
        cmocka_unit_test(takes_rank_one_as_rows_of_one_value),
        cmocka_unit_test(accepts_a_table_of_no_rows),
        cmocka_unit_test(rejects_rank_zero),
        cmocka_unit_test(rejects_rows_of_no_value),
        cmocka_unit_test(rejects_sizes_past_64_bits),
        cmocka_unit_test(takes_eight_dims_and_no_more),
        cmocka_unit_test(writes_shapes_as_python_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
