#include "server/publish/scanner.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 10000

struct fixture {
    struct eb_scratch scratch;
    uv_loop_t uv;
    struct eb_directory_watch watch;
    unsigned change_count;
};

static struct fixture fixture;

static void on_change(void *context)
{
    ((struct fixture *)context)->change_count++;
}

static int set_up(void **state)
{
    (void)state;
    fixture = (struct fixture){0};
    eb_scratch_init(&fixture.scratch);
    eb_scratch_make_directory(&fixture.scratch, "m/1");
    fixture.watch = (struct eb_directory_watch){
        .loop = &fixture.uv, .on_change = on_change, .context = &fixture};
    return uv_loop_init(&fixture.uv);
}

static int tear_down(void **state)
{
    (void)state;
    eb_directory_watch_close(&fixture.watch);
    (void)uv_run(&fixture.uv, UV_RUN_DEFAULT);
    eb_scratch_deinit(&fixture.scratch);
    return uv_loop_close(&fixture.uv);
}

/* The error with which watching a directory fails, or 0 if it succeeds. */
static int start_error;

int __real_uv_fs_event_start(
    uv_fs_event_t *handle, uv_fs_event_cb on_event, const char *path, unsigned flags);
int __wrap_uv_fs_event_start(
    uv_fs_event_t *handle, uv_fs_event_cb on_event, const char *path, unsigned flags);

int __wrap_uv_fs_event_start(
    uv_fs_event_t *handle, uv_fs_event_cb on_event, const char *path, unsigned flags)
{
    return start_error < 0 ? start_error : __real_uv_fs_event_start(handle, on_event, path, flags);
}

/* Updates the watch. Returns whether it found something that was not watched before. */
static bool update(void)
{
    struct eb_repository seen;
    struct eb_failure failure;
    int error;
    assert_true(eb_repository_scan(fixture.scratch.root,
        &(struct eb_repository_terms){.name_bytes_max = 255}, NULL, &seen, &failure));
    bool is_new = eb_watch_update(&fixture.watch, fixture.scratch.root, &seen, &error);
    assert_int_equal(error, 0);
    eb_repository_deinit(&seen);
    return is_new;
}

static void expect_change(void)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    fixture.change_count = 0;
    while (fixture.change_count == 0 && uv_hrtime() < deadline_ns) {
        uv_run(&fixture.uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_true(fixture.change_count > 0);
    /* Waits until all events of the same change have arrived. */
    for (unsigned before = 0; before != fixture.change_count;) {
        before = fixture.change_count;
        uv_sleep(1);
        uv_run(&fixture.uv, UV_RUN_NOWAIT);
    }
}

static void move_watched(const char *from, const char *to)
{
    char paths[2][EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture.scratch, from, paths[0]);
    eb_scratch_path(&fixture.scratch, to, paths[1]);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}

static void tells_of_versions_models_and_descriptions(void **state)
{
    (void)state;
    eb_scratch_make_directory(&fixture.scratch, "m/.2");
    assert_true(update());
    assert_false(update());
    move_watched("m/.2", "m/2");
    expect_change();
    eb_scratch_write(&fixture.scratch, "m/model.yaml", "", 0);
    expect_change();
    eb_scratch_make_directory(&fixture.scratch, "n");
    expect_change();
    assert_true(update());
    eb_scratch_make_directory(&fixture.scratch, "n/1");
    expect_change();
}

static void follows_a_directory_that_was_replaced(void **state)
{
    (void)state;
    assert_true(update());
    move_watched("m", ".old");
    eb_scratch_make_directory(&fixture.scratch, "m/3");
    expect_change();
    assert_true(update());
    eb_scratch_make_directory(&fixture.scratch, "m/4");
    expect_change();
    /* A directory that no longer belongs to a model is no longer watched. */
    uv_run(&fixture.uv, UV_RUN_NOWAIT);
    fixture.change_count = 0;
    eb_scratch_make_directory(&fixture.scratch, ".old/5");
    for (int i = 0; i < 20; i++) {
        uv_run(&fixture.uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_int_equal(fixture.change_count, 0);
}

static void follows_a_directory_that_was_made_again(void **state)
{
    char path[EB_SCRATCH_PATH_BYTES];
    (void)state;
    assert_true(update());
    eb_scratch_path(&fixture.scratch, "m/1", path);
    assert_int_equal(rmdir(path), 0);
    eb_scratch_path(&fixture.scratch, "m", path);
    assert_int_equal(rmdir(path), 0);
    /* Most file systems give the new directory the inode number of the removed one. */
    eb_scratch_make_directory(&fixture.scratch, "m");
    expect_change();
    assert_true(update());
    eb_scratch_make_directory(&fixture.scratch, "m/2");
    expect_change();
}

static void passes_over_what_may_not_be_watched(void **state)
{
    struct eb_repository seen;
    struct eb_failure failure;
    int error;
    (void)state;
    assert_true(eb_repository_scan(fixture.scratch.root,
        &(struct eb_repository_terms){.name_bytes_max = 255}, NULL, &seen, &failure));
    start_error = UV_EACCES;
    assert_false(eb_watch_update(&fixture.watch, fixture.scratch.root, &seen, &error));
    assert_int_equal(error, 0);
    start_error = UV_ENOSPC;
    assert_false(eb_watch_update(&fixture.watch, fixture.scratch.root, &seen, &error));
    assert_int_equal(error, UV_ENOSPC);
    start_error = 0;
    assert_true(eb_watch_update(&fixture.watch, fixture.scratch.root, &seen, &error));
    assert_int_equal(error, 0);
    eb_repository_deinit(&seen);
}

EB_TEST_GROUP(watch)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            tells_of_versions_models_and_descriptions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(follows_a_directory_that_was_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(follows_a_directory_that_was_made_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(passes_over_what_may_not_be_watched, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
