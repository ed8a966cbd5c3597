/* Which servers have which parts: each rule, the limits of messages, failing allocations, and
 * random messages against a plain model. */
#include "proto/splitmix64.h"
#include "server/route/part_map.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PEERS 8
#define PARTS 3

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WALK_STEPS 20000
#else
#define WALK_STEPS 200000
#endif

static const struct eb_part_key key_7 = {"m", 7, 70, PARTS};
static const uint32_t numbers[] = {0, 1, 2};

static struct eb_part_holding hold(uint32_t part, enum eb_part_state state)
{
    return (struct eb_part_holding){.model = "m",
        .version = 7,
        .digest = 70,
        .parts = PARTS,
        .owned_count = 1,
        .owned = &numbers[part],
        .state = state,
        .error = ""};
}

static bool take_list(struct eb_part_map *map, uint32_t peer, uint64_t instance,
    const struct eb_part_holding *holdings, size_t count)
{
    struct eb_error error;
    struct eb_part_message message = {.instance = instance, .count = count, .holdings = holdings};
    return eb_part_map_take(map, peer, &message, &error);
}

/* Lets a peer, whose instance is 100 + its number, have one part of version 7. */
static void have_part(
    struct eb_part_map *map, uint32_t peer, uint32_t part, enum eb_part_state state)
{
    struct eb_part_holding holding = hold(part, state);
    assert_true(take_list(map, peer, 100 + peer, &holding, 1));
}

static size_t count_peers(const struct eb_part_set *set, uint32_t part)
{
    size_t count;
    (void)eb_part_set_peers(set, part, &count);
    return count;
}

static bool has_peer(const struct eb_part_set *set, uint32_t part, uint32_t peer)
{
    size_t count;
    const uint32_t *peers = eb_part_set_peers(set, part, &count);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found += peers[i] == peer;
    }
    assert_true(found <= 1);
    return found == 1;
}

struct fixture {
    struct eb_part_map map;
    struct eb_part_set *set;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture || !eb_part_map_init(&fixture->map, PEERS)) {
        free(fixture);
        return -1;
    }
    fixture->set = eb_part_map_open(&fixture->map, &key_7);
    *state = fixture;
    return fixture->set ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_faults_disarm();
    eb_part_map_deinit(&fixture->map);
    free(fixture);
    return 0;
}

/* ---- rules ---- */

static void is_complete_if_each_part_is_ready_somewhere(void **state)
{
    struct fixture *fixture = *state;
    struct eb_part_view view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_false(view.is_complete);
    assert_false(view.has_replicas);
    have_part(&fixture->map, 0, 0, EB_PART_READY);
    have_part(&fixture->map, 1, 1, EB_PART_LOADING);
    have_part(&fixture->map, 2, 2, EB_PART_SERVING);
    view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_false(view.is_complete);
    assert_int_equal(view.ready_parts, 2);
    assert_int_equal(view.lost_part, 1);
    have_part(&fixture->map, 1, 1, EB_PART_READY);
    view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_true(view.is_complete);
    assert_true(view.has_replicas);
    assert_int_equal(view.ready_parts, 3);
    for (uint32_t part = 0; part < PARTS; part++) {
        assert_int_equal(count_peers(fixture->set, part), 1);
        assert_true(has_peer(fixture->set, part, part));
    }
    eb_part_map_drop(&fixture->map, 2);
    view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_false(view.is_complete);
    assert_int_equal(view.lost_part, 2);
    eb_part_map_drop(&fixture->map, 2); /* It holds nothing already. */
}

static void replaces_what_a_peer_said(void **state)
{
    struct fixture *fixture = *state;
    struct eb_part_holding both[] = {hold(0, EB_PART_READY), hold(1, EB_PART_READY)};
    assert_true(take_list(&fixture->map, 3, 5, both, 2));
    assert_true(has_peer(fixture->set, 0, 3) && has_peer(fixture->set, 1, 3));
    assert_true(take_list(&fixture->map, 3, 5, &both[1], 1));
    assert_true(!has_peer(fixture->set, 0, 3) && has_peer(fixture->set, 1, 3));
    uint64_t changes = fixture->map.changes;
    assert_true(take_list(&fixture->map, 3, 5, &both[1], 1)); /* a repetition */
    assert_true(fixture->map.changes == changes);
    assert_true(take_list(&fixture->map, 3, 5, NULL, 0));
    assert_int_equal(count_peers(fixture->set, 1), 0);
}

static void counts_addresses_of_one_process_once(void **state)
{
    struct fixture *fixture = *state;
    struct eb_part_holding ready = hold(0, EB_PART_READY);
    struct eb_part_holding loading = hold(0, EB_PART_LOADING);
    assert_true(take_list(&fixture->map, 4, 5, &ready, 1));
    assert_true(take_list(&fixture->map, 2, 5, &ready, 1));
    assert_true(take_list(&fixture->map, 3, 6, &ready, 1));
    assert_int_equal(count_peers(fixture->set, 0), 2);
    assert_true(has_peer(fixture->set, 0, 2) && has_peer(fixture->set, 0, 3));
    assert_int_equal(eb_part_map_count_connected(&fixture->map, 0, PARTS), 2);
    /* The one that says READY takes legs. */
    assert_true(take_list(&fixture->map, 2, 5, &loading, 1));
    assert_true(has_peer(fixture->set, 0, 4) && !has_peer(fixture->set, 0, 2));
    eb_part_map_drop(&fixture->map, 4);
    assert_int_equal(count_peers(fixture->set, 0), 1);
    assert_int_equal(eb_part_map_count_connected(&fixture->map, 0, PARTS), 2);
    /* Another process behind the same address. */
    assert_true(take_list(&fixture->map, 2, 6, &ready, 1));
    assert_int_equal(count_peers(fixture->set, 0), 1);
    assert_int_equal(eb_part_map_count_connected(&fixture->map, 0, PARTS), 1);
}

static void wants_no_more_replicas_than_are_connected(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t part = 0; part < PARTS; part++) {
        have_part(&fixture->map, part, part, EB_PART_READY);
    }
    assert_true(eb_part_map_view(&fixture->map, fixture->set, 2).has_replicas);
    have_part(&fixture->map, 3, 1, EB_PART_LOADING);
    assert_true(eb_part_map_view(&fixture->map, fixture->set, 1).has_replicas);
    assert_false(eb_part_map_view(&fixture->map, fixture->set, 2).has_replicas);
    assert_true(eb_part_map_view(&fixture->map, fixture->set, 2).is_complete);
    have_part(&fixture->map, 3, 1, EB_PART_READY);
    assert_true(eb_part_map_view(&fixture->map, fixture->set, 2).has_replicas);
    assert_true(eb_part_map_view(&fixture->map, fixture->set, 9).has_replicas);
    /* A server counts that has another version of the part only, or nothing yet but its role. */
    struct eb_part_holding other = hold(1, EB_PART_READY);
    other.version = 6;
    assert_true(take_list(&fixture->map, 3, 103, &other, 1));
    assert_false(eb_part_map_view(&fixture->map, fixture->set, 2).has_replicas);
    struct eb_error error;
    struct eb_part_message message = {.instance = 103, .role = {2, PARTS}};
    assert_true(eb_part_map_take(&fixture->map, 3, &message, &error));
    assert_false(eb_part_map_view(&fixture->map, fixture->set, 2).has_replicas);
    assert_int_equal(eb_part_map_count_connected(&fixture->map, 1, PARTS), 1);
    assert_int_equal(eb_part_map_count_connected(&fixture->map, 2, PARTS), 2);
    message.role = (struct eb_part_choice){2, PARTS + 1}; /* another set of parts */
    assert_true(eb_part_map_take(&fixture->map, 3, &message, &error));
    assert_true(eb_part_map_view(&fixture->map, fixture->set, 2).has_replicas);
    assert_int_equal(eb_part_map_count_connected(&fixture->map, 2, PARTS + 1), 1);
}

static void has_failed_if_all_replicas_of_a_part_say_so(void **state)
{
    struct fixture *fixture = *state;
    struct eb_failure text;
    struct eb_part_holding failed = hold(2, EB_PART_FAILED);
    failed.error = "t.embag: other\nfiles";
    have_part(&fixture->map, 0, 2, EB_PART_LOADING);
    assert_true(take_list(&fixture->map, 1, 101, &failed, 1));
    assert_false(eb_part_map_view(&fixture->map, fixture->set, 1).is_failed);
    have_part(&fixture->map, 0, 2, EB_PART_FAILED);
    struct eb_part_view view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_true(view.is_failed);
    assert_int_equal(view.failed_part, 2);
    eb_part_view_explain(&view, &text);
    assert_string_equal(text.text, "part 2: t.embag: other\\x0afiles");
    /* A connected replica that does not know the version yet may load it. */
    struct eb_error error;
    struct eb_part_message message = {.instance = 9, .role = {2, PARTS}};
    assert_true(eb_part_map_take(&fixture->map, 4, &message, &error));
    assert_false(eb_part_map_view(&fixture->map, fixture->set, 1).is_failed);
    eb_part_map_drop(&fixture->map, 4);
    have_part(&fixture->map, 5, 2, EB_PART_READY);
    assert_false(eb_part_map_view(&fixture->map, fixture->set, 1).is_failed);
    eb_part_map_drop(&fixture->map, 5);
    eb_part_map_drop(&fixture->map, 1);
    view = eb_part_map_view(&fixture->map, fixture->set, 1);
    eb_part_view_explain(&view, &text);
    assert_string_equal(text.text, "part 2: the servers do not say why");
}

/* A server that has not loaded a version knows neither its digest nor its parts. */
static void takes_versions_that_are_not_loaded_for_those_of_the_role(void **state)
{
    struct fixture *fixture = *state;
    struct eb_error error;
    struct eb_part_holding holding = {
        .model = "m", .version = 7, .state = EB_PART_FAILED, .error = "too large", .is_claimed = 1};
    struct eb_part_message message = {9, {1, PARTS}, 1, &holding};
    assert_true(eb_part_map_take(&fixture->map, 0, &message, &error));
    struct eb_part_view view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_true(view.is_failed && view.is_claimed && !view.is_conflict);
    assert_int_equal(view.failed_part, 1);
    assert_string_equal(view.error, "too large");
    message.role.parts = PARTS + 1;
    assert_true(eb_part_map_take(&fixture->map, 0, &message, &error));
    view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_false(view.is_failed || view.is_claimed);
    /* A version that is READY has a digest. */
    struct eb_part_holding ready = hold(1, EB_PART_READY);
    ready.digest = 0;
    assert_true(take_list(&fixture->map, 0, 9, &ready, 1));
    assert_int_equal(count_peers(fixture->set, 1), 0);
}

static void tells_other_files_apart(void **state)
{
    struct fixture *fixture = *state;
    struct eb_part_holding holdings[] = {hold(1, EB_PART_READY), hold(1, EB_PART_READY),
        hold(1, EB_PART_READY), hold(1, EB_PART_READY)};
    holdings[0].model = "n";
    holdings[1].version = 8;
    holdings[2].parts = PARTS + 1;
    holdings[2].digest = 71;
    holdings[3].digest = 71;
    assert_true(take_list(&fixture->map, 0, 9, holdings, 3));
    assert_int_equal(count_peers(fixture->set, 1), 0);
    assert_false(eb_part_map_view(&fixture->map, fixture->set, 1).is_conflict);
    assert_true(take_list(&fixture->map, 0, 9, holdings, 4));
    assert_int_equal(count_peers(fixture->set, 1), 0);
    assert_true(eb_part_map_view(&fixture->map, fixture->set, 1).is_conflict);
    /* A set that is opened later finds what peers have said before. */
    struct eb_part_key other = key_7;
    other.digest = 71;
    struct eb_part_set *set = eb_part_map_open(&fixture->map, &other);
    assert_non_null(set);
    assert_int_equal(count_peers(set, 1), 1);
    assert_int_equal(count_peers(set, 0), 0);
    eb_part_map_close(set);
    eb_part_map_close(NULL);
    assert_true(eb_part_map_has_version(&fixture->map, "m", 8));
    assert_false(eb_part_map_has_version(&fixture->map, "m", 9));
    assert_false(eb_part_map_has_version(&fixture->map, "n", 8));
    holdings[1].state = EB_PART_FAILED;
    assert_true(take_list(&fixture->map, 0, 9, holdings, 4));
    assert_false(eb_part_map_has_version(&fixture->map, "m", 8));
}

static void tells_what_routers_serve_and_claim(void **state)
{
    struct fixture *fixture = *state;
    struct eb_part_holding holding = hold(1, EB_PART_LOADING);
    holding.is_claimed = true;
    assert_true(take_list(&fixture->map, 0, 9, &holding, 1));
    struct eb_part_view view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_true(view.is_claimed && !view.is_served);
    holding.is_served = true;
    assert_true(take_list(&fixture->map, 0, 9, &holding, 1));
    assert_true(eb_part_map_view(&fixture->map, fixture->set, 1).is_served);
    holding.digest = 71;
    assert_true(take_list(&fixture->map, 0, 9, &holding, 1));
    view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_false(view.is_claimed || view.is_served);
}

static void counts_a_server_with_several_versions_once(void **state)
{
    struct fixture *fixture = *state;
    struct eb_part_holding two[] = {hold(0, EB_PART_READY), hold(0, EB_PART_READY)};
    two[1].version = 6;
    assert_true(take_list(&fixture->map, 0, 9, two, 2));
    assert_int_equal(eb_part_map_count_connected(&fixture->map, 0, PARTS), 1);
    have_part(&fixture->map, 1, 1, EB_PART_READY);
    have_part(&fixture->map, 2, 2, EB_PART_READY);
    assert_true(eb_part_map_view(&fixture->map, fixture->set, 2).has_replicas);
}

static void copies_what_it_takes(void **state)
{
    struct fixture *fixture = *state;
    char model[] = "m";
    char text[] = "gone";
    uint32_t part = 2;
    struct eb_part_holding failed = hold(0, EB_PART_FAILED);
    failed.model = model;
    failed.error = text;
    failed.owned = &part;
    assert_true(take_list(&fixture->map, 0, 9, &failed, 1));
    model[0] = text[0] = 'x';
    part = 1;
    struct eb_part_view view = eb_part_map_view(&fixture->map, fixture->set, 1);
    assert_int_equal(view.failed_part, 2);
    assert_string_equal(view.error, "gone");
}

/* ---- limits ---- */

/* Checks that a list is refused, and that its peer then holds nothing. */
static void check_refused(struct fixture *fixture, const struct eb_part_message *message)
{
    struct eb_error error = {0};
    have_part(&fixture->map, 0, 1, EB_PART_READY);
    assert_int_equal(count_peers(fixture->set, 1), 1);
    assert_false(eb_part_map_take(&fixture->map, 0, message, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    assert_true(error.text[0] != '\0');
    assert_int_equal(count_peers(fixture->set, 1), 0);
    assert_int_equal(eb_part_map_count_connected(&fixture->map, 1, PARTS), 0);
}

static void refuses_messages_that_contradict_themselves(void **state)
{
    struct fixture *fixture = *state;
    const uint32_t repeated[] = {0, 0, 0, 0};
    uint32_t beyond = PARTS;
    struct eb_part_holding holding = hold(1, EB_PART_READY);
    struct eb_part_message message = {0, {0, 0}, 1, &holding};
    check_refused(fixture, &message); /* no instance */
    message = (struct eb_part_message){9, {PARTS, PARTS}, 1, &holding};
    check_refused(fixture, &message);
    message.role = (struct eb_part_choice){0, EB_PARTS_MAX + 1};
    check_refused(fixture, &message);
    message.role = (struct eb_part_choice){0, 0};
    holding.owned = &beyond;
    check_refused(fixture, &message);
    holding.owned = repeated;
    holding.owned_count = PARTS + 1;
    check_refused(fixture, &message);
    holding.owned_count = PARTS;
    assert_true(take_list(&fixture->map, 0, 9, &holding, 1));
    assert_int_equal(count_peers(fixture->set, 0), 1);
    holding.parts = 0; /* It is not in parts, but has one. */
    check_refused(fixture, &message);
    holding = hold(1, EB_PART_STATES);
    check_refused(fixture, &message);
    holding = hold(1, EB_PART_READY);
    holding.parts = EB_PARTS_MAX;
    assert_true(take_list(&fixture->map, 0, 9, &holding, 1));
    holding.parts = EB_PARTS_MAX + 1;
    check_refused(fixture, &message);
}

static void refuses_too_many_holdings(void **state)
{
    struct fixture *fixture = *state;
    struct eb_part_holding *many = calloc(EB_PART_MAP_HOLDINGS_MAX + 1, sizeof *many);
    assert_non_null(many);
    for (uint32_t i = 0; i <= EB_PART_MAP_HOLDINGS_MAX; i++) {
        many[i] = hold(i % PARTS, EB_PART_READY);
        many[i].version = EB_PART_MAP_HOLDINGS_MAX - i;
    }
    struct eb_part_message message = {9, {0, 0}, EB_PART_MAP_HOLDINGS_MAX, many};
    assert_true(take_list(&fixture->map, 0, 9, many, message.count));
    assert_int_equal(
        count_peers(fixture->set, (EB_PART_MAP_HOLDINGS_MAX - 7) % PARTS), 1); /* of version 7 */
    message.count++;
    check_refused(fixture, &message);
    free(many);
}

/* Returns a text of that many bytes. */
static char *make_text(size_t bytes)
{
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    return text;
}

static void refuses_too_long_texts(void **state)
{
    struct fixture *fixture = *state;
    struct eb_part_holding two[] = {hold(0, EB_PART_FAILED), hold(1, EB_PART_FAILED)};
    struct eb_part_message message = {9, {0, 0}, 2, two};
    char *half = make_text(EB_PART_MAP_ERROR_BYTES_MAX / 2);
    char *more = make_text(EB_PART_MAP_ERROR_BYTES_MAX / 2 + 1);
    two[0].error = two[1].error = half;
    assert_true(take_list(&fixture->map, 0, 9, two, 2));
    two[1].error = more;
    check_refused(fixture, &message);
    free(half);
    free(more);
    half = make_text(EB_PART_MAP_NAME_BYTES_MAX / 2);
    more = make_text(EB_PART_MAP_NAME_BYTES_MAX / 2 + 1);
    two[0].error = two[1].error = "";
    two[0].model = two[1].model = half;
    assert_true(take_list(&fixture->map, 0, 9, two, 2));
    two[1].model = more;
    check_refused(fixture, &message);
    free(half);
    free(more);
}

static void refuses_too_many_owned_parts(void **state)
{
    struct fixture *fixture = *state;
    enum { FULL = EB_PART_MAP_OWNED_MAX / EB_PARTS_MAX };
    struct eb_part_holding holdings[FULL + 1];
    uint32_t *all = calloc(EB_PARTS_MAX, sizeof *all);
    assert_non_null(all);
    for (uint32_t part = 0; part < EB_PARTS_MAX; part++) {
        all[part] = part;
    }
    for (int i = 0; i < FULL; i++) {
        holdings[i] = hold(0, EB_PART_READY);
        holdings[i].parts = EB_PARTS_MAX;
        holdings[i].owned_count = EB_PARTS_MAX;
        holdings[i].owned = all;
    }
    holdings[FULL] = hold(0, EB_PART_READY);
    struct eb_part_message message = {9, {0, 0}, FULL + 1, holdings};
    struct eb_part_key key = {"m", 7, 70, EB_PARTS_MAX};
    struct eb_part_set *set = eb_part_map_open(&fixture->map, &key);
    assert_non_null(set);
    assert_true(take_list(&fixture->map, 0, 9, holdings, FULL));
    assert_true(eb_part_map_view(&fixture->map, set, 1).is_complete);
    assert_int_equal(count_peers(set, EB_PARTS_MAX - 1), 1);
    check_refused(fixture, &message);
    assert_int_equal(count_peers(set, EB_PARTS_MAX - 1), 0);
    free(all);
}

static void keeps_as_many_peers_as_are_allowed(void **state)
{
    (void)state;
    struct eb_part_map map;
    assert_true(eb_part_map_init(&map, EB_PART_MAP_PEERS_MAX));
    struct eb_part_set *set = eb_part_map_open(&map, &key_7);
    assert_non_null(set);
    for (uint32_t peer = 0; peer < EB_PART_MAP_PEERS_MAX; peer++) {
        have_part(&map, peer, 1, EB_PART_READY);
    }
    assert_int_equal(count_peers(set, 1), EB_PART_MAP_PEERS_MAX);
    assert_int_equal(eb_part_map_count_connected(&map, 1, PARTS), EB_PART_MAP_PEERS_MAX);
    for (uint32_t peer = 0; peer < EB_PART_MAP_PEERS_MAX; peer += 2) {
        eb_part_map_drop(&map, peer);
    }
    assert_int_equal(count_peers(set, 1), EB_PART_MAP_PEERS_MAX / 2);
    eb_part_map_deinit(&map);
    eb_part_map_deinit(&map);
}

/* ---- memory ---- */

static void holds_nothing_if_memory_is_short(void **state)
{
    struct fixture *fixture = *state;
    struct eb_error error = {0};
    struct eb_part_holding holdings[] = {hold(0, EB_PART_READY), hold(1, EB_PART_READY)};
    struct eb_part_message message = {9, {0, 0}, 2, holdings};
    struct eb_part_set *other = eb_part_map_open(&fixture->map, &key_7);
    assert_non_null(other);
    unsigned tries = 0;
    bool is_taken = false;
    while (!is_taken) {
        eb_faults_fail_allocation(++tries);
        is_taken = eb_part_map_take(&fixture->map, 0, &message, &error);
        eb_faults_fail_allocation(0);
        assert_true(is_taken || error.status == EB_STATUS_RESOURCE_EXHAUSTED);
        assert_int_equal(count_peers(fixture->set, 1), is_taken);
        assert_int_equal(count_peers(other, 1), is_taken);
    }
    assert_true(tries >= 3);
}

static void opens_nothing_if_memory_is_short(void **state)
{
    struct fixture *fixture = *state;
    struct eb_part_map map = {0};
    struct eb_part_set *set = NULL;
    unsigned tries = 0;
    have_part(&fixture->map, 0, 0, EB_PART_READY);
    while (!set) {
        eb_faults_fail_allocation(++tries);
        set = eb_part_map_open(&fixture->map, &key_7);
        eb_faults_fail_allocation(0);
    }
    assert_true(tries > 4);
    for (tries = 1; !map.peers; tries++) {
        eb_faults_fail_allocation(tries);
        bool is_made = eb_part_map_init(&map, 1);
        eb_faults_fail_allocation(0);
        assert_true(is_made == (bool)map.peers);
    }
    assert_true(tries > 2);
    eb_part_map_deinit(&map);
}

/* ---- random messages ---- */

/* What a peer said last: the state of each part of version 7, or EB_PART_STATES for none. */
struct said {
    uint64_t instance; /* 0: nothing */
    enum eb_part_state states[PARTS];
    bool is_other; /* the digest is another one */
};

/* Returns the best of a part's states at an instance. */
static enum eb_part_state find_state(const struct said *said, uint64_t instance, uint32_t part)
{
    enum eb_part_state best = EB_PART_STATES;
    for (uint32_t peer = 0; peer < PEERS; peer++) {
        enum eb_part_state state = said[peer].states[part];
        if (said[peer].instance != instance || said[peer].is_other || state == EB_PART_STATES) {
            continue;
        }
        bool is_better = state == EB_PART_READY || best == EB_PART_STATES ||
                         (state == EB_PART_LOADING && best == EB_PART_FAILED);
        best = is_better ? state : best;
    }
    return best;
}

/* Returns whether an instance has a part, of whatever files. */
static bool has_part(const struct said *said, uint64_t instance, uint32_t part)
{
    for (uint32_t peer = 0; peer < PEERS; peer++) {
        if (said[peer].instance == instance && said[peer].states[part] != EB_PART_STATES) {
            return true;
        }
    }
    return false;
}

/* Compares a part with what the peers, whose instances are 1 to PEERS, have said. */
static void check_part(struct fixture *fixture, const struct said *said, uint32_t part)
{
    uint32_t ready = 0;
    uint32_t failed = 0;
    uint32_t connected = 0;
    size_t count;
    const uint32_t *peers = eb_part_set_peers(fixture->set, part, &count);
    for (uint64_t instance = 1; instance <= PEERS; instance++) {
        enum eb_part_state state = find_state(said, instance, part);
        ready += state == EB_PART_READY;
        failed += state == EB_PART_FAILED;
        connected += has_part(said, instance, part);
    }
    assert_int_equal(count, ready);
    assert_int_equal(eb_part_map_count_connected(&fixture->map, part, PARTS), connected);
    for (size_t i = 0; i < count; i++) {
        assert_true(peers[i] < PEERS && said[peers[i]].instance != 0 && !said[peers[i]].is_other);
        assert_int_equal(said[peers[i]].states[part], EB_PART_READY);
        for (size_t k = 0; k < i; k++) {
            assert_true(said[peers[k]].instance != said[peers[i]].instance);
        }
    }
    struct eb_part_view view = eb_part_map_view(&fixture->map, fixture->set, 2);
    assert_true(!view.is_complete || ready > 0);
    assert_true(!view.has_replicas || ready >= 2 || (ready == 1 && connected == 1));
    assert_true(view.is_failed || failed == 0 || failed < connected);
    assert_true(!view.is_failed || view.failed_part != part || (failed == connected && failed > 0));
}

/* Lets a peer say something. */
static void say_random(struct fixture *fixture, struct said *said, uint64_t *random)
{
    struct eb_part_holding holdings[PARTS];
    uint32_t peer = (uint32_t)(eb_splitmix64_next(random) % PEERS);
    struct said *what = &said[peer];
    uint64_t bits = eb_splitmix64_next(random);
    size_t count = 0;
    *what = (struct said){.states = {EB_PART_STATES, EB_PART_STATES, EB_PART_STATES}};
    if (bits % 5 == 0) {
        eb_part_map_drop(&fixture->map, peer);
        return;
    }
    what->instance = 1 + (bits >> 8) % PEERS;
    what->is_other = (bits >> 16) % 8 == 0;
    for (uint32_t part = 0; part < PARTS; part++) {
        const enum eb_part_state states[] = {
            EB_PART_LOADING, EB_PART_READY, EB_PART_READY, EB_PART_FAILED, EB_PART_STATES};
        what->states[part] = states[(bits >> (24 + 8 * part)) % 5];
        if (what->states[part] != EB_PART_STATES) {
            holdings[count] = hold(part, what->states[part]);
            holdings[count++].digest += what->is_other;
        }
    }
    assert_true(take_list(&fixture->map, peer, what->instance, holdings, count));
}

static void agrees_with_what_peers_say_at_random(void **state)
{
    struct fixture *fixture = *state;
    struct said said[PEERS] = {0};
    uint64_t random = 7;
    uint32_t complete = 0;
    for (uint32_t peer = 0; peer < PEERS; peer++) {
        for (uint32_t part = 0; part < PARTS; part++) {
            said[peer].states[part] = EB_PART_STATES;
        }
    }
    for (int i = 0; i < WALK_STEPS; i++) {
        say_random(fixture, said, &random);
        bool is_complete = true;
        for (uint32_t part = 0; part < PARTS; part++) {
            check_part(fixture, said, part);
            is_complete = is_complete && count_peers(fixture->set, part) > 0;
        }
        struct eb_part_view view = eb_part_map_view(&fixture->map, fixture->set, 2);
        assert_true(view.is_complete == is_complete);
        complete += is_complete;
    }
    assert_true(complete > WALK_STEPS / 100 && complete < WALK_STEPS);
}

#define MAP_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(part_map)
{
    const struct CMUnitTest tests[] = {
        MAP_TEST(is_complete_if_each_part_is_ready_somewhere),
        MAP_TEST(replaces_what_a_peer_said),
        MAP_TEST(counts_addresses_of_one_process_once),
        MAP_TEST(wants_no_more_replicas_than_are_connected),
        MAP_TEST(has_failed_if_all_replicas_of_a_part_say_so),
        MAP_TEST(takes_versions_that_are_not_loaded_for_those_of_the_role),
        MAP_TEST(tells_other_files_apart),
        MAP_TEST(tells_what_routers_serve_and_claim),
        MAP_TEST(counts_a_server_with_several_versions_once),
        MAP_TEST(copies_what_it_takes),
        MAP_TEST(refuses_messages_that_contradict_themselves),
        MAP_TEST(refuses_too_many_holdings),
        MAP_TEST(refuses_too_long_texts),
        MAP_TEST(refuses_too_many_owned_parts),
        cmocka_unit_test(keeps_as_many_peers_as_are_allowed),
        MAP_TEST(holds_nothing_if_memory_is_short),
        MAP_TEST(opens_nothing_if_memory_is_short),
        MAP_TEST(agrees_with_what_peers_say_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
