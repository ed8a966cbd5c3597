#include "server/base/name.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void measures_characters_of_every_length(void **state)
{
    (void)state;
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < 4; i++) {
        const uint8_t *at = (const uint8_t *)characters[i];
        assert_int_equal(eb_name_char_bytes(at, i + 1), i + 1);
        assert_true(i == 0 || eb_name_char_bytes(at, i) == 0);
    }
}

static void accepts_the_borders_of_unicode(void **state)
{
    (void)state;
    static const char *const good[] = {" ", "~", "\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_null(eb_name_error(good[i], 4));
    }
}

static void rejects_what_is_no_character(void **state)
{
    (void)state;
    static const char *const bad[] = {"\n", "\x7f", "\xc2\x85", "\x80", "\xbf", "\xc0\x80",
        "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff", "\xc3", "\xe2\x82", "\xc3(", "a\x1f"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_non_null(eb_name_error(bad[i], 8));
    }
}

static void rejects_an_empty_name(void **state)
{
    (void)state;
    assert_string_equal(eb_name_error("", 255), "is empty");
}

static void rejects_a_name_one_byte_past_the_limit(void **state)
{
    (void)state;
    assert_null(eb_name_error("abcd", 4));
    assert_non_null(eb_name_error("abcde", 4));
}

EB_TEST_GROUP(name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_characters_of_every_length),
        cmocka_unit_test(accepts_the_borders_of_unicode),
        cmocka_unit_test(rejects_what_is_no_character),
        cmocka_unit_test(rejects_an_empty_name),
        cmocka_unit_test(rejects_a_name_one_byte_past_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
