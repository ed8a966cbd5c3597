/* Legs to part servers that answer, refuse, come and go; what the link counts; memory. */
#include "server/route/leg_link.h"

#include "proto/link/connection.h"
#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/route/leg_link_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NO_SERVER_TEXT "no server that has what is asked for is connected"
#define NO_SERVER_LEFT_TEXT "no server that has it is connected"

/* ---- routes ---- */

static void sends_legs_only_to_servers_of_their_part_and_version(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    struct eb_route_table *table = create_routes();
    add_route(table, "echo", 7, (const unsigned[LINK_PARTS]){1U << 0, 1U << 1 | 1U << 2});
    add_route(table, "echo", 8, (const unsigned[LINK_PARTS]){1U << 2, 1U << 0});
    eb_leg_link_set_routes(f->link, table);
    for (int i = 0; i < 40; i++) {
        (void)send_leg(f, "echo", 0);
        (void)send_leg(f, "echo", 1);
    }
    for (uint32_t i = 0; i < f->count; i++) {
        run_until_leg_over(&f->legs[i]);
        expect_end(&f->legs[i], EB_STATUS_OK, NULL, 1);
        assert_int_equal(f->legs[i].take_count, 1);
    }
    assert_int_equal(count_calls(f, 0), 40);
    assert_int_equal(count_calls(f, 1) + count_calls(f, 2), 40);
    assert_true(count_calls(f, 1) > 0 && count_calls(f, 2) > 0);
    unsigned before = count_calls(f, 2);
    for (int i = 0; i < 40; i++) {
        struct test_leg *test = make_leg(f, "echo", 0);
        test->leg.version = 8;
        test->leg.digest = 80;
        run_until_leg_over(send_made(test));
        expect_end(test, EB_STATUS_OK, NULL, 1);
    }
    assert_int_equal(count_calls(f, 2), before + 40);
    close_link(f);
}

/* Sends a leg that no server has, and checks that it ends by itself and is sent to nobody. */
static void expect_nowhere(struct test_leg *test)
{
    struct link_fixture *f = test->fixture;
    run_until_leg_over(send_made(test));
    expect_end(test, EB_STATUS_UNAVAILABLE, NO_SERVER_TEXT, 1);
    assert_int_equal(test->leg.retry_after_ms, 0);
    assert_int_equal(eb_leg_outcome_of(&test->leg), EB_LEG_UNREACHED);
    for (int i = 0; i < LINK_SERVERS; i++) {
        assert_int_equal(count_calls(f, i), 0);
    }
}

static void ends_a_leg_that_no_server_has(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    expect_nowhere(make_leg(f, "echo", 0)); /* There is no table yet. */
    set_link_routes(f, 1U << 0, 0);
    expect_nowhere(make_leg(f, "echo", 1));
    expect_nowhere(make_leg(f, "echo", LINK_PARTS)); /* The version has fewer parts. */
    expect_nowhere(make_leg(f, "nobody", 0));
    struct test_leg *test = make_leg(f, "echo", 0);
    test->leg.version = 8;
    expect_nowhere(test);
    test = make_leg(f, "echo", 0);
    test->leg.digest = 71;
    expect_nowhere(test);
    assert_int_equal(count_part(f, 0).outcomes[EB_LEG_UNREACHED], 4);
    assert_int_equal(count_part(f, 1).outcomes[EB_LEG_UNREACHED], 1);
    assert_int_equal(count_resends(f, 0), 0);
    assert_int_equal(count_part(f, 0).sent_bytes, 0);
    close_link(f);
}

/* A server that does not answer when it is connected to cannot be one that has the part: the table
 * names none. */
static void does_not_wait_for_a_server_that_is_silent_from_the_start(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(1);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *test = make_leg(f, "echo", 1);
    test->leg.deadline_ns = uv_hrtime() + 5 * LINK_SECOND_NS;
    expect_nowhere(test);
    close_link(f);
}

static void waits_for_a_server_that_the_table_names(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(1);
    set_link_routes(f, 1U << 2, 0);
    struct test_leg *test = make_leg(f, "echo", 0);
    test->leg.deadline_ns = uv_hrtime() + LINK_SECOND_NS / 10;
    run_until_leg_over(send_made(test));
    expect_end(test, EB_STATUS_DEADLINE_EXCEEDED, NULL, 0);
    close_link(f);
}

/* ---- another table ---- */

/* Sends legs that get no answer to server 0, until it has no room. */
static void fill_server(struct link_fixture *f)
{
    const struct test_leg *last;
    do {
        last = send_leg(f, "silent", 0);
        (void)eb_leg_link_run(f->link);
    } while (last->leg.call.state != EB_DISPATCH_WAITING);
}

static void sends_waiting_legs_to_the_servers_of_a_new_table(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    fill_server(f);
    struct test_leg *test = send_leg(f, "echo", 0);
    (void)eb_leg_link_run(f->link);
    assert_int_equal(test->leg.call.state, EB_DISPATCH_WAITING);
    struct eb_route_table *table = create_routes();
    add_route(table, "silent", 7, (const unsigned[LINK_PARTS]){1U << 0, 0});
    add_route(table, "echo", 7, (const unsigned[LINK_PARTS]){1U << 1, 0});
    eb_leg_link_set_routes(f->link, table);
    assert_int_equal(test->over_count, 0);
    run_until_leg_over(test);
    expect_end(test, EB_STATUS_OK, NULL, 1);
    assert_int_equal(count_calls(f, 1), 1);
    assert_int_equal(count_calls(f, 2), 0);
    close_link(f);
}

static void ends_waiting_legs_that_a_new_table_has_no_server_for(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 1U << 1);
    fill_server(f);
    struct test_leg *lost = send_leg(f, "echo", 0);
    struct test_leg *other = send_leg(f, "silent", 1);
    (void)eb_leg_link_run(f->link);
    struct eb_route_table *table = create_routes();
    add_route(table, "silent", 7, (const unsigned[LINK_PARTS]){1U << 0, 1U << 1});
    eb_leg_link_set_routes(f->link, table);
    expect_end(lost, EB_STATUS_UNAVAILABLE, NO_SERVER_LEFT_TEXT, 0);
    assert_int_equal(other->over_count, 0);
    for (uint32_t i = 0; i < f->count; i++) {
        assert_true(&f->legs[i] == lost || f->legs[i].over_count == 0);
    }
    close_link(f);
}

/* Legs that are sent when their version leaves the table. */
static void sends_new_legs_before_a_new_table_takes_their_servers(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *test = send_leg(f, "echo", 0);
    set_link_routes(f, 0, 0);
    assert_int_equal(test->leg.call.state, EB_DISPATCH_SENT);
    run_until_leg_over(test);
    expect_end(test, EB_STATUS_OK, NULL, 1);
    close_link(f);
}

static void moves_paused_legs_to_the_servers_of_a_new_table(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *test = send_leg(f, "busy", 0);
    RUN_LINK_UNTIL(f, test->leg.call.state == EB_DISPATCH_PAUSED);
    set_link_routes(f, 1U << 1, 0);
    assert_int_equal(test->over_count, 0);
    run_until_leg_over(test);
    /* Each server refuses it once, and the second one then answers. */
    expect_end(test, EB_STATUS_OK, NULL, 3);
    assert_int_equal(test->leg.retry_after_ms, 0);
    assert_int_equal(count_calls(f, 0), 1);
    assert_int_equal(count_calls(f, 1), 2);
    assert_int_equal(count_part(f, 0).resends[EB_LEG_RESEND_REFUSED], 2);
    close_link(f);
}

static void ends_paused_legs_that_a_new_table_has_no_server_for(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *test = send_leg(f, "always-busy", 0);
    RUN_LINK_UNTIL(f, test->leg.call.state == EB_DISPATCH_PAUSED);
    set_link_routes(f, 0, 1U << 0);
    expect_end(test, EB_STATUS_UNAVAILABLE, NO_SERVER_LEFT_TEXT, 1);
    close_link(f);
}

/* The server may still have the part, although it no longer says so. */
static void lets_sent_legs_be_answered_that_a_new_table_has_no_server_for(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *test = send_leg(f, "later", 0);
    RUN_LINK_UNTIL(f, count_calls(f, 0) == 1);
    set_link_routes(f, 0, 1U << 0);
    assert_int_equal(test->over_count, 0);
    struct test_leg *next = send_leg(f, "echo", 1);
    run_until_leg_over(next);
    run_until_leg_over(test);
    expect_end(next, EB_STATUS_OK, NULL, 1);
    expect_end(test, EB_STATUS_OK, NULL, 1);
    close_link(f);
}

static void moves_sent_legs_of_a_lost_server_to_those_of_a_new_table(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    atomic_store(&f->servers[0].is_stalled, true);
    struct test_leg *test = send_leg(f, "echo", 0);
    RUN_LINK_UNTIL(f, count_calls(f, 0) == 1);
    set_link_routes(f, 1U << 1, 0);
    assert_int_equal(test->over_count, 0);
    fake_server_order(&f->servers[0], FAKE_SERVER_HANG_UP);
    run_until_leg_over(test);
    expect_end(test, EB_STATUS_OK, NULL, 2);
    assert_int_equal(count_calls(f, 1), 1);
    assert_int_equal(count_resends(f, 0), 1);
    close_link(f);
}

static void fails_sent_legs_of_a_lost_server_that_a_new_table_has_no_server_for(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(1);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *test = send_leg(f, "silent", 0);
    RUN_LINK_UNTIL(f, count_calls(f, 0) == 1);
    set_link_routes(f, 0, 1U << 1);
    assert_int_equal(test->over_count, 0);
    fake_server_order(&f->servers[0], FAKE_SERVER_HANG_UP);
    run_until_leg_over(test);
    assert_int_equal(test->leg.error.status, EB_STATUS_UNAVAILABLE);
    assert_int_equal(count_calls(f, 0), 1);
    assert_int_equal(count_calls(f, 1), 0);
    close_link(f);
}

static void lets_an_owner_abandon_other_legs_when_one_is_lost(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 1U << 1);
    struct test_leg *paused = send_leg(f, "always-busy", 1);
    RUN_LINK_UNTIL(f, paused->leg.call.state == EB_DISPATCH_PAUSED);
    fill_server(f);
    for (int i = 0; i < 8; i++) {
        (void)send_leg(f, "echo", 0);
    }
    (void)eb_leg_link_run(f->link);
    for (uint32_t i = 0; i < f->count; i++) {
        f->legs[i].abandons_others = true;
    }
    set_link_routes(f, 0, 0);
    unsigned lost = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct test_leg *test = &f->legs[i];
        assert_int_equal(test->over_count, 1);
        lost += test->leg.error.status == EB_STATUS_UNAVAILABLE;
        assert_true(test->leg.error.status == EB_STATUS_UNAVAILABLE ||
                    test->leg.error.status == EB_STATUS_CANCELLED);
    }
    assert_int_equal(lost, 1);
    close_link(f);
}

static void lets_an_owner_send_another_leg_when_one_is_lost(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 1U << 1);
    struct test_leg *first = send_leg(f, "always-busy", 0);
    RUN_LINK_UNTIL(f, first->leg.call.state == EB_DISPATCH_PAUSED);
    first->sends_another = true;
    set_link_routes(f, 0, 1U << 1);
    expect_end(first, EB_STATUS_UNAVAILABLE, NO_SERVER_LEFT_TEXT, 1);
    assert_int_equal(f->count, 2);
    run_until_leg_over(&f->legs[1]);
    expect_end(&f->legs[1], EB_STATUS_OK, NULL, 1);
    close_link(f);
}

/* ---- bytes of a part ---- */

static struct test_leg *make_heavy(
    struct link_fixture *f, const char *model, uint32_t part, uint64_t held_bytes)
{
    struct test_leg *test = make_leg(f, model, part);
    test->leg.held_bytes = held_bytes;
    return test;
}

/* Checks that one more leg to part 0 is refused. */
static void expect_refused(struct link_fixture *f, uint64_t held_bytes)
{
    uint64_t before = count_part(f, 0).refusals;
    struct test_leg *test = make_heavy(f, "echo", 0, held_bytes);
    fill_leg(f, test);
    const struct eb_outgoing *message = test->leg.request;
    assert_false(eb_leg_link_send(f->link, &test->leg));
    assert_int_equal(test->leg.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(test->leg.error.text, "too many requests wait for it; retry in 20 ms");
    assert_int_equal(test->leg.retry_after_ms, EB_LEG_RETRY_AFTER_MS);
    assert_ptr_equal(test->leg.request, message);
    assert_int_equal(test->over_count, 0);
    assert_int_equal(count_part(f, 0).refusals, before + 1);
    forget_refused(test);
}

static void refuses_legs_that_would_hold_too_much_for_a_part(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 1U << 1);
    struct test_leg *first = send_made(make_heavy(f, "silent", 0, LINK_PART_BYTES_MAX - 400));
    struct test_leg *second = send_made(make_heavy(f, "silent", 0, 400));
    expect_refused(f, 1);
    assert_int_equal(count_part(f, 1).refusals, 0);
    /* Other parts, and further legs of the same request. */
    run_until_leg_over(send_made(make_heavy(f, "echo", 1, LINK_PART_BYTES_MAX)));
    struct test_leg *further = make_heavy(f, "echo", 0, LINK_PART_BYTES_MAX);
    further->leg.is_further = true;
    run_until_leg_over(send_made(further));
    expect_end(further, EB_STATUS_OK, NULL, 1);
    eb_leg_link_abandon(&second->leg, EB_STATUS_CANCELLED, "");
    expect_refused(f, 401);
    second = send_made(make_heavy(f, "silent", 0, 400));
    eb_leg_link_abandon(&first->leg, EB_STATUS_CANCELLED, "");
    eb_leg_link_abandon(&second->leg, EB_STATUS_CANCELLED, "");
    assert_int_equal(count_part(f, 0).refusals, 2);
    close_link(f);
}

static void does_not_refuse_a_single_leg(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *test = send_made(make_heavy(f, "silent", 0, 100 * LINK_PART_BYTES_MAX));
    expect_refused(f, 1);
    eb_leg_link_abandon(&test->leg, EB_STATUS_CANCELLED, "");
    test = send_made(make_heavy(f, "echo", 0, 100 * LINK_PART_BYTES_MAX));
    run_until_leg_over(test);
    expect_end(test, EB_STATUS_OK, NULL, 1);
    close_link(f);
}

/* Sends a leg that holds all, and checks that nothing is held when it has ended. */
static void expect_bytes_back(struct link_fixture *f, const char *model, uint64_t timeout_ns,
    enum eb_status status, enum eb_leg_outcome outcome)
{
    uint64_t before = count_part(f, 0).outcomes[outcome];
    struct test_leg *test = make_heavy(f, model, 0, LINK_PART_BYTES_MAX);
    test->leg.deadline_ns = uv_hrtime() + timeout_ns;
    (void)send_made(test);
    expect_refused(f, 1);
    if (status == EB_STATUS_CANCELLED) {
        eb_leg_link_abandon(&test->leg, status, "not needed any more");
    }
    run_until_leg_over(test);
    assert_int_equal(test->leg.error.status, status);
    assert_int_equal(count_part(f, 0).outcomes[outcome], before + 1);
    test = make_heavy(f, "silent", 0, 1);
    (void)send_made(test);
    (void)send_made(make_heavy(f, "silent", 0, LINK_PART_BYTES_MAX - 1));
    expect_refused(f, 1);
    abandon_legs(f);
}

static void gives_back_what_legs_held_however_they_end(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    expect_bytes_back(f, "echo", LINK_PATIENCE_NS, EB_STATUS_OK, EB_LEG_OK);
    expect_bytes_back(f, "refuse", LINK_PATIENCE_NS, EB_STATUS_NOT_FOUND, EB_LEG_UNREACHED);
    expect_bytes_back(f, "full", LINK_PATIENCE_NS, EB_STATUS_RESOURCE_EXHAUSTED, EB_LEG_FAILED);
    expect_bytes_back(f, "silent", LINK_PATIENCE_NS, EB_STATUS_CANCELLED, EB_LEG_CANCELLED);
    expect_bytes_back(
        f, "silent", LINK_SECOND_NS / 50, EB_STATUS_DEADLINE_EXCEEDED, EB_LEG_UNREACHED);
    expect_bytes_back(f, "nobody", LINK_PATIENCE_NS, EB_STATUS_UNAVAILABLE, EB_LEG_UNREACHED);
    close_link(f);
}

static void leaves_a_leg_to_its_owner_if_out_of_memory(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *test = make_heavy(f, "echo", 0, LINK_PART_BYTES_MAX);
    fill_leg(f, test);
    eb_faults_fail_allocation(1);
    assert_false(eb_leg_link_send(f->link, &test->leg));
    eb_faults_fail_allocation(0);
    assert_int_equal(test->leg.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(test->leg.error.text, "out of memory");
    assert_non_null(test->leg.request);
    forget_refused(test);
    run_until_leg_over(send_made(make_heavy(f, "echo", 0, LINK_PART_BYTES_MAX)));
    assert_int_equal(count_part(f, 0).refusals, 0);
    close_link(f);
}

/* ---- ids ---- */

static void has_ids_for_so_many_legs(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    uint64_t *ids = calloc(EB_LEGS_MAX, sizeof *ids);
    bool *is_used = calloc(EB_LEGS_MAX, sizeof *is_used);
    assert_true(ids && is_used);
    for (int round = 0; round < 3; round++) {
        memset(is_used, 0, EB_LEGS_MAX * sizeof *is_used);
        for (uint32_t i = 0; i < EB_LEGS_MAX; i++) {
            uint64_t former = ids[i];
            ids[i] = eb_leg_link_take_id(f->link);
            assert_true(ids[i] != 0 && ids[i] != EB_PROBE_ID);
            assert_true(ids[i] > former); /* never used before */
            assert_false(is_used[ids[i] % EB_LEGS_MAX]);
            is_used[ids[i] % EB_LEGS_MAX] = true;
        }
        assert_int_equal(eb_leg_link_take_id(f->link), 0);
        for (uint32_t i = 0; i < EB_LEGS_MAX; i++) {
            eb_leg_link_give_id(f->link, ids[i]);
        }
    }
    free(ids);
    free(is_used);
    close_link(f);
}

/* Takes the next id that has the slot of this one. Returns how many ids were taken for that. */
static uint32_t take_same_slot(struct link_fixture *f, uint64_t *id)
{
    uint64_t slot = *id % EB_LEGS_MAX;
    for (uint32_t count = 1;; count++) {
        *id = eb_leg_link_take_id(f->link);
        assert_true(*id != 0 && count <= EB_LEGS_MAX);
        if (*id % EB_LEGS_MAX == slot) {
            return count;
        }
        eb_leg_link_give_id(f->link, *id);
    }
}

static void uses_the_slot_of_an_id_again_as_late_as_possible(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    uint64_t first = eb_leg_link_take_id(f->link);
    uint64_t id = first;
    eb_leg_link_give_id(f->link, id);
    assert_int_equal(take_same_slot(f, &id), EB_LEGS_MAX);
    assert_int_equal(id, first + EB_LEGS_MAX);
    /* If only one is free, it is used again at once. */
    for (uint32_t i = 1; i < EB_LEGS_MAX; i++) {
        assert_true(eb_leg_link_take_id(f->link) != 0);
    }
    assert_int_equal(eb_leg_link_take_id(f->link), 0);
    eb_leg_link_give_id(f->link, id);
    assert_int_equal(eb_leg_link_take_id(f->link), first + 2 * EB_LEGS_MAX);
    close_link(f);
}

static void gives_the_ids_of_legs_back(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *test = send_leg(f, "echo", 0);
    for (uint32_t i = 1; i < EB_LEGS_MAX; i++) {
        assert_true(eb_leg_link_take_id(f->link) != 0);
    }
    assert_int_equal(eb_leg_link_take_id(f->link), 0);
    run_until_leg_over(test);
    assert_int_equal(eb_leg_link_take_id(f->link), test->leg.request_id + EB_LEGS_MAX);
    close_link(f);
}

static void never_takes_a_late_answer_for_that_of_another_leg(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 0);
    struct test_leg *former = send_leg(f, "later", 0);
    RUN_LINK_UNTIL(f, count_calls(f, 0) == 1);
    eb_leg_link_abandon(&former->leg, EB_STATUS_CANCELLED, "not needed any more");
    expect_end(former, EB_STATUS_CANCELLED, "not needed any more", 1);
    struct test_leg *test = make_leg(f, "silent", 0);
    test->leg.request_id = former->leg.request_id;
    (void)take_same_slot(f, &test->leg.request_id);
    (void)send_made(test);
    uint64_t before = eb_leg_link_totals(f->link).received_bytes;
    /* The server answers the former leg once the next message arrives. */
    RUN_LINK_UNTIL(f, eb_leg_link_totals(f->link).received_bytes > before);
    assert_int_equal(test->over_count, 0);
    assert_int_equal(test->take_count, 0);
    assert_int_equal(former->take_count, 0);
    /* The connection is well. */
    run_until_leg_over(send_leg(f, "echo", 0));
    expect_end(&f->legs[2], EB_STATUS_OK, NULL, 1);
    assert_int_equal(atomic_load(&f->servers[0].conn_count), 1);
    close_link(f);
}

/* ---- answers and counters ---- */

static void moves_a_leg_whose_answer_is_not_taken(void **state)
{
    (void)state;
    static const enum eb_status statuses[] = {EB_STATUS_INTERNAL, EB_STATUS_NOT_FOUND};
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0 | 1U << 2, 1U << 1);
    for (int i = 0; i < 2; i++) {
        f->wrong_count = 1;
        f->wrong_status = statuses[i];
        struct test_leg *test = send_leg(f, "echo", 0);
        run_until_leg_over(test);
        expect_end(test, EB_STATUS_OK, NULL, 2);
        assert_int_equal(test->take_count, 2);
        assert_int_equal(count_calls(f, 0), i + 1);
        assert_int_equal(count_calls(f, 2), i + 1);
        /* The only server of a part is not asked again. */
        f->wrong_count = 1;
        test = send_leg(f, "echo", 1);
        run_until_leg_over(test);
        expect_end(test, statuses[i], "it does not suit", 1);
        assert_int_equal(count_calls(f, 1), i + 1);
    }
    struct eb_leg_counters counters = count_part(f, 0);
    assert_int_equal(counters.resends[EB_LEG_RESEND_REFUSED], 1);
    assert_int_equal(counters.resends[EB_LEG_RESEND_MISSING], 1);
    assert_int_equal(counters.outcomes[EB_LEG_OK], 2);
    counters = count_part(f, 1);
    assert_int_equal(count_resends(f, 1), 0);
    assert_int_equal(counters.outcomes[EB_LEG_FAILED], 1);
    assert_int_equal(counters.outcomes[EB_LEG_UNREACHED], 1);
    close_link(f);
}

static void does_not_move_a_leg_that_is_wrong_itself(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0 | 1U << 2, 0);
    f->wrong_count = 1;
    f->wrong_status = EB_STATUS_INVALID_ARGUMENT;
    struct test_leg *test = send_leg(f, "echo", 0);
    run_until_leg_over(test);
    expect_end(test, EB_STATUS_INVALID_ARGUMENT, "it does not suit", 1);
    assert_int_equal(count_part(f, 0).outcomes[EB_LEG_FAILED], 1);
    close_link(f);
}

static void asks_another_server_if_one_lacks_the_version(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0 | 1U << 1, 0);
    for (int i = 0; i < 2; i++) {
        atomic_store(&f->servers[i].lacks_version, true);
    }
    struct test_leg *test = send_leg(f, "echo", 0);
    run_until_leg_over(test);
    expect_end(test, EB_STATUS_NOT_FOUND, "no such version", 2);
    assert_int_equal(test->take_count, 0); /* An error is not the owner's to take. */
    assert_int_equal(count_calls(f, 0), 1);
    assert_int_equal(count_calls(f, 1), 1);
    atomic_store(&f->servers[1].lacks_version, false);
    for (int i = 0; i < 8; i++) {
        test = send_leg(f, "echo", 0);
        run_until_leg_over(test);
        assert_int_equal(test->leg.error.status, EB_STATUS_OK);
    }
    assert_int_equal(count_calls(f, 2), 0);
    close_link(f);
}

static void counts_legs_by_part(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 1U << 1 | 1U << 2);
    for (int i = 0; i < 3; i++) {
        run_until_leg_over(send_leg(f, "echo", 0));
    }
    struct eb_leg_counters counters = count_part(f, 0);
    assert_int_equal(counters.outcomes[EB_LEG_OK], 3);
    assert_int_equal(counters.sent_bytes, 3 * f->message_bytes);
    assert_int_equal(eb_histogram_count(&counters.answers), 3);
    assert_true(counters.answers.sum_ns > 0);
    /* The connections are lost one after the other. */
    struct test_leg *test = send_leg(f, "hang-up", 1);
    run_until_leg_over(test);
    assert_int_equal(test->leg.error.status, EB_STATUS_UNAVAILABLE);
    counters = count_part(f, 1);
    assert_int_equal(counters.outcomes[EB_LEG_UNREACHED], 1);
    assert_true(counters.resends[EB_LEG_RESEND_LOST] >= 1);
    assert_int_equal(count_resends(f, 1), counters.resends[EB_LEG_RESEND_LOST]);
    assert_int_equal(counters.sent_bytes, (1 + count_resends(f, 1)) * f->message_bytes);
    assert_int_equal(counters.hedges_won + counters.hedges_lost, 0);
    assert_int_equal(eb_histogram_count(&counters.answers), 0);
    /* Only answers that were taken have a time. */
    run_until_leg_over(send_leg(f, "full", 0));
    counters = count_part(f, 0);
    assert_int_equal(eb_histogram_count(&counters.answers), 3);
    assert_int_equal(counters.outcomes[EB_LEG_FAILED], 1);
    /* They are added. */
    eb_leg_link_count(f->link, 0, &counters);
    assert_int_equal(counters.outcomes[EB_LEG_OK], 6);
    assert_int_equal(eb_histogram_count(&counters.answers), 6);
    eb_leg_link_count(f->link, 2, &counters); /* It has had no leg. */
    assert_int_equal(counters.outcomes[EB_LEG_OK], 6);
    close_link(f);
}

static void counts_totals(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    set_link_routes(f, 1U << 0, 1U << 1);
    struct eb_leg_totals totals = eb_leg_link_totals(f->link);
    assert_int_equal(totals.received_bytes + totals.slab_waits + totals.unreached, 0);
    run_until_leg_over(send_leg(f, "echo", 0));
    uint64_t answer_bytes = eb_leg_link_totals(f->link).received_bytes;
    assert_true(answer_bytes > sizeof(int64_t));
    run_until_leg_over(send_leg(f, "echo", 1));
    eb_leg_link_note_slab_wait(f->link);
    eb_leg_link_note_unreached(f->link, 5);
    eb_leg_link_note_unreached(f->link, 6);
    totals = eb_leg_link_totals(f->link);
    /* Ids of two bytes or three: the second answer may be a byte longer. */
    assert_in_range(totals.received_bytes, 2 * answer_bytes, 2 * answer_bytes + 1);
    assert_int_equal(totals.slab_waits, 1);
    assert_int_equal(totals.unreached, 11);
    close_link(f);
}

static void tells_how_a_leg_has_ended(void **state)
{
    (void)state;
    static const struct {
        enum eb_status status;
        enum eb_leg_outcome outcome;
    } cases[] = {{EB_STATUS_OK, EB_LEG_OK}, {EB_STATUS_CANCELLED, EB_LEG_CANCELLED},
        {EB_STATUS_UNAVAILABLE, EB_LEG_UNREACHED}, {EB_STATUS_DEADLINE_EXCEEDED, EB_LEG_UNREACHED},
        {EB_STATUS_NOT_FOUND, EB_LEG_UNREACHED}, {EB_STATUS_RESOURCE_EXHAUSTED, EB_LEG_FAILED},
        {EB_STATUS_INTERNAL, EB_LEG_FAILED}, {EB_STATUS_INVALID_ARGUMENT, EB_LEG_FAILED},
        {EB_STATUS_UNAUTHENTICATED, EB_LEG_FAILED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct eb_leg leg = {.error = {.status = cases[i].status}};
        assert_int_equal(eb_leg_outcome_of(&leg), cases[i].outcome);
    }
}

/* ---- servers ---- */

/* Describes a server. Returns false if it should not be listed. */
static bool find_described(const struct link_fixture *f, int server, struct eb_leg_peer *peer)
{
    for (uint32_t i = 0; i < eb_leg_link_peer_count(f->link); i++) {
        if (eb_leg_link_describe_peer(f->link, i, peer) &&
            strcmp(peer->address, f->servers[server].address) == 0) {
            return true;
        }
    }
    return false;
}

static void describes_servers(void **state)
{
    (void)state;
    struct link_fixture *f = open_link(0);
    struct eb_leg_peer peer;
    set_link_routes(f, 1U << 0, 1U << 1);
    assert_int_equal(eb_leg_link_peer_count(f->link), LINK_SERVERS);
    run_until_leg_over(send_leg(f, "echo", 0));
    run_until_leg_over(send_leg(f, "echo", 0));
    run_until_leg_over(send_leg(f, "full", 1));
    for (int i = 0; i < LINK_SERVERS; i++) {
        static const unsigned sent[LINK_SERVERS] = {2, 1, 0};
        static const unsigned failed[LINK_SERVERS] = {0, 1, 0};
        assert_true(find_described(f, i, &peer));
        assert_int_equal(peer.instance, LINK_FIRST_INSTANCE + i);
        assert_true(peer.is_connected);
        assert_false(peer.is_suspect || peer.is_ejected);
        assert_int_equal(peer.sent, sent[i]);
        assert_int_equal(peer.failed, failed[i]);
    }
    assert_true(find_described(f, 0, &peer));
    assert_true(peer.latency_ns > 0);
    stop_link_server(f, 0);
    RUN_LINK_UNTIL(f, count_connected(f) == LINK_SERVERS - 1);
    assert_true(find_described(f, 0, &peer));
    assert_false(peer.is_connected);
    assert_int_equal(peer.instance, LINK_FIRST_INSTANCE); /* the last one */
    close_link(f);
}

static void lists_a_process_with_two_addresses_once(void **state)
{
    (void)state;
    struct eb_error error;
    struct link_fixture *f = begin_link();
    struct eb_leg_peer peer;
    start_link_servers(f, 0);
    atomic_store(&f->servers[1].instance, LINK_FIRST_INSTANCE);
    struct eb_leg_link_options options = make_link_options(f);
    assert_true(eb_leg_link_open(&options, &f->loop, &f->link, &error));
    /* Both are connected until they have told what they are. */
    RUN_LINK_UNTIL(f, count_connected(f) == 2 && atomic_load(&f->servers[0].told_count) == 1 &&
                          atomic_load(&f->servers[1].told_count) == 1 &&
                          find_described(f, 0, &peer) != find_described(f, 1, &peer));
    set_link_routes(f, 1U << 0, 0);
    for (int i = 0; i < 8; i++) {
        run_until_leg_over(send_leg(f, "echo", 0));
        assert_int_equal(f->legs[i].leg.error.status, EB_STATUS_OK);
    }
    unsigned first = count_calls(f, 0);
    assert_true(first == 0 || first == 8);
    assert_int_equal(first + count_calls(f, 1), 8);
    assert_int_equal(eb_leg_link_peer_count(f->link), LINK_SERVERS);
    close_link(f);
}

/* ---- start and end ---- */

/* Opens a link while the allocation of this number fails, and releases everything. Returns whether
 * the link was opened. */
static bool open_with_failure(const struct eb_access *access, unsigned number)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    struct link_fixture *f = begin_link();
    assert_true(eb_targets_parse("127.0.0.1:1,127.0.0.1:2,localhost:3", &f->targets, &error));
    struct eb_leg_link_options options = make_link_options(f);
    struct eb_leg_link *link = NULL;
    options.access = *access;
    eb_faults_fail_allocation(number);
    bool is_open = eb_leg_link_open(&options, &f->loop, &link, &error);
    eb_faults_fail_allocation(0);
    assert_true(is_open == (error.status == EB_STATUS_OK));
    assert_true(link || number == 1);
    assert_true(is_open || error.text[0] != '\0');
    if (is_open) {
        eb_leg_link_close(link);
    }
    end_link_loop(f);
    eb_leg_link_destroy(link);
    assert_int_equal(f->held_bytes, 0);
    eb_targets_free(&f->targets);
    free(f);
    return is_open;
}

static void leaves_nothing_if_the_link_cannot_be_opened(void **state)
{
    const struct eb_scratch *scratch = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "token", path);
    eb_scratch_write_text(scratch, "token", "secret\n");
    const struct eb_access accesses[] = {{.token_file = NULL}, {.token_file = path}};
    unsigned failures[2] = {0};
    for (int i = 0; i < 2; i++) {
        while (!open_with_failure(&accesses[i], failures[i] + 1)) {
            failures[i]++;
            assert_true(failures[i] < 1000);
        }
    }
    assert_true(failures[0] >= 10);
    assert_true(failures[1] > failures[0]); /* A file is read and watched. */
}

static void can_be_destroyed_if_its_files_are_not_valid(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_error error;
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "missing", path);
    struct link_fixture *f = begin_link();
    assert_true(eb_targets_parse("127.0.0.1:1", &f->targets, &error));
    struct eb_leg_link_options options = make_link_options(f);
    struct eb_leg_link *link = NULL;
    options.access.token_file = path;
    assert_false(eb_leg_link_open(&options, &f->loop, &link, &error));
    assert_int_equal(error.status, EB_STATUS_INVALID_ARGUMENT);
    eb_scratch_expect(error.text, path);
    end_link_loop(f);
    eb_leg_link_destroy(link);
    eb_leg_link_destroy(NULL);
    eb_targets_free(&f->targets);
    free(f);
}

static void can_be_closed_while_it_connects(void **state)
{
    (void)state;
    for (int rounds = 0; rounds < 20; rounds++) {
        struct eb_error error;
        struct link_fixture *f = begin_link();
        start_link_servers(f, 0);
        struct eb_leg_link_options options = make_link_options(f);
        assert_true(eb_leg_link_open(&options, &f->loop, &f->link, &error));
        set_link_routes(f, 1U << 0, 1U << 1);
        for (int i = 0; i < rounds; i++) {
            (void)send_leg(f, i % 2 ? "silent" : "echo", (uint32_t)i % LINK_PARTS);
            (void)uv_run(&f->loop, UV_RUN_ONCE);
        }
        close_link(f);
    }
}

EB_TEST_GROUP(leg_link)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_legs_only_to_servers_of_their_part_and_version),
        cmocka_unit_test(ends_a_leg_that_no_server_has),
        cmocka_unit_test(does_not_wait_for_a_server_that_is_silent_from_the_start),
        cmocka_unit_test(waits_for_a_server_that_the_table_names),
        cmocka_unit_test(sends_waiting_legs_to_the_servers_of_a_new_table),
        cmocka_unit_test(ends_waiting_legs_that_a_new_table_has_no_server_for),
        cmocka_unit_test(sends_new_legs_before_a_new_table_takes_their_servers),
        cmocka_unit_test(moves_paused_legs_to_the_servers_of_a_new_table),
        cmocka_unit_test(ends_paused_legs_that_a_new_table_has_no_server_for),
        cmocka_unit_test(lets_sent_legs_be_answered_that_a_new_table_has_no_server_for),
        cmocka_unit_test(moves_sent_legs_of_a_lost_server_to_those_of_a_new_table),
        cmocka_unit_test(fails_sent_legs_of_a_lost_server_that_a_new_table_has_no_server_for),
        cmocka_unit_test(lets_an_owner_abandon_other_legs_when_one_is_lost),
        cmocka_unit_test(lets_an_owner_send_another_leg_when_one_is_lost),
        cmocka_unit_test(refuses_legs_that_would_hold_too_much_for_a_part),
        cmocka_unit_test(does_not_refuse_a_single_leg),
        cmocka_unit_test(gives_back_what_legs_held_however_they_end),
        cmocka_unit_test_teardown(leaves_a_leg_to_its_owner_if_out_of_memory, eb_faults_tear_down),
        cmocka_unit_test(has_ids_for_so_many_legs),
        cmocka_unit_test(uses_the_slot_of_an_id_again_as_late_as_possible),
        cmocka_unit_test(gives_the_ids_of_legs_back),
        cmocka_unit_test(never_takes_a_late_answer_for_that_of_another_leg),
        cmocka_unit_test(moves_a_leg_whose_answer_is_not_taken),
        cmocka_unit_test(does_not_move_a_leg_that_is_wrong_itself),
        cmocka_unit_test(asks_another_server_if_one_lacks_the_version),
        cmocka_unit_test(counts_legs_by_part),
        cmocka_unit_test(counts_totals),
        cmocka_unit_test(tells_how_a_leg_has_ended),
        cmocka_unit_test(describes_servers),
        cmocka_unit_test(lists_a_process_with_two_addresses_once),
        cmocka_unit_test_setup_teardown(
            leaves_nothing_if_the_link_cannot_be_opened, eb_scratch_set_up, eb_scratch_tear_down),
        cmocka_unit_test_setup_teardown(
            can_be_destroyed_if_its_files_are_not_valid, eb_scratch_set_up, eb_scratch_tear_down),
        cmocka_unit_test(can_be_closed_while_it_connects),
    };
    return cmocka_run_group_tests(tests, NULL, eb_faults_tear_down);
}
