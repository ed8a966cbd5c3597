#include "tests/lib/test_group.h"

#include <stdio.h>
#include <string.h>

static const struct eb_test_group *find_group(const char *name)
{
    for (const struct eb_test_group *group = eb_test_groups; group->name; group++) {
        if (strcmp(group->name, name) == 0) {
            return group;
        }
    }
    return NULL;
}

static int run_every_group(void)
{
    int failed = 0;
    for (const struct eb_test_group *group = eb_test_groups; group->name; group++) {
        failed += group->run() != 0;
    }
    return failed;
}

static void print_usage(const char *program)
{
    fprintf(stderr, "usage: %s [--group NAME]\ngroups:\n", program);
    for (const struct eb_test_group *group = eb_test_groups; group->name; group++) {
        fprintf(stderr, "  %s\n", group->name);
    }
}

/* Runs one group, or all groups in order. The exit status is 0 if every test passed. */
int main(int argument_count, char **arguments)
{
    if (argument_count == 1) {
        return run_every_group() > 0;
    }
    const struct eb_test_group *group = NULL;
    if (argument_count == 3 && strcmp(arguments[1], "--group") == 0) {
        group = find_group(arguments[2]);
    }
    if (!group) {
        print_usage(arguments[0]);
        return 2;
    }
    return group->run() != 0;
}
