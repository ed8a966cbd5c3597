/* Fetching a text from a server that answers as the test says. */
#include "client/cli/http_get.h"

#include "proto/net/address.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD "HTTP/1.0 200 OK\r\n"
#define REQUEST_BYTES 2048
#define LONG_TIMEOUT_MS 60000

ssize_t __real_recv(int file, void *out, size_t bytes, int flags);
ssize_t __wrap_recv(int file, void *out, size_t bytes, int flags);

/* Most bytes of the first call of recv, and of later ones; 0: no limit. */
static size_t first_bytes_max;
static size_t later_bytes_max;

ssize_t __wrap_recv(int file, void *out, size_t bytes, int flags)
{
    size_t most = first_bytes_max > 0 ? first_bytes_max : later_bytes_max;
    first_bytes_max = 0;
    return __real_recv(file, out, most > 0 && most < bytes ? most : bytes, flags);
}

size_t __real_eb_address_resolve(
    const char *text, struct eb_address out[EB_ADDRESS_RESOLVED_MAX], struct eb_error *error);
size_t __wrap_eb_address_resolve(
    const char *text, struct eb_address out[EB_ADDRESS_RESOLVED_MAX], struct eb_error *error);

/* An address that every host has before its own ones; size 0: none. */
static struct eb_address first_address;

size_t __wrap_eb_address_resolve(
    const char *text, struct eb_address out[EB_ADDRESS_RESOLVED_MAX], struct eb_error *error)
{
    size_t count = __real_eb_address_resolve(text, out, error);
    if (first_address.size == 0 || count == 0) {
        return count;
    }
    assert_int_equal(count, 1);
    out[1] = out[0];
    out[0] = first_address;
    return 2;
}

/* A server that takes one request and sends an answer. */
struct canned_server {
    pthread_t thread;
    int listener;
    char url[64];
    const char *answer;
    size_t answer_bytes;
    bool is_held; /* the connection stays open until the client closes it */
    char request[REQUEST_BYTES];
    struct eb_failure failure;
    struct eb_http_get_limits limits;
};

/* Accepts one connection, reads a request, sends the answer, and closes. */
static void *answer_one(void *context)
{
    struct canned_server *server = context;
    size_t bytes = 0;
    size_t sent = 0;
    int peer = accept(server->listener, NULL, NULL);
    ssize_t rc = 1;
    while (rc > 0 && !strstr(server->request, "\r\n\r\n") && bytes + 1 < REQUEST_BYTES) {
        rc = read(peer, server->request + bytes, REQUEST_BYTES - 1 - bytes);
        bytes += rc > 0 ? (size_t)rc : 0;
    }
    while (rc > 0 && sent < server->answer_bytes) {
        rc = send(peer, server->answer + sent, server->answer_bytes - sent, MSG_NOSIGNAL);
        sent += rc > 0 ? (size_t)rc : 0;
    }
    if (server->is_held) {
        char unused;
        (void)!read(peer, &unused, 1);
    }
    close(peer);
    return NULL;
}

static int set_up(void **state)
{
    struct canned_server *server = calloc(1, sizeof *server);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    if (!server) {
        return -1;
    }
    *state = server;
    server->limits = (struct eb_http_get_limits){1000, LONG_TIMEOUT_MS};
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server->listener, (struct sockaddr *)&address, size) != 0 ||
        listen(server->listener, 1) != 0 ||
        getsockname(server->listener, (struct sockaddr *)&address, &size) != 0) {
        return -1;
    }
    snprintf(server->url, sizeof server->url, "http://127.0.0.1:%d/metrics?a=b#c",
        ntohs(address.sin_port));
    return 0;
}

static int tear_down(void **state)
{
    struct canned_server *server = *state;
    close(server->listener);
    free(server);
    first_bytes_max = 0;
    later_bytes_max = 0;
    first_address.size = 0;
    return eb_faults_tear_down(state);
}

/* Gets the answer, which the caller frees. Fails the n-th allocation, or none if that is 0. */
static char *get_failing(struct canned_server *server, const char *answer, size_t answer_bytes,
    size_t *bytes, unsigned failing)
{
    server->answer = answer;
    server->answer_bytes = answer_bytes;
    memset(server->request, 0, sizeof server->request);
    assert_int_equal(pthread_create(&server->thread, NULL, answer_one, server), 0);
    eb_faults_fail_allocation(failing);
    char *text = eb_http_get(server->url, &server->limits, bytes, &server->failure);
    eb_faults_fail_allocation(0);
    pthread_join(server->thread, NULL);
    return text;
}

static void expect_got(struct canned_server *server, const char *answer, const char *expected)
{
    size_t bytes = 0;
    char *text = get_failing(server, answer, strlen(answer), &bytes, 0);
    assert_non_null(text);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(text, expected);
    free(text);
}

static void expect_failed(struct canned_server *server, const char *answer, const char *what)
{
    size_t bytes = 0;
    assert_null(get_failing(server, answer, strlen(answer), &bytes, 0));
    if (!strstr(server->failure.text, what)) {
        fail_msg("'%s' is not in '%s'", what, server->failure.text);
    }
}

static void gets_a_text(void **state)
{
    struct canned_server *server = *state;
    char expected[128];
    expect_got(server, HEAD "\r\nabc\n", "abc\n");
    snprintf(expected, sizeof expected,
        "GET /metrics?a=b HTTP/1.0\r\nHost: %.*s\r\nConnection: close\r\n\r\n",
        (int)strcspn(server->url + 7, "/"), server->url + 7);
    assert_string_equal(server->request, expected);
    *strrchr(server->url, '/') = '\0';
    expect_got(server, "HTTP/1.1 200\r\nContent-Type: text\r\n\r\n", "");
    assert_memory_equal(server->request, "GET / HTTP/1.0\r\n", 16);
}

static void takes_every_split_of_an_answer(void **state)
{
    struct canned_server *server = *state;
    static const char answer[] = HEAD "A: Content-Length: 2\r\ncontent-LENGTH: \t5\r\n\r\n12345";
    for (size_t first = 1; first < sizeof answer; first++) {
        first_bytes_max = first;
        expect_got(server, answer, "12345");
    }
    later_bytes_max = 1;
    expect_got(server, answer, "12345");
}

static void takes_what_the_length_says(void **state)
{
    struct canned_server *server = *state;
    expect_got(server, HEAD "Content-Length: 3\r\n\r\nabcd", "abc");
    expect_got(server, HEAD "Content-Length: 0\r\n\r\nabcd", "");
    server->is_held = true;
    expect_got(server, HEAD "Content-Length: 3\r\n\r\nabc", "abc");
    server->is_held = false;
    expect_failed(server, HEAD "Content-Length: 4\r\n\r\nabc", "closed the connection within");
    expect_failed(server, HEAD "Content-Length: -3\r\n\r\nabc", "invalid Content-Length");
    expect_failed(server, HEAD "Content-Length: \r\n\r\nabc", "invalid Content-Length");
    expect_failed(
        server, HEAD "Content-Length: 18446744073709551616\r\n\r\n", "invalid Content-Length");
}

static void refuses_other_answers(void **state)
{
    struct canned_server *server = *state;
    expect_failed(server, "HTTP/1.1 404 Not Found\r\n\r\n", "the answer has status 404");
    expect_failed(server, "HTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n", "status 301");
    expect_failed(server, "HTTP/2.0 200 OK\r\n\r\n", "not an HTTP server");
    expect_failed(server, "SSH-2.0-x\r\n\r\n", "not an HTTP server");
    expect_failed(server, "", "closed the connection within");
    expect_failed(server, HEAD "A: b\r\n", "closed the connection within");
    expect_failed(server, HEAD "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "in chunks");
    expect_failed(server, HEAD "Content-Encoding: gzip\r\n\r\n", "compressed");
}

static void a_text_has_a_limit(void **state)
{
    struct canned_server *server = *state;
    server->limits.bytes_max = 4;
    expect_got(server, HEAD "\r\n1234", "1234");
    expect_failed(server, HEAD "\r\n12345", "the answer has more than 4 bytes");
}

/* Sends an answer whose headers have that many bytes. */
static char *get_with_head(struct canned_server *server, size_t head_bytes)
{
    size_t bytes;
    char *answer = malloc(head_bytes + 1);
    assert_non_null(answer);
    memset(answer, 'x', head_bytes);
    memcpy(answer, HEAD, strlen(HEAD));
    memcpy(answer + head_bytes - 4, "\r\n\r\n", 5);
    char *text = get_failing(server, answer, head_bytes, &bytes, 0);
    free(answer);
    return text;
}

static void headers_have_a_limit(void **state)
{
    struct canned_server *server = *state;
    char *text = get_with_head(server, EB_HTTP_GET_HEADER_BYTES_MAX);
    assert_non_null(text);
    free(text);
    assert_null(get_with_head(server, EB_HTTP_GET_HEADER_BYTES_MAX + 1));
    assert_non_null(strstr(server->failure.text, "the headers have more than 16384 bytes"));
}

static void gets_a_large_text(void **state)
{
    struct canned_server *server = *state;
    size_t head_bytes = strlen(HEAD "\r\n");
    size_t body_bytes = 1000000;
    size_t bytes = 0;
    char *answer = malloc(head_bytes + body_bytes);
    assert_non_null(answer);
    memcpy(answer, HEAD "\r\n", head_bytes);
    memset(answer + head_bytes, 'x', body_bytes);
    server->limits.bytes_max = body_bytes;
    char *text = get_failing(server, answer, head_bytes + body_bytes, &bytes, 0);
    assert_non_null(text);
    assert_int_equal(bytes, body_bytes);
    assert_memory_equal(text, answer + head_bytes, body_bytes);
    free(text);
    for (unsigned failing = 1; failing <= 3; failing++) {
        assert_null(get_failing(server, answer, head_bytes + body_bytes, &bytes, failing));
        assert_string_equal(server->failure.text, "out of memory");
    }
    free(answer);
}

static void does_not_wait_for_ever(void **state)
{
    struct canned_server *server = *state;
    server->limits.timeout_ms = 50;
    server->is_held = true;
    expect_failed(server, HEAD "\r\n1234", "no complete answer came within 50 ms");
    expect_failed(server, "", "no complete answer came within 50 ms");
}

/* A listener that takes no connections: its queue is full, so it ignores further ones. */
struct deaf_listener {
    int listener;
    int queued[4];
};

static void open_deaf(struct deaf_listener *deaf, struct eb_address *address)
{
    *address = (struct eb_address){.size = sizeof(struct sockaddr_in)};
    struct sockaddr *name = (struct sockaddr *)&address->socket_address;
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    memcpy(name, &any, sizeof any);
    deaf->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(deaf->listener, name, address->size), 0);
    assert_int_equal(listen(deaf->listener, 0), 0);
    assert_int_equal(getsockname(deaf->listener, name, &address->size), 0);
    for (size_t i = 0; i < sizeof deaf->queued / sizeof deaf->queued[0]; i++) {
        deaf->queued[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(deaf->queued[i], name, address->size);
    }
}

static void close_deaf(const struct deaf_listener *deaf)
{
    for (size_t i = 0; i < sizeof deaf->queued / sizeof deaf->queued[0]; i++) {
        close(deaf->queued[i]);
    }
    close(deaf->listener);
}

static void leaves_time_for_a_second_address(void **state)
{
    struct canned_server *server = *state;
    struct deaf_listener deaf;
    size_t bytes = 0;
    open_deaf(&deaf, &first_address);
    server->limits.timeout_ms = 1000;
    expect_got(server, HEAD "\r\nabc", "abc");
    close(server->listener);
    server->listener = -1;
    assert_null(eb_http_get(server->url, &server->limits, &bytes, &server->failure));
    assert_string_equal(server->failure.text, "it cannot be reached (Connection refused)");
    /* Both addresses are deaf. */
    snprintf(server->url, sizeof server->url, "http://127.0.0.1:%d/",
        ntohs(((const struct sockaddr_in *)&first_address.socket_address)->sin_port));
    server->limits.timeout_ms = 50;
    assert_null(eb_http_get(server->url, &server->limits, &bytes, &server->failure));
    assert_string_equal(server->failure.text, "no complete answer came within 50 ms");
    close_deaf(&deaf);
}

static void names_what_cannot_be_reached(void **state)
{
    struct canned_server *server = *state;
    size_t bytes;
    close(server->listener);
    server->listener = -1;
    assert_null(eb_http_get(server->url, &server->limits, &bytes, &server->failure));
    assert_string_equal(server->failure.text, "it cannot be reached (Connection refused)");
    assert_null(eb_http_get("http://no.invalid:1/", &server->limits, &bytes, &server->failure));
    assert_non_null(strstr(server->failure.text, "host \"no.invalid\""));
}

static void refuses_malformed_urls(void **state)
{
    struct canned_server *server = *state;
    size_t bytes;
    char text[4096] = "http://127.0.0.1:1/";
    static const char *const urls[] = {"", "http:/", "http://", "http://host", "http://:80/",
        "http://unix:/x", "http://host:0/", "http://::1:80/", "https://host:1/", "http://h:1/ x",
        "http://h:1/\r\nA: b", "http://h\n:1/"};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        server->failure.text[0] = '\0';
        assert_null(eb_http_get(urls[i], &server->limits, &bytes, &server->failure));
        assert_true(
            strstr(server->failure.text, "expected") || strstr(server->failure.text, "%XX"));
    }
    size_t used = strlen(text);
    memset(text + used, 'x', sizeof text - 1 - used);
    assert_null(eb_http_get(text, &server->limits, &bytes, &server->failure));
    assert_string_equal(server->failure.text, "the path is too long");
}

EB_TEST_GROUP(http_get)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gets_a_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_every_split_of_an_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_what_the_length_says, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_other_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_text_has_a_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(headers_have_a_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gets_a_large_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(does_not_wait_for_ever, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leaves_time_for_a_second_address, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_what_cannot_be_reached, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_malformed_urls, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
