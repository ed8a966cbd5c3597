#include "tests/unit/rpc/service_host.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define STREAM SERVICE_HOST_METHOD("LookupStream")
#define ID 1
#define PARTS 4
/* A little less than one turn of the executor, so that one turn computes the first part but not the
 * second. */
#define PART_BAGS 60000
#define PART_BYTES (UINT64_C(8) * PART_BAGS)
#define TIMEOUT_MS 50

static void ask_parts(
    struct service_fixture *fixture, const struct service_request *request, bool last)
{
    service_call_write(&fixture->call, request, last);
    wire_peer_send(&fixture->peer);
}

/* Starts a stream whose partial request waits for the executor. */
static void start_parts(struct service_fixture *fixture, uint64_t timeout_us)
{
    service_host_start(&fixture->host);
    service_host_hold(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
    service_call_open(&fixture->peer, &fixture->call, STREAM, 0);
    struct service_request request = {
        .id = ID, .bags = PART_BAGS, .queries = PARTS, .partial = true, .timeout_us = timeout_us};
    ask_parts(fixture, &request, false);
    service_peer_settle(&fixture->peer);
}

/* Checks that the stream still serves and that no memory remains taken. */
static void finish_parts(struct service_fixture *fixture)
{
    ask_parts(fixture, &(struct service_request){.id = ID + 1, .bags = 1}, true);
    service_call_expect_end(&fixture->peer, &fixture->call, EB_STATUS_OK);
    const struct service_answer *last = service_call_find(&fixture->call, ID + 1);
    assert_non_null(last);
    assert_int_equal(last->error_code, EB_STATUS_OK);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    assert_true(service_host_wait_taken(&fixture->host, PART_BYTES / 2));
    service_host_stop(&fixture->host);
}

/* Expects the first part to arrive while the others wait. */
static void expect_first_part(struct service_fixture *fixture)
{
    service_host_turn(&fixture->host);
    service_call_expect_answers(&fixture->peer, &fixture->call, 1);
    assert_int_equal(fixture->call.answers[0].error_code, EB_STATUS_OK);
    assert_int_equal(fixture->call.answers[0].values_bytes, PART_BYTES);
    assert_true(fixture->call.answers[0].more);
}

static void sends_each_part_when_it_is_computed(void **state)
{
    struct service_fixture *fixture = *state;
    start_parts(fixture, 0);
    expect_first_part(fixture);
    service_peer_settle(&fixture->peer);
    assert_int_equal(fixture->call.count, 1);
    service_host_release(&fixture->host);
    service_call_expect_answers(&fixture->peer, &fixture->call, PARTS);
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(fixture->call.answers[i].error_code, EB_STATUS_OK);
        assert_int_equal(fixture->call.answers[i].values_bytes, PART_BYTES);
        assert_int_equal(fixture->call.answers[i].more, i < PARTS - 1);
    }
    finish_parts(fixture);
}

static void sends_no_further_part_of_what_is_withdrawn(void **state)
{
    struct service_fixture *fixture = *state;
    start_parts(fixture, 0);
    expect_first_part(fixture);
    ask_parts(fixture, &(struct service_request){.id = ID, .bags = 1, .cancel = true}, false);
    service_peer_settle(&fixture->peer);
    service_host_release(&fixture->host);
    finish_parts(fixture);
    assert_int_equal(fixture->call.count, 2);
}

static void serves_a_withdrawn_id_again_while_its_parts_come_back(void **state)
{
    struct service_fixture *fixture = *state;
    start_parts(fixture, 0);
    expect_first_part(fixture);
    ask_parts(fixture, &(struct service_request){.id = ID, .bags = 1, .cancel = true}, false);
    ask_parts(fixture, &(struct service_request){.id = ID, .bags = 1}, false);
    service_peer_settle(&fixture->peer);
    service_host_release(&fixture->host);
    service_call_expect_answers(&fixture->peer, &fixture->call, 2);
    assert_int_equal(fixture->call.answers[1].error_code, EB_STATUS_OK);
    assert_int_equal(fixture->call.answers[1].values_bytes, SERVICE_HOST_ROW_BYTES);
    assert_false(fixture->call.answers[1].more);
    finish_parts(fixture);
    assert_int_equal(fixture->call.count, 3);
}

/* On a slow machine no part arrives before the deadline. */
static void ends_parts_with_an_error_when_the_deadline_passes(void **state)
{
    struct service_fixture *fixture = *state;
    start_parts(fixture, TIMEOUT_MS * 1000);
    service_host_turn(&fixture->host);
    service_peer_settle(&fixture->peer);
    uv_sleep(TIMEOUT_MS + 1);
    service_host_release(&fixture->host);
    finish_parts(fixture);
    size_t count = 0;
    for (size_t i = 0; i < fixture->call.count; i++) {
        const struct service_answer *answer = &fixture->call.answers[i];
        if (answer->id == ID) {
            count++;
            assert_int_equal(answer->more, answer->error_code == EB_STATUS_OK);
        }
    }
    assert_in_range(count, 1, 2);
    assert_int_equal(fixture->call.count, count + 1);
}

static void gives_parts_back_whose_connection_is_closed(void **state)
{
    struct service_fixture *fixture = *state;
    start_parts(fixture, 0);
    expect_first_part(fixture);
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    assert_true(loop_host_taken_bytes(&fixture->host.loops) >= (PARTS - 1) * PART_BYTES);
    service_host_release(&fixture->host);
    assert_true(service_host_wait_taken(&fixture->host, PART_BYTES / 2));
    service_host_stop(&fixture->host);
}

static void refuses_parts_of_which_one_finds_no_memory(void **state)
{
    struct service_fixture *fixture = *state;
    for (uint64_t parts = 1; parts < PARTS; parts++) {
        /* A part takes 512 KiB: there is room for `parts` of them and for small allocations. */
        fixture->host.loops.options.answer_memory_bytes = (parts << 19) + (UINT64_C(1) << 18);
        start_parts(fixture, 0);
        service_call_expect_answers(&fixture->peer, &fixture->call, 1);
        assert_int_equal(fixture->call.answers[0].error_code, EB_STATUS_RESOURCE_EXHAUSTED);
        assert_false(fixture->call.answers[0].more);
        assert_true(service_host_wait_taken(&fixture->host, PART_BYTES / 2));
        service_host_release(&fixture->host);
        finish_parts(fixture);
        assert_int_equal(fixture->call.count, 2);
        service_host_init(&fixture->host); /* for the next round or the teardown */
    }
}

EB_TEST_GROUP(service_partial)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, service_fixture_set_up, service_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(sends_each_part_when_it_is_computed),
        FIXTURE(sends_no_further_part_of_what_is_withdrawn),
        FIXTURE(serves_a_withdrawn_id_again_while_its_parts_come_back),
        FIXTURE(ends_parts_with_an_error_when_the_deadline_passes),
        FIXTURE(gives_parts_back_whose_connection_is_closed),
        FIXTURE(refuses_parts_of_which_one_finds_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
