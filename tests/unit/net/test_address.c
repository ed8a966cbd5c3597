#include "proto/net/address.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include <cmocka.h>

static size_t resolve_text(const char *text, struct eb_address *out)
{
    struct eb_error error;
    size_t count = eb_address_resolve(text, out, &error);
    if (count == 0) {
        assert_true(error.text[0] != '\0');
    }
    return count;
}

/* Expects this error from eb_address_error, and the same from eb_address_resolve. */
static void expect_failure(const char *text, const char *wanted)
{
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    struct eb_error error;
    const char *why = eb_address_error(text);
    assert_non_null(why);
    assert_string_equal(why, wanted);
    assert_int_equal(eb_address_resolve(text, addresses, &error), 0);
    assert_string_equal(error.text, wanted);
}

static void says_what_is_wrong_with_a_form(void **state)
{
    (void)state;
    expect_failure("8600", "expected HOST:PORT, [V6]:PORT or unix:PATH");
    expect_failure("::1:8600", "an IPv6 address needs brackets: [::1]:8600");
    expect_failure("[::1:8600", "an IPv6 address needs brackets: [::1]:8600");
    expect_failure("host:65536", "the port must be in 0..65535");
    expect_failure("unix:", "the path of a unix socket has 1 to 107 bytes");
    assert_null(eb_address_error("no.such.host.invalid:1"));
}

static void refuses_an_address_that_is_too_long(void **state)
{
    (void)state;
    char text[EB_ADDRESS_GIVEN_BYTES + 1];
    memset(text, 'h', sizeof text);
    strcpy(text + EB_ADDRESS_GIVEN_BYTES - 3, ":1");
    assert_null(eb_address_error(text));
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    assert_int_equal(resolve_text(text, addresses), 0);
    text[EB_ADDRESS_GIVEN_BYTES - 3] = 'h';
    strcpy(text + EB_ADDRESS_GIVEN_BYTES - 2, ":1");
    expect_failure(text, "it is too long");
}

static void reads_and_writes_every_form(void **state)
{
    (void)state;
    const char *forms[] = {"127.0.0.1:8600", "[::1]:0", "unix:/tmp/embag.sock", "0.0.0.0:65535"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
        char text[EB_ADDRESS_TEXT_BYTES];
        assert_int_equal(resolve_text(forms[i], addresses), 1);
        eb_address_format(&addresses[0], text);
        assert_string_equal(text, forms[i]);
        assert_int_equal(eb_address_is_unix(&addresses[0]), strncmp(forms[i], "unix", 4) == 0);
    }
}

static void refuses_what_is_no_address(void **state)
{
    (void)state;
    const char *forms[] = {"", ":", "8600", ":8600", "host:", "127.0.0.1:65536", "127.0.0.1:x",
        "127.0.0.1:-1", "::1:8600", "[::1]", "[::1:8600", "[]:1", "unix:", "127.0.0.1:999999999",
        "256.256.256.256:1"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
        assert_int_equal(resolve_text(forms[i], addresses), 0);
    }
}

static void refuses_a_unix_path_that_does_not_fit(void **state)
{
    (void)state;
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    char text[256] = "unix:";
    memset(text + 5, 'p', 107);
    assert_int_equal(resolve_text(text, addresses), 1);
    text[5 + 107] = 'p';
    assert_int_equal(resolve_text(text, addresses), 0);
}

/* Linux lets a peer bind to a path that leaves no room for a NUL, and reports a size of 111
 * bytes. */
static void writes_a_peers_path_that_fills_its_place(void **state)
{
    (void)state;
    size_t head = offsetof(struct sockaddr_un, sun_path);
    struct eb_address *peer = calloc(1, sizeof *peer);
    assert_non_null(peer);
    peer->size = sizeof(struct sockaddr_un) + 1;
    peer->socket_address.ss_family = AF_UNIX;
    memset((char *)&peer->socket_address + head, 'p', sizeof(struct sockaddr_un) - head);
    char text[EB_ADDRESS_TEXT_BYTES];
    char expected[EB_ADDRESS_TEXT_BYTES] = "unix:";
    memset(expected + 5, 'p', 108);
    eb_address_format(peer, text);
    assert_string_equal(text, expected);
    free(peer);
}

static void writes_no_path_of_a_peer_without_one(void **state)
{
    (void)state;
    struct eb_address peer = {.size = sizeof(sa_family_t)};
    char text[EB_ADDRESS_TEXT_BYTES];
    peer.socket_address.ss_family = AF_UNIX;
    eb_address_format(&peer, text);
    assert_string_equal(text, "unix:");
}

EB_TEST_GROUP(address)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes_every_form),
        cmocka_unit_test(refuses_what_is_no_address),
        cmocka_unit_test(says_what_is_wrong_with_a_form),
        cmocka_unit_test(refuses_an_address_that_is_too_long),
        cmocka_unit_test(refuses_a_unix_path_that_does_not_fit),
        cmocka_unit_test(writes_a_peers_path_that_fills_its_place),
        cmocka_unit_test(writes_no_path_of_a_peer_without_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
