#include "proto/link/credentials.h"

#include "tests/lib/test_group.h"
#include "tests/lib/tls_files.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct eb_scratch scratch;
static char ca[EB_SCRATCH_PATH_BYTES];
static char own[EB_SCRATCH_PATH_BYTES];
static char key[EB_SCRATCH_PATH_BYTES];
static char token[EB_SCRATCH_PATH_BYTES];

static int make_files(void **state)
{
    struct tls_authority authority;
    (void)state;
    eb_scratch_init(&scratch);
    tls_authority_init(&authority);
    tls_authority_write(&authority, &scratch);
    tls_authority_issue(&authority, &scratch, "own", "client", NULL);
    tls_authority_deinit(&authority);
    eb_scratch_path(&scratch, "ca.pem", ca);
    eb_scratch_path(&scratch, "own.pem", own);
    eb_scratch_path(&scratch, "own.key", key);
    eb_scratch_path(&scratch, "token", token);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    eb_scratch_deinit(&scratch);
    return 0;
}

static bool open_for(struct eb_credentials *credentials, const char *address,
    const struct eb_access *access, struct eb_error *error)
{
    struct eb_targets targets;
    assert_true(eb_targets_parse(address, &targets, error));
    struct eb_file_list files = {.files = NULL};
    bool is_open = eb_credentials_open(credentials, access, &targets, &files, error);
    eb_targets_free(&targets);
    eb_file_list_deinit(&files);
    return is_open;
}

static void has_none_unless_asked(void **state)
{
    (void)state;
    struct eb_credentials credentials;
    struct eb_error error;
    assert_true(open_for(&credentials, "h:1", &(struct eb_access){0}, &error));
    assert_null(credentials.tls);
    assert_string_equal(credentials.authorization, "");
    eb_credentials_close(&credentials);
    eb_credentials_close(&credentials);
}

static void expects_the_name_of_the_address_or_the_one_given(void **state)
{
    (void)state;
    struct eb_credentials credentials;
    struct eb_error error;
    struct eb_access access = {.tls_ca = ca, .tls_cert = own, .tls_key = key};
    assert_true(open_for(&credentials, "[::1]:8600", &access, &error));
    assert_non_null(credentials.tls);
    assert_string_equal(credentials.server_name, "");
    eb_credentials_close(&credentials);
    access.tls_server_name = "server.example";
    assert_true(open_for(&credentials, "[::1]:8600", &access, &error));
    assert_string_equal(credentials.server_name, "server.example");
    eb_credentials_close(&credentials);
}

static void shows_the_token_of_a_file(void **state)
{
    (void)state;
    struct eb_credentials credentials;
    struct eb_error error;
    struct eb_access access = {.token_file = token};
    eb_scratch_write(&scratch, "token", "abc\r\n", 5);
    assert_true(open_for(&credentials, "unix:/s", &access, &error));
    assert_string_equal(credentials.authorization, "Bearer abc");
    eb_credentials_close(&credentials);
    char longest[EB_GRPC_AUTHORIZATION_BYTES];
    memset(longest, 'x', sizeof longest);
    eb_scratch_write(&scratch, "token", longest, 256);
    assert_true(open_for(&credentials, "127.0.0.1:1", &access, &error));
    assert_int_equal(strlen(credentials.authorization), 7 + 256);
    eb_credentials_close(&credentials);
}

static void expect_refused(const char *address, struct eb_access access, const char *part)
{
    struct eb_credentials credentials;
    struct eb_error error;
    assert_false(open_for(&credentials, address, &access, &error));
    assert_int_equal(error.status, EB_STATUS_INVALID_ARGUMENT);
    eb_scratch_expect(error.text, part);
    assert_null(credentials.tls);
}

static void refuses_what_cannot_be_used(void **state)
{
    (void)state;
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    expect_refused("h:1", (struct eb_access){.token_file = token}, "use TLS");
    expect_refused("unix:/s", (struct eb_access){.tls = true}, "TLS is not used on unix sockets");
    expect_refused("h:1", (struct eb_access){.tls_ca = "/none"}, "/none: ");
    expect_refused("h:1", (struct eb_access){.tls_ca = key}, "certificates in PEM");
    expect_refused("h:1", (struct eb_access){.tls_cert = own}, "give both or neither");
    expect_refused("h:1", (struct eb_access){.tls_key = key}, "give both or neither");
    expect_refused("h:1", (struct eb_access){.tls_cert = own, .tls_key = ca}, "key");
    expect_refused("h:1", (struct eb_access){.tls_server_name = longest}, "too long");
    expect_refused("localhost:1", (struct eb_access){.token_file = "/none"},
        "/none: cannot be read as a token file: No such file");
    eb_scratch_write(&scratch, "token", "\n", 1);
    expect_refused("localhost:1", (struct eb_access){.token_file = token}, "is empty");
    eb_scratch_write(&scratch, "token", "two words", 9);
    expect_refused("localhost:1", (struct eb_access){.token_file = token}, "visible characters");
    eb_scratch_write(&scratch, "token", longest, 257);
    expect_refused(
        "localhost:1", (struct eb_access){.token_file = token}, "at most 256 characters");
}

static void says_nothing_of_what_went_wrong_before(void **state)
{
    (void)state;
    struct eb_credentials credentials;
    struct eb_error error;
    struct eb_access access = {.token_file = token};
    eb_scratch_write(&scratch, "token", "\n", 1);
    ERR_raise(ERR_LIB_SSL, ERR_R_MALLOC_FAILURE);
    assert_false(open_for(&credentials, "localhost:1", &access, &error));
    assert_string_equal(strrchr(error.text, ':'), ": is empty");
}

/* ---- reading again ---- */

/* Opens credentials of all four files. */
static void open_all(struct eb_credentials *credentials, struct eb_access *access)
{
    struct eb_error error;
    *access =
        (struct eb_access){.tls_ca = ca, .tls_cert = own, .tls_key = key, .token_file = token};
    eb_scratch_write_text(&scratch, "token", "first");
    assert_true(open_for(credentials, "localhost:1", access, &error));
}

/* Reads the files again and replaces the credentials. Returns what is new. */
static struct eb_credentials_change renew(
    struct eb_credentials *credentials, const struct eb_access *access)
{
    struct eb_targets targets;
    struct eb_credentials fresh;
    struct eb_error error;
    struct eb_file_list files = {.files = NULL};
    assert_true(eb_targets_parse("localhost:1", &targets, &error));
    eb_credentials_reopen(&fresh, access, &targets, &files);
    eb_targets_free(&targets);
    assert_int_equal(files.count, 4);
    eb_file_list_deinit(&files);
    struct eb_credentials_change change = eb_credentials_replace(credentials, &fresh);
    assert_null(fresh.tls);
    assert_string_equal(fresh.authorization, "");
    return change;
}

static void replaces_all_that_is_valid(void **state)
{
    (void)state;
    struct eb_credentials credentials;
    struct eb_access access;
    open_all(&credentials, &access);
    const struct ssl_ctx_st *tls = credentials.tls;
    static const struct timespec times[] = {{.tv_sec = 1}, {.tv_sec = 1}};
    struct eb_credentials_change change = renew(&credentials, &access);
    assert_false(change.is_token_new || change.is_tls_new);
    assert_ptr_not_equal(credentials.tls, tls);
    assert_string_equal(credentials.server_name, "");
    eb_scratch_write_text(&scratch, "token", "second");
    change = renew(&credentials, &access);
    assert_true(change.is_token_new && !change.is_tls_new);
    assert_int_equal(utimensat(AT_FDCWD, own, times, 0), 0);
    change = renew(&credentials, &access);
    assert_true(change.is_tls_new && !change.is_token_new);
    assert_string_equal(credentials.authorization, "Bearer second");
    assert_string_equal(credentials.stale_reason, "");
    eb_credentials_close(&credentials);
}

static void replaces_the_token_though_certificates_are_broken(void **state)
{
    (void)state;
    struct eb_credentials credentials;
    struct eb_access access;
    open_all(&credentials, &access);
    const struct ssl_ctx_st *tls = credentials.tls;
    eb_scratch_write_text(&scratch, "token", "second");
    access.tls_key = ca;
    struct eb_credentials_change change = renew(&credentials, &access);
    assert_true(change.is_token_new && !change.is_tls_new);
    assert_ptr_equal(credentials.tls, tls);
    assert_string_equal(credentials.authorization, "Bearer second");
    eb_scratch_expect(credentials.stale_reason, "ca.pem: cannot be used as the certificate's key");
    eb_credentials_close(&credentials);
}

static void replaces_certificates_though_the_token_is_broken(void **state)
{
    (void)state;
    struct eb_credentials credentials;
    struct eb_access access;
    open_all(&credentials, &access);
    const struct ssl_ctx_st *tls = credentials.tls;
    eb_scratch_write_text(&scratch, "token", "two words");
    struct eb_credentials_change change = renew(&credentials, &access);
    assert_false(change.is_token_new || change.is_tls_new);
    assert_ptr_not_equal(credentials.tls, tls);
    assert_string_equal(credentials.authorization, "Bearer first");
    eb_scratch_expect(credentials.stale_reason, "visible characters");
    eb_credentials_close(&credentials);
}

EB_TEST_GROUP(credentials)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_none_unless_asked),
        cmocka_unit_test(expects_the_name_of_the_address_or_the_one_given),
        cmocka_unit_test(shows_the_token_of_a_file),
        cmocka_unit_test(refuses_what_cannot_be_used),
        cmocka_unit_test(says_nothing_of_what_went_wrong_before),
        cmocka_unit_test(replaces_all_that_is_valid),
        cmocka_unit_test(replaces_the_token_though_certificates_are_broken),
        cmocka_unit_test(replaces_certificates_though_the_token_is_broken),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
