#include "server/formats/json_reader.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Reads an exact copy of the text, so that a sanitizer sees a read past its end. */
static const char *read_text(const char *text, size_t *at)
{
    size_t size = strlen(text);
    uint8_t *bytes = malloc(size + (size == 0));
    assert_non_null(bytes);
    memcpy(bytes, text, size);
    struct eb_json_reader reader = {.bytes = bytes, .size = size};
    bool is_good = eb_json_skip(&reader) && eb_json_end(&reader);
    assert_int_equal(is_good, !reader.error);
    *at = reader.at;
    free(bytes);
    return reader.error;
}

static void skips_values(void **state)
{
    (void)state;
    static const char *const texts[] = {"0", "-0", " 12.5e-7 ", "1E+5", "true", "false", "null",
        "\"\"", "\"a\\\"b\"", "[]", "[ ]", "{}", "[1, 2 ,[3]]", "{\"a\":[{}],\"b\":{\"c\":null}}",
        "\t\r\n{ \"a\" : 1 }\n", "\"\xc3\xa9 \xef\xbf\xbf \xf4\x8f\xbf\xbf\"", "\"\\ud83d\\ude00\"",
        "\"\x7f\""};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        size_t at;
        const char *error = read_text(texts[i], &at);
        if (error) {
            fail_msg("%s: %s", texts[i], error);
        }
        assert_int_equal(at, strlen(texts[i]));
    }
}

static void refuses_what_is_not_json(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t at;
        const char *error;
    } cases[] = {
        {"", 0, "it ends too early"},
        {"01", 0, "an invalid number"},
        {"1.", 0, "an invalid number"},
        {"1e", 0, "an invalid number"},
        {"-", 0, "an invalid number"},
        {"+1", 0, "expected a value"},
        {"nul", 0, "expected a value"},
        {"a value", 0, "expected a value"},
        {"[1 2]", 3, "expected ',' or ']'"},
        {"[1,]", 3, "expected a value"},
        {"{\"a\":", 5, "it ends too early"},
        {"[,1]", 1, "expected a value"},
        {"[1", 2, "it ends too early"},
        {"{\"a\" 1}", 5, "expected ':'"},
        {"{a:1}", 1, "expected a string"},
        {"{\"a\":1,}", 7, "expected a string"},
        {"{\"a\":1 \"b\":2}", 7, "expected ',' or '}'"},
        {"{]", 1, "expected a string"},
        {"{\"a\"", 4, "it ends too early"},
        {"{", 1, "it ends too early"},
        {"1 2", 2, "more text after the end"},
        {"\"a", 2, "it ends too early"},
        {"\"a\\", 2, "an invalid escape or NUL"},
        {"\"\\x\"", 1, "an invalid escape or NUL"},
        {"\"\\u0000\"", 1, "an invalid escape or NUL"},
        {"\"\\u12g4\"", 1, "an invalid escape or NUL"},
        {"\"\\ud800\"", 1, "an invalid escape or NUL"},
        {"\"\\ud800\\u0041\"", 1, "an invalid escape or NUL"},
        {"\"\\udc00\"", 1, "an invalid escape or NUL"},
        {"\"\n\"", 1, "a control character in a string"},
        {"\"\x80\"", 1, "an invalid UTF-8 character"},
        {"\"\xc0\xaf\"", 1, "an invalid UTF-8 character"},
        {"\"\xe0\x80\xaf\"", 1, "an invalid UTF-8 character"},
        {"\"\xed\xa0\x80\"", 1, "an invalid UTF-8 character"},
        {"\"\xf4\x90\x80\x80\"", 1, "an invalid UTF-8 character"},
        {"\"\xf0\x9f\x98", 1, "an invalid UTF-8 character"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t at;
        const char *error = read_text(cases[i].text, &at);
        if (!error) {
            fail_msg("accepted %s", cases[i].text);
        }
        assert_string_equal(error, cases[i].error);
        assert_int_equal(at, cases[i].at);
    }
}

static void bounds_the_depth(void **state)
{
    (void)state;
    char text[2 * EB_JSON_DEPTH_MAX + 3] = {0};
    size_t at;
    memset(text, '[', EB_JSON_DEPTH_MAX);
    memset(text + EB_JSON_DEPTH_MAX, ']', EB_JSON_DEPTH_MAX);
    assert_null(read_text(text, &at));
    memset(text, '[', EB_JSON_DEPTH_MAX + 1);
    memset(text + EB_JSON_DEPTH_MAX + 1, ']', EB_JSON_DEPTH_MAX + 1);
    assert_string_equal(read_text(text, &at), "arrays and objects are nested more than 64 deep");
    assert_int_equal(at, EB_JSON_DEPTH_MAX);
}

static void reads_counts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_count;
        uint64_t count;
    } cases[] = {
        {"0", true, 0},
        {" 17 ", true, 17},
        {"9223372036854775807", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"99999999999999999999999", false, 0},
        {"-1", false, 0},
        {"-0", false, 0},
        {"1.0", false, 0},
        {"1e1", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_json_reader reader = {
            .bytes = (const uint8_t *)cases[i].text, .size = strlen(cases[i].text)};
        uint64_t count;
        bool is_count;
        assert_true(eb_json_count(&reader, &count, &is_count));
        assert_int_equal(is_count, cases[i].is_count);
        assert_true(!is_count || count == cases[i].count);
        assert_true(eb_json_end(&reader));
    }
}

static void resolves_escapes_in_place(void **state)
{
    (void)state;
    uint8_t text[] = "\"a\\u00e9\\u20ac\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\tz\"";
    struct eb_json_reader reader = {.bytes = text, .size = sizeof text - 1};
    struct eb_json_text found;
    assert_true(eb_json_string(&reader, &found) && eb_json_end(&reader));
    eb_json_decode(text, &found, (char *)text + found.at);
    assert_string_equal(
        (char *)text + found.at, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"\\/\b\f\n\r\tz");
}

static void walks_through_members(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": [1, 2], \"b\": {}}";
    struct eb_json_reader reader = {.bytes = (const uint8_t *)text, .size = sizeof text - 1};
    struct eb_json_text name;
    bool is_first = true;
    uint64_t count;
    bool is_count;
    assert_true(eb_json_enter(&reader, '{'));
    assert_true(eb_json_next(&reader, '}', &is_first));
    assert_true(eb_json_name(&reader, &name));
    assert_int_equal(name.at, 2);
    assert_int_equal(name.bytes, 1);
    bool is_first_element = true;
    assert_true(eb_json_enter(&reader, '['));
    for (uint64_t i = 1; eb_json_next(&reader, ']', &is_first_element); i++) {
        assert_true(eb_json_count(&reader, &count, &is_count));
        assert_int_equal(count, i);
    }
    assert_true(eb_json_next(&reader, '}', &is_first));
    assert_true(eb_json_name(&reader, &name));
    assert_int_equal(eb_json_peek(&reader), '{');
    assert_true(eb_json_skip(&reader));
    assert_false(eb_json_next(&reader, '}', &is_first));
    assert_true(eb_json_end(&reader));
}

EB_TEST_GROUP(json_reader)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skips_values),
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(bounds_the_depth),
        cmocka_unit_test(reads_counts),
        cmocka_unit_test(resolves_escapes_in_place),
        cmocka_unit_test(walks_through_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
