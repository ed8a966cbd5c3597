#include "proto/codec_orca.h"

#include "tests/lib/test_group.h"

#include "xds/data/orca/v3/orca_load_report.pb-c.h"
#include "xds/service/orca/v3/orca.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define DAY_S (24 * 60 * 60)
#define DURATION_S_MAX INT64_C(315576000000)

/* Decodes a request. Returns its interval, or UINT64_MAX with *error set. */
static uint64_t decode_interval(const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_arena arena;
    uint64_t interval_ms;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 4096);
    bool is_good = eb_orca_request_decode(&arena, bytes, size, &interval_ms, error);
    eb_arena_deinit(&arena);
    return is_good ? interval_ms : UINT64_MAX;
}

/* Encodes and decodes a request for this interval. */
static uint64_t read_interval(int64_t seconds, int32_t nanos, struct eb_error *error)
{
    Google__Protobuf__Duration interval = GOOGLE__PROTOBUF__DURATION__INIT;
    Xds__Service__Orca__V3__OrcaLoadReportRequest request =
        XDS__SERVICE__ORCA__V3__ORCA_LOAD_REPORT_REQUEST__INIT;
    uint8_t bytes[64];
    interval.seconds = seconds;
    interval.nanos = nanos;
    request.report_interval = &interval;
    size_t size = xds__service__orca__v3__orca_load_report_request__pack(&request, bytes);
    assert_true(size <= sizeof bytes);
    return decode_interval(bytes, size, error);
}

static void reads_the_interval(void **state)
{
    (void)state;
    struct eb_error error;
    assert_int_equal(decode_interval(NULL, 0, &error), 0);
    assert_int_equal(read_interval(0, 0, &error), 0);
    assert_int_equal(read_interval(0, 999999, &error), 0);
    assert_int_equal(read_interval(0, 1000000, &error), 1);
    assert_int_equal(read_interval(10, 500000000, &error), 10500);
    assert_int_equal(read_interval(DAY_S, 0, &error), EB_ORCA_INTERVAL_MS_MAX);
}

static void takes_a_longer_interval_for_the_longest(void **state)
{
    (void)state;
    struct eb_error error;
    assert_int_equal(read_interval(DAY_S, 1000000, &error), EB_ORCA_INTERVAL_MS_MAX);
    assert_int_equal(read_interval(DURATION_S_MAX, 999999999, &error), EB_ORCA_INTERVAL_MS_MAX);
}

static void refuses_an_interval_that_is_no_duration(void **state)
{
    static const struct {
        int64_t seconds;
        int32_t nanos;
    } cases[] = {{-1, 0}, {0, -1}, {0, 1000000000}, {DURATION_S_MAX + 1, 0}, {INT64_MIN, 0},
        {INT64_MAX, INT32_MAX}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_error error = {.status = EB_STATUS_OK};
        assert_int_equal(read_interval(cases[i].seconds, cases[i].nanos, &error), UINT64_MAX);
        assert_int_equal(error.status, EB_STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "report_interval"));
    }
}

static void refuses_bytes_that_are_no_request(void **state)
{
    static const uint8_t cut_off[] = {0x0a, 5, 8};
    (void)state;
    struct eb_error error = {.status = EB_STATUS_OK};
    assert_int_equal(decode_interval(cut_off, sizeof cut_off, &error), UINT64_MAX);
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
}

static void skips_the_names_of_request_costs(void **state)
{
    static const uint8_t bytes[] = {0x12, 1, 'a', 0x0a, 2, 0x08, 3, 0x12, 1, 'b'};
    (void)state;
    struct eb_error error;
    assert_int_equal(decode_interval(bytes, sizeof bytes, &error), 3000);
}

static void writes_a_report(void **state)
{
    static const struct eb_wire_metric metrics[] = {{"loops", 0.25}, {"queue", 0}};
    static const struct eb_wire_load load = {0.5, 1.75, 1000.5, 2.5, 2, metrics};
    (void)state;
    uint8_t bytes[256];
    size_t size = eb_orca_report_bytes(&load);
    assert_true(size <= sizeof bytes);
    eb_orca_report_encode(&load, bytes);
    Xds__Data__Orca__V3__OrcaLoadReport *read =
        xds__data__orca__v3__orca_load_report__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_true(read->cpu_utilization == 0.5);
    assert_true(read->application_utilization == 1.75);
    assert_true(read->rps_fractional == 1000.5);
    assert_true(read->eps == 2.5);
    assert_int_equal(read->n_named_metrics, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(read->named_metrics[i]->key, metrics[i].name);
        assert_true(read->named_metrics[i]->value == metrics[i].value);
    }
    xds__data__orca__v3__orca_load_report__free_unpacked(read, NULL);
}

/* The numbers of the published messages, written out by hand. */
static void writes_the_published_field_numbers(void **state)
{
    static const uint8_t expected[] = {
        0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f,                         /* 1: 1.0 */
        0x31, 0, 0, 0, 0, 0, 0, 0, 0x40,                            /* 6: 2.0 */
        0x39, 0, 0, 0, 0, 0, 0, 0x08, 0x40,                         /* 7: 3.0 */
        0x42, 12, 0x0a, 1, 'q', 0x11, 0, 0, 0, 0, 0, 0, 0x10, 0x40, /* 8: "q" = 4.0 */
        0x49, 0, 0, 0, 0, 0, 0, 0x14, 0x40,                         /* 9: 5.0 */
    };
    static const struct eb_wire_metric metric = {"q", 4};
    static const struct eb_wire_load load = {1, 5, 2, 3, 1, &metric};
    (void)state;
    uint8_t bytes[sizeof expected];
    assert_int_equal(eb_orca_report_bytes(&load), sizeof expected);
    eb_orca_report_encode(&load, bytes);
    assert_memory_equal(bytes, expected, sizeof expected);
}

static void writes_nothing_for_zeros(void **state)
{
    static const struct eb_wire_load load = {0};
    (void)state;
    assert_int_equal(eb_orca_report_bytes(&load), 0);
}

EB_TEST_GROUP(codec_orca)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_interval),
        cmocka_unit_test(takes_a_longer_interval_for_the_longest),
        cmocka_unit_test(refuses_an_interval_that_is_no_duration),
        cmocka_unit_test(refuses_bytes_that_are_no_request),
        cmocka_unit_test(skips_the_names_of_request_costs),
        cmocka_unit_test(writes_a_report),
        cmocka_unit_test(writes_the_published_field_numbers),
        cmocka_unit_test(writes_nothing_for_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
