#include "server/models/file_fault.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_as_printf_does),
        cmocka_unit_test(puts_the_path_in_front),
        cmocka_unit_test(tells_what_may_pass_from_what_stays),
        cmocka_unit_test(escapes_what_would_break_a_line),
        cmocka_unit_test(cuts_what_does_not_fit),
        cmocka_unit_test(says_what_is_wrong_behind_the_longest_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
