#include "proto/link/target.h"

#include "tests/lib/test_group.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void reads_one_address(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *port, *authority;
    } cases[] = {
        {"server.example:8600", "server.example", "8600", "server.example:8600"},
        {"10.0.0.1:1", "10.0.0.1", "1", "10.0.0.1:1"},
        {"[::1]:65535", "::1", "65535", "[::1]:65535"},
        {"dns:server.example:8600", "server.example", "8600", "server.example:8600"},
        {"dns:///server.example:8600", "server.example", "8600", "server.example:8600"},
        {"dns:8600", "dns", "8600", "dns:8600"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_targets targets;
        struct eb_error error;
        if (!eb_targets_parse(cases[i].text, &targets, &error)) {
            fail_msg("%s: %s", cases[i].text, error.text);
        }
        assert_int_equal(targets.count, 1);
        assert_string_equal(targets.items[0].endpoint.host, cases[i].host);
        assert_string_equal(targets.items[0].endpoint.port, cases[i].port);
        assert_string_equal(targets.items[0].authority, cases[i].authority);
        eb_targets_free(&targets);
    }
}

static void reads_a_list(void **state)
{
    (void)state;
    struct eb_targets targets;
    struct eb_error error;
    assert_true(eb_targets_parse("dns:8600,b:8600", &targets, &error));
    assert_int_equal(targets.count, 2);
    assert_string_equal(targets.items[0].endpoint.host, "dns");
    eb_targets_free(&targets);
    assert_true(eb_targets_parse("a:1,[::2]:2,10.0.0.3:3", &targets, &error));
    assert_int_equal(targets.count, 3);
    assert_string_equal(targets.items[1].endpoint.host, "::2");
    assert_string_equal(targets.items[2].authority, "10.0.0.3:3");
    eb_targets_free(&targets);
    eb_targets_free(&targets);
}

static void reads_a_path_with_commas(void **state)
{
    (void)state;
    struct eb_targets targets;
    struct eb_error error;
    struct eb_address address;
    assert_true(eb_targets_parse("unix:/run/a,b:1", &targets, &error));
    assert_int_equal(targets.count, 1);
    assert_string_equal(targets.items[0].endpoint.path, "/run/a,b:1");
    assert_string_equal(targets.items[0].authority, "localhost");
    assert_true(eb_target_read_address(&targets.items[0], &address));
    assert_string_equal(eb_address_unix_path(&address), "/run/a,b:1");
    eb_targets_free(&targets);
}

static void refuses_what_is_no_address(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "invalid address \"\": expected HOST:PORT"},
        {"a:1,", "invalid address \"\": expected HOST:PORT"},
        {",a:1", "invalid address \"\": expected HOST:PORT"},
        {"a:1,b", "invalid address \"b\": expected HOST:PORT"},
        {"a:0", "invalid address \"a:0\": the port must be in 1..65535"},
        {"dns:", "invalid address \"dns:\": the port must be in 1..65535"},
        {"dns:///a", "invalid address \"dns:///a\""},
        {"dns://8.8.8.8/a:1", "a name server cannot be given; expected dns:///NAME:PORT"},
        {"dns:a:1,b:2", "invalid address \"a:1,b:2\""},
        {"unix:", "the path of a unix socket has 1 to 107 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_targets targets;
        struct eb_error error;
        assert_false(eb_targets_parse(cases[i].text, &targets, &error));
        assert_int_equal(error.status, EB_STATUS_INVALID_ARGUMENT);
        if (!strstr(error.text, cases[i].part)) {
            fail_msg("%s: %s", cases[i].text, error.text);
        }
        assert_int_equal(targets.count, 0);
    }
}

static void refuses_an_address_that_is_too_long(void **state)
{
    (void)state;
    char text[EB_ADDRESS_GIVEN_BYTES + 1];
    struct eb_targets targets;
    struct eb_error error;
    memset(text, 'a', sizeof text);
    (void)strcpy(text + sizeof text - 3, ":1");
    assert_false(eb_targets_parse(text, &targets, &error));
    assert_non_null(strstr(error.text, "it is longer than 259 bytes"));
    assert_true(eb_targets_parse(text + 1, &targets, &error));
    eb_targets_free(&targets);
}

/* Writes `count` addresses, divided by commas. */
static char *write_list(unsigned count)
{
    char *text = malloc((size_t)count * 4 + 1);
    assert_non_null(text);
    for (unsigned i = 0; i < count; i++) {
        (void)strcpy(text + (size_t)4 * i, "a:1,");
    }
    text[(size_t)count * 4 - 1] = '\0';
    return text;
}

static void takes_as_many_as_the_limit(void **state)
{
    (void)state;
    struct eb_targets targets;
    struct eb_error error;
    char *text = write_list(EB_TARGETS_MAX);
    assert_true(eb_targets_parse(text, &targets, &error));
    assert_int_equal(targets.count, EB_TARGETS_MAX);
    eb_targets_free(&targets);
    free(text);
    text = write_list(EB_TARGETS_MAX + 1);
    assert_false(eb_targets_parse(text, &targets, &error));
    assert_string_equal(error.text, "1025 addresses are given; at most 1024 are allowed");
    free(text);
}

static void tells_numbers_from_names(void **state)
{
    (void)state;
    struct eb_targets targets;
    struct eb_error error;
    struct eb_address address;
    assert_true(eb_targets_parse("10.0.0.3:513,[::1]:2,localhost:3", &targets, &error));
    assert_true(eb_target_read_address(&targets.items[0], &address));
    struct sockaddr_in v4;
    assert_int_equal(address.size, sizeof v4);
    memcpy(&v4, &address.socket_address, sizeof v4);
    assert_int_equal(v4.sin_family, AF_INET);
    assert_int_equal(ntohs(v4.sin_port), 513);
    assert_int_equal(ntohl(v4.sin_addr.s_addr), 0x0a000003);
    assert_true(eb_target_read_address(&targets.items[1], &address));
    assert_int_equal(address.size, sizeof(struct sockaddr_in6));
    assert_false(eb_target_read_address(&targets.items[2], &address));
    eb_targets_free(&targets);
}

EB_TEST_GROUP(target)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_one_address),
        cmocka_unit_test(reads_a_list),
        cmocka_unit_test(reads_a_path_with_commas),
        cmocka_unit_test(refuses_what_is_no_address),
        cmocka_unit_test(refuses_an_address_that_is_too_long),
        cmocka_unit_test(takes_as_many_as_the_limit),
        cmocka_unit_test(tells_numbers_from_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
