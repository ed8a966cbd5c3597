#include "server/base/file_fault.h"

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
    struct eb_file_fault fault;
    assert_false(eb_file_fault_set(&fault, "byte %d: %s", 7, "odd"));
    assert_string_equal(fault.text, "byte 7: odd");
}

static void puts_the_path_in_front(void **state)
{
    (void)state;
    struct eb_file_fault fault;
    eb_file_fault_set(&fault, "odd");
    assert_false(eb_file_fault_locate(&fault, "/a/b.npy"));
    assert_string_equal(fault.text, "/a/b.npy: odd");
}

static void tells_what_may_pass_from_what_stays(void **state)
{
    (void)state;
    struct eb_file_fault fault;
    eb_file_fault_set(&fault, "odd");
    assert_false(fault.may_pass);
    assert_false(eb_file_fault_blame(&fault, EMFILE));
    assert_true(fault.may_pass);
    eb_file_fault_locate(&fault, "/a");
    assert_true(fault.may_pass);
    eb_file_fault_blame(&fault, EINVAL);
    assert_false(fault.may_pass);
    static const int passing[] = {ENOENT, ENOTDIR, ELOOP, EACCES, ESTALE};
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++) {
        eb_file_fault_set(&fault, "odd");
        eb_file_fault_blame(&fault, passing[i]);
        assert_true(fault.may_pass);
    }
}

static void escapes_what_would_break_a_line(void **state)
{
    (void)state;
    struct eb_file_fault fault;
    eb_file_fault_set(&fault, "a\nb\x1b[1m \xc3\xa9 \xff");
    assert_string_equal(fault.text, "a\\x0ab\\x1b[1m \xc3\xa9 \\xff");
    eb_file_fault_locate(&fault, "x\ty");
    assert_string_equal(fault.text, "x\\x09y: a\\x0ab\\x1b[1m \xc3\xa9 \\xff");
}

static void cuts_what_does_not_fit(void **state)
{
    (void)state;
    char path[2 * EB_FILE_FAULT_BYTES];
    static const char *const fillings[] = {"a", "\n", "\xc3\xa9"};
    for (size_t i = 0; i < 3; i++) {
        size_t unit = strlen(fillings[i]);
        for (size_t at = 0; at + unit < sizeof path; at += unit) {
            memcpy(path + at, fillings[i], unit + 1);
        }
        struct eb_file_fault fault;
        eb_file_fault_set(&fault, "odd");
        eb_file_fault_locate(&fault, path);
        assert_in_range(strlen(fault.text), EB_FILE_FAULT_BYTES - 8, EB_FILE_FAULT_BYTES - 1);
    }
}

/* A path may be longer than the whole text, and stand in front of one that is long already. */
static void says_what_is_wrong_behind_the_longest_path(void **state)
{
    (void)state;
    char path[PATH_MAX];
    memset(path, 'a', sizeof path);
    path[0] = '/';
    memcpy(path + sizeof path - sizeof "/t.npy", "/t.npy", sizeof "/t.npy");
    struct eb_file_fault fault;
    eb_file_fault_set(&fault, "%s: it is odd", path);
    for (size_t i = 0; i < 3; i++) {
        assert_memory_equal(fault.text, "/aaa", 4);
        assert_non_null(strstr(fault.text, "a..."));
        assert_string_equal(
            fault.text + strlen(fault.text) - strlen("/t.npy: it is odd"), "/t.npy: it is odd");
        eb_file_fault_locate(&fault, path);
    }
}

static void expect_relative(const char *directory, const char *text, const char *expected)
{
    struct eb_file_fault fault;
    eb_file_fault_set(&fault, "%s", text);
    eb_file_fault_make_relative(fault.text, directory);
    assert_string_equal(fault.text, expected);
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

/* The middle of a text that is too long is left out. The end or the beginning of the directory may
 * be in it. */
static void hides_a_directory_that_is_cut(void **state)
{
    (void)state;
    char directory[PATH_MAX] = "";
    for (size_t bytes = 10; bytes < 1200; bytes += 7) {
        struct eb_file_fault fault;
        memset(directory, 'd', bytes);
        memcpy(directory, "/secret/", 8);
        directory[bytes / 2] = '/';
        directory[bytes] = '\0';
        eb_file_fault_set(
            &fault, "%s/a/1/t.npy: it is also in %s/a/1/u.npy; remove one", directory, directory);
        eb_file_fault_make_relative(fault.text, directory);
        assert_null(strstr(fault.text, "secret"));
        assert_null(strstr(fault.text, "dd"));
        assert_non_null(strstr(fault.text, "a/1/u.npy; remove one"));
    }
}

EB_TEST_GROUP(file_fault)
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
