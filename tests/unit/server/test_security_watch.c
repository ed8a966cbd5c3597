#include "server/security_watch.h"

#include "server/net/tls.h"
#include "server/rpc/auth.h"
#include "tests/lib/capture.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/lib/tls_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 60000
#define NS_PER_MS UINT64_C(1000000)
#define LOG_BYTES 65536
#define TOKEN "0123456789abcdef"

struct fixture {
    struct eb_scratch scratch;
    struct tls_authority authority;
    char certificate[EB_SCRATCH_PATH_BYTES];
    char key[EB_SCRATCH_PATH_BYTES];
    char auth_file[EB_SCRATCH_PATH_BYTES];
    struct eb_config config;
    struct eb_security *security;
    uv_loop_t uv;
    struct eb_security_watch watch;
    unsigned good_count;
    unsigned bad_count;
    struct eb_capture capture;
    char log[LOG_BYTES];
};

static bool has_no_more_watches; /* the system reports no changes */

int __real_uv_fs_event_start(
    uv_fs_event_t *handle, uv_fs_event_cb on_event, const char *path, unsigned flags);
int __wrap_uv_fs_event_start(
    uv_fs_event_t *handle, uv_fs_event_cb on_event, const char *path, unsigned flags);

int __wrap_uv_fs_event_start(
    uv_fs_event_t *handle, uv_fs_event_cb on_event, const char *path, unsigned flags)
{
    return has_no_more_watches ? UV_ENOSPC
                               : __real_uv_fs_event_start(handle, on_event, path, flags);
}

static void on_reloaded(void *context, bool is_good)
{
    struct fixture *fixture = context;
    fixture->good_count += is_good;
    fixture->bad_count += !is_good;
}

static void move_into_place(const struct fixture *fixture, const char *from, const char *to)
{
    char paths[2][EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, from, paths[0]);
    eb_scratch_path(&fixture->scratch, to, paths[1]);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}

static void write_auth(const struct fixture *fixture, const char *name, const char *token_file)
{
    char yaml[256];
    snprintf(yaml, sizeof yaml, "principals:\n  - name: %s\n    token_file: %s\nend: true\n", name,
        token_file);
    eb_scratch_write_text(&fixture->scratch, "next.yaml", yaml);
    move_into_place(fixture, "next.yaml", "auth.yaml");
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    *state = fixture;
    eb_scratch_init(&fixture->scratch);
    tls_authority_init(&fixture->authority);
    tls_authority_issue_for(&fixture->authority, &fixture->scratch, "server", -1, 100);
    eb_scratch_path(&fixture->scratch, "server.pem", fixture->certificate);
    eb_scratch_path(&fixture->scratch, "server.key", fixture->key);
    eb_scratch_path(&fixture->scratch, "auth.yaml", fixture->auth_file);
    eb_scratch_write_text(&fixture->scratch, "token", TOKEN "-1");
    write_auth(fixture, "first", "token");
    return uv_loop_init(&fixture->uv);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    has_no_more_watches = false;
    eb_faults_disarm();
    eb_security_watch_stop(&fixture->watch);
    (void)uv_run(&fixture->uv, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&fixture->uv);
    eb_security_close(fixture->security);
    tls_authority_deinit(&fixture->authority);
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return rc;
}

/* Reads the files that the config names, with the log captured. */
static void read_files(struct fixture *fixture)
{
    eb_capture_start(&fixture->capture, STDERR_FILENO);
    fixture->security = eb_security_open(&fixture->config);
    assert_non_null(fixture->security);
}

/* Watches the files that were read. */
static int watch(struct fixture *fixture, uint64_t poll_ms)
{
    struct eb_security_watch_options options = {.security = fixture->security,
        .poll_ms = poll_ms,
        .on_reloaded = on_reloaded,
        .context = fixture};
    return eb_security_watch_start(&fixture->watch, &fixture->uv, &options);
}

static void start(struct fixture *fixture)
{
    read_files(fixture);
    assert_int_equal(watch(fixture, 0), 0);
}

static void start_with_certificate(struct fixture *fixture)
{
    fixture->config.tls_cert = fixture->certificate;
    fixture->config.tls_key = fixture->key;
    start(fixture);
}

static void start_with_auth(struct fixture *fixture)
{
    fixture->config.auth_file = fixture->auth_file;
    start(fixture);
}

static void await_reloads(struct fixture *fixture, unsigned good_count, unsigned bad_count)
{
    uint64_t deadline_ns = uv_hrtime() + NS_PER_MS * TIMEOUT_MS;
    while ((fixture->good_count < good_count || fixture->bad_count < bad_count) &&
           uv_hrtime() < deadline_ns) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_int_equal(fixture->good_count, good_count);
    assert_int_equal(fixture->bad_count, bad_count);
}

/* Runs the loop until files were found not to be valid, and will be tried again. */
static void await_retries(struct fixture *fixture, enum eb_security_kind kind)
{
    uint64_t deadline_ns = uv_hrtime() + NS_PER_MS * TIMEOUT_MS;
    const uv_handle_t *retry = (const uv_handle_t *)&fixture->watch.watched[kind].retry;
    while (!uv_is_active(retry) && uv_hrtime() < deadline_ns) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_true(uv_is_active(retry));
}

/* Ends the capture. Returns the log. */
static const char *end_log(struct fixture *fixture)
{
    eb_capture_stop(&fixture->capture, fixture->log, sizeof fixture->log);
    return fixture->log;
}

static const struct eb_principal *find_caller(const struct fixture *fixture, const char *token)
{
    struct eb_secret_digest digest;
    eb_secret_digest((const uint8_t *)token, strlen(token), &digest);
    return eb_auth_find_token(eb_security_auth(fixture->security), &digest);
}

/* ---- certificates ---- */

static void takes_a_renewed_certificate(void **state)
{
    struct fixture *fixture = *state;
    start_with_certificate(fixture);
    tls_authority_issue_for(&fixture->authority, &fixture->scratch, "server", -1, 200);
    await_reloads(fixture, 1, 0);
    const char *log = end_log(fixture);
    eb_scratch_expect(log, "event=reloaded tls=1 auth=0");
    assert_true(eb_tls_days_left(eb_security_tls(fixture->security)) > 150);
}

static void takes_a_pair_whose_halves_come_one_after_the_other(void **state)
{
    struct fixture *fixture = *state;
    start_with_certificate(fixture);
    tls_authority_issue_for(&fixture->authority, &fixture->scratch, "next", -1, 200);
    move_into_place(fixture, "next.pem", "server.pem");
    await_retries(fixture, EB_SECURITY_TLS);
    assert_true(eb_tls_days_left(eb_security_tls(fixture->security)) < 150);
    move_into_place(fixture, "next.key", "server.key");
    await_reloads(fixture, 1, 0);
    const char *log = end_log(fixture);
    eb_scratch_expect(log, "event=reload_delayed what=tls_cert ");
    assert_null(strstr(log, "reload_failed"));
    assert_true(eb_tls_days_left(eb_security_tls(fixture->security)) > 150);
}

static void tells_of_a_pair_that_does_not_fit_for_long(void **state)
{
    struct fixture *fixture = *state;
    start_with_certificate(fixture);
    tls_authority_issue_for(&fixture->authority, &fixture->scratch, "next", -1, 200);
    uint64_t begun_ms = uv_now(&fixture->uv);
    move_into_place(fixture, "next.pem", "server.pem");
    await_retries(fixture, EB_SECURITY_TLS);
    uint64_t *patience_ms = &fixture->watch.watched[EB_SECURITY_TLS].patience_ms;
    assert_true(*patience_ms >= begun_ms + EB_SECURITY_PATIENCE_MS);
    assert_true(*patience_ms <= uv_now(&fixture->uv) + EB_SECURITY_PATIENCE_MS);
    *patience_ms = 0; /* As if this time had passed. */
    await_reloads(fixture, 0, 1);
    assert_true(eb_tls_days_left(eb_security_tls(fixture->security)) < 150);
    move_into_place(fixture, "next.key", "server.key");
    await_reloads(fixture, 1, 1);
    static const char failed[] = "event=reload_failed what=tls_cert ";
    const char *first = strstr(end_log(fixture), failed);
    assert_non_null(first);
    assert_null(strstr(first + strlen(failed), failed));
    assert_true(eb_tls_days_left(eb_security_tls(fixture->security)) > 150);
}

static void stops_trying_when_told_to_read_again(void **state)
{
    struct fixture *fixture = *state;
    start_with_certificate(fixture);
    tls_authority_issue_for(&fixture->authority, &fixture->scratch, "next", -1, 200);
    move_into_place(fixture, "next.pem", "server.pem");
    await_retries(fixture, EB_SECURITY_TLS);
    assert_false(eb_security_reload(fixture->security, NULL, 0));
    eb_security_watch_renew(&fixture->watch);
    assert_false(uv_is_active((uv_handle_t *)&fixture->watch.watched[EB_SECURITY_TLS].retry));
    move_into_place(fixture, "next.key", "server.key");
    await_reloads(fixture, 1, 0);
    (void)end_log(fixture);
}

/* ---- callers ---- */

static void takes_new_callers_and_refuses_those_revoked(void **state)
{
    struct fixture *fixture = *state;
    start_with_auth(fixture);
    assert_non_null(find_caller(fixture, TOKEN "-1"));
    eb_scratch_write_text(&fixture->scratch, "token2", TOKEN "-2");
    write_auth(fixture, "second", "token2");
    await_reloads(fixture, 1, 0);
    assert_null(find_caller(fixture, TOKEN "-1"));
    assert_non_null(find_caller(fixture, TOKEN "-2"));
    eb_scratch_expect(end_log(fixture), "event=reloaded tls=0 auth=1");
}

static void watches_the_token_files_that_are_named_now(void **state)
{
    struct fixture *fixture = *state;
    start_with_auth(fixture);
    eb_scratch_write_text(&fixture->scratch, "tokens/second", TOKEN "-2");
    write_auth(fixture, "second", "tokens/second");
    await_reloads(fixture, 1, 0);
    eb_scratch_write_text(&fixture->scratch, "tokens/second", TOKEN "-3");
    await_reloads(fixture, 2, 0);
    assert_null(find_caller(fixture, TOKEN "-2"));
    assert_non_null(find_caller(fixture, TOKEN "-3"));
    (void)end_log(fixture);
}

static void waits_for_a_token_file_that_is_yet_to_come(void **state)
{
    struct fixture *fixture = *state;
    start_with_auth(fixture);
    write_auth(fixture, "second", "later");
    await_retries(fixture, EB_SECURITY_AUTH);
    assert_non_null(find_caller(fixture, TOKEN "-1"));
    eb_scratch_write_text(&fixture->scratch, "later", TOKEN "-2");
    await_reloads(fixture, 1, 0);
    assert_non_null(find_caller(fixture, TOKEN "-2"));
    const char *log = end_log(fixture);
    eb_scratch_expect(log, "event=reload_delayed what=auth_file ");
    assert_null(strstr(log, "reload_failed"));
}

static void reads_only_the_part_that_has_changed(void **state)
{
    struct fixture *fixture = *state;
    fixture->config.auth_file = fixture->auth_file;
    start_with_certificate(fixture);
    const struct eb_tls *tls = eb_security_tls(fixture->security);
    write_auth(fixture, "second", "token");
    await_reloads(fixture, 1, 0);
    assert_ptr_equal(eb_security_tls(fixture->security), tls);
    (void)end_log(fixture);
}

/* ---- what the system refuses ---- */

static void polls_if_the_system_has_no_more_watches_and_says_so_once(void **state)
{
    struct fixture *fixture = *state;
    static const char event[] = "event=watch_failed ";
    fixture->config.tls_cert = fixture->certificate;
    fixture->config.tls_key = fixture->key;
    fixture->config.auth_file = fixture->auth_file;
    has_no_more_watches = true;
    read_files(fixture);
    assert_int_equal(watch(fixture, 50), 0);
    write_auth(fixture, "second", "token");
    await_reloads(fixture, 1, 0);
    tls_authority_issue_for(&fixture->authority, &fixture->scratch, "server", -1, 200);
    await_reloads(fixture, 2, 0);
    const char *first = strstr(end_log(fixture), event);
    assert_non_null(first);
    eb_scratch_expect(first, "fs.inotify.max_user_watches");
    assert_null(strstr(first + strlen(event), event));
}

static void fails_to_start_without_memory(void **state)
{
    struct fixture *fixture = *state;
    fixture->config.auth_file = fixture->auth_file;
    read_files(fixture);
    eb_faults_fail_allocation(1);
    assert_int_equal(watch(fixture, 0), UV_ENOMEM);
    eb_security_watch_stop(&fixture->watch);
    assert_int_equal(uv_run(&fixture->uv, UV_RUN_DEFAULT), 0);
    (void)end_log(fixture);
}

static void says_that_new_token_files_are_not_watched_for_lack_of_memory(void **state)
{
    struct fixture *fixture = *state;
    start_with_auth(fixture);
    assert_true(eb_security_reload(fixture->security, NULL, 0));
    eb_faults_fail_allocation(1);
    eb_security_watch_renew(&fixture->watch);
    eb_scratch_expect(end_log(fixture), "event=watch_failed reason=\"out of memory\"");
}

static void has_nothing_to_watch_without_files(void **state)
{
    struct fixture *fixture = *state;
    start(fixture);
    eb_security_watch_renew(&fixture->watch);
    assert_null(eb_security_watch_left(&fixture->watch));
    eb_security_watch_stop(&fixture->watch);
    assert_int_equal(uv_run(&fixture->uv, UV_RUN_DEFAULT), 0);
    assert_string_equal(end_log(fixture), "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(security_watch)
{
    const struct CMUnitTest tests[] = {
        TEST(takes_a_renewed_certificate),
        TEST(takes_a_pair_whose_halves_come_one_after_the_other),
        TEST(tells_of_a_pair_that_does_not_fit_for_long),
        TEST(stops_trying_when_told_to_read_again),
        TEST(takes_new_callers_and_refuses_those_revoked),
        TEST(watches_the_token_files_that_are_named_now),
        TEST(waits_for_a_token_file_that_is_yet_to_come),
        TEST(reads_only_the_part_that_has_changed),
        TEST(polls_if_the_system_has_no_more_watches_and_says_so_once),
        TEST(fails_to_start_without_memory),
        TEST(says_that_new_token_files_are_not_watched_for_lack_of_memory),
        TEST(has_nothing_to_watch_without_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
