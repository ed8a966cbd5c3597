#include "server/base/log.h"
#include "tests/lib/capture.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <errno.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char captured[16384];
static struct eb_capture capture;

/* What time it is; zeroed: what the system says. */
static struct timespec now;

static int read_log_clock(clockid_t clock, struct timespec *out)
{
    *out = now;
    return now.tv_nsec > 0 ? 0 : __real_clock_gettime(clock, out);
}

static int pretend_time(void **state)
{
    (void)state;
    eb_faults.clock_gettime = read_log_clock;
    return 0;
}

static void capture_start(void)
{
    eb_capture_start(&capture, STDERR_FILENO);
}

static void capture_stop(void)
{
    eb_capture_stop(&capture, captured, sizeof captured);
}

/* What is logged behind the time stamp for one text. */
static const char *line_of(const char *text)
{
    capture_start();
    eb_log(EB_LOG_INFO, "test", eb_log_text("key", text));
    capture_stop();
    char *rest = strchr(captured, ' ');
    assert_non_null(rest);
    return rest + 1;
}

static void writes_one_logfmt_line(void **state)
{
    (void)state;
    capture_start();
    eb_log(EB_LOG_WARN, "listening", eb_log_text("address", "127.0.0.1:8600"),
        eb_log_number("loops", 2), eb_log_number("least", INT64_MIN),
        eb_log_count("most", UINT64_MAX));
    capture_stop();
    static const char stamp[] = "ts=0000-00-00T00:00:00.000Z";
    for (size_t i = 0; i < strlen(stamp); i++) {
        if (stamp[i] == '0') {
            assert_in_range(captured[i], '0', '9');
        } else {
            assert_int_equal(captured[i], stamp[i]);
        }
    }
    assert_string_equal(captured + strlen(stamp),
        " level=warn event=listening address=127.0.0.1:8600 loops=2 least=-9223372036854775808 "
        "most=18446744073709551615\n");
}

static void tells_the_day_as_the_calendar_has_it(void **state)
{
    (void)state;
    /* Days around the ends of Februaries and years, of four centuries. */
    for (int year = 70; year < 500; year++) {
        for (int month = 0; month < 12; month += year % 4 == 0 ? 1 : 11) {
            for (int day = 0; day < 3; day++) {
                struct tm parts = {.tm_year = year, .tm_mon = month, .tm_mday = day, .tm_sec = -1};
                char expected[64];
                now = (struct timespec){timegm(&parts), 7999999};
                now.tv_sec = now.tv_sec < 0 ? 0 : now.tv_sec;
                gmtime_r(&now.tv_sec, &parts);
                strftime(expected, sizeof expected, "ts=%Y-%m-%dT%H:%M:%S.007Z ", &parts);
                line_of("a");
                assert_memory_equal(captured, expected, strlen(expected));
            }
        }
    }
    now = (struct timespec){0};
}

static void writes_a_last_line_at_its_level(void **state)
{
    (void)state;
    capture_start();
    const struct eb_log_field fields[] = {eb_log_text("signal", "SIGTERM"), {0}};
    eb_log_last("stopped", fields);
    eb_log_set_level(EB_LOG_WARN);
    eb_log_last("not", fields);
    eb_log_set_level(EB_LOG_INFO);
    capture_stop();
    assert_non_null(strstr(captured, " level=info event=stopped signal=SIGTERM\n"));
    assert_null(strstr(captured, "event=not"));
}

static void leaves_plain_text_and_utf8_unquoted(void **state)
{
    (void)state;
    assert_string_equal(line_of("a-b/c:d,e"), "level=info event=test key=a-b/c:d,e\n");
    assert_string_equal(line_of("gr\xc3\xbc\xc3\x9f\xe2\x82\xac\xf0\x9f\x98\x80"),
        "level=info event=test key=gr\xc3\xbc\xc3\x9f\xe2\x82\xac\xf0\x9f\x98\x80\n");
}

static void quotes_and_escapes_what_could_forge_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *value;
    } cases[] = {
        {"", "\"\""},
        {"a b", "\"a b\""},
        {"a=b", "\"a=b\""},
        {"a\"b", "\"a\\\"b\""},
        {"a\\b", "\"a\\\\b\""},
        {"a\nb\rc\td", "\"a\\nb\\rc\\td\""},
        {"\x1b[31m\x7f\x01", "\"\\x1b[31m\\x7f\\x01\""},
        {"\xff"
         "a\xc3",
            "\"\\xffa\\xc3\""},
        {"\xc0\xaf", "\"\\xc0\\xaf\""},
        {"\xe0\x80\xaf", "\"\\xe0\\x80\\xaf\""},
        {"\xed\xa0\x80", "\"\\xed\\xa0\\x80\""},
        {"\xf4\x90\x80\x80", "\"\\xf4\\x90\\x80\\x80\""},
        {"\xe2\x82", "\"\\xe2\\x82\""},
        {"\xc2\x85", "\"\\xc2\\x85\""},
        {"\xe2\x80\xa8", "\"\\xe2\\x80\\xa8\""},
        {"\xe2\x80\xae", "\"\\xe2\\x80\\xae\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[128];
        snprintf(expected, sizeof expected, "level=info event=test key=%s\n", cases[i].value);
        assert_string_equal(line_of(cases[i].text), expected);
    }
}

static void takes_null_for_an_empty_text(void **state)
{
    (void)state;
    assert_string_equal(line_of(NULL), "level=info event=test key=\"\"\n");
}

static void cuts_a_long_line_between_characters(void **state)
{
    (void)state;
    /* Every alignment of a character of two bytes, of an escape and of a plain byte to the end. */
    static const char *const units[] = {"x", "\xc3\xbc", "\x01", "a b"};
    for (size_t unit = 0; unit < 4; unit++) {
        for (size_t shift = 0; shift < 5; shift++) {
            char text[8000] = {0};
            memset(text, 'y', shift);
            while (strlen(text) + 4 < sizeof text) {
                strcat(text, units[unit]);
            }
            capture_start();
            eb_log(EB_LOG_INFO, "test", eb_log_text("key", text), eb_log_number("behind", 1));
            capture_stop();
            size_t length = strlen(captured);
            assert_in_range(length, 4096 - 6, 4096);
            assert_ptr_equal(strchr(captured, '\n'), captured + length - 1);
            assert_null(strstr(captured, "behind"));
            size_t quotes = 0;
            for (size_t i = 0; i < length; i++) {
                quotes += captured[i] == '"';
            }
            assert_true(quotes == (unit < 2 ? 0 : 2));
            if (unit == 1) {
                assert_int_equal((unsigned char)captured[length - 2], 0xbc);
            }
            if (unit == 2) {
                assert_memory_equal(captured + length - 6, "\\x01\"\n", 6);
            }
        }
    }
}

static void cuts_no_number(void **state)
{
    (void)state;
    for (size_t length = 3900; length < 4096; length++) {
        char text[4100] = {0};
        memset(text, 'x', length);
        capture_start();
        eb_log(EB_LOG_INFO, "test", eb_log_text("key", text),
            eb_log_number("number", 1234567890123456789));
        capture_stop();
        const char *number = strstr(captured, " number");
        assert_true(!number || strcmp(number, " number=1234567890123456789\n") == 0);
        assert_true(strlen(captured) <= 4096);
    }
}

static void drops_levels_below_the_one_set(void **state)
{
    (void)state;
    capture_start();
    eb_log_set_level(EB_LOG_WARN);
    eb_log(EB_LOG_INFO, "not", eb_log_number("n", 1));
    eb_log(EB_LOG_ERROR, "this", eb_log_number("n", 1));
    eb_log_set_level(EB_LOG_INFO);
    eb_log(EB_LOG_DEBUG, "not", eb_log_number("n", 1));
    capture_stop();
    assert_null(strstr(captured, "event=not"));
    assert_non_null(strstr(captured, "level=error event=this n=1\n"));
}

static void names_and_parses_levels(void **state)
{
    (void)state;
    for (int level = EB_LOG_DEBUG; level <= EB_LOG_ERROR; level++) {
        assert_int_equal(eb_log_level_parse(eb_log_level_name((enum eb_log_level)level)), level);
    }
    assert_int_equal(eb_log_level_parse("verbose"), -1);
    assert_int_equal(eb_log_level_parse(""), -1);
    assert_int_equal(eb_log_level_parse("INFO"), -1);
}

static void survives_a_closed_stderr_and_keeps_errno(void **state)
{
    (void)state;
    int before = dup(STDERR_FILENO);
    assert_true(before >= 0);
    close(STDERR_FILENO);
    errno = ENOENT;
    eb_log(EB_LOG_ERROR, "lost", eb_log_number("n", 1));
    int error = errno;
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    assert_int_equal(error, ENOENT);
}

/* Its reader does not read: the lines that it takes are few. */
static void does_not_wait_for_a_terminal_that_stands_still(void **state)
{
    (void)state;
    int reader;
    int terminal;
    char text[512];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(openpty(&reader, &terminal, NULL, NULL, NULL), 0);
    int before = dup(STDERR_FILENO);
    assert_true(before >= 0);
    assert_int_equal(dup2(terminal, STDERR_FILENO), STDERR_FILENO);
    eb_log_open();
    for (int i = 0; i < 1000; i++) {
        eb_log(EB_LOG_INFO, "test", eb_log_text("key", text));
    }
    eb_log_close();
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    close(terminal);
    close(reader);
}

EB_TEST_GROUP(log)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_one_logfmt_line),
        cmocka_unit_test(tells_the_day_as_the_calendar_has_it),
        cmocka_unit_test(writes_a_last_line_at_its_level),
        cmocka_unit_test(leaves_plain_text_and_utf8_unquoted),
        cmocka_unit_test(quotes_and_escapes_what_could_forge_a_line),
        cmocka_unit_test(takes_null_for_an_empty_text),
        cmocka_unit_test(cuts_a_long_line_between_characters),
        cmocka_unit_test(cuts_no_number),
        cmocka_unit_test(drops_levels_below_the_one_set),
        cmocka_unit_test(names_and_parses_levels),
        cmocka_unit_test(does_not_wait_for_a_terminal_that_stands_still),
        cmocka_unit_test(survives_a_closed_stderr_and_keeps_errno),
    };
    return cmocka_run_group_tests(tests, pretend_time, eb_faults_tear_down);
}
