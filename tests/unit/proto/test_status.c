#include "proto/status.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void names_every_code(void **state)
{
    (void)state;
    assert_string_equal(eb_status_name(EB_STATUS_OK), "OK");
    assert_string_equal(eb_status_name(EB_STATUS_OUT_OF_RANGE), "OUT_OF_RANGE");
    assert_string_equal(eb_status_name(16), "UNAUTHENTICATED");
    assert_string_equal(eb_status_name(17), "UNKNOWN");
    assert_string_equal(eb_status_name(-1), "UNKNOWN");
}

static void takes_only_numbers_of_grpc(void **state)
{
    (void)state;
    assert_int_equal(eb_status_of_number(0), EB_STATUS_OK);
    assert_int_equal(eb_status_of_number(16), EB_STATUS_UNAUTHENTICATED);
    assert_int_equal(eb_status_of_number(17), EB_STATUS_UNKNOWN);
    assert_int_equal(eb_status_of_number(UINT32_MAX), EB_STATUS_UNKNOWN);
}

static void sets_status_and_text(void **state)
{
    (void)state;
    struct eb_error error;
    assert_int_equal(
        eb_error_set(&error, EB_STATUS_NOT_FOUND, "no table \"%s\"", "t"), EB_STATUS_NOT_FOUND);
    assert_int_equal(error.status, EB_STATUS_NOT_FOUND);
    assert_string_equal(error.text, "no table \"t\"");
}

static void cuts_a_long_text(void **state)
{
    (void)state;
    struct eb_error error;
    eb_error_set(&error, EB_STATUS_INTERNAL, "%2000d", 1);
    assert_int_equal(strlen(error.text), EB_ERROR_TEXT_BYTES - 1);
}

/* A character of 1, 2, 3 or 4 bytes lies across the cut at each of its bytes. */
static void cuts_between_characters(void **state)
{
    (void)state;
    const char *characters[] = {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    for (size_t c = 0; c < 4; c++) {
        size_t width = c + 1;
        for (size_t over = 1; over <= width; over++) {
            char text[EB_ERROR_TEXT_BYTES + 8];
            size_t before = EB_ERROR_TEXT_BYTES - 1 + over - width;
            memset(text, 'a', before);
            memcpy(text + before, characters[c], width + 1);
            struct eb_error error;
            eb_error_set(&error, EB_STATUS_INTERNAL, "%s", text);
            assert_int_equal(strlen(error.text), width == 1 ? EB_ERROR_TEXT_BYTES - 1 : before);
        }
    }
}

static void keeps_a_text_that_just_fits(void **state)
{
    (void)state;
    char text[EB_ERROR_TEXT_BYTES];
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 3, "\xC3\xA9", 3);
    struct eb_error error;
    eb_error_set(&error, EB_STATUS_INTERNAL, "%s", text);
    assert_string_equal(error.text, text);
}

EB_TEST_GROUP(status)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_every_code),
        cmocka_unit_test(takes_only_numbers_of_grpc),
        cmocka_unit_test(sets_status_and_text),
        cmocka_unit_test(cuts_a_long_text),
        cmocka_unit_test(cuts_between_characters),
        cmocka_unit_test(keeps_a_text_that_just_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
