/* How the client handles servers that do not answer as gRPC requires. */
#include "tests/unit/grpc/pair.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct pair pair; /* its host is not used */
    struct frames in; /* from the server, which the test plays */
    struct client_call *client_call;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    pair_init(&fixture->pair);
    *state = fixture;
    if (!pair_start(&fixture->pair, 1000)) {
        return -1;
    }
    fixture->client_call = pair_call(&fixture->pair, 0, "/t/Any");
    pair_write(fixture->client_call, 10, true);
    frames_head(&fixture->in, 0, FRAME_SETTINGS, 0, 0);
    return eb_grpc_client_send(fixture->pair.client) ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    pair_deinit(&fixture->pair);
    frames_deinit(&fixture->in);
    bool clean = fixture->pair.lender.lent_count == 0 && host_outgoing_live() == 0;
    free(fixture);
    return clean ? 0 : -1;
}

/* Adds a header block on the call's stream. `texts` alternates names and values and ends with
 * NULL. */
static void put_headers(struct fixture *fixture, const char *const *texts, bool ends)
{
    struct frames block = {0};
    for (size_t i = 0; texts[i]; i += 2) {
        frames_field(&block, texts[i], texts[i + 1]);
    }
    uint8_t flags = (uint8_t)(FLAG_END_HEADERS | (ends ? FLAG_END_STREAM : 0));
    frames_head(&fixture->in, block.size, FRAME_HEADERS, flags, 1);
    frames_put(&fixture->in, block.bytes, block.size);
    frames_deinit(&block);
}

static void put_answer_headers(struct fixture *fixture)
{
    static const char *const texts[] = {
        ":status", "200", "content-type", "application/grpc+proto", NULL};
    put_headers(fixture, texts, false);
}

/* Delivers the bytes and checks how the call has ended. */
static void assert_client_end(struct fixture *fixture, int status, size_t message_count)
{
    assert_true(eb_grpc_client_receive(fixture->pair.client, fixture->in.bytes, fixture->in.size));
    fixture->in.size = 0;
    eb_grpc_client_send(fixture->pair.client);
    assert_true(fixture->client_call->finished);
    assert_int_equal(fixture->client_call->error.status, status);
    assert_int_equal(fixture->client_call->message_count, message_count);
}

static void translates_http_errors(void **state)
{
    (void)state;
    static const struct {
        const char *http;
        int status;
    } cases[] = {
        {"400", EB_STATUS_INTERNAL},
        {"401", EB_STATUS_UNAUTHENTICATED},
        {"403", EB_STATUS_PERMISSION_DENIED},
        {"404", EB_STATUS_UNIMPLEMENTED},
        {"415", EB_STATUS_UNKNOWN},
        {"429", EB_STATUS_UNAVAILABLE},
        {"502", EB_STATUS_UNAVAILABLE},
        {"503", EB_STATUS_UNAVAILABLE},
        {"504", EB_STATUS_UNAVAILABLE},
        {"500", EB_STATUS_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *fixture = NULL;
        assert_int_equal(set_up(&fixture), 0);
        const char *const texts[] = {":status", cases[i].http, "content-type", "text/html", NULL};
        put_headers(fixture, texts, false);
        frames_data(&((struct fixture *)fixture)->in, 1, true, "<html>", 6);
        assert_client_end(fixture, cases[i].status, 0);
        assert_int_equal(tear_down(&fixture), 0);
    }
}

static void hands_on_what_the_server_asks_to_wait(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t pushback_ms;
    } cases[] = {{"250", 250}, {"999999999", 999999999}, {"1000000000", UINT32_MAX},
        {"-1", UINT32_MAX}, {"", UINT32_MAX}, {"soon", UINT32_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *fixture = NULL;
        assert_int_equal(set_up(&fixture), 0);
        const char *const texts[] = {":status", "200", "content-type", "application/grpc",
            "grpc-status", "8", "grpc-retry-pushback-ms", cases[i].text, NULL};
        put_headers(fixture, texts, true);
        assert_client_end(fixture, EB_STATUS_RESOURCE_EXHAUSTED, 0);
        assert_int_equal(
            ((struct fixture *)fixture)->client_call->pushback_ms, cases[i].pushback_ms);
        assert_int_equal(tear_down(&fixture), 0);
    }
}

static void translates_resets(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        int status;
    } cases[] = {
        {0, EB_STATUS_INTERNAL},
        {1, EB_STATUS_INTERNAL},
        {2, EB_STATUS_INTERNAL},
        {7, EB_STATUS_UNAVAILABLE},
        {8, EB_STATUS_CANCELLED},
        {11, EB_STATUS_RESOURCE_EXHAUSTED},
        {12, EB_STATUS_PERMISSION_DENIED},
        {13, EB_STATUS_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *state_of_one = NULL;
        assert_int_equal(set_up(&state_of_one), 0);
        struct fixture *fixture = state_of_one;
        frames_head(&fixture->in, 4, FRAME_RST_STREAM, 0, 1);
        frames_put32(&fixture->in, cases[i].code);
        assert_client_end(fixture, cases[i].status, 0);
        assert_int_equal(tear_down(&state_of_one), 0);
    }
}

static void misses_the_status(void **state)
{
    struct fixture *fixture = *state;
    put_answer_headers(fixture);
    frames_data(&fixture->in, 1, true, "\0\0\0\0\1\0", 6);
    assert_client_end(fixture, EB_STATUS_UNKNOWN, 1);
}

static void prefers_the_status_to_a_reset(void **state)
{
    struct fixture *fixture = *state;
    static const char *const texts[] = {":status", "200", "content-type", "application/grpc",
        "grpc-status", "9", "grpc-message", "a%20b", NULL};
    put_headers(fixture, texts, true);
    frames_head(&fixture->in, 4, FRAME_RST_STREAM, 0, 1);
    frames_put32(&fixture->in, 0);
    assert_client_end(fixture, EB_STATUS_FAILED_PRECONDITION, 0);
    assert_string_equal(fixture->client_call->error.text, "a b");
}

static void takes_a_status_that_is_none_as_unknown(void **state)
{
    (void)state;
    static const char *const values[] = {"17", "99", "1000", "x", "", "-1"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        void *fixture = NULL;
        assert_int_equal(set_up(&fixture), 0);
        const char *const texts[] = {":status", "200", "grpc-status", values[i], NULL};
        put_headers(fixture, texts, true);
        assert_client_end(fixture, EB_STATUS_UNKNOWN, 0);
        assert_int_equal(tear_down(&fixture), 0);
    }
}

static void refuses_an_answer_cut_inside_a_message(void **state)
{
    struct fixture *fixture = *state;
    static const char *const trailers[] = {"grpc-status", "0", NULL};
    put_answer_headers(fixture);
    frames_data(&fixture->in, 1, false, "\0\0\0\0\2\0", 6);
    put_headers(fixture, trailers, true);
    assert_client_end(fixture, EB_STATUS_INTERNAL, 0);
}

static void refuses_bad_prefixes_of_answers(void **state)
{
    (void)state;
    static const struct {
        const char *prefix;
        int status;
    } cases[] = {
        {"\1\0\0\0\1", EB_STATUS_INTERNAL},
        {"\3\0\0\0\1", EB_STATUS_INTERNAL},
        {"\0\0\0\3\351", EB_STATUS_RESOURCE_EXHAUSTED},
        {"\0\377\377\377\377", EB_STATUS_RESOURCE_EXHAUSTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *state_of_one = NULL;
        assert_int_equal(set_up(&state_of_one), 0);
        struct fixture *fixture = state_of_one;
        put_answer_headers(fixture);
        frames_data(&fixture->in, 1, false, cases[i].prefix, 5);
        assert_client_end(fixture, cases[i].status, 0);
        assert_int_equal(tear_down(&state_of_one), 0);
    }
}

static void calls_beyond_a_goaway_are_safe_to_send_again(void **state)
{
    struct fixture *fixture = *state;
    frames_head(&fixture->in, 8, FRAME_GOAWAY, 0, 0);
    frames_put(&fixture->in, "\0\0\0\0\0\0\0\0", 8);
    struct client_call *unsent = pair_call(&fixture->pair, 1, "/t/Any");
    assert_client_end(fixture, EB_STATUS_UNAVAILABLE, 0);
    assert_true(unsent->finished);
    assert_int_equal(unsent->error.status, EB_STATUS_UNAVAILABLE);
    assert_false(eb_grpc_client_is_usable(fixture->pair.client));
}

static void cancels_before_anything_was_sent(void **state)
{
    struct fixture *fixture = *state;
    struct client_call *client_call = pair_call(&fixture->pair, 1, "/t/Any");
    pair_write(client_call, 5, false);
    eb_grpc_client_cancel(client_call->call);
    eb_grpc_client_cancel(client_call->call);
    assert_false(client_call->finished);
    assert_true(eb_grpc_client_send(fixture->pair.client));
    assert_true(client_call->finished);
    assert_int_equal(client_call->error.status, EB_STATUS_CANCELLED);
    assert_false(fixture->client_call->finished);
}

static void a_server_that_speaks_something_else_ends_the_connection(void **state)
{
    struct fixture *fixture = *state;
    static const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    eb_grpc_client_receive(fixture->pair.client, (const uint8_t *)text, sizeof text - 1);
    assert_false(eb_grpc_client_send(fixture->pair.client));
    assert_string_not_equal(eb_grpc_client_reason(fixture->pair.client), "");
    assert_false(eb_grpc_client_is_usable(fixture->pair.client));
    pair_deinit(&fixture->pair);
    assert_int_equal(fixture->client_call->error.status, EB_STATUS_UNAVAILABLE);
}

/* Adds a header block that contains a field of 4 000 bytes `times` times. The value ends with
 * `last`. */
static void put_large_headers(struct fixture *fixture, size_t times, char last, bool ends)
{
    struct frames block = {0};
    frames_field(&block, ":status", "200");
    frames_field(&block, "content-type", "application/grpc");
    frames_large_field(&block, 0x40, "x-large", 4000, last);
    frames_repeat(&block, HPACK_NEWEST, times - 1);
    frames_head(&fixture->in, block.size, FRAME_HEADERS,
        (uint8_t)(FLAG_END_HEADERS | (ends ? FLAG_END_STREAM : 0)), 1);
    frames_put(&fixture->in, block.bytes, block.size);
    frames_deinit(&block);
}

static void refuses_an_answer_whose_headers_are_too_large(void **state)
{
    struct fixture *fixture = *state;
    put_large_headers(fixture, 9, 'a', false);
    assert_client_end(fixture, EB_STATUS_RESOURCE_EXHAUSTED, 0);
    assert_string_equal(fixture->client_call->error.text,
        "the answer has more than 128 header fields, or more than 32768 bytes of them");
    assert_true(eb_grpc_client_is_usable(fixture->pair.client));
}

static void takes_headers_up_to_the_limit(void **state)
{
    struct fixture *fixture = *state;
    static const char *const trailers[] = {"grpc-status", "0", NULL};
    put_large_headers(fixture, 8, 'a', false);
    put_headers(fixture, trailers, true);
    assert_client_end(fixture, EB_STATUS_OK, 0);
}

static void refuses_trailers_that_are_too_large(void **state)
{
    struct fixture *fixture = *state;
    struct frames block = {0};
    put_answer_headers(fixture);
    frames_large_field(&block, 0, "x-large", 16000, 'a');
    frames_field(&block, "grpc-status", "0");
    frames_repeat(&block, HPACK_ACCEPT_ENCODING, 130);
    frames_head(&fixture->in, block.size, FRAME_HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM, 1);
    frames_put(&fixture->in, block.bytes, block.size);
    frames_deinit(&block);
    assert_client_end(fixture, EB_STATUS_RESOURCE_EXHAUSTED, 0);
}

/* Expects the client to close the connection as soon as the header fields expand to four times the
 * limit. */
static void assert_left(struct fixture *fixture)
{
    assert_false(eb_grpc_client_receive(fixture->pair.client, fixture->in.bytes, fixture->in.size));
    assert_false(eb_grpc_client_is_usable(fixture->pair.client));
    assert_string_equal(
        eb_grpc_client_reason(fixture->pair.client), "the server sends far too many header fields");
}

static void leaves_a_server_whose_headers_expand_without_end(void **state)
{
    struct fixture *fixture = *state;
    put_large_headers(fixture, 33, 'a', true);
    assert_left(fixture);
}

static void leaves_a_server_whose_headers_are_not_valid_and_without_end(void **state)
{
    struct fixture *fixture = *state;
    put_large_headers(fixture, 33, '\1', true);
    assert_left(fixture);
}

static void ends_a_call_of_one_early_answer_after_the_other(void **state)
{
    struct fixture *fixture = *state;
    static const char *const early[] = {":status", "103", "x", "y", NULL};
    for (size_t i = 0; i < 64; i++) {
        put_headers(fixture, early, false);
    }
    assert_true(eb_grpc_client_receive(fixture->pair.client, fixture->in.bytes, fixture->in.size));
    put_headers(fixture, early, false);
    assert_client_end(fixture, EB_STATUS_RESOURCE_EXHAUSTED, 0);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

EB_TEST_GROUP(grpc_client)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(translates_http_errors),
        cmocka_unit_test(hands_on_what_the_server_asks_to_wait),
        cmocka_unit_test(translates_resets),
        WITH_FIXTURE(misses_the_status),
        WITH_FIXTURE(prefers_the_status_to_a_reset),
        cmocka_unit_test(takes_a_status_that_is_none_as_unknown),
        WITH_FIXTURE(refuses_an_answer_cut_inside_a_message),
        cmocka_unit_test(refuses_bad_prefixes_of_answers),
        WITH_FIXTURE(calls_beyond_a_goaway_are_safe_to_send_again),
        WITH_FIXTURE(cancels_before_anything_was_sent),
        WITH_FIXTURE(a_server_that_speaks_something_else_ends_the_connection),
        WITH_FIXTURE(takes_headers_up_to_the_limit),
        WITH_FIXTURE(refuses_an_answer_whose_headers_are_too_large),
        WITH_FIXTURE(refuses_trailers_that_are_too_large),
        WITH_FIXTURE(leaves_a_server_whose_headers_expand_without_end),
        WITH_FIXTURE(leaves_a_server_whose_headers_are_not_valid_and_without_end),
        WITH_FIXTURE(ends_a_call_of_one_early_answer_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
