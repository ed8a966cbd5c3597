#include "client/models_call.h"

#include "client/embag_admin.h"
#include "tests/lib/test_group.h"
#include "tests/unit/client/client_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The progress that was reported for a command. */
struct told {
    unsigned count;
    uint64_t done_bytes;
    uint64_t total_bytes;
};

static void on_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct told *told = context;
    *told = (struct told){told->count + 1, done_bytes, total_bytes};
}

static enum embag_status command(struct client_fixture *fixture, enum embag_version_verb verb,
    const char *model, struct told *told)
{
    struct embag_version_command command = {
        .verb = verb, .model = model, .version = 7, .on_progress = on_progress, .context = told};
    *told = (struct told){0};
    return embag_command_version(fixture->client, &command, &fixture->error);
}

static void tells_progress_and_the_outcome(void **state)
{
    static const struct {
        enum embag_version_verb verb;
        const char *path;
    } cases[] = {
        {EMBAG_VERSION_LOAD, "/embag.v1.ModelAdmin/LoadVersion"},
        {EMBAG_VERSION_UNLOAD, "/embag.v1.ModelAdmin/UnloadVersion"},
        {EMBAG_VERSION_SERVE, "/embag.v1.ModelAdmin/ServeVersion"},
    };
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct told told;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(command(fixture, cases[i].verb, "m", &told), EMBAG_OK);
        assert_int_equal(fixture->error.status, EMBAG_OK);
        assert_string_equal(fixture->error.text, cases[i].path);
        assert_int_equal(told.count, 2);
        assert_int_equal(told.done_bytes, 3);
        assert_int_equal(told.total_bytes, 4);
    }
    struct embag_version_command quiet = {.model = "m"};
    assert_int_equal(embag_command_version(fixture->client, &quiet, NULL), EMBAG_OK);
    client_fixture_close(fixture);
}

static void says_why_not(void **state)
{
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct told told;
    (void)state;
    assert_int_equal(
        command(fixture, EMBAG_VERSION_LOAD, "refuse", &told), EMBAG_FAILED_PRECONDITION);
    assert_string_equal(fixture->error.text, "not as things are");
    assert_int_equal(command(fixture, EMBAG_VERSION_LOAD, "nothing", &told), EMBAG_INTERNAL);
    assert_non_null(strstr(fixture->error.text, "no answer"));
    struct embag_version_command late = {.model = "silent", .timeout_us = 100000};
    assert_int_equal(
        embag_command_version(fixture->client, &late, &fixture->error), EMBAG_DEADLINE_EXCEEDED);
    client_fixture_close(fixture);
}

static void sends_nothing_twice(void **state)
{
    struct client_fixture *fixture = client_fixture_open((struct embag_options){.retries_max = 10});
    struct told told;
    (void)state;
    assert_int_equal(command(fixture, EMBAG_VERSION_SERVE, "hang-up", &told), EMBAG_UNAVAILABLE);
    assert_int_equal(atomic_load(&fixture->server.call_count), 1);
    client_fixture_close(fixture);
}

static void lists_versions(void **state)
{
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_model_list *list = NULL;
    (void)state;
    assert_int_equal(embag_list_versions(fixture->client, NULL, &list, &fixture->error), EMBAG_OK);
    assert_int_equal(list->count, 1);
    embag_model_list_free(list);
    assert_int_equal(
        embag_list_versions(fixture->client, "echo", &list, &fixture->error), EMBAG_OK);
    assert_string_equal(list->models[0].name, "echo");
    embag_model_list_free(list);
    client_fixture_close(fixture);
}

static void decodes_only_what_is_progress(void **state)
{
    struct eb_error error;
    (void)state;
    struct eb_models_progress *progress =
        eb_models_call_decode_progress((const uint8_t *)"", 0, &error);
    assert_non_null(progress);
    assert_false(progress->done);
    assert_string_equal(progress->text, "");
    free(progress);
    assert_null(eb_models_call_decode_progress((const uint8_t *)"\x22\x05m", 3, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
}

static void lists_settings(void **state)
{
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_setting_list *list = NULL;
    (void)state;
    assert_int_equal(embag_list_settings(fixture->client, &list, &fixture->error), EMBAG_OK);
    assert_int_equal(list->count, 2);
    assert_string_equal(list->settings[0].name, "loops");
    assert_string_equal(list->settings[0].value, "2");
    assert_int_equal(list->settings[0].origin, EMBAG_ORIGIN_FLAG);
    assert_false(list->settings[0].live);
    assert_true(list->settings[0].pending);
    assert_string_equal(list->settings[0].pending_value, "3");
    assert_int_equal(list->settings[1].origin, EMBAG_ORIGIN_FILE);
    assert_true(list->settings[1].live);
    assert_false(list->settings[1].pending);
    embag_setting_list_free(list);
    embag_setting_list_free(NULL);
    client_fixture_close(fixture);
}

static void reloads_settings(void **state)
{
    struct client_fixture *fixture = client_fixture_open((struct embag_options){0});
    struct embag_reload reload = {0};
    (void)state;
    assert_int_equal(embag_reload_settings(fixture->client, &reload, &fixture->error), EMBAG_OK);
    assert_int_equal(reload.changed, 2);
    assert_int_equal(reload.pending, 1);
    assert_int_equal(embag_reload_settings(fixture->client, NULL, NULL), EMBAG_OK);
    atomic_store(&fixture->server.reload, FAKE_SERVER_REFUSES);
    assert_int_equal(embag_reload_settings(fixture->client, &reload, &fixture->error),
        EMBAG_FAILED_PRECONDITION);
    assert_string_equal(fixture->error.text, "loops: many: not a number");
    client_fixture_close(fixture);
}

static void reloads_nothing_twice(void **state)
{
    struct client_fixture *fixture = client_fixture_open((struct embag_options){.retries_max = 10});
    (void)state;
    atomic_store(&fixture->server.reload, FAKE_SERVER_HANGS_UP);
    assert_int_equal(
        embag_reload_settings(fixture->client, NULL, &fixture->error), EMBAG_UNAVAILABLE);
    assert_int_equal(atomic_load(&fixture->server.call_count), 1);
    client_fixture_close(fixture);
}

EB_TEST_GROUP(admin_call)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_progress_and_the_outcome),
        cmocka_unit_test(says_why_not),
        cmocka_unit_test(sends_nothing_twice),
        cmocka_unit_test(lists_versions),
        cmocka_unit_test(decodes_only_what_is_progress),
        cmocka_unit_test(lists_settings),
        cmocka_unit_test(reloads_settings),
        cmocka_unit_test(reloads_nothing_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
