#include "server/base/cgroup.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The visited groups, each with its version (1 or 2) before it and a space after it. */
static char visited[1024];

/* No assert here, because it would jump across the module's frames. */
static void on_group(void *context, const char *directory, bool is_unified)
{
    size_t used = strlen(visited);
    const struct eb_scratch *scratch = context;
    snprintf(visited + used, sizeof visited - used, "%d%s ", is_unified ? 2 : 1,
        directory + strlen(scratch->root) + strlen("/sys/fs/cgroup"));
}

/* Expects these groups to be visited for "cpu" if /proc/self/cgroup has this text. */
static void expect_visits(const struct eb_scratch *scratch, const char *text, const char *wanted)
{
    eb_scratch_write_text(scratch, "proc/self/cgroup", text);
    visited[0] = '\0';
    eb_cgroup_visit(scratch->root, "cpu", on_group, (void *)scratch);
    assert_string_equal(visited, wanted);
}

static void visits_every_group_up_to_the_mount(void **state)
{
    const struct eb_scratch *scratch = *state;
    expect_visits(scratch, "0::/\n", "2/ 2 ");
    expect_visits(scratch, "0::/a.slice/b:c\n", "2/a.slice/b:c 2/a.slice 2 ");
    expect_visits(scratch, "3:cpu,cpuacct:/x\n", "1/cpu/x 1/cpu ");
    expect_visits(scratch, "3:cpuacct,cpu:/x\n0::/y", "1/cpu/x 1/cpu 2/y 2 ");
}

static void passes_over_what_is_not_asked_for(void **state)
{
    const struct eb_scratch *scratch = *state;
    expect_visits(scratch, "5:memory:/x\n4:cpuset:/x\n3:cpuacct:/x\n1:name=cpu:/x\n", "");
    expect_visits(scratch, "", "");
    expect_visits(scratch, "\n:\n0:\n0::\n0::relative\n5:cpu:\n", "");
}

static void visits_nothing_where_the_groups_cannot_be_told(void **state)
{
    const struct eb_scratch *scratch = *state;
    visited[0] = '\0';
    eb_cgroup_visit(scratch->root, "cpu", on_group, (void *)scratch);
    assert_string_equal(visited, "");
}

static void passes_over_a_path_that_is_too_long(void **state)
{
    const struct eb_scratch *scratch = *state;
    char line[6000] = "0::/";
    memset(line + 4, 'x', sizeof line - 5);
    expect_visits(scratch, line, "");
}

static void reads_a_text_that_fits(void **state)
{
    const struct eb_scratch *scratch = *state;
    static char bytes[EB_CGROUP_TEXT_BYTES];
    static char text[EB_CGROUP_TEXT_BYTES];
    memset(bytes, 'x', sizeof bytes);
    eb_scratch_write(scratch, "group/file", bytes, sizeof bytes - 1);
    assert_true(eb_cgroup_read(scratch->root, "group/file", text));
    assert_int_equal(strlen(text), sizeof bytes - 1);
    eb_scratch_write(scratch, "group/file", bytes, sizeof bytes);
    assert_false(eb_cgroup_read(scratch->root, "group/file", text));
    assert_false(eb_cgroup_read(scratch->root, "group", text));
    assert_false(eb_cgroup_read(scratch->root, "nothing", text));
}

EB_TEST_GROUP(cgroup)
{
#define WITH_ROOT(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(visits_every_group_up_to_the_mount),
        WITH_ROOT(passes_over_what_is_not_asked_for),
        WITH_ROOT(visits_nothing_where_the_groups_cannot_be_told),
        WITH_ROOT(passes_over_a_path_that_is_too_long),
        WITH_ROOT(reads_a_text_that_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
