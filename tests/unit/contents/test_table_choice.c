/* Which files and tensors of a version become tables: those that can be tables and that model.yaml
 * chooses. */
#include "server/tables/table_plan.h"
#include "server/tables/table_set.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/set_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TENSOR(dtype, shape, offsets)                                                              \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define SCALAR "\"bn.num_batches_tracked\":" TENSOR("I64", "[]", "[0,8]")
#define MASK "\"mask\":" TENSOR("BOOL", "[4]", "[8,12]")
#define EMB "\"emb\":" TENSOR("F32", "[3,2]", "[12,36]")
#define BIAS "\"bias\":" TENSOR("F32", "[2]", "[36,44]")
#define STATE "{" SCALAR "," MASK "," EMB "," BIAS "}"
#define NPY_2 "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
#define NPY_KEYS_2 "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }"
#define NPY_BOOL "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }"

static struct eb_set_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    eb_set_fixture_init(&fixture);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_set_fixture_deinit(&fixture);
    return 0;
}

static void write_state(void)
{
    eb_scratch_write_safetensors(&fixture.scratch, "m.safetensors", STATE, 44);
}

/* Expects the version that `yaml` describes to have the tables in `names`, each followed by a
 * space. */
static void expect_tables(const char *yaml, const char *names)
{
    struct eb_table_set set;
    char found[256] = "";
    eb_set_fixture_load(&fixture, yaml, &set);
    for (size_t i = 0; i < set.count; i++) {
        strcat(strcat(found, set.tables[i].name), " ");
    }
    assert_string_equal(found, names);
    eb_table_set_deinit(&set);
}

static void passes_over_tensors_that_cannot_be_tables(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_state();
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(set.count, 2);
    assert_int_equal(set.notes.tensors.count, 2);
    eb_scratch_expect(
        set.notes.tensors.named.text, "'bn.num_batches_tracked': field 'shape': a scalar");
    eb_scratch_expect(set.notes.tensors.named.text, "'mask': field 'dtype': 'BOOL'");
    assert_int_equal(set.notes.files.count, 0);
    assert_int_equal(set.notes.patterns.count, 0);
    eb_table_set_deinit(&set);
}

static void counts_all_and_names_the_first(void **state)
{
    (void)state;
    char json[1024] = "{\"emb\":" TENSOR("U8", "[1]", "[0,1]");
    for (int i = 0; i < 9; i++) {
        char one[96];
        snprintf(one, sizeof one, ",\"b%d\":" TENSOR("BOOL", "[1]", "[%d,%d]"), i, i + 1, i + 2);
        strcat(json, one);
    }
    strcat(json, "}");
    eb_scratch_write_safetensors(&fixture.scratch, "m.safetensors", json, 10);
    struct eb_table_set set;
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(set.notes.tensors.count, 9);
    eb_scratch_expect(set.notes.tensors.named.text, "'b0'");
    assert_null(strstr(set.notes.tensors.named.text, "'b3'"));
    eb_table_set_deinit(&set);
}

static void refuses_an_unfit_tensor_that_the_description_names(void **state)
{
    (void)state;
    write_state();
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: mask}]",
        "m.safetensors: tensor 'mask'", "'BOOL' is not an element type of a table");
    eb_set_fixture_expect_failure(&fixture, "tables: [{name: n, source: bn.num_batches_tracked}]",
        "tensor 'bn.num_batches_tracked'", "a scalar is not a table");
    eb_set_fixture_expect_failure(
        &fixture, "features: [{name: f, table: mask}]", "tensor 'mask'", "'BOOL'");
    eb_set_fixture_expect_failure(
        &fixture, "tables: [{name: masks}]", "'masks'", "not in this version");
}

static void lists_of_tensors_may_name_unfit_ones(void **state)
{
    (void)state;
    static const char list[] = "{\"weight_map\":{\"mask\":\"m-00001-of-00001.safetensors\",\"emb\":"
                               "\"m-00001-of-00001.safetensors\"}}";
    eb_scratch_write_safetensors(&fixture.scratch, "m-00001-of-00001.safetensors", STATE, 44);
    eb_scratch_write(&fixture.scratch, "m.safetensors.index.json", list, sizeof list - 1);
    expect_tables("", "bias emb ");
    expect_tables("exclude: [mask, bias]", "emb ");
}

static void says_what_an_empty_version_holds(void **state)
{
    (void)state;
    eb_scratch_write_safetensors(
        &fixture.scratch, "m.safetensors", "{\"n\":" TENSOR("I64", "[]", "[0,8]") "}", 8);
    eb_set_fixture_expect_failure(&fixture, "",
        "m.safetensors: there is no table in it: tensor 'n'", "a scalar is not a table");
    eb_set_fixture_remove(&fixture, "m.safetensors");
    eb_scratch_write(&fixture.scratch, "model.pt", "x", 1);
    eb_scratch_write(&fixture.scratch, "README", "x", 1);
    eb_set_fixture_expect_failure(&fixture, "", "there is no table in it",
        "'model.pt': embag-import FILE --out REPOSITORY/MODEL");
}

static void notes_files_of_other_formats(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_state();
    eb_scratch_write(&fixture.scratch, "model.onnx", "x", 1);
    eb_scratch_write(&fixture.scratch, "README", "x", 1);
    eb_set_fixture_load(&fixture, "", &set);
    assert_int_equal(set.notes.files.count, 1);
    eb_scratch_expect(set.notes.files.named.text, "'model.onnx'");
    eb_table_set_deinit(&set);
}

static void chooses_by_patterns(void **state)
{
    (void)state;
    write_state();
    eb_scratch_write_npy(&fixture.scratch, "n.npy", NPY_2, 8);
    eb_scratch_write_npy(&fixture.scratch, "n.keys.npy", NPY_KEYS_2, 16);
    eb_scratch_write_npy(&fixture.scratch, "p-00000-of-00001.npy", NPY_2, 8);
    expect_tables("", "bias emb n p ");
    expect_tables("only: ['e*', n]", "emb n ");
    expect_tables("only: ['*']\nexclude: [n, 'b*']", "emb p ");
    expect_tables("exclude: ['[np]']", "bias emb ");
    expect_tables("exclude: ['mask', 'bn.*']", "bias emb n p ");
    eb_set_fixture_expect_failure(
        &fixture, "exclude: ['*']", "leave out all of its 4 tables", "patterns");
}

static void patterns_are_not_blamed_for_tensors_that_cannot_be_tables(void **state)
{
    (void)state;
    write_state();
    eb_set_fixture_expect_failure(&fixture, "only: [mask]",
        "m.safetensors: there is no table in it", "tensor 'mask': field 'dtype': 'BOOL'");
    eb_set_fixture_expect_failure(
        &fixture, "exclude: [emb, bias]", "there is no table in it", "scalar");
}

static void names_one_file_of_another_format_in_full(void **state)
{
    (void)state;
    char long_name[200] = "";
    memset(long_name, 'd', sizeof long_name - 1);
    eb_scratch_make_directory(&fixture.scratch, long_name);
    char directory[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture.scratch, long_name, directory);
    for (int i = 0; i < 3; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s/model%d.pt", long_name, i);
        eb_scratch_write(&fixture.scratch, name, "x", 1);
    }
    struct eb_table_plan plan;
    struct eb_failure failure;
    struct eb_table_options options = {.row_bytes_max = 65536, .name_bytes_max = 255};
    assert_false(eb_table_plan_read(directory, &options, &plan, &failure));
    eb_scratch_expect(failure.text, long_name);
    eb_scratch_expect(failure.text, ": there is no table in it; convert files of other formats "
                                    "first, such as 'model0.pt': embag-import FILE");
    assert_null(strstr(failure.text, "model1.pt"));
}

static void files_that_are_left_out_are_not_read(void **state)
{
    (void)state;
    write_state();
    eb_scratch_write_npy(&fixture.scratch, "flags.npy", NPY_BOOL, 2);
    eb_scratch_write(&fixture.scratch, "broken.embag", "x", 1);
    eb_set_fixture_expect_failure(&fixture, "exclude: [broken]", "flags.npy", "a boolean");
    expect_tables("exclude: [flags, broken]", "bias emb ");
    expect_tables("only: [emb]", "emb ");
}

static void tensors_that_are_left_out_are_not_told_of(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_state();
    eb_set_fixture_load(&fixture, "only: [emb]", &set);
    assert_int_equal(set.notes.tensors.count, 0);
    eb_table_set_deinit(&set);
}

static void a_malformed_tensor_that_is_left_out_is_an_error(void **state)
{
    (void)state;
    eb_scratch_write_safetensors(&fixture.scratch, "m.safetensors",
        "{\"a\":" TENSOR("U8", "[4]", "[0,4]") ",\"b\":" TENSOR("U8", "[4]", "[2,6]") "}", 6);
    eb_set_fixture_expect_failure(&fixture, "exclude: [b]", "tensor 'b'", "overlap");
}

static int match_count;

static int match_and_count(const char *pattern, const char *text, int flags)
{
    match_count++;
    return __real_fnmatch(pattern, text, flags);
}

static int count_matches(void **state)
{
    (void)state;
    eb_faults.fnmatch = match_and_count;
    return 0;
}

static void matches_each_name_once(void **state)
{
    (void)state;
    write_state();
    match_count = 0;
    expect_tables("only: ['e*', 'x*']\nexclude: [mask]", "emb ");
    assert_int_equal(match_count, 4 * 3);
}

static void notes_patterns_that_match_nothing(void **state)
{
    (void)state;
    struct eb_table_set set;
    write_state();
    eb_set_fixture_load(&fixture, "only: ['e*', 'user.*']\nexclude: [mask, 'x?']", &set);
    assert_int_equal(set.notes.patterns.count, 2);
    assert_string_equal(set.notes.patterns.named.text, "'user.*'; 'x?'");
    eb_table_set_deinit(&set);
}

EB_TEST_GROUP(table_choice)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            passes_over_tensors_that_cannot_be_tables, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts_all_and_names_the_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            refuses_an_unfit_tensor_that_the_description_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lists_of_tensors_may_name_unfit_ones, set_up, tear_down),
        cmocka_unit_test_setup_teardown(says_what_an_empty_version_holds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(notes_files_of_other_formats, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chooses_by_patterns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_that_are_left_out_are_not_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            tensors_that_are_left_out_are_not_told_of, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_malformed_tensor_that_is_left_out_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            patterns_are_not_blamed_for_tensors_that_cannot_be_tables, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            names_one_file_of_another_format_in_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(matches_each_name_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(notes_patterns_that_match_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, count_matches, eb_faults_tear_down);
}
