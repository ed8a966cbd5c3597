#include "client/cli/progress_bar.h"

#include "tests/lib/test_group.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)
#define TEXT_BYTES 4096
#define DEADLINE_MS 30000

static int saved;

/* Makes `file` standard error. */
static void redirect(int file)
{
    saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && file >= 0);
    assert_true(dup2(file, STDERR_FILENO) >= 0);
}

static void restore(void)
{
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    assert_int_equal(close(saved), 0);
}

/* Advances a bar of this name and size in 1000 steps while standard error is a file, and reads that
 * file. */
static void run_in_file(const char *name, uint64_t bytes, char text[TEXT_BYTES])
{
    struct eb_progress_bar bar;
    int file = memfd_create("stderr", 0);
    redirect(file);
    eb_progress_bar_init(&bar, name, bytes);
    for (int i = 0; i < 1000; i++) {
        eb_progress_bar_advance(&bar, bytes / 1000);
    }
    eb_progress_bar_advance(&bar, bytes % 1000);
    eb_progress_bar_end(&bar);
    restore();
    ssize_t got = pread(file, text, TEXT_BYTES - 1, 0);
    assert_true(got >= 0);
    text[got] = '\0';
    assert_int_equal(close(file), 0);
}

static void says_a_line_for_each_tenth_of_much(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    unsigned lines = 0;
    run_in_file("it", 4 * GIB, text);
    for (const char *at = text; (at = strchr(at, '\n')); at++) {
        lines++;
    }
    assert_int_equal(lines, 10);
    assert_non_null(strstr(text, "embag: it: 10 % of 4096 MiB\n"));
    assert_non_null(strstr(text, "embag: it: 100 % of 4096 MiB\n"));
}

static void says_nothing_of_little(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    run_in_file("it", 1000000, text);
    assert_string_equal(text, "");
    run_in_file("it", 0, text);
    assert_string_equal(text, "");
}

static void shows_a_name_that_would_move_the_cursor_as_text(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    run_in_file("a\x1b[2J\nb", 4 * GIB, text);
    assert_non_null(strstr(text, "embag: a\\x1b[2J\\x0ab: 10 % of 4096 MiB\n"));
    assert_null(strchr(text, '\x1b'));
}

/* Reads until a line has ended. A terminal may deliver its output in pieces. */
static void read_bar_line(int terminal, char text[TEXT_BYTES])
{
    size_t used = 0;
    while (!strchr(text, '\n')) {
        struct pollfd ready = {.fd = terminal, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, DEADLINE_MS), 1);
        ssize_t got = read(terminal, text + used, TEXT_BYTES - 1 - used);
        assert_true(got > 0);
        used += (size_t)got;
    }
}

static void draws_on_a_terminal(void **state)
{
    (void)state;
    char text[TEXT_BYTES] = "";
    struct eb_progress_bar bar;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int file = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    redirect(file);
    eb_progress_bar_init(&bar, "i\x1b[2Jt", 200);
    eb_progress_bar_advance(&bar, 1);
    eb_progress_bar_advance(&bar, 99);
    bool was_open = bar.is_line_open;
    eb_progress_bar_end(&bar);
    restore();
    assert_true(was_open);
    read_bar_line(terminal, text);
    assert_non_null(strstr(text, "\ri\\x1b[2Jt [####################                    ]  50 %"));
    assert_int_equal(text[strlen(text) - 1], '\n');
    assert_int_equal(close(file), 0);
    assert_int_equal(close(terminal), 0);
}

EB_TEST_GROUP(progress_bar)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_a_line_for_each_tenth_of_much),
        cmocka_unit_test(says_nothing_of_little),
        cmocka_unit_test(shows_a_name_that_would_move_the_cursor_as_text),
        cmocka_unit_test(draws_on_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
