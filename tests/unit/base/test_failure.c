#include "server/base/failure.h"

#include "tests/lib/test_group.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void formats_as_printf_does(void **state)
{
    (void)state;
    struct eb_failure failure;
    assert_false(eb_failure_set(&failure, "byte %d: %s", 7, "odd"));
    assert_string_equal(failure.text, "byte 7: odd");
}

static void puts_the_path_in_front(void **state)
{
    (void)state;
    struct eb_failure failure;
    eb_failure_set(&failure, "odd");
    assert_false(eb_failure_locate(&failure, "/a/b.npy"));
    assert_string_equal(failure.text, "/a/b.npy: odd");
}

static void tells_what_may_pass_from_what_stays(void **state)
{
    (void)state;
    struct eb_failure failure;
    eb_failure_set(&failure, "odd");
    assert_false(failure.is_transient);
    assert_false(eb_failure_blame(&failure, EMFILE));
    assert_true(failure.is_transient);
    eb_failure_locate(&failure, "/a");
    assert_true(failure.is_transient);
    eb_failure_blame(&failure, EINVAL);
    assert_false(failure.is_transient);
    static const int passing[] = {ENOENT, ENOTDIR, ELOOP, EACCES, ESTALE};
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++) {
        eb_failure_set(&failure, "odd");
        eb_failure_blame(&failure, passing[i]);
        assert_true(failure.is_transient);
    }
}

static void escapes_what_would_break_a_line(void **state)
{
    (void)state;
    struct eb_failure failure;
    eb_failure_set(&failure, "a\nb\x1b[1m \xc3\xa9 \xff");
    assert_string_equal(failure.text, "a\\x0ab\\x1b[1m \xc3\xa9 \\xff");
    eb_failure_locate(&failure, "x\ty");
    assert_string_equal(failure.text, "x\\x09y: a\\x0ab\\x1b[1m \xc3\xa9 \\xff");
}

static void cuts_what_does_not_fit(void **state)
{
    (void)state;
    char path[2 * EB_FAILURE_BYTES];
    static const char *const fillings[] = {"a", "\n", "\xc3\xa9"};
    for (size_t i = 0; i < 3; i++) {
        size_t unit = strlen(fillings[i]);
        for (size_t at = 0; at + unit < sizeof path; at += unit) {
            memcpy(path + at, fillings[i], unit + 1);
        }
        struct eb_failure failure;
        eb_failure_set(&failure, "odd");
        eb_failure_locate(&failure, path);
        assert_in_range(strlen(failure.text), EB_FAILURE_BYTES - 8, EB_FAILURE_BYTES - 1);
    }
}

/* The path may be longer than the longest text, and may be put in front of a text that already has
 * the longest size. */
static void says_what_is_wrong_behind_the_longest_path(void **state)
{
    (void)state;
    char path[PATH_MAX];
    memset(path, 'a', sizeof path);
    path[0] = '/';
    memcpy(path + sizeof path - sizeof "/t.npy", "/t.npy", sizeof "/t.npy");
    struct eb_failure failure;
    eb_failure_set(&failure, "%s: it is odd", path);
    for (size_t i = 0; i < 3; i++) {
        assert_memory_equal(failure.text, "/aaa", 4);
        assert_non_null(strstr(failure.text, "a..."));
        assert_string_equal(
            failure.text + strlen(failure.text) - strlen("/t.npy: it is odd"), "/t.npy: it is odd");
        eb_failure_locate(&failure, path);
    }
}

static void expect_relative(const char *directory, const char *text, const char *expected)
{
    struct eb_failure failure;
    eb_failure_set(&failure, "%s", text);
    eb_failure_make_relative(failure.text, directory);
    assert_string_equal(failure.text, expected);
}

static void makes_paths_relative(void **state)
{
    (void)state;
    expect_relative("/srv/m", "/srv/m/a/1/t.npy: odd", "a/1/t.npy: odd");
    expect_relative("/srv/m/", "/srv/m//a/1/t.npy: odd", "a/1/t.npy: odd");
    expect_relative("/srv/m", "/srv/m/a/1: table 't' is also in /srv/m/a/1/u.npy; remove one",
        "a/1: table 't' is also in a/1/u.npy; remove one");
    expect_relative(
        "/srv/m", "/srv/m: the directory cannot be read", ".: the directory cannot be read");
    expect_relative("m", "m/a/1/t.npy: table 'm/b' of m", "a/1/t.npy: table 'm/b' of m");
    expect_relative(".", "./a/1/t.npy: odd", "a/1/t.npy: odd");
    expect_relative("/srv/my models", "/srv/my models/a: odd", "a: odd");
}

static void leaves_what_is_no_path_below_the_directory(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "odd", "/srv/models/a: odd", "/srv", "x/srv/m/a: odd",
        "model.yaml: table '/srv/m/a': odd", "/other/srv/m"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        expect_relative("/srv/m", texts[i], texts[i]);
    }
    expect_relative("/", "/a/1/t.npy: odd", "/a/1/t.npy: odd");
    expect_relative("", "/a/1/t.npy: odd", "/a/1/t.npy: odd");
}

static void knows_a_directory_that_is_escaped(void **state)
{
    (void)state;
    expect_relative("/s\nv/\xff", "/s\nv/\xff/a/1: odd", "a/1: odd");
}

/* The middle of a text that is too long is left out. The cut may take away the end or the beginning
 * of the directory. */
static void hides_a_directory_that_is_cut(void **state)
{
    (void)state;
    char directory[PATH_MAX] = "";
    for (size_t bytes = 10; bytes < 1200; bytes += 7) {
        struct eb_failure failure;
        memset(directory, 'd', bytes);
        memcpy(directory, "/secret/", 8);
        directory[bytes / 2] = '/';
        directory[bytes] = '\0';
        eb_failure_set(
            &failure, "%s/a/1/t.npy: it is also in %s/a/1/u.npy; remove one", directory, directory);
        eb_failure_make_relative(failure.text, directory);
        assert_null(strstr(failure.text, "secret"));
        assert_null(strstr(failure.text, "dd"));
        assert_non_null(strstr(failure.text, "a/1/u.npy; remove one"));
    }
}

EB_TEST_GROUP(failure)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_as_printf_does),
        cmocka_unit_test(puts_the_path_in_front),
        cmocka_unit_test(tells_what_may_pass_from_what_stays),
        cmocka_unit_test(escapes_what_would_break_a_line),
        cmocka_unit_test(cuts_what_does_not_fit),
        cmocka_unit_test(says_what_is_wrong_behind_the_longest_path),
        cmocka_unit_test(makes_paths_relative),
        cmocka_unit_test(leaves_what_is_no_path_below_the_directory),
        cmocka_unit_test(knows_a_directory_that_is_escaped),
        cmocka_unit_test(hides_a_directory_that_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
