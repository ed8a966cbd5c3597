/* Watching servers whose messages are refused, and servers that cannot be used at all. */
#include "server/route/peer_watch.h"

#include "proto/message.h"
#include "tests/lib/test_group.h"
#include "tests/unit/route/watch_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- messages that are refused ---- */

/* Has a server say something that is refused. It must leave the map, and come back when it says
 * something better. */
static void refuse_bytes(struct watch_fixture *f, const uint8_t *bytes, size_t size)
{
    unsigned begun = count_begun(f, 0);
    assert_int_equal(count_ready(f, 0), 1);
    fake_server_tell(&f->servers[0], bytes, size);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    assert_int_equal(count_mapped(f), 0);
    RUN_UNTIL(f, count_open(f, 0) == 0);
    assert_int_equal(count_begun(f, 0), begun);
    tell_ready(f, 0);
    run_a_while(f);
    assert_int_equal(count_begun(f, 0), begun);
    advance(WATCH_PAUSE_MS_MAX);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    assert_int_equal(count_begun(f, 0), begun + 1);
}

static void refuse_wire(struct watch_fixture *f, const struct eb_wire_holdings *wire)
{
    size_t size = eb_holdings_bytes(wire);
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    eb_holdings_encode(wire, bytes);
    refuse_bytes(f, bytes, size);
    free(bytes);
}

static void refuse_holding(struct watch_fixture *f, const struct eb_wire_holding *holding)
{
    refuse_wire(f, &(struct eb_wire_holdings){
                       .count = 1, .items = holding, .instance = 100, .level = EB_WATCH_LEVEL});
}

static void refuses_malformed_messages(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    refuse_bytes(f, (const uint8_t *)"\xff\xff\xff", 3);
    struct eb_wire_holding holding = make_holding(0, EB_WIRE_STATE_READY);
    holding.model = "";
    refuse_holding(f, &holding);
    holding = make_holding(0, EB_WIRE_STATE_READY);
    holding.version = 0;
    refuse_holding(f, &holding);
    close_watch(f);
}

static void refuses_contradictory_messages(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    struct eb_wire_holding holding = make_holding(0, EB_WIRE_STATE_READY);
    holding.owned_parts = &part_numbers[2];
    refuse_holding(f, &holding);
    holding = make_holding(0, EB_WIRE_STATE_READY);
    /* Another instance than GetServer tells. */
    struct eb_wire_holdings wire = {
        .count = 1, .items = &holding, .instance = 101, .level = EB_WATCH_LEVEL};
    refuse_wire(f, &wire);
    wire.instance = 0;
    refuse_wire(f, &wire);
    close_watch(f);
}

static void refuses_messages_that_are_too_long(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    size_t size = 5U << 20;
    char *text = malloc(size + 1);
    assert_non_null(text);
    memset(text, 'x', size);
    struct eb_wire_holding holding = make_holding(0, EB_WIRE_STATE_READY);
    holding.error = text;
    text[size] = '\0';
    refuse_holding(f, &holding); /* longer than any answer */
    text[EB_WATCH_ERROR_BYTES_MAX + 1] = '\0';
    refuse_holding(f, &holding);
    holding = make_holding(0, EB_WIRE_STATE_READY);
    holding.model = text;
    text[4097] = '\0';
    refuse_holding(f, &holding);
    free(text);
    close_watch(f);
}

static void refuses_messages_with_too_many_versions(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    struct eb_wire_holding *items = calloc(EB_WATCH_HOLDINGS_MAX, sizeof *items);
    assert_non_null(items);
    for (unsigned i = 0; i < EB_WATCH_HOLDINGS_MAX; i++) {
        items[i] = make_holding(0, EB_WIRE_STATE_READY);
        items[i].version = EB_WATCH_HOLDINGS_MAX - i;
    }
    struct eb_wire_holdings most = {
        .count = EB_WATCH_HOLDINGS_MAX, .items = items, .instance = 100, .level = EB_WATCH_LEVEL};
    struct eb_wire_holdings one = {.count = 1, .items = items, .instance = 100};
    tell_wire(f, 0, &most);
    const struct eb_part_map *map = eb_peer_watch_map(f->watch);
    RUN_UNTIL(f, eb_part_map_has_version(map, "m", EB_WATCH_HOLDINGS_MAX));
    /* Messages that follow one another are one message. */
    size_t size = eb_holdings_bytes(&most);
    uint8_t *bytes = malloc(size + eb_holdings_bytes(&one));
    assert_non_null(bytes);
    eb_holdings_encode(&most, bytes);
    eb_holdings_encode(&one, bytes + size);
    refuse_bytes(f, bytes, size + eb_holdings_bytes(&one));
    free(bytes);
    free(items);
    close_watch(f);
}

static void pauses_longer_after_each_failure(void **state)
{
    (void)state;
    static const uint64_t pauses_ms[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
    struct watch_fixture *f = start_servers(1);
    fake_server_tell(&f->servers[0], (const uint8_t *)"\xff", 1);
    open_watch(f);
    for (unsigned i = 0; i < sizeof pauses_ms / sizeof pauses_ms[0]; i++) {
        RUN_UNTIL(f, count_begun(f, 0) == i + 1 && count_open(f, 0) == 0);
        run_a_while(f);
        /* Up to half of the pause is left out, at random. */
        advance(pauses_ms[i] / 2 - 1);
        run_a_while(f);
        assert_int_equal(count_begun(f, 0), i + 1);
        advance(pauses_ms[i] / 2 + 1);
    }
    close_watch(f);
}

/* Once a call has lasted, the next failure is like the first one. */
static void forgets_failures_when_a_call_has_lasted(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    fake_server_tell(&f->servers[0], (const uint8_t *)"\xff", 1);
    open_watch(f);
    for (unsigned i = 1; i <= 4; i++) {
        RUN_UNTIL(f, count_begun(f, 0) == i && count_open(f, 0) == 0);
        run_a_while(f);
        advance(WATCH_PAUSE_MS_MAX);
    }
    tell_ready(f, 0);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    unsigned begun = count_begun(f, 0);
    for (int i = 0; i < 6; i++) {
        advance(2000);
        tell_state(f, 0, i % 2 == 0 ? EB_WIRE_STATE_LOADING : EB_WIRE_STATE_READY);
        RUN_UNTIL(f, count_ready(f, 0) == (i % 2 == 0 ? 0U : 1U));
    }
    fake_server_order(&f->servers[0], FAKE_SERVER_END_WATCHES);
    RUN_UNTIL(f, count_begun(f, 0) == begun + 1);
    close_watch(f);
}

static void warns_once_a_minute(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    start_log(f);
    fake_server_tell(&f->servers[0], (const uint8_t *)"\xff", 1);
    open_watch(f);
    for (unsigned i = 1; i <= 6; i++) {
        RUN_UNTIL(f, count_begun(f, 0) == i && count_open(f, 0) == 0);
        run_a_while(f);
        advance(WATCH_PAUSE_MS_MAX); /* five of these are 155 s */
    }
    stop_log(f);
    assert_int_equal(count_logged(f, "event=part_server_unusable"), 3);
    assert_int_equal(count_logged(f, "remedy=\"check that the server is embagd"), 3);
    close_watch(f);
}

/* ---- servers that cannot be used ---- */

/* Waits until a server that is not usable has been asked twice more. It must never be in the map,
 * and that must be logged once. Then the cause is removed. */
static void reject_server(
    struct watch_fixture *f, const char *reason, const char *hint, void (*mend)(void *))
{
    atomic_uint *asked = &f->servers[0].told_count;
    start_log(f);
    open_watch(f);
    RUN_UNTIL(f, eb_peer_watch_has_all_answers(f->watch));
    for (int i = 0; i < 2; i++) {
        unsigned before = atomic_load(asked);
        run_a_while(f);
        assert_int_equal(atomic_load(asked), before);
        assert_int_equal(count_mapped(f), 0);
        assert_false(eb_peer_watch_has_any(f->watch));
        advance(WATCH_PAUSE_MS_MAX);
        RUN_UNTIL(f, atomic_load(asked) == before + 1);
    }
    run_a_while(f);
    stop_log(f);
    assert_int_equal(count_logged(f, "event=part_server_unusable"), 1);
    assert_int_equal(count_logged(f, "event=part_server"), 1);
    assert_int_equal(count_logged(f, "\n"), 1);
    assert_int_equal(count_logged(f, reason), 1);
    assert_int_equal(count_logged(f, hint), 1);
    mend(f);
    advance(WATCH_PAUSE_MS_MAX);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    close_watch(f);
}

static void mend_role(void *context)
{
    struct watch_fixture *f = context;
    atomic_store(&f->servers[0].role, "part 0/2");
}

static void never_uses_a_server_without_a_part(void **state)
{
    (void)state;
    static const struct {
        const char *role, *reason;
    } cases[] = {{"server", "\\\"server\\\""}, {"router", "\\\"router\\\""}, {"", "\\\"\\\""},
        {"part 2/2", "\\\"part 2/2\\\""}, {"bad\nevent=fake", "event=fake"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct watch_fixture *f = start_servers(1);
        atomic_store(&f->servers[0].role, cases[i].role);
        tell_ready(f, 0);
        reject_server(f, cases[i].reason, "remedy=\"start it with --part", mend_role);
    }
}

static void mend_watches(void *context)
{
    struct watch_fixture *f = context;
    atomic_store(&f->servers[0].watches.status, EB_STATUS_OK);
}

static void never_uses_a_server_without_watches(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    tell_ready(f, 0);
    atomic_store(&f->servers[0].watches.status, EB_STATUS_UNIMPLEMENTED);
    reject_server(f, "no watches", "remedy=\"upgrade the server", mend_watches);
}

static void mend_told(void *context)
{
    struct watch_fixture *f = context;
    atomic_store(&f->servers[0].told_status, EB_STATUS_OK);
}

static void never_uses_a_server_that_does_not_know_itself(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    tell_ready(f, 0);
    atomic_store(&f->servers[0].told_status, EB_STATUS_UNIMPLEMENTED);
    reject_server(f, "tells nothing", "remedy=\"upgrade the server", mend_told);
}

static void mend_instance(void *context)
{
    struct watch_fixture *f = context;
    atomic_store(&f->servers[0].instance, 100);
}

static void never_uses_a_server_without_an_instance(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    tell_ready(f, 0);
    atomic_store(&f->servers[0].instance, 0);
    reject_server(f, "it does not tell its instance", "remedy=\"upgrade the server", mend_instance);
}

static void mend_level(void *context)
{
    tell_ready(context, 0);
}

static void never_uses_a_server_of_a_lower_level(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    struct eb_wire_holding holding = make_holding(0, EB_WIRE_STATE_READY);
    tell_wire(f, 0,
        &(struct eb_wire_holdings){
            .count = 1, .items = &holding, .instance = 100, .level = EB_PEER_LEVEL_MIN - 1});
    reject_server(f, "it speaks level 0 of WatchModels; expected at least 1",
        "remedy=\"upgrade the server", mend_level);
}

static void drops_a_server_that_becomes_unusable(void **state)
{
    (void)state;
    struct watch_fixture *f = watch_one();
    atomic_store(&f->servers[0].role, "server");
    fake_server_order(&f->servers[0], FAKE_SERVER_DRAIN);
    RUN_UNTIL(f, count_ready(f, 0) == 0);
    RUN_UNTIL(f, count_open(f, 0) == 0);
    close_watch(f);
}

/* A process that was started again as a part server is used at once. */
static void does_not_make_a_new_process_wait(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    atomic_store(&f->servers[0].role, "server");
    open_watch(f);
    RUN_UNTIL(f, eb_peer_watch_has_all_answers(f->watch));
    atomic_store(&f->servers[0].role, "part 0/2");
    atomic_store(&f->servers[0].instance, 200);
    tell_ready(f, 0);
    fake_server_order(&f->servers[0], FAKE_SERVER_HANG_UP);
    /* The pause that the former process has caused is at least 15 s. */
    for (int i = 0; i < 20 && count_ready(f, 0) == 0; i++) {
        advance(100);
        run_a_while(f);
    }
    assert_int_equal(count_ready(f, 0), 1);
    close_watch(f);
}

static void hints_at_missing_rights(void **state)
{
    (void)state;
    struct watch_fixture *f = start_servers(1);
    tell_ready(f, 0);
    atomic_store(&f->servers[0].watches.status, EB_STATUS_PERMISSION_DENIED);
    start_log(f);
    open_watch(f);
    RUN_UNTIL(f, eb_peer_watch_has_all_answers(f->watch));
    for (unsigned i = 1; i <= 4; i++) {
        RUN_UNTIL(f, count_begun(f, 0) == i);
        run_a_while(f);
        assert_int_equal(count_mapped(f), 0);
        advance(WATCH_PAUSE_MS_MAX);
    }
    stop_log(f);
    assert_int_equal(count_logged(f, "event=part_server_unusable"), 2);
    assert_int_equal(count_logged(f, "router: true"), 2);
    mend_watches(f);
    eb_peer_watch_renew(f->watch, false);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    close_watch(f);
}

EB_TEST_GROUP(peer_watch_refusals)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_malformed_messages),
        cmocka_unit_test(refuses_contradictory_messages),
        cmocka_unit_test(refuses_messages_that_are_too_long),
        cmocka_unit_test(refuses_messages_with_too_many_versions),
        cmocka_unit_test(pauses_longer_after_each_failure),
        cmocka_unit_test(forgets_failures_when_a_call_has_lasted),
        cmocka_unit_test(warns_once_a_minute),
        cmocka_unit_test(never_uses_a_server_without_a_part),
        cmocka_unit_test(never_uses_a_server_without_watches),
        cmocka_unit_test(never_uses_a_server_that_does_not_know_itself),
        cmocka_unit_test(never_uses_a_server_without_an_instance),
        cmocka_unit_test(never_uses_a_server_of_a_lower_level),
        cmocka_unit_test(drops_a_server_that_becomes_unusable),
        cmocka_unit_test(does_not_make_a_new_process_wait),
        cmocka_unit_test(hints_at_missing_rights),
    };
    return cmocka_run_group_tests(tests, quieten_log, NULL);
}
