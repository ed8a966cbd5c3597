#include "server/auth_file.h"

#include "proto/grpc_headers.h"
#include "tests/lib/capture.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define DIGITS "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" /* of "abc" */
#define TOKEN "0123456789abcdef"

/* Writes the file and reads it. Returns NULL with *failure set if the file is refused. */
static struct eb_auth *read_bytes(
    const struct eb_scratch *scratch, const char *yaml, size_t size, struct eb_failure *failure)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_write(scratch, "auth.yaml", yaml, size);
    eb_scratch_path(scratch, "auth.yaml", path);
    struct eb_file_list files = {.files = NULL};
    struct eb_auth *auth = eb_auth_file_read(path, &files, failure);
    eb_file_list_deinit(&files);
    return auth;
}

static void expect_failure(const struct eb_scratch *scratch, const char *yaml, const char *part)
{
    struct eb_failure failure = {.text = ""};
    assert_null(read_bytes(scratch, yaml, strlen(yaml), &failure));
    eb_scratch_expect(failure.text, "auth.yaml: ");
    eb_scratch_expect(failure.text, part);
}

/* Writes a token file that only its owner can read. Returns `yaml` with the file's path in place of
 * %s. */
static const char *with_token(
    const struct eb_scratch *scratch, const char *yaml, const char *token, size_t size)
{
    static char text[2048];
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_write(scratch, "token", token, size);
    eb_scratch_path(scratch, "token", path);
    assert_int_equal(chmod(path, 0600), 0);
    snprintf(text, sizeof text, yaml, path);
    return text;
}

static void reads_who_may_what(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure;
    const char *yaml = with_token(scratch,
        "principals:\n"
        "  - {name: a, token_file: %s, models: [m, n]}\n"
        "  - name: b\n"
        "    token_sha256: " DIGITS "\n"
        "    client_name: b.example\n"
        "    models: ['*']\n"
        "    admin: false\n"
        "    router: true\n"
        "  - {name: c, client_name: c.example, admin: true}\n",
        TOKEN "\r\n", sizeof TOKEN + 1);
    struct eb_auth *auth = read_bytes(scratch, yaml, strlen(yaml), &failure);
    assert_non_null(auth);
    assert_int_equal(auth->count, 3);
    struct eb_secret_digest digest;
    eb_secret_digest(TOKEN, strlen(TOKEN), &digest);
    const struct eb_principal *a = eb_auth_find_token(auth, &digest);
    assert_non_null(a);
    assert_string_equal(a->name, "a");
    assert_true(eb_principal_may_look_up(a, "n"));
    assert_false(eb_principal_may_look_up(a, "o"));
    assert_false(a->is_admin);
    eb_secret_digest("abc", 3, &digest);
    const struct eb_principal *b = eb_auth_find_token(auth, &digest);
    assert_non_null(b);
    assert_string_equal(b->client_name, "b.example");
    assert_true(b->has_all_models);
    assert_false(b->is_admin);
    assert_true(b->is_router);
    assert_false(a->is_router || auth->principals[2].is_router);
    assert_true(auth->principals[2].is_admin);
    assert_false(auth->principals[2].has_token);
    assert_int_equal(auth->principals[2].model_count, 0);
    assert_ptr_equal(eb_auth_hold(auth), auth);
    eb_auth_drop(auth);
    eb_auth_drop(auth);
}

static void refuses_rules_that_could_be_misread(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const struct {
        const char *yaml, *part;
    } cases[] = {
        {"", "principals is empty"},
        {"principals: []", "principals is empty"},
        {"principals: [{client_name: x}]", "principals[0].name: is missing"},
        {"principals: [{name: '', client_name: x}]", "principals[0].name: is missing"},
        {"principals: [{name: x}]", "principals[0].name: the principal cannot be authenticated"},
        {"principals: [{name: x, client_name: ''}]", "principals[0].client_name: is empty"},
        {"principals: [{name: x, client_name: y, admin: yes}]", "admin: expected true or false"},
        {"principals: [{name: x, client_name: y, router: 1}]", "router: expected true or false"},
        {"principals: [{name: x, client_name: y, role: z}]", "role"},
        {"principals: [{name: x, token_sha256: abc}]", "expected the 64 hexadecimal digits"},
        {"principals: [{name: x, token_sha256: " DIGITS "0}]", "expected the 64"},
        {"principals: [{name: x, token_sha256: 'g" DIGITS "'}]", "expected the 64"},
        {"principals: [{name: x, token_sha256: " DIGITS ", token_file: /x}]", "remove one of them"},
        {"principals: [{name: x, client_name: y}, {name: x, client_name: z}]",
            "principals[1].name: another"},
        {"principals: [{name: x, client_name: y}, {name: z, client_name: y}]",
            "principals[1].client_name: another"},
        {"principals: [{name: x, token_sha256: " DIGITS "}, {name: z, token_sha256: " DIGITS "}]",
            "principals[1].token: another"},
        {"principals: &a [{name: x, client_name: y}]\nother: *a", "other"},
        {"principals: [{name: x, token_file: /none}]", "/none: it cannot be opened"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_failure(scratch, cases[i].yaml, cases[i].part);
    }
}

/* Expects a file that ends with `end` to be accepted, with the field has_end set to `has_end`. */
static void expect_end(const struct eb_scratch *scratch, const char *end, bool has_end)
{
    char yaml[512];
    struct eb_failure failure = {.text = ""};
    snprintf(yaml, sizeof yaml, "principals:\n  - {name: x, client_name: y}\n%s", end);
    struct eb_auth *auth = read_bytes(scratch, yaml, strlen(yaml), &failure);
    if (!auth) {
        fail_msg("%s", failure.text);
        return;
    }
    assert_int_equal(auth->has_end, has_end);
    eb_auth_drop(auth);
}

static void knows_a_file_that_says_where_it_ends(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const char *const ends[] = {"end: true", "end: true\n", "end: true\r\n",
        "end:   true  \n", "end: true\n\n  \n# a comment\n  # another", "end: true # a comment\n"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        expect_end(scratch, ends[i], true);
    }
    expect_end(scratch, "", false);
    expect_end(scratch, "# end: true\n", false);
    static const struct {
        const char *yaml, *part;
    } cases[] = {
        {"principals: [{name: x, client_name: y}]\nend: yes", "end: expected true"},
        {"principals: [{name: x, client_name: y}]\nend: tru", "end: expected true"},
        {"principals: [{name: x, client_name: y}]\nend:", "end: expected true"},
        {"principals: [{name: x, client_name: y}]\nend: [true]", "end"},
        {"end: true\nprincipals: [{name: x, client_name: y}]",
            "end: expected \"end: true\" as the last line"},
        {"end: true\nprincipals:\n  - {name: x, client_name: y}\n# end: true\n",
            "end: expected \"end: true\" as the last line"},
        {"{principals: [{name: x, client_name: y}],\nend: true}",
            "end: expected \"end: true\" as the last line"},
        {"{principals: [{name: x, client_name: y}], end:\ntrue\n}",
            "end: expected \"end: true\" as the last line"},
        {"end: true\nprincipals:\n  - name: x\n    client_name: 'y\n      end: true'",
            "end: expected \"end: true\" as the last line"},
        {"end: true", "principals is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_failure(scratch, cases[i].yaml, cases[i].part);
    }
}

/* A reload can tell every truncated file from the whole file. */
static void takes_no_beginning_of_a_file_for_all_of_it(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const char yaml[] = "# who may call\n"
                               "principals:\n"
                               "  - {name: a, client_name: a.example, models: ['*']}\n"
                               "  - name: b\n"
                               "    token_sha256: " DIGITS "\n"
                               "  - {name: c, client_name: c.example}\n"
                               "end: true\n";
    unsigned unended_count = 0;
    for (size_t bytes = 0; bytes < sizeof yaml; bytes++) {
        struct eb_failure failure;
        struct eb_auth *auth = read_bytes(scratch, yaml, bytes, &failure);
        if (auth) {
            assert_int_equal(auth->has_end, bytes >= sizeof yaml - 2);
            unended_count += !auth->has_end;
        }
        eb_auth_drop(auth);
    }
    assert_true(unended_count > 0);
}

static void keeps_tokens_to_what_a_header_can_hold(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const char yaml[] = "principals: [{name: x, token_file: %s}]";
    char token[EB_GRPC_TOKEN_BYTES_MAX + 3];
    memset(token, 'x', sizeof token);
    static const struct {
        size_t size;
        const char *part; /* NULL: the token is good */
    } cases[] = {
        {0, "not a token"},
        {EB_AUTH_TOKEN_BYTES_MIN - 1, "not a token"},
        {EB_AUTH_TOKEN_BYTES_MIN, NULL},
        {EB_GRPC_TOKEN_BYTES_MAX, NULL},
        {EB_GRPC_TOKEN_BYTES_MAX + 1, "not a token"},
        {EB_GRPC_TOKEN_BYTES_MAX + 3, "larger than"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = with_token(scratch, yaml, token, cases[i].size);
        struct eb_failure failure;
        if (cases[i].part) {
            expect_failure(scratch, text, cases[i].part);
        } else {
            struct eb_auth *auth = read_bytes(scratch, text, strlen(text), &failure);
            assert_non_null(auth);
            eb_auth_drop(auth);
        }
    }
    expect_failure(scratch, with_token(scratch, yaml, "0123456789 abcdef", 17), "not a token");
    expect_failure(scratch, with_token(scratch, yaml, "0123456789abcdef\nmore", 21), "not a token");
    expect_failure(scratch, with_token(scratch, yaml, "0123456789\0abcdef", 17), "not a token");
    expect_failure(
        scratch, with_token(scratch, yaml, "0123456789\xc3\xa4xxxxx", 17), "not a token");
}

static void never_says_a_token(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure;
    const char *yaml =
        with_token(scratch, "principals: [{name: x, token_file: %s}]", "secret secret secret", 20);
    assert_null(read_bytes(scratch, yaml, strlen(yaml), &failure));
    assert_null(strstr(failure.text, "secret"));
}

static void warns_of_tokens_that_others_can_read(void **state)
{
    const struct eb_scratch *scratch = *state;
    char said[4096];
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_failure failure;
    const char *yaml =
        with_token(scratch, "principals: [{name: x, token_file: %s}]", TOKEN, strlen(TOKEN));
    eb_scratch_path(scratch, "token", path);
    for (int mode = 0600; mode <= 0644; mode += 044) {
        struct eb_capture error;
        assert_int_equal(chmod(path, (mode_t)mode), 0);
        eb_capture_start(&error, STDERR_FILENO);
        struct eb_auth *auth = read_bytes(scratch, yaml, strlen(yaml), &failure);
        eb_capture_stop(&error, said, sizeof said);
        assert_non_null(auth);
        eb_auth_drop(auth);
        assert_int_equal(!!strstr(said, "event=secret_exposed"), mode == 0644);
    }
}

static void refuses_files_that_are_too_large(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure;
    char *bytes = malloc(EB_AUTH_FILE_BYTES_MAX + 1);
    assert_non_null(bytes);
    memset(bytes, '\n', EB_AUTH_FILE_BYTES_MAX + 1);
    assert_null(read_bytes(scratch, bytes, EB_AUTH_FILE_BYTES_MAX + 1, &failure));
    eb_scratch_expect(failure.text, "larger than");
    assert_null(read_bytes(scratch, bytes, EB_AUTH_FILE_BYTES_MAX, &failure));
    eb_scratch_expect(failure.text, "principals is empty");
    free(bytes);
}

EB_TEST_GROUP(auth_file)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_who_may_what),
        cmocka_unit_test(refuses_rules_that_could_be_misread),
        cmocka_unit_test(knows_a_file_that_says_where_it_ends),
        cmocka_unit_test(takes_no_beginning_of_a_file_for_all_of_it),
        cmocka_unit_test(keeps_tokens_to_what_a_header_can_hold),
        cmocka_unit_test(never_says_a_token),
        cmocka_unit_test(warns_of_tokens_that_others_can_read),
        cmocka_unit_test(refuses_files_that_are_too_large),
    };
    return cmocka_run_group_tests(tests, eb_scratch_set_up, eb_scratch_tear_down);
}
