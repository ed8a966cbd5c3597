/* What a server begins with: the initial versions that a manager loads. */
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/publish/manager_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NPY_5X2 "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }"

struct fixture {
    struct eb_scratch scratch;
    struct manager_host host;
    const struct eb_snapshot *snapshot; /* the host's */
};

static struct fixture fixture;

static int set_up(void **state)
{
    (void)state;
    fixture = (struct fixture){0};
    eb_scratch_init(&fixture.scratch);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    manager_host_free(&fixture.host);
    eb_scratch_deinit(&fixture.scratch);
    return 0;
}

static void write_first_table(const char *name)
{
    eb_scratch_write_npy(&fixture.scratch, name, NPY_5X2, 40);
}

static void write_junk(const char *name)
{
    eb_scratch_write(&fixture.scratch, name, "junk", 4);
}

static bool load(struct eb_failure *failure)
{
    fixture.snapshot = manager_host_load(&fixture.host, fixture.scratch.root, failure);
    return fixture.snapshot;
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
    return eb_snapshot_find(fixture.snapshot, model)->served->version;
}

/* NULL: nothing was tried of it. */
static const struct eb_snapshot_version *find_tried(const char *name, uint64_t number)
{
    const struct eb_snapshot_model *model = eb_snapshot_find(fixture.snapshot, name);
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
    eb_scratch_expect(find_tried("m", 4)->failure, "another directory is version 4 too");
}

static void serves_what_model_yaml_says_and_loads_what_has_a_label(void **state)
{
    (void)state;
    static const char yaml[] = "versions: {serve: 2, labels: [{name: old, version: 1}]}\n";
    write_first_table("m/1/t.npy");
    write_first_table("m/2/t.npy");
    write_first_table("m/3/t.npy");
    eb_scratch_write(&fixture.scratch, "m/model.yaml", yaml, strlen(yaml));
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
    eb_scratch_make_directory(&fixture.scratch, "half/.1");
    write_first_table("odd/1/t.npy");
    eb_scratch_write(&fixture.scratch, "odd/model.yaml", "nonsense\n", 9);
    write_first_table("other/12/t.npy");
    eb_scratch_write(&fixture.scratch, "other/model.yaml", "versions: {serve: 9}\n", 21);
    eb_scratch_path(&fixture.scratch, "loop", path);
    assert_int_equal(symlink("loop", path), 0);
    assert_int_equal(expect_served("good"), 1);
    static const char *const others[] = {"broken", "misnamed\t", "half", "odd", "other", "loop"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const struct eb_snapshot_model *model = eb_snapshot_find(fixture.snapshot, others[i]);
        assert_true(!model || !model->served);
    }
}

static void names_a_model_of_which_nothing_loads(void **state)
{
    (void)state;
    write_junk("m/1/t.npy");
    eb_scratch_make_directory(&fixture.scratch, "m/2");
    expect_failure("model 'm': no version loads: ");
    expect_failure("/m/2: there is no table in it");
}

static void names_what_stands_in_the_place_of_all_versions(void **state)
{
    (void)state;
    write_first_table("m/1/t.npy");
    write_first_table("m/01/t.npy");
    expect_failure("/m/01: another directory is version 1 too");
}

static void names_a_version_to_be_served_that_is_not_there(void **state)
{
    (void)state;
    static const char yaml[] = "versions: {serve: 1}\n";
    write_first_table("m/2/t.npy");
    eb_scratch_write(&fixture.scratch, "m/model.yaml", yaml, strlen(yaml));
    expect_failure("model 'm': no version loads: model.yaml serves another one");
}

static void refuses_models_that_are_none(void **state)
{
    (void)state;
    expect_failure("there is no model in it");
    eb_scratch_make_directory(&fixture.scratch, "m/v1");
    expect_failure("/m: there is no version in it");
    write_first_table("m/1/t.npy");
    eb_scratch_write(&fixture.scratch, "m/model.yaml", "nonsense\n", 9);
    expect_failure("/m/model.yaml");
    write_first_table("a\tb/1/t.npy");
    expect_failure("/a\\x09b: the model name is not UTF-8");
}

EB_TEST_GROUP(first_load)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(serves_the_highest_version),
        FIXTURE(serves_the_next_lower_version_where_one_is_broken),
        FIXTURE(serves_what_model_yaml_says_and_loads_what_has_a_label),
        FIXTURE(serves_the_others_where_one_model_has_nothing_that_loads),
        FIXTURE(names_a_model_of_which_nothing_loads),
        FIXTURE(names_what_stands_in_the_place_of_all_versions),
        FIXTURE(names_a_version_to_be_served_that_is_not_there),
        FIXTURE(refuses_models_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
