/* What one thread notes of its reads, and what another is told of them. */
#include "server/base/read_watch.h"

#include "server/base/directory.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define STALL_MS 1000

static struct eb_read_watch watch;
static struct eb_read_stall stall;
static uint64_t now_ms;

static int read_clock(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_MONOTONIC_COARSE) {
        return __real_clock_gettime(clock, out);
    }
    *out = (struct timespec){(time_t)(now_ms / 1000), (long)(now_ms % 1000) * 1000000};
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    now_ms = 5000;
    eb_faults.clock_gettime = read_clock;
    bool is_good = eb_read_watch_init(&watch);
    eb_read_watch_attach(&watch);
    return is_good ? 0 : -1;
}

static int tear_down(void **state)
{
    eb_read_watch_attach(NULL);
    eb_read_watch_deinit(&watch);
    return eb_faults_tear_down(state);
}

static enum eb_read_watch_event look(void)
{
    return eb_read_watch_check(&watch, STALL_MS, &stall);
}

static void tells_once_of_a_read_that_takes_long(void **state)
{
    (void)state;
    assert_int_equal(look(), EB_READ_WATCH_QUIET);
    eb_read_watch_begin("a/file");
    now_ms += STALL_MS - 1;
    assert_int_equal(look(), EB_READ_WATCH_QUIET);
    now_ms += 1;
    assert_int_equal(look(), EB_READ_WATCH_STALLED);
    assert_string_equal(stall.path, "a/file");
    assert_int_equal(stall.seconds, 1);
    now_ms += 100 * STALL_MS;
    assert_int_equal(look(), EB_READ_WATCH_QUIET);
    eb_read_watch_end();
    assert_int_equal(look(), EB_READ_WATCH_RESUMED);
    assert_int_equal(look(), EB_READ_WATCH_QUIET);
}

static void tells_of_two_reads_one_after_the_other(void **state)
{
    (void)state;
    eb_read_watch_begin("first");
    now_ms += STALL_MS;
    assert_int_equal(look(), EB_READ_WATCH_STALLED);
    eb_read_watch_end();
    eb_read_watch_begin("second");
    now_ms += 2 * STALL_MS;
    assert_int_equal(look(), EB_READ_WATCH_RESUMED);
    assert_int_equal(look(), EB_READ_WATCH_STALLED);
    assert_string_equal(stall.path, "second");
    assert_int_equal(stall.seconds, 2);
    eb_read_watch_end();
}

static void many_short_reads_are_not_a_long_one(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        eb_read_watch_begin("a/file");
        now_ms += STALL_MS - 1;
        assert_int_equal(look(), EB_READ_WATCH_QUIET);
        eb_read_watch_end();
    }
}

static void a_thread_without_a_watch_notes_nothing(void **state)
{
    (void)state;
    eb_read_watch_attach(NULL);
    eb_read_watch_begin("a/file");
    now_ms += STALL_MS;
    assert_int_equal(look(), EB_READ_WATCH_QUIET);
    eb_read_watch_end();
}

static void cuts_a_path_that_is_too_long(void **state)
{
    (void)state;
    char path[EB_READ_WATCH_PATH_BYTES + 1];
    memset(path, 'p', EB_READ_WATCH_PATH_BYTES);
    path[EB_READ_WATCH_PATH_BYTES] = '\0';
    eb_read_watch_begin(path);
    now_ms += STALL_MS;
    assert_int_equal(look(), EB_READ_WATCH_STALLED);
    assert_int_equal(strlen(stall.path), EB_READ_WATCH_PATH_BYTES - 1);
    eb_read_watch_end();
}

static void directories_are_watched(void **state)
{
    (void)state;
    struct eb_directory listing;
    struct eb_failure failure;
    assert_true(eb_directory_read("/", &listing, &failure));
    eb_directory_deinit(&listing);
    assert_string_equal(watch.path, "/");
    assert_int_equal(watch.since_ms, 0);
}

EB_TEST_GROUP(read_watch)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(tells_once_of_a_read_that_takes_long),
        TEST(tells_of_two_reads_one_after_the_other),
        TEST(many_short_reads_are_not_a_long_one),
        TEST(a_thread_without_a_watch_notes_nothing),
        TEST(cuts_a_path_that_is_too_long),
        TEST(directories_are_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
