#include "server/publish/part_start.h"

#include "tests/lib/capture.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DUE_MS 100

/* Model "m" has versions 1 and 2 on disk. The test itself does the loading. */
struct fixture {
    struct eb_scratch scratch;
    struct eb_repository seen;
    struct eb_registry registry;
    struct eb_loader loader;
    struct eb_resident_keeper keeper;
    struct eb_part_start start;
    uv_loop_t uv;
    uint64_t wake_ms;
    char said[4096];
};

/* On the heap: threads may outlive a failed test. */
static struct fixture *fixture;

static int set_up(void **state)
{
    struct eb_failure failure;
    (void)state;
    fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    eb_scratch_init(&fixture->scratch);
    eb_scratch_make_directory(&fixture->scratch, "m/1");
    eb_scratch_make_directory(&fixture->scratch, "m/2");
    assert_true(eb_repository_scan(fixture->scratch.root,
        &(struct eb_repository_terms){.name_bytes_max = 255}, NULL, &fixture->seen, &failure));
    assert_true(eb_registry_update(&fixture->registry, &fixture->seen));
    assert_int_equal(uv_loop_init(&fixture->uv), 0);
    assert_int_equal(eb_loader_open(&fixture->loader, &fixture->uv), 0);
    fixture->loader.bytes_per_s = 1;
    fixture->start = (struct eb_part_start){
        .registry = &fixture->registry,
        .loader = &fixture->loader,
        .keeper = &fixture->keeper,
    };
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_loader_close(&fixture->loader);
    assert_int_equal(uv_run(&fixture->uv, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&fixture->uv), 0);
    eb_registry_deinit(&fixture->registry);
    eb_repository_deinit(&fixture->seen);
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return 0;
}

/* Takes a step at the given time. Afterwards `said` has what it logged. */
static bool advance(bool may_end, uint64_t now_ms)
{
    struct eb_capture capture;
    uint64_t wake_ms;
    eb_registry_decide(&fixture->registry, now_ms, &wake_ms);
    fixture->wake_ms = UINT64_MAX;
    eb_capture_start(&capture, STDERR_FILENO);
    bool may_load = eb_part_start_advance(&fixture->start, may_end, now_ms, &fixture->wake_ms);
    eb_capture_stop(&capture, fixture->said, sizeof fixture->said);
    return may_load;
}

static void begin(void)
{
    assert_false(advance(true, DUE_MS));
    assert_int_equal(eb_part_start_ns(&fixture->start), 0);
    eb_part_start_begin(&fixture->start, DUE_MS, 3);
    assert_true(fixture->registry.claims_due_ms == DUE_MS);
    assert_int_equal(fixture->loader.bytes_per_s, 0);
    assert_int_equal(fixture->loader.threads, 3);
}

static void suspect(uint64_t number, unsigned deaths)
{
    struct eb_registry_model *model = eb_registry_find(&fixture->registry, "m");
    eb_registry_suspect(
        &fixture->registry, model, eb_registry_find_version(model, number), 5, deaths);
}

/* Expects this version to be loaded next, and lets it fail. */
static void expect_failing(uint64_t number)
{
    struct eb_registry_version *version;
    assert_non_null(eb_registry_next(&fixture->registry, &version));
    assert_int_equal(version->number, number);
    eb_registry_fail(&fixture->registry, "m", number, "no", EB_REGISTRY_BROKEN);
}

static void ends_when_the_wait_is_over_and_nothing_loads(void **state)
{
    (void)state;
    begin();
    assert_false(advance(true, DUE_MS - 1));
    assert_true(fixture->wake_ms == DUE_MS);
    assert_false(advance(false, DUE_MS));
    assert_true(fixture->wake_ms == UINT64_MAX);
    assert_true(fixture->start.is_active);
    expect_failing(2);
    expect_failing(1);
    assert_true(advance(true, DUE_MS));
    assert_false(fixture->start.is_active);
    eb_scratch_expect(fixture->said, "event=model_unserved model=m reason=\"model 'm': no version");
    assert_false(advance(true, DUE_MS));
    assert_int_not_equal(eb_part_start_ns(&fixture->start), 0);
}

static void loads_what_killed_the_process_last(void **state)
{
    (void)state;
    suspect(2, 2);
    suspect(1, 1);
    begin();
    struct eb_registry_version *version;
    assert_null(eb_registry_next(&fixture->registry, &version));
    assert_true(advance(true, DUE_MS));
    assert_true(fixture->start.is_active);
    expect_failing(1);
    assert_true(advance(true, DUE_MS));
    assert_true(fixture->start.is_active);
    expect_failing(2);
    assert_true(advance(true, DUE_MS));
    assert_false(fixture->start.is_active);
}

EB_TEST_GROUP(part_start)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(ends_when_the_wait_is_over_and_nothing_loads),
        FIXTURE(loads_what_killed_the_process_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
