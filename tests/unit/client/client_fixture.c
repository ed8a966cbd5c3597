#include "tests/unit/client/client_fixture.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum embag_mode client_mode;

struct client_fixture *client_fixture_open_of(
    enum fake_server_mode server_mode, struct embag_options options)
{
    struct client_fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    options.mode = client_mode;
    options.timeout_us = CLIENT_FIXTURE_LONG_US;
    assert_true(fake_server_start(&fixture->server, server_mode, NULL));
    assert_int_equal(
        embag_open(fixture->server.address, &options, &fixture->client, &fixture->error), EMBAG_OK);
    return fixture;
}

struct client_fixture *client_fixture_open(struct embag_options options)
{
    return client_fixture_open_of(FAKE_SERVER_SPEAKS_GRPC, options);
}

void client_fixture_close(struct client_fixture *fixture)
{
    embag_close(fixture->client);
    assert_true(fake_server_stop(&fixture->server));
    free(fixture);
}

enum embag_status client_fixture_submit(struct client_fixture *fixture, const char *model,
    int64_t index, const struct embag_call *how, uint64_t *id)
{
    struct embag_query query = {.table = "t", .indices = {&index, 1, 8}, .num_bags = 1};
    struct embag_request request = {.model = model, .queries = &query, .query_count = 1};
    return embag_submit(fixture->client, &request, how, id, NULL);
}

bool client_fixture_is_echo(const struct embag_completion *completion, int64_t index)
{
    return completion->error.status == EMBAG_OK && completion->answer &&
           completion->answer->result_count == 1 &&
           memcmp(completion->answer->results[0].values, &index, sizeof index) == 0;
}

struct embag_completion client_fixture_run(struct client_fixture *fixture, const char *model)
{
    struct embag_completion completion = {0};
    uint64_t id = 0;
    assert_int_equal(client_fixture_submit(fixture, model, 5, NULL, &id), EMBAG_OK);
    assert_true(embag_next(fixture->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
    assert_int_equal(completion.id, id);
    assert_int_equal(!!completion.answer, completion.error.status == EMBAG_OK);
    embag_answer_free(completion.answer);
    return completion;
}

void client_fixture_await(atomic_uint *counter, unsigned value)
{
    uint64_t deadline_ns = uv_hrtime() + (uint64_t)CLIENT_FIXTURE_PATIENCE_US * 1000;
    while (atomic_load(counter) < value && uv_hrtime() < deadline_ns) {
        assert_int_equal(sched_yield(), 0);
    }
    assert_true(atomic_load(counter) >= value);
}
