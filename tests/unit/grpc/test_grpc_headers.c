#include "proto/grpc_headers.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct eb_grpc_headers_limits limits = {.fields_max = 10, .bytes_max = 600};

static void add(struct eb_grpc_headers *headers, const char *name, const char *value)
{
    eb_grpc_headers_add(headers, (struct eb_grpc_text){name, strlen(name)},
        (struct eb_grpc_text){value, strlen(value)}, &limits);
}

/* Returns how the block is answered: an HTTP status other than 200, or the gRPC status. */
static int check(const struct eb_grpc_headers *headers)
{
    struct eb_error error;
    int http_status = eb_grpc_headers_check(headers, &limits, &error);
    return http_status == 200 ? (int)error.status : http_status;
}

static struct eb_grpc_headers good(void)
{
    struct eb_grpc_headers headers = {0};
    add(&headers, ":method", "POST");
    add(&headers, ":path", "/s/M");
    add(&headers, "content-type", "application/grpc");
    return headers;
}

static void reads_what_a_call_needs(void **state)
{
    (void)state;
    struct eb_grpc_headers headers = good();
    add(&headers, "te", "trailers");
    add(&headers, "grpc-encoding", "identity");
    assert_int_equal(headers.timeout_us, 0);
    add(&headers, "grpc-timeout", "20m");
    assert_int_equal(check(&headers), EB_STATUS_OK);
    assert_string_equal(headers.path, "/s/M");
    assert_int_equal(headers.timeout_us, 20000);
    assert_int_equal(headers.encoding, EB_GRPC_IDENTITY);
    add(&headers, "grpc-encoding", "gzip");
    assert_int_equal(headers.encoding, EB_GRPC_GZIP);
    add(&headers, "grpc-encoding", "deflate");
    assert_int_equal(headers.encoding, EB_GRPC_UNKNOWN_ENCODING);
    add(&headers, "grpc-encoding", "gzip,identity");
    assert_int_equal(headers.encoding, EB_GRPC_UNKNOWN_ENCODING);
    add(&headers, "grpc-timeout", "0m");
    assert_int_equal(headers.timeout_us, 1);
}

static void knows_a_call_that_was_made_before(void **state)
{
    (void)state;
    struct eb_grpc_headers headers = good();
    assert_false(headers.is_repeated);
    add(&headers, "grpc-previous-rpc-attempts", "1");
    assert_true(headers.is_repeated);
    add(&headers, "grpc-previous-rpc-attempts", "0");
    assert_false(headers.is_repeated);
}

static void judges_method_and_content_type(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *value;
        int status;
    } cases[] = {
        {":method", "GET", 405},
        {":method", "post", 405},
        {"content-type", "application/grpc+proto", EB_STATUS_OK},
        {"content-type", "application/grpc;charset=x", EB_STATUS_OK},
        {"content-type", "Application/gRPC", EB_STATUS_OK},
        {"content-type", "application/grpc-web", 415},
        {"content-type", "application/json", 415},
        {"content-type", "", 415},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_grpc_headers headers = good();
        add(&headers, cases[i].name, cases[i].value);
        assert_int_equal(check(&headers), cases[i].status);
    }
    struct eb_grpc_headers headers = {0};
    assert_int_equal(check(&headers), 405);
    add(&headers, ":method", "POST");
    assert_int_equal(check(&headers), 415);
}

static void refuses_a_bad_timeout_and_a_long_path(void **state)
{
    (void)state;
    struct eb_grpc_headers headers = good();
    add(&headers, "grpc-timeout", "soon");
    assert_int_equal(check(&headers), EB_STATUS_INVALID_ARGUMENT);
    char path[EB_GRPC_PATH_BYTES + 1];
    memset(path, '/', sizeof path);
    path[EB_GRPC_PATH_BYTES - 1] = '\0';
    headers = good();
    add(&headers, ":path", path);
    assert_int_equal(check(&headers), EB_STATUS_OK);
    assert_string_equal(headers.path, path);
    path[EB_GRPC_PATH_BYTES - 1] = '/';
    path[EB_GRPC_PATH_BYTES] = '\0';
    headers = good();
    add(&headers, ":path", path);
    assert_int_equal(check(&headers), EB_STATUS_UNIMPLEMENTED);
}

static void allows_the_limits_and_refuses_one_more(void **state)
{
    (void)state;
    struct eb_grpc_headers headers = good();
    for (int i = 0; i < 7; i++) {
        add(&headers, "a", "");
    }
    assert_int_equal(check(&headers), EB_STATUS_OK);
    add(&headers, "a", "");
    assert_int_equal(check(&headers), EB_STATUS_RESOURCE_EXHAUSTED);

    char value[700];
    headers = good();
    size_t left = 600 - headers.bytes - 1;
    memset(value, 'x', sizeof value);
    value[left] = '\0';
    add(&headers, "a", value);
    assert_int_equal(headers.bytes, 600);
    assert_int_equal(check(&headers), EB_STATUS_OK);
    add(&headers, "b", "");
    assert_int_equal(check(&headers), EB_STATUS_RESOURCE_EXHAUSTED);
    add(&headers, ":method", "GET");
    assert_int_equal(check(&headers), EB_STATUS_RESOURCE_EXHAUSTED);
}

/* Returns by how much a block of this many fields and bytes is too large if it has `wire` bytes on
 * the wire. */
static size_t excess(size_t fields, size_t bytes, size_t wire)
{
    struct eb_grpc_headers_limits large = {.fields_max = 64, .bytes_max = 16384};
    struct eb_grpc_block block = {.wire_bytes = wire, .bytes = bytes, .field_count = fields};
    return eb_grpc_block_excess(&block, &large);
}

static void tells_by_how_much_a_block_is_too_large(void **state)
{
    (void)state;
    struct eb_grpc_headers_limits large = {.fields_max = 64, .bytes_max = 16384};
    assert_int_equal(eb_grpc_block_bytes_max(10, &large), 5120 + 20);
    assert_int_equal(eb_grpc_block_bytes_max(16384, &large), 5120 + 32768);
    assert_int_equal(eb_grpc_block_bytes_max(65536, &large), 4 * 16384);
    assert_int_equal(excess(0, 0, 0), 0);
    /* Bytes that were on the wire are not excess, up to the largest size that a block may have. */
    assert_int_equal(excess(64, 16385, 16384), 0);
    assert_int_equal(excess(64, 65536, 65536), 0);
    assert_int_equal(excess(64, 65537, 65536), SIZE_MAX);
    assert_int_equal(excess(5, 16384, 5632), 0);
    assert_int_equal(excess(5, 16384 + 1, 5632), 4);
    assert_int_equal(excess(5, 5120 + 20, 10), 0);
    assert_int_equal(excess(5, 5120 + 21, 10), 4);
    assert_int_equal(excess(5, 65537, 10), SIZE_MAX);
    /* Fields past the limit are excess, except one for each 32 bytes on the wire. */
    assert_int_equal(excess(64, 100, 31), 0);
    assert_int_equal(excess(65, 100, 31), 256);
    assert_int_equal(excess(65, 100, 32), 0);
    assert_int_equal(excess(264, 6000, 6400), 0);
    assert_int_equal(excess(265, 6000, 6400), 256);
    assert_int_equal(excess(256, 100, 31), 3 * 16384);
    assert_int_equal(excess(65, 5120 + 21, 10), 260);
}

static void keeps_one_authorization_of_a_size_that_may_be_known(void **state)
{
    (void)state;
    char longest[EB_GRPC_AUTHORIZATION_BYTES + 1];
    struct eb_grpc_headers headers = good();
    assert_false(headers.has_authorization);
    add(&headers, "authorization", "Bearer abc");
    assert_true(headers.has_authorization);
    assert_string_equal(headers.authorization, "Bearer abc");
    add(&headers, "authorization", "Bearer abc");
    assert_true(headers.has_authorization);
    assert_string_equal(headers.authorization, "");
    memset(longest, 'x', sizeof longest);
    longest[EB_GRPC_AUTHORIZATION_BYTES - 1] = '\0';
    headers = good();
    add(&headers, "authorization", longest);
    assert_string_equal(headers.authorization, longest);
    longest[EB_GRPC_AUTHORIZATION_BYTES - 1] = 'x';
    longest[EB_GRPC_AUTHORIZATION_BYTES] = '\0';
    headers = good();
    add(&headers, "authorization", longest);
    assert_true(headers.has_authorization);
    assert_string_equal(headers.authorization, "");
}

static void keeps_one_trace_parent_that_is_good(void **state)
{
    (void)state;
    static const char text[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    struct eb_grpc_headers headers = good();
    assert_string_equal(headers.trace.trace_id, "");
    add(&headers, "tracestate", text);
    assert_string_equal(headers.trace.trace_id, "");
    add(&headers, "traceparent", text);
    assert_string_equal(headers.trace.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_string_equal(headers.trace.parent_id, "00f067aa0ba902b7");
    assert_true(headers.trace.is_sampled);
    add(&headers, "traceparent", text);
    assert_string_equal(headers.trace.trace_id, "");
    assert_false(headers.trace.is_sampled);
    headers = good();
    add(&headers, "traceparent", "00-4bf9");
    add(&headers, "traceparent", text);
    assert_string_equal(headers.trace.trace_id, "");
    assert_int_equal(check(&headers), EB_STATUS_OK);
}

EB_TEST_GROUP(grpc_headers)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_a_call_needs),
        cmocka_unit_test(knows_a_call_that_was_made_before),
        cmocka_unit_test(keeps_one_authorization_of_a_size_that_may_be_known),
        cmocka_unit_test(keeps_one_trace_parent_that_is_good),
        cmocka_unit_test(judges_method_and_content_type),
        cmocka_unit_test(refuses_a_bad_timeout_and_a_long_path),
        cmocka_unit_test(allows_the_limits_and_refuses_one_more),
        cmocka_unit_test(tells_by_how_much_a_block_is_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
