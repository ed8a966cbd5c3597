#include "server/config_live.h"

#include "tests/lib/capture.h"
#include "tests/lib/test_group.h"
#include "tests/unit/server/config_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SAID_BYTES 65536

static struct eb_config_live live;
static char said[SAID_BYTES]; /* the log of the last reload */

/* Starts with the file, the flags and the variables. */
static void start_live(const char *yaml, const char *flags, const char *variables)
{
    static char all[4096];
    snprintf(all, sizeof all, "--model-repository|/m%s%s", *flags ? "|" : "", flags);
    config_fixture_write_yaml(yaml);
    config_fixture_expect_run(config_fixture_with_file(all), variables);
    eb_config_live_init(&live, &fixture.config);
}

static int tear_down(void **state)
{
    eb_config_live_deinit(&live);
    eb_log_set_level(EB_LOG_INFO);
    eb_log_set_format(EB_LOG_LOGFMT);
    return config_fixture_remove_file(state);
}

static const struct eb_config_setting *find(const char *name)
{
    const struct eb_config_setting *setting =
        eb_config_setting_find(EB_CONFIG_FILE, name, strlen(name));
    assert_non_null(setting);
    return setting;
}

/* Reloads with this file. Expects `changed` settings to change and `pending` to wait. */
static void expect_reload(const char *yaml, size_t changed, size_t pending)
{
    struct eb_config_change change;
    struct eb_failure failure;
    struct eb_capture capture;
    config_fixture_write_yaml(yaml);
    if (!eb_config_live_read(&live, &change, &failure)) {
        fail_msg("%s: %s", yaml, failure.text);
    }
    assert_int_equal(change.changed_count, changed);
    assert_int_equal(change.pending_count, pending);
    eb_capture_start(&capture, STDERR_FILENO);
    eb_config_live_apply(&live, &change);
    eb_capture_stop(&capture, said, sizeof said);
    eb_config_change_deinit(&change);
    assert_int_equal(eb_config_live_count_pending(&live), pending);
}

static void expect_no_reload(const char *yaml, const char *text)
{
    struct eb_config_live before = live;
    struct eb_config_change change;
    struct eb_failure failure = {.text = ""};
    struct eb_capture capture;
    config_fixture_write_yaml(yaml);
    eb_capture_start(&capture, STDERR_FILENO);
    bool is_good = eb_config_live_read(&live, &change, &failure);
    eb_capture_stop(&capture, said, sizeof said);
    eb_config_change_deinit(&change);
    assert_false(is_good);
    assert_string_equal(said, "");
    if (!strstr(failure.text, text)) {
        fail_msg("wanted '%s' in: %s", text, failure.text);
    }
    assert_memory_equal(&before, &live, sizeof live);
}

static void expect_logged(const char *text)
{
    if (!strstr(said, text)) {
        fail_msg("wanted '%s' in: %s", text, said);
    }
}

static void changes_at_once_what_may_and_logs_old_and_new(void **state)
{
    (void)state;
    start_live("queries_max: 5\n", "", "");
    expect_reload("queries_max: 6\naccess_log: all\nlog_level: warn\nload_jitter_s: 3\n", 4, 0);
    assert_int_equal(live.running.limits.queries_max, 6);
    assert_int_equal(live.running.access_log, EB_ACCESS_LOG_ALL);
    assert_int_equal(live.running.log_level, EB_LOG_WARN);
    assert_int_equal(live.running.limits.load_jitter_s, 3);
    expect_logged(" level=info event=setting_changed name=queries_max old=5 new=6\n");
    expect_logged(" event=setting_changed name=log_level old=info new=warn\n");
    expect_logged(" event=settings_reloaded changed=4 pending=0\n");
    expect_reload("", 4, 0);
    assert_int_equal(live.running.limits.queries_max, 4096);
    assert_int_equal(live.running.log_level, EB_LOG_INFO);
    expect_logged(" event=setting_changed name=log_level old=warn new=info\n");
    expect_reload("", 0, 0);
    assert_null(strstr(said, "setting_changed"));
}

static void tells_once_what_needs_a_restart(void **state)
{
    (void)state;
    start_live("streams_max: 7\nlisten: [\"127.0.0.1:1\"]\n", "", "");
    static const char yaml[] = "streams_max: 8\nlisten: [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n"
                               "tls_min_version: \"1.2\"\nresident_dir: /r\n";
    expect_reload(yaml, 0, 3);
    expect_logged(" level=warn event=setting_needs_restart name=streams_max value=7 pending=8\n");
    expect_logged(" event=setting_needs_restart name=listen value=127.0.0.1:1 "
                  "pending=127.0.0.1:1,127.0.0.1:2\n");
    expect_logged(" event=setting_needs_restart name=resident_dir value=\"\" pending=/r\n");
    assert_int_equal(live.running.limits.streams_max, 7);
    assert_null(live.running.resident_dir);
    assert_true(eb_config_live_is_pending(&live, find("streams_max")));
    assert_false(eb_config_live_is_pending(&live, find("tls_min_version")));
    expect_reload(yaml, 0, 3);
    assert_null(strstr(said, "needs_restart"));
    expect_reload("streams_max: 9\nlisten: [\"127.0.0.1:1\"]\n", 0, 1);
    expect_logged(" name=streams_max value=7 pending=9\n");
    assert_null(strstr(said, "listen"));
    expect_reload("streams_max: 7\nlisten: [\"127.0.0.1:1\"]\n", 0, 0);
    assert_null(strstr(said, "needs_restart"));
}

static void flags_and_variables_still_override_the_file(void **state)
{
    (void)state;
    start_live("queries_max: 5\n", "--queries-max|9|--loops|1", "EMBAG_BAGS_MAX=8");
    expect_reload("queries_max: 6\nbags_max: 7\nloops: 2\nindices_max: 5\n", 1, 0);
    assert_int_equal(live.running.limits.queries_max, 9);
    assert_int_equal(live.running.limits.bags_max, 8);
    assert_int_equal(live.running.limits.indices_max, 5);
    /* Values that are overridden are checked too. */
    expect_no_reload("queries_max: 0\n", "queries_max: 0: not in 1..1048576");
}

static void knows_where_a_value_comes_from(void **state)
{
    (void)state;
    start_live("", "", "");
    size_t index = (size_t)(find("queries_max") - eb_config_settings);
    assert_int_equal(live.running.sources[index], EB_CONFIG_DEFAULT);
    expect_reload("queries_max: 4096\n", 0, 0);
    assert_int_equal(live.running.sources[index], EB_CONFIG_FILE);
    expect_reload("", 0, 0);
    assert_int_equal(live.running.sources[index], EB_CONFIG_DEFAULT);
}

static void applies_nothing_if_anything_is_wrong(void **state)
{
    (void)state;
    start_live("queries_max: 5\n", "", "");
    expect_no_reload("queries_max: 6\nbags_max: many\n", "bags_max: many: not a whole number");
    expect_no_reload("queries_max: 6\nwish: 1\n", "wish");
    expect_no_reload("queries_max: 6\ntls_cert: /c\n", "--tls-cert needs --tls-key");
    expect_no_reload("queries_max: 6\n---\nqueries_max: 7\n", fixture.file_path);
    assert_int_equal(unlink(fixture.file_path), 0);
    struct eb_config_change change;
    struct eb_failure failure;
    assert_false(eb_config_live_read(&live, &change, &failure));
    assert_non_null(strstr(failure.text, "cannot be read: No such file"));
    eb_config_change_deinit(&change);
    expect_reload("queries_max: 6\n", 1, 0);
}

/* The new file is valid by itself, but until the restart the answers of all loops would not fit. */
static void refuses_what_does_not_go_with_what_is_pending(void **state)
{
    (void)state;
    start_live("answer_memory_bytes: 128MiB\n", "--loops|2", "");
    expect_no_reload("answer_memory_bytes: 256MiB\nresponse_bytes_max: 128MiB\n",
        "--answer-memory-bytes 134217728 is too small");
    expect_reload("answer_memory_bytes: 256MiB\nresponse_bytes_max: 64MiB\n", 0, 1);
}

/* A number that is chosen for the machine may differ the next time, without a change of the
 * settings. */
static void a_number_chosen_for_the_machine_is_not_pending(void **state)
{
    (void)state;
    start_live("threads: 3\n", "", "");
    live.running.loops = 15;
    expect_reload("threads: 3\n", 0, 0);
    live.running.threads = 1000;
    expect_reload("", 0, 1);
    expect_logged(" name=threads value=1000 pending=");
}

static void changes_the_format_of_the_log(void **state)
{
    (void)state;
    start_live("", "", "");
    expect_reload("log_format: json\n", 1, 0);
    expect_logged(" event=setting_changed name=log_format old=logfmt new=json\n");
    expect_reload("log_format: logfmt\n", 1, 0);
    expect_logged("\"event\":\"setting_changed\",\"name\":\"log_format\"");
}

/* Texts in force are borrowed from the start, so no setting with a text may change at once. */
static void only_numbers_and_choices_change_at_once(void **state)
{
    (void)state;
    size_t count = 0;
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        const struct eb_config_setting *setting = &eb_config_settings[i];
        if (setting->effect == EB_CONFIG_LIVE) {
            count++;
            assert_true(setting->kind == EB_CONFIG_LEVEL || setting->kind == EB_CONFIG_CHOICE ||
                        setting->kind == EB_CONFIG_LIMIT);
        }
    }
    assert_true(count > 30);
}

EB_TEST_GROUP(config_live)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, config_fixture_make_file, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(changes_at_once_what_may_and_logs_old_and_new),
        FIXTURE(tells_once_what_needs_a_restart),
        FIXTURE(flags_and_variables_still_override_the_file),
        FIXTURE(knows_where_a_value_comes_from),
        FIXTURE(applies_nothing_if_anything_is_wrong),
        FIXTURE(refuses_what_does_not_go_with_what_is_pending),
        FIXTURE(a_number_chosen_for_the_machine_is_not_pending),
        FIXTURE(changes_the_format_of_the_log),
        FIXTURE(only_numbers_and_choices_change_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
