/* Tests the registry of a router: choices of its flip, and the list of models for it. */
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/models/registry_fixture.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static int open_routed(void **state)
{
    int rc = registry_fixture_open(state);
    ((struct registry_fixture *)*state)->registry.is_routed = true;
    return rc;
}

static int close_routed(void **state)
{
    eb_faults_disarm();
    return registry_fixture_close(state);
}

/* What the manifest of version `number` says in `say`. */
struct said {
    uint64_t number;
    uint64_t digest;
    const char *lineage;
};

/* Updates the registry with the last scan, but with these manifests of "m". */
static void say(struct registry_fixture *fixture, const struct said *said, size_t count)
{
    struct eb_repository_model *model = &fixture->seen.models[0];
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < model->version_count; k++) {
            struct eb_repository_version *version = &model->versions[k];
            if (version->number == said[i].number) {
                version->manifest = said[i].digest;
                version->parts = (uint32_t)said[i].digest / 10;
                version->lineage = (char *)said[i].lineage;
            }
        }
    }
    assert_true(eb_registry_update(&fixture->registry, &fixture->seen));
    for (size_t k = 0; k < model->version_count; k++) {
        model->versions[k].lineage = NULL;
    }
}

/* Pretends to load a version of "m" that has a manifest. */
static void put_with(struct registry_fixture *fixture, uint64_t number, uint64_t digest)
{
    registry_fixture_put(fixture, "m", number);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    eb_registry_find_version(model, number)->loaded->tables.manifest = digest;
}

static bool choose(struct registry_fixture *fixture, const char *model, uint64_t served,
    size_t wanted_count, const uint64_t *wanted)
{
    struct eb_routed_choice choice = {
        .model = model, .served = served, .wanted_count = wanted_count};
    memcpy(choice.wanted, wanted, wanted_count * sizeof *wanted);
    return eb_registry_route(&fixture->registry, &choice);
}

static void write_routed(const struct eb_routed_model *model, char text[TOLD_BYTES])
{
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, TOLD_BYTES - used, "%s serve %d served %d/%d",
        model->name, (int)model->serve, (int)model->served, (int)model->served_digest);
    for (size_t i = 0; i < model->version_count; i++) {
        const struct eb_routed_version *version = &model->versions[i];
        used += (size_t)snprintf(text + used, TOLD_BYTES - used, ", %d/%d/%d \"%s\"%s%s%s%s%s",
            (int)version->number, (int)version->digest, (int)version->parts, version->lineage,
            version->is_on_disk ? " disk" : "", version->is_loaded ? " loaded" : "",
            version->is_failed ? " failed" : "", version->is_held ? " held" : "",
            version->is_labelled ? " labelled" : "");
    }
    snprintf(text + used, TOLD_BYTES - used, "\n");
}

static void expect_list(const struct registry_fixture *fixture, const char *expected)
{
    char text[TOLD_BYTES] = "";
    size_t count;
    struct eb_routed_model *models = eb_registry_list_routed(&fixture->registry, &count);
    assert_non_null(models);
    for (size_t i = 0; i < count; i++) {
        write_routed(&models[i], text);
    }
    free(models);
    assert_string_equal(text, expected);
}

static void carries_out_the_choice_and_nothing_else(void **state)
{
    static const struct eb_claim claim = {.model = "m", .version = 1};
    struct registry_fixture *fixture = *state;
    struct eb_claim_set set = {.router = "other", .count = 1, .claims = &claim};
    assert_true(eb_registry_claim(&fixture->registry, &set));
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "m/2");
    registry_fixture_make(fixture, "m/3");
    registry_fixture_write_config(fixture, "versions: {keep: 1}\n");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    assert_true(choose(fixture, "m", 1, 2, (uint64_t[]){3, 1}));
    assert_int_equal(registry_fixture_next(fixture, "m"), 3);
    registry_fixture_put(fixture, "m", 3);
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 0);
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    registry_fixture_put(fixture, "m", 1);
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    registry_fixture_decide(fixture);
    assert_string_equal(fixture->told, "served m 1 after 0\n");
    registry_fixture_decide(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 1);
    assert_true(choose(fixture, "m", 3, 1, (uint64_t[]){3}));
    registry_fixture_decide(fixture);
    assert_string_equal(fixture->told, "served m 3 after 1\n");
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_READY);
    fixture->now_ms += KEEP_MS;
    registry_fixture_make(fixture, "m/4");
    registry_fixture_follow(fixture);
    assert_int_equal(registry_fixture_served(fixture, "m"), 3);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 4), 0);
    assert_int_equal(registry_fixture_state_of(fixture, "m", 1), EB_VERSION_RETIRED);
    eb_registry_unclaim(&fixture->registry, &set);
}

static void says_whether_a_choice_is_new(void **state)
{
    struct registry_fixture *fixture = *state;
    static const uint64_t wanted[] = {1, 2, 3, 4, 5, 6, 7, 8};
    registry_fixture_make(fixture, "m/1");
    registry_fixture_look(fixture);
    assert_false(choose(fixture, "n", 1, 1, wanted));
    assert_false(choose(fixture, "m", 0, 0, wanted));
    assert_true(choose(fixture, "m", 0, EB_ROUTED_WANTED_MAX, wanted));
    assert_false(choose(fixture, "m", 0, EB_ROUTED_WANTED_MAX, wanted));
    assert_true(choose(fixture, "m", 1, EB_ROUTED_WANTED_MAX, wanted));
    assert_true(choose(fixture, "m", 1, EB_ROUTED_WANTED_MAX - 1, wanted));
    assert_true(choose(fixture, "m", 1, EB_ROUTED_WANTED_MAX - 1, wanted + 1));
    /* A number that does not exist yet has its effect later. */
    assert_int_equal(registry_fixture_next(fixture, "m"), 0);
    registry_fixture_make(fixture, "m/8");
    registry_fixture_look(fixture);
    assert_int_equal(registry_fixture_next(fixture, "m"), 8);
    registry_fixture_put(fixture, "m", 8);
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    assert_int_equal(eb_registry_wanted_rank(model, 8), EB_ROUTED_WANTED_MAX - 1);
    eb_registry_unwant(model, 3);
    assert_int_equal(eb_registry_wanted_rank(model, 3), 0);
    assert_int_equal(eb_registry_wanted_rank(model, 2), 1);
    assert_int_equal(eb_registry_wanted_rank(model, 8), EB_ROUTED_WANTED_MAX - 2);
}

static void loads_what_one_flip_wants_before_the_labels_of_another_model(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/1");
    registry_fixture_make(fixture, "n/1");
    registry_fixture_write_config(fixture, "versions: {labels: [{name: old, version: 1}]}\n");
    registry_fixture_look(fixture);
    assert_true(choose(fixture, "n", 0, 1, (uint64_t[]){1}));
    assert_int_equal(registry_fixture_next(fixture, "n"), 1);
    assert_int_equal(registry_fixture_next(fixture, "m"), 1);
    registry_fixture_put(fixture, "m", 1);
    registry_fixture_put(fixture, "n", 1);
}

static void lists_all_models_and_versions(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "n/7");
    registry_fixture_make(fixture, "n/07");
    registry_fixture_make(fixture, "m/10");
    registry_fixture_make(fixture, "m/9");
    registry_fixture_make(fixture, "m/8");
    registry_fixture_make(fixture, "m/x");
    registry_fixture_write_config(
        fixture, "versions: {serve: 9, labels: [{name: old, version: 8}]}\n");
    registry_fixture_look(fixture);
    say(fixture, (struct said[]){{10, 40, "a"}, {9, 41, NULL}}, 2);
    expect_list(fixture, "m serve 9 served 0/0, 8/0/0 \"\" disk labelled, 9/41/4 \"\" disk, "
                         "10/40/4 \"a\" disk\n"
                         "n serve 0 served 0/0\n");
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    eb_registry_find_version(model, 9)->is_held = true;
    model->commanded = 10;
    choose(fixture, "m", 10, 2, (uint64_t[]){10, 9});
    assert_int_equal(registry_fixture_next(fixture, "m"), 10);
    expect_list(fixture, "m serve 10 served 0/0, 8/0/0 \"\" disk labelled, "
                         "9/41/4 \"\" disk held, 10/40/4 \"a\" disk\n"
                         "n serve 0 served 0/0\n");
    put_with(fixture, 10, 40);
    assert_int_equal(registry_fixture_next(fixture, "m"), 9);
    eb_registry_fail(&fixture->registry, "m", 9, "it is broken", EB_REGISTRY_BROKEN);
    registry_fixture_decide(fixture);
    expect_list(fixture, "m serve 10 served 10/40, 8/0/0 \"\" disk labelled, "
                         "9/41/4 \"\" disk failed held, 10/40/4 \"a\" disk loaded\n"
                         "n serve 0 served 0/0\n");
    eb_registry_suspect(&fixture->registry, model, eb_registry_find_version(model, 8), 0, 1);
    registry_fixture_take_away(fixture, "m/10");
    registry_fixture_take_away(fixture, "m/9");
    registry_fixture_look(fixture);
    expect_list(fixture, "m serve 10 served 10/40, 8/0/0 \"\" disk failed labelled, "
                         "10/40/4 \"a\" loaded\n"
                         "n serve 0 served 0/0\n");
}

static void lists_both_contents_of_a_directory_that_was_replaced(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/7");
    registry_fixture_look(fixture);
    say(fixture, (struct said[]){{7, 40, "a"}}, 1);
    choose(fixture, "m", 7, 1, (uint64_t[]){7});
    assert_int_equal(registry_fixture_next(fixture, "m"), 7);
    put_with(fixture, 7, 40);
    registry_fixture_decide(fixture);
    say(fixture, (struct said[]){{7, 50, "b"}}, 1);
    expect_list(fixture, "m serve 0 served 7/40, 7/40/4 \"a\" loaded, 7/50/5 \"b\" disk\n");
    say(fixture, (struct said[]){{7, 60, "c"}}, 1);
    expect_list(fixture, "m serve 0 served 7/40, 7/40/4 \"a\" loaded, 7/60/6 \"c\" disk\n");
    /* As long as the new manifest cannot be read, only the old one is known. */
    say(fixture, (struct said[]){{7, 0, NULL}}, 1);
    expect_list(fixture, "m serve 0 served 7/40, 7/40/4 \"a\" disk loaded\n");
    say(fixture, (struct said[]){{7, 40, "a"}}, 1);
    expect_list(fixture, "m serve 0 served 7/40, 7/40/4 \"a\" disk loaded\n");
    say(fixture, (struct said[]){{7, 50, NULL}}, 1);
    registry_fixture_take_away(fixture, "m/7");
    registry_fixture_make(fixture, "m/6");
    registry_fixture_look(fixture);
    expect_list(fixture, "m serve 0 served 7/40, 6/0/0 \"\" disk, 7/40/4 \"a\" loaded\n");
}

static void lists_what_is_known_of_a_directory_that_was_replaced_during_its_load(void **state)
{
    struct registry_fixture *fixture = *state;
    registry_fixture_make(fixture, "m/7");
    registry_fixture_look(fixture);
    say(fixture, (struct said[]){{7, 40, "a"}}, 1);
    choose(fixture, "m", 0, 1, (uint64_t[]){7});
    assert_int_equal(registry_fixture_next(fixture, "m"), 7);
    say(fixture, (struct said[]){{7, 50, "b"}}, 1);
    expect_list(fixture, "m serve 0 served 0/0, 7/50/5 \"b\" disk\n");
    put_with(fixture, 7, 40);
    expect_list(fixture, "m serve 0 served 0/0, 7/40/4 \"a\" loaded, 7/50/5 \"b\" disk\n");
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    /* It was read between two scans that did not see these files. */
    eb_registry_find_version(model, 7)->loaded->tables.manifest = 45;
    expect_list(fixture, "m serve 0 served 0/0, 7/50/5 \"b\" disk\n");
    /* It was read after the replacement. */
    eb_registry_find_version(model, 7)->loaded->tables.manifest = 50;
    expect_list(fixture, "m serve 0 served 0/0, 7/50/5 \"b\" disk loaded\n");
}

static void lists_nothing_of_an_empty_registry(void **state)
{
    expect_list(*state, "");
}

static void changes_nothing_where_memory_runs_out(void **state)
{
    struct registry_fixture *fixture = *state;
    size_t count;
    registry_fixture_make(fixture, "m/7");
    registry_fixture_look(fixture);
    say(fixture, (struct said[]){{7, 40, "a"}}, 1);
    eb_faults_fail_allocation(1);
    assert_null(eb_registry_list_routed(&fixture->registry, &count));
    eb_faults_disarm();
    fixture->seen.models[0].versions[0].manifest = 50;
    fixture->seen.models[0].versions[0].lineage = (char *)"b";
    unsigned tries = 0;
    bool is_good = false;
    while (!is_good) {
        expect_list(fixture, "m serve 0 served 0/0, 7/40/4 \"a\" disk\n");
        eb_faults_fail_allocation(++tries);
        is_good = eb_registry_update(&fixture->registry, &fixture->seen);
        eb_faults_disarm();
    }
    fixture->seen.models[0].versions[0].lineage = NULL;
    assert_true(tries > 3);
    expect_list(fixture, "m serve 0 served 0/0, 7/50/4 \"b\" disk\n");
}

EB_TEST_GROUP(routed)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, open_routed, close_routed)
    const struct CMUnitTest tests[] = {
        FIXTURE(carries_out_the_choice_and_nothing_else),
        FIXTURE(says_whether_a_choice_is_new),
        FIXTURE(loads_what_one_flip_wants_before_the_labels_of_another_model),
        FIXTURE(lists_all_models_and_versions),
        FIXTURE(lists_both_contents_of_a_directory_that_was_replaced),
        FIXTURE(lists_what_is_known_of_a_directory_that_was_replaced_during_its_load),
        FIXTURE(lists_nothing_of_an_empty_registry),
        FIXTURE(changes_nothing_where_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
