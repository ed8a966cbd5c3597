#include "server/formats/npy.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DICT(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

/* Parses an exact copy, so that a sanitizer sees a read past its end. */
static bool parse_npy(
    const uint8_t *bytes, size_t size, struct eb_tensor *tensor, struct eb_failure *failure)
{
    uint8_t *exact = malloc(size ? size : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, size);
    bool is_good = eb_npy_parse(exact, size, size, tensor, failure);
    free(exact);
    return is_good;
}

static void expect_good_npy(uint8_t major, const char *dict, size_t data_bytes)
{
    struct eb_scratch_table table;
    struct eb_tensor tensor;
    struct eb_failure failure = {.text = ""};
    eb_scratch_npy(&table, major, dict, data_bytes);
    if (!parse_npy(table.bytes, table.size, &tensor, &failure)) {
        fail_msg("%s: %s", dict, failure.text);
    }
    assert_int_equal(tensor.data_offset, table.size - data_bytes);
    assert_int_equal(tensor.data_bytes, data_bytes);
}

static void expect_bad_npy(const char *dict, size_t data_bytes, const char *part)
{
    struct eb_scratch_table table;
    struct eb_tensor tensor;
    struct eb_failure failure = {.text = ""};
    eb_scratch_npy(&table, 1, dict, data_bytes);
    if (parse_npy(table.bytes, table.size, &tensor, &failure)) {
        fail_msg("accepted %s", dict);
    }
    eb_scratch_expect(failure.text, part);
}

static void reads_shape_and_place(void **state)
{
    (void)state;
    struct eb_scratch_table table;
    struct eb_tensor tensor;
    struct eb_failure failure;
    eb_scratch_npy(&table, 1, DICT("'<f4'", "False", "(5, 2)"), 40);
    assert_true(parse_npy(table.bytes, table.size, &tensor, &failure));
    assert_int_equal(tensor.storage, EB_STORAGE_F32);
    assert_int_equal(tensor.rank, 2);
    assert_int_equal(tensor.dims[0], 5);
    assert_int_equal(tensor.dims[1], 2);
    assert_int_equal(tensor.data_bytes, 40);
    assert_int_equal(table.bytes[tensor.data_offset], 1);
}

static void reads_every_version(void **state)
{
    (void)state;
    for (uint8_t major = 1; major <= 3; major++) {
        expect_good_npy(major, DICT("'<f4'", "False", "(5, 2)"), 40);
    }
}

static void reads_every_element_type_of_npy(void **state)
{
    (void)state;
    static const struct {
        const char *descr;
        enum eb_storage storage;
    } cases[] = {
        {"<f2", EB_STORAGE_F16},
        {"<f4", EB_STORAGE_F32},
        {"<f8", EB_STORAGE_F64},
        {"|i1", EB_STORAGE_I8},
        {"|u1", EB_STORAGE_U8},
        {"<i1", EB_STORAGE_I8},
        {">u1", EB_STORAGE_U8},
        {"<i2", EB_STORAGE_I16},
        {"<u2", EB_STORAGE_U16},
        {"<i4", EB_STORAGE_I32},
        {"<u4", EB_STORAGE_U32},
        {"=i8", EB_STORAGE_I64},
        {"u8", EB_STORAGE_U64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_scratch_table table;
        struct eb_tensor tensor;
        struct eb_failure failure;
        char dict[128];
        snprintf(dict, sizeof dict, DICT("'%s'", "False", "(3,)"), cases[i].descr);
        eb_scratch_npy(&table, 1, dict, 3 * eb_storage_bytes(cases[i].storage));
        assert_true(parse_npy(table.bytes, table.size, &tensor, &failure));
        assert_int_equal(tensor.storage, cases[i].storage);
    }
}

static void reads_what_python_allows(void **state)
{
    (void)state;
    expect_good_npy(1, "{'shape':(5,2),'descr':'<f4','fortran_order':False}", 40);
    expect_good_npy(
        1, " {\t\"shape\" : ( 5 , 2 , ) ,\r\n\"fortran_order\": False, 'descr': \"<f4\"} \n ", 40);
    expect_good_npy(1, DICT("'<f4'", "False", "(5L, 2L)"), 40);
    expect_good_npy(1, DICT("'<f4'", "True", "(10,)"), 40);
    expect_good_npy(1, DICT("'<f4'", "False", "(0, 2)"), 0);
    expect_good_npy(1, DICT("'<f4'", "False", "(1, 1, 1, 1, 1, 1, 5, 2)"), 40);
}

static void rejects_other_types_by_name(void **state)
{
    (void)state;
    expect_bad_npy(DICT("'>f4'", "False", "(5, 2)"), 40, "'>f4' is big-endian");
    expect_bad_npy(DICT("'|b1'", "False", "(5, 2)"), 10, "boolean");
    expect_bad_npy(DICT("'<c8'", "False", "(5, 2)"), 80, "complex");
    expect_bad_npy(DICT("'|S4'", "False", "(5, 2)"), 40, "string");
    expect_bad_npy(DICT("'<U1'", "False", "(5, 2)"), 40, "string");
    expect_bad_npy(DICT("'|O'", "False", "(5, 2)"), 80, "Python object");
    expect_bad_npy(DICT("'<V2'", "False", "(5, 2)"), 20, "safetensors");
    expect_bad_npy(DICT("'<M8[ns]'", "False", "(5, 2)"), 80, "date");
    expect_bad_npy(DICT("'<f16'", "False", "(5, 2)"), 160, "'<f16' is not an element type");
    expect_bad_npy(DICT("'<f'", "False", "(5, 2)"), 40, "not an element type");
    expect_bad_npy(DICT("''", "False", "(5, 2)"), 40, "not an element type");
    expect_bad_npy(DICT("[('a', '<f4')]", "False", "(5, 2)"), 40, "record");
    expect_bad_npy(DICT("4", "False", "(5, 2)"), 40, "expected a string");
    expect_bad_npy(DICT("'<f4<f4<f4<f4<f4<f4<f4<f4'", "False", "(5, 2)"), 40, "nor a type");
    expect_bad_npy(DICT("'<f4", "False", "(5, 2)"), 40, "npy header");
    expect_bad_npy(DICT("'<\\x664'", "False", "(5, 2)"), 40, "nor a type");
}

static void rejects_bad_orders(void **state)
{
    (void)state;
    expect_bad_npy(DICT("'<f4'", "True", "(5, 2)"), 40, "ascontiguousarray");
    expect_bad_npy(DICT("'<f4'", "0", "(5, 2)"), 40, "'fortran_order'");
    expect_bad_npy(DICT("'<f4'", "Falsch", "(5, 2)"), 40, "'fortran_order'");
}

static void rejects_bad_shapes_of_npy(void **state)
{
    (void)state;
    expect_bad_npy(DICT("'<f4'", "False", "()"), 4, "scalar");
    expect_bad_npy(DICT("'<f4'", "False", "(5)"), 20, "comma");
    expect_bad_npy(DICT("'<f4'", "False", "[5, 2]"), 40, "tuple");
    expect_bad_npy(DICT("'<f4'", "False", "(5, -2)"), 40, "negative");
    expect_bad_npy(DICT("'<f4'", "False", "(5, 2.0)"), 40, "','");
    expect_bad_npy(DICT("'<f4'", "False", "(5 2)"), 40, "','");
    expect_bad_npy(DICT("'<f4'", "False", "(,)"), 40, "number");
    expect_bad_npy(DICT("'<f4'", "False", "(5,,2)"), 40, "number");
    expect_bad_npy(DICT("'<f4'", "False", "(5, 0)"), 0, "no value");
    expect_bad_npy(DICT("'<f4'", "False", "(5, 18446744073709551616)"), 40, "2^64");
    expect_bad_npy(DICT("'<f4'", "False", "(5, 18446744073709551615)"), 40, "2^64 bytes");
    expect_bad_npy(DICT("'<f4'", "False", "(0, 4294967296, 4294967296)"), 0, "2^64 bytes");
    expect_bad_npy(DICT("'<f4'", "False", "(1, 1, 1, 1, 1, 1, 1, 5, 2)"), 40, "8 dimensions");
}

static void rejects_bad_dicts(void **state)
{
    (void)state;
    expect_bad_npy("", 40, "'{'");
    expect_bad_npy("[]", 40, "'{'");
    expect_bad_npy("{,}", 40, "expected a string");
    expect_bad_npy("{}", 40, "missing");
    expect_bad_npy("{'descr': '<f4', 'shape': (5, 2)}", 40, "missing");
    expect_bad_npy("{'descr': '<f4', 'fortran_order': False}", 40, "missing");
    expect_bad_npy("{'fortran_order': False, 'shape': (5, 2)}", 40, "missing");
    expect_bad_npy("{'descr': '<f4', 'descr': '<f4', }", 40, "twice");
    expect_bad_npy("{'shape': (5, 2), 'shape': (5, 2), }", 40, "twice");
    expect_bad_npy("{'fortran_order': False, 'fortran_order': False, }", 40, "twice");
    expect_bad_npy("{'descr': '<f4' 'shape': (5, 2)}", 40, "','");
    expect_bad_npy("{'descr' '<f4'}", 40, "':'");
    expect_bad_npy("{'version': 1}", 40, "expected descr");
    expect_bad_npy("{5: 1}", 40, "expected a string");
    expect_bad_npy(DICT("'<f4'", "False", "(5, 2)") "x", 40, "unexpected text after");
    expect_bad_npy("{'descr': '<f4', ", 40, "expected a string");
}

static void rejects_data_of_another_length(void **state)
{
    (void)state;
    expect_bad_npy(DICT("'<f4'", "False", "(5, 2)"), 39, "cut short");
    expect_bad_npy(DICT("'<f4'", "False", "(5, 2)"), 0, "(5, 2) of f32 needs 40");
    expect_bad_npy(DICT("'<f4'", "False", "(5, 2)"), 41, "too long");
    expect_bad_npy(DICT("'<f4'", "False", "(0, 2)"), 1, "too long");
}

static void rejects_every_truncation_of_npy(void **state)
{
    (void)state;
    for (uint8_t major = 1; major <= 2; major++) {
        struct eb_scratch_table table;
        eb_scratch_npy(&table, major, DICT("'<f4'", "False", "(5, 2)"), 40);
        for (size_t size = 0; size < table.size; size++) {
            struct eb_tensor tensor;
            struct eb_failure failure = {.text = ""};
            assert_false(parse_npy(table.bytes, size, &tensor, &failure));
            assert_true(strlen(failure.text) > 0);
        }
    }
}

static void survives_every_byte_changed_of_npy(void **state)
{
    (void)state;
    struct eb_scratch_table table;
    eb_scratch_npy(&table, 1, DICT("'<f4'", "False", "(5, 2)"), 40);
    for (size_t at = 0; at < table.size - 40; at++) {
        for (unsigned value = 0; value < 256; value++) {
            struct eb_scratch_table changed = table;
            struct eb_tensor tensor;
            struct eb_failure failure;
            changed.bytes[at] = (uint8_t)value;
            if (parse_npy(changed.bytes, changed.size, &tensor, &failure)) {
                assert_int_equal(tensor.data_bytes, 40);
            }
        }
    }
}

static void rejects_a_bad_prefix(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t byte;
        const char *part;
    } cases[] = {
        {0, 'x', "not an npy file"},
        {5, 'x', "not an npy file"},
        {6, 0, "version 0.0"},
        {6, 4, "version 4.0"},
        {7, 1, "version 1.1"},
        {8, 255, "past the end"},
        {8, 0, "npy header"},
        {8, 1, "npy header"},
        {9, 255, "past the end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_scratch_table table;
        struct eb_tensor tensor;
        struct eb_failure failure = {.text = ""};
        eb_scratch_npy(&table, 1, DICT("'<f4'", "False", "(5, 2)"), 40);
        table.bytes[cases[i].at] = cases[i].byte;
        assert_false(parse_npy(table.bytes, table.size, &tensor, &failure));
        eb_scratch_expect(failure.text, cases[i].part);
    }
}

static void rejects_a_header_that_is_too_long(void **state)
{
    (void)state;
    static uint8_t head[EB_NPY_HEADER_BYTES_MAX];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x02\x00\x00\x00\x01\x00", 12);
    struct eb_tensor tensor;
    struct eb_failure failure = {.text = ""};
    assert_false(eb_npy_parse(head, sizeof head, UINT64_C(1) << 40, &tensor, &failure));
    eb_scratch_expect(failure.text, "too long");
    memset(head + 8, 0xff, 4);
    assert_false(eb_npy_parse(head, sizeof head, sizeof head, &tensor, &failure));
    eb_scratch_expect(failure.text, "past the end");
}

static void reads_back_what_it_writes(void **state)
{
    (void)state;
    for (int storage = 1; storage < EB_STORAGE_COUNT; storage++) {
        struct eb_tensor tensor = {
            .storage = (enum eb_storage)storage, .rank = 3, .dims = {0, 1234567, 3}};
        uint8_t head[256];
        uint64_t bytes = eb_npy_header_write(&tensor, head, sizeof head);
        if (storage == EB_STORAGE_BF16 || storage > EB_STORAGE_U64) {
            assert_int_equal(bytes, 0);
            continue;
        }
        assert_int_equal(bytes, 128);
        assert_int_equal(tensor.data_offset, 128);
        struct eb_tensor read;
        struct eb_failure failure;
        assert_true(parse_npy(head, bytes, &read, &failure));
        assert_int_equal(read.storage, tensor.storage);
        assert_memory_equal(read.dims, tensor.dims, sizeof read.dims);
    }
}

static void writes_the_header_that_numpy_writes(void **state)
{
    (void)state;
    struct eb_tensor tensor = {.storage = EB_STORAGE_F32, .rank = 2, .dims = {5, 2}};
    uint8_t head[128];
    static const char start[] =
        "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }";
    assert_int_equal(eb_npy_header_write(&tensor, head, 127), 0);
    assert_int_equal(eb_npy_header_write(&tensor, head, 128), 128);
    assert_memory_equal(head, start, sizeof start - 1);
    assert_int_equal(head[126], ' ');
    assert_int_equal(head[127], '\n');
}

EB_TEST_GROUP(npy)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_shape_and_place),
        cmocka_unit_test(reads_every_version),
        cmocka_unit_test(reads_every_element_type_of_npy),
        cmocka_unit_test(reads_what_python_allows),
        cmocka_unit_test(rejects_other_types_by_name),
        cmocka_unit_test(rejects_bad_orders),
        cmocka_unit_test(rejects_bad_shapes_of_npy),
        cmocka_unit_test(rejects_bad_dicts),
        cmocka_unit_test(rejects_data_of_another_length),
        cmocka_unit_test(rejects_every_truncation_of_npy),
        cmocka_unit_test(survives_every_byte_changed_of_npy),
        cmocka_unit_test(rejects_a_bad_prefix),
        cmocka_unit_test(rejects_a_header_that_is_too_long),
        cmocka_unit_test(reads_back_what_it_writes),
        cmocka_unit_test(writes_the_header_that_numpy_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
