#include "server/models/repository.h"

#include "tests/unit/models/scratch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NPY_5X2 "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }"

static const struct eb_table_options limits = {.row_bytes_max = 65536, .name_bytes_max = 255};
static struct eb_scratch scratch;

/* What a repository told while it was opened. */
struct told {
    int loaded_count;
    int failed_count;
    uint64_t loaded_version;
    uint64_t failed_version;
    char why[EB_FILE_FAULT_BYTES];
};

static void on_loaded(void *context, const struct eb_model_version *version, uint64_t elapsed_ms)
{
    struct told *told = context;
    (void)elapsed_ms;
    told->loaded_count++;
    told->loaded_version = version->version;
}

static void on_failed(void *context, const char *model, uint64_t version, const char *why)
{
    struct told *told = context;
    told->failed_count++;
    told->failed_version = version;
    snprintf(told->why, sizeof told->why, "%s: %s", model, why);
}

static int make_root(void **state)
{
    (void)state;
    eb_scratch_init(&scratch);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    eb_scratch_deinit(&scratch);
    return 0;
}

static void open_repository(struct eb_repository *repository, struct told *told)
{
    struct eb_file_fault fault = {""};
    const struct eb_repository_events events = {
        .on_loaded = on_loaded, .on_failed = on_failed, .context = told};
    *told = (struct told){0};
    if (!eb_repository_open(scratch.root, &limits, &events, repository, &fault)) {
        fail_msg("%s", fault.text);
    }
}

static void expect_fault(const char *part)
{
    struct eb_repository repository;
    struct eb_file_fault fault = {""};
    assert_false(eb_repository_open(scratch.root, &limits, NULL, &repository, &fault));
    assert_int_equal(repository.count, 0);
    assert_null(repository.models);
    eb_scratch_expect(fault.text, part);
}

static void write_table(const char *name)
{
    eb_scratch_write_npy(&scratch, name, NPY_5X2, 40);
}

static void serves_the_highest_version_of_each_model(void **state)
{
    (void)state;
    write_table("b/9/t.npy");
    write_table("b/10/t.npy");
    write_table("b/0011/t.npy");
    write_table("b/12x/t.npy");
    write_table("b/.13/t.npy");
    eb_scratch_write(&scratch, "b/14", "", 0);
    write_table("a/18446744073709551615/t.npy");
    write_table(".c/1/t.npy");
    eb_scratch_write(&scratch, "README", "", 0);
    eb_scratch_make_directory(&scratch, "lost+found");
    struct eb_repository repository;
    struct told told;
    open_repository(&repository, &told);
    assert_int_equal(told.loaded_count, 2);
    assert_int_equal(repository.count, 2);
    assert_string_equal(repository.models[0].name, "a");
    assert_true(repository.models[0].served->version == UINT64_MAX);
    const struct eb_model *b = eb_repository_find(&repository, "b");
    assert_ptr_equal(b, &repository.models[1]);
    assert_int_equal(b->served->version, 11);
    assert_string_equal(b->served->model, "b");
    assert_int_equal(b->record_count, 3);
    static const uint64_t versions[] = {11, 10, 9};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(b->records[i].version, versions[i]);
        assert_int_equal(b->records[i].serving, i == 0);
        assert_null(b->records[i].error);
    }
    eb_repository_close(&repository);
}

static void serves_the_next_lower_version_where_one_is_broken(void **state)
{
    (void)state;
    write_table("m/1/t.npy");
    write_table("m/2/t.npy");
    eb_scratch_write(&scratch, "m/3/t.npy", "junk", 4);
    struct eb_repository repository;
    struct told told;
    open_repository(&repository, &told);
    assert_int_equal(told.failed_count, 1);
    assert_int_equal(told.failed_version, 3);
    assert_int_equal(told.loaded_version, 2);
    eb_scratch_expect(told.why, "m: ");
    eb_scratch_expect(told.why, "/m/3/t.npy: byte 0: not an npy file");
    const struct eb_model *model = repository.models;
    assert_int_equal(model->served->version, 2);
    eb_scratch_expect(model->records[0].error, "m/3/t.npy");
    assert_true(model->records[1].serving);
    assert_false(model->records[2].serving);
    assert_null(model->records[2].error);
    eb_repository_close(&repository);
}

static void names_a_model_of_which_nothing_loads(void **state)
{
    (void)state;
    write_table("good/1/t.npy");
    eb_scratch_write(&scratch, "m/1/t.npy", "junk", 4);
    eb_scratch_make_directory(&scratch, "m/2");
    expect_fault("model 'm': no version loads: ");
    expect_fault("/m/2: there is no table in it");
}

static void names_a_model_without_versions(void **state)
{
    (void)state;
    eb_scratch_make_directory(&scratch, "m/v1");
    expect_fault("/m: there is no version in it");
}

static void passes_over_directories_of_one_version(void **state)
{
    (void)state;
    write_table("m/12/t.npy");
    write_table("m/0012/t.npy");
    write_table("m/11/t.npy");
    struct eb_repository repository;
    struct told told;
    open_repository(&repository, &told);
    assert_int_equal(told.failed_count, 2);
    assert_int_equal(told.failed_version, 12);
    eb_scratch_expect(told.why, "/m/12: ");
    eb_scratch_expect(told.why, "another directory is version 12 too");
    const struct eb_model *model = repository.models;
    assert_int_equal(model->served->version, 11);
    assert_int_equal(model->record_count, 3);
    eb_scratch_expect(model->records[0].error, "/m/0012: ");
    eb_scratch_expect(model->records[1].error, "/m/12: ");
    assert_null(eb_model_take_version(model, 12));
    eb_repository_close(&repository);
}

static void passes_over_numbers_that_are_no_version(void **state)
{
    (void)state;
    static const char *const numbers[] = {"0", "000", "18446744073709551616"};
    for (size_t i = 0; i < 3; i++) {
        struct eb_scratch outer = scratch;
        eb_scratch_init(&scratch);
        char name[64];
        snprintf(name, sizeof name, "m/%s/t.npy", numbers[i]);
        write_table(name);
        expect_fault("model 'm': no version loads");
        expect_fault(numbers[i]);
        write_table("m/1/t.npy");
        struct eb_repository repository;
        struct told told;
        open_repository(&repository, &told);
        assert_int_equal(told.failed_count, 1);
        assert_int_equal(told.failed_version, 0);
        eb_scratch_expect(told.why, numbers[i]);
        eb_scratch_expect(told.why, "versions are numbers from 1 to 18446744073709551615");
        assert_int_equal(repository.models->served->version, 1);
        eb_repository_close(&repository);
        eb_scratch_deinit(&scratch);
        scratch = outer;
    }
}

static void names_what_stands_in_the_place_of_all_versions(void **state)
{
    (void)state;
    write_table("m/1/t.npy");
    write_table("m/01/t.npy");
    write_table("m/00/t.npy");
    expect_fault("model 'm': no version loads: ");
    expect_fault("/m/01: another directory is version 1 too");
}

static void refuses_descriptions_until_they_are_built(void **state)
{
    (void)state;
    write_table("m/1/t.npy");
    eb_scratch_write(&scratch, "m/model.yaml", "", 0);
    expect_fault("/m/model.yaml: descriptions of models are not supported yet");
}

static void refuses_model_names_that_are_not_allowed(void **state)
{
    (void)state;
    write_table("a\tb/1/t.npy");
    expect_fault("/a\\x09b: the model name is not UTF-8");
}

static void refuses_an_empty_repository(void **state)
{
    (void)state;
    expect_fault("there is no model in it");
}

static void refuses_a_repository_that_is_not_there(void **state)
{
    (void)state;
    struct eb_repository repository;
    struct eb_file_fault fault = {""};
    assert_false(eb_repository_open("/nowhere", &limits, NULL, &repository, &fault));
    eb_scratch_expect(fault.text, "/nowhere: the directory cannot be read");
    eb_repository_close(&repository);
}

static void finds_the_only_model_without_a_name(void **state)
{
    (void)state;
    struct eb_repository repository;
    struct told told;
    write_table("a/1/t.npy");
    open_repository(&repository, &told);
    assert_ptr_equal(eb_repository_find(&repository, ""), repository.models);
    assert_ptr_equal(eb_repository_find(&repository, "a"), repository.models);
    assert_null(eb_repository_find(&repository, "b"));
    eb_repository_close(&repository);
    assert_null(eb_repository_find(&repository, "a"));
    write_table("b/1/t.npy");
    open_repository(&repository, &told);
    assert_null(eb_repository_find(&repository, ""));
    eb_repository_close(&repository);
}

static void keeps_a_version_until_its_last_reference(void **state)
{
    (void)state;
    struct eb_repository repository;
    struct told told;
    write_table("a/7/t.npy");
    write_table("a/6/t.npy");
    open_repository(&repository, &told);
    struct eb_model_version *named = eb_model_take_version(repository.models, 7);
    struct eb_model_version *served = eb_model_take_version(repository.models, 0);
    assert_non_null(named);
    assert_ptr_equal(named, served);
    assert_null(eb_model_take_version(repository.models, 6));
    eb_repository_close(&repository);
    eb_model_version_give(named);
    const struct eb_named_table *table = eb_table_set_find(&served->tables, "t");
    assert_non_null(table);
    assert_int_equal(((const uint8_t *)table->table.rows)[39], 40);
    eb_model_version_give(served);
}

static void *take_and_give(void *context)
{
    for (int i = 0; i < 10000; i++) {
        struct eb_model_version *version = eb_model_take_version(context, 0);
        eb_model_version_give(version);
    }
    return NULL;
}

static void counts_references_of_many_threads(void **state)
{
    (void)state;
    struct eb_repository repository;
    struct told told;
    write_table("a/1/t.npy");
    open_repository(&repository, &told);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, repository.models), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&repository.models->served->references), 1);
    eb_repository_close(&repository);
}

int main(void)
{
#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(serves_the_highest_version_of_each_model),
        WITH_ROOT(serves_the_next_lower_version_where_one_is_broken),
        WITH_ROOT(names_a_model_of_which_nothing_loads),
        WITH_ROOT(names_a_model_without_versions),
        WITH_ROOT(passes_over_directories_of_one_version),
        WITH_ROOT(passes_over_numbers_that_are_no_version),
        WITH_ROOT(names_what_stands_in_the_place_of_all_versions),
        WITH_ROOT(refuses_descriptions_until_they_are_built),
        WITH_ROOT(refuses_model_names_that_are_not_allowed),
        WITH_ROOT(refuses_an_empty_repository),
        cmocka_unit_test(refuses_a_repository_that_is_not_there),
        WITH_ROOT(finds_the_only_model_without_a_name),
        WITH_ROOT(keeps_a_version_until_its_last_reference),
        WITH_ROOT(counts_references_of_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
