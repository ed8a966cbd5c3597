#include "proto/grpc_text.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void reads_timeouts_in_every_unit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t us;
    } cases[] = {
        {"0u", 0},
        {"1u", 1},
        {"0n", 0},
        {"1n", 1},
        {"1000n", 1},
        {"1001n", 2},
        {"250m", 250000},
        {"3S", 3000000},
        {"2M", 120000000},
        {"1H", 3600000000u},
        {"99999999H", UINT64_C(359999996400000000)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t us = 77;
        assert_true(eb_grpc_timeout_parse(cases[i].text, strlen(cases[i].text), &us));
        assert_int_equal(us, cases[i].us);
    }
}

static void refuses_what_is_no_timeout(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "", "S", "5", "100000000m", "1s", "-1S", "+1S", " 1S", "1 S", "1S ", "0x1S", "1.5S"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t us;
        assert_false(eb_grpc_timeout_parse(cases[i], strlen(cases[i]), &us));
    }
}

static void writes_timeouts_that_are_never_shorter(void **state)
{
    (void)state;
    uint64_t us = 1;
    for (int i = 0; i < 58; i++) {
        for (uint64_t value = us - 1; value <= us + 1; value++) {
            char text[16];
            uint64_t back;
            eb_grpc_timeout_format(value, text);
            assert_true(eb_grpc_timeout_parse(text, strlen(text), &back));
            assert_true(back >= value);
            assert_true(back - value <= value / 1000);
        }
        us *= 2;
    }
    char longest[16];
    eb_grpc_timeout_format(UINT64_MAX, longest);
    assert_string_equal(longest, "99999999H");
    eb_grpc_timeout_format(1500, longest);
    assert_string_equal(longest, "1500u");
}

static void percent_encodes_and_back(void **state)
{
    (void)state;
    static const char text[] = "50 % of \"gr\xc3\xbc\xc3\x9f"
                               "e\"\n~ \xf0\x9f\x98\x80\x7f";
    static const char expected[] = "50 %25 of \"gr%C3%BC%C3%9Fe\"%0A~ %F0%9F%98%80%7F";
    char encoded[EB_GRPC_MESSAGE_BYTES_MAX];
    char back[EB_GRPC_MESSAGE_BYTES_MAX];
    size_t size = eb_grpc_message_encode(text, encoded);
    assert_int_equal(size, strlen(expected));
    assert_memory_equal(encoded, expected, size);
    eb_grpc_message_decode(encoded, size, back, sizeof back);
    assert_string_equal(back, text);
    assert_int_equal(eb_grpc_message_encode("", encoded), 0);
}

static void encodes_bytes_that_are_no_text(void **state)
{
    (void)state;
    char encoded[EB_GRPC_MESSAGE_BYTES_MAX];
    size_t size = eb_grpc_message_encode("\xff\xc3(\xe2\x82", encoded);
    assert_int_equal(size, 13);
    assert_memory_equal(encoded, "%FF%C3(%E2%82", size);
}

static void cuts_between_characters(void **state)
{
    (void)state;
    char text[2048];
    char encoded[EB_GRPC_MESSAGE_BYTES_MAX];
    for (size_t lead = 0; lead < 12; lead++) {
        memset(text, 'a', lead);
        for (size_t i = 0; i < 300; i++) {
            memcpy(text + lead + 4 * i, "\xf0\x9f\x98\x80", 4);
        }
        text[lead + 1200] = '\0';
        size_t size = eb_grpc_message_encode(text, encoded);
        assert_int_equal((size - lead) % 12, 0);
        assert_true(size > EB_GRPC_MESSAGE_BYTES_MAX - 12 && size <= EB_GRPC_MESSAGE_BYTES_MAX);
    }
    memset(text, 'b', 2047);
    text[2047] = '\0';
    assert_int_equal(eb_grpc_message_encode(text, encoded), EB_GRPC_MESSAGE_BYTES_MAX);
}

static void leaves_bad_escapes_and_cuts_what_does_not_fit(void **state)
{
    (void)state;
    char out[8];
    eb_grpc_message_decode("%4g%", 4, out, sizeof out);
    assert_string_equal(out, "%4g%");
    eb_grpc_message_decode("%4", 2, out, sizeof out);
    assert_string_equal(out, "%4");
    eb_grpc_message_decode("%41%42c%64efgh", 14, out, sizeof out);
    assert_string_equal(out, "ABcdefg");
    eb_grpc_message_decode("abc", 3, out, 1);
    assert_string_equal(out, "");
}

static void writes_prefixes(void **state)
{
    (void)state;
    uint8_t prefix[EB_GRPC_PREFIX_BYTES];
    eb_grpc_prefix_write(prefix, 0x01020304);
    assert_memory_equal(prefix, "\0\1\2\3\4", sizeof prefix);
}

EB_TEST_GROUP(grpc_text)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_timeouts_in_every_unit),
        cmocka_unit_test(refuses_what_is_no_timeout),
        cmocka_unit_test(writes_timeouts_that_are_never_shorter),
        cmocka_unit_test(percent_encodes_and_back),
        cmocka_unit_test(encodes_bytes_that_are_no_text),
        cmocka_unit_test(cuts_between_characters),
        cmocka_unit_test(leaves_bad_escapes_and_cuts_what_does_not_fit),
        cmocka_unit_test(writes_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
