#include "server/publish/first_load.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NPY_5X2 "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }"

struct trial {
    struct eb_scratch scratch;
    struct eb_repository seen;
    struct eb_roster roster;
};

static const struct eb_table_options tables = {.row_bytes_max = 65536, .name_bytes_max = 255};
static struct trial trial;

static int open_trial(void **state)
{
    (void)state;
    trial = (struct trial){0};
    eb_scratch_init(&trial.scratch);
    return 0;
}

static int close_trial(void **state)
{
    (void)state;
    eb_roster_deinit(&trial.roster);
    eb_repository_deinit(&trial.seen);
    eb_scratch_deinit(&trial.scratch);
    return 0;
}

static void write_table(const char *name)
{
    eb_scratch_write_npy(&trial.scratch, name, NPY_5X2, 40);
}

static void write_junk(const char *name)
{
    eb_scratch_write(&trial.scratch, name, "junk", 4);
}

static bool load(struct eb_file_fault *fault)
{
    const struct eb_first_load first = {.directory = trial.scratch.root,
        .tables = &tables,
        .seen = &trial.seen,
        .roster = &trial.roster};
    return eb_first_load_run(&first, fault);
}

static void expect_fault(const char *part)
{
    struct eb_file_fault fault = {.text = ""};
    assert_false(load(&fault));
    eb_scratch_expect(fault.text, part);
    eb_roster_deinit(&trial.roster);
    eb_repository_deinit(&trial.seen);
}

static uint64_t expect_served(const char *model)
{
    struct eb_file_fault fault = {.text = ""};
    if (!load(&fault)) {
        fail_msg("%s", fault.text);
    }
    return eb_roster_find(&trial.roster, model)->served->version;
}

static void serves_the_highest_version(void **state)
{
    (void)state;
    write_table("m/9/t.npy");
    write_table("m/10/t.npy");
    write_table("m/.11/t.npy");
    assert_int_equal(expect_served("m"), 10);
    assert_null(eb_roster_find_version(eb_roster_find(&trial.roster, "m"), 9)->loaded);
}

static void serves_the_next_lower_version_where_one_is_broken(void **state)
{
    (void)state;
    write_table("m/1/t.npy");
    write_table("m/2/t.npy");
    write_junk("m/3/t.npy");
    write_table("m/4/t.npy");
    write_table("m/04/t.npy");
    assert_int_equal(expect_served("m"), 2);
    struct eb_roster_model *model = eb_roster_find(&trial.roster, "m");
    eb_scratch_expect(eb_roster_find_version(model, 3)->fault, "/m/3/t.npy: byte 0: not an npy");
    assert_null(eb_roster_find_version(model, 4));
}

static void serves_what_model_yaml_says_and_loads_what_has_a_label(void **state)
{
    (void)state;
    static const char yaml[] = "versions: {serve: 2, labels: [{name: old, version: 1}]}\n";
    write_table("m/1/t.npy");
    write_table("m/2/t.npy");
    write_table("m/3/t.npy");
    eb_scratch_write(&trial.scratch, "m/model.yaml", yaml, strlen(yaml));
    assert_int_equal(expect_served("m"), 2);
    assert_non_null(eb_roster_find_version(eb_roster_find(&trial.roster, "m"), 1)->loaded);
}

static void serves_the_others_where_one_model_has_nothing_that_loads(void **state)
{
    (void)state;
    char path[EB_SCRATCH_PATH_BYTES];
    write_table("good/1/t.npy");
    write_junk("broken/1/t.npy");
    write_table("misnamed\t/1/t.npy");
    eb_scratch_make_directory(&trial.scratch, "half/.1");
    write_table("odd/1/t.npy");
    eb_scratch_write(&trial.scratch, "odd/model.yaml", "nonsense\n", 9);
    write_table("other/12/t.npy");
    eb_scratch_write(&trial.scratch, "other/model.yaml", "versions: {serve: 9}\n", 21);
    eb_scratch_path(&trial.scratch, "loop", path);
    assert_int_equal(symlink("loop", path), 0);
    assert_int_equal(expect_served("good"), 1);
    static const char *const others[] = {"broken", "misnamed\t", "half", "odd", "other", "loop"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_null(eb_roster_find(&trial.roster, others[i])->served);
    }
}

static void names_a_model_of_which_nothing_loads(void **state)
{
    (void)state;
    write_junk("m/1/t.npy");
    eb_scratch_make_directory(&trial.scratch, "m/2");
    expect_fault("model 'm': no version loads: ");
    expect_fault("/m/2: there is no table in it");
}

static void names_what_stands_in_the_place_of_all_versions(void **state)
{
    (void)state;
    write_table("m/1/t.npy");
    write_table("m/01/t.npy");
    expect_fault("/m/01: another directory is version 1 too");
}

static void names_a_version_to_be_served_that_is_not_there(void **state)
{
    (void)state;
    static const char yaml[] = "versions: {serve: 1}\n";
    write_table("m/2/t.npy");
    eb_scratch_write(&trial.scratch, "m/model.yaml", yaml, strlen(yaml));
    expect_fault("model 'm': no version loads: model.yaml serves another one");
}

static void refuses_models_that_are_none(void **state)
{
    (void)state;
    expect_fault("there is no model in it");
    eb_scratch_make_directory(&trial.scratch, "m/v1");
    expect_fault("/m: there is no version in it");
    write_table("m/1/t.npy");
    eb_scratch_write(&trial.scratch, "m/model.yaml", "nonsense\n", 9);
    expect_fault("/m/model.yaml");
    write_table("a\tb/1/t.npy");
    expect_fault("/a\\x09b: the model name is not UTF-8");
}

EB_TEST_GROUP(first_load)
{
#define TRIAL(test) cmocka_unit_test_setup_teardown(test, open_trial, close_trial)
    const struct CMUnitTest tests[] = {
        TRIAL(serves_the_highest_version),
        TRIAL(serves_the_next_lower_version_where_one_is_broken),
        TRIAL(serves_what_model_yaml_says_and_loads_what_has_a_label),
        TRIAL(serves_the_others_where_one_model_has_nothing_that_loads),
        TRIAL(names_a_model_of_which_nothing_loads),
        TRIAL(names_what_stands_in_the_place_of_all_versions),
        TRIAL(names_a_version_to_be_served_that_is_not_there),
        TRIAL(refuses_models_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
