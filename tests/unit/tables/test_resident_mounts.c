/* Resident directories in file systems that the test mounts: small ones, ones without a limit, and
 * a hugetlbfs. A child process with mounts of its own does it, so that nothing is left behind, and
 * a signal that ends it fails the test. */
#include "server/tables/table_mapping.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE EB_RESIDENT_PAGE_BYTES
#define NOT_POSSIBLE 77 /* exit status of a child that may not mount */

/* Ends the child with a message if the condition does not hold. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* What a child does with a file system that is mounted on `root`. */
typedef void child_fn(const char *root);

/* Mounts in a child process, and calls `child` there. Skips the test if that is not permitted, or
 * if the kernel does not have the file system. */
static void run_on_mount(
    const struct eb_scratch *scratch, const char *type, const char *options, child_fn *child)
{
    pid_t process = fork();
    assert_true(process >= 0);
    if (process == 0) {
        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("none", scratch->root, type, 0, options) != 0) {
            fprintf(stderr, "mount of %s with %s: %s\n", type, options, strerror(errno));
            _exit(NOT_POSSIBLE);
        }
        child(scratch->root);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_POSSIBLE) {
        print_message("this test mounts a %s, which is not possible here\n", type);
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void open_on_mount(struct eb_resident_dir *dir, const char *root)
{
    struct eb_failure failure;
    bool is_open = eb_resident_dir_open(dir, root, false, &failure);
    if (!is_open) {
        fprintf(stderr, "%s\n", failure.text);
    }
    REQUIRE(is_open);
    REQUIRE(atomic_load(&dir->is_owner));
}

static bool find_tmp(void *context, const char *name)
{
    bool *has_tmp = context;
    *has_tmp = *has_tmp || strncmp(name, "tmp-", 4) == 0;
    return true;
}

static bool has_tmp_left(const struct eb_resident_dir *dir)
{
    struct eb_failure failure;
    bool has_tmp = false;
    REQUIRE(eb_resident_dir_list(dir, find_tmp, &has_tmp, &failure));
    return has_tmp;
}

/* Writes `size` bytes as `served`, and returns whether that worked. */
static bool write_served(struct eb_resident_dir *dir, size_t size, struct eb_failure *failure)
{
    uint8_t *bytes = malloc(size);
    REQUIRE(bytes);
    memset(bytes, 7, size);
    *failure = (struct eb_failure){.text = ""};
    bool is_good = eb_resident_dir_write(dir, "served", bytes, size, failure);
    free(bytes);
    return is_good;
}

#define SMALL_PAGES 16 /* of 4 KiB, which the small tmpfs has */
#define SMALL_PAGE_BYTES 4096

static void fill_small_tmpfs(const char *root)
{
    struct eb_resident_dir dir;
    struct eb_failure failure;
    size_t size;
    open_on_mount(&dir, root);
    uint64_t room = eb_resident_dir_free_bytes(&dir);
    REQUIRE(room <= SMALL_PAGES * SMALL_PAGE_BYTES && room >= SMALL_PAGE_BYTES);
    REQUIRE(write_served(&dir, room / 4, &failure));
    uint64_t left = eb_resident_dir_free_bytes(&dir);
    REQUIRE(left < room);
    /* By one byte, by a half, and by far: what was written before stays. */
    const uint64_t wanted[] = {left + 1, left + left / 2, 64 * room};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        REQUIRE(!write_served(&dir, wanted[i], &failure));
        REQUIRE(strstr(failure.text, strerror(ENOSPC)));
        REQUIRE(!has_tmp_left(&dir));
        REQUIRE(eb_resident_dir_free_bytes(&dir) == left);
        uint8_t *bytes = eb_resident_dir_read(&dir, "served", room, &size, &failure);
        REQUIRE(bytes && size == room / 4 && bytes[0] == 7 && bytes[size - 1] == 7);
        free(bytes);
    }
    REQUIRE(write_served(&dir, left, &failure));
    REQUIRE(eb_resident_dir_free_bytes(&dir) > 0);
    eb_resident_dir_close(&dir);
}

static void a_full_tmpfs_is_an_error_and_no_signal(void **state)
{
    run_on_mount(*state, "tmpfs", "size=64k,mode=0700", fill_small_tmpfs);
}

static void use_all_names(const char *root)
{
    struct eb_resident_dir dir;
    struct eb_failure failure = {.text = ""};
    char tmp[EB_RESIDENT_NAME_BYTES];
    open_on_mount(&dir, root);
    int descriptor;
    unsigned count = 0;
    while ((descriptor = eb_resident_dir_create(&dir, PAGE, tmp, &failure)) >= 0) {
        REQUIRE(close(descriptor) == 0);
        REQUIRE(++count < 10);
    }
    REQUIRE(strstr(failure.text, strerror(ENOSPC)));
    REQUIRE(eb_resident_dir_begin_start(&dir, false) == 1); /* counted, though it cannot be noted */
    eb_resident_dir_disown(&dir);
    REQUIRE(!has_tmp_left(&dir));
    eb_resident_dir_close(&dir);
}

static void a_tmpfs_without_inodes_is_an_error(void **state)
{
    run_on_mount(*state, "tmpfs", "nr_inodes=6,mode=0700", use_all_names);
}

static void check_room_without_limit(const char *root)
{
    struct eb_resident_dir dir;
    open_on_mount(&dir, root);
    REQUIRE(dir.fs == EB_RESIDENT_TMPFS);
    REQUIRE(eb_resident_dir_free_bytes(&dir) > 0);
    eb_resident_dir_close(&dir);
}

static void a_tmpfs_without_a_size_has_the_memory_that_is_available(void **state)
{
    run_on_mount(*state, "tmpfs", "size=0,mode=0700", check_room_without_limit);
}

#define LARGE_PAGES 34 /* of 2 MiB: more than a file gets at once */

static void make_too_large_a_file(const char *root)
{
    struct eb_resident_dir dir;
    struct eb_table_mapping *mapping;
    struct eb_failure failure = {.text = ""};
    char expected[128];
    open_on_mount(&dir, root);
    uint64_t room = eb_resident_dir_free_bytes(&dir);
    REQUIRE(room > EB_TABLE_MAPPING_FILE_SLICE_BYTES && room < LARGE_PAGES * PAGE);
    REQUIRE(eb_table_mapping_create_file(&dir, LARGE_PAGES * PAGE, EB_NUMA_LOCAL, &mapping,
                &failure) == EB_TABLE_MAPPING_FULL);
    snprintf(expected, sizeof expected,
        "a file of %" PRIu64 " bytes does not fit, %" PRIu64 " bytes are free", LARGE_PAGES * PAGE,
        room);
    REQUIRE(strstr(failure.text, expected));
    REQUIRE(!mapping && !has_tmp_left(&dir));
    REQUIRE(eb_resident_dir_free_bytes(&dir) == room);
    eb_resident_dir_close(&dir);
}

static void a_file_that_does_not_fit_is_refused_with_the_room_there_was(void **state)
{
    run_on_mount(*state, "tmpfs", "size=66m,mode=0700", make_too_large_a_file);
}

static uint64_t read_free_pages(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
    REQUIRE(file);
    REQUIRE(fscanf(file, "%llu", &pages) == 1);
    REQUIRE(fclose(file) == 0);
    return pages;
}

/* The pool belongs to the machine, so its pages may be taken by others at any time. */
static void use_hugetlbfs(const char *root)
{
    struct eb_resident_dir dir;
    struct eb_failure failure;
    size_t size;
    open_on_mount(&dir, root);
    REQUIRE(dir.fs == EB_RESIDENT_HUGETLBFS);
    REQUIRE(eb_resident_dir_free_bytes(&dir) % PAGE == 0);
    REQUIRE(eb_resident_dir_write(&dir, "marker", NULL, 0, &failure));
    REQUIRE(eb_resident_dir_begin_start(&dir, false) == 1 &&
            eb_resident_dir_begin_start(&dir, false) == 2);
    uint64_t pages = read_free_pages();
    fprintf(stderr, "the pool has %llu free pages\n", (unsigned long long)pages);
    if (write_served(&dir, 3, &failure)) {
        uint8_t *bytes = eb_resident_dir_read(&dir, "served", PAGE, &size, &failure);
        REQUIRE(bytes && size == PAGE && bytes[2] == 7 && bytes[3] == 0 && bytes[PAGE - 1] == 0);
        free(bytes);
    } else {
        REQUIRE(failure.text[0] != '\0');
    }
    REQUIRE(!write_served(&dir, (pages + 64) * PAGE, &failure));
    REQUIRE(failure.text[0] != '\0' && !has_tmp_left(&dir));
    eb_resident_dir_close(&dir);
}

static void writes_through_a_mapping_on_hugetlbfs(void **state)
{
    run_on_mount(*state, "hugetlbfs", "pagesize=2M,mode=0700", use_hugetlbfs);
}

static void use_limited_hugetlbfs(const char *root)
{
    struct eb_resident_dir dir;
    open_on_mount(&dir, root);
    REQUIRE(eb_resident_dir_free_bytes(&dir) <= 2 * PAGE);
    eb_resident_dir_close(&dir);
}

static void a_hugetlbfs_has_at_most_its_size_free(void **state)
{
    run_on_mount(*state, "hugetlbfs", "pagesize=2M,size=4M,mode=0700", use_limited_hugetlbfs);
}

static void refuse_giant_pages(const char *root)
{
    struct eb_resident_dir dir;
    struct eb_failure failure = {.text = ""};
    REQUIRE(!eb_resident_dir_open(&dir, root, false, &failure));
    REQUIRE(strstr(failure.text, "mount it with pagesize=2M"));
}

static void refuses_a_hugetlbfs_of_giant_pages(void **state)
{
    run_on_mount(*state, "hugetlbfs", "pagesize=1G,mode=0700", refuse_giant_pages);
}

#define WITH_ROOT(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, eb_scratch_tear_down)

EB_TEST_GROUP(resident_mounts)
{
    const struct CMUnitTest tests[] = {
        WITH_ROOT(a_full_tmpfs_is_an_error_and_no_signal),
        WITH_ROOT(a_tmpfs_without_inodes_is_an_error),
        WITH_ROOT(a_tmpfs_without_a_size_has_the_memory_that_is_available),
        WITH_ROOT(a_file_that_does_not_fit_is_refused_with_the_room_there_was),
        WITH_ROOT(writes_through_a_mapping_on_hugetlbfs),
        WITH_ROOT(a_hugetlbfs_has_at_most_its_size_free),
        WITH_ROOT(refuses_a_hugetlbfs_of_giant_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
