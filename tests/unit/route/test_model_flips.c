/* The models of a router: part servers and the repository together decide what is served, claimed
 * and routed. */
#include "server/route/model_flips.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PEERS 8
#define PARTS 2
#define SECOND UINT64_C(1000000000)
#define VERSIONS_MAX 4

struct fixture {
    struct eb_part_map map;
    struct eb_model_flips flips;
    struct eb_flips_terms terms;
    size_t count;
    struct eb_routed_version versions[VERSIONS_MAX];
    struct eb_routed_model model;
    uint64_t pin_end_ns[VERSIONS_MAX]; /* by number - 1 */
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture || !eb_part_map_init(&fixture->map, PEERS)) {
        free(fixture);
        return -1;
    }
    fixture->flips.map = &fixture->map;
    fixture->terms = (struct eb_flips_terms){
        .replicas = 1, .has_all_answers = true, .now_ns = SECOND, .next_wait_ns = 1800 * SECOND};
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_faults_disarm();
    eb_model_flips_deinit(&fixture->flips);
    eb_part_map_deinit(&fixture->map);
    free(fixture);
    return 0;
}

/* Has the repository list versions 1 to `count`, of which those up to `loaded` are loaded. */
static bool list_versions(struct fixture *fixture, size_t count, size_t loaded)
{
    for (size_t i = 0; i < count; i++) {
        fixture->versions[i] = (struct eb_routed_version){.number = i + 1,
            .digest = 100 + i,
            .parts = PARTS,
            .lineage = "one",
            .is_on_disk = true,
            .is_loaded = i < loaded};
    }
    fixture->count = count;
    fixture->model = (struct eb_routed_model){
        .name = "m", .version_count = count, .versions = fixture->versions};
    return eb_model_flips_take(&fixture->flips, &fixture->model, 1);
}

/* Has a peer, whose instance is 100 + its number, hold its part of the versions in `numbers`: bit v
 * is version v. Those in `failed` it cannot load. */
static void hold_or_fail(struct fixture *fixture, uint32_t peer, unsigned numbers, unsigned failed)
{
    static const uint32_t parts[] = {0, 1};
    struct eb_part_holding holdings[VERSIONS_MAX];
    size_t count = 0;
    for (uint64_t v = 1; v <= VERSIONS_MAX; v++) {
        if ((numbers | failed) >> v & 1) {
            bool is_failed = failed >> v & 1;
            holdings[count++] = (struct eb_part_holding){.model = "m",
                .version = v,
                .digest = 99 + v,
                .parts = PARTS,
                .owned_count = 1,
                .owned = &parts[peer % PARTS],
                .state = is_failed ? EB_PART_FAILED : EB_PART_READY,
                .error = is_failed ? "m/2: t.embag: junk" : ""};
        }
    }
    struct eb_part_message message = {.instance = 100 + peer,
        .role = {.part = peer % PARTS, .parts = PARTS},
        .count = count,
        .holdings = holdings};
    struct eb_error error;
    assert_true(eb_part_map_take(&fixture->map, peer, &message, &error));
}

static void hold_versions(struct fixture *fixture, uint32_t peer, unsigned numbers)
{
    hold_or_fail(fixture, peer, numbers, 0);
}

static const struct eb_flips_model *step_flips(struct fixture *fixture, uint64_t seconds)
{
    fixture->terms.now_ns += seconds * SECOND;
    (void)eb_model_flips_step(&fixture->flips, &fixture->terms);
    assert_int_equal(fixture->flips.count, 1);
    return &fixture->flips.models[0];
}

static bool wants(const struct eb_flips_model *model, uint64_t number)
{
    bool is_wanted = false;
    for (size_t i = 0; i < model->choice.wanted_count; i++) {
        is_wanted = is_wanted || model->choice.wanted[i] == number;
    }
    return is_wanted;
}

static void serves_what_is_complete_here_and_at_the_servers(void **state)
{
    struct fixture *fixture = *state;
    assert_true(list_versions(fixture, 1, 0));
    hold_versions(fixture, 0, 1u << 1);
    const struct eb_flips_model *model = step_flips(fixture, 0);
    assert_int_equal(model->choice.served, 0);
    assert_true(wants(model, 1));
    assert_int_equal(model->flip.claims[0].number, 1);
    assert_int_equal(model->flip.claims[0].digest, 100);

    hold_versions(fixture, 1, 1u << 1);
    assert_int_equal(step_flips(fixture, 0)->choice.served, 0); /* It is not loaded here. */
    assert_true(list_versions(fixture, 1, 1));
    assert_int_equal(step_flips(fixture, 0)->choice.served, 1);
}

static void loads_lower_versions_that_are_complete_while_nothing_is_served(void **state)
{
    struct fixture *fixture = *state;
    fixture->terms.settle_until_ns = 4 * SECOND;
    assert_true(list_versions(fixture, 3, 0));
    hold_versions(fixture, 0, 1u << 2 | 1u << 3);
    hold_versions(fixture, 1, 1u << 2);
    const struct eb_flips_model *model = step_flips(fixture, 0);
    assert_true(wants(model, 3)); /* the next one */
    assert_true(wants(model, 2)); /* complete at the servers */
    assert_false(wants(model, 1));
    assert_int_equal(model->choice.served, 0);
    fixture->versions[1].is_loaded = true;
    assert_true(eb_model_flips_take(&fixture->flips, &fixture->model, 1));
    assert_int_equal(step_flips(fixture, 0)->choice.served, 2);
}

static void flips_after_two_seconds_and_backs_out_in_its_lineage(void **state)
{
    struct fixture *fixture = *state;
    assert_true(list_versions(fixture, 1, 1));
    hold_versions(fixture, 0, 1u << 1);
    hold_versions(fixture, 1, 1u << 1);
    assert_int_equal(step_flips(fixture, 0)->choice.served, 1);
    assert_int_equal(step_flips(fixture, 0)->previous, 0);
    assert_true(list_versions(fixture, 2, 2));
    hold_versions(fixture, 0, 1u << 1 | 1u << 2);
    assert_int_equal(step_flips(fixture, 0)->flip.next, 2);
    hold_versions(fixture, 1, 1u << 1 | 1u << 2);
    assert_int_equal(step_flips(fixture, 0)->choice.served, 1);
    const struct eb_flips_model *model = step_flips(fixture, 2);
    assert_int_equal(model->choice.served, 2);
    assert_int_equal(model->previous, 1);
    assert_int_equal(model->previous_digest, 100);

    hold_versions(fixture, 1, 1u << 1);
    model = step_flips(fixture, 1);
    assert_int_equal(model->choice.served, 1);
    assert_int_equal(model->previous, 2);
    assert_int_equal(model->flip.back_outs, 1);
}

static uint64_t pin_end_of(void *context, const char *model, uint64_t number)
{
    const struct fixture *fixture = context;
    assert_string_equal(model, "m");
    return fixture->pin_end_ns[number - 1];
}

static bool claims(const struct eb_flips_model *model, uint64_t number)
{
    for (size_t i = 0; i < model->flip.claim_count; i++) {
        if (model->flip.claims[i].number == number) {
            return true;
        }
    }
    return false;
}

static void claims_versions_in_memory_that_requests_pin(void **state)
{
    struct fixture *fixture = *state;
    struct eb_flips_terms *terms = &fixture->terms;
    terms->find_pin_end_ns = pin_end_of;
    terms->context = fixture;
    assert_true(list_versions(fixture, 3, 3));
    fixture->versions[0].is_loaded = false;
    assert_true(eb_model_flips_take(&fixture->flips, &fixture->model, 1));
    hold_versions(fixture, 0, 1u << 1 | 1u << 2 | 1u << 3);
    hold_versions(fixture, 1, 1u << 1 | 1u << 2 | 1u << 3);
    fixture->pin_end_ns[0] = 1000 * SECOND;
    const struct eb_flips_model *model = step_flips(fixture, 0);
    assert_int_equal(model->choice.served, 3);
    assert_false(claims(model, 1)); /* It is not in memory. */
    assert_false(claims(model, 2));
    /* Nobody tells of a pin, so it is looked for. */
    uint64_t due_ns = eb_model_flips_step(&fixture->flips, terms);
    assert_true(due_ns == terms->now_ns + EB_FLIPS_PIN_NS);

    fixture->pin_end_ns[1] = terms->now_ns + 60 * SECOND;
    model = step_flips(fixture, 59);
    assert_true(claims(model, 2) && wants(model, 2));
    assert_true(eb_model_flips_step(&fixture->flips, terms) == terms->now_ns + SECOND);
    model = step_flips(fixture, 1);
    assert_false(claims(model, 2) || wants(model, 2));
    terms->find_pin_end_ns = NULL;
    assert_true(eb_model_flips_step(&fixture->flips, terms) == EB_FLIP_NEVER);
}

static uint64_t instance_of(const void *context, uint32_t peer)
{
    (void)context;
    return peer == 3 ? 0 : 100 + peer;
}

static void routes_name_the_replicas_of_loaded_versions(void **state)
{
    struct fixture *fixture = *state;
    size_t count;
    assert_true(list_versions(fixture, 2, 1));
    for (uint32_t peer = 0; peer < 4; peer++) { /* Peer 3 is gone meanwhile. */
        hold_versions(fixture, peer, 1u << 1 | 1u << 2);
    }
    (void)step_flips(fixture, 0);
    struct eb_route_table *table = eb_model_flips_make_routes(&fixture->flips, instance_of, NULL);
    assert_non_null(table);
    assert_null(eb_route_table_find(table, "m", 2, 101));
    assert_null(eb_route_table_find(table, "m", 1, 101));
    assert_null(eb_route_table_find(table, "n", 1, 100));
    const struct eb_route_entry *entry = eb_route_table_find(table, "m", 1, 100);
    assert_non_null(entry);
    const uint64_t *instances = eb_route_entry_instances(entry, 0, &count);
    assert_int_equal(count, 2);
    assert_int_equal(instances[0] + instances[1], 100 + 102);
    instances = eb_route_entry_instances(entry, 1, &count);
    assert_int_equal(count, 1);
    assert_int_equal(instances[0], 101);
    eb_route_table_destroy(table);
}

static void routes_tell_which_versions_have_failed(void **state)
{
    struct fixture *fixture = *state;
    assert_true(list_versions(fixture, 2, 1));
    hold_versions(fixture, 0, 1u << 1 | 1u << 2);
    hold_or_fail(fixture, 1, 1u << 1, 1u << 2);
    (void)step_flips(fixture, 0);
    struct eb_route_table *table = eb_model_flips_make_routes(&fixture->flips, instance_of, NULL);
    assert_non_null(table);
    const struct eb_route_entry *entry = eb_route_table_find(table, "m", 1, 100);
    assert_true(eb_route_entry_is_complete(entry));
    assert_null(entry->failure);
    entry = eb_route_table_find(table, "m", 2, 101); /* It is not loaded here. */
    assert_false(eb_route_entry_is_complete(entry));
    assert_string_equal(entry->failure, "part 1: m/2: t.embag: junk");
    assert_false(eb_route_entry_is_complete(NULL));
    eb_route_table_destroy(table);
    hold_versions(fixture, 1, 1u << 1); /* There has been no step since. */
    table = eb_model_flips_make_routes(&fixture->flips, instance_of, NULL);
    assert_non_null(table);
    assert_null(eb_route_table_find(table, "m", 2, 101));
    eb_route_table_destroy(table);
}

static void forgets_models_that_are_gone(void **state)
{
    struct fixture *fixture = *state;
    assert_true(list_versions(fixture, 1, 1));
    (void)step_flips(fixture, 0);
    assert_true(eb_model_flips_take(&fixture->flips, NULL, 0));
    assert_int_equal(fixture->flips.count, 0);
    assert_true(eb_list_is_empty(&fixture->map.sets));
}

static void keeps_its_state_when_memory_is_short(void **state)
{
    struct fixture *fixture = *state;
    assert_true(list_versions(fixture, 1, 1));
    hold_versions(fixture, 0, 1u << 1);
    hold_versions(fixture, 1, 1u << 1);
    assert_int_equal(step_flips(fixture, 0)->choice.served, 1);
    bool is_good = false;
    for (unsigned n = 1; !is_good && n < 50; n++) {
        eb_faults_fail_allocation(n);
        is_good = list_versions(fixture, 2, 2);
        eb_faults_disarm();
        assert_int_equal(fixture->flips.models[0].version_count, is_good ? 2 : 1);
        assert_int_equal(step_flips(fixture, 0)->choice.served, 1);
    }
    assert_true(is_good);
    hold_or_fail(fixture, 1, 1u << 1, 1u << 2);
    (void)step_flips(fixture, 0);
    is_good = false;
    for (unsigned n = 1; !is_good && n < 50; n++) {
        eb_faults_fail_allocation(n);
        struct eb_route_table *table =
            eb_model_flips_make_routes(&fixture->flips, instance_of, NULL);
        eb_faults_disarm();
        is_good = table;
        eb_route_table_destroy(table);
    }
    assert_true(is_good);
}

#define FLIPS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(model_flips)
{
    const struct CMUnitTest tests[] = {
        FLIPS_TEST(serves_what_is_complete_here_and_at_the_servers),
        FLIPS_TEST(loads_lower_versions_that_are_complete_while_nothing_is_served),
        FLIPS_TEST(flips_after_two_seconds_and_backs_out_in_its_lineage),
        FLIPS_TEST(claims_versions_in_memory_that_requests_pin),
        FLIPS_TEST(routes_name_the_replicas_of_loaded_versions),
        FLIPS_TEST(routes_tell_which_versions_have_failed),
        FLIPS_TEST(forgets_models_that_are_gone),
        FLIPS_TEST(keeps_its_state_when_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
