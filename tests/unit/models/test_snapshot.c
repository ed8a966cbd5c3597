#include "server/models/snapshot.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Makes a snapshot: "a" serves version 7, has version 6 with a label, and failed to load version 8.
 * "b" has nothing in memory yet. */
static struct eb_snapshot *make_snapshot(struct eb_model_version *loaded)
{
    struct eb_snapshot *snapshot = calloc(1, sizeof *snapshot);
    snapshot->models = calloc(2, sizeof *snapshot->models);
    snapshot->count = 2;
    struct eb_snapshot_model *a = &snapshot->models[0];
    a->name = strdup("a");
    a->versions = calloc(3, sizeof *a->versions);
    a->version_count = 3;
    a->versions[0] = (struct eb_snapshot_version){
        .number = 8, .state = EB_VERSION_FAILED, .failure = strdup("broken")};
    for (size_t i = 0; i < 2; i++) {
        a->versions[i + 1] = (struct eb_snapshot_version){.number = 7 - i,
            .state = EB_VERSION_READY,
            .loaded = eb_model_version_take(&loaded[i])};
    }
    a->served = &loaded[0];
    a->labels = calloc(1, sizeof *a->labels);
    a->label_count = 1;
    a->labels[0] = (struct eb_snapshot_label){strdup("stable"), 6};
    snapshot->models[1].name = strdup("b");
    return snapshot;
}

static void finds_models_and_their_versions(void **state)
{
    (void)state;
    struct eb_model_version loaded[] = {
        {.version = 7, .references = 1}, {.version = 6, .references = 1}};
    struct eb_snapshot *snapshot = make_snapshot(loaded);
    const struct eb_snapshot_model *a = eb_snapshot_find(snapshot, "a");
    assert_ptr_equal(a, &snapshot->models[0]);
    assert_ptr_equal(eb_snapshot_find_version(a, 0), &loaded[0]);
    assert_ptr_equal(eb_snapshot_find_version(a, 7), &loaded[0]);
    assert_ptr_equal(eb_snapshot_find_version(a, 6), &loaded[1]);
    assert_null(eb_snapshot_find_version(a, 8));
    assert_null(eb_snapshot_find_version(a, 5));
    assert_int_equal(eb_snapshot_find_label(a, "stable"), 6);
    assert_int_equal(eb_snapshot_find_label(a, "canary"), 0);
    const struct eb_snapshot_model *b = eb_snapshot_find(snapshot, "b");
    assert_ptr_equal(b, &snapshot->models[1]);
    assert_null(eb_snapshot_find_version(b, 0));
    assert_null(eb_snapshot_find(snapshot, "c"));
    eb_snapshot_free(snapshot);
    assert_int_equal(atomic_load(&loaded[0].references), 1);
    assert_int_equal(atomic_load(&loaded[1].references), 1);
}

static void finds_the_only_model_without_a_name(void **state)
{
    (void)state;
    struct eb_snapshot_model models[] = {{.name = "a"}, {.name = "b"}};
    struct eb_snapshot snapshot = {.count = 1, .models = models};
    assert_ptr_equal(eb_snapshot_find(&snapshot, ""), &models[0]);
    snapshot.count = 2;
    assert_null(eb_snapshot_find(&snapshot, ""));
    struct eb_model_version loaded = {.version = 1};
    models[1].served = &loaded;
    assert_ptr_equal(eb_snapshot_find(&snapshot, ""), &models[1]);
    models[0].served = &loaded;
    assert_null(eb_snapshot_find(&snapshot, ""));
    snapshot.count = 0;
    assert_null(eb_snapshot_find(&snapshot, ""));
    assert_null(eb_snapshot_find(&snapshot, "a"));
}

EB_TEST_GROUP(snapshot)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_models_and_their_versions),
        cmocka_unit_test(finds_the_only_model_without_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
