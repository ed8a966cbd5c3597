#include "server/stats/access_log.h"

#include "server/base/log.h"
#include "tests/lib/capture.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NOW_MS UINT64_C(7000000)
#define LINE_BYTES_MAX 4096

static const struct eb_trace_parent no_trace;
static char captured[16384];

static struct eb_access_record lookup_record(void)
{
    return (struct eb_access_record){.method = "embag.v1.EmbeddingBag/Lookup",
        .peer = "127.0.0.1:4000",
        .trace = &no_trace,
        .is_good = true,
        .is_timed = true,
        .is_lookup = true,
        .total_ns = 123999,
        .queue_ns = 100000,
        .compute_ns = 23999,
        .model = "ads",
        .version = 7,
        .request_id = UINT64_MAX,
        .queries = 26,
        .bags = 27,
        .rows = 28,
        .missing = 2,
        .in_bytes = 1000,
        .out_bytes = 2000};
}

/* Returns the log line of a record, without the time. */
static const char *line_of(const struct eb_access_record *record)
{
    struct eb_capture capture;
    eb_capture_start(&capture, STDERR_FILENO);
    eb_access_log_write(record);
    eb_capture_stop(&capture, captured, sizeof captured);
    const char *rest = strchr(captured, ' ');
    assert_non_null(rest);
    return rest + 1;
}

static const char *report_of(struct eb_access_log *log, uint64_t now_ms)
{
    struct eb_capture capture;
    eb_capture_start(&capture, STDERR_FILENO);
    eb_access_log_report(log, now_ms);
    eb_capture_stop(&capture, captured, sizeof captured);
    return captured;
}

/* ---- lines ---- */

static void tells_all_of_a_lookup(void **state)
{
    (void)state;
    struct eb_trace_parent trace = {"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", true};
    struct eb_access_record record = lookup_record();
    record.trace = &trace;
    record.principal = "ranking";
    assert_string_equal(line_of(&record),
        "level=info event=request code=OK method=embag.v1.EmbeddingBag/Lookup stream=false "
        "peer=127.0.0.1:4000 trace_id=4bf92f3577b34da6a3ce929d0e0e4736 "
        "span_id=00f067aa0ba902b7 parent_id=00f067aa0ba902b7 sampled=true total_us=123 "
        "queue_us=100 compute_us=23 "
        "queries=26 bags=27 rows=28 missing=2 in_bytes=1000 out_bytes=2000 "
        "request_id=18446744073709551615 priority=interactive version=7 model=ads "
        "principal=ranking\n");
    trace.is_sampled = false;
    record.is_batch = true;
    record.is_stream = true;
    const char *line = line_of(&record);
    assert_non_null(strstr(line, " sampled=false "));
    assert_non_null(strstr(line, " priority=batch "));
    assert_non_null(strstr(line, " stream=true "));
}

static void tells_the_same_of_a_lookup_as_json(void **state)
{
    (void)state;
    struct eb_trace_parent trace = {"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", true};
    struct eb_access_record record = lookup_record();
    record.trace = &trace;
    record.status = EB_STATUS_NOT_FOUND;
    record.principal = "ranking";
    record.error = "no model \"ads\"";
    struct eb_capture capture;
    eb_log_set_format(EB_LOG_JSON);
    eb_capture_start(&capture, STDERR_FILENO);
    eb_access_log_write(&record);
    eb_capture_stop(&capture, captured, sizeof captured);
    eb_log_set_format(EB_LOG_LOGFMT);
    assert_string_equal(strchr(captured, ','),
        ",\"level\":\"info\",\"event\":\"request\",\"code\":\"NOT_FOUND\","
        "\"method\":\"embag.v1.EmbeddingBag/Lookup\",\"stream\":false,"
        "\"peer\":\"127.0.0.1:4000\",\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\","
        "\"span_id\":\"00f067aa0ba902b7\",\"parent_id\":\"00f067aa0ba902b7\",\"sampled\":true,"
        "\"total_us\":123,\"queue_us\":100,\"compute_us\":23,\"queries\":26,\"bags\":27,"
        "\"rows\":28,\"missing\":2,\"in_bytes\":1000,\"out_bytes\":2000,"
        "\"request_id\":18446744073709551615,\"priority\":\"interactive\",\"version\":7,"
        "\"model\":\"ads\",\"principal\":\"ranking\",\"error\":\"no model \\\"ads\\\"\"}\n");
}

static void tells_no_more_than_is_known(void **state)
{
    (void)state;
    struct eb_access_record record = {.method = "a/B",
        .peer = "unix:",
        .trace = &no_trace,
        .status = EB_STATUS_UNIMPLEMENTED,
        .error = "no method \"/a/B\""};
    assert_string_equal(line_of(&record),
        "level=info event=request code=UNIMPLEMENTED method=a/B stream=false peer=unix: "
        "error=\"no method \\\"/a/B\\\"\"\n");
}

static void tells_an_answer_that_has_not_left_apart(void **state)
{
    (void)state;
    struct eb_access_record record = {.method = "a/B",
        .peer = "unix:",
        .trace = &no_trace,
        .status = EB_STATUS_DEADLINE_EXCEEDED,
        .is_unsent = true,
        .request_id = 9};
    assert_string_equal(line_of(&record),
        "level=info event=answer_unsent code=DEADLINE_EXCEEDED method=a/B stream=false peer=unix: "
        "request_id=9\n");
}

static size_t count_newlines(const char *text)
{
    size_t count = 0;
    for (; *text; text++) {
        count += *text == '\n';
    }
    return count;
}

static void lets_no_text_forge_a_line(void **state)
{
    (void)state;
    static const char forged[] =
        "x\" code=OK\nts=2026-01-01T00:00:00.000Z level=info event=request";
    struct eb_access_record record = lookup_record();
    record.status = EB_STATUS_NOT_FOUND;
    record.method = record.model = record.principal = record.error = forged;
    const char *line = line_of(&record);
    assert_int_equal(count_newlines(line), 1);
    assert_null(strstr(line + 1, "\nts="));
    assert_non_null(strstr(line, " model=\"x\\\" code=OK\\nts=2026-01-01T00:00:00.000Z level=info "
                                 "event=request\" principal="));
}

static void cuts_what_is_too_long_and_hides_nothing_else(void **state)
{
    (void)state;
    static char text[EB_ERROR_TEXT_BYTES];
    memset(text, '\n', sizeof text - 1);
    struct eb_access_record record = lookup_record();
    record.status = EB_STATUS_NOT_FOUND;
    record.error = text;
    const char *line = line_of(&record);
    assert_true(strlen(captured) <= LINE_BYTES_MAX);
    assert_int_equal(count_newlines(line), 1);
    assert_non_null(strstr(line, " out_bytes=2000 "));
    assert_non_null(strstr(line, " model=ads "));
    assert_int_equal(line[strlen(line) - 2], '"');
}

/* ---- which requests are logged ---- */

static unsigned count_wanted(struct eb_access_log *log, unsigned asked, bool is_good)
{
    unsigned count = 0;
    for (unsigned i = 0; i < asked; i++) {
        count += eb_access_log_wants(log, is_good, false);
    }
    return count;
}

static void wants_what_its_mode_says(void **state)
{
    (void)state;
    static const struct {
        enum eb_access_log_mode mode;
        unsigned good, failed;
    } cases[] = {{EB_ACCESS_LOG_ERRORS, 0, 100}, {EB_ACCESS_LOG_OFF, 0, 0},
        {EB_ACCESS_LOG_SAMPLED, 10, 100}, {EB_ACCESS_LOG_ALL, 100, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_access_log log = {0};
        eb_access_log_set(&log, cases[i].mode, 10, 1);
        assert_int_equal(count_wanted(&log, 100, true), cases[i].good);
        assert_int_equal(count_wanted(&log, 100, false), cases[i].failed);
    }
}

static void samples_exactly(void **state)
{
    (void)state;
    static const uint32_t samples[] = {1, 2, 3, 1000};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        struct eb_access_log log = {0};
        eb_access_log_set(&log, EB_ACCESS_LOG_SAMPLED, samples[i], 1);
        for (unsigned n = 0; n < 3001; n++) {
            /* Failures between successes do not count towards the sample. */
            assert_true(eb_access_log_wants(&log, false, false));
            assert_int_equal(eb_access_log_wants(&log, true, false), n % samples[i] == 0);
        }
    }
}

static void wants_what_its_caller_has_sampled_where_it_samples(void **state)
{
    (void)state;
    struct eb_access_log log = {0};
    eb_access_log_set(&log, EB_ACCESS_LOG_SAMPLED, 3, 1);
    for (unsigned n = 0; n < 9; n++) {
        assert_int_equal(eb_access_log_wants(&log, true, n % 2 == 1), n % 2 == 1 || n % 3 == 0);
    }
    eb_access_log_set(&log, EB_ACCESS_LOG_ERRORS, 3, 1);
    assert_false(eb_access_log_wants(&log, true, true));
    eb_access_log_set(&log, EB_ACCESS_LOG_OFF, 3, 1);
    assert_false(eb_access_log_wants(&log, false, true));
}

static void counts_what_is_too_much_for_a_second(void **state)
{
    (void)state;
    struct eb_access_log log = {0};
    eb_access_log_set(&log, EB_ACCESS_LOG_ALL, 1, 5);
    for (unsigned n = 0; n < 7; n++) {
        assert_int_equal(eb_access_log_admits(&log, true, NOW_MS), n < 5);
    }
    /* Logged successes do not keep failures out. */
    for (unsigned n = 0; n < 8; n++) {
        assert_int_equal(eb_access_log_admits(&log, false, NOW_MS + 999), n < 5);
    }
    assert_string_equal(report_of(&log, NOW_MS + 999), "");
    const char *line = report_of(&log, NOW_MS + 1999);
    assert_non_null(strstr(line, " level=warn event=requests_not_logged failed=3 good=2 remedy="));
    assert_string_equal(report_of(&log, NOW_MS + 5000), "");
    assert_true(eb_access_log_admits(&log, true, NOW_MS + 5000));
}

EB_TEST_GROUP(access_log)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_all_of_a_lookup),
        cmocka_unit_test(tells_the_same_of_a_lookup_as_json),
        cmocka_unit_test(tells_no_more_than_is_known),
        cmocka_unit_test(tells_an_answer_that_has_not_left_apart),
        cmocka_unit_test(lets_no_text_forge_a_line),
        cmocka_unit_test(cuts_what_is_too_long_and_hides_nothing_else),
        cmocka_unit_test(wants_what_its_mode_says),
        cmocka_unit_test(samples_exactly),
        cmocka_unit_test(wants_what_its_caller_has_sampled_where_it_samples),
        cmocka_unit_test(counts_what_is_too_much_for_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
