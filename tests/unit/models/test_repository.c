#include "server/models/repository.h"

#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define NAME_BYTES_MAX 255

static unsigned copies_left = UINT_MAX; /* copies that still succeed */
/* Directory in which model "m" gives way to "next" when the name of its version 1 is copied, while
 * `moves_left` is not 0; and the number of moves. */
static const struct eb_scratch *moved_in;
static unsigned moves_left;
static unsigned move_count;

static void move(const char *from, const char *to)
{
    char paths[2][EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(moved_in, from, paths[0]);
    eb_scratch_path(moved_in, to, paths[1]);
    rename(paths[0], paths[1]);
}

static char *copy_while_left(const char *text)
{
    if (moves_left > 0 && strcmp(text, "1") == 0) {
        char away[16];
        moves_left--;
        snprintf(away, sizeof away, ".m%u", ++move_count);
        move("m", away);
        snprintf(away, sizeof away, ".next%u", move_count);
        move(away, "m");
    }
    return copies_left-- > 0 ? __real_strdup(text) : NULL;
}

static int limit_copies(void **state)
{
    (void)state;
    eb_faults.strdup = copy_while_left;
    return 0;
}

static void scan(
    const struct eb_scratch *scratch, const struct eb_repository *former, struct eb_repository *out)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_repository_scan(scratch->root,
            &(struct eb_repository_terms){.name_bytes_max = NAME_BYTES_MAX}, former, out,
            &failure)) {
        fail_msg("%s", failure.text);
    }
}

static void expect_failure(const char *directory, const char *part)
{
    struct eb_repository repository;
    struct eb_failure failure = {.text = ""};
    assert_false(eb_repository_scan(directory,
        &(struct eb_repository_terms){.name_bytes_max = NAME_BYTES_MAX}, NULL, &repository,
        &failure));
    assert_int_equal(repository.count, 0);
    assert_null(repository.models);
    eb_scratch_expect(failure.text, part);
}

static void make(const struct eb_scratch *scratch, const char *name)
{
    eb_scratch_make_directory(scratch, name);
}

static void write_config(const struct eb_scratch *scratch, const char *text)
{
    eb_scratch_write_text(scratch, "m/model.yaml", text);
}

static void lists_models_and_versions_highest_first(void **state)
{
    const struct eb_scratch *scratch = *state;
    make(scratch, "b/9");
    make(scratch, "b/10");
    make(scratch, "b/0011");
    make(scratch, "b/12x");
    make(scratch, "b/.13");
    make(scratch, "a/18446744073709551615");
    make(scratch, ".c/1");
    make(scratch, "lost+found");
    eb_scratch_write(scratch, "b/14", "", 0);
    eb_scratch_write(scratch, "README", "", 0);
    struct eb_repository repository;
    scan(scratch, NULL, &repository);
    assert_int_equal(repository.count, 2);
    assert_string_equal(repository.models[0].name, "a");
    assert_true(repository.models[0].versions[0].number == UINT64_MAX);
    const struct eb_repository_model *b = eb_repository_find(&repository, "b");
    assert_ptr_equal(b, &repository.models[1]);
    assert_int_equal(b->version_count, 3);
    static const char *const names[] = {"0011", "10", "9"};
    static const uint64_t numbers[] = {11, 10, 9};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(b->versions[i].name, names[i]);
        assert_int_equal(b->versions[i].number, numbers[i]);
        assert_null(b->versions[i].failure);
    }
    assert_null(b->failure);
    assert_null(eb_repository_find(&repository, "c"));
    eb_repository_deinit(&repository);
    assert_null(eb_repository_find(&repository, "b"));
}

static void counts_the_bytes_of_versions_that_are_likely_to_be_loaded(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_repository first;
    struct eb_repository second;
    static const uint64_t bytes[] = {0, 7, 0, 4, 5};
    make(scratch, "m/0");
    eb_scratch_write(scratch, "m/9/t.npy", "1234567", 7);
    make(scratch, "m/9/directory");
    eb_scratch_write(scratch, "m/8/t.npy", "123456", 6);
    eb_scratch_write(scratch, "m/7/t.npy", "1234", 4);
    eb_scratch_write(scratch, "m/6/t.npy", "123", 3);
    eb_scratch_write(scratch, "m/6/u.npy", "12", 2);
    write_config(scratch, "versions: {serve: 7, labels: [{name: a, version: 6}]}\n");
    scan(scratch, NULL, &first);
    assert_int_equal(first.models[0].version_count, 5);
    for (size_t i = 0; i < first.models[0].version_count; i++) {
        uint64_t number = first.models[0].versions[i].number;
        assert_int_equal(first.models[0].versions[i].bytes, number == 0 ? 0 : bytes[10 - number]);
    }
    /* A directory that is unchanged is not read again. */
    eb_scratch_write(scratch, "m/9/t.npy", "12345678", 8);
    scan(scratch, &first, &second);
    assert_int_equal(second.models[0].versions[0].bytes, 7);
    eb_repository_deinit(&second);
    eb_repository_deinit(&first);
}

/* Scans for part 1 of 2. */
static void scan_part(
    const struct eb_scratch *scratch, const struct eb_repository *former, struct eb_repository *out)
{
    struct eb_failure failure = {.text = ""};
    struct eb_repository_terms terms = {
        .name_bytes_max = NAME_BYTES_MAX, .part = {.part = 1, .parts = 2}};
    if (!eb_repository_scan(scratch->root, &terms, former, out, &failure)) {
        fail_msg("%s", failure.text);
    }
}

static void digests_the_manifests_of_all_versions_of_a_part(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_repository first;
    struct eb_repository second;
    make(scratch, "m/7/part-00001-of-00002");
    make(scratch, "m/8/part-00001-of-00002");
    make(scratch, "m/9/part-00001-of-00002");
    eb_scratch_write_text(scratch, "m/9/manifest.yaml", "nine");
    eb_scratch_write_text(scratch, "m/7/manifest.yaml", "seven");
    scan_part(scratch, NULL, &first);
    assert_int_equal(first.models[0].version_count, 2);
    const struct eb_repository_version *versions = first.models[0].versions;
    assert_int_not_equal(versions[0].manifest, 0);
    assert_int_not_equal(versions[1].manifest, 0);
    assert_true(versions[0].manifest != versions[1].manifest);
    scan(scratch, NULL, &second);
    assert_int_equal(second.models[0].version_count, 3);
    assert_true(second.models[0].versions[0].manifest == versions[0].manifest);
    assert_int_equal(second.models[0].versions[2].manifest, 0);
    eb_repository_deinit(&second);
    eb_scratch_write_text(scratch, "m/8/manifest.yaml", "nine");
    scan_part(scratch, &first, &second);
    assert_int_equal(second.models[0].version_count, 3);
    assert_true(second.models[0].versions[1].manifest == versions[0].manifest);
    assert_true(second.models[0].versions[2].manifest == versions[1].manifest);
    eb_repository_deinit(&second);
    eb_repository_deinit(&first);
}

static void says_which_names_are_no_version(void **state)
{
    const struct eb_scratch *scratch = *state;
    make(scratch, "m/12");
    make(scratch, "m/0012");
    make(scratch, "m/0");
    make(scratch, "m/18446744073709551616");
    make(scratch, "m/3");
    struct eb_repository repository;
    scan(scratch, NULL, &repository);
    const struct eb_repository_version *versions = repository.models[0].versions;
    assert_int_equal(repository.models[0].version_count, 5);
    eb_scratch_expect(versions[0].failure, "/m/0012: another directory is also version 12");
    eb_scratch_expect(versions[1].failure, "/m/12: another directory is also version 12");
    assert_null(versions[2].failure);
    assert_int_equal(versions[3].number, 0);
    eb_scratch_expect(versions[3].failure, "/m/0: not a version; expected a number from 1 to ");
    eb_scratch_expect(
        versions[4].failure, "/m/18446744073709551616: not a version; expected a number");
    eb_repository_deinit(&repository);
}

static void finds_a_model_without_versions(void **state)
{
    const struct eb_scratch *scratch = *state;
    make(scratch, "m/v1");
    struct eb_repository repository;
    scan(scratch, NULL, &repository);
    assert_int_equal(repository.count, 1);
    assert_int_equal(repository.models[0].version_count, 0);
    assert_null(repository.models[0].failure);
    eb_repository_deinit(&repository);
}

static void says_which_model_names_are_not_allowed(void **state)
{
    const struct eb_scratch *scratch = *state;
    make(scratch, "a\tb/1");
    make(scratch, "good/1");
    struct eb_repository repository;
    scan(scratch, NULL, &repository);
    assert_int_equal(repository.count, 2);
    eb_scratch_expect(repository.models[0].failure, "/a\\x09b: the model name is not UTF-8");
    assert_null(repository.models[1].failure);
    eb_repository_deinit(&repository);
}

static void blames_what_cannot_be_looked_at_alone(void **state)
{
    const struct eb_scratch *scratch = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    make(scratch, "m/1");
    eb_scratch_path(scratch, "loop", path);
    assert_int_equal(symlink("loop", path), 0);
    eb_scratch_path(scratch, "m/2", path);
    assert_int_equal(symlink("2", path), 0);
    eb_scratch_path(scratch, "m/other", path);
    assert_int_equal(symlink("other", path), 0);
    struct eb_repository repository;
    scan(scratch, NULL, &repository);
    assert_int_equal(repository.count, 2);
    eb_scratch_expect(repository.models[0].failure, "/loop: it cannot be accessed (");
    const struct eb_repository_model *m = &repository.models[1];
    assert_null(m->failure);
    assert_int_equal(m->version_count, 2);
    eb_scratch_expect(m->versions[0].failure, "/m/2: it cannot be accessed (");
    assert_int_equal(m->versions[0].number, 2);
    assert_null(m->versions[1].failure);
    eb_repository_deinit(&repository);
}

static void refuses_what_holds_no_model(void **state)
{
    const struct eb_scratch *scratch = *state;
    expect_failure(scratch->root, "there is no model in it");
    expect_failure("/nowhere", "/nowhere: the directory cannot be read");
}

static void reads_what_model_yaml_says(void **state)
{
    const struct eb_scratch *scratch = *state;
    make(scratch, "m/1");
    make(scratch, "n/1");
    write_config(scratch, "versions: {keep: 3, serve: 1}\n");
    struct eb_repository repository;
    scan(scratch, NULL, &repository);
    assert_int_equal(repository.models[0].settings->config.keep, 3);
    assert_int_equal(repository.models[0].settings->config.serve, 1);
    assert_int_equal(repository.models[1].settings->config.keep, 2);
    eb_repository_deinit(&repository);
}

static void says_what_is_wrong_with_model_yaml(void **state)
{
    const struct eb_scratch *scratch = *state;
    make(scratch, "m/1");
    write_config(scratch, "versions: {kept: 3}\n");
    struct eb_repository repository;
    scan(scratch, NULL, &repository);
    assert_null(repository.models[0].settings);
    eb_scratch_expect(repository.models[0].config_failure, "/m/model.yaml");
    assert_int_equal(repository.models[0].version_count, 1);
    eb_repository_deinit(&repository);
}

static void reads_model_yaml_again_only_where_it_has_changed(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_repository first;
    struct eb_repository second;
    struct eb_repository third;
    make(scratch, "m/1");
    make(scratch, "n/1");
    write_config(scratch, "versions: {keep: 3}\n");
    scan(scratch, NULL, &first);
    scan(scratch, &first, &second);
    assert_ptr_equal(first.models[0].settings, second.models[0].settings);
    assert_ptr_equal(first.models[1].settings, second.models[1].settings);
    eb_repository_deinit(&first);
    write_config(scratch, "versions: {keep: 14}\n");
    scan(scratch, &second, &third);
    assert_int_equal(second.models[0].settings->config.keep, 3);
    assert_int_equal(third.models[0].settings->config.keep, 14);
    assert_ptr_equal(second.models[1].settings, third.models[1].settings);
    eb_repository_deinit(&second);
    eb_repository_deinit(&third);
}

static void takes_a_link_that_leads_nowhere_for_no_lack_of_model_yaml(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const char *const targets[] = {"model.yaml", "nowhere"};
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_repository none;
    make(scratch, "m/1");
    eb_scratch_path(scratch, "m/model.yaml", path);
    scan(scratch, NULL, &none);
    assert_null(none.models[0].config_failure);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        struct eb_repository linked;
        struct eb_repository again;
        assert_int_equal(symlink(targets[i], path), 0);
        scan(scratch, &none, &linked);
        assert_non_null(linked.models[0].config_failure);
        eb_scratch_expect(linked.models[0].config_failure, "/m/model.yaml: ");
        assert_null(linked.models[0].settings);
        assert_int_equal(unlink(path), 0);
        scan(scratch, &linked, &again);
        assert_null(again.models[0].config_failure);
        eb_repository_deinit(&linked);
        eb_repository_deinit(&again);
    }
    eb_repository_deinit(&none);
}

static void reads_again_what_could_not_be_read(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_repository first;
    struct eb_repository second;
    struct eb_repository third;
    char path[EB_SCRATCH_PATH_BYTES];
    make(scratch, "m/1");
    write_config(scratch, "versions: {keep: 3}\n");
    eb_scratch_path(scratch, "m/model.yaml", path);
    scan(scratch, NULL, &first);
    assert_int_equal(chmod(path, 0600), 0);
    scan(scratch, &first, &second);
    assert_ptr_not_equal(first.models[0].settings, second.models[0].settings);
    /* Pretends that reading the file failed for a reason outside the file. */
    eb_model_settings_give(second.models[0].settings);
    second.models[0].settings = NULL;
    second.models[0].config_failure = strdup("too many open files");
    scan(scratch, &second, &third);
    assert_null(third.models[0].config_failure);
    assert_int_equal(third.models[0].settings->config.keep, 3);
    eb_repository_deinit(&first);
    eb_repository_deinit(&second);
    eb_repository_deinit(&third);
}

static void tells_a_directory_that_was_replaced(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_repository first;
    struct eb_repository second;
    char from[EB_SCRATCH_PATH_BYTES];
    char to[EB_SCRATCH_PATH_BYTES];
    make(scratch, "m/1");
    make(scratch, "m/2");
    scan(scratch, NULL, &first);
    eb_scratch_path(scratch, "m/1", to);
    eb_scratch_path(scratch, "m/.1.new", from);
    make(scratch, "m/.1.new");
    assert_int_equal(rename(from, to), 0);
    scan(scratch, &first, &second);
    const struct eb_repository_version *before = first.models[0].versions;
    const struct eb_repository_version *after = second.models[0].versions;
    assert_true(eb_file_stamp_is_same(&before[0].stamp, &after[0].stamp));
    assert_false(eb_file_stamp_is_same(&before[1].stamp, &after[1].stamp));
    eb_repository_deinit(&first);
    eb_repository_deinit(&second);
}

static void start_moves(const struct eb_scratch *scratch, unsigned count)
{
    moved_in = scratch;
    moves_left = count;
    move_count = 0;
}

static void finds_no_model_that_is_moved_away_while_it_is_read(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_repository found;
    make(scratch, "m/1");
    make(scratch, "m/2");
    make(scratch, "n/2");
    start_moves(scratch, 1);
    scan(scratch, NULL, &found);
    assert_int_equal(move_count, 1);
    assert_int_equal(found.count, 1);
    assert_string_equal(found.models[0].name, "n");
    eb_repository_deinit(&found);
}

static void reads_a_model_again_that_is_replaced_while_it_is_read(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_repository found;
    make(scratch, "m/1");
    make(scratch, "m/2");
    write_config(scratch, "versions: {keep: 2}\n");
    make(scratch, ".next1/1");
    make(scratch, ".next1/3");
    eb_scratch_write_text(scratch, ".next1/model.yaml", "versions: {keep: 3}\n");
    start_moves(scratch, 1);
    scan(scratch, NULL, &found);
    assert_int_equal(found.count, 1);
    assert_null(found.models[0].failure);
    assert_int_equal(found.models[0].settings->config.keep, 3);
    assert_int_equal(found.models[0].version_count, 2);
    assert_int_equal(found.models[0].versions[0].number, 3);
    eb_repository_deinit(&found);
}

static void gives_up_a_model_that_is_replaced_again_and_again(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_repository found;
    make(scratch, "m/1");
    for (int i = 1; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, ".next%d/1", i);
        make(scratch, name);
    }
    start_moves(scratch, 9);
    scan(scratch, NULL, &found);
    moves_left = 0;
    assert_int_equal(move_count, 3);
    assert_int_equal(found.count, 1);
    eb_scratch_expect(found.models[0].failure, "/m: it was replaced each of the 3 times");
    eb_repository_deinit(&found);
}

/* If memory runs out while one version is listed, the model fails, and the versions that are listed
 * are complete. */
static void lists_whole_versions_where_memory_is_short(void **state)
{
    const struct eb_scratch *scratch = *state;
    make(scratch, "m/1");
    make(scratch, "m/2");
    struct eb_repository repository = {0};
    struct eb_failure failure;
    bool is_good = false;
    for (unsigned copies = 0; !is_good || repository.models[0].failure; copies++) {
        eb_repository_deinit(&repository);
        copies_left = copies;
        is_good = eb_repository_scan(scratch->root,
            &(struct eb_repository_terms){.name_bytes_max = NAME_BYTES_MAX}, NULL, &repository,
            &failure);
        copies_left = UINT_MAX;
        for (size_t i = 0; is_good && i < repository.models[0].version_count; i++) {
            assert_non_null(repository.models[0].versions[i].name);
        }
        assert_true(copies < 20);
    }
    assert_int_equal(repository.models[0].version_count, 2);
    eb_repository_deinit(&repository);
}

EB_TEST_GROUP(repository)
{
#define WITH_ROOT(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(lists_models_and_versions_highest_first),
        WITH_ROOT(counts_the_bytes_of_versions_that_are_likely_to_be_loaded),
        WITH_ROOT(digests_the_manifests_of_all_versions_of_a_part),
        WITH_ROOT(says_which_names_are_no_version),
        WITH_ROOT(finds_a_model_without_versions),
        WITH_ROOT(says_which_model_names_are_not_allowed),
        WITH_ROOT(blames_what_cannot_be_looked_at_alone),
        WITH_ROOT(refuses_what_holds_no_model),
        WITH_ROOT(reads_what_model_yaml_says),
        WITH_ROOT(says_what_is_wrong_with_model_yaml),
        WITH_ROOT(reads_model_yaml_again_only_where_it_has_changed),
        WITH_ROOT(takes_a_link_that_leads_nowhere_for_no_lack_of_model_yaml),
        WITH_ROOT(reads_again_what_could_not_be_read),
        WITH_ROOT(tells_a_directory_that_was_replaced),
        WITH_ROOT(finds_no_model_that_is_moved_away_while_it_is_read),
        WITH_ROOT(reads_a_model_again_that_is_replaced_while_it_is_read),
        WITH_ROOT(gives_up_a_model_that_is_replaced_again_and_again),
        WITH_ROOT(lists_whole_versions_where_memory_is_short),
    };
    return cmocka_run_group_tests(tests, limit_copies, eb_faults_tear_down);
}
