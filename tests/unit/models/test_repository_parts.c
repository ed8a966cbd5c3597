/* Scans repositories with versions in parts, as routers and part servers do. */
#include "server/models/repository.h"
#include "server/tables/set_load.h"
#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/parts_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BROKEN "format: 1\nparts: 2\ntables: []\n"
#define FILES "format: 1\nparts: 1\nfiles: []\n"

static const struct eb_repository_terms router = {.name_bytes_max = 255, .is_router = true};

static const struct eb_parts_fixture_table tables[] = {
    {.name = "here", .placement = EB_PLACEMENT_EVERYWHERE, .rows = 7, .elements = 8},
    {.name = "rows", .placement = EB_PLACEMENT_ROWS, .rows = 9, .elements = 8},
};

static void write_parted(
    const struct eb_scratch *scratch, const char *name, uint32_t parts, const char *lineage)
{
    eb_parts_fixture_write(scratch, name, parts, lineage, tables, 2);
}

static void scan_parts(
    const struct eb_scratch *scratch, const struct eb_repository *former, struct eb_repository *out)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_repository_scan(scratch->root, &router, former, out, &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_int_equal(out->count, 1);
    assert_null(out->models[0].failure);
}

/* Returns the version, or NULL if the model has no such version. */
static struct eb_repository_version *find_number(
    const struct eb_repository *repository, uint64_t number)
{
    const struct eb_repository_model *model = &repository->models[0];
    for (size_t i = 0; i < model->version_count; i++) {
        if (model->versions[i].number == number) {
            return &model->versions[i];
        }
    }
    return NULL;
}

/* Expects the version to have these facts, and a digest if it has parts. */
static void expect_version(
    const struct eb_repository *repository, uint64_t number, uint32_t parts, const char *lineage)
{
    const struct eb_repository_version *version = find_number(repository, number);
    assert_non_null(version);
    assert_int_equal(version->parts, parts);
    assert_string_equal(version->lineage, lineage);
    assert_int_equal(version->manifest != 0, parts != 0);
}

static void finds_versions_in_any_number_of_parts(void **state)
{
    struct eb_repository repository;
    write_parted(*state, "m/1", 2, "a line");
    write_parted(*state, "m/2", 5, "");
    eb_scratch_write_text(*state, "m/3/t.npy", "");
    eb_scratch_write_text(*state, "m/4/manifest.yaml", FILES);
    eb_scratch_make_directory(*state, "m/5/part-00000-of-00001");
    eb_scratch_write_text(*state, "m/6/manifest.yaml", "");
    scan_parts(*state, NULL, &repository);
    assert_int_equal(repository.models[0].version_count, 2);
    expect_version(&repository, 1, 2, "a line");
    expect_version(&repository, 2, 5, "");
    eb_repository_deinit(&repository);
}

/* Their loads report what is wrong with them. */
static void keeps_versions_whose_manifest_cannot_be_used(void **state)
{
    struct eb_repository first;
    struct eb_repository second;
    eb_scratch_write_text(*state, "m/1/manifest.yaml", BROKEN);
    eb_scratch_make_directory(*state, "m/2/manifest.yaml");
    scan_parts(*state, NULL, &first);
    assert_int_equal(first.models[0].version_count, 2);
    expect_version(&first, 1, 0, "");
    expect_version(&first, 2, 0, "");
    scan_parts(*state, &first, &second);
    expect_version(&second, 1, 0, "");
    expect_version(&second, 2, 0, "");
    eb_repository_deinit(&first);
    write_parted(*state, "m/1", 3, "x");
    scan_parts(*state, &second, &first);
    expect_version(&first, 1, 3, "x");
    eb_repository_deinit(&second);
    eb_repository_deinit(&first);
}

static void digests_manifests_as_loads_do(void **state)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_repository repository;
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .is_router = true};
    struct eb_repository_terms terms = eb_repository_terms_of(&options);
    assert_true(terms.is_router);
    write_parted(*state, "m/1", 2, "");
    scan_parts(*state, NULL, &repository);
    eb_scratch_path(*state, "m/1", path);
    assert_true(eb_set_load(path, &options, NULL, &set, &failure));
    assert_true(repository.models[0].versions[0].manifest == set.manifest);
    eb_table_set_deinit(&set);
    eb_repository_deinit(&repository);
}

static void reads_manifests_again_only_if_they_are_other_files(void **state)
{
    struct eb_repository first;
    struct eb_repository second;
    write_parted(*state, "m/1", 2, "a line");
    write_parted(*state, "m/2", 2, "a line");
    scan_parts(*state, NULL, &first);
    uint64_t manifest = find_number(&first, 2)->manifest;
    for (size_t i = 0; i < 2; i++) {
        first.models[0].versions[i].parts = 77;
        first.models[0].versions[i].manifest = 88;
        first.models[0].versions[i].lineage[0] = 'A';
    }
    /* The directory of version 1 changes, but not its manifest. */
    eb_scratch_write_text(*state, "m/1/new.txt", "");
    eb_parts_fixture_write(*state, "m/.2", 2, "a line", tables, 2);
    char from[EB_SCRATCH_PATH_BYTES];
    char to[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(*state, "m/.2/manifest.yaml", from);
    eb_scratch_path(*state, "m/2/manifest.yaml", to);
    assert_int_equal(rename(from, to), 0);
    scan_parts(*state, &first, &second);
    expect_version(&second, 1, 77, "A line");
    assert_int_equal(find_number(&second, 1)->manifest, 88);
    expect_version(&second, 2, 2, "a line");
    assert_true(find_number(&second, 2)->manifest == manifest);
    eb_repository_deinit(&second);
    eb_repository_deinit(&first);
}

/* Scans with one request for memory refused. Returns whether the scan found the version without
 * reading its manifest. Sets *is_refused to whether there were so many requests. */
static bool scan_refused(
    const struct eb_scratch *scratch, unsigned request, bool *is_refused, struct eb_repository *out)
{
    struct eb_failure failure = {.text = ""};
    eb_faults_fail_allocation(request);
    bool is_good = eb_repository_scan(scratch->root, &router, NULL, out, &failure);
    *is_refused = eb_faults_allocation_count() >= request;
    eb_faults_fail_allocation(0);
    if (!is_good) {
        eb_scratch_expect(failure.text, "out of memory");
        return false;
    }
    const struct eb_repository_version *version =
        out->models[0].failure ? NULL : find_number(out, 1);
    assert_true(version || out->models[0].failure);
    assert_true(!version || version->lineage);
    return version && version->parts == 0;
}

static void reads_again_what_there_was_no_memory_for(void **state)
{
    unsigned unread_count = 0;
    unsigned tries = 0;
    bool is_refused = true;
    write_parted(*state, "m/1", 2, "a line");
    while (is_refused && tries < 1000) {
        struct eb_repository first;
        if (scan_refused(*state, ++tries, &is_refused, &first)) {
            struct eb_repository second;
            unread_count++;
            scan_parts(*state, &first, &second);
            expect_version(&second, 1, 2, "a line");
            eb_repository_deinit(&second);
        }
        eb_repository_deinit(&first);
    }
    print_message("%u requests refused in turn, %u in manifests\n", tries - 1, unread_count);
    assert_in_range(tries, 8, 999);
    assert_in_range(unread_count, 5, tries);
}

static uint64_t bytes_of(const struct eb_scratch *scratch, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct stat status;
    eb_scratch_path(scratch, name, path);
    assert_int_equal(stat(path, &status), 0);
    return (uint64_t)status.st_size;
}

static void counts_the_bytes_that_a_router_reads(void **state)
{
    struct eb_repository repository;
    write_parted(*state, "m/1", 2, "");
    scan_parts(*state, NULL, &repository);
    assert_int_equal(repository.models[0].versions[0].bytes,
        bytes_of(*state, "m/1/manifest.yaml") + bytes_of(*state, "m/1/here.embag"));
    eb_repository_deinit(&repository);
}

static uint64_t stamp(const struct eb_scratch *scratch, const struct eb_repository_terms *terms)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "m/1", path);
    return eb_repository_stamp_files(path, terms);
}

static void stamps_the_files_that_each_server_reads(void **state)
{
    static const struct eb_repository_terms part = {.part = {1, 2}};
    write_parted(*state, "m/1", 2, "");
    uint64_t of_router = stamp(*state, &router);
    uint64_t of_part = stamp(*state, &part);
    assert_true(of_router != 0 && of_part != 0);
    assert_true(stamp(*state, &router) == of_router && stamp(*state, &part) == of_part);
    /* Files of parts. */
    eb_scratch_write_text(*state, "m/1/part-00001-of-00002/new", "");
    eb_scratch_make_directory(*state, "m/1/part-00000-of-00003");
    assert_true(stamp(*state, &router) == of_router);
    assert_true(stamp(*state, &part) != of_part);
    of_part = stamp(*state, &part);
    /* A file beside the manifest. */
    eb_scratch_write_text(*state, "m/1/here.embag", "");
    assert_true(stamp(*state, &router) != of_router);
    assert_true(stamp(*state, &part) == of_part);
    of_router = stamp(*state, &router);
    /* The manifest. */
    eb_scratch_write_text(*state, "m/1/manifest.yaml", BROKEN);
    assert_true(stamp(*state, &router) != of_router);
    assert_true(stamp(*state, &part) != of_part);
}

static void stamps_watched_versions(void **state)
{
    struct eb_repository first;
    struct eb_repository second;
    write_parted(*state, "m/1", 2, "");
    write_parted(*state, "m/2", 2, "");
    scan_parts(*state, NULL, &first);
    first.models[0].is_watched = true;
    find_number(&first, 1)->is_watched = true;
    scan_parts(*state, &first, &second);
    assert_true(find_number(&second, 1)->files == stamp(*state, &router));
    assert_int_equal(find_number(&second, 2)->files, 0);
    eb_repository_deinit(&second);
    eb_repository_deinit(&first);
}

EB_TEST_GROUP(repository_parts)
{
#define WITH_ROOT(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(finds_versions_in_any_number_of_parts),
        WITH_ROOT(keeps_versions_whose_manifest_cannot_be_used),
        WITH_ROOT(digests_manifests_as_loads_do),
        WITH_ROOT(reads_manifests_again_only_if_they_are_other_files),
        WITH_ROOT(reads_again_what_there_was_no_memory_for),
        WITH_ROOT(counts_the_bytes_that_a_router_reads),
        WITH_ROOT(stamps_the_files_that_each_server_reads),
        WITH_ROOT(stamps_watched_versions),
    };
    return cmocka_run_group_tests(tests, NULL, eb_faults_tear_down);
}
