#include "proto/net/address.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void reads_host_and_port(void **state)
{
    (void)state;
    struct eb_endpoint endpoint;
    assert_null(eb_endpoint_parse("lookup.example:8600", 1, &endpoint));
    assert_false(endpoint.is_unix);
    assert_string_equal(endpoint.host, "lookup.example");
    assert_string_equal(endpoint.port, "8600");
    assert_null(eb_endpoint_parse("127.0.0.1:65535", 1, &endpoint));
    assert_string_equal(endpoint.port, "65535");
}

static void reads_an_ipv6_address_in_brackets(void **state)
{
    (void)state;
    struct eb_endpoint endpoint;
    assert_null(eb_endpoint_parse("[::1]:8600", 1, &endpoint));
    assert_string_equal(endpoint.host, "::1");
    assert_string_equal(endpoint.port, "8600");
}

static void reads_a_unix_path(void **state)
{
    (void)state;
    struct eb_endpoint endpoint;
    assert_null(eb_endpoint_parse("unix:/run/embag:1", 1, &endpoint));
    assert_true(endpoint.is_unix);
    assert_string_equal(endpoint.path, "/run/embag:1");
}

static void knows_what_stays_on_this_machine(void **state)
{
    (void)state;
    static const char *const local[] = {
        "unix:/s", "localhost:1", "LOCALHOST:1", "127.0.0.1:1", "127.255.0.9:1", "[::1]:1"};
    static const char *const far[] = {"localhost.example:1", "126.0.0.1:1", "128.0.0.1:1",
        "127.example:1", "0.0.0.0:1", "[::2]:1", "[::]:1", "[fe80::1]:1"};
    struct eb_endpoint endpoint;
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++) {
        assert_null(eb_endpoint_parse(local[i], 1, &endpoint));
        assert_true(eb_endpoint_is_local(&endpoint));
    }
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        assert_null(eb_endpoint_parse(far[i], 1, &endpoint));
        assert_false(eb_endpoint_is_local(&endpoint));
    }
}

static void rejects_what_is_no_address(void **state)
{
    (void)state;
    static const char *const texts[] = {"", ":", "host", "host:", ":8600", "host:0", "host:65536",
        "host:086000", "host:-1", "host:80a", "::1:8600", "[::1]", "[]:8600", "[::1:8600", "[:1",
        "unix:"};
    struct eb_endpoint endpoint;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!eb_endpoint_parse(texts[i], 1, &endpoint)) {
            fail_msg("\"%s\" was taken for an address", texts[i]);
        }
    }
}

static void rejects_a_path_or_a_name_that_does_not_fit(void **state)
{
    (void)state;
    struct eb_endpoint endpoint;
    char text[400] = "unix:";
    memset(text + 5, 'a', sizeof endpoint.path - 1);
    assert_null(eb_endpoint_parse(text, 1, &endpoint));
    text[5 + sizeof endpoint.path - 1] = 'a';
    assert_non_null(eb_endpoint_parse(text, 1, &endpoint));

    memset(text, 0, sizeof text);
    memset(text, 'h', EB_ENDPOINT_HOST_BYTES - 1);
    strcpy(text + EB_ENDPOINT_HOST_BYTES - 1, ":1");
    assert_null(eb_endpoint_parse(text, 1, &endpoint));
    memset(text, 'h', EB_ENDPOINT_HOST_BYTES);
    strcpy(text + EB_ENDPOINT_HOST_BYTES, ":1");
    assert_non_null(eb_endpoint_parse(text, 1, &endpoint));
}

static void takes_port_0_only_where_the_caller_does(void **state)
{
    (void)state;
    struct eb_endpoint endpoint;
    assert_null(eb_endpoint_parse("host:0", 0, &endpoint));
    assert_string_equal(endpoint.port, "0");
    assert_string_equal(eb_endpoint_parse("host:0", 1, &endpoint), "the port must be in 1..65535");
    assert_null(eb_endpoint_parse("host:1", 1, &endpoint));
}

EB_TEST_GROUP(endpoint)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_host_and_port),
        cmocka_unit_test(reads_an_ipv6_address_in_brackets),
        cmocka_unit_test(reads_a_unix_path),
        cmocka_unit_test(knows_what_stays_on_this_machine),
        cmocka_unit_test(rejects_what_is_no_address),
        cmocka_unit_test(rejects_a_path_or_a_name_that_does_not_fit),
        cmocka_unit_test(takes_port_0_only_where_the_caller_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
