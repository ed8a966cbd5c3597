#include "server/publish/watch.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 10000

struct trial {
    struct eb_scratch scratch;
    uv_loop_t uv;
    struct eb_watch watch;
    unsigned change_count;
};

static struct trial trial;

static void on_change(void *context)
{
    ((struct trial *)context)->change_count++;
}

static int open_trial(void **state)
{
    (void)state;
    trial = (struct trial){0};
    eb_scratch_init(&trial.scratch);
    eb_scratch_make_directory(&trial.scratch, "m/1");
    trial.watch = (struct eb_watch){.loop = &trial.uv, .on_change = on_change, .context = &trial};
    return uv_loop_init(&trial.uv);
}

static int close_trial(void **state)
{
    (void)state;
    eb_watch_close(&trial.watch);
    (void)uv_run(&trial.uv, UV_RUN_DEFAULT);
    eb_scratch_deinit(&trial.scratch);
    return uv_loop_close(&trial.uv);
}

/* What watching a directory fails with; 0: it does not. */
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

/* Whether there was anything that was not watched before. */
static bool update(void)
{
    struct eb_repository seen;
    struct eb_file_fault fault;
    int error;
    assert_true(eb_repository_scan(trial.scratch.root, 255, NULL, &seen, &fault));
    bool is_new = eb_watch_update(&trial.watch, trial.scratch.root, &seen, &error);
    assert_int_equal(error, 0);
    eb_repository_deinit(&seen);
    return is_new;
}

static void expect_change(void)
{
    const uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    trial.change_count = 0;
    while (trial.change_count == 0 && uv_hrtime() < deadline_ns) {
        uv_run(&trial.uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_true(trial.change_count > 0);
    /* All that belongs to it. */
    for (unsigned before = 0; before != trial.change_count;) {
        before = trial.change_count;
        uv_sleep(1);
        uv_run(&trial.uv, UV_RUN_NOWAIT);
    }
}

static void move(const char *from, const char *to)
{
    char paths[2][EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&trial.scratch, from, paths[0]);
    eb_scratch_path(&trial.scratch, to, paths[1]);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}

static void tells_of_versions_models_and_descriptions(void **state)
{
    (void)state;
    eb_scratch_make_directory(&trial.scratch, "m/.2");
    assert_true(update());
    assert_false(update());
    move("m/.2", "m/2");
    expect_change();
    eb_scratch_write(&trial.scratch, "m/model.yaml", "", 0);
    expect_change();
    eb_scratch_make_directory(&trial.scratch, "n");
    expect_change();
    assert_true(update());
    eb_scratch_make_directory(&trial.scratch, "n/1");
    expect_change();
}

static void follows_a_directory_that_was_replaced(void **state)
{
    (void)state;
    assert_true(update());
    move("m", ".old");
    eb_scratch_make_directory(&trial.scratch, "m/3");
    expect_change();
    assert_true(update());
    eb_scratch_make_directory(&trial.scratch, "m/4");
    expect_change();
    /* What is no longer a model's is watched no more. */
    uv_run(&trial.uv, UV_RUN_NOWAIT);
    trial.change_count = 0;
    eb_scratch_make_directory(&trial.scratch, ".old/5");
    for (int i = 0; i < 20; i++) {
        uv_run(&trial.uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_int_equal(trial.change_count, 0);
}

static void follows_a_directory_that_was_made_again(void **state)
{
    char path[EB_SCRATCH_PATH_BYTES];
    (void)state;
    assert_true(update());
    eb_scratch_path(&trial.scratch, "m/1", path);
    assert_int_equal(rmdir(path), 0);
    eb_scratch_path(&trial.scratch, "m", path);
    assert_int_equal(rmdir(path), 0);
    /* Most file systems give it the number of the one that is gone. */
    eb_scratch_make_directory(&trial.scratch, "m");
    expect_change();
    assert_true(update());
    eb_scratch_make_directory(&trial.scratch, "m/2");
    expect_change();
}

static void passes_over_what_may_not_be_watched(void **state)
{
    struct eb_repository seen;
    struct eb_file_fault fault;
    int error;
    (void)state;
    assert_true(eb_repository_scan(trial.scratch.root, 255, NULL, &seen, &fault));
    start_error = UV_EACCES;
    assert_false(eb_watch_update(&trial.watch, trial.scratch.root, &seen, &error));
    assert_int_equal(error, 0);
    start_error = UV_ENOSPC;
    assert_false(eb_watch_update(&trial.watch, trial.scratch.root, &seen, &error));
    assert_int_equal(error, UV_ENOSPC);
    start_error = 0;
    assert_true(eb_watch_update(&trial.watch, trial.scratch.root, &seen, &error));
    assert_int_equal(error, 0);
    eb_repository_deinit(&seen);
}

EB_TEST_GROUP(watch)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            tells_of_versions_models_and_descriptions, open_trial, close_trial),
        cmocka_unit_test_setup_teardown(
            follows_a_directory_that_was_replaced, open_trial, close_trial),
        cmocka_unit_test_setup_teardown(
            follows_a_directory_that_was_made_again, open_trial, close_trial),
        cmocka_unit_test_setup_teardown(
            passes_over_what_may_not_be_watched, open_trial, close_trial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
