#include "server/security.h"

#include "tests/lib/capture.h"
#include "tests/lib/test_group.h"
#include "tests/lib/tls_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct eb_scratch scratch;
static struct tls_authority authority;
static char certificate[EB_SCRATCH_PATH_BYTES];
static char key[EB_SCRATCH_PATH_BYTES];

static int make_files(void **state)
{
    (void)state;
    eb_scratch_init(&scratch);
    tls_authority_init(&authority);
    eb_scratch_path(&scratch, "server.pem", certificate);
    eb_scratch_path(&scratch, "server.key", key);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    tls_authority_deinit(&authority);
    eb_scratch_deinit(&scratch);
    return 0;
}

/* Captures what the daily check logs for a certificate that is valid for `days` more days. */
static void look(int days, char *out, size_t out_bytes)
{
    struct eb_config config = {.tls_cert = certificate, .tls_key = key};
    struct eb_capture capture;
    tls_authority_issue_for(&authority, &scratch, "server", -1, days);
    struct eb_security *security = eb_security_open(&config);
    assert_non_null(security);
    eb_capture_start(&capture, STDERR_FILENO);
    eb_security_log_expiry(security);
    eb_capture_stop(&capture, out, out_bytes);
    eb_security_close(security);
}

static void warns_each_day_of_a_certificate_that_soon_expires(void **state)
{
    (void)state;
    char line[1024];
    look(10, line, sizeof line);
    eb_scratch_expect(line, "level=warn event=certificate_expires");
    eb_scratch_expect(line, certificate);
    look(100, line, sizeof line);
    eb_scratch_expect(line, "level=info event=certificate ");
}

static void says_that_it_was_read_again_only_where_it_was(void **state)
{
    (void)state;
    char line[2048];
    struct eb_config config = {.tls_cert = certificate, .tls_key = key};
    struct eb_capture capture;
    tls_authority_issue_for(&authority, &scratch, "server", -1, 100);
    struct eb_security *security = eb_security_open(&config);
    assert_non_null(security);
    eb_capture_start(&capture, STDERR_FILENO);
    assert_true(eb_security_reload(security, NULL, 0));
    eb_capture_stop(&capture, line, sizeof line);
    eb_scratch_expect(line, "event=reloaded tls=1 auth=0");
    assert_int_equal(unlink(key), 0);
    eb_capture_start(&capture, STDERR_FILENO);
    assert_false(eb_security_reload(security, NULL, 0));
    eb_capture_stop(&capture, line, sizeof line);
    eb_scratch_expect(line, "event=reload_failed what=tls_cert ");
    assert_null(strstr(line, "event=reloaded"));
    eb_security_close(security);
}

static void has_nothing_to_look_at_without_a_certificate(void **state)
{
    (void)state;
    struct eb_config config = {.tls_cert = NULL};
    struct eb_capture capture;
    char line[256];
    struct eb_security *security = eb_security_open(&config);
    assert_non_null(security);
    eb_capture_start(&capture, STDERR_FILENO);
    eb_security_log_expiry(security);
    eb_capture_stop(&capture, line, sizeof line);
    assert_string_equal(line, "");
    eb_security_close(security);
}

EB_TEST_GROUP(security)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warns_each_day_of_a_certificate_that_soon_expires),
        cmocka_unit_test(says_that_it_was_read_again_only_where_it_was),
        cmocka_unit_test(has_nothing_to_look_at_without_a_certificate),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
