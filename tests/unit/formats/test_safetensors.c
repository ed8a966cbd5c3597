#include "server/formats/safetensors.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TENSOR(dtype, shape, offsets)                                                              \
    "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define F32_5X2 TENSOR("\"F32\"", "[5,2]", "[0,40]")
#define TWO                                                                                        \
    "{\"b\":" TENSOR("\"BF16\"", "[3,2]", "[0,12]") ",\"a\":" TENSOR("\"I8\"", "[4]", "[12,16]") "}"

static uint8_t *parsed_head; /* the head of the last list */

/* Parses an exact copy of length and head, so that a sanitizer sees a read past its end. */
static bool parse_safetensors(
    const uint8_t *bytes, size_t size, struct eb_safetensors *list, struct eb_failure *failure)
{
    *list = (struct eb_safetensors){0};
    free(parsed_head);
    parsed_head = NULL;
    uint8_t first[8] = {0};
    memcpy(first, bytes, size < 8 ? size : 8);
    uint64_t head_bytes;
    if (!eb_safetensors_head_bytes(first, size, &head_bytes, failure)) {
        return false;
    }
    assert_true(head_bytes <= size);
    uint8_t *head = malloc(head_bytes);
    assert_non_null(head);
    memcpy(head, bytes, head_bytes);
    parsed_head = head;
    return eb_safetensors_parse(head, head_bytes, size, list, failure);
}

/* Returns the n-th tensor of a list, which must be a table. */
static struct eb_tensor tensor_of(const struct eb_safetensors *list, size_t n)
{
    struct eb_tensor tensor;
    struct eb_failure unfit;
    assert_true(n < list->count);
    assert_true(eb_safetensors_tensor(list, n, &tensor, &unfit));
    assert_int_equal(tensor.data_offset, list->entries[n].data_offset);
    assert_int_equal(tensor.data_bytes, list->entries[n].data_bytes);
    return tensor;
}

static void expect_good_safetensors(const char *json, size_t data_bytes, size_t count)
{
    struct eb_scratch_table table;
    struct eb_safetensors list;
    struct eb_failure failure = {.text = ""};
    eb_scratch_safetensors(&table, json, data_bytes);
    if (!parse_safetensors(table.bytes, table.size, &list, &failure)) {
        fail_msg("%s: %s", json, failure.text);
    }
    assert_int_equal(list.count, count);
    eb_safetensors_deinit(&list);
}

static void expect_bad_safetensors(const char *json, size_t data_bytes, const char *part)
{
    struct eb_scratch_table table;
    struct eb_safetensors list;
    struct eb_failure failure = {.text = ""};
    eb_scratch_safetensors(&table, json, data_bytes);
    if (parse_safetensors(table.bytes, table.size, &list, &failure)) {
        fail_msg("accepted %s", json);
    }
    assert_int_equal(list.count, 0);
    assert_null(list.entries);
    eb_scratch_expect(failure.text, part);
}

static void reads_tensors_in_the_order_of_their_data(void **state)
{
    (void)state;
    struct eb_scratch_table table;
    struct eb_safetensors list;
    struct eb_failure failure;
    eb_scratch_safetensors(&table, TWO "  ", 16);
    assert_true(parse_safetensors(table.bytes, table.size, &list, &failure));
    assert_int_equal(list.count, 2);
    assert_string_equal(list.entries[0].name, "b");
    assert_int_equal(tensor_of(&list, 0).storage, EB_STORAGE_BF16);
    assert_int_equal(tensor_of(&list, 0).rank, 2);
    assert_int_equal(tensor_of(&list, 0).dims[0], 3);
    assert_int_equal(tensor_of(&list, 0).data_offset, table.size - 16);
    assert_string_equal(list.entries[1].name, "a");
    assert_int_equal(tensor_of(&list, 1).data_offset, table.size - 4);
    assert_int_equal(tensor_of(&list, 1).data_bytes, 4);
    eb_safetensors_deinit(&list);
}

static void reads_every_element_type_of_safetensors(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        enum eb_storage storage;
    } cases[] = {
        {"F64", EB_STORAGE_F64},
        {"F32", EB_STORAGE_F32},
        {"F16", EB_STORAGE_F16},
        {"BF16", EB_STORAGE_BF16},
        {"F8_E4M3", EB_STORAGE_F8_E4M3},
        {"F8_E5M2", EB_STORAGE_F8_E5M2},
        {"I8", EB_STORAGE_I8},
        {"U8", EB_STORAGE_U8},
        {"I16", EB_STORAGE_I16},
        {"U16", EB_STORAGE_U16},
        {"I32", EB_STORAGE_I32},
        {"U32", EB_STORAGE_U32},
        {"I64", EB_STORAGE_I64},
        {"U64", EB_STORAGE_U64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_scratch_table table;
        struct eb_safetensors list;
        struct eb_failure failure;
        char json[256];
        size_t bytes = 3 * eb_storage_bytes(cases[i].storage);
        snprintf(json, sizeof json, "{\"t\":" TENSOR("\"%s\"", "[3]", "[0,%zu]") "}",
            cases[i].dtype, bytes);
        eb_scratch_safetensors(&table, json, bytes);
        assert_true(parse_safetensors(table.bytes, table.size, &list, &failure));
        assert_int_equal(tensor_of(&list, 0).storage, cases[i].storage);
        eb_safetensors_deinit(&list);
    }
}

static void accepts_what_the_format_allows(void **state)
{
    (void)state;
    expect_good_safetensors("{\"__metadata__\":{\"format\":\"pt\"},\"t\":" F32_5X2 "}", 40, 1);
    expect_good_safetensors("{\"__metadata__\":{},\"t\":" F32_5X2 "}   ", 40, 1);
    expect_good_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[0,2]", "[0,0]") ",\"u\":" F32_5X2 "}", 40, 2);
    expect_good_safetensors(
        "{\"u\":" F32_5X2 ",\"t\":" TENSOR("\"F32\"", "[0,2]", "[40,40]") "}", 40, 2);
}

/* Expects the file's only tensor to be listed as unfit to be a table, with a reason that contains
 * `part`. */
static void expect_unfit(const char *dtype, const char *shape, size_t data_bytes, const char *part)
{
    struct eb_scratch_table table;
    struct eb_safetensors list;
    struct eb_failure failure = {.text = ""};
    char json[256];
    snprintf(json, sizeof json, "{\"t\":" TENSOR("\"%s\"", "%s", "[0,%zu]") "}", dtype, shape,
        data_bytes);
    eb_scratch_safetensors(&table, json, data_bytes);
    if (!parse_safetensors(table.bytes, table.size, &list, &failure)) {
        fail_msg("%s: %s", json, failure.text);
    }
    struct eb_tensor tensor;
    struct eb_failure unfit;
    assert_int_equal(list.count, 1);
    assert_false(eb_safetensors_tensor(&list, 0, &tensor, &unfit));
    assert_int_equal(tensor.data_bytes, data_bytes);
    eb_scratch_expect(unfit.text, part);
    eb_safetensors_deinit(&list);
}

static void lists_tensors_that_cannot_be_tables(void **state)
{
    (void)state;
    expect_unfit("I64", "[]", 8, "a scalar is not a table");
    expect_unfit("BOOL", "[]", 1, "'BOOL' is not an element type");
    expect_unfit("BOOL", "[4,2]", 8, "'BOOL' is not an element type");
    expect_unfit("C64", "[4]", 32, "'C64'");
    expect_unfit("F8_E8M0", "[4]", 4, "'F8_E8M0'");
    expect_unfit("F6_E2M3", "[4]", 3, "'F6_E2M3'");
    expect_unfit("F6_E3M2", "[8]", 6, "fp4 and fp6 values are not supported; dequantise");
    expect_unfit("F4", "[2,3]", 3, "fp4 and fp6 values are not supported; dequantise");
    expect_unfit("F32", "[5,0]", 0, "rows of shape (5, 0) hold no values");
    expect_unfit("F32", "[1,1,1,1,1,1,1,5,2]", 40, "8 dim");
    /* Only the position of a tensor of an unknown type is known. */
    expect_unfit("F3_E1M1", "[4]", 2, "'F3_E1M1'");
    expect_unfit("f32", "[4]", 16, "'f32'");
}

static void rejects_unfit_tensors_that_are_malformed(void **state)
{
    (void)state;
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"BOOL\"", "[4]", "[0,5]") "}", 5, "5 bytes, but shape (4,)");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"I64\"", "[]", "[0,4]") "}", 4, "shape () of I64 needs 8");
    expect_bad_safetensors("{\"t\":" TENSOR("\"F4\"", "[5]", "[0,2]") "}", 2, "of F4 needs 3");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"C64\"", "[4294967296,4294967296]", "[0,4]") "}", 4, "2^64");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"X9\"", "[4294967296,4294967296]", "[0,4]") "}", 4, "2^64");
    expect_bad_safetensors("{\"t\":" TENSOR("\"X9\"", "[-1]", "[0,4]") "}", 4, "entry 0");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"X9\"", "[4]", "[0,5]") "}", 4, "past the last of the");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"X9\"", "[4]", "[4,0]") "}", 4, "before the beginning");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"X9\"", "[4]", "[1,4]") "}", 4, "belong to no tensor");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"X9\"", "[4]", "[0,4]") ",\"u\":" TENSOR("\"BOOL\"", "[4]", "[2,6]") "}",
        6, "overlap");
}

static void rejects_bad_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *part;
    } cases[] = {
        {UINT64_C(1) << 60, "1152921504606846976 bytes is longer than 100000000"},
        {UINT64_MAX, "is longer than"},
        {100000001, "is longer than"},
        {100000000, "past the end"},
        {93, "past the end"},
        {0, "does not start with '{'"},
        {1, "not valid JSON"},
        {91, "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_scratch_table table = {.size = 100};
        memset(table.bytes, ' ', table.size);
        memcpy(table.bytes, &cases[i].length, 8);
        table.bytes[8] = '{';
        struct eb_safetensors list;
        struct eb_failure failure = {.text = ""};
        assert_false(parse_safetensors(table.bytes, table.size, &list, &failure));
        eb_scratch_expect(failure.text, cases[i].part);
    }
}

static void rejects_headers_that_are_no_object(void **state)
{
    (void)state;
    expect_bad_safetensors(" {}", 0, "'{'");
    expect_bad_safetensors("[]", 0, "'{'");
    expect_bad_safetensors("{]", 0, "not valid JSON");
    expect_bad_safetensors("{} x", 0, "not valid JSON");
    expect_bad_safetensors("{\"t\":" F32_5X2 ",\"t\":" F32_5X2 "}", 40, "duplicate");
    expect_bad_safetensors("{\"\xff\":" F32_5X2 "}", 40, "not valid JSON");
    expect_bad_safetensors("{\"a\\u0000b\":" F32_5X2 "}", 40, "not valid JSON");
    expect_bad_safetensors("{\"t\":" F32_5X2 ",\"\\u0074\":" F32_5X2 "}", 40, "duplicate");
    expect_bad_safetensors("{\"t\":5}", 40, "tensor 't': its description is not an object");
}

static void rejects_a_file_without_tensors(void **state)
{
    (void)state;
    expect_bad_safetensors("{}", 0, "there is no table in it");
    expect_bad_safetensors("{\"__metadata__\":{}}", 0, "there is no table in it");
}

static void passes_over_other_fields(void **state)
{
    (void)state;
    struct eb_scratch_table table;
    struct eb_safetensors list;
    struct eb_failure failure;
    const char *json = "{\"t\":{\"scale\":{\"a\":[1,{}]},\"dtype\":\"U8\",\"shape\":[4],"
                       "\"data_offsets\":[0,4],\"more\":null},\"__metadata__\":{\"a\":5}}";
    eb_scratch_safetensors(&table, json, 4);
    assert_true(parse_safetensors(table.bytes, table.size, &list, &failure));
    assert_int_equal(list.count, 1);
    assert_int_equal(list.passed_over_count, 2);
    assert_string_equal(list.passed_over, "scale");
    eb_safetensors_deinit(&list);
}

static void rejects_fields_given_twice(void **state)
{
    (void)state;
    expect_bad_safetensors(
        "{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
        "tensor 't': field 'dtype' occurs twice");
}

static void resolves_escapes_in_fields(void **state)
{
    (void)state;
    expect_good_safetensors("{\"t\":{\"d\\u0074ype\":\"U8\",\"shape\":[4],"
                            "\"data_offsets\":[0,4]}}",
        4, 1);
    expect_bad_safetensors("{\"t\":{\"dtype\":\"U8\",\"dtyp\\u0065\":\"U8\",\"shape\":[4],"
                           "\"data_offsets\":[0,4]}}",
        4, "field 'dtype' occurs twice");
    expect_bad_safetensors("{\"__metadata__\":{},\"__metadata__\":{},\"t\":" F32_5X2 "}", 40,
        "field '__metadata__' is a duplicate");
}

static void reads_as_many_tensors_as_fit(void **state)
{
    (void)state;
    expect_good_safetensors("{\"\":{\"dtype\":\"\",\"shape\":[],\"data_offsets\":[0,0]}}", 0, 1);
    expect_bad_safetensors("{\"\":0,\"\":0,\"\":0,\"\":0,\"\":0,\"\":0}", 0, "not an object");
}

static void resolves_escapes_in_names(void **state)
{
    (void)state;
    struct eb_scratch_table table;
    struct eb_safetensors list;
    struct eb_failure failure;
    eb_scratch_safetensors(&table,
        "{\"a\\u00e9\\ud83d\\ude00\\n\\\"\" :\n" TENSOR("\"I\\u0038\"", "[ 4 ]", "[ 0 , 4 ]") "}",
        4);
    assert_true(parse_safetensors(table.bytes, table.size, &list, &failure));
    assert_string_equal(list.entries[0].name, "a\xc3\xa9\xf0\x9f\x98\x80\n\"");
    assert_int_equal(tensor_of(&list, 0).storage, EB_STORAGE_I8);
    eb_safetensors_deinit(&list);
}

static void rejects_deep_nesting(void **state)
{
    (void)state;
    char json[3001];
    memset(json, '[', 3000);
    memcpy(json, "{\"t\":", 5);
    json[3000] = '\0';
    expect_bad_safetensors(json, 0, "not valid JSON");
}

static void rejects_bad_types(void **state)
{
    (void)state;
    expect_bad_safetensors("{\"t\":" TENSOR("4", "[4]", "[0,16]") "}", 16, "'dtype'");
    expect_bad_safetensors("{\"t\":{\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "'dtype'");
}

static void rejects_bad_shapes_of_safetensors(void **state)
{
    (void)state;
    expect_bad_safetensors("{\"t\":" TENSOR("\"F32\"", "5", "[0,20]") "}", 20, "'shape'");
    expect_bad_safetensors("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "'shape'");
    expect_bad_safetensors("{\"t\":" TENSOR("\"F32\"", "[5,-2]", "[0,40]") "}", 40, "entry 1");
    expect_bad_safetensors("{\"t\":" TENSOR("\"F32\"", "[5,2.0]", "[0,40]") "}", 40, "entry 1");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[9223372036854775807,9]", "[0,4]") "}", 4, "2^64");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[9223372036854775808]", "[0,4]") "}", 4, "entry 0");
}

static void rejects_bad_offsets(void **state)
{
    (void)state;
    expect_bad_safetensors("{\"t\":{\"dtype\":\"F32\",\"shape\":[5,2]}}", 40, "'data_offsets'");
    expect_bad_safetensors("{\"t\":" TENSOR("\"F32\"", "[5,2]", "[0]") "}", 40, "'data_offsets'");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[5,2]", "[0,40,80]") "}", 40, "'data_offsets'");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[5,2]", "[-40,0]") "}", 40, "'data_offsets'");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[5,2]", "[0,4e1]") "}", 40, "'data_offsets'");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[5,2]", "[40,0]") "}", 40, "before the beginning");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[5,2]", "[0,41]") "}", 40, "past the last of the");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[5,2]", "[0,39]") "}", 40, "39 bytes, but shape");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[5,3]", "[0,40]") "}", 40, "(5, 3) of F32 needs 60");
}

static void rejects_ranges_that_do_not_tile_the_data(void **state)
{
    (void)state;
#define PAIR(first, second)                                                                        \
    "{\"t\":" TENSOR("\"U8\"", "[4]", first) ",\"u\":" TENSOR("\"U8\"", "[4]", second) "}"
    expect_good_safetensors(PAIR("[0,4]", "[4,8]"), 8, 2);
    expect_good_safetensors(PAIR("[4,8]", "[0,4]"), 8, 2);
    expect_bad_safetensors(
        PAIR("[0,4]", "[3,7]"), 7, "tensor 'u': field 'data_offsets': it begins at 3");
    expect_bad_safetensors(PAIR("[0,4]", "[0,4]"), 4, "overlap");
    expect_bad_safetensors(PAIR("[0,4]", "[5,9]"), 9, "belong to no tensor");
    expect_bad_safetensors(PAIR("[1,5]", "[5,9]"), 9, "belong to no tensor");
    expect_bad_safetensors(PAIR("[0,4]", "[4,8]"), 9, "1 bytes after the last tensor");
    expect_bad_safetensors(
        "{\"t\":" TENSOR("\"F32\"", "[0,2]", "[0,0]") "}", 1, "after the last tensor");
#undef PAIR
}

static void rejects_every_truncation_of_safetensors(void **state)
{
    (void)state;
    struct eb_scratch_table table;
    eb_scratch_safetensors(&table, TWO, 16);
    for (size_t size = 0; size < table.size; size++) {
        struct eb_safetensors list;
        struct eb_failure failure = {.text = ""};
        assert_false(parse_safetensors(table.bytes, size, &list, &failure));
        assert_true(strlen(failure.text) > 0);
    }
}

static void survives_every_byte_changed_of_safetensors(void **state)
{
    (void)state;
    struct eb_scratch_table table;
    eb_scratch_safetensors(&table, TWO, 16);
    for (size_t at = 0; at < table.size - 16; at++) {
        for (unsigned value = 0; value < 256; value++) {
            struct eb_scratch_table changed = table;
            struct eb_safetensors list;
            struct eb_failure failure;
            changed.bytes[at] = (uint8_t)value;
            if (parse_safetensors(changed.bytes, changed.size, &list, &failure)) {
                assert_true(list.count <= 2);
            }
            eb_safetensors_deinit(&list);
        }
    }
}

static int tear_down_all(void **state)
{
    (void)state;
    free(parsed_head);
    return 0;
}

EB_TEST_GROUP(safetensors)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_tensors_in_the_order_of_their_data),
        cmocka_unit_test(reads_every_element_type_of_safetensors),
        cmocka_unit_test(accepts_what_the_format_allows),
        cmocka_unit_test(lists_tensors_that_cannot_be_tables),
        cmocka_unit_test(rejects_unfit_tensors_that_are_malformed),
        cmocka_unit_test(rejects_bad_lengths),
        cmocka_unit_test(rejects_headers_that_are_no_object),
        cmocka_unit_test(rejects_a_file_without_tensors),
        cmocka_unit_test(passes_over_other_fields),
        cmocka_unit_test(rejects_fields_given_twice),
        cmocka_unit_test(resolves_escapes_in_names),
        cmocka_unit_test(resolves_escapes_in_fields),
        cmocka_unit_test(reads_as_many_tensors_as_fit),
        cmocka_unit_test(rejects_deep_nesting),
        cmocka_unit_test(rejects_bad_types),
        cmocka_unit_test(rejects_bad_shapes_of_safetensors),
        cmocka_unit_test(rejects_bad_offsets),
        cmocka_unit_test(rejects_ranges_that_do_not_tile_the_data),
        cmocka_unit_test(rejects_every_truncation_of_safetensors),
        cmocka_unit_test(survives_every_byte_changed_of_safetensors),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down_all);
}
