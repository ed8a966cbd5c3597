/* Starts without the repository. */
#include "server/publish/record_start.h"

#include "server/formats/parts_manifest.h"
#include "tests/lib/capture.h"
#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/resident_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PARTS 3
#define MANIFEST(lineage)                                                                          \
    "format: 1\nparts: 3\nsalt: \"5bd1e995a1b2c3d4\"\nlineage: " lineage "\ntables:\n"             \
    "  - {name: \"t\", placement: rows, type: f32, storage: f32, shape: [4], rows_total: 9,\n"     \
    "     digests: [\"0000000000000001\", \"0000000000000002\", \"0000000000000003\"]}\n"

static char first_manifest[] = MANIFEST("one");
static char second_manifest[] = MANIFEST("two");
static char no_manifest[] = "tables: 7\n";
static char model_yaml[] = "versions: {serve: 8}\n";
static char model_name[] = "m";

struct fixture {
    char root[EB_RESIDENT_FIXTURE_BYTES];
    struct eb_resident_dir dir;
    struct eb_table_options options;
    struct eb_record_start start;
    struct eb_repository seen;
    struct eb_failure failure;
    char said[8192];
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    fixture->dir.descriptor = -1;
    fixture->options =
        (struct eb_table_options){.name_bytes_max = 255, .part = {.part = 1, .parts = PARTS}};
    (void)eb_resident_fixture_make(fixture->root); /* without a tmpfs the tests are skipped */
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_faults_disarm();
    eb_repository_deinit(&fixture->seen);
    eb_record_start_deinit(&fixture->start);
    eb_resident_dir_close(&fixture->dir);
    eb_resident_fixture_remove(fixture->root);
    free(fixture);
    return 0;
}

/* Makes the options those of a router. */
static void make_router(struct fixture *fixture)
{
    fixture->options.part = (struct eb_part_choice){0};
    fixture->options.is_router = true;
}

/* Writes the record of one model. */
static void write_versions(
    struct fixture *fixture, struct eb_served_version *versions, size_t count)
{
    struct eb_failure failure = {.text = ""};
    struct eb_served_model model = {
        .name = model_name, .version_count = count, .versions = versions};
    struct eb_served_record record = {.model_count = 1, .models = &model};
    size_t size;
    if (fixture->root[0] == '\0') {
        skip();
    }
    if (fixture->dir.descriptor < 0 &&
        !eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure)) {
        fail_msg("%s", failure.text);
    }
    fixture->options.resident.dir = &fixture->dir;
    void *bytes = eb_served_record_encode(&record, &size, &failure);
    assert_non_null(bytes);
    assert_true(eb_resident_dir_write(&fixture->dir, EB_SERVED_RECORD_NAME, bytes, size, &failure));
    free(bytes);
}

/* Writes versions 7, which is served, and 8 and 9, which is not complete, of this part. */
static void write_part(struct fixture *fixture, struct eb_part_choice part, bool is_router)
{
    struct eb_served_version versions[] = {
        {.version = 7, .is_complete = true, .manifest_yaml = first_manifest},
        {.version = 9, .manifest_yaml = first_manifest},
        {.version = 8, .is_complete = true, .manifest_yaml = second_manifest},
    };
    for (size_t i = 0; i < 3; i++) {
        versions[i].model_yaml = model_yaml;
        versions[i].part = part;
        versions[i].is_router = is_router;
    }
    write_versions(fixture, versions, 3);
}

/* Starts without a repository. Afterwards `said` has what was logged. */
static bool start_away(struct fixture *fixture)
{
    struct eb_capture capture;
    fixture->failure = (struct eb_failure){.text = ""};
    eb_capture_start(&capture, STDERR_FILENO);
    bool is_started = eb_record_start_scan(
        &fixture->start, "/nowhere/at/all", &fixture->options, &fixture->seen, &fixture->failure);
    eb_capture_stop(&capture, fixture->said, sizeof fixture->said);
    return is_started;
}

static void end_start(struct fixture *fixture)
{
    eb_repository_deinit(&fixture->seen);
    (void)eb_record_start_end(&fixture->start);
    eb_record_start_deinit(&fixture->start);
}

static void expect_unstarted(struct fixture *fixture, const char *part)
{
    assert_false(start_away(fixture));
    assert_int_equal(fixture->seen.count, 0);
    assert_false(fixture->start.is_opened);
    assert_false(atomic_load(&fixture->dir.is_kept));
    eb_scratch_expect(fixture->failure.text, "/nowhere/at/all");
    eb_scratch_expect(fixture->said, part);
}

static uint64_t digest_of(const char *yaml)
{
    struct eb_parts_manifest manifest;
    struct eb_failure failure;
    assert_true(eb_parts_manifest_parse((const uint8_t *)yaml, strlen(yaml), &manifest, &failure));
    uint64_t digest = manifest.digest;
    eb_parts_manifest_deinit(&manifest);
    return digest;
}

static void a_part_server_has_all_complete_versions(void **state)
{
    struct fixture *fixture = *state;
    write_part(fixture, fixture->options.part, false);
    assert_true(start_away(fixture));
    eb_scratch_expect(fixture->said, "event=serving_from_resident");
    assert_true(atomic_load(&fixture->dir.is_kept));
    assert_int_equal(fixture->seen.count, 1);
    const struct eb_repository_model *model = &fixture->seen.models[0];
    assert_int_equal(model->settings->config.serve, 8);
    assert_int_equal(model->version_count, 2);
    assert_int_equal(model->versions[0].number, 8);
    assert_int_equal(model->versions[1].number, 7);
    assert_true(model->versions[0].manifest == digest_of(second_manifest));
    assert_true(model->versions[1].manifest == digest_of(first_manifest));
    assert_null(model->versions[0].lineage);
    const struct eb_served_version *found = eb_record_start_find(&fixture->start, "m", 8);
    assert_non_null(found);
    assert_string_equal(found->manifest_yaml, second_manifest);
    assert_null(eb_record_start_find(&fixture->start, "m", 9));
    assert_true(eb_record_start_end(&fixture->start));
    assert_null(eb_record_start_find(&fixture->start, "m", 8));
    assert_false(atomic_load(&fixture->dir.is_kept));
}

static void a_router_knows_what_the_manifests_say(void **state)
{
    struct fixture *fixture = *state;
    make_router(fixture);
    write_part(fixture, (struct eb_part_choice){.parts = PARTS}, true);
    assert_true(start_away(fixture));
    const struct eb_repository_model *model = &fixture->seen.models[0];
    assert_int_equal(model->version_count, 2);
    assert_string_equal(model->versions[0].lineage, "two");
    assert_string_equal(model->versions[1].lineage, "one");
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(model->versions[i].parts, PARTS);
        assert_int_not_equal(model->versions[i].manifest, 0);
    }
}

static void a_manifest_that_is_not_accepted_is_left_to_its_load(void **state)
{
    struct fixture *fixture = *state;
    struct eb_served_version version = {.version = 7,
        .is_complete = true,
        .manifest_yaml = no_manifest,
        .part = {.parts = PARTS},
        .is_router = true};
    make_router(fixture);
    write_versions(fixture, &version, 1);
    assert_true(start_away(fixture));
    const struct eb_repository_version *seen = &fixture->seen.models[0].versions[0];
    assert_int_equal(seen->number, 7);
    assert_int_equal(seen->manifest, 0);
    assert_int_equal(seen->parts, 0);
    assert_string_equal(seen->lineage, "");
}

static void another_version_will_do_if_the_served_one_is_not_complete(void **state)
{
    struct fixture *fixture = *state;
    struct eb_served_version versions[] = {
        {.version = 8, .manifest_yaml = second_manifest, .part = fixture->options.part},
        {.version = 7,
            .is_complete = true,
            .manifest_yaml = first_manifest,
            .part = fixture->options.part},
    };
    write_versions(fixture, versions, 2);
    assert_true(start_away(fixture));
    assert_int_equal(fixture->seen.models[0].version_count, 1);
    assert_int_equal(fixture->seen.models[0].versions[0].number, 7);
}

static void what_other_servers_recorded_is_not_served(void **state)
{
    struct fixture *fixture = *state;
    static const char other[] = "another kind of server, or one with another part";
    struct eb_served_version whole = {.version = 7, .is_complete = true};
    write_part(fixture, (struct eb_part_choice){2, PARTS}, false);
    expect_unstarted(fixture, other);
    write_part(fixture, (struct eb_part_choice){1, PARTS + 1}, false);
    expect_unstarted(fixture, other);
    write_part(fixture, (struct eb_part_choice){.parts = PARTS}, true);
    expect_unstarted(fixture, other);
    write_versions(fixture, &whole, 1);
    expect_unstarted(fixture, other);
    write_part(fixture, fixture->options.part, false);
    fixture->options.part = (struct eb_part_choice){0};
    expect_unstarted(fixture, other);
    make_router(fixture);
    expect_unstarted(fixture, other);
}

static void a_damaged_record_is_not_served(void **state)
{
    struct fixture *fixture = *state;
    struct eb_failure failure;
    size_t size;
    write_part(fixture, fixture->options.part, false);
    char *bytes = eb_resident_dir_read(
        &fixture->dir, EB_SERVED_RECORD_NAME, EB_SERVED_RECORD_BYTES_MAX, &size, &failure);
    assert_non_null(bytes);
    assert_true(
        eb_resident_dir_write(&fixture->dir, EB_SERVED_RECORD_NAME, bytes, size / 2, &failure));
    expect_unstarted(fixture, "event=resident_not_served");
    char *digit = strstr(bytes, "rows_total: 9");
    assert_non_null(digit);
    digit[strlen("rows_total: ")] = '8';
    assert_true(eb_resident_dir_write(&fixture->dir, EB_SERVED_RECORD_NAME, bytes, size, &failure));
    expect_unstarted(fixture, "it is damaged");
    free(bytes);
    fixture->options.resident.dir = NULL;
    assert_false(start_away(fixture));
    assert_string_equal(fixture->said, "");
}

static void survives_refused_allocations(void **state)
{
    struct fixture *fixture = *state;
    bool is_started = false;
    unsigned number = 0;
    make_router(fixture);
    write_part(fixture, (struct eb_part_choice){.parts = PARTS}, true);
    while (!is_started) {
        eb_faults_fail_allocation(++number);
        is_started = eb_record_start_scan(&fixture->start, "/nowhere/at/all", &fixture->options,
            &fixture->seen, &fixture->failure);
        bool is_refused = eb_faults_allocation_count() >= number;
        eb_faults_fail_allocation(0);
        assert_int_equal(fixture->start.is_opened, is_started);
        if (is_started) {
            assert_int_equal(fixture->seen.models[0].version_count, 2);
            assert_string_equal(fixture->seen.models[0].versions[0].lineage, "two");
        } else {
            assert_int_equal(fixture->seen.count, 0);
        }
        /* A refused allocation of the log or of the scan changes nothing. */
        if (is_started && is_refused) {
            end_start(fixture);
            is_started = false;
        }
    }
    assert_true(number > 20);
}

EB_TEST_GROUP(record_start)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(a_part_server_has_all_complete_versions),
        FIXTURE(a_router_knows_what_the_manifests_say),
        FIXTURE(a_manifest_that_is_not_accepted_is_left_to_its_load),
        FIXTURE(another_version_will_do_if_the_served_one_is_not_complete),
        FIXTURE(what_other_servers_recorded_is_not_served),
        FIXTURE(a_damaged_record_is_not_served),
        FIXTURE(survives_refused_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
