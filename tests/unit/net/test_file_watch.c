#include "proto/net/file_watch.h"

#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 60000
#define POLL_MS 50
#define QUIET_MS 50 /* of most watches, so that they report soon */
#define NS_PER_MS UINT64_C(1000000)

/* A watch and what it has reported. */
struct watcher {
    struct eb_file_watch watch;
    unsigned change_count;
    uint64_t change_ns; /* time of the last change that was reported */
    unsigned unreported_count;
    int unreported_error;
};

struct fixture {
    struct eb_scratch scratch;
    uv_loop_t uv;
    uint64_t quiet_ms;
    struct watcher watchers[2];
};

/* The error with which watching a directory fails, or 0; how often it was tried; and how many of
 * the next threads are refused. */
static int watch_error;
static unsigned watch_count;
static unsigned threads_refused;

int __real_uv_fs_event_start(
    uv_fs_event_t *handle, uv_fs_event_cb on_event, const char *path, unsigned flags);
int __wrap_uv_fs_event_start(
    uv_fs_event_t *handle, uv_fs_event_cb on_event, const char *path, unsigned flags);
int __real_uv_thread_create(uv_thread_t *thread, uv_thread_cb run, void *argument);
int __wrap_uv_thread_create(uv_thread_t *thread, uv_thread_cb run, void *argument);

int __wrap_uv_fs_event_start(
    uv_fs_event_t *handle, uv_fs_event_cb on_event, const char *path, unsigned flags)
{
    watch_count++;
    return watch_error < 0 ? watch_error : __real_uv_fs_event_start(handle, on_event, path, flags);
}

/* The thread of a scan that waits until the test lets it run. */
static bool is_gate_closed;
static uv_sem_t gate;
static uv_thread_cb gated_run;

static void run_behind_gate(void *argument)
{
    uv_sem_wait(&gate);
    gated_run(argument);
}

int __wrap_uv_thread_create(uv_thread_t *thread, uv_thread_cb run, void *argument)
{
    if (is_gate_closed) {
        gated_run = run;
        run = run_behind_gate;
    }
    if (threads_refused > 0) {
        threads_refused--;
        return UV_EAGAIN;
    }
    return __real_uv_thread_create(thread, run, argument);
}

static void on_watcher_change(void *context)
{
    struct watcher *watcher = context;
    watcher->change_count++;
    watcher->change_ns = uv_hrtime();
}

static void on_watcher_unreported(void *context, int error)
{
    struct watcher *watcher = context;
    watcher->unreported_count++;
    watcher->unreported_error = error;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    *state = fixture;
    watch_error = 0;
    watch_count = 0;
    threads_refused = 0;
    fixture->quiet_ms = QUIET_MS;
    eb_scratch_init(&fixture->scratch);
    return uv_loop_init(&fixture->uv);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_faults_disarm();
    eb_file_watch_stop(&fixture->watchers[0].watch);
    eb_file_watch_stop(&fixture->watchers[1].watch);
    (void)uv_run(&fixture->uv, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&fixture->uv);
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return rc;
}

/* ---- files ---- */

static void write_file(const struct fixture *fixture, const char *name, const char *text)
{
    eb_scratch_write_text(&fixture->scratch, name, text);
}

static void link_file(const struct fixture *fixture, const char *name, const char *target)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, name, path);
    assert_int_equal(symlink(target, path), 0);
}

static void rename_file(const struct fixture *fixture, const char *from, const char *to)
{
    char paths[2][EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, from, paths[0]);
    eb_scratch_path(&fixture->scratch, to, paths[1]);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}

static void remove_file(const struct fixture *fixture, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, name, path);
    assert_int_equal(remove(path), 0);
}

/* Makes a link lead to another target, as Kubernetes does with `..data`. */
static void swap_link(const struct fixture *fixture, const char *name, const char *target)
{
    link_file(fixture, "new-link", target);
    rename_file(fixture, "new-link", name);
}

/* ---- watching ---- */

static void add_file(const struct fixture *fixture, struct eb_file_list *list, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, name, path);
    assert_true(eb_file_list_add(list, path));
}

static struct eb_file_watch_options make_options(
    const struct fixture *fixture, struct watcher *watcher)
{
    return (struct eb_file_watch_options){.quiet_ms = fixture->quiet_ms,
        .on_change = on_watcher_change,
        .on_unreported = on_watcher_unreported,
        .context = watcher};
}

/* Runs the loop until the watcher has reported `count` changes. */
static void await_changes(struct fixture *fixture, const struct watcher *watcher, unsigned count)
{
    uint64_t deadline_ns = uv_hrtime() + NS_PER_MS * TIMEOUT_MS;
    while (watcher->change_count < count && uv_hrtime() < deadline_ns) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    assert_int_equal(watcher->change_count, count);
}

/* Runs the loop until the first scan is over and its directories are watched. */
static void await_scans(struct fixture *fixture, const struct watcher *watcher)
{
    uint64_t deadline_ns = uv_hrtime() + NS_PER_MS * TIMEOUT_MS;
    while ((watcher->watch.is_touched || watcher->watch.is_hurrying ||
               eb_file_watch_is_scanning(&watcher->watch)) &&
           uv_hrtime() < deadline_ns) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
}

/* Watches two files, of which `second` may be NULL, by what the system reports alone. */
static struct watcher *watch_files(struct fixture *fixture, const char *first, const char *second)
{
    struct watcher *watcher = &fixture->watchers[0];
    struct eb_file_watch_options options = make_options(fixture, watcher);
    add_file(fixture, &options.files, first);
    if (second) {
        add_file(fixture, &options.files, second);
    }
    assert_int_equal(eb_file_watch_start(&watcher->watch, &fixture->uv, &options), 0);
    await_scans(fixture, watcher);
    assert_int_equal(watcher->change_count, 0);
    return watcher;
}

/* Watches a file by its stamp alone. */
static struct watcher *poll_file(struct fixture *fixture, const char *name)
{
    struct watcher *watcher = &fixture->watchers[1];
    struct eb_file_watch_options options = make_options(fixture, watcher);
    options.poll_ms = POLL_MS;
    options.is_polling_only = true;
    add_file(fixture, &options.files, name);
    assert_int_equal(eb_file_watch_start(&watcher->watch, &fixture->uv, &options), 0);
    return watcher;
}

/* ---- what is a change ---- */

static void tells_of_a_file_that_is_renamed_over(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "a", "old");
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    write_file(fixture, "b", "new");
    rename_file(fixture, "b", "a");
    await_changes(fixture, watcher, 1);
}

static void tells_of_a_file_that_is_written_in_place(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "a", "old");
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    write_file(fixture, "a", "new");
    await_changes(fixture, watcher, 1);
}

static void tells_of_permissions(void **state)
{
    struct fixture *fixture = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    write_file(fixture, "a", "old");
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    eb_scratch_path(&fixture->scratch, "a", path);
    assert_int_equal(chmod(path, 0400), 0);
    await_changes(fixture, watcher, 1);
}

static void tells_of_a_file_that_goes_and_comes_back(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "a", "old");
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    remove_file(fixture, "a");
    await_changes(fixture, watcher, 1);
    write_file(fixture, "a", "new");
    await_changes(fixture, watcher, 2);
}

static void tells_of_a_change_before_the_start(void **state)
{
    struct fixture *fixture = *state;
    struct watcher *watcher = &fixture->watchers[0];
    struct eb_file_watch_options options = make_options(fixture, watcher);
    write_file(fixture, "a", "old");
    add_file(fixture, &options.files, "a");
    write_file(fixture, "a", "newer");
    assert_int_equal(eb_file_watch_start(&watcher->watch, &fixture->uv, &options), 0);
    await_changes(fixture, watcher, 1);
}

static void tells_once_of_two_files_that_change_together(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "a", "old");
    write_file(fixture, "b", "old");
    struct watcher *watcher = watch_files(fixture, "a", "b");
    struct watcher *fence = poll_file(fixture, "c");
    write_file(fixture, "a", "newer");
    write_file(fixture, "b", "newer");
    await_changes(fixture, watcher, 1);
    write_file(fixture, "c", "");
    await_changes(fixture, fence, 1);
    assert_int_equal(watcher->change_count, 1);
}

static void does_not_tell_of_other_files_in_the_directory(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "a", "old");
    write_file(fixture, "b", "old");
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    struct watcher *fence = poll_file(fixture, "b");
    write_file(fixture, "b", "newer");
    await_changes(fixture, fence, 1);
    assert_int_equal(watcher->change_count, 0);
}

/* However slow the machine is, no change is reported less than a second after the last write. */
static void waits_until_the_files_are_quiet(void **state)
{
    struct fixture *fixture = *state;
    char text[8] = "";
    fixture->quiet_ms = 0; /* a second, by default */
    write_file(fixture, "a", "old");
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    for (int i = 0; i < 6; i++) {
        snprintf(text, sizeof text, "%d", i);
        write_file(fixture, "a", text);
        uint64_t written_ns = uv_hrtime();
        unsigned told_before = watcher->change_count;
        unsigned wait_ms = i < 5 ? 400 : TIMEOUT_MS;
        while (watcher->change_count == told_before &&
               uv_hrtime() < written_ns + NS_PER_MS * wait_ms) {
            uv_run(&fixture->uv, UV_RUN_NOWAIT);
            uv_sleep(1);
        }
        if (watcher->change_count > told_before) {
            /* The loop's clock has steps of a millisecond. */
            assert_true(
                watcher->change_ns - written_ns >= NS_PER_MS * (EB_FILE_WATCH_QUIET_MS - 2));
        }
    }
    assert_true(watcher->change_count > 0);
}

/* ---- links and directories ---- */

static void follows_the_data_directory_of_a_mounted_secret(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "..v1/tls.crt", "one");
    write_file(fixture, "..v2/tls.crt", "two");
    link_file(fixture, "..data", "..v1");
    link_file(fixture, "tls.crt", "..data/tls.crt");
    struct watcher *watcher = watch_files(fixture, "tls.crt", NULL);
    swap_link(fixture, "..data", "..v2");
    await_changes(fixture, watcher, 1);
    remove_file(fixture, "..v1/tls.crt");
    remove_file(fixture, "..v1");
    write_file(fixture, "..v3/tls.crt", "three");
    swap_link(fixture, "..data", "..v3");
    await_changes(fixture, watcher, 2);
}

static void follows_links_through_other_directories(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "le/archive/x/cert1.pem", "one");
    write_file(fixture, "le/archive/x/cert2.pem", "two");
    eb_scratch_make_directory(&fixture->scratch, "le/live/x");
    eb_scratch_make_directory(&fixture->scratch, "etc");
    link_file(fixture, "le/live/x/cert.pem", "../../archive/x/cert1.pem");
    link_file(fixture, "etc/cert.pem", "../le/live/x/cert.pem");
    struct watcher *watcher = watch_files(fixture, "etc/cert.pem", NULL);
    swap_link(fixture, "le/live/x/cert.pem", "../../archive/x/cert2.pem");
    await_changes(fixture, watcher, 1);
    write_file(fixture, "le/archive/x/cert2.pem", "two, in place");
    await_changes(fixture, watcher, 2);
    write_file(fixture, "etc/new", "plain");
    rename_file(fixture, "etc/new", "etc/cert.pem");
    await_changes(fixture, watcher, 3);
}

static void follows_a_link_on_the_way_to_the_directory(void **state)
{
    struct fixture *fixture = *state;
    char target[EB_SCRATCH_PATH_BYTES];
    write_file(fixture, "releases/1/a", "one");
    write_file(fixture, "releases/2/a", "two");
    eb_scratch_path(&fixture->scratch, "releases/1", target);
    link_file(fixture, "current", target);
    struct watcher *watcher = watch_files(fixture, "current/a", NULL);
    eb_scratch_path(&fixture->scratch, "releases/2", target);
    swap_link(fixture, "current", target);
    await_changes(fixture, watcher, 1);
}

static void follows_a_directory_that_is_made_again(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "d/e/a", "old");
    struct watcher *watcher = watch_files(fixture, "d/e/a", NULL);
    remove_file(fixture, "d/e/a");
    remove_file(fixture, "d/e");
    remove_file(fixture, "d");
    await_changes(fixture, watcher, 1);
    write_file(fixture, "d/e/a", "new");
    await_changes(fixture, watcher, 2);
    write_file(fixture, "d/e/a", "newer");
    await_changes(fixture, watcher, 3);
}

static void survives_links_in_a_circle(void **state)
{
    struct fixture *fixture = *state;
    link_file(fixture, "a", "b");
    link_file(fixture, "b", "a");
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    remove_file(fixture, "b");
    write_file(fixture, "b", "file");
    await_changes(fixture, watcher, 1);
}

static void watches_as_many_directories_as_it_may_and_polls_the_rest(void **state)
{
    struct fixture *fixture = *state;
    struct watcher *watcher = &fixture->watchers[0];
    struct eb_file_watch_options options = make_options(fixture, watcher);
    char name[32];
    options.poll_ms = POLL_MS;
    for (int i = 0; i <= EB_FILE_WATCH_DIRECTORIES_MAX; i++) {
        snprintf(name, sizeof name, "%d/a", i);
        write_file(fixture, name, "old");
        add_file(fixture, &options.files, name);
    }
    assert_int_equal(eb_file_watch_start(&watcher->watch, &fixture->uv, &options), 0);
    await_scans(fixture, watcher);
    assert_int_equal(watch_count, EB_FILE_WATCH_DIRECTORIES_MAX);
    write_file(fixture, name, "newer");
    await_changes(fixture, watcher, 1);
}

/* ---- polling, and what the system refuses ---- */

static void can_do_with_polling_alone(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "a", "old");
    struct watcher *watcher = poll_file(fixture, "a");
    write_file(fixture, "a", "newer");
    await_changes(fixture, watcher, 1);
    assert_int_equal(watch_count, 0);
}

static void polls_if_the_system_has_no_more_watches(void **state)
{
    struct fixture *fixture = *state;
    struct watcher *watcher = &fixture->watchers[0];
    struct eb_file_watch_options options = make_options(fixture, watcher);
    write_file(fixture, "a/a", "old");
    write_file(fixture, "b/b", "old");
    add_file(fixture, &options.files, "a/a");
    add_file(fixture, &options.files, "b/b");
    options.poll_ms = POLL_MS;
    watch_error = UV_ENOSPC;
    assert_int_equal(eb_file_watch_start(&watcher->watch, &fixture->uv, &options), 0);
    await_scans(fixture, watcher);
    assert_int_equal(watcher->unreported_count, 1);
    assert_int_equal(watcher->unreported_error, UV_ENOSPC);
    write_file(fixture, "b/b", "newer");
    await_changes(fixture, watcher, 1);
    assert_int_equal(watcher->unreported_count, 1);
    /* The system is asked again when the files have changed. */
    watch_error = 0;
    write_file(fixture, "b/b", "newest");
    await_changes(fixture, watcher, 2);
    watch_error = UV_EMFILE;
    write_file(fixture, "c/c", "");
    struct eb_file_list list = {.files = NULL};
    add_file(fixture, &list, "c/c");
    assert_true(eb_file_watch_set(&watcher->watch, &list));
    await_scans(fixture, watcher);
    assert_int_equal(watcher->unreported_count, 2);
    assert_int_equal(watcher->unreported_error, UV_EMFILE);
}

static void tries_again_if_there_is_no_thread(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture, "a", "old");
    threads_refused = 1;
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    write_file(fixture, "a", "newer");
    await_changes(fixture, watcher, 1);
    assert_int_equal(threads_refused, 0);
}

/* ---- lists, start and end ---- */

static void changes_to_another_list(void **state)
{
    struct fixture *fixture = *state;
    struct eb_file_list list = {.files = NULL};
    write_file(fixture, "a", "old");
    write_file(fixture, "b", "old");
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    struct watcher *fence = poll_file(fixture, "a");
    add_file(fixture, &list, "b");
    assert_true(eb_file_watch_set(&watcher->watch, &list));
    assert_int_equal(list.count, 0);
    write_file(fixture, "a", "newer");
    await_changes(fixture, fence, 1);
    assert_int_equal(watcher->change_count, 0);
    write_file(fixture, "b", "newer");
    await_changes(fixture, watcher, 1);
}

/* Starts to watch a file. Returns during the first scan, which lasts until open_gate. */
static void begin_look_at(struct fixture *fixture, struct watcher *watcher, const char *name)
{
    struct eb_file_watch_options options = make_options(fixture, watcher);
    add_file(fixture, &options.files, name);
    assert_int_equal(uv_sem_init(&gate, 0), 0);
    is_gate_closed = true;
    assert_int_equal(eb_file_watch_start(&watcher->watch, &fixture->uv, &options), 0);
    while (!eb_file_watch_is_scanning(&watcher->watch)) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
    }
}

static void open_gate(void)
{
    is_gate_closed = false;
    uv_sem_post(&gate);
}

static void changes_the_list_during_a_scan(void **state)
{
    struct fixture *fixture = *state;
    struct watcher *watcher = &fixture->watchers[0];
    struct eb_file_list list = {.files = NULL};
    begin_look_at(fixture, watcher, "a");
    add_file(fixture, &list, "b");
    assert_true(eb_file_watch_set(&watcher->watch, &list));
    add_file(fixture, &list, "c");
    write_file(fixture, "c", "");
    assert_true(eb_file_watch_set(&watcher->watch, &list));
    open_gate();
    await_changes(fixture, watcher, 1);
    uv_sem_destroy(&gate);
}

static void stops_during_a_scan(void **state)
{
    struct fixture *fixture = *state;
    struct watcher *watcher = &fixture->watchers[0];
    struct eb_file_list list = {.files = NULL};
    begin_look_at(fixture, watcher, "a");
    add_file(fixture, &list, "b");
    assert_true(eb_file_watch_set(&watcher->watch, &list));
    write_file(fixture, "a", "");
    eb_file_watch_stop(&watcher->watch);
    eb_file_watch_stop(&watcher->watch);
    add_file(fixture, &list, "c");
    assert_true(eb_file_watch_set(&watcher->watch, &list));
    assert_int_equal(list.count, 0);
    open_gate();
    assert_int_equal(uv_run(&fixture->uv, UV_RUN_DEFAULT), 0);
    assert_int_equal(watcher->change_count, 0);
    uv_sem_destroy(&gate);
}

static void lists_as_many_files_as_it_may(void **state)
{
    const struct fixture *fixture = *state;
    struct eb_file_list list = {.files = NULL};
    for (int i = 0; i < EB_FILE_LIST_MAX; i++) {
        add_file(fixture, &list, "a");
    }
    assert_false(eb_file_list_add(&list, "a"));
    assert_int_equal(list.count, EB_FILE_LIST_MAX);
    eb_file_list_deinit(&list);
    assert_int_equal(list.count, 0);
}

static void starts_wholly_or_not_at_all(void **state)
{
    struct fixture *fixture = *state;
    struct watcher *watcher = &fixture->watchers[0];
    struct eb_file_list list = {.files = NULL};
    for (unsigned number = 1; number <= 2; number++) {
        eb_faults_fail_allocation(number);
        assert_false(eb_file_list_add(&list, "a"));
        eb_faults_fail_allocation(0);
        assert_int_equal(list.count, 0);
    }
    struct eb_file_watch_options options = make_options(fixture, watcher);
    add_file(fixture, &options.files, "a");
    eb_faults_fail_allocation(1);
    assert_int_equal(eb_file_watch_start(&watcher->watch, &fixture->uv, &options), UV_ENOMEM);
    eb_faults_fail_allocation(0);
    assert_int_equal(uv_loop_alive(&fixture->uv), 0);
    eb_file_list_deinit(&list);
}

static void keeps_its_list_if_there_is_no_memory_for_another(void **state)
{
    struct fixture *fixture = *state;
    struct eb_file_list list = {.files = NULL};
    struct watcher *watcher = watch_files(fixture, "a", NULL);
    add_file(fixture, &list, "b");
    eb_faults_fail_allocation(1);
    assert_false(eb_file_watch_set(&watcher->watch, &list));
    eb_faults_fail_allocation(0);
    assert_int_equal(list.count, 0);
    write_file(fixture, "a", "new");
    await_changes(fixture, watcher, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(file_watch)
{
    const struct CMUnitTest tests[] = {
        TEST(tells_of_a_file_that_is_renamed_over),
        TEST(tells_of_a_file_that_is_written_in_place),
        TEST(tells_of_permissions),
        TEST(tells_of_a_file_that_goes_and_comes_back),
        TEST(tells_of_a_change_before_the_start),
        TEST(tells_once_of_two_files_that_change_together),
        TEST(does_not_tell_of_other_files_in_the_directory),
        TEST(waits_until_the_files_are_quiet),
        TEST(follows_the_data_directory_of_a_mounted_secret),
        TEST(follows_links_through_other_directories),
        TEST(follows_a_link_on_the_way_to_the_directory),
        TEST(follows_a_directory_that_is_made_again),
        TEST(survives_links_in_a_circle),
        TEST(watches_as_many_directories_as_it_may_and_polls_the_rest),
        TEST(can_do_with_polling_alone),
        TEST(polls_if_the_system_has_no_more_watches),
        TEST(tries_again_if_there_is_no_thread),
        TEST(changes_to_another_list),
        TEST(changes_the_list_during_a_scan),
        TEST(stops_during_a_scan),
        TEST(lists_as_many_files_as_it_may),
        TEST(starts_wholly_or_not_at_all),
        TEST(keeps_its_list_if_there_is_no_memory_for_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
