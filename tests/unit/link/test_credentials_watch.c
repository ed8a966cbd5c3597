#include "proto/link/credentials_watch.h"

#include "tests/lib/test_group.h"
#include "tests/lib/tls_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TIMEOUT_NS UINT64_C(60000000000)

struct fixture {
    struct eb_scratch scratch;
    struct tls_authority authority;
    uv_loop_t uv;
    struct eb_targets targets;
    struct eb_credentials credentials;
    struct eb_credentials_watch watch;
    unsigned read_count;
    unsigned token_count; /* readings with a new token, */
    unsigned tls_count;   /* and with new certificates */
};

static void note_reading(void *context, struct eb_credentials_change change)
{
    struct fixture *fixture = context;
    fixture->read_count++;
    fixture->token_count += change.is_token_new;
    fixture->tls_count += change.is_tls_new;
}

static void move_into_place(const struct fixture *fixture, const char *from, const char *to)
{
    char paths[2][EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, from, paths[0]);
    eb_scratch_path(&fixture->scratch, to, paths[1]);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}

/* Opens credentials and prepares their watch. */
static void open_watched(struct fixture *fixture, const struct eb_access *access)
{
    struct eb_error error;
    struct eb_file_list files = {.files = NULL};
    struct eb_targets *targets = &fixture->targets;
    assert_true(eb_targets_parse("localhost:1", targets, &error));
    assert_true(eb_credentials_open(&fixture->credentials, access, targets, &files, &error));
    assert_true(
        eb_credentials_watch_init(&fixture->watch, &fixture->credentials, access, targets, &files));
    assert_int_equal(files.count, 0);
    fixture->watch.on_read = note_reading;
    fixture->watch.context = fixture;
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
    tls_authority_write(&fixture->authority, &fixture->scratch);
    tls_authority_issue(&fixture->authority, &fixture->scratch, "own", "client", NULL);
    eb_scratch_write_text(&fixture->scratch, "token", "first");
    return uv_loop_init(&fixture->uv);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_credentials_watch_stop(&fixture->watch);
    (void)uv_run(&fixture->uv, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&fixture->uv);
    eb_credentials_watch_deinit(&fixture->watch);
    eb_credentials_close(&fixture->credentials);
    eb_targets_free(&fixture->targets);
    tls_authority_deinit(&fixture->authority);
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return rc;
}

/* Watches all four files. */
static void watch_all(struct fixture *fixture)
{
    char paths[4][EB_SCRATCH_PATH_BYTES];
    static const char *const names[] = {"ca.pem", "own.pem", "own.key", "token"};
    for (size_t i = 0; i < 4; i++) {
        eb_scratch_path(&fixture->scratch, names[i], paths[i]);
    }
    struct eb_access access = {.tls_ca = paths[0],
        .tls_cert = paths[1],
        .tls_key = paths[2],
        .tls_server_name = "server",
        .token_file = paths[3]};
    open_watched(fixture, &access);
    memset(paths, 'x', sizeof paths); /* The watch has copied them. */
    assert_int_equal(eb_credentials_watch_start(&fixture->watch, &fixture->uv), 0);
}

static void run_loop_until(struct fixture *fixture, bool (*is_done)(const struct fixture *fixture))
{
    uint64_t deadline_ns = uv_hrtime() + TIMEOUT_NS;
    while (!is_done(fixture) && uv_hrtime() < deadline_ns) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_true(is_done(fixture));
}

static bool is_renewed(const struct fixture *fixture)
{
    return fixture->read_count > 0 && !fixture->credentials.stale_reason[0];
}

static bool is_stale(const struct fixture *fixture)
{
    return fixture->credentials.stale_reason[0];
}

static bool has_retried(const struct fixture *fixture)
{
    return fixture->read_count > 1;
}

static bool is_reading(const struct fixture *fixture)
{
    return fixture->watch.reading.is_running;
}

static void takes_renewed_files(void **state)
{
    struct fixture *fixture = *state;
    watch_all(fixture);
    const struct ssl_ctx_st *tls = fixture->credentials.tls;
    eb_scratch_write_text(&fixture->scratch, "token", "second");
    tls_authority_issue(&fixture->authority, &fixture->scratch, "own", "client", NULL);
    run_loop_until(fixture, is_renewed);
    assert_int_equal(fixture->token_count, 1);
    assert_int_equal(fixture->tls_count, 1);
    assert_string_equal(fixture->credentials.authorization, "Bearer second");
    assert_string_equal(fixture->credentials.server_name, "server");
    assert_ptr_not_equal(fixture->credentials.tls, tls);
}

static void waits_for_the_key_of_a_certificate(void **state)
{
    struct fixture *fixture = *state;
    watch_all(fixture);
    const struct ssl_ctx_st *tls = fixture->credentials.tls;
    tls_authority_issue(&fixture->authority, &fixture->scratch, "next", "client", NULL);
    move_into_place(fixture, "next.pem", "own.pem");
    run_loop_until(fixture, is_stale);
    assert_ptr_equal(fixture->credentials.tls, tls);
    move_into_place(fixture, "next.key", "own.key");
    run_loop_until(fixture, is_renewed);
    assert_ptr_not_equal(fixture->credentials.tls, tls);
}

static void reads_again_in_a_while_what_could_not_be_read(void **state)
{
    struct fixture *fixture = *state;
    watch_all(fixture);
    eb_scratch_write_text(&fixture->scratch, "token", "");
    run_loop_until(fixture, has_retried);
    assert_int_equal(fixture->token_count, 0);
    assert_int_equal(fixture->tls_count, 0); /* though valid certificates were read each time */
    eb_scratch_write_text(&fixture->scratch, "token", "second");
    run_loop_until(fixture, is_renewed);
    assert_int_equal(fixture->token_count, 1);
    assert_int_equal(fixture->tls_count, 0);
}

static void stops_while_it_reads(void **state)
{
    struct fixture *fixture = *state;
    watch_all(fixture);
    eb_scratch_write_text(&fixture->scratch, "token", "second");
    run_loop_until(fixture, is_reading);
    eb_credentials_watch_stop(&fixture->watch);
    eb_credentials_watch_stop(&fixture->watch);
    assert_int_equal(uv_run(&fixture->uv, UV_RUN_DEFAULT), 0);
    assert_int_equal(fixture->read_count, 0);
    assert_string_equal(fixture->credentials.authorization, "Bearer first");
}

/* Opening a pipe waits until somebody writes to it. */
static void does_not_read_a_pipe(void **state)
{
    struct fixture *fixture = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    watch_all(fixture);
    eb_scratch_path(&fixture->scratch, "pipe", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    move_into_place(fixture, "pipe", "token");
    run_loop_until(fixture, has_retried);
    assert_non_null(strstr(fixture->credentials.stale_reason, "is not a regular file"));
    assert_string_equal(fixture->credentials.authorization, "Bearer first");
}

static void watches_nothing_without_files(void **state)
{
    struct fixture *fixture = *state;
    open_watched(fixture, &(struct eb_access){.tls = true});
    assert_int_equal(eb_credentials_watch_start(&fixture->watch, &fixture->uv), 0);
    assert_int_equal(uv_loop_alive(&fixture->uv), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(credentials_watch)
{
    const struct CMUnitTest tests[] = {
        TEST(takes_renewed_files),
        TEST(waits_for_the_key_of_a_certificate),
        TEST(reads_again_in_a_while_what_could_not_be_read),
        TEST(stops_while_it_reads),
        TEST(does_not_read_a_pipe),
        TEST(watches_nothing_without_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
