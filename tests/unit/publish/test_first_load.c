/* Tests how a manager loads the versions that a server starts with. */
#include "server/base/clock.h"
#include "server/base/machine.h"
#include "server/publish/loader.h"
#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/publish/manager_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NPY_5X2 "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }"

struct fixture {
    struct eb_scratch scratch;
    struct manager_host host;
    const struct eb_snapshot *snapshot; /* belongs to the host */
};

/* On the heap: the manager's threads may outlive a failed test. */
static struct fixture *fixture;

static int set_up(void **state)
{
    (void)state;
    fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    eb_scratch_init(&fixture->scratch);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_faults_disarm();
    manager_host_free(&fixture->host);
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return 0;
}

static void write_first_table(const char *name)
{
    eb_scratch_write_npy(&fixture->scratch, name, NPY_5X2, 40);
}

static void write_junk(const char *name)
{
    eb_scratch_write(&fixture->scratch, name, "junk", 4);
}

static bool load(struct eb_failure *failure)
{
    fixture->snapshot = manager_host_load(&fixture->host, fixture->scratch.root, failure);
    return fixture->snapshot;
}

static void expect_failure(const char *part)
{
    struct eb_failure failure = {.text = ""};
    assert_false(load(&failure));
    eb_scratch_expect(failure.text, part);
}

static uint64_t expect_served(const char *model)
{
    struct eb_failure failure = {.text = ""};
    if (!load(&failure)) {
        fail_msg("%s", failure.text);
    }
    return eb_snapshot_find(fixture->snapshot, model)->served->version;
}

/* Returns the version, or NULL if it was not tried. */
static const struct eb_snapshot_version *find_tried(const char *name, uint64_t number)
{
    const struct eb_snapshot_model *model = eb_snapshot_find(fixture->snapshot, name);
    for (size_t i = 0; i < model->version_count; i++) {
        if (model->versions[i].number == number) {
            return &model->versions[i];
        }
    }
    return NULL;
}

static void serves_the_highest_version(void **state)
{
    (void)state;
    write_first_table("m/9/t.npy");
    write_first_table("m/10/t.npy");
    write_first_table("m/.11/t.npy");
    assert_int_equal(expect_served("m"), 10);
    assert_null(find_tried("m", 9));
}

static void tells_how_long_it_took(void **state)
{
    (void)state;
    write_first_table("m/1/t.npy");
    uint64_t begun_ns = eb_clock_steady_ns();
    assert_int_equal(expect_served("m"), 1);
    uint64_t passed_ns = eb_clock_steady_ns() - begun_ns;
    struct eb_manager_times times = eb_manager_load_times(fixture->host.manager);
    assert_in_range(times.scan_ns, 1, passed_ns);
    assert_in_range(times.load_ns, 1, passed_ns - times.scan_ns);
}

static void loads_with_more_threads_while_nobody_is_served(void **state)
{
    (void)state;
    unsigned cpus = eb_machine_cpu_count("");
    unsigned first = eb_loader_choose_threads(0, true);
    unsigned later = eb_loader_choose_threads(0, false);
    assert_int_equal(first, cpus < 8 ? 2 * cpus : 16);
    assert_int_equal(later, cpus < 8 ? 1 : cpus / 4);
    for (unsigned is_first = 0; is_first < 2; is_first++) {
        assert_int_equal(eb_loader_choose_threads(64, is_first), 64);
    }
}

static void serves_the_next_lower_version_where_one_is_broken(void **state)
{
    (void)state;
    write_first_table("m/1/t.npy");
    write_first_table("m/2/t.npy");
    write_junk("m/3/t.npy");
    write_first_table("m/4/t.npy");
    write_first_table("m/04/t.npy");
    assert_int_equal(expect_served("m"), 2);
    eb_scratch_expect(find_tried("m", 3)->failure, "m/3/t.npy: byte 0: not an npy");
    eb_scratch_expect(find_tried("m", 4)->failure, "another directory is also version 4");
}

static void serves_what_model_yaml_says_and_loads_what_has_a_label(void **state)
{
    (void)state;
    static const char yaml[] = "versions: {serve: 2, labels: [{name: old, version: 1}]}\n";
    write_first_table("m/1/t.npy");
    write_first_table("m/2/t.npy");
    write_first_table("m/3/t.npy");
    eb_scratch_write_text(&fixture->scratch, "m/model.yaml", yaml);
    assert_int_equal(expect_served("m"), 2);
    assert_non_null(find_tried("m", 1)->loaded);
}

static void serves_the_others_where_one_model_has_nothing_that_loads(void **state)
{
    (void)state;
    char path[EB_SCRATCH_PATH_BYTES];
    write_first_table("good/1/t.npy");
    write_junk("broken/1/t.npy");
    write_first_table("misnamed\t/1/t.npy");
    eb_scratch_make_directory(&fixture->scratch, "half/.1");
    write_first_table("odd/1/t.npy");
    eb_scratch_write(&fixture->scratch, "odd/model.yaml", "nonsense\n", 9);
    write_first_table("other/12/t.npy");
    eb_scratch_write(&fixture->scratch, "other/model.yaml", "versions: {serve: 9}\n", 21);
    eb_scratch_path(&fixture->scratch, "loop", path);
    assert_int_equal(symlink("loop", path), 0);
    assert_int_equal(expect_served("good"), 1);
    static const char *const others[] = {"broken", "misnamed\t", "half", "odd", "other", "loop"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const struct eb_snapshot_model *model = eb_snapshot_find(fixture->snapshot, others[i]);
        assert_true(!model || !model->served);
    }
}

static void names_a_model_of_which_nothing_loads(void **state)
{
    (void)state;
    write_junk("m/1/t.npy");
    eb_scratch_make_directory(&fixture->scratch, "m/2");
    expect_failure("model 'm': no version can be loaded: ");
    expect_failure("/m/2: there is no table in it");
}

static void names_what_stands_in_the_place_of_all_versions(void **state)
{
    (void)state;
    write_first_table("m/1/t.npy");
    write_first_table("m/01/t.npy");
    expect_failure("/m/01: another directory is also version 1");
}

static void names_a_version_to_be_served_that_is_not_there(void **state)
{
    (void)state;
    static const char yaml[] = "versions: {serve: 1}\n";
    write_first_table("m/2/t.npy");
    eb_scratch_write_text(&fixture->scratch, "m/model.yaml", yaml);
    expect_failure("model 'm': no version can be loaded: model.yaml serves another version");
}

static void refuses_models_that_are_none(void **state)
{
    (void)state;
    expect_failure("there is no model in it");
    eb_scratch_make_directory(&fixture->scratch, "m/v1");
    expect_failure("/m: there is no version in it");
    write_first_table("m/1/t.npy");
    eb_scratch_write(&fixture->scratch, "m/model.yaml", "nonsense\n", 9);
    expect_failure("/m/model.yaml");
    write_first_table("a\tb/1/t.npy");
    expect_failure("/a\\x09b: the model name is not UTF-8");
}

/* ---- progress while it loads ---- */

/* Advances the clock by 2 s at each read, because a load reports its progress once a second. */
static int read_hasty_clock(clockid_t clock, struct timespec *out)
{
    static atomic_int seconds;
    int result = __real_clock_gettime(clock, out);
    if (clock == CLOCK_MONOTONIC) {
        out->tv_sec += 2 * atomic_fetch_add(&seconds, 1);
    }
    return result;
}

struct told {
    uv_thread_t thread;
    unsigned count;
    uint64_t done_bytes;
    uint64_t total_bytes;
    char path[EB_SCRATCH_PATH_BYTES];
};

/* Must not assert, because the manager is further up the stack. */
static void note_loading(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    struct told *told = context;
    uv_thread_t self = uv_thread_self();
    told->count += uv_thread_equal(&self, &told->thread) != 0;
    told->done_bytes = done_bytes;
    told->total_bytes = total_bytes;
    snprintf(told->path, sizeof told->path, "%s", path);
}

static void tells_on_its_owners_thread_how_far_a_load_is(void **state)
{
    (void)state;
    static struct told told;
    char path[EB_SCRATCH_PATH_BYTES];
    write_first_table("m/1/t.npy");
    eb_scratch_path(&fixture->scratch, "m/1/t.npy", path);
    told = (struct told){.thread = uv_thread_self()};
    fixture->host.on_loading = note_loading;
    fixture->host.context = &told;
    eb_faults.clock_gettime = read_hasty_clock;
    assert_int_equal(expect_served("m"), 1);
    assert_true(told.count > 0);
    assert_string_equal(told.path, path);
    assert_int_equal(told.done_bytes, 40);
    assert_int_equal(told.total_bytes, 40);
}

static atomic_int short_count;

static uint64_t tell_short_memory(void)
{
    return atomic_fetch_sub(&short_count, 1) > 0 ? 0 : UINT64_MAX;
}

static void serves_the_next_lower_version_where_memory_is_short(void **state)
{
    (void)state;
    write_first_table("m/1/t.npy");
    write_first_table("m/2/t.npy");
    atomic_store(&short_count, 1);
    eb_faults.eb_machine_available_bytes = tell_short_memory;
    assert_int_equal(expect_served("m"), 1);
    eb_scratch_expect(find_tried("m", 2)->failure,
        " bytes of memory, but 0 are available; free some or raise the container's limit");
}

EB_TEST_GROUP(first_load)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(serves_the_highest_version),
        FIXTURE(tells_how_long_it_took),
        cmocka_unit_test(loads_with_more_threads_while_nobody_is_served),
        FIXTURE(serves_the_next_lower_version_where_one_is_broken),
        FIXTURE(serves_what_model_yaml_says_and_loads_what_has_a_label),
        FIXTURE(serves_the_others_where_one_model_has_nothing_that_loads),
        FIXTURE(names_a_model_of_which_nothing_loads),
        FIXTURE(names_what_stands_in_the_place_of_all_versions),
        FIXTURE(names_a_version_to_be_served_that_is_not_there),
        FIXTURE(refuses_models_that_are_none),
        FIXTURE(tells_on_its_owners_thread_how_far_a_load_is),
        FIXTURE(serves_the_next_lower_version_where_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
