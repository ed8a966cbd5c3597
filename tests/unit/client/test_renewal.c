/* Tests clients whose token file changes while they run. */
#include "tests/unit/client/client_fixture.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TIMEOUT_NS UINT64_C(60000000000)

struct fixture {
    struct eb_scratch scratch;
    struct client_fixture *client;
};

static void write_token(const struct fixture *fixture, const char *token)
{
    char paths[2][EB_SCRATCH_PATH_BYTES];
    eb_scratch_write_text(&fixture->scratch, "new", token);
    eb_scratch_path(&fixture->scratch, "new", paths[0]);
    eb_scratch_path(&fixture->scratch, "token", paths[1]);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    char path[EB_SCRATCH_PATH_BYTES];
    if (!fixture) {
        return -1;
    }
    *state = fixture;
    eb_scratch_init(&fixture->scratch);
    write_token(fixture, "token-1");
    eb_scratch_path(&fixture->scratch, "token", path);
    fixture->client = client_fixture_open((struct embag_options){.access = {.token_file = path}});
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    client_fixture_close(fixture->client);
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return 0;
}

/* Returns the number of the token with which lookups are sent now. */
static int64_t ask_token(struct fixture *fixture)
{
    struct embag_completion completion = {0};
    int64_t number = -1;
    assert_int_equal(client_fixture_submit(fixture->client, "who", 0, NULL, NULL), EMBAG_OK);
    assert_true(embag_next(fixture->client->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
    assert_int_equal(completion.error.status, EMBAG_OK);
    memcpy(&number, completion.answer->results[0].values, sizeof number);
    embag_answer_free(completion.answer);
    return number;
}

static void await_token(struct fixture *fixture, int64_t number)
{
    uint64_t deadline_ns = uv_hrtime() + TIMEOUT_NS;
    while (ask_token(fixture) != number && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    assert_int_equal(ask_token(fixture), number);
}

/* Waits until a lookup that the server refuses has, or no longer has, this part in its text. */
static void await_text(struct fixture *fixture, const char *part, bool is_there)
{
    uint64_t deadline_ns = uv_hrtime() + TIMEOUT_NS;
    bool is_found = !is_there;
    while (is_found != is_there && uv_hrtime() < deadline_ns) {
        struct embag_completion completion = client_fixture_run(fixture->client, "stranger");
        assert_int_equal(completion.error.status, EMBAG_UNAUTHENTICATED);
        eb_scratch_expect(completion.error.text, "who are you");
        is_found = strstr(completion.error.text, part);
        uv_sleep(1);
    }
    assert_int_equal(is_found, is_there);
}

static void sends_a_renewed_token_over_the_same_connection(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(ask_token(fixture), 1);
    write_token(fixture, "token-2");
    await_token(fixture, 2);
    write_token(fixture, "token-3");
    await_token(fixture, 3);
    assert_int_equal(atomic_load(&fixture->client->server.conn_count), 1);
}

static void keeps_the_token_if_the_new_one_cannot_be_used_and_says_so(void **state)
{
    struct fixture *fixture = *state;
    static const char part[] = "former credentials are in use";
    write_token(fixture, "\n");
    await_text(fixture, part, true);
    await_text(fixture, "token: is empty", true);
    assert_int_equal(ask_token(fixture), 1);
    write_token(fixture, "token-2");
    await_text(fixture, part, false);
    assert_int_equal(ask_token(fixture), 2);
}

static void says_nothing_of_files_in_other_errors(void **state)
{
    struct fixture *fixture = *state;
    write_token(fixture, "\n");
    await_text(fixture, "is empty", true);
    struct embag_completion completion = client_fixture_run(fixture->client, "refuse");
    assert_string_equal(completion.error.text, "no such thing");
}

/* ---- streams ---- */

/* Begins a lookup and waits until it has reached the server. Returns its number. */
static uint64_t begin_lookup(struct fixture *fixture, const char *model)
{
    uint64_t id = 0;
    unsigned count = atomic_load(&fixture->client->server.call_count);
    assert_int_equal(client_fixture_submit(fixture->client, model, 4, NULL, &id), EMBAG_OK);
    client_fixture_await(&fixture->client->server.call_count, count + 1);
    return id;
}

/* Renews the token, and waits until the server learns that a stream gets no more lookups. */
static void renew_stream(struct fixture *fixture, const char *token)
{
    atomic_uint *half_count = &fixture->client->server.half_count;
    unsigned count = atomic_load(half_count);
    uint64_t deadline_ns = uv_hrtime() + TIMEOUT_NS;
    write_token(fixture, token);
    while (atomic_load(half_count) == count && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    assert_int_equal(atomic_load(half_count), count + 1);
}

/* Sends a lookup that asks for the token; checks its answer and that of the earlier lookup, which
 * may come in any order. Returns the earlier lookup's number of attempts. */
static unsigned finish_both(struct fixture *fixture, uint64_t earlier, int64_t number)
{
    unsigned attempts = 0;
    assert_int_equal(client_fixture_submit(fixture->client, "who", 0, NULL, NULL), EMBAG_OK);
    for (int i = 0; i < 2; i++) {
        struct embag_completion completion = {0};
        assert_true(embag_next(fixture->client->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
        bool is_earlier = completion.id == earlier;
        assert_true(client_fixture_is_echo(&completion, is_earlier ? 4 : number));
        attempts = is_earlier ? completion.attempts : attempts;
        embag_answer_free(completion.answer);
    }
    return attempts;
}

static void answers_of_the_former_stream_still_count(void **state)
{
    struct fixture *fixture = *state;
    uint64_t earlier = begin_lookup(fixture, "later");
    renew_stream(fixture, "token-2");
    assert_int_equal(finish_both(fixture, earlier, 2), 1);
    assert_int_equal(atomic_load(&fixture->client->server.conn_count), 1);
}

static void expect_cancelled(struct fixture *fixture, uint64_t id, unsigned attempts)
{
    struct embag_completion completion = {0};
    embag_cancel(fixture->client->client, id);
    assert_true(embag_next(fixture->client->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
    assert_int_equal(completion.id, id);
    assert_int_equal(completion.error.status, EMBAG_CANCELLED);
    assert_int_equal(completion.attempts, attempts);
}

static void cancels_lookups_of_the_former_stream(void **state)
{
    struct fixture *fixture = *state;
    uint64_t earlier = begin_lookup(fixture, "silent");
    renew_stream(fixture, "token-2");
    expect_cancelled(fixture, earlier, 1);
    assert_int_equal(ask_token(fixture), 2);
}

static void sends_again_what_a_stream_before_the_former_one_has_not_answered(void **state)
{
    struct fixture *fixture = *state;
    uint64_t earlier = begin_lookup(fixture, "silent");
    renew_stream(fixture, "token-2");
    assert_int_equal(ask_token(fixture), 2);
    unsigned count = atomic_load(&fixture->client->server.call_count);
    renew_stream(fixture, "token-3");
    client_fixture_await(&fixture->client->server.call_count, count + 1);
    assert_int_equal(ask_token(fixture), 3);
    expect_cancelled(fixture, earlier, 2);
    assert_int_equal(atomic_load(&fixture->client->server.conn_count), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(renewal)
{
    const struct CMUnitTest tests[] = {
        TEST(sends_a_renewed_token_over_the_same_connection),
        TEST(keeps_the_token_if_the_new_one_cannot_be_used_and_says_so),
        TEST(says_nothing_of_files_in_other_errors),
    };
    const struct CMUnitTest stream_tests[] = {
        TEST(answers_of_the_former_stream_still_count),
        TEST(cancels_lookups_of_the_former_stream),
        TEST(sends_again_what_a_stream_before_the_former_one_has_not_answered),
    };
    client_mode = EMBAG_MODE_UNARY;
    int failed = cmocka_run_group_tests_name("unary", tests, NULL, NULL);
    client_mode = EMBAG_MODE_STREAM;
    failed += cmocka_run_group_tests_name("stream", tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("streams alone", stream_tests, NULL, NULL);
}
