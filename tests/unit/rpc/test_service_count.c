/* The service's counters of a table. They cover all answered requests, whether these were computed
 * inline or by the executor. */
#include "server/rpc/conn_state.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define STREAM SERVICE_HOST_METHOD("LookupStream")
#define INLINE_BELOW_US 1000
#define PART_BAGS 60000

static void start_counting(struct service_fixture *fixture, uint64_t inline_below_us)
{
    fixture->host.limits.inline_below_us = inline_below_us;
    service_host_start(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
}

static void copy_sums(struct eb_loop *loop, void *context)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    struct eb_table_sums **part = context;
    *part = eb_table_counters_copy(&state->tables, uv_hrtime());
}

/* Expects the loop to have counted this much for its only table. */
static void expect_sums(struct service_fixture *fixture, uint64_t bags, uint64_t indices)
{
    struct eb_table_sums *part;
    loop_host_act(fixture->host.loops.loops[0], copy_sums, &part);
    assert_non_null(part);
    assert_int_equal(part->count, 1);
    assert_string_equal(part->sums->model, "trial");
    assert_string_equal(part->sums->table, "rows");
    assert_int_equal(part->sums->bags, bags);
    assert_int_equal(part->sums->indices, indices);
    free(part);
}

static void count_lookup(
    struct service_fixture *fixture, const struct service_request *request, enum eb_status status)
{
    service_call_lookup(&fixture->peer, &fixture->call, request);
    service_call_expect_end(&fixture->peer, &fixture->call, status);
}

static void counts_what_it_answers_here_and_by_the_executor(void **state)
{
    struct service_fixture *fixture = *state;
    for (int is_inline = 0; is_inline < 2; is_inline++) {
        start_counting(fixture, is_inline ? INLINE_BELOW_US : 0);
        expect_sums(fixture, 0, 0);
        count_lookup(fixture, &(struct service_request){.bags = 1}, EB_STATUS_OK);
        count_lookup(fixture, &(struct service_request){.bags = 5, .queries = 3}, EB_STATUS_OK);
        count_lookup(fixture, &(struct service_request){.bags = 1, .queries = 2}, EB_STATUS_OK);
        expect_sums(fixture, 18, 3);
        service_fixture_stop(fixture);
        service_host_init(&fixture->host); /* for the next round or the teardown */
    }
}

static void counts_bags_of_a_request_in_parts_once(void **state)
{
    struct service_fixture *fixture = *state;
    struct service_request request = {.bags = PART_BAGS, .queries = 4, .partial = true};
    start_counting(fixture, 0);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &request, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(fixture->call.count, 4);
    expect_sums(fixture, 4 * PART_BAGS, 0);
}

static void counts_nothing_of_what_fails(void **state)
{
    struct service_fixture *fixture = *state;
    start_counting(fixture, INLINE_BELOW_US);
    count_lookup(
        fixture, &(struct service_request){.bags = 1, .table = "none"}, EB_STATUS_NOT_FOUND);
    count_lookup(
        fixture, &(struct service_request){.bags = 1, .is_bad = true}, EB_STATUS_INVALID_ARGUMENT);
    expect_sums(fixture, 0, 0);
}

static void counts_nothing_of_what_is_given_up(void **state)
{
    struct service_fixture *fixture = *state;
    start_counting(fixture, 0);
    service_host_hold(&fixture->host);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    service_call_write(&fixture->call, &(struct service_request){.id = 1, .bags = 1}, false);
    service_call_write(&fixture->call, &(struct service_request){.id = 2, .bags = 1}, false);
    service_call_write(
        &fixture->call, &(struct service_request){.id = 1, .bags = 1, .cancel = true}, true);
    wire_peer_send(&fixture->peer);
    service_peer_settle(&fixture->peer);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    assert_int_equal(fixture->call.count, 1);
    expect_sums(fixture, 1, 1);
}

static void swap_to_nothing(struct eb_loop *loop, void *context)
{
    static struct eb_snapshot empty;
    struct eb_snapshot **former = context;
    *former = eb_service_swap(loop, *former ? *former : &empty);
}

static void counts_what_was_asked_for_before_its_version_went(void **state)
{
    struct service_fixture *fixture = *state;
    struct eb_snapshot *snapshot = NULL;
    start_counting(fixture, 0);
    service_host_hold(&fixture->host);
    service_call_lookup(&fixture->peer, &fixture->call, &(struct service_request){.bags = 1});
    service_peer_settle(&fixture->peer);
    loop_host_act(fixture->host.loops.loops[0], swap_to_nothing, &snapshot);
    service_host_release(&fixture->host);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    expect_sums(fixture, 1, 1);
    loop_host_act(fixture->host.loops.loops[0], swap_to_nothing, &snapshot);
    count_lookup(fixture, &(struct service_request){.bags = 1}, EB_STATUS_OK);
    expect_sums(fixture, 2, 2);
}

EB_TEST_GROUP(service_count)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, service_fixture_set_up, service_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(counts_what_it_answers_here_and_by_the_executor),
        FIXTURE(counts_bags_of_a_request_in_parts_once),
        FIXTURE(counts_nothing_of_what_fails),
        FIXTURE(counts_nothing_of_what_is_given_up),
        FIXTURE(counts_what_was_asked_for_before_its_version_went),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
