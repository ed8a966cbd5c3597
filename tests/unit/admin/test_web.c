/* Tests the operators' port over real sockets. A stand-in for the stats collector answers only when
 * the test lets it. */
#include "server/admin/web.h"

#include "server/net/listener.h"
#include "tests/lib/test_group.h"
#include "tests/unit/net/wire_peer.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 20000
#define TEXT_BYTES (1 << 20)
#define LONG_MS 100000
#define SHORT_MS 50
#define SHARERS 20

/* ---- a stand-in for the stats collector, whose functions are wrapped ---- */

struct eb_stats_collector {
    struct eb_mailbox *mailbox;
    struct eb_mail mail;
    struct eb_stats_request *pending;
    atomic_bool holds; /* makes requests wait until `mail` arrives */
    atomic_bool lacks_memory;
    atomic_uint asked_count;
    atomic_uint bare_count; /* how many of the asked_count requests are bare */
    _Atomic enum eb_stats_phase phase;
    const char *_Atomic not_ready;
};

void __wrap_eb_stats_collector_open(struct eb_stats_collector *opened, struct eb_mailbox *mailbox);
void __wrap_eb_stats_collector_request(
    struct eb_stats_collector *asked, struct eb_stats_request *request);
enum eb_stats_phase __wrap_eb_stats_collector_phase(const struct eb_stats_collector *asked);
const char *__wrap_eb_stats_collector_not_ready(const struct eb_stats_collector *asked);

static struct eb_stats_collector collector;

static void give_stats(struct eb_stats_request *request)
{
    struct eb_stats *stats = collector.lacks_memory ? NULL : calloc(1, sizeof *stats);
    request->on_taken(request, stats);
}

static void on_mail(struct eb_mail *mail)
{
    struct eb_stats_request *request = collector.pending;
    (void)mail;
    collector.pending = NULL;
    if (request) {
        give_stats(request);
    }
}

void __wrap_eb_stats_collector_open(struct eb_stats_collector *opened, struct eb_mailbox *mailbox)
{
    opened->mailbox = mailbox;
}

void __wrap_eb_stats_collector_request(
    struct eb_stats_collector *asked, struct eb_stats_request *request)
{
    atomic_fetch_add(&asked->bare_count, request->is_bare);
    atomic_fetch_add(&asked->asked_count, 1);
    if (asked->holds) {
        asked->pending = request;
    } else {
        give_stats(request);
    }
}

enum eb_stats_phase __wrap_eb_stats_collector_phase(const struct eb_stats_collector *asked)
{
    return asked->phase;
}

const char *__wrap_eb_stats_collector_not_ready(const struct eb_stats_collector *asked)
{
    return asked->not_ready;
}

static void let_go(void)
{
    collector.holds = false;
    collector.mail.deliver = on_mail;
    eb_mailbox_post(collector.mailbox, &collector.mail);
}

static void wait_until_asked(void)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while (collector.asked_count == 0 && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    assert_int_not_equal(collector.asked_count, 0);
}

/* ---- a port ---- */

static struct eb_web *web;
static struct eb_address address;
static char text[TEXT_BYTES]; /* the last answer */

static void resolve(const char *from, struct eb_address *out)
{
    struct eb_address found[EB_ADDRESS_RESOLVED_MAX];
    struct eb_error error;
    assert_int_equal(eb_address_resolve(from, found, &error), 1);
    *out = found[0];
}

static struct eb_web *open_at(const struct eb_address *addresses, size_t count,
    const struct eb_web_times *times, struct eb_failure *failure)
{
    struct eb_web_options options = {.facts = {.version = "1.2.3", .build = "debug", .isa = "ref"},
        .times = *times,
        .address_count = count,
        .addresses = addresses,
        .collector = &collector};
    return eb_web_open(&options, failure);
}

static void open_port(struct eb_web_times times)
{
    struct eb_failure failure = {0};
    struct eb_address any;
    memset(&collector, 0, sizeof collector);
    collector.phase = EB_STATS_SERVING;
    resolve("127.0.0.1:0", &any);
    web = open_at(&any, 1, &times, &failure);
    assert_string_equal(failure.text, "");
    assert_non_null(web);
    address = *eb_web_address(web, 0);
    assert_null(eb_web_address(web, 1));
}

static void open_patient_port(void)
{
    open_port((struct eb_web_times){LONG_MS, LONG_MS, LONG_MS, 1});
}

static int close_port(void **state)
{
    (void)state;
    eb_web_close(web);
    web = NULL;
    return 0;
}

static int send_to_port(const char *request)
{
    int socket = wire_connect(&address, 0);
    assert_true(socket >= 0);
    wire_send(socket, request, strlen(request));
    return socket;
}

/* Reads until the port closes the connection. The answer is then in `text`. */
static void read_answer(int socket)
{
    text[0] = '\0';
    assert_true(wire_read_to_end(socket, TIMEOUT_MS, text, sizeof text));
    close(socket);
}

static void expect_http_answer(const char *request, const char *status, const char *body)
{
    read_answer(send_to_port(request));
    if (strncmp(text, status, strlen(status)) != 0 || !strstr(text, body)) {
        fail_msg("wanted %s with %s: %s", status, body, text);
    }
}

static size_t count_in_text(const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) {
        count++;
    }
    return count;
}

/* Makes a request on a connection that stays open, and reads its answer. */
static void ask_and_stay(int socket)
{
    static const char request[] = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
    char answer[4096] = "";
    size_t size = 0;
    wire_send(socket, request, sizeof request - 1);
    while (!strstr(answer, "ready\n")) {
        ssize_t got = recv(socket, answer + size, sizeof answer - 1 - size, 0);
        assert_true(got > 0);
        size += (size_t)got;
        answer[size] = '\0';
    }
}

/* ---- requests ---- */

static void answers_requests_of_both_versions(void **state)
{
    (void)state;
    open_patient_port();
    expect_http_answer(
        "GET /version HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK", "{\"version\": \"1.2.3\"");
    expect_http_answer("GET /readyz?a=b HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 200 OK", "\r\n\r\nready\n");
    expect_http_answer("GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK", "\nprocess_threads ");
    expect_http_answer("GET /nothing HTTP/1.0\r\n\r\n", "HTTP/1.1 404 ", "\n/metrics\n");
    assert_non_null(strstr(text, "X-Content-Type-Options: nosniff\r\n"));
    assert_non_null(strstr(text, "Cache-Control: no-store\r\n"));
    assert_non_null(strstr(text, "Content-Security-Policy: default-src 'none';"));
}

static void says_the_present_phase(void **state)
{
    (void)state;
    open_patient_port();
    collector.phase = EB_STATS_LOADING;
    expect_http_answer("GET /readyz HTTP/1.0\r\n\r\n", "HTTP/1.1 503 ", "\r\n\r\nloading\n");
    expect_http_answer("GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 ", "\r\n\r\nok\n");
    collector.phase = EB_STATS_SERVING;
    collector.not_ready = "no version is in memory";
    expect_http_answer(
        "GET /readyz HTTP/1.0\r\n\r\n", "HTTP/1.1 503 ", "\r\n\r\nno version is in memory\n");
    expect_http_answer("GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 ", "\r\n\r\nok\n");
    collector.phase = EB_STATS_DRAINING;
    expect_http_answer("GET /readyz HTTP/1.0\r\n\r\n", "HTTP/1.1 503 ", "\r\n\r\ndraining\n");
}

static void takes_requests_in_pieces_one_behind_the_other(void **state)
{
    (void)state;
    static const char requests[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
                                   "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
                                   "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    open_patient_port();
    read_answer(send_to_port(requests));
    assert_int_equal(count_in_text("HTTP/1.1 200 OK"), 3);
    int socket = wire_connect(&address, 0);
    for (size_t i = 0; i < sizeof requests - 1; i++) {
        wire_send(socket, requests + i, 1);
    }
    read_answer(socket);
    assert_int_equal(count_in_text("HTTP/1.1 200 OK"), 3);
}

static void tells_heads_without_bodies(void **state)
{
    (void)state;
    open_patient_port();
    expect_http_answer("HEAD /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK", "Content-Length: ");
    assert_null(strstr(text, "Content-Length: 0"));
    assert_string_equal(strstr(text, "\r\n\r\n"), "\r\n\r\n");
}

static void knows_two_methods(void **state)
{
    (void)state;
    static const char *const methods[] = {
        "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW", "get"};
    open_patient_port();
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        char request[128];
        snprintf(request, sizeof request, "%s /metrics HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
            methods[i]);
        expect_http_answer(request, "HTTP/1.1 405 ", "Allow: GET, HEAD\r\n");
    }
    expect_http_answer(
        "GET /healthz HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200", "ok\n");
}

static void keeps_its_numbers_from_strangers_sites(void **state)
{
    (void)state;
    open_patient_port();
    expect_http_answer(
        "GET /status.json HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 421 ", "use an IP address or localhost");
    expect_http_answer(
        "GET /status.json HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 200 ", "{");
    assert_int_equal(collector.asked_count, 1);
}

static void refuses_more_than_one_host(void **state)
{
    (void)state;
    static const char *const beginnings[] = {
        "GET /status.json HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nA: b\r\nHOST:\r\n",
        "GET /healthz HTTP/1.0\r\nHost: x\r\nHost: x\r\nHost: x\r\n",
        "BREW /healthz HTTP/1.1\r\nHost: x\r\nHost: x\r\n"};
    open_patient_port();
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
        char request[256];
        snprintf(request, sizeof request, "%sConnection: close\r\n\r\n", beginnings[i]);
        expect_http_answer(request, "HTTP/1.1 400 ", "more than one Host header");
    }
    assert_int_equal(collector.asked_count, 0);
    expect_http_answer(
        "GET /version HTTP/1.0\r\nHost: x\r\nX-Host: y\r\n\r\n", "HTTP/1.1 200", "1.2.3");
}

/* Makes a request with `bytes` bytes between `before` and `behind`, and reads the answer. */
static void ask_at_length(const char *before, size_t bytes, const char *behind)
{
    char *request = calloc(1, bytes + strlen(before) + strlen(behind) + 1);
    assert_non_null(request);
    strcpy(request, before);
    memset(request + strlen(before), 'a', bytes);
    strcat(request, behind);
    read_answer(send_to_port(request));
    free(request);
}

static void refuses_what_is_too_long(void **state)
{
    (void)state;
    size_t fits = EB_WEB_CONNECTION_BYTES / 2;
    size_t too_long = 4 * EB_WEB_CONNECTION_BYTES;
    open_patient_port();
    ask_at_length("GET /", fits, " HTTP/1.0\r\n\r\n");
    assert_int_equal(count_in_text("HTTP/1.1 404 "), 1);
    ask_at_length("GET /healthz HTTP/1.0\r\nA: ", fits, "\r\n\r\n");
    assert_int_equal(count_in_text("HTTP/1.1 200 "), 1);
    /* The answer may be missing: the system may discard it because the request was not read in
     * full. */
    ask_at_length("GET /", too_long, " HTTP/1.0\r\n\r\n");
    assert_int_equal(count_in_text(" 414 "), *text != '\0');
    ask_at_length("GET /healthz HTTP/1.0\r\nA: ", too_long, "\r\n\r\n");
    assert_int_equal(count_in_text(" 431 "), *text != '\0');
}

static void survives_what_is_no_request(void **state)
{
    (void)state;
    static const char *const garbage[] = {"\r\n\r\n\r\n", "\x16\x03\x01\x02\n\r\n\r\n",
        "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        " / HTTP/1.0\r\n\r\n", "GET /metrics HTTP/1.1\r\n\r\n", "GET /a%00%ff HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.0\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n"};
    open_port((struct eb_web_times){10 * SHORT_MS, LONG_MS, LONG_MS, 1});
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        int socket = send_to_port(garbage[i]);
        shutdown(socket, SHUT_WR);
        read_answer(socket);
        assert_int_equal(count_in_text(" 200 OK\r\n"), 0);
    }
    expect_http_answer("GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK", "ok\n");
}

/* ---- stats ---- */

static void shares_stats_among_those_who_ask(void **state)
{
    (void)state;
    int sockets[SHARERS];
    open_port((struct eb_web_times){LONG_MS, LONG_MS, LONG_MS, 300});
    collector.holds = true;
    for (int i = 0; i < SHARERS; i++) {
        sockets[i] = send_to_port("GET /metrics HTTP/1.0\r\n\r\n");
    }
    wait_until_asked();
    let_go();
    for (int i = 0; i < SHARERS; i++) {
        read_answer(sockets[i]);
        assert_int_equal(count_in_text("HTTP/1.1 200 OK"), 1);
    }
    assert_true(collector.asked_count <= SHARERS / 2);
}

/* An answer is never older than its request. */
static void has_stats_begun_after_each_request(void **state)
{
    (void)state;
    open_patient_port();
    collector.holds = true;
    int first = send_to_port("GET /metrics HTTP/1.0\r\n\r\n");
    wait_until_asked();
    int second = send_to_port("GET /metrics HTTP/1.0\r\n\r\n");
    let_go();
    read_answer(first);
    read_answer(second);
    assert_int_equal(count_in_text("HTTP/1.1 200 OK"), 1);
    assert_int_equal(collector.asked_count, 2);
}

static void asks_for_no_more_than_is_needed(void **state)
{
    (void)state;
    open_port((struct eb_web_times){LONG_MS, LONG_MS, LONG_MS, 300});
    expect_http_answer("GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 ", "ok\n");
    assert_int_equal(collector.bare_count, 1);
    int healths = send_to_port("GET /healthz HTTP/1.0\r\n\r\n");
    int metrics = send_to_port("GET /metrics HTTP/1.0\r\n\r\n");
    read_answer(healths);
    assert_non_null(strstr(text, "ok\n"));
    read_answer(metrics);
    assert_non_null(strstr(text, "embag_phase"));
    assert_int_equal(collector.asked_count - collector.bare_count, 1);
    expect_http_answer("GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 ", "ok\n");
    assert_int_equal(collector.asked_count - collector.bare_count, 1);
}

static void says_when_loops_do_not_answer(void **state)
{
    (void)state;
    open_port((struct eb_web_times){LONG_MS / 100, LONG_MS, SHORT_MS, 1});
    collector.holds = true;
    expect_http_answer("GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.1 503 ",
        "the server's event loops do not respond\n");
    /* Requests that arrive while the loops do not respond get the same error. */
    expect_http_answer("GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 503 ",
        "the server's event loops do not respond\n");
    expect_http_answer("GET /readyz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 ", "ready\n");
    let_go();
    expect_http_answer("GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK", "ok\n");
}

static void says_when_there_are_no_stats(void **state)
{
    (void)state;
    open_patient_port();
    collector.lacks_memory = true;
    expect_http_answer("GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 503 ", "out of memory");
    collector.lacks_memory = false;
    expect_http_answer("GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK", "embag_phase");
}

static void looks_after_those_who_went_away_waiting(void **state)
{
    (void)state;
    open_patient_port();
    collector.holds = true;
    close(send_to_port("GET /metrics HTTP/1.0\r\n\r\n"));
    wait_until_asked();
    let_go();
    expect_http_answer("GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK", "embag_phase");
}

/* ---- time and room ---- */

static void closes_those_who_are_slow(void **state)
{
    (void)state;
    static const char *const halves[] = {"", "G", "GET /healthz HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\na"};
    open_port((struct eb_web_times){4 * SHORT_MS, LONG_MS, LONG_MS, 1});
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++) {
        read_answer(send_to_port(halves[i]));
        assert_string_equal(text, "");
    }
}

static void closes_those_who_ask_no_more(void **state)
{
    (void)state;
    open_port((struct eb_web_times){10 * SHORT_MS, SHORT_MS, LONG_MS, 1});
    int socket = wire_connect(&address, 0);
    ask_and_stay(socket);
    read_answer(socket);
    assert_string_equal(text, "");
}

static void gives_the_place_of_the_longest_idle_to_who_comes(void **state)
{
    (void)state;
    int sockets[EB_WEB_CONNECTIONS_MAX];
    open_patient_port();
    for (int i = 0; i < EB_WEB_CONNECTIONS_MAX; i++) {
        sockets[i] = wire_connect(&address, 0);
        ask_and_stay(sockets[i]);
    }
    read_answer(send_to_port("GET /readyz HTTP/1.0\r\n\r\n"));
    assert_non_null(strstr(text, "200 OK"));
    for (int i = 1; i < EB_WEB_CONNECTIONS_MAX; i++) {
        ask_and_stay(sockets[i]);
        close(sockets[i]);
    }
    close(sockets[0]);
}

/* ---- opening and closing ---- */

static void close_web(void *unused)
{
    (void)unused;
    eb_web_close(web);
}

static void ends_while_some_are_connected_and_some_wait(void **state)
{
    (void)state;
    uv_thread_t closer;
    open_patient_port();
    collector.holds = true;
    int silent = wire_connect(&address, 0);
    int half = send_to_port("GET /hea");
    int asked = send_to_port("GET /metrics HTTP/1.0\r\n\r\n");
    wait_until_asked();
    int waiting = send_to_port("GET /metrics HTTP/1.0\r\n\r\n");
    ask_and_stay(silent); /* sent after the request on `waiting`: both have been read */
    assert_int_equal(uv_thread_create(&closer, close_web, NULL), 0);
    read_answer(waiting);
    assert_non_null(strstr(text, "the server is shutting down\n"));
    /* New requests get the same answer until the loops have answered. */
    expect_http_answer(
        "GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 503 ", "the server is shutting down\n");
    let_go();
    uv_thread_join(&closer);
    web = NULL;
    read_answer(asked);
    assert_int_equal(count_in_text("HTTP/1.1 200 OK"), 1);
    read_answer(silent);
    assert_string_equal(text, "");
    read_answer(half);
    assert_string_equal(text, "");
}

static void tells_those_who_wait_that_it_ends_before_any_stats(void **state)
{
    (void)state;
    open_port((struct eb_web_times){LONG_MS, LONG_MS, LONG_MS, LONG_MS});
    expect_http_answer("GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK", "embag_phase");
    int waiting = send_to_port("GET /metrics HTTP/1.0\r\n\r\n");
    int other = wire_connect(&address, 0);
    ask_and_stay(other);
    close(other);
    close_port(NULL);
    read_answer(waiting);
    assert_non_null(strstr(text, "the server is shutting down\n"));
}

static void opens_all_addresses_or_none(void **state)
{
    (void)state;
    static const struct eb_web_times times = {LONG_MS, LONG_MS, LONG_MS, 1};
    struct eb_address two[2];
    char taken[EB_ADDRESS_TEXT_BYTES];
    struct eb_failure failure;
    open_patient_port();
    resolve("127.0.0.1:0", &two[0]);
    two[1] = address;
    eb_address_format(&address, taken);
    assert_null(open_at(two, 2, &times, &failure));
    assert_non_null(strstr(failure.text, taken));
    assert_non_null(strstr(failure.text, "bind: "));
    expect_http_answer("GET /readyz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 ", "ready\n");
    eb_web_close(web);
    resolve("[::1]:0", &two[1]);
    web = open_at(two, 2, &times, &failure);
    assert_non_null(web);
    for (size_t i = 0; i < 2; i++) {
        address = *eb_web_address(web, i);
        expect_http_answer("GET /readyz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 ", "ready\n");
    }
}

EB_TEST_GROUP(web)
{
    static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_teardown(name, close_port)
        TEST(answers_requests_of_both_versions),
        TEST(says_the_present_phase),
        TEST(takes_requests_in_pieces_one_behind_the_other),
        TEST(tells_heads_without_bodies),
        TEST(knows_two_methods),
        TEST(keeps_its_numbers_from_strangers_sites),
        TEST(refuses_more_than_one_host),
        TEST(refuses_what_is_too_long),
        TEST(survives_what_is_no_request),
        TEST(shares_stats_among_those_who_ask),
        TEST(has_stats_begun_after_each_request),
        TEST(asks_for_no_more_than_is_needed),
        TEST(says_when_loops_do_not_answer),
        TEST(says_when_there_are_no_stats),
        TEST(looks_after_those_who_went_away_waiting),
        TEST(closes_those_who_are_slow),
        TEST(closes_those_who_ask_no_more),
        TEST(gives_the_place_of_the_longest_idle_to_who_comes),
        TEST(ends_while_some_are_connected_and_some_wait),
        TEST(tells_those_who_wait_that_it_ends_before_any_stats),
        TEST(opens_all_addresses_or_none),
#undef TEST
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
