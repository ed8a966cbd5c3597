#include "server/net/tls.h"

#include "tests/lib/test_group.h"
#include "tests/lib/tls_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct eb_scratch scratch;
static char own[EB_SCRATCH_PATH_BYTES];
static char key[EB_SCRATCH_PATH_BYTES];
static char other_key[EB_SCRATCH_PATH_BYTES];
static char ca[EB_SCRATCH_PATH_BYTES];
static char junk[EB_SCRATCH_PATH_BYTES];

static int set_up_group(void **state)
{
    struct tls_authority authority;
    (void)state;
    eb_scratch_init(&scratch);
    tls_authority_init(&authority);
    tls_authority_write(&authority, &scratch);
    tls_authority_issue(&authority, &scratch, "own", "server", NULL);
    tls_authority_issue(&authority, &scratch, "other", "server", NULL);
    tls_authority_deinit(&authority);
    eb_scratch_write(&scratch, "junk", "junk", 4);
    eb_scratch_path(&scratch, "own.pem", own);
    eb_scratch_path(&scratch, "own.key", key);
    eb_scratch_path(&scratch, "other.key", other_key);
    eb_scratch_path(&scratch, "ca.pem", ca);
    eb_scratch_path(&scratch, "junk", junk);
    return 0;
}

static int tear_down_group(void **state)
{
    (void)state;
    eb_scratch_deinit(&scratch);
    return 0;
}

static void tells_for_how_long_a_certificate_is_good(void **state)
{
    (void)state;
    struct eb_failure failure = {.text = ""};
    struct eb_tls_options options = {
        .certificate_file = own, .key_file = key, .client_ca_file = ca, .is_1_3_only = true};
    struct eb_tls *tls = eb_tls_open(&options, &failure);
    assert_non_null(tls);
    assert_int_equal(eb_tls_days_left(tls), 10);
    assert_ptr_equal(eb_tls_hold(tls), tls);
    eb_tls_drop(tls);
    assert_int_equal(eb_tls_days_left(tls), 10);
    eb_tls_drop(tls);
    assert_null(eb_tls_hold(NULL));
    eb_tls_drop(NULL);
}

static void names_the_file_that_is_bad(void **state)
{
    (void)state;
    const struct {
        struct eb_tls_options options;
        const char *file, *part;
    } cases[] = {
        {{.certificate_file = "/none", .key_file = key}, "/none", "No such file"},
        {{.certificate_file = junk, .key_file = key}, junk, "certificates in PEM"},
        {{.certificate_file = key, .key_file = key}, key, "certificates in PEM"},
        {{.certificate_file = own, .key_file = "/none"}, "/none", "No such file"},
        {{.certificate_file = own, .key_file = junk}, junk, "the certificate's key"},
        {{.certificate_file = own, .key_file = other_key}, other_key, "mismatch"},
        {{own, key, "/none", false, false}, "/none", "No such file"},
        {{own, key, junk, false, false}, junk, "certificates in PEM"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_failure failure = {.text = ""};
        assert_null(eb_tls_open(&cases[i].options, &failure));
        eb_scratch_expect(failure.text, cases[i].file);
        eb_scratch_expect(failure.text, cases[i].part);
    }
}

static void refuses_a_certificate_out_of_its_time(void **state)
{
    (void)state;
    struct tls_authority authority;
    char path[EB_SCRATCH_PATH_BYTES];
    char path_key[EB_SCRATCH_PATH_BYTES];
    const struct {
        long from_day, to_day;
        const char *part;
    } cases[] = {{1, 10, "not valid yet"}, {-10, -1, "has expired"}};
    tls_authority_init(&authority);
    eb_scratch_path(&scratch, "timed.pem", path);
    eb_scratch_path(&scratch, "timed.key", path_key);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_tls_options options = {.certificate_file = path, .key_file = path_key};
        struct eb_failure failure = {.text = ""};
        tls_authority_issue_for(&authority, &scratch, "timed", cases[i].from_day, cases[i].to_day);
        assert_null(eb_tls_open(&options, &failure));
        eb_scratch_expect(failure.text, path);
        eb_scratch_expect(failure.text, cases[i].part);
    }
    tls_authority_deinit(&authority);
}

EB_TEST_GROUP(tls)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_a_certificate_out_of_its_time),
        cmocka_unit_test(tells_for_how_long_a_certificate_is_good),
        cmocka_unit_test(names_the_file_that_is_bad),
    };
    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
