#include "server/route/peer_message.h"

#include "proto/message.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARENA_BYTES ((size_t)1 << 20)

static const uint32_t part_1[] = {1};

static int open_arena(void **state)
{
    struct eb_arena *arena = calloc(1, sizeof *arena);
    assert_non_null(arena);
    eb_arena_init(arena, &eb_memory_heap);
    eb_arena_reset(arena, ARENA_BYTES);
    *state = arena;
    return 0;
}

static int close_arena(void **state)
{
    eb_faults_disarm();
    eb_arena_deinit(*state);
    free(*state);
    return 0;
}

static struct eb_wire_holding make_holding(uint64_t version, int32_t state)
{
    return (struct eb_wire_holding){.model = "m",
        .version = version,
        .digest = 70,
        .parts = 2,
        .owned_part_count = 1,
        .owned_parts = part_1,
        .state = state,
        .error = ""};
}

/* Encodes a message and decodes it. */
static struct eb_peer_message *pass_message(
    struct eb_arena *arena, const struct eb_wire_holdings *wire, struct eb_error *error)
{
    size_t size = eb_holdings_bytes(wire);
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    eb_holdings_encode(wire, bytes);
    struct eb_peer_message *message = eb_peer_message_decode(arena, bytes, size, error);
    free(bytes);
    return message;
}

/* ---- roles ---- */

static void reads_the_roles_of_part_servers(void **state)
{
    (void)state;
    struct eb_part_choice choice;
    assert_true(eb_peer_role_read("part 3/16", &choice));
    assert_int_equal(choice.part, 3);
    assert_int_equal(choice.parts, 16);
    assert_true(eb_peer_role_read("part 0/1", &choice));
    assert_int_equal(choice.parts, 1);
    assert_true(eb_peer_role_read("part 4095/4096", &choice));
    assert_int_equal(choice.part, 4095);
}

static void refuses_other_roles(void **state)
{
    (void)state;
    static const char *const roles[] = {"", "server", "router", "part", "part ", "part 3",
        "part 3/", "part /16", "part 16/16", "part 0/0", "part 0/4097", "part 3/16 ", "part 3/16x",
        "part  3/16", "part -1/16", "part +1/16", "Part 3/16", "part 3 / 16",
        "part 4294967299/4294967312", "part 000003/16"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        struct eb_part_choice choice;
        assert_false(eb_peer_role_read(roles[i], &choice));
    }
}

/* ---- messages ---- */

static void translates_what_a_server_holds(void **state)
{
    struct eb_wire_holding items[] = {make_holding(9, EB_WIRE_STATE_LOADING),
        make_holding(8, EB_WIRE_STATE_READY), make_holding(7, EB_WIRE_STATE_SERVING),
        make_holding(6, EB_WIRE_STATE_FAILED)};
    items[2].served_by_router = true;
    items[2].claimed = true;
    items[3].error = "broken";
    struct eb_wire_holdings wire = {
        .count = 4, .items = items, .instance = 100, .draining = true, .level = 5};
    struct eb_error error;
    const struct eb_peer_message *message = pass_message(*state, &wire, &error);
    assert_non_null(message);
    assert_true(message->is_draining);
    assert_int_equal(message->level, 5);
    assert_true(message->part.instance == 100);
    assert_int_equal(message->part.count, 4);
    static const enum eb_part_state states[] = {
        EB_PART_LOADING, EB_PART_READY, EB_PART_SERVING, EB_PART_FAILED};
    for (size_t i = 0; i < 4; i++) {
        const struct eb_part_holding *holding = &message->part.holdings[i];
        assert_string_equal(holding->model, "m");
        assert_int_equal(holding->version, 9 - i);
        assert_int_equal(holding->digest, 70);
        assert_int_equal(holding->parts, 2);
        assert_int_equal(holding->owned_count, 1);
        assert_int_equal(holding->owned[0], 1);
        assert_int_equal(holding->state, states[i]);
        assert_int_equal(holding->is_served, i == 2);
        assert_int_equal(holding->is_claimed, i == 2);
        assert_string_equal(holding->error, i == 3 ? "broken" : "");
    }
}

/* A later release may have further states. */
static void leaves_out_versions_in_other_states(void **state)
{
    struct eb_wire_holding items[] = {make_holding(9, EB_WIRE_STATE_UNSPECIFIED),
        make_holding(8, EB_WIRE_STATE_RETIRED), make_holding(7, EB_WIRE_STATE_READY),
        make_holding(6, 99), make_holding(5, -1)};
    struct eb_wire_holdings wire = {.count = 5, .items = items, .instance = 100, .level = 1};
    struct eb_error error;
    const struct eb_peer_message *message = pass_message(*state, &wire, &error);
    assert_non_null(message);
    assert_int_equal(message->part.count, 1);
    assert_int_equal(message->part.holdings[0].version, 7);
}

static void refuses_a_version_0(void **state)
{
    struct eb_wire_holding items[] = {
        make_holding(7, EB_WIRE_STATE_READY), make_holding(0, EB_WIRE_STATE_RETIRED)};
    struct eb_wire_holdings wire = {.count = 2, .items = items, .instance = 100, .level = 1};
    struct eb_error error;
    assert_null(pass_message(*state, &wire, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    assert_string_equal(error.text, "holdings[1] names no version");
}

static void refuses_bytes_that_are_no_message(void **state)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    assert_null(eb_peer_message_decode(*state, (const uint8_t *)"\xff\xff", 2, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
}

static void says_when_the_arena_is_exhausted(void **state)
{
    struct eb_arena *arena = *state;
    struct eb_wire_holding items[] = {make_holding(7, EB_WIRE_STATE_READY)};
    struct eb_wire_holdings wire = {.count = 1, .items = items, .instance = 100, .level = 1};
    bool is_done = false;
    for (size_t cap = 16; !is_done; cap += 16) {
        struct eb_error error = {.status = EB_STATUS_OK};
        eb_arena_reset(arena, cap);
        is_done = pass_message(arena, &wire, &error);
        assert_int_equal(error.status, is_done ? EB_STATUS_OK : EB_STATUS_RESOURCE_EXHAUSTED);
        assert_true(cap < ARENA_BYTES);
    }
}

/* ---- claims ---- */

static void encodes_claims_of_served_versions_first(void **state)
{
    static const struct eb_peer_watch_claim claims[] = {
        {"a", 1, 10, false}, {"b", 2, 20, true}, {"c", 3, 30, false}, {"d", 4, 40, true}};
    static const char *const models[] = {"b", "d", "a", "c"};
    struct eb_peer_request request = {0};
    struct eb_error error;
    assert_true(eb_peer_request_encode(&request, "router-1", claims, 4));
    assert_int_equal(request.left_out, 0);
    const struct eb_wire_watch_request *wire =
        eb_watch_request_decode(*state, request.bytes, request.size, 255, &error);
    assert_non_null(wire);
    assert_string_equal(wire->router, "router-1");
    assert_int_equal(wire->level, EB_WATCH_LEVEL);
    assert_int_equal(wire->claim_count, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct eb_wire_claim *claim = &wire->claims[i];
        assert_string_equal(claim->model, models[i]);
        assert_int_equal(claim->version, claim->model[0] - 'a' + 1);
        assert_int_equal(claim->digest, claim->version * 10);
        assert_int_equal(claim->served, i < 2);
    }
    eb_peer_request_free(&request);
    assert_null(request.bytes);
}

static void leaves_out_claims_beyond_the_limit(void **state)
{
    enum { COUNT = EB_WATCH_CLAIMS_MAX + 2 };
    struct eb_peer_watch_claim claims[COUNT];
    struct eb_peer_request request = {0};
    struct eb_error error;
    for (unsigned i = 0; i < COUNT; i++) {
        claims[i] = (struct eb_peer_watch_claim){"m", i + 1, 0, i == COUNT - 1};
    }
    assert_true(eb_peer_request_encode(&request, "", claims, COUNT - 2));
    assert_int_equal(request.left_out, 0);
    eb_peer_request_free(&request);
    assert_true(eb_peer_request_encode(&request, "", claims, COUNT));
    assert_int_equal(request.left_out, 2);
    const struct eb_wire_watch_request *wire =
        eb_watch_request_decode(*state, request.bytes, request.size, 255, &error);
    assert_non_null(wire);
    assert_int_equal(wire->claim_count, EB_WATCH_CLAIMS_MAX);
    assert_int_equal(wire->claims[0].version, COUNT);
    assert_int_equal(wire->claims[1].version, 1);
    assert_int_equal(wire->claims[EB_WATCH_CLAIMS_MAX - 1].version, EB_WATCH_CLAIMS_MAX - 1);
    eb_peer_request_free(&request);
}

static void keeps_the_former_claims_without_memory(void **state)
{
    (void)state;
    struct eb_peer_request request = {0};
    assert_true(eb_peer_request_encode(&request, "", NULL, 0));
    const uint8_t *former = request.bytes;
    eb_faults_fail_allocation(1);
    assert_false(eb_peer_request_encode(&request, "", NULL, 0));
    assert_ptr_equal(request.bytes, former);
    eb_peer_request_free(&request);
}

EB_TEST_GROUP(peer_message)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_roles_of_part_servers),
        cmocka_unit_test(refuses_other_roles),
        cmocka_unit_test_setup_teardown(translates_what_a_server_holds, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(
            leaves_out_versions_in_other_states, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(refuses_a_version_0, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(refuses_bytes_that_are_no_message, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(says_when_the_arena_is_exhausted, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(
            encodes_claims_of_served_versions_first, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(
            leaves_out_claims_beyond_the_limit, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(
            keeps_the_former_claims_without_memory, open_arena, close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
