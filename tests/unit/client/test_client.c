/* The client's blocking calls over real sockets, on streams and as unary calls. These tests cover
 * client.c, engine.c, dispatcher.c, connection.c and transport.c together. */
#include "client/embag.h"

#include "tests/lib/test_group.h"
#include "tests/unit/client/fake_server.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS UINT64_C(10000000000)
#define LONG_US 20000000 /* longer than any test may take */

/* Mode of the clients that the tests open. The tests run in both modes. */
static enum embag_mode mode;

struct fixture {
    struct fake_server server;
    struct embag_client *client;
    struct embag_error error;
};

static struct fixture *open_fixture(enum fake_server_mode server_mode, const char *unix_path)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct embag_options options = {.timeout_us = LONG_US, .retries_max = -1, .mode = mode};
    assert_non_null(fixture);
    assert_true(fake_server_start(&fixture->server, server_mode, unix_path));
    assert_int_equal(
        embag_open(fixture->server.address, &options, &fixture->client, &fixture->error), EMBAG_OK);
    return fixture;
}

static void close_fixture(struct fixture *fixture)
{
    embag_close(fixture->client);
    assert_true(fake_server_stop(&fixture->server));
    free(fixture);
}

/* Makes a lookup of three indices in one query and frees the answer. Returns EMBAG_UNKNOWN if a
 * successful lookup does not return the indices. */
static enum embag_status look_up(
    struct embag_client *client, const char *model, uint64_t timeout_us, struct embag_error *error)
{
    static const int64_t indices[] = {5, 6, 7};
    struct embag_query query = {.table = "t", .indices = {indices, 3, 8}, .num_bags = 1};
    struct embag_request request = {
        .model = model, .queries = &query, .query_count = 1, .timeout_us = timeout_us};
    struct embag_answer *answer = NULL;
    enum embag_status status = embag_lookup(client, &request, &answer, error);
    if ((status == EMBAG_OK) != !!answer ||
        (answer && memcmp(answer->results[0].values, indices, sizeof indices) != 0)) {
        status = EMBAG_UNKNOWN;
    }
    embag_answer_free(answer);
    return status;
}

static void gets_an_answer_with_its_shape(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    const int64_t first[] = {1, -2, 3}, second[] = {9};
    const struct embag_query queries[] = {
        {.table = "a", .indices = {first, 3, 8}, .num_bags = 1},
        {.table = "b", .indices = {second, 1, 8}, .indices_per_bag = 1},
        {.table = "c", .indices = {NULL, 0, 8}, .offsets = {NULL, 0, 8}},
    };
    struct embag_request request = {.model = "echo", .queries = queries, .query_count = 3};
    struct embag_answer *answer = NULL;
    assert_int_equal(embag_lookup(fixture->client, &request, &answer, &fixture->error), EMBAG_OK);
    assert_string_equal(answer->model, "echo");
    assert_int_equal(answer->version, 7);
    assert_int_equal(answer->result_count, 3);
    assert_int_equal(answer->results[1].query, 1);
    assert_int_equal(answer->results[0].type, EMBAG_I64);
    assert_int_equal(answer->results[0].rank, 1);
    assert_int_equal(answer->results[0].shape[0], 3);
    assert_memory_equal(answer->results[0].values, first, sizeof first);
    assert_memory_equal(answer->results[1].values, second, sizeof second);
    assert_int_equal((uintptr_t)answer->results[1].values % 16, 0);
    assert_int_equal(answer->results[2].values_bytes, 0);
    embag_answer_free(answer);
    close_fixture(fixture);
}

/* Only this call fails. The next call succeeds. */
static void refuses_an_answer_of_another_shape(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    const int64_t rows[] = {1, 2}, offsets[] = {0, 1, 2};
    struct embag_query query = {
        .table = "t", .reduction = EMBAG_SUM, .indices = {rows, 2, 8}, .offsets = {offsets, 3, 8}};
    struct embag_request request = {.model = "echo", .queries = &query, .query_count = 1};
    struct embag_answer *answer = NULL;
    assert_int_equal(
        embag_lookup(fixture->client, &request, &answer, &fixture->error), EMBAG_INTERNAL);
    assert_null(answer);
    assert_string_equal(fixture->error.text, "the answer does not fit the request: "
                                             "results[0]: shape [2] has 2 bags, the request has 3");
    assert_int_equal(look_up(fixture->client, "echo", 0, &fixture->error), EMBAG_OK);
    close_fixture(fixture);
}

static void carries_large_arrays_both_ways(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    size_t count = 1500000;
    int64_t *indices = malloc(count * sizeof *indices);
    assert_non_null(indices);
    for (size_t i = 0; i < count; i++) {
        indices[i] = (int64_t)(i * i);
    }
    struct embag_query query = {.table = "t", .indices = {indices, count, 8}, .num_bags = 1};
    struct embag_request request = {.model = "echo", .queries = &query, .query_count = 1};
    for (int i = 0; i < 3; i++) {
        struct embag_answer *answer = NULL;
        assert_int_equal(
            embag_lookup(fixture->client, &request, &answer, &fixture->error), EMBAG_OK);
        assert_int_equal(answer->results[0].shape[0], count);
        assert_memory_equal(answer->results[0].values, indices, count * sizeof *indices);
        embag_answer_free(answer);
    }
    free(indices);
    close_fixture(fixture);
}

static void lists_models(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    struct embag_model_list *list = NULL;
    assert_int_equal(embag_list_models(fixture->client, &list, &fixture->error), EMBAG_OK);
    assert_int_equal(list->count, 1);
    assert_string_equal(list->models[0].name, "echo");
    assert_int_equal(list->models[0].served_version, 1);
    assert_int_equal(list->models[0].version_count, 2);
    assert_string_equal(list->models[0].versions[0].error, "bro\tken");
    assert_false(list->models[0].versions[0].serving);
    assert_true(list->models[0].versions[1].serving);
    const struct embag_table *table = &list->models[0].versions[1].tables[0];
    assert_string_equal(table->name, "t00");
    assert_int_equal(table->rows, 5);
    assert_int_equal(table->rank, 2);
    assert_int_equal(table->shape[1], 3);
    assert_int_equal(table->type, EMBAG_F32);
    assert_string_equal(table->storage, "f32");
    embag_model_list_free(list);
    close_fixture(fixture);
}

static void reports_what_the_server_says(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    assert_int_equal(look_up(fixture->client, "refuse", 0, &fixture->error), EMBAG_NOT_FOUND);
    assert_string_equal(fixture->error.text, "no such thing");
    assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_OK);
    assert_int_equal(atomic_load(&fixture->server.conn_count), 1);
    close_fixture(fixture);
}

static void refuses_answers_that_make_no_sense(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    assert_int_equal(look_up(fixture->client, "garbage", 0, NULL), EMBAG_INTERNAL);
    bool unary = mode == EMBAG_MODE_UNARY;
    /* A stream may end at any time, and an answer that comes after its call has ended is
     * dropped. */
    assert_int_equal(
        look_up(fixture->client, "nothing", 0, NULL), unary ? EMBAG_INTERNAL : EMBAG_UNAVAILABLE);
    assert_int_equal(look_up(fixture->client, "twice", 0, NULL), unary ? EMBAG_INTERNAL : EMBAG_OK);
    assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_OK);
    close_fixture(fixture);
}

static void ends_a_call_at_its_deadline(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    for (int i = 0; i < 3; i++) {
        uint64_t start_ns = uv_hrtime();
        assert_int_equal(look_up(fixture->client, "silent", 30000, NULL), EMBAG_DEADLINE_EXCEEDED);
        assert_true(uv_hrtime() - start_ns >= 30000000);
        assert_true(uv_hrtime() - start_ns < PATIENCE_NS);
        assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_OK);
    }
    assert_int_equal(atomic_load(&fixture->server.conn_count), 1);
    close_fixture(fixture);
}

static void ends_a_call_to_a_mute_server_at_its_deadline(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_IS_MUTE, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(look_up(fixture->client, "echo", 20000, NULL), EMBAG_DEADLINE_EXCEEDED);
    }
    close_fixture(fixture);
}

static void says_that_nobody_answers(void **state)
{
    (void)state;
    struct fake_server server;
    struct embag_client *client = NULL;
    struct embag_error error;
    assert_true(fake_server_start(&server, FAKE_SERVER_SPEAKS_GRPC, NULL));
    assert_true(fake_server_stop(&server));
    assert_int_equal(embag_open(server.address, NULL, &client, &error), EMBAG_UNAVAILABLE);
    assert_null(client);
    assert_non_null(strstr(error.text, "connection refused"));
    assert_int_equal(
        embag_open("unix:/nonexistent/socket", NULL, &client, &error), EMBAG_UNAVAILABLE);
    assert_non_null(strstr(error.text, "/nonexistent/socket"));
    assert_int_equal(embag_open("nowhere", NULL, &client, &error), EMBAG_INVALID_ARGUMENT);
    assert_string_equal(
        error.text, "invalid address \"nowhere\": expected HOST:PORT, [V6]:PORT or unix:PATH");
    assert_int_equal(embag_open("nowhere", NULL, &client, NULL), EMBAG_INVALID_ARGUMENT);
}

static void tries_every_address_of_a_name(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    struct embag_client *client = NULL;
    char address[64];
    snprintf(address, sizeof address, "localhost%s", strchr(fixture->server.address, ':'));
    assert_int_equal(embag_open(address, NULL, &client, NULL), EMBAG_OK);
    embag_close(client);
    assert_int_equal(embag_open("no..host:1", NULL, &client, &fixture->error), EMBAG_UNAVAILABLE);
    assert_non_null(strstr(fixture->error.text, "no..host"));
    close_fixture(fixture);
}

/* If a socket's queue of connections is full, further connections wait for ever. */
static void gives_up_connecting_at_its_timeout(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    char text[32];
    int waiting[4];
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    for (int i = 0; i < 4; i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(waiting[i], (struct sockaddr *)&address, sizeof address);
    }
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(address.sin_port));
    struct embag_options options = {.connect_timeout_us = 30000};
    struct embag_client *client = NULL;
    struct embag_error error;
    assert_int_equal(embag_open(text, &options, &client, &error), EMBAG_UNAVAILABLE);
    assert_non_null(strstr(error.text, "timed out"));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(close(waiting[i]), 0);
    }
    assert_int_equal(close(listener), 0);
}

static void loses_a_server_that_speaks_http1(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_HTTP1, NULL);
    assert_int_equal(look_up(fixture->client, "echo", 0, &fixture->error), EMBAG_UNAVAILABLE);
    assert_non_null(strstr(fixture->error.text, fixture->server.address));
    assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_UNAVAILABLE);
    close_fixture(fixture);
}

static void reports_a_connection_lost_during_a_call_and_connects_again(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(look_up(fixture->client, "hang-up", 0, NULL), EMBAG_UNAVAILABLE);
        assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_OK);
        assert_int_equal(atomic_load(&fixture->server.conn_count), i + 1);
    }
    close_fixture(fixture);
}

/* The client may make its next call before the server has closed its end. That call is lost. */
static void connects_again_after_the_server_has_closed(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    assert_int_equal(look_up(fixture->client, "last", 0, NULL), EMBAG_OK);
    uint64_t deadline_ns = uv_hrtime() + PATIENCE_NS;
    enum embag_status status = EMBAG_UNAVAILABLE;
    while (status == EMBAG_UNAVAILABLE && uv_hrtime() < deadline_ns) {
        status = look_up(fixture->client, "echo", 0, NULL);
    }
    assert_int_equal(status, EMBAG_OK);
    assert_int_equal(atomic_load(&fixture->server.conn_count), 2);
    close_fixture(fixture);
}

static void connects_again_after_a_drain(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    assert_int_equal(look_up(fixture->client, "drain", 0, NULL), EMBAG_OK);
    uint64_t deadline_ns = uv_hrtime() + PATIENCE_NS;
    while (atomic_load(&fixture->server.conn_count) < 2 && uv_hrtime() < deadline_ns) {
        enum embag_status status = look_up(fixture->client, "echo", 0, NULL);
        assert_true(status == EMBAG_OK || status == EMBAG_UNAVAILABLE);
    }
    assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_OK);
    assert_int_equal(atomic_load(&fixture->server.conn_count), 2);
    close_fixture(fixture);
}

static void connects_to_a_server_that_was_restarted(void **state)
{
    (void)state;
    char directory[] = "/tmp/embag-test.XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/socket", directory);
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, path);
    assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_OK);
    assert_true(fake_server_stop(&fixture->server));
    assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_UNAVAILABLE);
    assert_true(fake_server_start(&fixture->server, FAKE_SERVER_SPEAKS_GRPC, path));
    assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_OK);
    close_fixture(fixture);
    assert_int_equal(rmdir(directory), 0);
}

/* The client backs off between attempts to connect, so most of the calls end between two
 * attempts. */
static void says_why_there_was_no_connection_within_the_deadline(void **state)
{
    (void)state;
    char directory[] = "/tmp/embag-test.XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/socket", directory);
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, path);
    struct embag_options options = {.timeout_us = LONG_US, .retries_max = 4, .mode = mode};
    struct embag_client *client;
    assert_int_equal(embag_open(fixture->server.address, &options, &client, NULL), EMBAG_OK);
    assert_true(fake_server_stop(&fixture->server));
    for (int i = 0; i < 20; i++) {
        uint64_t timeout_us = i == 0 ? LONG_US : 20000;
        assert_int_equal(look_up(client, "echo", timeout_us, &fixture->error), EMBAG_UNAVAILABLE);
        assert_non_null(strstr(fixture->error.text, path));
        assert_non_null(strstr(fixture->error.text, "no such file"));
    }
    embag_close(client);
    embag_close(fixture->client);
    free(fixture);
    assert_int_equal(rmdir(directory), 0);
}

static void refuses_an_answer_over_the_limit(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    struct embag_options options = {.timeout_us = LONG_US, .answer_bytes_max = 10, .mode = mode};
    struct embag_client *client = NULL;
    assert_int_equal(embag_open(fixture->server.address, &options, &client, NULL), EMBAG_OK);
    assert_int_equal(look_up(client, "echo", 0, NULL), EMBAG_RESOURCE_EXHAUSTED);
    embag_close(client);
    close_fixture(fixture);
}

static void refuses_arrays_that_are_none(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    int64_t one = 1;
    const struct embag_query queries[] = {
        {.table = "t", .indices = {&one, 1, 3}},
        {.table = "t", .indices = {&one, 1, 0}},
        {.table = "t", .indices = {NULL, 1, 8}},
        {.table = "t", .indices = {&one, SIZE_MAX / 4, 8}},
        {.table = "t", .indices = {&one, 1, 8}, .weights = &one, .weights_count = 1},
        {.table = "t", .indices = {&one, 1, 8}, .weights_type = EMBAG_F32, .weights_count = 1},
    };
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        struct embag_request request = {.model = "echo", .queries = &queries[i], .query_count = 1};
        struct embag_answer *answer = NULL;
        assert_int_equal(embag_lookup(fixture->client, &request, &answer, &fixture->error),
            EMBAG_INVALID_ARGUMENT);
        assert_null(answer);
    }
    close_fixture(fixture);
}

struct caller {
    struct fixture *fixture;
    unsigned wrong_count;
    int64_t first;
};

static void call_many_times(void *context)
{
    struct caller *caller = context;
    for (int64_t i = 0; i < 100; i++) {
        int64_t indices[] = {caller->first + i, caller->first - i};
        struct embag_query query = {.table = "t", .indices = {indices, 2, 8}, .num_bags = 1};
        struct embag_request request = {.model = "echo", .queries = &query, .query_count = 1};
        struct embag_answer *answer = NULL;
        if (embag_lookup(caller->fixture->client, &request, &answer, NULL) != EMBAG_OK ||
            memcmp(answer->results[0].values, indices, sizeof indices) != 0) {
            caller->wrong_count++;
        }
        embag_answer_free(answer);
    }
}

static void serves_two_threads_with_one_client(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    struct caller callers[2] = {
        {.fixture = fixture, .first = 1000}, {.fixture = fixture, .first = 2000}};
    uv_thread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(uv_thread_create(&threads[i], call_many_times, &callers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(uv_thread_join(&threads[i]), 0);
        assert_int_equal(callers[i].wrong_count, 0);
    }
    close_fixture(fixture);
}

static void call_without_answer(void *context)
{
    struct fixture *fixture = context;
    (void)look_up(fixture->client, "silent", 1000000, &fixture->error);
}

static void waits_for_another_threads_call_no_longer_than_its_deadline(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    struct embag_options options = {.in_flight_max = 1, .mode = mode};
    uv_thread_t thread;
    struct embag_error error;
    embag_close(fixture->client);
    assert_int_equal(
        embag_open(fixture->server.address, &options, &fixture->client, NULL), EMBAG_OK);
    assert_int_equal(uv_thread_create(&thread, call_without_answer, fixture), 0);
    uint64_t deadline_ns = uv_hrtime() + PATIENCE_NS;
    while (atomic_load(&fixture->server.call_count) == 0 && uv_hrtime() < deadline_ns) {
        assert_int_equal(sched_yield(), 0);
    }
    assert_int_equal(look_up(fixture->client, "echo", 20000, &error), EMBAG_DEADLINE_EXCEEDED);
    assert_non_null(strstr(error.text, "other threads"));
    assert_int_equal(uv_thread_join(&thread), 0);
    assert_int_equal(fixture->error.status, EMBAG_DEADLINE_EXCEEDED);
    assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_OK);
    close_fixture(fixture);
}

static void is_not_held_up_by_another_threads_call(void **state)
{
    (void)state;
    struct fixture *fixture = open_fixture(FAKE_SERVER_SPEAKS_GRPC, NULL);
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, call_without_answer, fixture), 0);
    uint64_t deadline_ns = uv_hrtime() + PATIENCE_NS;
    while (atomic_load(&fixture->server.call_count) == 0 && uv_hrtime() < deadline_ns) {
        assert_int_equal(sched_yield(), 0);
    }
    assert_int_equal(look_up(fixture->client, "echo", 0, NULL), EMBAG_OK);
    assert_int_equal(uv_thread_join(&thread), 0);
    assert_int_equal(fixture->error.status, EMBAG_DEADLINE_EXCEEDED);
    close_fixture(fixture);
}

static void names_statuses_and_types(void **state)
{
    (void)state;
    assert_string_equal(embag_status_name(EMBAG_OUT_OF_RANGE), "OUT_OF_RANGE");
    assert_string_equal(embag_status_name((enum embag_status)99), "UNKNOWN");
    assert_int_equal(embag_type_bytes(EMBAG_BF16), 2);
    assert_int_equal(embag_type_bytes((enum embag_type)99), 0);
    embag_close(NULL);
    embag_answer_free(NULL);
    embag_model_list_free(NULL);
}

EB_TEST_GROUP(client)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gets_an_answer_with_its_shape),
        cmocka_unit_test(refuses_an_answer_of_another_shape),
        cmocka_unit_test(carries_large_arrays_both_ways),
        cmocka_unit_test(lists_models),
        cmocka_unit_test(reports_what_the_server_says),
        cmocka_unit_test(refuses_answers_that_make_no_sense),
        cmocka_unit_test(ends_a_call_at_its_deadline),
        cmocka_unit_test(ends_a_call_to_a_mute_server_at_its_deadline),
        cmocka_unit_test(says_that_nobody_answers),
        cmocka_unit_test(tries_every_address_of_a_name),
        cmocka_unit_test(gives_up_connecting_at_its_timeout),
        cmocka_unit_test(loses_a_server_that_speaks_http1),
        cmocka_unit_test(reports_a_connection_lost_during_a_call_and_connects_again),
        cmocka_unit_test(connects_again_after_the_server_has_closed),
        cmocka_unit_test(connects_again_after_a_drain),
        cmocka_unit_test(connects_to_a_server_that_was_restarted),
        cmocka_unit_test(says_why_there_was_no_connection_within_the_deadline),
        cmocka_unit_test(refuses_an_answer_over_the_limit),
        cmocka_unit_test(refuses_arrays_that_are_none),
        cmocka_unit_test(serves_two_threads_with_one_client),
        cmocka_unit_test(waits_for_another_threads_call_no_longer_than_its_deadline),
        cmocka_unit_test(is_not_held_up_by_another_threads_call),
        cmocka_unit_test(names_statuses_and_types),
    };
    mode = EMBAG_MODE_STREAM;
    int failed = cmocka_run_group_tests_name("stream", tests, NULL, NULL);
    mode = EMBAG_MODE_UNARY;
    return failed + cmocka_run_group_tests_name("unary", tests, NULL, NULL);
}
