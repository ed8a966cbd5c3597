#include "server/tables/source_key.h"

#include "server/formats/manifest.h"
#include "server/tables/table_plan.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/set_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define DIGEST "0123456789abcdef"
#define MANIFEST "format: 1\nparts: 1\nfiles:\n- {name: t.npy, bytes: 144, xxh3_64: " DIGEST "}\n"

static struct eb_set_fixture fixture;

static int set_up(void **state)
{
    static const uint64_t dims[2] = {2, 2};
    static const float values[4] = {1, 2, 3, 4};
    (void)state;
    eb_set_fixture_init(&fixture);
    eb_set_fixture_write_npy(&fixture, "t.npy", EB_STORAGE_F32, dims, values);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_set_fixture_deinit(&fixture);
    return 0;
}

/* Sets the mtime of ROOT/name. */
static void set_mtime(const char *name, time_t seconds)
{
    char path[EB_SCRATCH_PATH_BYTES];
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    eb_scratch_path(&fixture.scratch, name, path);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Plans ROOT, whose only table is t. */
static void plan_keys(struct eb_table_plan *plan)
{
    struct eb_failure failure = {.text = ""};
    struct eb_table_options options = {.row_bytes_max = 65536, .name_bytes_max = 255};
    if (!eb_table_plan_read(fixture.scratch.root, &options, plan, &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_int_equal(plan->table_count, 1);
}

static uint64_t key_of(const char *model, uint64_t version)
{
    struct eb_table_plan plan;
    plan_keys(&plan);
    uint64_t key = eb_source_key(&plan, plan.tables, model, version);
    eb_table_plan_deinit(&plan);
    return key;
}

static uint64_t origin_of(void)
{
    struct eb_table_plan plan;
    plan_keys(&plan);
    uint64_t origin = eb_source_key_origin(&plan, plan.tables);
    eb_table_plan_deinit(&plan);
    return origin;
}

static void write_manifest(const char *text)
{
    eb_scratch_write_text(&fixture.scratch, EB_MANIFEST_NAME, text);
    set_mtime("t.npy", 1000);
    set_mtime(EB_MANIFEST_NAME, 1000);
}

/* If this test fails because the key's parts have changed, raise EB_RESIDENT_LAYOUT_VERSION. */
static void has_the_same_key_in_every_build(void **state)
{
    (void)state;
    set_mtime("t.npy", 1000);
    assert_true(key_of("m", 7) == UINT64_C(0x504a605585c8add3));
    write_manifest(MANIFEST);
    assert_true(key_of("m", 7) == UINT64_C(0xbe240d5107082731));
}

static void tells_models_versions_and_times_apart_without_a_manifest(void **state)
{
    (void)state;
    set_mtime("t.npy", 1000);
    uint64_t key = key_of("m", 7);
    assert_true(key_of("m", 7) == key);
    assert_true(key_of("n", 7) != key);
    assert_true(key_of("m", 8) != key);
    uint64_t origin = origin_of();
    set_mtime("t.npy", 1001);
    assert_true(key_of("m", 7) != key);
    assert_true(origin_of() != origin);
}

static void is_equal_in_all_models_and_versions_with_a_digest(void **state)
{
    (void)state;
    write_manifest(MANIFEST);
    uint64_t key = key_of("m", 7);
    assert_true(key_of("n", 8) == key && origin_of() == key);
    write_manifest("format: 1\nparts: 1\nfiles: [{name: t.npy, bytes: 144, "
                   "xxh3_64: 1123456789abcdef}]");
    assert_true(key_of("m", 7) != key);
}

static void ignores_the_digest_of_a_file_that_is_newer_than_the_manifest(void **state)
{
    (void)state;
    struct eb_table_plan plan;
    write_manifest(MANIFEST);
    plan_keys(&plan);
    assert_true(plan.scan.files[0].has_digest);
    assert_int_equal(plan.scan.notes.stale.count, 0);
    eb_table_plan_deinit(&plan);
    set_mtime("t.npy", 1001);
    plan_keys(&plan);
    assert_false(plan.scan.files[0].has_digest);
    assert_int_equal(plan.scan.notes.stale.count, 1);
    eb_scratch_expect(plan.scan.notes.stale.named.text, "'t.npy'");
    eb_table_plan_deinit(&plan);
    assert_true(key_of("m", 7) != key_of("m", 8));
}

static void refuses_a_directory_that_differs_from_its_manifest(void **state)
{
    (void)state;
    static const char other[] = "{name: t.npy, bytes: 145, xxh3_64: " DIGEST "}";
    char text[512];
    snprintf(text, sizeof text, "format: 1\nparts: 1\nfiles: [%s]", other);
    write_manifest(text);
    eb_set_fixture_expect_failure(&fixture, "",
        "/t.npy: it has 144 bytes, but the manifest lists 145", "copy the files again");
    write_manifest(MANIFEST "- {name: u.npy, bytes: 3, xxh3_64: " DIGEST "}\n");
    eb_set_fixture_expect_failure(&fixture, "", "/u.npy: it cannot be accessed (No such file",
        "the manifest lists it with 3 bytes");
    write_manifest("format: 1\nparts: 1\nfiles: [{name: README, bytes: 1, xxh3_64: " DIGEST "}]");
    eb_scratch_write_text(&fixture.scratch, "README", "x");
    eb_set_fixture_expect_failure(
        &fixture, "", "/t.npy: the manifest does not list this file", "remove the file");
    write_manifest("format: 1\n");
    eb_set_fixture_expect_failure(&fixture, "", "/manifest.yaml: parts: is missing", "expected 1");
}

EB_TEST_GROUP(source_key)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(has_the_same_key_in_every_build, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            tells_models_versions_and_times_apart_without_a_manifest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            is_equal_in_all_models_and_versions_with_a_digest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            ignores_the_digest_of_a_file_that_is_newer_than_the_manifest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            refuses_a_directory_that_differs_from_its_manifest, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
