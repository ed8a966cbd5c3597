#include "server/rpc/admin_service.h"

#include "proto/codec_admin.h"
#include "server/rpc/backpressure.h"
#include "server/rpc/settings_request.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define METHOD(name) "/embag.v1.ModelAdmin/" name
#define ARENA_BYTES ((size_t)1 << 20)

/* A service whose commands the test carries out, and its caller. */
struct fixture {
    struct service_host host;
    struct wire_peer peer;
    size_t count; /* commands received so far */
    struct eb_model_command *commands[EB_BACKPRESSURE_COMMANDS_MAX + 1];
    struct eb_settings_request *settings; /* the last request about settings */
};

/* On the heap, because the service's threads may outlive a failed test. */
static struct fixture *fixture;

/* A call, and the last message of its answer. */
struct command_call {
    struct wire_call wire;
    uint64_t done_bytes;
    uint64_t total_bytes;
    bool done;
    char text[64];
};

static void on_ask(void *context, struct eb_model_command *command)
{
    (void)context;
    fixture->commands[fixture->count++] = command;
}

static void on_ask_settings(void *context, struct eb_settings_request *request)
{
    (void)context;
    fixture->settings = request;
}

static int set_up(void **state)
{
    (void)state;
    fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    service_host_init(&fixture->host);
    fixture->host.facts.is_admin_on_data_port = true;
    fixture->host.endpoint.ask = on_ask;
    fixture->host.endpoint.ask_settings = on_ask_settings;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wire_peer_abandon(&fixture->peer);
    bool is_closed = loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS);
    service_host_stop(&fixture->host);
    free(fixture);
    fixture = NULL;
    assert_true(is_closed);
    return 0;
}

static void start_admin(void)
{
    service_host_start(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
}

static void on_progress_message(struct wire_call *wire, const uint8_t *bytes, size_t size)
{
    struct command_call *call = EB_CONTAINER_OF(wire, struct command_call, wire);
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    const struct eb_wire_progress *progress =
        eb_version_progress_decode(&arena, bytes, size, &error);
    if (progress) {
        call->done_bytes = progress->done_bytes;
        call->total_bytes = progress->total_bytes;
        call->done = progress->done;
        snprintf(call->text, sizeof call->text, "%s", progress->text);
    }
    eb_arena_deinit(&arena);
}

static void ask_command(
    struct command_call *call, const char *method, const char *model, uint64_t version)
{
    struct eb_wire_model_query request = {model, version};
    uint8_t bytes[512];
    size_t size = eb_version_request_bytes(&request);
    assert_true(size <= sizeof bytes);
    eb_version_request_encode(&request, bytes);
    *call = (struct command_call){.text = ""};
    wire_peer_call(&fixture->peer, &call->wire, method);
    call->wire.on_message = on_progress_message;
    wire_peer_write_bytes(&call->wire, bytes, size, true);
}

/* Lets commands arrive until there are `count`. */
static void wait_for_commands(size_t count)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (fixture->count < count && uv_hrtime() < deadline_ns) {
        wire_peer_send(&fixture->peer);
        uv_run(&fixture->host.loops.uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_int_equal(fixture->count, count);
}

static void expect_command_end(struct command_call *call, enum eb_status status, const char *text)
{
    assert_true(wire_peer_run(&fixture->peer, &call->wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_string_equal(eb_status_name((int)call->wire.error.status), eb_status_name((int)status));
    assert_non_null(strstr(call->wire.error.text, text));
}

static void end_command(size_t number, enum eb_model_outcome outcome, const char *text)
{
    fixture->commands[number]->on_done(fixture->commands[number], outcome, text);
}

static void passes_commands_on_and_says_what_became_of_them(void **state)
{
    static const struct {
        const char *method;
        enum eb_model_verb verb;
        enum eb_model_outcome outcome;
        enum eb_status status;
    } cases[] = {
        {METHOD("LoadVersion"), EB_MODEL_LOAD, EB_MODEL_DONE, EB_STATUS_OK},
        {METHOD("UnloadVersion"), EB_MODEL_UNLOAD, EB_MODEL_NOT_FOUND, EB_STATUS_NOT_FOUND},
        {METHOD("UnloadVersion"), EB_MODEL_UNLOAD, EB_MODEL_REFUSED, EB_STATUS_FAILED_PRECONDITION},
        {METHOD("ServeVersion"), EB_MODEL_SERVE, EB_MODEL_FAILED, EB_STATUS_FAILED_PRECONDITION},
        {METHOD("ServeVersion"), EB_MODEL_SERVE, EB_MODEL_SHORT, EB_STATUS_RESOURCE_EXHAUSTED},
        {METHOD("LoadVersion"), EB_MODEL_LOAD, EB_MODEL_CANCELLED, EB_STATUS_UNAVAILABLE},
    };
    (void)state;
    start_admin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool is_good = cases[i].status == EB_STATUS_OK;
        struct command_call call;
        ask_command(&call, cases[i].method, "dlrm", 7 + i);
        wait_for_commands(i + 1);
        assert_int_equal(fixture->commands[i]->verb, cases[i].verb);
        assert_string_equal(fixture->commands[i]->model, "dlrm");
        assert_int_equal(fixture->commands[i]->version, 7 + i);
        end_command(i, cases[i].outcome, "so it is");
        expect_command_end(&call, cases[i].status, is_good ? "" : "so it is");
        assert_int_equal(call.done, is_good);
        assert_string_equal(call.text, is_good ? "so it is" : "");
    }
}

static void tells_progress_until_the_end(void **state)
{
    struct command_call call;
    (void)state;
    start_admin();
    ask_command(&call, METHOD("LoadVersion"), "m", 2);
    wait_for_commands(1);
    fixture->commands[0]->on_progress(fixture->commands[0], 3, UINT64_C(1) << 40);
    assert_true(wire_peer_run(&fixture->peer, &call.wire.has_message, SERVICE_HOST_TIMEOUT_MS));
    assert_int_equal(call.done_bytes, 3);
    assert_int_equal(call.total_bytes, UINT64_C(1) << 40);
    assert_false(call.done);
    fixture->commands[0]->on_progress(fixture->commands[0], 4, UINT64_C(1) << 40);
    end_command(0, EB_MODEL_DONE, "");
    expect_command_end(&call, EB_STATUS_OK, "");
    assert_int_equal(call.wire.message_count, 3);
    assert_true(call.done);
}

/* The loop does not finish draining before the command is done. */
static void is_done_with_a_command_when_that_is_whatever_the_caller_does(void **state)
{
    struct command_call call;
    (void)state;
    start_admin();
    ask_command(&call, METHOD("LoadVersion"), "m", 2);
    wait_for_commands(1);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    service_host_drain(&fixture->host);
    assert_false(service_host_is_drained(&fixture->host));
    fixture->commands[0]->on_progress(fixture->commands[0], 1, 2);
    end_command(0, EB_MODEL_DONE, "");
    assert_true(loop_host_wait_drained(&fixture->host.loops, SERVICE_HOST_TIMEOUT_MS));
}

static void leaves_a_command_whose_deadline_is_over_to_itself(void **state)
{
    struct eb_wire_model_query request = {"m", 2};
    struct command_call call = {.text = ""};
    uint8_t bytes[16];
    (void)state;
    start_admin();
    eb_version_request_encode(&request, bytes);
    call.wire.call =
        eb_grpc_client_start(fixture->peer.client, METHOD("LoadVersion"), 500000, &call.wire);
    wire_peer_write_bytes(&call.wire, bytes, eb_version_request_bytes(&request), true);
    wait_for_commands(1);
    expect_command_end(&call, EB_STATUS_DEADLINE_EXCEEDED, "its command continues");
    end_command(0, EB_MODEL_DONE, "");
}

static void takes_as_many_as_may_wait(void **state)
{
    static struct command_call calls[EB_BACKPRESSURE_COMMANDS_MAX];
    struct command_call call;
    (void)state;
    fixture->host.loops.options.limits.conn.session.streams_max = EB_BACKPRESSURE_COMMANDS_MAX + 1;
    start_admin();
    for (size_t i = 0; i < EB_BACKPRESSURE_COMMANDS_MAX; i++) {
        ask_command(&calls[i], METHOD("ServeVersion"), "m", i);
    }
    wait_for_commands(EB_BACKPRESSURE_COMMANDS_MAX);
    ask_command(&call, METHOD("ServeVersion"), "m", 1);
    expect_command_end(&call, EB_STATUS_RESOURCE_EXHAUSTED, "32 commands are running already");
    end_command(0, EB_MODEL_DONE, "");
    expect_command_end(&calls[0], EB_STATUS_OK, "");
    ask_command(&call, METHOD("ServeVersion"), "m", 1);
    wait_for_commands(EB_BACKPRESSURE_COMMANDS_MAX + 1);
    for (size_t i = 1; i <= EB_BACKPRESSURE_COMMANDS_MAX; i++) {
        end_command(i, EB_MODEL_CANCELLED, "");
    }
    expect_command_end(&call, EB_STATUS_UNAVAILABLE, "");
}

static void refuses_what_names_nothing(void **state)
{
    struct command_call call;
    (void)state;
    start_admin();
    ask_command(&call, METHOD("LoadVersion"), "", 1);
    expect_command_end(&call, EB_STATUS_INVALID_ARGUMENT, "model: no model is named");
    ask_command(&call, METHOD("UnloadVersion"), "m", 0);
    expect_command_end(&call, EB_STATUS_INVALID_ARGUMENT, "version: no version is named");
    wire_peer_call(&fixture->peer, &call.wire, METHOD("LoadVersion"));
    wire_peer_write_bytes(&call.wire, "\x0a\x05m", 3, true);
    expect_command_end(&call, EB_STATUS_INTERNAL, "");
    assert_int_equal(fixture->count, 0);
}

static void refuses_all_of_it_where_it_is_not_allowed(void **state)
{
    static const char *const methods[] = {METHOD("LoadVersion"), METHOD("UnloadVersion"),
        METHOD("ServeVersion"), METHOD("ListVersions"), METHOD("ListSettings"),
        METHOD("ReloadSettings")};
    struct command_call call;
    (void)state;
    fixture->host.facts.is_admin_on_data_port = false;
    start_admin();
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        ask_command(&call, methods[i], "m", 1);
        expect_command_end(&call, EB_STATUS_PERMISSION_DENIED, "admin_listen, which is not set");
    }
    service_peer_settle(&fixture->peer);
    uv_run(&fixture->host.loops.uv, UV_RUN_NOWAIT);
    assert_int_equal(fixture->count, 0);
    assert_null(fixture->settings);
}

/* ---- settings ---- */

/* The answer to a request about settings. */
struct settings_answer {
    struct wire_call wire;
    uint8_t bytes[256];
    size_t size;
};

static void on_settings_message(struct wire_call *wire, const uint8_t *bytes, size_t size)
{
    struct settings_answer *answer = EB_CONTAINER_OF(wire, struct settings_answer, wire);
    assert_true(size <= sizeof answer->bytes);
    memcpy(answer->bytes, bytes, size);
    answer->size = size;
}

static void ask_for_settings(struct settings_answer *answer, const char *method)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    *answer = (struct settings_answer){.size = 0};
    fixture->settings = NULL;
    wire_peer_call(&fixture->peer, &answer->wire, method);
    answer->wire.on_message = on_settings_message;
    wire_peer_write_bytes(&answer->wire, "", 0, true);
    while (!fixture->settings && uv_hrtime() < deadline_ns) {
        wire_peer_send(&fixture->peer);
        uv_run(&fixture->host.loops.uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_non_null(fixture->settings);
}

static void expect_settings_end(struct settings_answer *answer, enum eb_status status)
{
    assert_true(wire_peer_run(&fixture->peer, &answer->wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_string_equal(
        eb_status_name((int)answer->wire.error.status), eb_status_name((int)status));
    assert_int_equal(answer->wire.message_count, status == EB_STATUS_OK);
}

static void reloads_settings_and_says_what_became_of_it(void **state)
{
    struct settings_answer answer;
    (void)state;
    start_admin();
    ask_for_settings(&answer, METHOD("ReloadSettings"));
    assert_int_equal(fixture->settings->verb, EB_SETTINGS_RELOAD);
    fixture->settings->error.status = EB_STATUS_OK;
    fixture->settings->reload = (struct eb_wire_reload){.changed = 3, .pending = 0};
    fixture->settings->on_done(fixture->settings);
    expect_settings_end(&answer, EB_STATUS_OK);
    assert_int_equal(answer.size, 2);
    assert_memory_equal(answer.bytes, "\x08\x03", 2);

    ask_for_settings(&answer, METHOD("ReloadSettings"));
    eb_error_set(&fixture->settings->error, EB_STATUS_FAILED_PRECONDITION, "loops: many");
    fixture->settings->on_done(fixture->settings);
    expect_settings_end(&answer, EB_STATUS_FAILED_PRECONDITION);
    assert_string_equal(answer.wire.error.text, "loops: many");
}

static void lists_settings(void **state)
{
    static const struct eb_wire_setting settings[] = {{"loops", "2", 3, false, true, "4"}};
    struct settings_answer answer;
    (void)state;
    start_admin();
    ask_for_settings(&answer, METHOD("ListSettings"));
    assert_int_equal(fixture->settings->verb, EB_SETTINGS_LIST);
    fixture->settings->error.status = EB_STATUS_OK;
    fixture->settings->list = (struct eb_wire_setting_list){1, settings};
    size_t size = eb_setting_list_bytes(&fixture->settings->list);
    fixture->settings->on_done(fixture->settings);
    expect_settings_end(&answer, EB_STATUS_OK);
    assert_int_equal(answer.size, size);
}

/* A request that still lasts holds the loop, whether or not its caller waits, and counts as a
 * command. */
static void is_done_with_settings_when_they_are_whatever_the_caller_does(void **state)
{
    static struct command_call calls[EB_BACKPRESSURE_COMMANDS_MAX];
    struct settings_answer answer;
    (void)state;
    fixture->host.loops.options.limits.conn.session.streams_max = EB_BACKPRESSURE_COMMANDS_MAX + 1;
    start_admin();
    ask_for_settings(&answer, METHOD("ReloadSettings"));
    for (size_t i = 0; i < EB_BACKPRESSURE_COMMANDS_MAX; i++) {
        ask_command(&calls[i], METHOD("ServeVersion"), "m", i);
    }
    wait_for_commands(EB_BACKPRESSURE_COMMANDS_MAX - 1);
    expect_command_end(&calls[EB_BACKPRESSURE_COMMANDS_MAX - 1], EB_STATUS_RESOURCE_EXHAUSTED,
        "32 commands are running already");
    for (size_t i = 0; i < EB_BACKPRESSURE_COMMANDS_MAX - 1; i++) {
        end_command(i, EB_MODEL_DONE, "");
        expect_command_end(&calls[i], EB_STATUS_OK, "");
    }
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    service_host_drain(&fixture->host);
    assert_false(service_host_is_drained(&fixture->host));
    fixture->settings->error.status = EB_STATUS_OK;
    fixture->settings->on_done(fixture->settings);
    assert_true(loop_host_wait_drained(&fixture->host.loops, SERVICE_HOST_TIMEOUT_MS));
}

static void refuses_requests_about_settings_that_are_none(void **state)
{
    struct command_call call;
    (void)state;
    start_admin();
    wire_peer_call(&fixture->peer, &call.wire, METHOD("ListSettings"));
    wire_peer_write_bytes(&call.wire, "\x0a\x05m", 3, true);
    expect_command_end(&call, EB_STATUS_INTERNAL, "");
    assert_null(fixture->settings);
}

EB_TEST_GROUP(admin_service)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(passes_commands_on_and_says_what_became_of_them),
        FIXTURE(tells_progress_until_the_end),
        FIXTURE(is_done_with_a_command_when_that_is_whatever_the_caller_does),
        FIXTURE(leaves_a_command_whose_deadline_is_over_to_itself),
        FIXTURE(takes_as_many_as_may_wait),
        FIXTURE(refuses_what_names_nothing),
        FIXTURE(refuses_all_of_it_where_it_is_not_allowed),
        FIXTURE(reloads_settings_and_says_what_became_of_it),
        FIXTURE(lists_settings),
        FIXTURE(is_done_with_settings_when_they_are_whatever_the_caller_does),
        FIXTURE(refuses_requests_about_settings_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
