/* Watching part servers that are well, that come and go, and that are silent; claims, names,
 * memory. */
#include "server/route/peer_watch.h"

#include "proto/message.h"
#include "server/route/part_server.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/route/watch_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UNUSED_ADDRESS "127.0.0.1:1" /* nobody listens there */

/* ---- servers that are well ---- */

static void learns_what_part_servers_have(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(2);
    tell_ready(f, 0);
    tell_ready(f, 1);
    open_watch(f);
    assert_false(eb_peer_watch_has_any(f->watch));
    assert_false(eb_peer_watch_has_all_answers(f->watch));
    RUN_UNTIL(f, count_ready(f, 0) == 1 && count_ready(f, 1) == 1);
    assert_true(eb_part_map_view(eb_peer_watch_map(f->watch), f->set, 1).is_complete);
    assert_true(eb_peer_watch_has_any(f->watch));
    assert_true(eb_peer_watch_has_all_answers(f->watch));
    RUN_UNTIL(f, f->change_count > 0);
    for (int i = 0; i < 2; i++) {
        uint32_t number = find_number(f, i);
        size_t count;
        assert_int_equal(eb_peer_watch_instance(f->watch, number), 100 + i);
        assert_int_equal(eb_part_set_peers(f->set, (uint32_t)i, &count)[0], number);
        assert_int_equal(atomic_load(&f->servers[i].conn_count), 1);
        assert_int_equal(atomic_load(&f->servers[i].told_count), 1);
        assert_int_equal(count_begun(f, i), 1);
        /* WatchModels has no timeout. */
        assert_int_equal(atomic_load(&f->servers[i].timeout_count), 1);
    }
    assert_int_equal(eb_peer_watch_instance(f->watch, 2), 0);
    assert_string_equal(eb_peer_watch_address(f->watch, 2), "");
    close_watch(f);
}

static void follows_what_a_server_says(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    tell_state(f, 0, EB_WIRE_STATE_FAILED);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    assert_true(eb_part_map_view(eb_peer_watch_map(f->watch), f->set, 1).is_failed);
    tell_state(f, 0, EB_WIRE_STATE_SERVING);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    assert_int_equal(count_begun(f, 0), 1);
    close_watch(f);
}

static void tells_a_change_once_and_a_repetition_not_at_all(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    run_a_while(f);
    unsigned before = f->change_count;
    fake_server_order(&f->servers[0], FAKE_SERVER_TELL);
    run_a_while(f);
    tell_ready(f, 0);
    run_a_while(f);
    tell_state(f, 0, EB_WIRE_STATE_LOADING);
    RUN_UNTIL(f, f->change_count > before);
    run_a_while(f);
    assert_int_equal(f->change_count, before + 1);
    close_watch(f);
}

/* A server that has no version yet is connected nevertheless. */
static void knows_a_server_that_has_nothing(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    tell_wire(f, 0, &(struct eb_wire_holdings){.instance = 100, .level = EB_WATCH_LEVEL + 1});
    open_watch(f);
    RUN_UNTIL(f, eb_peer_watch_has_any(f->watch));
    assert_int_equal(eb_part_map_count_connected(eb_peer_watch_map(f->watch), 0, WATCH_PARTS), 1);
    assert_int_equal(eb_part_map_count_connected(eb_peer_watch_map(f->watch), 1, WATCH_PARTS), 0);
    close_watch(f);
}

static void logs_which_servers_come_and_go(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    start_log(f);
    tell_ready(f, 0);
    open_watch(f);
    RUN_UNTIL(f, count_mapped(f) == 1);
    stop_one(f, 0);
    RUN_UNTIL(f, count_mapped(f) == 0);
    stop_log(f);
    assert_int_equal(count_logged(f, "event=part_server_connected"), 1);
    assert_int_equal(count_logged(f, "part=0/2 instance=100"), 1);
    assert_int_equal(count_logged(f, "event=part_server_lost"), 1);
    assert_int_equal(count_logged(f, " was lost: "), 1);
    assert_true(count_logged(f, f->servers[0].address) >= 2);
    close_watch(f);
}

/* ---- servers that go ---- */

static void drops_a_server_that_drains(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    struct eb_wire_holding holding = make_holding(0, EB_WIRE_STATE_READY);
    tell_holding(f, 0, &holding, true);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    assert_false(eb_peer_watch_has_any(f->watch));
    assert_int_equal(count_open(f, 0), 1);
    /* It has changed its mind. */
    tell_ready(f, 0);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    assert_int_equal(count_begun(f, 0), 1);
    close_watch(f);
}

static void drops_a_server_whose_connection_is_lost(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    fake_server_order(&f->servers[0], FAKE_SERVER_HANG_UP);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    assert_int_equal(eb_peer_watch_instance(f->watch, find_number(f, 0)), 0);
    advance(600);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    assert_int_equal(atomic_load(&f->servers[0].conn_count), 2);
    assert_int_equal(atomic_load(&f->servers[0].told_count), 2);
    assert_int_equal(count_begun(f, 0), 2);
    close_watch(f);
}

static void learns_that_another_process_has_taken_the_address(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    atomic_store(&f->servers[0].instance, 200);
    atomic_store(&f->servers[0].role, "part 1/2");
    tell_nothing(f, 0);
    fake_server_order(&f->servers[0], FAKE_SERVER_HANG_UP);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    struct eb_wire_holding holding = make_holding(1, EB_WIRE_STATE_READY);
    tell_holding(f, 0, &holding, false);
    advance(600);
    RUN_UNTIL(f, count_ready(f, 1) == 1);
    assert_int_equal(eb_peer_watch_instance(f->watch, find_number(f, 0)), 200);
    close_watch(f);
}

/* Behind a virtual address, a new connection may lead to another process while the former one is
 * still open. */
static void changes_to_another_process_with_the_connection(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    atomic_store(&f->servers[0].instance, 200);
    tell_nothing(f, 0);
    fake_server_order(&f->servers[0], FAKE_SERVER_DRAIN);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    assert_int_equal(atomic_load(&f->servers[0].told_count), 2);
    tell_ready(f, 0);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    assert_int_equal(eb_peer_watch_instance(f->watch, find_number(f, 0)), 200);
    RUN_UNTIL(f, count_open(f, 0) == 1);
    close_watch(f);
}

/* ---- servers that end calls and connections ---- */

/* Waits until the watch has a new connection and one call, while the server stays in the map. */
static void await_replacement(struct watch_fixture *f)
{
    RUN_UNTIL(f, count_ready(f, 0) != 1 || (count_begun(f, 0) == 2 && count_open(f, 0) == 1));
    assert_int_equal(count_ready(f, 0), 1);
    run_a_while(f);
    assert_int_equal(count_ready(f, 0), 1);
    assert_int_equal(count_begun(f, 0), 2);
}

static void keeps_a_server_while_its_connection_is_replaced(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    fake_server_order(&f->servers[0], FAKE_SERVER_DRAIN | FAKE_SERVER_END_WATCHES);
    await_replacement(f);
    assert_int_equal(atomic_load(&f->servers[0].conn_count), 2);
    close_watch(f);
}

/* A server may let the calls of an old connection end by themselves. */
static void moves_a_call_to_the_new_connection(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    fake_server_order(&f->servers[0], FAKE_SERVER_DRAIN);
    await_replacement(f);
    assert_int_equal(atomic_load(&f->servers[0].conn_count), 2);
    assert_int_equal(count_gaps(f, 0), 0);
    close_watch(f);
}

static void makes_a_call_again_that_was_ended(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    fake_server_order(&f->servers[0], FAKE_SERVER_END_WATCHES);
    await_replacement(f);
    assert_int_equal(atomic_load(&f->servers[0].conn_count), 1);
    /* The second time it pauses. */
    fake_server_order(&f->servers[0], FAKE_SERVER_END_WATCHES);
    RUN_UNTIL(f, count_open(f, 0) == 0);
    run_a_while(f);
    assert_int_equal(count_begun(f, 0), 2);
    assert_int_equal(count_ready(f, 0), 1);
    advance(2000);
    RUN_UNTIL(f, count_begun(f, 0) == 3);
    close_watch(f);
}

static void drops_a_server_that_takes_no_call_any_more(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    atomic_store(&f->servers[0].watches.status, EB_STATUS_UNAVAILABLE);
    fake_server_order(&f->servers[0], FAKE_SERVER_END_WATCHES);
    RUN_UNTIL(f, count_begun(f, 0) == 2);
    run_a_while(f);
    assert_int_equal(count_ready(f, 0), 1);
    advance(3000);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    atomic_store(&f->servers[0].watches.status, EB_STATUS_OK);
    advance(WATCH_PAUSE_MS_MAX);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    close_watch(f);
}

static void drops_a_server_that_refuses_a_call(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    atomic_store(&f->servers[0].watches.status, EB_STATUS_INTERNAL);
    fake_server_order(&f->servers[0], FAKE_SERVER_END_WATCHES);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    assert_int_equal(count_begun(f, 0), 2);
    close_watch(f);
}

/* ---- silence ---- */

static void replaces_the_call_of_a_silent_server(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    tell_nothing(f, 0);
    run_a_while(f);
    advance(2999);
    run_a_while(f);
    assert_int_equal(count_ready(f, 0), 1);
    assert_int_equal(count_begun(f, 0), 1);
    advance(1);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    RUN_UNTIL(f, count_begun(f, 0) == 2);
    advance(3000);
    RUN_UNTIL(f, count_begun(f, 0) == 3);
    RUN_UNTIL(f, count_open(f, 0) == 2);
    tell_ready(f, 0);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    RUN_UNTIL(f, count_open(f, 0) == 1);
    /* The claims were never without a call. */
    assert_int_equal(count_gaps(f, 0), 0);
    run_a_while(f);
    assert_int_equal(count_begun(f, 0), 3);
    close_watch(f);
}

static void keeps_a_server_that_repeats_itself(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    for (int i = 0; i < 4; i++) {
        /* Another message shows that those before it have come. */
        advance(2000);
        tell_state(f, 0, EB_WIRE_STATE_LOADING);
        RUN_UNTIL(f, count_ready(f, 0) == 0);
        assert_int_equal(count_mapped(f), 1);
        tell_ready(f, 0);
        RUN_UNTIL(f, count_ready(f, 0) == 1);
    }
    assert_int_equal(count_begun(f, 0), 1);
    close_watch(f);
}

/* ---- one process at two addresses ---- */

static void counts_a_process_with_two_addresses_once(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(2);
    for (int i = 0; i < 2; i++) {
        atomic_store(&f->servers[i].instance, 100);
        atomic_store(&f->servers[i].role, "part 0/2");
        struct eb_wire_holding holding = make_holding(0, EB_WIRE_STATE_READY);
        tell_holding(f, i, &holding, false);
    }
    open_watch(f);
    RUN_UNTIL(f, eb_peer_watch_has_all_answers(f->watch) && count_mapped(f) > 0);
    RUN_UNTIL(f, count_open(f, 0) + count_open(f, 1) == 1);
    run_a_while(f);
    assert_int_equal(count_mapped(f), 1);
    assert_int_equal(count_ready(f, 0), 1);
    assert_int_equal(count_open(f, 0) + count_open(f, 1), 1);
    /* The other address is used when this one is lost. */
    int used = count_open(f, 0) == 1 ? 0 : 1;
    stop_one(f, used);
    RUN_UNTIL(f, count_mapped(f) == 0);
    advance(600);
    RUN_UNTIL(f, count_mapped(f) == 1);
    assert_int_equal(eb_peer_watch_instance(f->watch, find_number(f, 1 - used)), 100);
    close_watch(f);
}

/* ---- claims ---- */

static const struct eb_peer_watch_claim claims[] = {
    {"m", 8, 80, false}, {"m", 7, 70, true}, {"n", 1, 10, true}};

static void assert_claims(struct watch_fixture *f, int server, const char *expected)
{
    char text[FAKE_SERVER_CLAIMS_BYTES];
    fake_server_claims(&f->servers[server], text);
    assert_string_equal(text, expected);
}

static void sends_claims_to_all_servers(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(2);
    tell_ready(f, 0);
    tell_ready(f, 1);
    open_watch(f);
    assert_true(eb_peer_watch_claim(f->watch, claims, 2));
    RUN_UNTIL(f, count_mapped(f) == 2);
    for (int i = 0; i < 2; i++) {
        assert_claims(f, i, "m/7* m/8 ");
        assert_int_equal(count_begun(f, i), 1);
    }
    assert_true(eb_peer_watch_claim(f->watch, claims, 3));
    RUN_UNTIL(f, count_begun(f, 0) == 2 && count_begun(f, 1) == 2);
    RUN_UNTIL(f, count_open(f, 0) == 1 && count_open(f, 1) == 1);
    for (int i = 0; i < 2; i++) {
        assert_claims(f, i, "m/7* n/1* m/8 ");
        assert_int_equal(count_gaps(f, i), 0);
    }
    assert_int_equal(count_mapped(f), 2);
    close_watch(f);
}

static void does_not_send_the_same_claims_again(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    assert_true(eb_peer_watch_claim(f->watch, NULL, 0));
    run_a_while(f);
    assert_int_equal(count_begun(f, 0), 1);
    assert_true(eb_peer_watch_claim(f->watch, claims, 1));
    assert_true(eb_peer_watch_claim(f->watch, claims, 1));
    RUN_UNTIL(f, count_begun(f, 0) == 2);
    run_a_while(f);
    assert_true(eb_peer_watch_claim(f->watch, claims, 1));
    run_a_while(f);
    assert_int_equal(count_begun(f, 0), 2);
    assert_claims(f, 0, "m/8 ");
    close_watch(f);
}

static void keeps_the_former_claims_until_the_new_ones_have_come(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    assert_true(eb_peer_watch_claim(f->watch, claims, 1));
    RUN_UNTIL(f, count_begun(f, 0) == 2 && count_open(f, 0) == 1);
    tell_nothing(f, 0);
    assert_true(eb_peer_watch_claim(f->watch, claims, 2));
    RUN_UNTIL(f, count_begun(f, 0) == 3);
    /* The server has not answered the new call. Meanwhile the claims change again. */
    assert_true(eb_peer_watch_claim(f->watch, claims, 3));
    run_a_while(f);
    assert_int_equal(count_open(f, 0), 2);
    assert_int_equal(count_begun(f, 0), 3);
    assert_claims(f, 0, "m/7* m/8 ");
    tell_ready(f, 0);
    RUN_UNTIL(f, count_begun(f, 0) == 4 && count_open(f, 0) == 1);
    assert_claims(f, 0, "m/7* n/1* m/8 ");
    assert_int_equal(count_gaps(f, 0), 0);
    assert_int_equal(count_ready(f, 0), 1);
    close_watch(f);
}

static void keeps_a_server_that_refuses_new_claims(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    atomic_store(&f->servers[0].watches.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_true(eb_peer_watch_claim(f->watch, claims, 1));
    RUN_UNTIL(f, count_begun(f, 0) == 2);
    run_a_while(f);
    assert_int_equal(count_begun(f, 0), 2);
    assert_int_equal(count_open(f, 0), 1);
    assert_int_equal(count_ready(f, 0), 1);
    atomic_store(&f->servers[0].watches.status, EB_STATUS_OK);
    advance(1000);
    RUN_UNTIL(f, count_begun(f, 0) == 3 && count_open(f, 0) == 1);
    assert_int_equal(count_gaps(f, 0), 0);
    close_watch(f);
}

static void logs_that_there_are_too_many_claims(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    struct eb_peer_watch_claim many[EB_WATCH_CLAIMS_MAX + 3];
    for (unsigned i = 0; i < EB_WATCH_CLAIMS_MAX + 3; i++) {
        many[i] = (struct eb_peer_watch_claim){"m", i + 1, 0, false};
    }
    start_log(f);
    assert_true(eb_peer_watch_claim(f->watch, many, EB_WATCH_CLAIMS_MAX));
    assert_true(eb_peer_watch_claim(f->watch, many, EB_WATCH_CLAIMS_MAX + 3));
    assert_true(eb_peer_watch_claim(f->watch, many, EB_WATCH_CLAIMS_MAX + 3));
    RUN_UNTIL(f, count_begun(f, 0) == 2 && count_open(f, 0) == 1);
    stop_log(f);
    assert_int_equal(count_logged(f, "event=claims_left_out count=3"), 1);
    assert_int_equal(count_logged(f, "at most 64 claims\" remedy=\"serve fewer models"), 1);
    close_watch(f);
}

static void keeps_the_claims_if_there_is_no_memory_for_others(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    eb_faults_fail_allocation(1);
    assert_false(eb_peer_watch_claim(f->watch, claims, 3));
    eb_faults_fail_allocation(0);
    run_a_while(f);
    assert_int_equal(count_begun(f, 0), 1);
    close_watch(f);
}

static void watches_again_with_a_new_token(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    (void)strcpy(f->credentials.authorization, "Bearer 1");
    tell_ready(f, 0);
    open_watch(f);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    assert_int_equal(atomic_load(&f->servers[0].watches.token), 1);
    (void)strcpy(f->credentials.authorization, "Bearer 2");
    eb_peer_watch_renew(f->watch, true);
    RUN_UNTIL(f, count_begun(f, 0) == 2 && count_open(f, 0) == 1);
    assert_int_equal(atomic_load(&f->servers[0].watches.token), 2);
    assert_int_equal(count_gaps(f, 0), 0);
    assert_int_equal(atomic_load(&f->servers[0].conn_count), 1);
    close_watch(f);
}

/* ---- answers of all ---- */

static void waits_for_the_answers_of_all(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(2);
    tell_ready(f, 0);
    open_watch(f);
    RUN_UNTIL(f, count_mapped(f) == 1 && count_begun(f, 1) == 1);
    run_a_while(f);
    assert_false(eb_peer_watch_has_all_answers(f->watch));
    unsigned before = f->change_count;
    tell_ready(f, 1);
    RUN_UNTIL(f, eb_peer_watch_has_all_answers(f->watch));
    RUN_UNTIL(f, f->change_count == before + 1);
    /* A server that is lost later has answered once. */
    stop_one(f, 1);
    RUN_UNTIL(f, count_mapped(f) == 1);
    assert_true(eb_peer_watch_has_all_answers(f->watch));
    close_watch(f);
}

static void does_not_wait_for_an_address_that_cannot_be_reached(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(0);
    start_log(f);
    open_watch_to(f, UNUSED_ADDRESS);
    assert_false(eb_peer_watch_has_all_answers(f->watch));
    RUN_UNTIL(f, eb_peer_watch_has_all_answers(f->watch));
    RUN_UNTIL(f, f->change_count == 1);
    for (int i = 0; i < 3; i++) {
        advance(1000);
        run_a_while(f);
    }
    stop_log(f);
    assert_int_equal(count_logged(f, "event=part_server_unreachable address=" UNUSED_ADDRESS), 1);
    assert_int_equal(count_logged(f, "remedy=\"check that the server runs"), 1);
    assert_int_equal(f->change_count, 1);
    assert_false(eb_peer_watch_has_any(f->watch));
    close_watch(f);
}

static void does_not_wait_for_a_server_that_never_answers(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    open_watch(f);
    RUN_UNTIL(f, count_begun(f, 0) == 1);
    run_a_while(f);
    assert_false(eb_peer_watch_has_all_answers(f->watch));
    advance(3000);
    start_log(f);
    RUN_UNTIL(f, eb_peer_watch_has_all_answers(f->watch));
    stop_log(f);
    assert_int_equal(count_logged(f, "it does not answer WatchModels"), 1);
    assert_int_equal(count_logged(f, "remedy=\"check the server's log, and that the address"), 1);
    close_watch(f);
}

static void asks_a_server_again_that_does_not_tell_what_it_is(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(0);
    assert_true(fake_server_start(&f->servers[0], FAKE_SERVER_IS_HALF_MUTE, NULL));
    atomic_store(&f->servers[0].role, "part 0/2");
    atomic_store(&f->servers[0].instance, 100);
    f->server_count = 1;
    tell_ready(f, 0);
    open_watch(f);
    RUN_UNTIL(f, atomic_load(&f->servers[0].conn_count) == 1);
    run_a_while(f);
    assert_false(eb_peer_watch_has_all_answers(f->watch));
    start_log(f);
    advance(WATCH_CONNECT_TIMEOUT_MS + 2);
    RUN_UNTIL(f, eb_peer_watch_has_all_answers(f->watch));
    stop_log(f);
    assert_int_equal(count_logged(f, "it does not answer GetServer"), 1);
    /* The next connection is answered. */
    fake_server_order(&f->servers[0], FAKE_SERVER_HANG_UP);
    RUN_UNTIL(f, atomic_load(&f->servers[0].done_count) > 0 || count_begun(f, 0) == 0);
    for (int i = 0; i < 100 && count_ready(f, 0) == 0; i++) {
        advance(100);
        run_a_while(f);
    }
    assert_int_equal(count_ready(f, 0), 1);
    close_watch(f);
}

/* ---- names ---- */

/* Waits until names have been resolved that many times since the start of the test. */
static void await_resolution(struct watch_fixture *f, unsigned count)
{
    RUN_UNTIL(f, count_resolutions() >= count);
    run_a_while(f);
}

/* A name service that is not reached at first must not have the router begin without servers. */
static void waits_for_a_name_that_has_no_address_at_first(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(2);
    char names[2 * sizeof f->servers[0].address + 16];
    (void)snprintf(names, sizeof names, "parts.test:%s,%s", strchr(f->servers[0].address, ':') + 1,
        f->servers[1].address);
    tell_ready(f, 0);
    tell_ready(f, 1);
    set_name_address(NULL);
    open_watch_to(f, names);
    await_resolution(f, 1);
    RUN_UNTIL(f, count_ready(f, 1) == 1);
    assert_false(eb_peer_watch_has_all_answers(f->watch));
    /* It is tried again after a second, and not sooner. */
    set_name_address("127.0.0.1");
    advance(999);
    run_a_while(f);
    assert_int_equal(count_resolutions(), 1);
    advance(1);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    assert_int_equal(count_resolutions(), 2);
    assert_true(eb_peer_watch_has_all_answers(f->watch));
    close_watch(f);
}

static void tries_a_name_less_often_if_it_never_has_an_address(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(0);
    set_name_address(NULL);
    open_watch_to(f, "parts.test:1");
    await_resolution(f, 1);
    for (unsigned count = 2; count <= 11; count++) {
        advance(1000);
        await_resolution(f, count);
    }
    advance(3900);
    run_a_while(f);
    assert_int_equal(count_resolutions(), 11);
    advance(2200);
    await_resolution(f, 12);
    assert_false(eb_peer_watch_has_all_answers(f->watch));
    close_watch(f);
}

static void follows_the_addresses_of_a_name(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    char name[sizeof f->servers[0].address + 16];
    (void)snprintf(name, sizeof name, "parts.test:%s", strchr(f->servers[0].address, ':') + 1);
    tell_ready(f, 0);
    set_name_address(NULL);
    start_log(f);
    open_watch_to(f, name);
    await_resolution(f, 1);
    run_a_while(f);
    stop_log(f);
    assert_int_equal(count_logged(f, "event=part_servers_unknown"), 1);
    assert_int_equal(count_logged(f, "remedy=\"check the names in route"), 1);
    set_name_address("127.0.0.1");
    advance(6000);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    uint32_t number = find_number(f, 0);
    /* The address leaves the name, and stays while its connection is healthy. */
    const struct eb_part_map *map = eb_peer_watch_map(f->watch);
    set_name_address("127.0.0.9");
    advance(2000);
    tell_state(f, 0, EB_WIRE_STATE_LOADING);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    advance(2500);
    tell_ready(f, 0);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    advance(2500);
    RUN_UNTIL(f, eb_peer_watch_address(f->watch, number + 1)[0] != '\0');
    assert_int_equal(map->connected_count, 1);
    fake_server_order(&f->servers[0], FAKE_SERVER_HANG_UP);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    for (int i = 0; i < 100 && eb_peer_watch_address(f->watch, number)[0] != '\0'; i++) {
        advance(500);
        run_a_while(f);
    }
    assert_string_equal(eb_peer_watch_address(f->watch, number), "");
    assert_int_equal(eb_peer_watch_instance(f->watch, number), 0);
    close_watch(f);
}

/* Counts the addresses that are watched. */
static unsigned count_addresses(const struct watch_fixture *f)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < EB_PART_MAP_PEERS_MAX; i++) {
        count += eb_peer_watch_address(f->watch, i)[0] != '\0';
    }
    return count;
}

static void uses_1024_addresses_of_a_name_and_says_if_there_are_more(void **state)
{
    (void)state;
    for (unsigned more = 0; more <= 1; more++) {
        struct watch_fixture *f = start_servers(0);
        set_address_count(1024 + more);
        start_log(f);
        open_watch_to(f, "parts.test:1");
        RUN_UNTIL(f, count_addresses(f) == 1024);
        for (unsigned count = 2; count <= 3; count++) {
            advance(6000);
            await_resolution(f, count);
        }
        stop_log(f);
        assert_int_equal(count_addresses(f), 1024);
        assert_int_equal(count_logged(f, "event=part_servers_left_out count=1 "), more);
        assert_int_equal(count_logged(f, "event=part_servers_left_out"), more);
        close_watch(f);
    }
}

static int restore_addresses(void **state)
{
    (void)state;
    set_address_count(1);
    return 0;
}

/* ---- memory and end ---- */

static void leaves_nothing_if_it_cannot_be_opened(void **state)
{
    (void)state;
    unsigned failures = 0;
    int rc = UV_ENOMEM;
    for (unsigned number = 1; rc != 0; number++) {
        struct watch_fixture *f = start_servers(0);
        struct eb_peer_watch_options options = make_options(f);
        set_targets(f, "127.0.0.1:1,parts.test:2");
        eb_faults_fail_allocation(number);
        rc = eb_peer_watch_open(&f->watch, &options, &f->loop);
        eb_faults_fail_allocation(0);
        failures += rc != 0;
        f->is_closed = rc != 0;
        close_watch(f);
    }
    assert_true(failures >= 8);
}

/* Each allocation until a server is in the map fails once. What could not be done is done later. */
static void recovers_from_a_lack_of_memory(void **state)
{
    (void)state;
    bool was_reached = true;
    for (unsigned number = 1; was_reached; number++) {
        struct watch_fixture *f = start_servers(1);
        tell_ready(f, 0);
        open_watch(f);
        eb_faults_fail_allocation(number);
        assert_false(eb_peer_watch_claim(f->watch, claims, 2) == (number == 1));
        for (int i = 0; i < 1000 && count_ready(f, 0) == 0; i++) {
            advance(100);
            (void)uv_run(&f->loop, UV_RUN_ONCE);
        }
        was_reached = eb_faults_allocation_count() >= number;
        eb_faults_fail_allocation(0);
        assert_int_equal(count_ready(f, 0), 1);
        close_watch(f);
    }
}

static void *refuse_servers(size_t count, size_t bytes)
{
    return bytes == sizeof(struct eb_part_server) ? NULL : __real_calloc(count, bytes);
}

static void watches_a_server_when_there_is_memory_again(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    tell_ready(f, 0);
    eb_faults.calloc = refuse_servers;
    open_watch(f);
    RUN_UNTIL(f, atomic_load(&f->servers[0].told_count) == 1);
    run_a_while(f);
    assert_false(eb_peer_watch_has_all_answers(f->watch));
    eb_faults_disarm();
    run_a_while(f);
    assert_int_equal(count_begun(f, 0), 0);
    advance(1000);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    close_watch(f);
}

static void can_be_closed_at_any_time(void **state)
{
    (void)state;
    for (int rounds = 0; rounds < 40; rounds++) {
        struct watch_fixture *f = start_servers(2);
        tell_ready(f, 0);
        open_watch(f);
        for (int i = 0; i < rounds; i++) {
            if (i == 20) {
                assert_true(eb_peer_watch_claim(f->watch, claims, 2));
            }
            (void)uv_run(&f->loop, UV_RUN_ONCE);
        }
        close_watch(f);
    }
}

static void can_be_closed_from_its_callback(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    tell_ready(f, 0);
    f->closes_at_change = true;
    open_watch(f);
    RUN_UNTIL(f, f->is_closed);
    assert_int_equal(f->change_count, 1);
    close_watch(f);
}

static void can_be_destroyed_if_it_is_none(void **state)
{
    (void)state;
    eb_peer_watch_destroy(NULL);
}

EB_TEST_GROUP(peer_watch)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_what_part_servers_have),
        cmocka_unit_test(follows_what_a_server_says),
        cmocka_unit_test(tells_a_change_once_and_a_repetition_not_at_all),
        cmocka_unit_test(knows_a_server_that_has_nothing),
        cmocka_unit_test(logs_which_servers_come_and_go),
        cmocka_unit_test(drops_a_server_that_drains),
        cmocka_unit_test(drops_a_server_whose_connection_is_lost),
        cmocka_unit_test(learns_that_another_process_has_taken_the_address),
        cmocka_unit_test(changes_to_another_process_with_the_connection),
        cmocka_unit_test(keeps_a_server_while_its_connection_is_replaced),
        cmocka_unit_test(moves_a_call_to_the_new_connection),
        cmocka_unit_test(makes_a_call_again_that_was_ended),
        cmocka_unit_test(drops_a_server_that_takes_no_call_any_more),
        cmocka_unit_test(drops_a_server_that_refuses_a_call),
        cmocka_unit_test(replaces_the_call_of_a_silent_server),
        cmocka_unit_test(keeps_a_server_that_repeats_itself),
        cmocka_unit_test(counts_a_process_with_two_addresses_once),
        cmocka_unit_test(sends_claims_to_all_servers),
        cmocka_unit_test(does_not_send_the_same_claims_again),
        cmocka_unit_test(keeps_the_former_claims_until_the_new_ones_have_come),
        cmocka_unit_test(keeps_a_server_that_refuses_new_claims),
        cmocka_unit_test(logs_that_there_are_too_many_claims),
        cmocka_unit_test_teardown(
            keeps_the_claims_if_there_is_no_memory_for_others, eb_faults_tear_down),
        cmocka_unit_test(watches_again_with_a_new_token),
        cmocka_unit_test(waits_for_the_answers_of_all),
        cmocka_unit_test(does_not_wait_for_an_address_that_cannot_be_reached),
        cmocka_unit_test(does_not_wait_for_a_server_that_never_answers),
        cmocka_unit_test(asks_a_server_again_that_does_not_tell_what_it_is),
        cmocka_unit_test(follows_the_addresses_of_a_name),
        cmocka_unit_test(waits_for_a_name_that_has_no_address_at_first),
        cmocka_unit_test(tries_a_name_less_often_if_it_never_has_an_address),
        cmocka_unit_test_teardown(
            uses_1024_addresses_of_a_name_and_says_if_there_are_more, restore_addresses),
        cmocka_unit_test_teardown(leaves_nothing_if_it_cannot_be_opened, eb_faults_tear_down),
        cmocka_unit_test_teardown(recovers_from_a_lack_of_memory, eb_faults_tear_down),
        cmocka_unit_test_teardown(watches_a_server_when_there_is_memory_again, eb_faults_tear_down),
        cmocka_unit_test(can_be_closed_at_any_time),
        cmocka_unit_test(can_be_closed_from_its_callback),
        cmocka_unit_test(can_be_destroyed_if_it_is_none),
    };
    return cmocka_run_group_tests(tests, quieten_log, NULL);
}
