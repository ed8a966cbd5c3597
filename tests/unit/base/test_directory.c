#include "server/base/directory.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void lists_names_in_order_without_dot_names(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const char *const names[] = {"b", "a", ".hidden", "10", "9"};
    for (size_t i = 0; i < 5; i++) {
        eb_scratch_write(scratch, names[i], "", 0);
    }
    struct eb_directory listing;
    struct eb_failure failure;
    assert_true(eb_directory_read(scratch->root, &listing, &failure));
    assert_int_equal(listing.count, 4);
    static const char *const sorted[] = {"10", "9", "a", "b"};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(listing.entries[i]->d_name, sorted[i]);
    }
    eb_directory_deinit(&listing);
}

static void names_a_directory_that_is_not_there(void **state)
{
    (void)state;
    struct eb_directory listing;
    struct eb_failure failure;
    assert_false(eb_directory_read("/nowhere/at all", &listing, &failure));
    eb_scratch_expect(failure.text, "/nowhere/at all: the directory cannot be read (No such file");
}

static void names_a_directory_that_it_may_not_read(void **state)
{
    const struct eb_scratch *scratch = *state;
    if (geteuid() == 0) {
        print_message("root may read every directory\n");
        skip();
    }
    eb_scratch_make_directory(scratch, "closed");
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "closed", path);
    assert_int_equal(chmod(path, 0), 0);
    struct eb_directory listing;
    struct eb_failure failure;
    assert_false(eb_directory_read(path, &listing, &failure));
    eb_scratch_expect(failure.text, "Permission denied");
    assert_int_equal(chmod(path, 0700), 0);
}

static void tells_directories_from_files_through_links(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_make_directory(scratch, "d");
    eb_scratch_write(scratch, "f", "", 0);
    static const struct {
        const char *target;
        const char *name;
        bool is_directory;
    } cases[] = {{"d", "to_d", true}, {"f", "to_f", false}, {"none", "to_none", false}};
    for (size_t i = 0; i < 3; i++) {
        char link[EB_SCRATCH_PATH_BYTES];
        eb_scratch_path(scratch, cases[i].name, link);
        assert_int_equal(symlink(cases[i].target, link), 0);
        bool is_directory;
        struct eb_failure failure;
        assert_true(eb_directory_test(link, &is_directory, &failure));
        assert_int_equal(is_directory, cases[i].is_directory);
    }
}

static void names_what_it_cannot_look_at(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write(scratch, "f", "", 0);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "f/x", path);
    bool is_directory;
    struct eb_failure failure;
    assert_false(eb_directory_test(path, &is_directory, &failure));
    eb_scratch_expect(failure.text, path);
}

static void joins_paths(void **state)
{
    (void)state;
    struct eb_failure failure;
    char *path = eb_directory_join("/a", "b", &failure);
    assert_string_equal(path, "/a/b");
    free(path);
}

EB_TEST_GROUP(directory)
{
#define WITH_ROOT(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(lists_names_in_order_without_dot_names),
        cmocka_unit_test(names_a_directory_that_is_not_there),
        WITH_ROOT(names_a_directory_that_it_may_not_read),
        WITH_ROOT(tells_directories_from_files_through_links),
        WITH_ROOT(names_what_it_cannot_look_at),
        cmocka_unit_test(joins_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
