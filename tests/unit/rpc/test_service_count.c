/* What the service counts of a table: what it has answered, however that was computed. */
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

struct fixture {
    struct service_host host;
    struct wire_peer peer;
    struct service_call call;
};

static void start(struct fixture *fixture, uint64_t inline_below_us)
{
    service_host_init(&fixture->host);
    fixture->host.limits.inline_below_us = inline_below_us;
    service_host_start(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
}

static void finish(struct fixture *fixture)
{
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    service_host_stop(&fixture->host);
}

static void copy(struct eb_loop *loop, void *context)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    struct eb_table_sums **part = context;
    *part = eb_table_counters_copy(&state->tables, uv_hrtime());
}

/* The loop has counted so much of its one table. */
static void expect(struct fixture *fixture, uint64_t bags, uint64_t indices)
{
    struct eb_table_sums *part;
    loop_host_act(fixture->host.loops.loops[0], copy, &part);
    assert_non_null(part);
    assert_int_equal(part->count, 1);
    assert_string_equal(part->sums->model, "trial");
    assert_string_equal(part->sums->table, "rows");
    assert_int_equal(part->sums->bags, bags);
    assert_int_equal(part->sums->indices, indices);
    free(part);
}

static void look_up(
    struct fixture *fixture, const struct service_request *request, enum eb_status status)
{
    service_call_lookup(&fixture->peer, &fixture->call, request);
    service_call_expect_end(&fixture->peer, &fixture->call, status);
}

static void counts_what_it_answers_here_and_by_the_executor(void **state)
{
    (void)state;
    for (int is_inline = 0; is_inline < 2; is_inline++) {
        struct fixture fixture;
        start(&fixture, is_inline ? INLINE_BELOW_US : 0);
        expect(&fixture, 0, 0);
        look_up(&fixture, &(struct service_request){.bags = 1}, EB_STATUS_OK);
        look_up(&fixture, &(struct service_request){.bags = 5, .queries = 3}, EB_STATUS_OK);
        look_up(&fixture, &(struct service_request){.bags = 1, .queries = 2}, EB_STATUS_OK);
        expect(&fixture, 18, 3);
        finish(&fixture);
    }
}

static void counts_a_request_in_parts_once(void **state)
{
    (void)state;
    struct fixture fixture;
    const struct service_request request = {.bags = PART_BAGS, .queries = 4, .partial = true};
    start(&fixture, 0);
    service_call_open(&fixture.peer, &fixture.call, STREAM, 0);
    service_call_write(&fixture.call, &request, true);
    service_call_expect_end(&fixture.peer, &fixture.call, EB_STATUS_OK);
    assert_int_equal(fixture.call.count, 4);
    expect(&fixture, 4 * PART_BAGS, 0);
    finish(&fixture);
}

static void counts_nothing_of_what_fails(void **state)
{
    (void)state;
    struct fixture fixture;
    start(&fixture, INLINE_BELOW_US);
    look_up(&fixture, &(struct service_request){.bags = 1, .table = "none"}, EB_STATUS_NOT_FOUND);
    look_up(
        &fixture, &(struct service_request){.bags = 1, .is_bad = true}, EB_STATUS_INVALID_ARGUMENT);
    expect(&fixture, 0, 0);
    finish(&fixture);
}

static void counts_nothing_of_what_is_given_up(void **state)
{
    (void)state;
    struct fixture fixture;
    start(&fixture, 0);
    service_host_hold(&fixture.host);
    service_call_open(&fixture.peer, &fixture.call, STREAM, 0);
    service_call_write(&fixture.call, &(struct service_request){.id = 1, .bags = 1}, false);
    service_call_write(&fixture.call, &(struct service_request){.id = 2, .bags = 1}, false);
    service_call_write(
        &fixture.call, &(struct service_request){.id = 1, .bags = 1, .cancel = true}, true);
    wire_peer_send(&fixture.peer);
    service_peer_settle(&fixture.peer);
    service_host_release(&fixture.host);
    service_call_expect_end(&fixture.peer, &fixture.call, EB_STATUS_OK);
    assert_int_equal(fixture.call.count, 1);
    expect(&fixture, 1, 1);
    finish(&fixture);
}

static void swap_to_nothing(struct eb_loop *loop, void *context)
{
    static struct eb_snapshot empty;
    struct eb_snapshot **former = context;
    *former = eb_service_swap(loop, *former ? *former : &empty);
}

static void counts_what_was_asked_for_before_its_version_went(void **state)
{
    (void)state;
    struct fixture fixture;
    struct eb_snapshot *snapshot = NULL;
    start(&fixture, 0);
    service_host_hold(&fixture.host);
    service_call_lookup(&fixture.peer, &fixture.call, &(struct service_request){.bags = 1});
    service_peer_settle(&fixture.peer);
    loop_host_act(fixture.host.loops.loops[0], swap_to_nothing, &snapshot);
    service_host_release(&fixture.host);
    service_call_expect_end(&fixture.peer, &fixture.call, EB_STATUS_OK);
    expect(&fixture, 1, 1);
    loop_host_act(fixture.host.loops.loops[0], swap_to_nothing, &snapshot);
    look_up(&fixture, &(struct service_request){.bags = 1}, EB_STATUS_OK);
    expect(&fixture, 2, 2);
    finish(&fixture);
}

EB_TEST_GROUP(service_count)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_it_answers_here_and_by_the_executor),
        cmocka_unit_test(counts_a_request_in_parts_once),
        cmocka_unit_test(counts_nothing_of_what_fails),
        cmocka_unit_test(counts_nothing_of_what_is_given_up),
        cmocka_unit_test(counts_what_was_asked_for_before_its_version_went),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
