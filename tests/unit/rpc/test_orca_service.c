#include "server/rpc/orca_service.h"

#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include "xds/data/orca/v3/orca_load_report.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REPORTS "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"
#define REPORTS_MAX 16
#define NS_PER_MS UINT64_C(1000000)

/* One report as a client sees it. */
struct seen_report {
    uint64_t at_ns;
    double cpu;
    double application;
    double lookups_per_s;
    double errors_per_s;
    double queue;
};

struct orca_call {
    struct wire_call wire;
    uint64_t begun_ns;
    size_t wanted;
    bool has_wanted;
    bool is_garbled;
    struct seen_report reports[REPORTS_MAX];
};

static void on_report(struct wire_call *wire, const uint8_t *bytes, size_t size)
{
    struct orca_call *call = EB_CONTAINER_OF(wire, struct orca_call, wire);
    Xds__Data__Orca__V3__OrcaLoadReport *read =
        xds__data__orca__v3__orca_load_report__unpack(NULL, size, bytes);
    size_t place = wire->message_count - 1;
    if (!read || read->n_named_metrics != 3 || place >= REPORTS_MAX) {
        call->is_garbled = true;
    } else {
        call->reports[place] =
            (struct seen_report){uv_hrtime(), read->cpu_utilization, read->application_utilization,
                read->rps_fractional, read->eps, read->named_metrics[2]->value};
    }
    xds__data__orca__v3__orca_load_report__free_unpacked(read, NULL);
    call->has_wanted = wire->message_count >= call->wanted;
}

/* Asks for reports. `interval_s`: less than 128; 0 asks for no interval. */
static void ask_reports(struct service_fixture *fixture, struct orca_call *call, uint8_t interval_s)
{
    const uint8_t bytes[] = {0x0a, 2, 0x08, interval_s};
    *call = (struct orca_call){.begun_ns = uv_hrtime()};
    wire_peer_call(&fixture->peer, &call->wire, REPORTS);
    call->wire.on_message = on_report;
    wire_peer_write_bytes(&call->wire, bytes, interval_s > 0 ? sizeof bytes : 0, true);
}

/* Waits until there are `count` reports. */
static void expect_reports(struct service_fixture *fixture, struct orca_call *call, size_t count)
{
    call->wanted = count;
    call->has_wanted = call->wire.message_count >= count;
    assert_true(wire_peer_run(&fixture->peer, &call->has_wanted, SERVICE_HOST_TIMEOUT_MS));
    assert_false(call->is_garbled);
}

static void expect_orca_end(
    struct service_fixture *fixture, struct orca_call *call, enum eb_status status)
{
    assert_true(wire_peer_run(&fixture->peer, &call->wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_string_equal(eb_status_name((int)call->wire.error.status), eb_status_name((int)status));
}

static void ask_lookup(struct service_fixture *fixture, const char *table, enum eb_status status)
{
    struct service_request request = {.bags = 1, .table = table};
    service_call_lookup(&fixture->peer, &fixture->call, &request);
    service_call_expect_end(&fixture->peer, &fixture->call, status);
}

/* Returns how many events a rate means that a report covers, which began at `since_ns`. The
 * client's clock is read a little later than the server's. */
static double events_of(double per_s, const struct seen_report *report, uint64_t since_ns)
{
    return per_s * (double)(report->at_ns - since_ns) / 1e9;
}

static void reports_the_rates_of_lookups_and_errors(void **state)
{
    struct service_fixture *fixture = *state;
    static struct orca_call call; /* static, because the call lasts as long as the peer */
    service_fixture_start(fixture);
    ask_reports(fixture, &call, 0);
    for (int i = 0; i < 30; i++) {
        ask_lookup(fixture, NULL, EB_STATUS_OK);
    }
    for (int i = 0; i < 10; i++) {
        ask_lookup(fixture, "none", EB_STATUS_NOT_FOUND);
    }
    expect_reports(fixture, &call, 1);
    const struct seen_report *report = &call.reports[0];
    double lookups = events_of(report->lookups_per_s, report, call.begun_ns);
    double errors = events_of(report->errors_per_s, report, call.begun_ns);
    assert_true(lookups > 39.9);
    assert_true(errors > 9.9);
    assert_true(errors * 4 > lookups - 0.1 && errors * 4 < lookups + 0.1);
    assert_true(report->cpu > 0 && report->cpu <= 1);
    assert_true(report->application > 0 && report->application <= 1);
    assert_true(report->queue == 0);
    expect_reports(fixture, &call, 2);
    assert_true(call.reports[1].lookups_per_s == 0 && call.reports[1].errors_per_s == 0);
}

static void counts_no_calls_but_lookups(void **state)
{
    struct service_fixture *fixture = *state;
    static struct orca_call call;
    struct wire_call check;
    service_fixture_start(fixture);
    ask_reports(fixture, &call, 0);
    wire_peer_call(&fixture->peer, &check, "/grpc.health.v1.Health/Check");
    wire_peer_write_bytes(&check, "", 0, true);
    assert_true(wire_peer_run(&fixture->peer, &check.is_finished, SERVICE_HOST_TIMEOUT_MS));
    expect_reports(fixture, &call, 1);
    assert_true(call.reports[0].lookups_per_s == 0);
}

static void comes_at_most_once_a_second(void **state)
{
    struct service_fixture *fixture = *state;
    static struct orca_call calls[2];
    uint64_t early_ns =
        (EB_ORCA_INTERVAL_MS_MIN - EB_ORCA_INTERVAL_MS_MIN / EB_ORCA_EARLY_PART) * NS_PER_MS;
    service_fixture_start(fixture);
    ask_reports(fixture, &calls[0], 0);
    ask_reports(fixture, &calls[1], 3);
    expect_reports(fixture, &calls[0], 2);
    assert_true(calls[0].reports[0].at_ns - calls[0].begun_ns >= early_ns);
    assert_true(calls[0].reports[1].at_ns - calls[0].begun_ns >= 2 * early_ns);
    expect_reports(fixture, &calls[1], 1);
    assert_true(calls[1].reports[0].at_ns - calls[1].begun_ns >= 3 * early_ns);
}

static void shows_what_waits_in_the_queue(void **state)
{
    struct service_fixture *fixture = *state;
    static struct orca_call call;
    struct service_request request = {.bags = 1};
    fixture->host.limits.queue_bytes_max = 4096;
    service_fixture_start(fixture);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &fixture->call, &request);
    service_peer_settle(&fixture->peer);
    ask_reports(fixture, &call, 0);
    expect_reports(fixture, &call, 1);
    assert_true(call.reports[0].queue > 0 && call.reports[0].queue < 1);
    assert_true(call.reports[0].application >= call.reports[0].queue);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    expect_reports(fixture, &call, 2);
    assert_true(call.reports[1].queue == 0);
}

static void has_so_many_streams_for_a_connection_and_no_more(void **state)
{
    struct service_fixture *fixture = *state;
    static struct orca_call calls[EB_ORCA_STREAMS_MAX + 1];
    struct orca_call *refused = &calls[EB_ORCA_STREAMS_MAX];
    fixture->host.loops.options.limits.conn.session.streams_max = 2 * EB_ORCA_STREAMS_MAX;
    service_fixture_start(fixture);
    for (size_t i = 0; i < EB_ORCA_STREAMS_MAX; i++) {
        ask_reports(fixture, &calls[i], 100);
    }
    service_peer_settle(&fixture->peer);
    ask_reports(fixture, refused, 100);
    expect_orca_end(fixture, refused, EB_STATUS_RESOURCE_EXHAUSTED);
    eb_grpc_client_cancel(calls[0].wire.call);
    service_peer_settle(&fixture->peer);
    ask_reports(fixture, &calls[0], 0);
    expect_reports(fixture, &calls[0], 1);
}

static void refuses_what_is_no_orca_request(void **state)
{
    static const uint8_t cut_off[] = {0x0a, 5, 8};
    static const uint8_t negative[] = {
        0x0a, 11, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    struct service_fixture *fixture = *state;
    static struct orca_call calls[2];
    service_fixture_start(fixture);
    for (size_t i = 0; i < 2; i++) {
        wire_peer_call(&fixture->peer, &calls[i].wire, REPORTS);
    }
    wire_peer_write_bytes(&calls[0].wire, cut_off, sizeof cut_off, true);
    wire_peer_write_bytes(&calls[1].wire, negative, sizeof negative, true);
    expect_orca_end(fixture, &calls[0], EB_STATUS_INTERNAL);
    expect_orca_end(fixture, &calls[1], EB_STATUS_INVALID_ARGUMENT);
}

static void ends_when_the_server_drains(void **state)
{
    struct service_fixture *fixture = *state;
    static struct orca_call calls[2];
    service_fixture_start(fixture);
    ask_reports(fixture, &calls[0], 100);
    wire_peer_call(&fixture->peer, &calls[1].wire, REPORTS); /* has no request yet */
    service_peer_settle(&fixture->peer);
    service_host_drain(&fixture->host);
    expect_orca_end(fixture, &calls[0], EB_STATUS_UNAVAILABLE);
    expect_orca_end(fixture, &calls[1], EB_STATUS_UNAVAILABLE);
    assert_int_equal(calls[0].wire.message_count, 0);
}

EB_TEST_GROUP(orca_service)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, service_fixture_set_up, service_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(reports_the_rates_of_lookups_and_errors),
        FIXTURE(counts_no_calls_but_lookups),
        FIXTURE(comes_at_most_once_a_second),
        FIXTURE(shows_what_waits_in_the_queue),
        FIXTURE(has_so_many_streams_for_a_connection_and_no_more),
        FIXTURE(refuses_what_is_no_orca_request),
        FIXTURE(ends_when_the_server_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
