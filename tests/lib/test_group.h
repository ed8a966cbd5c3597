/* One program tests a folder. Each of its files is a group, which the end of the file defines:
 *
 *     EB_TEST_GROUP(name_of_the_file_without_test_)
 *     {
 *         const struct CMUnitTest tests[] = {...};
 *         return cmocka_run_group_tests(tests, NULL, NULL);
 *     }
 *
 * Thread: the main thread. Memory: none. */
#pragma once

/* Runs a group and returns the number of tests that failed, as cmocka does. */
typedef int (*eb_test_group_fn)(void);

struct eb_test_group {
    const char *name;
    eb_test_group_fn run;
};

/* The groups of the program; the last entry has no name. embag_test_groups (tests/CMakeLists.txt)
 * generates the array. */
extern const struct eb_test_group eb_test_groups[];

#define EB_TEST_GROUP(name)                                                                        \
    int eb_test_group_##name(void);                                                                \
    int eb_test_group_##name(void)
