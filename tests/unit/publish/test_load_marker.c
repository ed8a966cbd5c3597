#include "server/publish/load_marker.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FILES UINT64_C(0x12ab)
#define FILES_TEXT "00000000000012ab"

struct fixture {
    struct eb_scratch scratch;
    struct eb_load_markers markers;
    bool is_open;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    eb_scratch_init(&fixture->scratch);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, "embag", path);
    (void)chmod(path, 0700);
    if (fixture->is_open) {
        eb_load_markers_close(&fixture->markers);
    }
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return 0;
}

/* Opens the markers, as a process does at start. The former process did not end in an orderly way.
 */
static void open_again(struct fixture *fixture)
{
    struct eb_failure failure = {.text = ""};
    if (fixture->is_open) {
        eb_load_markers_close(&fixture->markers);
    }
    fixture->is_open = eb_load_markers_open(&fixture->markers, fixture->scratch.root, &failure);
    if (!fixture->is_open) {
        fail_msg("%s", failure.text);
    }
}

static bool has(const struct fixture *fixture, const char *name)
{
    char path[EB_SCRATCH_PATH_BYTES];
    char inside[EB_SCRATCH_PATH_BYTES];
    snprintf(inside, sizeof inside, "embag/%s", name);
    eb_scratch_path(&fixture->scratch, inside, path);
    return access(path, F_OK) == 0;
}

static void write_marker_file(const struct fixture *fixture, const char *name)
{
    char inside[EB_SCRATCH_PATH_BYTES];
    snprintf(inside, sizeof inside, "embag/%s", name);
    eb_scratch_write(&fixture->scratch, inside, "", 0);
}

static void a_marker_is_there_while_a_load_is_under_way(void **state)
{
    struct fixture *fixture = *state;
    open_again(fixture);
    struct eb_load_marker *marker = eb_load_markers_begin(&fixture->markers, "a-1.b", 7, FILES);
    assert_non_null(marker);
    assert_true(has(fixture, "loading-a-1.b-7-" FILES_TEXT "-0"));
    eb_load_markers_end(&fixture->markers, marker, false);
    assert_false(has(fixture, "loading-a-1.b-7-" FILES_TEXT "-0"));
    assert_int_equal(eb_load_markers_count(&fixture->markers), 0);
}

static void each_death_is_counted_until_the_version_loads(void **state)
{
    struct fixture *fixture = *state;
    open_again(fixture);
    assert_non_null(eb_load_markers_begin(&fixture->markers, "m", 9, FILES));
    open_again(fixture);
    assert_true(has(fixture, "died-m-9-" FILES_TEXT "-1"));
    assert_true(fixture->markers.has_died);
    /* A start that does not load the version counts no death. */
    open_again(fixture);
    assert_false(fixture->markers.has_died);
    assert_int_equal(eb_load_markers_death(&fixture->markers, 0).count, 1);
    assert_true(eb_load_marker_has_deaths(eb_load_markers_begin(&fixture->markers, "m", 9, FILES)));
    assert_false(
        eb_load_marker_has_deaths(eb_load_markers_begin(&fixture->markers, "n", 9, FILES)));
    assert_false(eb_load_marker_has_deaths(NULL));
    assert_true(has(fixture, "loading-m-9-" FILES_TEXT "-1"));
    assert_false(has(fixture, "died-m-9-" FILES_TEXT "-1"));
    open_again(fixture);
    assert_int_equal(eb_load_markers_count(&fixture->markers), 2);
    size_t place = eb_load_markers_death(&fixture->markers, 0).count == 2 ? 0 : 1;
    struct eb_load_death death = eb_load_markers_death(&fixture->markers, place);
    assert_int_equal(death.count, 2);
    assert_true(eb_load_death_is_of(&death, "m", 9));
    assert_false(eb_load_death_is_of(&death, "m", 8));
    assert_false(eb_load_death_is_of(&death, "n", 9));
    struct eb_load_marker *marker = eb_load_markers_begin(&fixture->markers, "m", 9, FILES);
    eb_load_markers_end(&fixture->markers, marker, true);
    assert_int_equal(eb_load_markers_count(&fixture->markers), 1);
    open_again(fixture);
    assert_int_equal(eb_load_markers_count(&fixture->markers), 1);
    assert_false(has(fixture, "died-m-9-" FILES_TEXT "-2"));
}

static void an_orderly_end_leaves_former_deaths_and_no_marker(void **state)
{
    struct fixture *fixture = *state;
    static void (*const ends[])(struct eb_load_markers *) = {eb_load_markers_stop, NULL};
    open_again(fixture);
    assert_non_null(eb_load_markers_begin(&fixture->markers, "m", 9, FILES));
    for (size_t i = 0; i < 2; i++) {
        open_again(fixture);
        struct eb_load_marker *old = eb_load_markers_begin(&fixture->markers, "m", 9, FILES);
        struct eb_load_marker *new = eb_load_markers_begin(&fixture->markers, "n", 1, FILES);
        assert_true(old && new);
        if (ends[i]) {
            ends[i](&fixture->markers);
        } else {
            eb_load_markers_signal();
        }
        assert_true(has(fixture, "died-m-9-" FILES_TEXT "-1"));
        assert_false(has(fixture, "loading-m-9-" FILES_TEXT "-1"));
        assert_false(has(fixture, "loading-n-1-" FILES_TEXT "-0"));
        assert_null(eb_load_markers_begin(&fixture->markers, "o", 1, FILES));
        eb_load_markers_end(&fixture->markers, old, true);
        assert_true(has(fixture, "died-m-9-" FILES_TEXT "-1"));
    }
}

static void other_files_of_the_version_start_anew(void **state)
{
    struct fixture *fixture = *state;
    open_again(fixture);
    assert_non_null(eb_load_markers_begin(&fixture->markers, "m", 9, FILES));
    open_again(fixture);
    assert_non_null(eb_load_markers_begin(&fixture->markers, "m", 9, FILES + 1));
    assert_false(has(fixture, "died-m-9-" FILES_TEXT "-1"));
    assert_true(has(fixture, "loading-m-9-00000000000012ac-0"));
    assert_int_equal(eb_load_markers_count(&fixture->markers), 0);
}

static void names_that_are_no_markers_are_removed(void **state)
{
    struct fixture *fixture = *state;
    static const char *const names[] = {"loading-m-9-12ab-0", "loading-m-9-" FILES_TEXT,
        "loading-m-9-" FILES_TEXT "-", "loading-m-9-" FILES_TEXT "-00",
        "loading-m-9-" FILES_TEXT "-100", "loading-m-9x-" FILES_TEXT "-1",
        "loading--9-" FILES_TEXT "-1", "loading-m m-9-" FILES_TEXT "-1",
        "died-m-99999999999999999999-" FILES_TEXT "-1", "died-m-9-" FILES_TEXT "--1", "died",
        "other"};
    open_again(fixture);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        write_marker_file(fixture, names[i]);
    }
    write_marker_file(fixture, "died-m-9-" FILES_TEXT "-99");
    write_marker_file(fixture, "loading-n-9-" FILES_TEXT "-99");
    open_again(fixture);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_false(has(fixture, names[i]));
    }
    assert_int_equal(eb_load_markers_count(&fixture->markers), 2);
    assert_true(has(fixture, "died-n-9-" FILES_TEXT "-99"));
}

static void a_long_or_odd_name_is_hashed(void **state)
{
    struct fixture *fixture = *state;
    char plain[EB_LOAD_MARKER_MODEL_BYTES + 2];
    char name[EB_LOAD_MARKER_BYTES];
    memset(plain, 'a', sizeof plain);
    plain[EB_LOAD_MARKER_MODEL_BYTES] = '\0';
    open_again(fixture);
    assert_non_null(eb_load_markers_begin(&fixture->markers, plain, UINT64_MAX, FILES));
    snprintf(name, sizeof name, "loading-%s-18446744073709551615-" FILES_TEXT "-0", plain);
    assert_true(has(fixture, name));
    plain[EB_LOAD_MARKER_MODEL_BYTES] = 'a';
    plain[EB_LOAD_MARKER_MODEL_BYTES + 1] = '\0';
    assert_non_null(eb_load_markers_begin(&fixture->markers, plain, 1, FILES));
    assert_non_null(eb_load_markers_begin(&fixture->markers, "a b", 1, FILES));
    open_again(fixture);
    assert_int_equal(eb_load_markers_count(&fixture->markers), 3);
    bool is_long_known = false;
    bool is_odd_known = false;
    for (size_t i = 0; i < 3; i++) {
        struct eb_load_death death = eb_load_markers_death(&fixture->markers, i);
        is_long_known = is_long_known || eb_load_death_is_of(&death, plain, 1);
        is_odd_known = is_odd_known || eb_load_death_is_of(&death, "a b", 1);
    }
    assert_true(is_long_known && is_odd_known);
}

static void remembers_no_more_deaths_than_it_has_room_for(void **state)
{
    struct fixture *fixture = *state;
    char name[EB_LOAD_MARKER_BYTES];
    unsigned left = 0;
    open_again(fixture);
    for (unsigned i = 0; i <= EB_LOAD_DEATHS_MAX; i++) {
        snprintf(name, sizeof name, "died-m-%u-" FILES_TEXT "-1", i + 1);
        write_marker_file(fixture, name);
    }
    open_again(fixture);
    assert_int_equal(eb_load_markers_count(&fixture->markers), EB_LOAD_DEATHS_MAX);
    for (unsigned i = 0; i <= EB_LOAD_DEATHS_MAX; i++) {
        snprintf(name, sizeof name, "died-m-%u-" FILES_TEXT "-1", i + 1);
        left += has(fixture, name);
    }
    assert_int_equal(left, EB_LOAD_DEATHS_MAX);
    struct eb_load_death death = eb_load_markers_death(&fixture->markers, 0);
    eb_load_markers_forget(&fixture->markers, &death);
    eb_load_markers_forget(&fixture->markers, &death);
    assert_int_equal(eb_load_markers_count(&fixture->markers), EB_LOAD_DEATHS_MAX - 1);
}

static void marks_no_more_loads_than_it_has_room_for(void **state)
{
    struct fixture *fixture = *state;
    open_again(fixture);
    for (unsigned i = 0; i < EB_LOAD_MARKERS_MAX; i++) {
        assert_non_null(eb_load_markers_begin(&fixture->markers, "m", i + 1, FILES));
    }
    assert_null(eb_load_markers_begin(&fixture->markers, "m", EB_LOAD_MARKERS_MAX + 1, FILES));
}

static void a_load_goes_on_without_a_marker_if_none_can_be_made(void **state)
{
    struct fixture *fixture = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    open_again(fixture);
    eb_scratch_path(&fixture->scratch, "embag", path);
    assert_int_equal(rmdir(path), 0);
    assert_null(eb_load_markers_begin(&fixture->markers, "m", 9, FILES));
    eb_load_markers_end(&fixture->markers, NULL, true);
}

static void without_a_directory_there_are_no_markers(void **state)
{
    struct fixture *fixture = *state;
    struct eb_failure failure;
    fixture->is_open = eb_load_markers_open(&fixture->markers, NULL, &failure);
    assert_true(fixture->is_open);
    assert_null(eb_load_markers_begin(&fixture->markers, "m", 9, FILES));
    eb_load_markers_stop(&fixture->markers);
}

static void expect_refusal(struct fixture *fixture, const char *name, const char *part)
{
    struct eb_failure failure = {.text = ""};
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, name, path);
    assert_false(eb_load_markers_open(&fixture->markers, path, &failure));
    eb_scratch_expect(failure.text, part);
    eb_scratch_expect(failure.text, "state_dir ");
}

static void refuses_a_directory_that_it_cannot_trust(void **state)
{
    struct fixture *fixture = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    expect_refusal(fixture, "absent", "No such file or directory");
    eb_scratch_write(&fixture->scratch, "file", "", 0);
    expect_refusal(fixture, "file", "Not a directory");
    eb_scratch_make_directory(&fixture->scratch, "open/embag");
    eb_scratch_path(&fixture->scratch, "open/embag", path);
    assert_int_equal(chmod(path, 0770), 0);
    expect_refusal(fixture, "open", "others may write to it");
    eb_scratch_make_directory(&fixture->scratch, "link");
    eb_scratch_path(&fixture->scratch, "link/embag", path);
    assert_int_equal(symlink("../open", path), 0);
    expect_refusal(fixture, "link", "Not a directory");
}

EB_TEST_GROUP(load_marker)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(a_marker_is_there_while_a_load_is_under_way),
        FIXTURE(each_death_is_counted_until_the_version_loads),
        FIXTURE(an_orderly_end_leaves_former_deaths_and_no_marker),
        FIXTURE(other_files_of_the_version_start_anew),
        FIXTURE(names_that_are_no_markers_are_removed),
        FIXTURE(a_long_or_odd_name_is_hashed),
        FIXTURE(remembers_no_more_deaths_than_it_has_room_for),
        FIXTURE(marks_no_more_loads_than_it_has_room_for),
        FIXTURE(a_load_goes_on_without_a_marker_if_none_can_be_made),
        FIXTURE(without_a_directory_there_are_no_markers),
        FIXTURE(refuses_a_directory_that_it_cannot_trust),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
