/* Mappings of resident files that somebody replaces while they are filled. */
#include "server/tables/table_mapping.h"

#include "tests/lib/test_group.h"
#include "tests/unit/tables/resident_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define NAME "0123456789abcdef.t"
#define OTHER "fedcba9876543210.t"

/* A new file of one page in a tmpfs, which is mapped and filled. */
struct fixture {
    char root[EB_RESIDENT_FIXTURE_BYTES];
    struct eb_resident_dir dir;
    struct eb_table_mapping *mapping;
    struct eb_failure failure;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    fixture->dir.descriptor = -1;
    (void)eb_resident_fixture_make(fixture->root); /* without a tmpfs the tests are skipped */
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_table_mapping_give(fixture->mapping);
    eb_resident_dir_close(&fixture->dir);
    eb_resident_fixture_remove(fixture->root);
    free(fixture);
    return 0;
}

static struct eb_table_mapping *make_mapping(struct fixture *fixture)
{
    struct eb_table_mapping *mapping = NULL;
    if (eb_table_mapping_create_file(&fixture->dir, EB_RESIDENT_PAGE_BYTES, EB_NUMA_OFF, &mapping,
            &fixture->failure) != EB_TABLE_MAPPING_MADE) {
        fail_msg("%s", fixture->failure.text);
    }
    memset(mapping->base, 'x', mapping->bytes);
    return mapping;
}

/* Makes the fixture's file. Skips the test if there is no tmpfs. */
static void make_filled(struct fixture *fixture)
{
    if (fixture->root[0] == '\0') {
        skip();
    }
    if (!eb_resident_dir_open(&fixture->dir, fixture->root, false, &fixture->failure)) {
        fail_msg("%s", fixture->failure.text);
    }
    fixture->mapping = make_mapping(fixture);
}

/* Makes another complete file. */
static void make_other(struct fixture *fixture)
{
    struct eb_table_mapping *other = make_mapping(fixture);
    assert_true(eb_table_mapping_commit(other, OTHER, &fixture->failure));
    atomic_store(&fixture->dir.is_ending, true); /* so that the file stays */
    eb_table_mapping_give(other);
    atomic_store(&fixture->dir.is_ending, false);
}

static void seals_the_file_that_was_filled(void **state)
{
    struct fixture *fixture = *state;
    make_filled(fixture);
    assert_true(eb_table_mapping_commit(fixture->mapping, NAME, &fixture->failure));
    assert_string_equal(fixture->mapping->name, NAME);
    assert_true(fixture->mapping->is_sealed);
    assert_int_equal(fixture->mapping->base[fixture->mapping->bytes - 1], 'x');
}

static void expect_refusal(struct fixture *fixture)
{
    assert_false(eb_table_mapping_commit(fixture->mapping, NAME, &fixture->failure));
    assert_non_null(strstr(fixture->failure.text, "cannot be mapped"));
    assert_false(eb_resident_dir_has(&fixture->dir, NAME));
}

static void refuses_another_file_of_its_name(void **state)
{
    struct fixture *fixture = *state;
    make_filled(fixture);
    make_other(fixture);
    int dir = fixture->dir.descriptor;
    assert_int_equal(renameat(dir, OTHER, dir, fixture->mapping->name), 0);
    expect_refusal(fixture);
}

static void refuses_a_link_of_its_name(void **state)
{
    struct fixture *fixture = *state;
    make_filled(fixture);
    int dir = fixture->dir.descriptor;
    assert_int_equal(renameat(dir, fixture->mapping->name, dir, OTHER), 0);
    assert_int_equal(symlinkat(OTHER, dir, fixture->mapping->name), 0);
    expect_refusal(fixture);
}

static void refuses_a_name_that_is_gone(void **state)
{
    struct fixture *fixture = *state;
    make_filled(fixture);
    assert_int_equal(unlinkat(fixture->dir.descriptor, fixture->mapping->name, 0), 0);
    expect_refusal(fixture);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(table_mapping)
{
    const struct CMUnitTest tests[] = {
        TEST(seals_the_file_that_was_filled),
        TEST(refuses_another_file_of_its_name),
        TEST(refuses_a_link_of_its_name),
        TEST(refuses_a_name_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
