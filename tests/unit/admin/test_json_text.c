#include "server/admin/json_text.h"

#include "tests/lib/test_group.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG_BYTES 100000

static void assert_written(struct eb_json_text *text, const char *expected)
{
    size_t size;
    char *bytes = eb_json_text_take(text, &size);
    assert_non_null(bytes);
    assert_string_equal(bytes, expected);
    assert_int_equal(size, strlen(expected));
    free(bytes);
    assert_null(text->bytes);
}

static void separates_members_and_elements(void **state)
{
    (void)state;
    struct eb_json_text text = {0};
    eb_json_text_begin(&text, NULL, '{');
    eb_json_text_count(&text, "a", UINT64_MAX);
    eb_json_text_begin(&text, "b", '[');
    eb_json_text_begin(&text, NULL, '{');
    eb_json_text_end(&text, '}');
    eb_json_text_begin(&text, NULL, '[');
    eb_json_text_end(&text, ']');
    eb_json_text_id(&text, NULL, INT64_MIN);
    eb_json_text_unsigned_id(&text, NULL, UINT64_MAX);
    eb_json_text_end(&text, ']');
    eb_json_text_string(&text, "c", NULL);
    eb_json_text_string(&text, "d", "[");
    eb_json_text_string(&text, "e", "");
    eb_json_text_end(&text, '}');
    assert_written(&text, "{\"a\":18446744073709551615,\"b\":[{},[],\"-9223372036854775808\","
                          "\"18446744073709551615\"],\"c\":null,\"d\":\"[\",\"e\":\"\"}");
}

static void escapes_what_is_no_plain_text(void **state)
{
    (void)state;
    struct eb_json_text text = {0};
    eb_json_text_string(&text, NULL, "\"\\/\n\t\x01\x7f </script>");
    assert_written(&text, "\"\\u0022\\u005c/\\u000a\\u0009\\u0001\\u007f \\u003c/script>\"");
    eb_json_text_string(&text, NULL, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_written(&text, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

static void replaces_bytes_that_are_not_utf8(void **state)
{
    (void)state;
    struct eb_json_text text = {0};
    eb_json_text_string(&text, NULL, "a\xff\xc0\xaf\xed\xa0\x80z");
    assert_written(&text, "\"a\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffdz\"");
    eb_json_text_string(&text, NULL, "cut \xf0\x9f\x98");
    assert_written(&text, "\"cut \\ufffd\\ufffd\\ufffd\"");
}

static void writes_shares_by_four_places(void **state)
{
    (void)state;
    struct eb_json_text text = {0};
    const double shares[] = {0, 1, 0.5, 0.00004, 0.00006, 2, -1, (double)NAN, (double)INFINITY};
    eb_json_text_begin(&text, NULL, '[');
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        eb_json_text_share(&text, NULL, shares[i]);
    }
    eb_json_text_end(&text, ']');
    assert_written(&text, "[0.0000,1.0000,0.5000,0.0000,0.0001,1.0000,0.0000,0.0000,0.0000]");
}

static void grows_with_what_is_written(void **state)
{
    (void)state;
    struct eb_json_text text = {0};
    char *letters = malloc(LONG_BYTES + 1);
    assert_non_null(letters);
    memset(letters, 'x', LONG_BYTES);
    letters[LONG_BYTES] = 0;
    eb_json_text_begin(&text, NULL, '[');
    eb_json_text_string(&text, NULL, letters);
    eb_json_text_string(&text, NULL, letters + 1);
    eb_json_text_end(&text, ']');
    size_t size;
    char *bytes = eb_json_text_take(&text, &size);
    assert_non_null(bytes);
    assert_int_equal(size, 2 * LONG_BYTES - 1 + strlen("[\"\",\"\"]"));
    assert_memory_equal(bytes + 2, letters, LONG_BYTES);
    assert_memory_equal(bytes + LONG_BYTES + 2, "\",\"xx", 5);
    free(bytes);
    free(letters);
}

EB_TEST_GROUP(json_text)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(separates_members_and_elements),
        cmocka_unit_test(escapes_what_is_no_plain_text),
        cmocka_unit_test(replaces_bytes_that_are_not_utf8),
        cmocka_unit_test(writes_shares_by_four_places),
        cmocka_unit_test(grows_with_what_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
