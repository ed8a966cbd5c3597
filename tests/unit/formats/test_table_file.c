#include "server/formats/table_file.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[EB_SCRATCH_PATH_BYTES];

static int set_up(void **state)
{
    if (eb_scratch_set_up(state) != 0) {
        return -1;
    }
    eb_scratch_write(*state, "f", "abcdef", 6);
    eb_scratch_path(*state, "f", path);
    return 0;
}

static void reads_a_range(void **state)
{
    (void)state;
    struct eb_table_file file;
    struct eb_failure failure;
    char bytes[4] = "";
    assert_true(eb_table_file_open(path, &file, &failure));
    assert_int_equal(file.bytes, 6);
    assert_true(eb_table_file_read(&file, 2, bytes, 3, &failure));
    assert_string_equal(bytes, "cde");
    eb_table_file_close(&file);
}

static void says_where_a_file_was_cut_short(void **state)
{
    (void)state;
    struct eb_table_file file;
    struct eb_failure failure;
    char bytes[6];
    assert_true(eb_table_file_open(path, &file, &failure));
    assert_int_equal(truncate(path, 4), 0);
    assert_false(eb_table_file_read(&file, 0, bytes, 6, &failure));
    eb_scratch_expect(failure.text, "byte 4: the file was cut short");
    assert_true(failure.is_transient);
    eb_table_file_close(&file);
}

static void refuses_what_is_no_file(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_table_file file;
    struct eb_failure failure;
    assert_false(eb_table_file_open(scratch->root, &file, &failure));
    eb_scratch_expect(failure.text, "not a regular file");
    char fifo[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "fifo", fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_false(eb_table_file_open(fifo, &file, &failure));
    eb_scratch_expect(failure.text, "not a regular file");
    assert_false(eb_table_file_open("/nowhere", &file, &failure));
    eb_scratch_expect(failure.text, "No such file or directory); check the path");
}

static void notices_that_a_file_has_changed(void **state)
{
    (void)state;
    struct eb_table_file before;
    struct eb_table_file after;
    struct eb_failure failure;
    assert_true(eb_table_file_open(path, &before, &failure));
    eb_table_file_close(&before);
    assert_true(eb_table_file_open(path, &after, &failure));
    assert_true(eb_table_file_is_same(&before, &after));
    eb_table_file_close(&after);
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_true(eb_table_file_open(path, &after, &failure));
    assert_false(eb_table_file_is_same(&before, &after));
    eb_table_file_close(&after);
}

static void says_which_failures_are_transient(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_table_file file;
    struct eb_failure failure;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool is_open = eb_table_file_open(path, &file, &failure);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(is_open);
    assert_true(failure.is_transient);
    assert_false(eb_table_file_open("/nowhere", &file, &failure));
    assert_true(failure.is_transient);
    assert_false(eb_table_file_open(scratch->root, &file, &failure));
    assert_false(failure.is_transient);
}

EB_TEST_GROUP(table_file)
{
#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(reads_a_range),
        WITH_ROOT(says_where_a_file_was_cut_short),
        WITH_ROOT(refuses_what_is_no_file),
        WITH_ROOT(says_which_failures_are_transient),
        WITH_ROOT(notices_that_a_file_has_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
