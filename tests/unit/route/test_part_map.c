/* What a router knows of its part servers: which versions are complete, and who has their parts. */
#include "server/route/part_map.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PEERS 6

static const struct eb_part_key key = {.model = "ctr", .version = 7, .digest = 70, .parts = 2};

static struct eb_part_holding holding(uint32_t part, enum eb_part_state state)
{
    return (struct eb_part_holding){.key = key, .part = part, .state = state, .error = ""};
}

static int set_up(void **state)
{
    struct eb_part_map *map = calloc(1, sizeof *map);
    assert_non_null(map);
    assert_true(eb_part_map_init(map, PEERS));
    *state = map;
    return 0;
}

static int tear_down(void **state)
{
    eb_part_map_deinit(*state);
    free(*state);
    return 0;
}

/* Takes one holding of a peer whose process is its own. */
static void take(struct eb_part_map *map, uint32_t peer, struct eb_part_holding holding)
{
    struct eb_error error;
    assert_true(eb_part_map_take(map, peer, 100 + peer, &holding, 1, &error));
}

static struct eb_part_view view(const struct eb_part_map *map, uint32_t replicas)
{
    struct eb_part_view view;
    assert_true(eb_part_map_view(map, &key, replicas, &view));
    return view;
}

static void knows_nothing_at_first(void **state)
{
    struct eb_part_view seen = view(*state, 1);
    assert_false(seen.is_complete);
    assert_false(seen.has_replicas);
    assert_false(seen.is_failed);
    assert_false(seen.is_served);
    assert_int_equal(seen.ready_parts, 0);
}

static void a_version_is_complete_when_each_part_is_ready_somewhere(void **state)
{
    struct eb_part_map *map = *state;
    take(map, 0, holding(0, EB_PART_READY));
    assert_false(view(map, 1).is_complete);
    assert_int_equal(view(map, 1).ready_parts, 1);
    take(map, 1, holding(1, EB_PART_LOADING));
    assert_false(view(map, 1).is_complete);
    take(map, 1, holding(1, EB_PART_READY));
    assert_true(view(map, 1).is_complete);
    eb_part_map_drop(map, 0);
    assert_false(view(map, 1).is_complete);
}

static void other_digests_parts_numbers_and_models_are_other_versions(void **state)
{
    struct eb_part_map *map = *state;
    const struct eb_part_key others[] = {
        {"ctr", 7, 71, 2}, {"ctr", 7, 70, 3}, {"ctr", 8, 70, 2}, {"ctr2", 7, 70, 2}};
    take(map, 0, holding(0, EB_PART_READY));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct eb_part_holding other = holding(1, EB_PART_READY);
        other.key = others[i];
        take(map, 1, other);
        assert_false(view(map, 1).is_complete);
    }
    take(map, 1, holding(1, EB_PART_READY));
    assert_true(view(map, 1).is_complete);
}

static void wants_as_many_replicas_as_hold_a_part_at_all(void **state)
{
    struct eb_part_map *map = *state;
    take(map, 0, holding(0, EB_PART_READY));
    take(map, 1, holding(1, EB_PART_READY));
    assert_true(view(map, 2).has_replicas);
    /* A second holder of part 1 that has not loaded it yet. */
    take(map, 2, holding(1, EB_PART_LOADING));
    assert_true(view(map, 2).is_complete);
    assert_false(view(map, 2).has_replicas);
    assert_true(view(map, 1).has_replicas);
    take(map, 2, holding(1, EB_PART_READY));
    assert_true(view(map, 2).has_replicas);
    /* A third holder, of another version, is one more that could have it. */
    struct eb_part_holding other = holding(1, EB_PART_READY);
    other.key.version = 6;
    take(map, 3, other);
    assert_true(view(map, 2).has_replicas);
    assert_false(view(map, 3).has_replicas);
}

static void a_peer_with_a_part_of_two_versions_holds_it_once(void **state)
{
    struct eb_part_map *map = *state;
    struct eb_part_holding two[2] = {holding(0, EB_PART_READY), holding(0, EB_PART_READY)};
    struct eb_error error;
    two[1].key.version = 6;
    assert_true(eb_part_map_take(map, 0, 100, two, 2, &error));
    take(map, 1, holding(1, EB_PART_READY));
    assert_true(view(map, 2).has_replicas);
}

static void a_version_fails_when_a_part_failed_wherever_it_is(void **state)
{
    struct eb_part_map *map = *state;
    struct eb_part_holding failed = holding(1, EB_PART_FAILED);
    failed.error = "t.npy: cut off";
    take(map, 0, holding(0, EB_PART_READY));
    take(map, 1, failed);
    assert_true(view(map, 1).is_failed);
    assert_int_equal(view(map, 1).failed_part, 1);
    assert_string_equal(view(map, 1).error, "t.npy: cut off");
    take(map, 2, holding(1, EB_PART_LOADING));
    assert_false(view(map, 1).is_failed);
    take(map, 2, holding(1, EB_PART_READY));
    assert_false(view(map, 1).is_failed);
    assert_true(view(map, 1).is_complete);
}

static void tells_of_service_and_claims(void **state)
{
    struct eb_part_map *map = *state;
    struct eb_part_holding served = holding(0, EB_PART_READY);
    served.is_served = true;
    take(map, 0, served);
    assert_true(view(map, 1).is_served);
    assert_false(view(map, 1).is_claimed);
    served.is_served = false;
    served.is_claimed = true;
    take(map, 0, served);
    assert_false(view(map, 1).is_served);
    assert_true(view(map, 1).is_claimed);
}

static void two_addresses_of_a_process_are_one_peer(void **state)
{
    struct eb_part_map *map = *state;
    struct eb_part_holding ready = holding(0, EB_PART_READY);
    struct eb_error error;
    uint32_t peers[PEERS];
    assert_true(eb_part_map_take(map, 2, 9, &ready, 1, &error));
    assert_true(eb_part_map_take(map, 4, 9, &ready, 1, &error));
    assert_int_equal(eb_part_map_list(map, &key, 0, peers, PEERS), 1);
    assert_int_equal(peers[0], 2);
    eb_part_map_drop(map, 2);
    assert_int_equal(eb_part_map_list(map, &key, 0, peers, PEERS), 1);
    assert_int_equal(peers[0], 4);
}

static void lists_the_peers_where_a_part_is_ready(void **state)
{
    struct eb_part_map *map = *state;
    uint32_t peers[PEERS] = {99, 99, 99, 99, 99, 99};
    take(map, 5, holding(0, EB_PART_READY));
    take(map, 1, holding(0, EB_PART_READY));
    take(map, 2, holding(0, EB_PART_LOADING));
    take(map, 3, holding(1, EB_PART_READY));
    assert_int_equal(eb_part_map_list(map, &key, 0, peers, 1), 2);
    assert_int_equal(peers[0], 1);
    assert_int_equal(peers[1], 99);
    assert_int_equal(eb_part_map_list(map, &key, 0, peers, PEERS), 2);
    assert_int_equal(peers[1], 5);
}

static void copies_what_it_takes(void **state)
{
    struct eb_part_map *map = *state;
    char model[] = "ctr";
    char text[] = "gone";
    struct eb_part_holding failed = holding(0, EB_PART_FAILED);
    failed.key.model = model;
    failed.error = text;
    take(map, 0, failed);
    model[0] = 'x';
    text[0] = 'x';
    assert_string_equal(view(map, 1).error, "gone");
}

/* Refuses a list, and forgets what the peer said before. */
static void refuse(struct eb_part_map *map, const struct eb_part_holding *list, size_t count,
    enum eb_status status)
{
    struct eb_error error;
    take(map, 0, holding(0, EB_PART_READY));
    assert_false(eb_part_map_take(map, 0, 100, list, count, &error));
    assert_int_equal(error.status, status);
    assert_int_equal(view(map, 1).ready_parts, 0);
}

static void refuses_parts_that_do_not_exist(void **state)
{
    struct eb_part_holding bad = holding(2, EB_PART_READY);
    refuse(*state, &bad, 1, EB_STATUS_INTERNAL);
    bad = holding(0, EB_PART_READY);
    bad.key.parts = 0;
    refuse(*state, &bad, 1, EB_STATUS_INTERNAL);
    bad.key.parts = EB_PARTS_MAX + 1;
    refuse(*state, &bad, 1, EB_STATUS_INTERNAL);
}

static void refuses_more_than_the_limits(void **state)
{
    struct eb_part_map *map = *state;
    struct eb_error error;
    struct eb_part_holding *many = calloc(EB_PART_MAP_HOLDINGS_MAX + 1, sizeof *many);
    char *text = malloc(EB_PART_MAP_ERROR_BYTES_MAX + 2);
    assert_non_null(many);
    assert_non_null(text);
    for (size_t i = 0; i <= EB_PART_MAP_HOLDINGS_MAX; i++) {
        many[i] = holding(0, EB_PART_READY);
        many[i].key.version = i + 1;
    }
    assert_true(eb_part_map_take(map, 0, 100, many, EB_PART_MAP_HOLDINGS_MAX, &error));
    refuse(map, many, EB_PART_MAP_HOLDINGS_MAX + 1, EB_STATUS_INTERNAL);

    memset(text, 'e', EB_PART_MAP_ERROR_BYTES_MAX + 1);
    text[EB_PART_MAP_ERROR_BYTES_MAX + 1] = '\0';
    many[0].state = EB_PART_FAILED;
    many[0].error = text + 1;
    assert_true(eb_part_map_take(map, 0, 100, many, 1, &error));
    many[0].error = text;
    refuse(map, many, 1, EB_STATUS_INTERNAL);
    free(text);
    free(many);
}

static void survives_a_lack_of_memory(void **state)
{
    struct eb_part_map *map = *state;
    struct eb_part_map other;
    struct eb_part_holding ready = holding(0, EB_PART_READY);
    struct eb_part_view seen;
    struct eb_error error;
    take(map, 0, ready);
    eb_faults_fail_allocation(1);
    assert_false(eb_part_map_init(&other, 1));
    eb_faults_fail_allocation(1);
    assert_false(eb_part_map_view(map, &key, 1, &seen));
    eb_faults_fail_allocation(1);
    assert_false(eb_part_map_take(map, 0, 100, &ready, 1, &error));
    eb_faults_disarm();
    assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(view(map, 1).ready_parts, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(part_map)
{
    const struct CMUnitTest tests[] = {
        TEST(knows_nothing_at_first),
        TEST(a_version_is_complete_when_each_part_is_ready_somewhere),
        TEST(other_digests_parts_numbers_and_models_are_other_versions),
        TEST(wants_as_many_replicas_as_hold_a_part_at_all),
        TEST(a_peer_with_a_part_of_two_versions_holds_it_once),
        TEST(a_version_fails_when_a_part_failed_wherever_it_is),
        TEST(tells_of_service_and_claims),
        TEST(two_addresses_of_a_process_are_one_peer),
        TEST(lists_the_peers_where_a_part_is_ready),
        TEST(copies_what_it_takes),
        TEST(refuses_parts_that_do_not_exist),
        TEST(refuses_more_than_the_limits),
        TEST(survives_a_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
