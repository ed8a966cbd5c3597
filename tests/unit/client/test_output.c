#include "client/cli/output.h"

#include "tests/lib/test_group.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Expects one value of this type to be printed as `expected`. */
static void assert_printed(
    enum embag_type type, const void *value, bool as_json, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    struct embag_result result = {.type = type, .values = value};
    eb_output_value(out, &result, 0, as_json);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, expected);
    free(text);
}

static void prints_f32_by_the_fewest_digits(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *text;
    } cases[] = {{0.2f, "0.2"}, {-2.1f, "-2.1"}, {0.0f, "0"}, {-0.0f, "-0"}, {10.0f, "10"},
        {1e15f, "999999986991104"}, {1e16f, "1e+16"}, {1e-4f, "0.0001"}, {1.5e-5f, "1.5e-05"},
        {16777216.0f, "16777216"}, {0.1f + 0.2f, "0.3"}, {1.0f / 3.0f, "0.33333334"},
        {1e-45f, "1e-45"}, {3.4028235e38f, "3.4028235e+38"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[40];
        snprintf(text, sizeof text, "%s", cases[i].text);
        assert_true(strtof(text, NULL) == cases[i].value);
        assert_printed(EMBAG_F32, &cases[i].value, true, cases[i].text);
    }
}

static void prints_f64_by_the_fewest_digits(void **state)
{
    (void)state;
    const double values[] = {
        0.2, 0.1 + 0.2, 5e-324, 9007199254740992, 1e16, -1234.5e-7, DBL_MAX, -100};
    static const char *const texts[] = {"0.2", "0.30000000000000004", "5e-324", "9007199254740992",
        "1e+16", "-0.00012345", "1.7976931348623157e+308", "-100"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_printed(EMBAG_F64, &values[i], false, texts[i]);
    }
}

static void widens_halves(void **state)
{
    (void)state;
    uint16_t one = 0x3c00, smallest = 0x0001, largest = 0x7bff, negative = 0xc000;
    assert_printed(EMBAG_F16, &one, false, "1");
    assert_printed(EMBAG_F16, &smallest, false, "5.9604645e-08");
    assert_printed(EMBAG_F16, &largest, false, "65504");
    assert_printed(EMBAG_F16, &negative, false, "-2");
    uint16_t infinity = 0xfc00, brain_one = 0x3f80, brain_nan = 0x7fc0;
    assert_printed(EMBAG_F16, &infinity, false, "-inf");
    assert_printed(EMBAG_BF16, &brain_one, false, "1");
    assert_printed(EMBAG_BF16, &brain_nan, false, "nan");
}

static void makes_strings_of_what_json_cannot_say(void **state)
{
    (void)state;
    float nan_value = NAN, infinity = INFINITY, minus_infinity = -INFINITY;
    assert_printed(EMBAG_F32, &nan_value, true, "\"NaN\"");
    assert_printed(EMBAG_F32, &infinity, true, "\"Infinity\"");
    assert_printed(EMBAG_F32, &minus_infinity, true, "\"-Infinity\"");
    assert_printed(EMBAG_F32, &infinity, false, "inf");
}

static void prints_integers_exactly(void **state)
{
    (void)state;
    int8_t i8 = -128;
    uint8_t u8 = 255;
    int16_t i16 = -32768;
    uint32_t u32 = UINT32_MAX;
    int64_t i64 = INT64_MIN;
    uint64_t u64 = UINT64_MAX;
    assert_printed(EMBAG_I8, &i8, true, "-128");
    assert_printed(EMBAG_U8, &u8, true, "255");
    assert_printed(EMBAG_I16, &i16, true, "-32768");
    assert_printed(EMBAG_U32, &u32, true, "4294967295");
    assert_printed(EMBAG_I64, &i64, true, "-9223372036854775808");
    assert_printed(EMBAG_U64, &u64, true, "18446744073709551615");
}

static void prints_shapes_and_json_texts(void **state)
{
    (void)state;
    const uint64_t shape[] = {3, 2};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    eb_output_shape(out, shape, 2);
    eb_output_shape(out, shape, 0);
    eb_output_json_text(out, "a\"b\\c\n\xc3\xa4");
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "[3, 2][]\"a\\\"b\\\\c\\u000a\xc3\xa4\"");
    free(text);
    assert_string_equal(eb_output_type(EMBAG_U64), "u64");
    assert_string_equal(eb_output_type((enum embag_type)13), "unspecified");
}

static void escapes_control_characters_for_people(void **state)
{
    (void)state;
    assert_string_equal(eb_output_printable("").bytes, "");
    assert_string_equal(eb_output_printable("t\033[2J\n\x7f").bytes, "t\\x1b[2J\\x0a\\x7f");
    assert_string_equal(
        eb_output_printable("\xc2\x9b\xc2\xa0\xc3\x9f").bytes, "\\xc2\\x9b\xc2\xa0\xc3\x9f");
    assert_string_equal(eb_output_printable("\xc2").bytes, "\xc2");
    char text[EB_OUTPUT_TEXT_BYTES + 1];
    memset(text, '\n', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_in_range(strlen(eb_output_printable(text).bytes), 1000, EB_OUTPUT_TEXT_BYTES - 1);
}

EB_TEST_GROUP(output)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_f32_by_the_fewest_digits),
        cmocka_unit_test(prints_f64_by_the_fewest_digits),
        cmocka_unit_test(widens_halves),
        cmocka_unit_test(makes_strings_of_what_json_cannot_say),
        cmocka_unit_test(prints_integers_exactly),
        cmocka_unit_test(prints_shapes_and_json_texts),
        cmocka_unit_test(escapes_control_characters_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
