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

static void expect_digest_counts(
    const struct eb_claims *claims, uint64_t version, uint64_t digest, size_t served, size_t next)
{
    struct eb_claim_counts counts = eb_claims_count(claims, "m", version, digest);
    assert_int_equal(counts.served, served);
    assert_int_equal(counts.next, next);
    assert_int_equal(eb_claims_has(claims, "m", version, digest), served + next > 0);
}

static void expect_counts(
    const struct eb_claims *claims, uint64_t version, size_t served, size_t next)
{
    expect_digest_counts(claims, version, 0, served, next);
}

static void expect_model_counts(
    const struct eb_claims *claims, const char *model, size_t served, size_t next)
{
    struct eb_claim_counts counts = eb_claims_count_model(claims, model);
    assert_int_equal(counts.served, served);
    assert_int_equal(counts.next, next);
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
    expect_counts(&claims, 7, 0, 0);
    assert_true(eb_claims_add(&claims, &first));
    expect_changed(&claims, true);
    expect_counts(&claims, 7, 1, 0);
    expect_counts(&claims, 8, 0, 1);
    assert_false(eb_claims_has(&claims, "n", 7, 0));
    assert_false(eb_claims_has(&claims, "l", 7, 0));
    assert_true(eb_claims_add(&claims, &second));
    expect_changed(&claims, true);
    expect_counts(&claims, 8, 1, 1);
    assert_true(eb_claims_add(&claims, &third));
    expect_changed(&claims, true);
    assert_true(eb_claims_add(&claims, &empty));
    expect_changed(&claims, false);
    expect_counts(&claims, 8, 2, 1);
    expect_model_counts(&claims, "m", 3, 1);
    expect_model_counts(&claims, "l", 0, 0);
    expect_model_counts(&claims, "n", 0, 0);
    eb_claims_remove(&claims, &second);
    expect_changed(&claims, true);
    eb_claims_remove(&claims, &third);
    expect_changed(&claims, true);
    expect_counts(&claims, 8, 0, 1);
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
    expect_counts(&claims, 8, 1, 1);
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
        assert_true(eb_claims_has(&claims, many[i].model, many[i].version, 0));
        assert_false(eb_claims_has(&claims, i % 2 == 0 ? "l" : "m", many[i].version, 0));
    }
    expect_model_counts(&claims, "l", 0, 50);
    expect_model_counts(&claims, "m", 0, 50);
    for (size_t i = 0; i < 100; i++) {
        const struct eb_claim *claim = &many[i * 73 % 100];
        eb_claims_remove(&claims, &sets[i * 73 % 100]);
        assert_false(eb_claims_has(&claims, claim->model, claim->version, 0));
    }
    assert_int_equal(claims.count, 0);
    eb_claims_deinit(&claims);
}

static void counts_the_claims_of_each_digest(void **state)
{
    static const struct eb_claim wanted[] = {
        {.model = "m", .version = 8, .digest = 5},
        {.model = "m", .version = 8, .digest = 6, .is_served = true},
        {.model = "m", .version = 8, .digest = UINT64_MAX},
        {.model = "m", .version = 9, .digest = 5},
    };
    static const struct eb_claim without[] = {{.model = "m", .version = 8, .is_served = true}};
    (void)state;
    struct eb_claims claims = {0};
    struct eb_claim_set first = {.router = "a", .count = 4, .claims = wanted};
    struct eb_claim_set second = {.router = "b", .count = 1, .claims = without};
    assert_true(eb_claims_add(&claims, &first));
    expect_digest_counts(&claims, 8, 5, 0, 1);
    expect_digest_counts(&claims, 8, 6, 1, 0);
    expect_digest_counts(&claims, 8, 7, 0, 0);
    expect_digest_counts(&claims, 8, UINT64_MAX, 0, 1);
    expect_digest_counts(&claims, 8, 0, 1, 2);
    expect_digest_counts(&claims, 9, 6, 0, 0);
    assert_true(eb_claims_add(&claims, &second));
    expect_digest_counts(&claims, 8, 5, 1, 1);
    expect_digest_counts(&claims, 8, 7, 1, 0);
    expect_model_counts(&claims, "m", 2, 3);
    char text[EB_CLAIMS_ROUTERS_BYTES];
    eb_claims_name_routers(&claims, "m", 8, 7, text);
    assert_string_equal(text, "b");
    eb_claims_name_routers(&claims, "m", 8, 5, text);
    assert_string_equal(text, "b, a");
    eb_claims_remove(&claims, &first);
    eb_claims_remove(&claims, &second);
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
    eb_claims_name_routers(claims, "m", 8, 0, text);
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
    eb_claims_name_routers(&claims, "m", 8, 0, text);
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
    fixture->registry.limits.claim_grace_ms = GRACE_MS;
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
    fixture->registry.limits.kept_versions_max = 1;
    fixture->registry.limits.kept_bytes_max = 1;
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
        assert_true(fixture->registry.is_dirty);
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

/* ---- claims in the registry of a part server ---- */

#define DIGEST UINT64_C(0x1234)

/* Has versions 1 to 3 on disk, whose manifests have the digests DIGEST + 1 to DIGEST + 3. */
static void serve_part(struct registry_fixture *fixture)
{
    fixture->registry.part = (struct eb_part_choice){.part = 1, .parts = 4};
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_make(fixture, "m/3");
    registry_fixture_look(fixture);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    for (size_t i = 0; i < model->count; i++) {
        model->versions[i].manifest.digest = DIGEST + model->versions[i].number;
    }
}

/* Expects what /readyz says: a text with this part, or NULL if the server is ready. */
static void expect_not_ready(struct registry_fixture *fixture, const char *part)
{
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    if (part) {
        assert_non_null(snapshot->not_ready);
        eb_scratch_expect(snapshot->not_ready, part);
    } else {
        assert_null(snapshot->not_ready);
    }
    eb_snapshot_free(snapshot);
}

static void waits_for_claims(void **state)
{
    static const struct eb_claim claim = {.model = "m", .version = 2};
    struct registry_fixture *fixture = *state;
    uint64_t due_ms = fixture->now_ms + 2000;
    fixture->registry.claims_due_ms = due_ms;
    serve_part(fixture);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    assert_true(fixture->wake_ms == due_ms);
    struct eb_claim_set set = claim_one(&claim);
    assert_true(eb_registry_claim(&fixture->registry, &set));
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 2);
    registry_fixture_put(fixture, "m", 2);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    eb_registry_unclaim(&fixture->registry, &set);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    fixture->now_ms = due_ms - 1;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    assert_true(fixture->wake_ms == due_ms);
    fixture->now_ms = due_ms;
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    registry_fixture_put(fixture, "m", 3);
}

static void hurries_where_a_command_asks(void **state)
{
    struct registry_fixture *fixture = *state;
    fixture->registry.claims_due_ms = UINT64_MAX;
    serve_part(fixture);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    eb_registry_hurry(eb_registry_find(&fixture->registry, "m"));
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    registry_fixture_put(fixture, "m", 3);
}

static void takes_claims_for_other_files_for_no_claims(void **state)
{
    static const struct eb_claim other = {.model = "m", .version = 1, .digest = DIGEST + 2};
    static const struct eb_claim right = {.model = "m", .version = 1, .digest = DIGEST + 1};
    struct registry_fixture *fixture = *state;
    serve_part(fixture);
    struct eb_claim_set sets[] = {claim_one(&other), claim_one(&right)};
    assert_true(eb_registry_claim(&fixture->registry, &sets[0]));
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    registry_fixture_put(fixture, "m", 3);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    assert_true(eb_registry_claim(&fixture->registry, &sets[1]));
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    registry_fixture_put(fixture, "m", 1);
    registry_fixture_decide(fixture);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    struct eb_registry_version *version = eb_registry_find_version(model, 1);
    assert_int_equal(eb_registry_manifest(&fixture->registry, version), 0);
    /* What is in memory counts, not what is on the disk by now. */
    version->loaded->tables.manifest = DIGEST + 2;
    assert_true(eb_registry_manifest(&fixture->registry, version) == DIGEST + 2);
    eb_registry_unclaim(&fixture->registry, &sets[1]);
    registry_fixture_decide(fixture);
    assert_true(version->is_wanted);
    /* Servers without a part compare no digests. */
    fixture->registry.part.parts = 0;
    assert_int_equal(eb_registry_manifest(&fixture->registry, version), 0);
    eb_registry_unclaim(&fixture->registry, &sets[0]);
}

static void is_ready_when_all_is_there_that_routers_serve(void **state)
{
    static const struct eb_claim served = {.model = "m", .version = 2, .is_served = true};
    static const struct eb_claim next = {.model = "m", .version = 1};
    static const struct eb_claim other = {
        .model = "m", .version = 2, .digest = DIGEST, .is_served = true};
    static const struct eb_claim absent[] = {{.model = "m", .version = 9, .is_served = true},
        {.model = "a\nb", .version = 2, .is_served = true}};
    struct registry_fixture *fixture = *state;
    serve_part(fixture);
    expect_not_ready(fixture, "no version is in memory");
    struct eb_claim_set sets[] = {claim_one(&next), claim_one(&served), claim_one(&other),
        claim_one(&absent[0]), claim_one(&absent[1])};
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    registry_fixture_put(fixture, "m", 3);
    expect_not_ready(fixture, NULL);
    assert_true(eb_registry_claim(&fixture->registry, &sets[0]));
    expect_not_ready(fixture, NULL);
    assert_true(eb_registry_claim(&fixture->registry, &sets[1]));
    expect_not_ready(fixture, "version 2 of model \"m\", which routers serve, is not in memory");
    registry_fixture_settle(fixture, "m");
    expect_not_ready(fixture, NULL);
    assert_true(eb_registry_claim(&fixture->registry, &sets[2]));
    expect_not_ready(fixture, "version 2 with the digest 0000000000001234 of model \"m\"");
    eb_registry_unclaim(&fixture->registry, &sets[2]);
    /* Servers of other parts have these. */
    assert_true(eb_registry_claim(&fixture->registry, &sets[3]));
    assert_true(eb_registry_claim(&fixture->registry, &sets[4]));
    expect_not_ready(fixture, NULL);
    for (size_t i = 0; i < 5; i++) {
        eb_registry_unclaim(&fixture->registry, &sets[i]);
    }
}

static void makes_no_snapshot_without_memory_for_the_reason(void **state)
{
    struct registry_fixture *fixture = *state;
    serve_part(fixture);
    struct eb_snapshot *snapshot = NULL;
    unsigned tries = 0;
    while (!snapshot) {
        eb_faults_fail_allocation(++tries);
        snapshot = eb_registry_snapshot(&fixture->registry);
        eb_faults_disarm();
        assert_true(tries < 20);
    }
    assert_true(tries > 3);
    assert_string_equal(snapshot->not_ready, "no version is in memory");
    eb_snapshot_free(snapshot);
}

static void shows_the_digests_of_versions_in_parts(void **state)
{
    static const struct eb_claim claims[] = {
        {.model = "m", .version = 3, .is_served = true}, {.model = "m", .version = 9}};
    struct registry_fixture *fixture = *state;
    serve_part(fixture);
    struct eb_claim_set set = {.router = "r", .count = 2, .claims = claims};
    assert_true(eb_registry_claim(&fixture->registry, &set));
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    struct eb_snapshot *snapshot = registry_fixture_snapshot(fixture);
    assert_int_equal(snapshot->models[0].versions[0].state, EB_VERSION_LOADING);
    assert_true(snapshot->models[0].versions[0].manifest == DIGEST + 3);
    assert_int_equal(snapshot->models[0].claims.served, 1);
    assert_int_equal(snapshot->models[0].claims.next, 1);
    eb_snapshot_free(snapshot);
    registry_fixture_put(fixture, "m", 3);
    eb_registry_unclaim(&fixture->registry, &set);
}

static void says_which_folder_is_missing(void **state)
{
    struct registry_fixture *fixture = *state;
    fixture->registry.part = (struct eb_part_choice){.part = 1, .parts = 4};
    registry_fixture_make(fixture, "m");
    registry_fixture_look(fixture);
    struct eb_failure failure;
    eb_registry_explain(&fixture->registry, &fixture->registry.models[0], &failure);
    eb_scratch_expect(failure.text, "/m: no version in it has a manifest.yaml and a folder "
                                    "part-00001-of-00004");
}

EB_TEST_GROUP(claims)
{
#define FIXTURE(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, registry_fixture_open, registry_fixture_close)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_the_claims_of_each_version),
        cmocka_unit_test(counts_a_version_that_is_claimed_twice_in_one_call),
        cmocka_unit_test(finds_each_of_many_versions),
        cmocka_unit_test(counts_the_claims_of_each_digest),
        cmocka_unit_test(adds_nothing_without_memory),
        cmocka_unit_test(names_the_routers),
        cmocka_unit_test(cuts_long_names_between_characters),
        FIXTURE(loads_the_lowest_claimed_version_first),
        FIXTURE(keeps_a_version_for_its_grace),
        FIXTURE(keeps_a_version_whose_model_has_left_the_disk_while_it_is_claimed),
        FIXTURE(shows_claims_in_snapshots),
        FIXTURE(waits_for_claims),
        FIXTURE(hurries_where_a_command_asks),
        FIXTURE(takes_claims_for_other_files_for_no_claims),
        FIXTURE(is_ready_when_all_is_there_that_routers_serve),
        FIXTURE(makes_no_snapshot_without_memory_for_the_reason),
        FIXTURE(shows_the_digests_of_versions_in_parts),
        FIXTURE(says_which_folder_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
