/* When the record of what is served is replaced, and files are deleted, at a start. */
#include "server/publish/resident_keeper.h"

#include "server/tables/served_record.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/resident_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A table file that nobody uses. */
static const char unused[] = "0123456789abcdef.t";
static char model_name[] = "m";
static char manifest_yaml[] = "parts: 3\n";

/* A directory in which another process has recorded version 7, and a snapshot of version 8. */
struct fixture {
    char root[EB_RESIDENT_FIXTURE_BYTES];
    struct eb_resident_dir dir;
    struct eb_publisher publisher;
    struct eb_resident_keeper keeper;
    struct eb_model_version version;
    struct eb_snapshot_model model;
    struct eb_snapshot snapshot;
    uv_loop_t uv;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    fixture->dir.descriptor = -1;
    fixture->version.version = 8;
    fixture->version.tables.manifest_yaml = manifest_yaml;
    fixture->version.tables.part = (struct eb_part_choice){1, 3};
    fixture->model.name = model_name;
    fixture->snapshot = (struct eb_snapshot){.count = 1, .models = &fixture->model};
    fixture->publisher.current = &fixture->snapshot;
    fixture->keeper.publisher = &fixture->publisher;
    (void)eb_resident_fixture_make(fixture->root); /* without a tmpfs the tests are skipped */
    *state = fixture;
    return uv_loop_init(&fixture->uv);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_resident_keeper_stop(&fixture->keeper);
    assert_int_equal(uv_run(&fixture->uv, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&fixture->uv), 0);
    eb_resident_dir_close(&fixture->dir);
    eb_resident_fixture_remove(fixture->root);
    free(fixture);
    return 0;
}

static void start_keeper(struct fixture *fixture)
{
    struct eb_served_version version = {
        .version = 7, .manifest_yaml = manifest_yaml, .part = {1, 3}};
    struct eb_served_model model = {.name = model_name, .version_count = 1, .versions = &version};
    struct eb_served_record record = {.model_count = 1, .models = &model};
    struct eb_failure failure = {.text = ""};
    size_t size;
    if (fixture->root[0] == '\0') {
        skip();
    }
    if (!eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure)) {
        fail_msg("%s", failure.text);
    }
    void *bytes = eb_served_record_encode(&record, &size, &failure);
    assert_non_null(bytes);
    assert_true(eb_resident_dir_write(&fixture->dir, EB_SERVED_RECORD_NAME, bytes, size, &failure));
    assert_true(eb_resident_dir_write(&fixture->dir, unused, bytes, size, &failure));
    free(bytes);
    eb_resident_keeper_start(&fixture->keeper, &fixture->dir, &fixture->uv);
}

/* Returns the first version of the record, or 0 if it has none. */
static uint64_t recorded(struct fixture *fixture)
{
    struct eb_served_record record;
    struct eb_failure failure = {.text = ""};
    assert_true(eb_served_record_read(&fixture->dir, &record, &failure));
    assert_int_equal(record.model_count, 1);
    bool is_any = record.models[0].version_count > 0;
    uint64_t version = is_any ? record.models[0].versions[0].version : 0;
    if (is_any) {
        assert_string_equal(record.models[0].versions[0].manifest_yaml, manifest_yaml);
        assert_int_equal(record.models[0].versions[0].part.part, 1);
    }
    eb_served_record_deinit(&record);
    return version;
}

static void has_at_once_what_is_recorded_while_it_is_not_held(void **state)
{
    struct fixture *fixture = *state;
    start_keeper(fixture);
    eb_resident_keeper_record(&fixture->keeper, &fixture->snapshot);
    assert_int_equal(recorded(fixture), 0);
    eb_resident_keeper_sweep(&fixture->keeper);
    assert_false(eb_resident_dir_has(&fixture->dir, unused));
}

static void holds_record_and_files_until_it_settles(void **state)
{
    struct fixture *fixture = *state;
    start_keeper(fixture);
    eb_resident_keeper_hold(&fixture->keeper, false);
    fixture->model.served = &fixture->version;
    eb_resident_keeper_record(&fixture->keeper, &fixture->snapshot);
    eb_resident_keeper_sweep(&fixture->keeper);
    assert_int_equal(recorded(fixture), 7);
    assert_true(eb_resident_dir_has(&fixture->dir, unused));
    eb_resident_keeper_settle(&fixture->keeper);
    assert_int_equal(recorded(fixture), 8);
    assert_true(fixture->keeper.is_recorded_complete);
    assert_false(eb_resident_dir_has(&fixture->dir, unused));
}

/* Lets the time pass after which a start is good. */
static void pass_good_start(struct fixture *fixture)
{
    uv_timer_t *timer = &fixture->keeper.good_start;
    assert_true(uv_is_active((uv_handle_t *)timer));
    uv_timer_start(timer, timer->timer_cb, 0, 0);
    for (unsigned i = 0; i < 100 && uv_is_active((uv_handle_t *)timer); i++) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
    }
    assert_false(uv_is_active((uv_handle_t *)timer));
}

static void a_router_records_once_all_models_are_served_and_sweeps_later(void **state)
{
    struct fixture *fixture = *state;
    start_keeper(fixture);
    eb_resident_keeper_hold(&fixture->keeper, true);
    eb_resident_keeper_record(&fixture->keeper, &fixture->snapshot);
    assert_int_equal(recorded(fixture), 7);
    fixture->model.served = &fixture->version;
    eb_resident_keeper_record(&fixture->keeper, &fixture->snapshot);
    assert_int_equal(recorded(fixture), 8);
    assert_true(eb_resident_dir_has(&fixture->dir, unused));
    pass_good_start(fixture);
    assert_false(eb_resident_dir_has(&fixture->dir, unused));
}

static void a_router_that_serves_nothing_settles_when_its_start_is_good(void **state)
{
    struct fixture *fixture = *state;
    start_keeper(fixture);
    eb_resident_keeper_hold(&fixture->keeper, true);
    assert_int_equal(recorded(fixture), 7);
    pass_good_start(fixture);
    assert_int_equal(recorded(fixture), 0);
    assert_false(eb_resident_dir_has(&fixture->dir, unused));
}

static void a_part_server_may_take_longer_than_that(void **state)
{
    struct fixture *fixture = *state;
    start_keeper(fixture);
    eb_resident_keeper_hold(&fixture->keeper, false);
    pass_good_start(fixture);
    assert_int_equal(recorded(fixture), 7);
    assert_true(eb_resident_dir_has(&fixture->dir, unused));
}

static void does_nothing_without_a_directory(void **state)
{
    struct fixture *fixture = *state;
    eb_resident_keeper_start(&fixture->keeper, NULL, &fixture->uv);
    eb_resident_keeper_hold(&fixture->keeper, true);
    eb_resident_keeper_record(&fixture->keeper, &fixture->snapshot);
    eb_resident_keeper_settle(&fixture->keeper);
    assert_false(fixture->keeper.is_recorded_complete);
}

EB_TEST_GROUP(resident_keeper)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(has_at_once_what_is_recorded_while_it_is_not_held),
        FIXTURE(holds_record_and_files_until_it_settles),
        FIXTURE(a_router_records_once_all_models_are_served_and_sweeps_later),
        FIXTURE(a_router_that_serves_nothing_settles_when_its_start_is_good),
        FIXTURE(a_part_server_may_take_longer_than_that),
        FIXTURE(does_nothing_without_a_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
