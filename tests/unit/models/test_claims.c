#include "server/models/claims.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/models/registry_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GRACE_MS UINT64_C(60000)

/* ---- the set of claims ---- */

static void expect_counts(
    const struct eb_claims *claims, uint64_t version, size_t claim_count, size_t served_count)
{
    const struct eb_claimed_version *found = eb_claims_find(claims, "m", version);
    assert_int_equal(found ? found->claim_count : 0, claim_count);
    assert_int_equal(found ? found->served_count : 0, served_count);
}

static void expect_changed(struct eb_claims *claims, bool is_changed)
{
    assert_int_equal(claims->is_changed, is_changed);
    claims->is_changed = false;
}

static void counts_the_claims_of_each_version(void **state)
{
    static const struct eb_claim two[] = {
        {.model = "m", .version = 8}, {.model = "m", .version = 7, .is_served = true}};
    static const struct eb_claim one[] = {{.model = "m", .version = 8, .is_served = true}};
    (void)state;
    struct eb_claims claims = {0};
    struct eb_claim_set first = {.router = "a", .count = 2, .claims = two};
    struct eb_claim_set second = {.router = "b", .count = 1, .claims = one};
    struct eb_claim_set third = {.router = "c", .count = 1, .claims = one};
    struct eb_claim_set empty = {.router = "d"};
    assert_null(eb_claims_find(&claims, "m", 7));
    assert_true(eb_claims_add(&claims, &first));
    expect_changed(&claims, true);
    expect_counts(&claims, 7, 1, 1);
    expect_counts(&claims, 8, 1, 0);
    assert_null(eb_claims_find(&claims, "n", 7));
    assert_null(eb_claims_find(&claims, "l", 7));
    assert_true(eb_claims_add(&claims, &second));
    expect_changed(&claims, true);
    expect_counts(&claims, 8, 2, 1);
    assert_true(eb_claims_add(&claims, &third));
    assert_true(eb_claims_add(&claims, &empty));
    expect_changed(&claims, false);
    expect_counts(&claims, 8, 3, 2);
    eb_claims_remove(&claims, &second);
    expect_changed(&claims, false);
    eb_claims_remove(&claims, &third);
    expect_changed(&claims, true);
    expect_counts(&claims, 8, 1, 0);
    eb_claims_remove(&claims, &first);
    eb_claims_remove(&claims, &first);
    expect_changed(&claims, true);
    expect_counts(&claims, 7, 0, 0);
    expect_counts(&claims, 8, 0, 0);
    eb_claims_remove(&claims, &empty);
    assert_null(claims.sets);
    eb_claims_deinit(&claims);
}

static void counts_a_version_that_is_claimed_twice_in_one_call(void **state)
{
    static const struct eb_claim twice[] = {
        {.model = "m", .version = 8}, {.model = "m", .version = 8, .is_served = true}};
    (void)state;
    struct eb_claims claims = {0};
    struct eb_claim_set set = {.router = "", .count = 2, .claims = twice};
    assert_true(eb_claims_add(&claims, &set));
    expect_counts(&claims, 8, 2, 1);
    eb_claims_remove(&claims, &set);
    expect_counts(&claims, 8, 0, 0);
    eb_claims_deinit(&claims);
}

static void finds_each_of_many_versions(void **state)
{
    (void)state;
    struct eb_claims claims = {0};
    struct eb_claim many[100];
    struct eb_claim_set sets[100];
    for (size_t i = 0; i < 100; i++) {
        uint64_t version = 1 + i * 37 % 100;
        many[i] = (struct eb_claim){.model = i % 2 == 0 ? "m" : "l", .version = version};
        sets[i] = (struct eb_claim_set){.router = "r", .count = 1, .claims = &many[i]};
        assert_true(eb_claims_add(&claims, &sets[i]));
    }
    assert_int_equal(claims.count, 100);
    for (size_t i = 0; i < 100; i++) {
        assert_non_null(eb_claims_find(&claims, many[i].model, many[i].version));
        assert_null(eb_claims_find(&claims, i % 2 == 0 ? "l" : "m", many[i].version));
    }
    for (size_t i = 0; i < 100; i++) {
        eb_claims_remove(&claims, &sets[i * 73 % 100]);
        assert_null(eb_claims_find(&claims, many[i * 73 % 100].model, many[i * 73 % 100].version));
    }
    assert_int_equal(claims.count, 0);
    eb_claims_deinit(&claims);
}

static void adds_nothing_without_memory(void **state)
{
    (void)state;
    struct eb_claims claims = {0};
    struct eb_claim many[40];
    for (size_t i = 0; i < 40; i++) {
        many[i] = (struct eb_claim){.model = "m", .version = 1 + i, .is_served = true};
    }
    struct eb_claim_set set = {.router = "r", .count = 40, .claims = many};
    bool is_added = false;
    for (unsigned tries = 1; !is_added; tries++) {
        eb_faults_fail_allocation(tries);
        is_added = eb_claims_add(&claims, &set);
        eb_faults_disarm();
        assert_int_equal(claims.count, is_added ? 40 : 0);
        expect_changed(&claims, is_added);
        assert_true(is_added || !set.is_added);
        if (!is_added) {
            eb_claims_remove(&claims, &set); /* does nothing */
        }
    }
    eb_claims_deinit(&claims);
    assert_int_equal(claims.count, 0);
}

static void expect_names(const struct eb_claims *claims, const char *names)
{
    char text[EB_CLAIMS_ROUTERS_BYTES];
    eb_claims_name_routers(claims, "m", 8, text);
    assert_string_equal(text, names);
}

static void names_the_routers(void **state)
{
    static const struct eb_claim claim = {.model = "m", .version = 8};
    static const struct eb_claim other = {.model = "m", .version = 9};
    (void)state;
    struct eb_claims claims = {0};
    struct eb_claim_set sets[6];
    static const char *const routers[] = {"a", "b", "a", "", "d", "e"};
    for (size_t i = 0; i < 6; i++) {
        sets[i] = (struct eb_claim_set){
            .router = routers[i], .count = 1, .claims = i == 1 ? &other : &claim};
    }
    expect_names(&claims, "");
    for (size_t i = 0; i < 4; i++) {
        assert_true(eb_claims_add(&claims, &sets[i]));
    }
    expect_names(&claims, "a router without a name, a");
    assert_true(eb_claims_add(&claims, &sets[4]));
    expect_names(&claims, "d, a router without a name, a");
    assert_true(eb_claims_add(&claims, &sets[5]));
    expect_names(&claims, "e, d, a router without a name and others");
    for (size_t i = 0; i < 6; i++) {
        eb_claims_remove(&claims, &sets[i]);
    }
    eb_claims_deinit(&claims);
}

static void cuts_long_names_between_characters(void **state)
{
    static const struct eb_claim claim = {.model = "m", .version = 8};
    (void)state;
    struct eb_claims claims = {0};
    struct eb_claim_set sets[4];
    char names[4][256];
    for (unsigned i = 0; i < 4; i++) {
        /* The 64th byte is the first half of a character. */
        snprintf(names[i], sizeof names[i], "%u%062d\xc3\xa9%0180d", i, 0, 0);
        sets[i] = (struct eb_claim_set){.router = names[i], .count = 1, .claims = &claim};
        assert_true(eb_claims_add(&claims, &sets[i]));
    }
    char text[EB_CLAIMS_ROUTERS_BYTES];
    eb_claims_name_routers(&claims, "m", 8, text);
    assert_int_equal(strlen(text), 3 * 63 + strlen(", ") * 2 + strlen(" and others"));
    assert_null(strchr(text, '\xc3'));
    for (size_t i = 0; i < 4; i++) {
        eb_claims_remove(&claims, &sets[i]);
    }
    eb_claims_deinit(&claims);
}

/* ---- claims in a registry ---- */

static struct eb_claim_set claim_one(const struct eb_claim *claim)
{
    return (struct eb_claim_set){.router = "r", .count = 1, .claims = claim};
}

/* Serves version 4 of m, with versions 1 to 3 on disk. */
static void serve_fourth(struct registry_fixture *fixture)
{
    fixture->registry.claim_grace_ms = GRACE_MS;
    registry_fixture_write_config(fixture, "versions: {keep: 1, keep_s: 0}\n");
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_make(fixture, "m/3");
    registry_fixture_make(fixture, "m/4");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 4);
    fixture->registry.is_dirty = false;
}

static void loads_the_lowest_claimed_version_first(void **state)
{
    static const struct eb_claim claims[] = {
        {.model = "m", .version = 3}, {.model = "m", .version = 1}, {.model = "m", .version = 9}};
    struct registry_fixture *fixture = *state;
    serve_fourth(fixture);
    struct eb_claim_set set = {.router = "r", .count = 3, .claims = claims};
    assert_true(eb_registry_claim(&fixture->registry, &set));
    assert_true(fixture->registry.is_dirty);
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    /* A newer version does not take its place, and is not loaded before those that are claimed. */
    registry_fixture_make(fixture, "m/5");
    registry_fixture_look(fixture);
    assert_true(eb_registry_is_due(&fixture->registry, "m", 1));
    registry_fixture_put(fixture, "m", 1);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    registry_fixture_put(fixture, "m", 3);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 5);
    registry_fixture_put(fixture, "m", 5);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
    eb_registry_unclaim(&fixture->registry, &set);
}

static void keeps_a_version_for_its_grace(void **state)
{
    static const struct eb_claim claim = {.model = "m", .version = 2, .is_served = true};
    struct registry_fixture *fixture = *state;
    fixture->registry.kept_versions_max = 1;
    fixture->registry.kept_bytes_max = 1;
    serve_fourth(fixture);
    struct eb_claim_set set = claim_one(&claim);
    assert_true(eb_registry_claim(&fixture->registry, &set));
    registry_fixture_settle(fixture, "m");
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_READY);
    fixture->now_ms += 10 * GRACE_MS;
    registry_fixture_decide(fixture);
    fixture->now_ms += 10 * GRACE_MS;
    registry_fixture_follow(fixture); /* the claim is not forgotten with a scan */
    assert_true(fixture->wake_ms == UINT64_MAX);
    eb_registry_unclaim(&fixture->registry, &set);
    assert_true(fixture->registry.is_dirty);
    registry_fixture_decide(fixture);
    assert_true(fixture->wake_ms == fixture->now_ms + GRACE_MS);
    registry_fixture_follow(fixture);
    fixture->now_ms += GRACE_MS - 1;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_READY);
    fixture->now_ms += 1;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 2), EB_VERSION_RETIRED);
}

static void keeps_a_version_whose_model_has_left_the_disk_while_it_is_claimed(void **state)
{
    static const struct eb_claim claim = {.model = "m", .version = 1};
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_follow(fixture);
    struct eb_claim_set set = claim_one(&claim);
    assert_true(eb_registry_claim(&fixture->registry, &set));
    registry_fixture_take_away(fixture, "m/1");
    registry_fixture_look(fixture);
    fixture->now_ms += KEEP_MS;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_SERVING);
    eb_registry_unclaim(&fixture->registry, &set);
    registry_fixture_decide(fixture);
    fixture->now_ms += KEEP_MS;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_RETIRED);
}

static void shows_claims_in_snapshots(void **state)
{
    static const struct eb_claim served = {.model = "m", .version = 4, .is_served = true};
    static const struct eb_claim claim = {.model = "m", .version = 4};
    struct registry_fixture *fixture = *state;
    serve_fourth(fixture);
    struct eb_claim_set sets[] = {claim_one(&claim), claim_one(&served), claim_one(&served)};
    for (size_t i = 0; i < 3; i++) {
        assert_true(eb_registry_claim(&fixture->registry, &sets[i]));
        assert_int_equal(fixture->registry.is_dirty, i < 2);
        struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
        const struct eb_snapshot_version *version = &snapshot->models[0].versions[0];
        assert_true(version->is_claimed);
        assert_int_equal(version->is_served_by_router, i > 0);
        eb_snapshot_free(snapshot);
        fixture->registry.is_dirty = false;
    }
    for (size_t i = 0; i < 3; i++) {
        eb_registry_unclaim(&fixture->registry, &sets[i]);
    }
}

EB_TEST_GROUP(claims)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, registry_fixture_open, registry_fixture_close)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_the_claims_of_each_version),
        cmocka_unit_test(counts_a_version_that_is_claimed_twice_in_one_call),
        cmocka_unit_test(finds_each_of_many_versions),
        cmocka_unit_test(adds_nothing_without_memory),
        cmocka_unit_test(names_the_routers),
        cmocka_unit_test(cuts_long_names_between_characters),
        FIXTURE(loads_the_lowest_claimed_version_first),
        FIXTURE(keeps_a_version_for_its_grace),
        FIXTURE(keeps_a_version_whose_model_has_left_the_disk_while_it_is_claimed),
        FIXTURE(shows_claims_in_snapshots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
