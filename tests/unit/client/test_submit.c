/* Non-blocking lookups over real sockets: completions, cancellation, retries, limits. */
#include "tests/unit/client/client_fixture.h"

#include "tests/lib/test_group.h"

#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 4
#define CALLS_EACH 250

static void completes_in_the_queue_with_the_callers_context(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_completion completion = {0};
    uint64_t id = 0;
    int mark = 0;
    struct embag_call how = {.context = &mark};
    assert_int_equal(client_fixture_submit(fixture, "echo", 41, &how, &id), EMBAG_OK);
    assert_true(id > 0);
    assert_true(embag_next(fixture->client, EMBAG_FOREVER, &completion));
    assert_true(client_fixture_is_echo(&completion, 41));
    assert_int_equal(completion.id, id);
    assert_ptr_equal(completion.context, &mark);
    assert_int_equal(completion.attempts, 1);
    assert_string_equal(completion.error.text, "");
    embag_answer_free(completion.answer);
    assert_false(embag_next(fixture->client, 0, &completion));
    assert_false(embag_next(fixture->client, 1000, &completion));
    client_fixture_close(fixture);
}

static void reports_what_the_server_says_of_each(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_completion completion = client_fixture_run(fixture, "refuse");
    assert_int_equal(completion.error.status, EMBAG_NOT_FOUND);
    assert_string_equal(completion.error.text, "no such thing");
    assert_int_equal(completion.attempts, 1);
    client_fixture_close(fixture);
}

/* Callbacks that submit the next call themselves, as a load generator does. */
struct chain {
    struct client_fixture *fixture;
    atomic_uint done_count;
    unsigned wrong_count;
};

static void on_link_done(const struct embag_completion *completion)
{
    struct chain *chain = completion->context;
    struct embag_answer *blocking = NULL;
    struct embag_request request = {.model = "echo"};
    struct embag_call how = {.on_done = on_link_done, .context = chain};
    unsigned done = atomic_load(&chain->done_count);
    chain->wrong_count += !client_fixture_is_echo(completion, done);
    chain->wrong_count +=
        embag_lookup(chain->fixture->client, &request, &blocking, NULL) != EMBAG_INVALID_ARGUMENT;
    embag_answer_free(completion->answer);
    if (done + 1 < 50) {
        chain->wrong_count +=
            client_fixture_submit(chain->fixture, "echo", done + 1, &how, NULL) != EMBAG_OK;
    }
    atomic_fetch_add(&chain->done_count, 1);
}

static void calls_back_and_takes_the_next_call_from_there(void **state)
{
    (void)state;
    struct client_fixture *fixture =
        client_fixture_open((struct embag_options){.in_flight_max = 1});
    struct chain chain = {.fixture = fixture};
    struct embag_call how = {.on_done = on_link_done, .context = &chain};
    assert_int_equal(client_fixture_submit(fixture, "echo", 0, &how, NULL), EMBAG_OK);
    client_fixture_await(&chain.done_count, 50);
    assert_int_equal(chain.wrong_count, 0);
    client_fixture_close(fixture);
}

static void shows_the_queue_by_a_descriptor(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_completion completion = {0};
    struct pollfd poller = {.fd = embag_completion_fd(fixture->client), .events = POLLIN};
    assert_true(poller.fd >= 0);
    assert_int_equal(embag_completion_fd(fixture->client), poller.fd);
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(poll(&poller, 1, 0), 0);
        assert_int_equal(client_fixture_submit(fixture, "echo", i, NULL, NULL), EMBAG_OK);
        assert_int_equal(poll(&poller, 1, CLIENT_FIXTURE_PATIENCE_US / 1000), 1);
        assert_true(embag_next(fixture->client, 0, &completion));
        assert_true(client_fixture_is_echo(&completion, i));
        embag_answer_free(completion.answer);
    }
    client_fixture_close(fixture);
}

struct submitter {
    struct client_fixture *fixture;
    int64_t first;
    unsigned failure_count;
};

static void submit_many(void *context)
{
    struct submitter *submitter = context;
    for (int64_t i = 0; i < CALLS_EACH; i++) {
        int64_t index = submitter->first + i;
        struct embag_query query = {.table = "t", .indices = {&index, 1, 8}, .num_bags = 1};
        struct embag_request request = {.model = "echo", .queries = &query, .query_count = 1};
        struct embag_call how = {.context = (void *)(uintptr_t)index};
        submitter->failure_count +=
            embag_submit(submitter->fixture->client, &request, &how, NULL, NULL) != EMBAG_OK;
        index = -1; /* The request is no longer borrowed. */
    }
}

static void serves_a_thousand_lookups_of_several_threads_at_once(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){.connections = 3});
    struct submitter submitters[THREADS];
    uv_thread_t threads[THREADS];
    bool seen[THREADS * CALLS_EACH] = {false};
    for (int i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){.fixture = fixture, .first = (int64_t)i * CALLS_EACH};
        assert_int_equal(uv_thread_create(&threads[i], submit_many, &submitters[i]), 0);
    }
    for (int i = 0; i < THREADS * CALLS_EACH; i++) {
        struct embag_completion completion;
        assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
        size_t index = (size_t)(uintptr_t)completion.context;
        assert_true(client_fixture_is_echo(&completion, (int64_t)index));
        assert_false(seen[index]);
        seen[index] = true;
        embag_answer_free(completion.answer);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(uv_thread_join(&threads[i]), 0);
        assert_int_equal(submitters[i].failure_count, 0);
    }
    client_fixture_close(fixture);
}

static void refuses_a_call_too_many_at_once(void **state)
{
    (void)state;
    struct client_fixture *fixture =
        client_fixture_open((struct embag_options){.in_flight_max = 2});
    struct embag_completion completion;
    uint64_t id = 0;
    assert_int_equal(client_fixture_submit(fixture, "silent", 0, NULL, &id), EMBAG_OK);
    assert_int_equal(client_fixture_submit(fixture, "echo", 1, NULL, NULL), EMBAG_OK);
    assert_int_equal(
        client_fixture_submit(fixture, "echo", 2, NULL, NULL), EMBAG_RESOURCE_EXHAUSTED);
    /* Calls that are done but not yet taken count, too. */
    client_fixture_await(&fixture->server.call_count, 2);
    assert_int_equal(
        client_fixture_submit(fixture, "echo", 2, NULL, NULL), EMBAG_RESOURCE_EXHAUSTED);
    assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
    embag_answer_free(completion.answer);
    assert_int_equal(client_fixture_submit(fixture, "echo", 2, NULL, NULL), EMBAG_OK);
    client_fixture_close(fixture);
}

static void withdraws_a_call(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_completion completion;
    uint64_t id = 0;
    assert_int_equal(client_fixture_submit(fixture, "later", 0, NULL, &id), EMBAG_OK);
    client_fixture_await(&fixture->server.call_count, 1);
    embag_cancel(fixture->client, id);
    embag_cancel(fixture->client, id);
    assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
    assert_int_equal(completion.id, id);
    assert_int_equal(completion.error.status, EMBAG_CANCELLED);
    assert_null(completion.answer);
    client_fixture_await(client_mode == EMBAG_MODE_UNARY ? &fixture->server.done_count
                                                         : &fixture->server.cancel_count,
        1);
    /* The late answer arrives with the next one and is dropped. */
    assert_int_equal(client_fixture_run(fixture, "echo").error.status, EMBAG_OK);
    assert_false(embag_next(fixture->client, 1000, &completion));
    embag_cancel(fixture->client, id);
    embag_cancel(fixture->client, 0);
    embag_cancel(fixture->client, UINT64_MAX);
    assert_int_equal(atomic_load(&fixture->server.conn_count), 1);
    client_fixture_close(fixture);
}

static void drops_an_answer_that_comes_after_the_deadline(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    int64_t index = 0;
    struct embag_query query = {.table = "t", .indices = {&index, 1, 8}, .num_bags = 1};
    struct embag_request request = {
        .model = "later", .queries = &query, .query_count = 1, .timeout_us = 20000};
    struct embag_completion completion;
    uint64_t start_ns = uv_hrtime();
    assert_int_equal(embag_submit(fixture->client, &request, NULL, NULL, NULL), EMBAG_OK);
    assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
    assert_int_equal(completion.error.status, EMBAG_DEADLINE_EXCEEDED);
    assert_true(uv_hrtime() - start_ns >= 20000000);
    assert_int_equal(client_fixture_run(fixture, "echo").error.status, EMBAG_OK);
    assert_false(embag_next(fixture->client, 1000, &completion));
    client_fixture_close(fixture);
}

static void tries_again_after_the_time_that_the_server_names(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    uint64_t start_ns = uv_hrtime();
    struct embag_completion completion = client_fixture_run(fixture, "busy");
    assert_int_equal(completion.error.status, EMBAG_OK);
    assert_int_equal(completion.attempts, 2);
    assert_true(uv_hrtime() - start_ns >= 20000000);
    /* This error names no time for a retry. */
    completion = client_fixture_run(fixture, "full");
    assert_int_equal(completion.error.status, EMBAG_RESOURCE_EXHAUSTED);
    assert_int_equal(completion.attempts, 1);
    client_fixture_close(fixture);
}

static void sends_what_is_left_of_the_timeout(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_completion completion;
    assert_int_equal(client_fixture_submit(fixture, "busy-timeout", 0, NULL, NULL), EMBAG_OK);
    assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
    assert_int_equal(completion.error.status, EMBAG_OK);
    assert_int_equal(completion.attempts, 2);
    uint64_t timeout_us = 0;
    memcpy(&timeout_us, completion.answer->results[0].values, sizeof timeout_us);
    assert_in_range(timeout_us, 1, CLIENT_FIXTURE_LONG_US - FAKE_SERVER_BUSY_MS * 1000);
    embag_answer_free(completion.answer);
    client_fixture_close(fixture);
}

static void never_tries_again_where_told_so(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){.retries_max = -1});
    struct embag_completion completion = client_fixture_run(fixture, "busy");
    assert_int_equal(completion.error.status, EMBAG_RESOURCE_EXHAUSTED);
    assert_int_equal(completion.attempts, 1);
    assert_int_equal(completion.retry_after_ms, 20);
    client_fixture_close(fixture);
}

static void tries_again_after_a_connection_lost_amid_the_answer(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_completion completion = client_fixture_run(fixture, "cut");
    assert_int_equal(completion.error.status, EMBAG_OK);
    assert_int_equal(completion.attempts, 2);
    assert_int_equal(atomic_load(&fixture->server.conn_count), 2);
    client_fixture_close(fixture);
}

static void gives_up_after_the_retries(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){.retries_max = 3});
    struct embag_completion completion = client_fixture_run(fixture, "hang-up");
    assert_int_equal(completion.error.status, EMBAG_UNAVAILABLE);
    assert_int_equal(completion.attempts, 4);
    assert_int_equal(atomic_load(&fixture->server.conn_count), 4);
    client_fixture_close(fixture);
}

static void loses_nothing_to_a_drain(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    for (int round = 0; round < 5; round++) {
        for (int64_t i = 0; i < 40; i++) {
            assert_int_equal(
                client_fixture_submit(fixture, i == 20 ? "drain" : "echo", i, NULL, NULL),
                EMBAG_OK);
        }
        for (int64_t i = 0; i < 40; i++) {
            struct embag_completion completion;
            assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
            assert_int_equal(completion.error.status, EMBAG_OK);
            embag_answer_free(completion.answer);
        }
    }
    client_fixture_close(fixture);
}

/* The client sends the requests one by one to find the one that ends the stream. */
static void spares_others_what_one_request_does_to_its_stream(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    uint64_t poison = 0;
    for (int64_t i = 0; i < 20; i++) {
        uint64_t id = 0;
        assert_int_equal(
            client_fixture_submit(fixture, i == 9 ? "poison" : "echo", i, NULL, &id), EMBAG_OK);
        poison = i == 9 ? id : poison;
    }
    for (int i = 0; i < 20; i++) {
        struct embag_completion completion;
        assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
        assert_int_equal(
            completion.error.status, completion.id == poison ? EMBAG_NOT_FOUND : EMBAG_OK);
        embag_answer_free(completion.answer);
    }
    assert_int_equal(atomic_load(&fixture->server.conn_count), 1);
    client_fixture_close(fixture);
}

static void on_cancelled(const struct embag_completion *completion)
{
    unsigned *count = completion->context;
    *count += completion->error.status == EMBAG_CANCELLED;
}

static void look_up_without_end(void *context)
{
    struct client_fixture *fixture = context;
    struct embag_request request = {.model = "silent"};
    struct embag_answer *answer = NULL;
    (void)embag_lookup(fixture->client, &request, &answer, &fixture->error);
}

static void ends_everything_with_the_client(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){.connections = 2});
    uv_thread_t thread;
    unsigned cancelled_count = 0;
    struct embag_call how = {.on_done = on_cancelled, .context = &cancelled_count};
    assert_int_equal(client_fixture_submit(fixture, "echo", 1, NULL, NULL), EMBAG_OK);
    assert_int_equal(uv_thread_create(&thread, look_up_without_end, fixture), 0);
    client_fixture_await(&fixture->server.call_count, 2);
    struct embag_completion completion;
    assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
    embag_answer_free(completion.answer);
    for (int64_t i = 0; i < 10; i++) {
        assert_int_equal(client_fixture_submit(fixture, "silent", i, &how, NULL), EMBAG_OK);
    }
    client_fixture_await(&fixture->server.call_count, 12);
    embag_close(fixture->client);
    assert_int_equal(cancelled_count, 10);
    assert_int_equal(uv_thread_join(&thread), 0);
    assert_int_equal(fixture->error.status, EMBAG_CANCELLED);
    assert_true(fake_server_stop(&fixture->server));
    free(fixture);
}

static void frees_answers_that_nobody_has_taken(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    for (int64_t i = 0; i < 10; i++) {
        assert_int_equal(client_fixture_submit(fixture, "echo", i, NULL, NULL), EMBAG_OK);
    }
    client_fixture_await(&fixture->server.call_count, 10);
    client_fixture_close(fixture);
}

static void leaves_signals_to_the_program(void **state)
{
    (void)state;
    struct client_fixture *fixture = client_fixture_open((struct embag_options){.retries_max = -1});
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGPIPE), 0);
    for (int i = 0; i < 10; i++) {
        /* Each lookup loses the connection while others are still being written. */
        for (int64_t n = 0; n < 20; n++) {
            assert_int_equal(client_fixture_submit(fixture, "hang-up", n, NULL, NULL), EMBAG_OK);
        }
        for (int64_t n = 0; n < 20; n++) {
            struct embag_completion completion;
            assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
            assert_int_equal(completion.error.status, EMBAG_UNAVAILABLE);
        }
    }
    client_fixture_close(fixture);
}

EB_TEST_GROUP(submit)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completes_in_the_queue_with_the_callers_context),
        cmocka_unit_test(reports_what_the_server_says_of_each),
        cmocka_unit_test(calls_back_and_takes_the_next_call_from_there),
        cmocka_unit_test(shows_the_queue_by_a_descriptor),
        cmocka_unit_test(serves_a_thousand_lookups_of_several_threads_at_once),
        cmocka_unit_test(refuses_a_call_too_many_at_once),
        cmocka_unit_test(withdraws_a_call),
        cmocka_unit_test(drops_an_answer_that_comes_after_the_deadline),
        cmocka_unit_test(tries_again_after_the_time_that_the_server_names),
        cmocka_unit_test(sends_what_is_left_of_the_timeout),
        cmocka_unit_test(never_tries_again_where_told_so),
        cmocka_unit_test(tries_again_after_a_connection_lost_amid_the_answer),
        cmocka_unit_test(gives_up_after_the_retries),
        cmocka_unit_test(loses_nothing_to_a_drain),
        cmocka_unit_test(spares_others_what_one_request_does_to_its_stream),
        cmocka_unit_test(ends_everything_with_the_client),
        cmocka_unit_test(frees_answers_that_nobody_has_taken),
        cmocka_unit_test(leaves_signals_to_the_program),
    };
    client_mode = EMBAG_MODE_STREAM;
    int failed = cmocka_run_group_tests_name("stream", tests, NULL, NULL);
    client_mode = EMBAG_MODE_UNARY;
    return failed + cmocka_run_group_tests_name("unary", tests, NULL, NULL);
}
