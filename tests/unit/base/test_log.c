#include "proto/splitmix64.h"
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
#include <jansson.h>

static char captured[16384];
static struct eb_capture capture;

/* The time that the log's clock reads. If it is zeroed, the clock reads the system's time. */
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

/* Returns what is logged after the time stamp for one text. */
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
    /* Days around the ends of Februaries and of years, in four centuries. */
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
    /* Every alignment of a two-byte character, of an escape and of a plain byte at the end of the
     * line. */
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

/* ---- JSON ---- */

static int choose_json(void **state)
{
    (void)state;
    eb_log_set_format(EB_LOG_JSON);
    return 0;
}

static int choose_logfmt(void **state)
{
    (void)state;
    eb_log_set_format(EB_LOG_LOGFMT);
    return 0;
}

/* Expects one log line that is a JSON object without duplicate keys. Returns the object, which the
 * caller frees. */
static json_t *parse_captured(void)
{
    json_error_t error;
    size_t length = strlen(captured);
    assert_in_range(length, 1, 4096);
    assert_ptr_equal(strchr(captured, '\n'), captured + length - 1);
    /* Jansson's integers end at INT64_MAX, so numbers are read as reals. */
    json_t *object = json_loads(captured, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!object) {
        fail_msg("%s at %d: %s", error.text, error.position, captured);
    }
    assert_true(json_is_object(object));
    assert_string_equal(json_string_value(json_object_get(object, "event")), "test");
    return object;
}

static void writes_one_json_line(void **state)
{
    (void)state;
    capture_start();
    eb_log(EB_LOG_WARN, "listening", eb_log_text("address", "127.0.0.1:8600"),
        eb_log_number("loops", 2), eb_log_number("least", INT64_MIN),
        eb_log_count("most", UINT64_MAX), eb_log_truth("stream", true),
        eb_log_truth("sampled", false), eb_log_text("said", "true"), eb_log_text("nothing", NULL));
    capture_stop();
    static const char stamp[] = "{\"ts\":\"0000-00-00T00:00:00.000Z\"";
    for (size_t i = 0; i < strlen(stamp); i++) {
        if (stamp[i] == '0') {
            assert_in_range(captured[i], '0', '9');
        } else {
            assert_int_equal(captured[i], stamp[i]);
        }
    }
    assert_string_equal(captured + strlen(stamp),
        ",\"level\":\"warn\",\"event\":\"listening\",\"address\":\"127.0.0.1:8600\",\"loops\":2,"
        "\"least\":-9223372036854775808,\"most\":18446744073709551615,\"stream\":true,"
        "\"sampled\":false,\"said\":\"true\",\"nothing\":\"\"}\n");
}

static void writes_a_last_line_and_a_failed_start_as_json(void **state)
{
    (void)state;
    capture_start();
    const struct eb_log_field fields[] = {eb_log_text("signal", "SIGTERM"), {0}};
    eb_log_last("stopped", fields);
    eb_log_fail_start("loops", "no \"memory\"", "free some");
    capture_stop();
    assert_non_null(strstr(
        captured, ",\"level\":\"info\",\"event\":\"stopped\",\"signal\":\"SIGTERM\"}\n{\"ts\":\""));
    assert_non_null(
        strstr(captured, ",\"level\":\"error\",\"event\":\"start_failed\",\"what\":\"loops\","
                         "\"reason\":\"no \\\"memory\\\"\",\"remedy\":\"free some\"}\n"));
}

static void escapes_in_json_what_could_forge_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *value;
    } cases[] = {
        {"a b=c/<d>'", "a b=c/<d>'"},
        {"gr\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80", "gr\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"a\"b\\c", "a\\\"b\\\\c"},
        {"a\nb\rc\td", "a\\nb\\rc\\td"},
        {"\x1b[31m\x7f\x01", "\\u001b[31m\\u007f\\u0001"},
        {"\xff"
         "a\xc3",
            "\\ufffda\\ufffd"},
        {"\xc0\xaf", "\\ufffd\\ufffd"},
        {"\xe0\x80\xaf", "\\ufffd\\ufffd\\ufffd"},
        {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},
        {"\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"},
        {"\xe2\x82", "\\ufffd\\ufffd"},
        {"\xe2\x80", "\\ufffd\\ufffd"},
        {"\xc2", "\\ufffd"},
        {"\xc2\x80\xc2\x85\xc2\x9f\xc2\xa0", "\\u0080\\u0085\\u009f\xc2\xa0"},
        {"\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9", "\\u2028\\u202e\\u2066\\u2069"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[128];
        snprintf(expected, sizeof expected, ",\"key\":\"%s\"}\n", cases[i].value);
        capture_start();
        eb_log(EB_LOG_INFO, "test", eb_log_text("key", cases[i].text));
        capture_stop();
        assert_string_equal(strstr(captured, ",\"key\""), expected);
        json_decref(parse_captured());
    }
}

/* Tries every alignment of each kind of character at the end of the line. The object is closed all
 * the same, and its text is the beginning of the logged text. */
static void closes_a_json_line_that_it_cuts(void **state)
{
    (void)state;
    static const char *const units[] = {
        "x", "\xc3\xbc", "\xf0\x9f\x98\x80", "\x01", "\"", "\xe2\x80\xa8"};
    for (size_t unit = 0; unit < sizeof units / sizeof units[0]; unit++) {
        for (size_t shift = 0; shift < 7; shift++) {
            char text[8000] = {0};
            memset(text, 'y', shift);
            while (strlen(text) + 5 < sizeof text) {
                strcat(text, units[unit]);
            }
            capture_start();
            eb_log(EB_LOG_INFO, "test", eb_log_text("key", text), eb_log_number("behind", 1));
            capture_stop();
            assert_in_range(strlen(captured), 4096 - 6, 4096);
            json_t *line = parse_captured();
            const char *value = json_string_value(json_object_get(line, "key"));
            assert_memory_equal(value, text, strlen(value));
            assert_true((strlen(value) - shift) % strlen(units[unit]) == 0);
            assert_null(json_object_get(line, "behind"));
            json_decref(line);
        }
    }
}

static void cuts_neither_numbers_nor_keys_in_json(void **state)
{
    (void)state;
    for (size_t length = 3900; length < 4100; length++) {
        char text[4200] = {0};
        memset(text, 'x', length);
        capture_start();
        eb_log(EB_LOG_INFO, "test", eb_log_text("key", text), eb_log_number("least", INT64_MIN),
            eb_log_truth("truth", false), eb_log_text("text", "\x01\x01\x01\x01\x01\x01"),
            eb_log_count("most", UINT64_MAX));
        capture_stop();
        json_t *line = parse_captured();
        assert_true(!strstr(captured, "least") || strstr(captured, ":-9223372036854775808"));
        assert_true(!strstr(captured, "truth") || strstr(captured, ":false"));
        assert_true(!strstr(captured, "most") || strstr(captured, ":18446744073709551615}\n"));
        json_decref(line);
    }
}

/* Fills `text` with bytes, many of which have a meaning in JSON, in UTF-8 or in a log. */
static void fill_text(char *text, size_t size, uint64_t *random)
{
    static const char marks[] =
        "\"\\{}[],: \n\r\t=u0xfd\xc2\x80\x85\xe2\x80\xa8\xae\xf0\x9f\xed\xff\x7f";
    for (size_t i = 0; i < size; i++) {
        uint64_t number = eb_splitmix64_next(random);
        text[i] =
            number % 4 ? marks[number / 4 % (sizeof marks - 1)] : (char)(1 + number / 4 % 255);
    }
    text[size] = '\0';
}

static void writes_json_that_parses_whatever_a_peer_sends(void **state)
{
    (void)state;
    uint64_t random = 17;
    for (int i = 0; i < 20000; i++) {
        char first[2200];
        char second[2200];
        uint64_t sizes = eb_splitmix64_next(&random);
        bool is_long = i % 8 == 0;
        fill_text(first, sizes % (is_long ? 2000 : 40), &random);
        fill_text(second, sizes / 2000 % (is_long ? 2000 : 40), &random);
        capture_start();
        eb_log(EB_LOG_INFO, "test", eb_log_text("first", first), eb_log_number("number", i),
            eb_log_text("second", second));
        capture_stop();
        json_decref(parse_captured());
    }
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

/* Nobody reads from the terminal, so the terminal takes only a few lines. */
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

#define JSON_TEST(name) cmocka_unit_test_setup_teardown(name, choose_json, choose_logfmt)

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
        JSON_TEST(writes_one_json_line),
        JSON_TEST(writes_a_last_line_and_a_failed_start_as_json),
        JSON_TEST(escapes_in_json_what_could_forge_a_line),
        JSON_TEST(closes_a_json_line_that_it_cuts),
        JSON_TEST(cuts_neither_numbers_nor_keys_in_json),
        JSON_TEST(writes_json_that_parses_whatever_a_peer_sends),
        cmocka_unit_test(names_and_parses_levels),
        cmocka_unit_test(does_not_wait_for_a_terminal_that_stands_still),
        cmocka_unit_test(survives_a_closed_stderr_and_keeps_errno),
    };
    return cmocka_run_group_tests(tests, pretend_time, eb_faults_tear_down);
}
