/* Key indexes that are built by several threads. This file decides how many processors there are,
 * whether threads start and whether keys find room: the linker redirects the calls (--wrap). */
#include "server/tables/key_workers.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SOME 20000  /* enough for several partitions */
#define MANY 300000 /* enough for several slices of rows */
#define PHASES 4

typedef void *start_fn(void *argument);

int __real_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, start_fn *start, void *argument);
enum eb_key_outcome __real_eb_key_build_place(
    struct eb_key_build *build, uint32_t partition, void *scratch, struct eb_key_pair *pair);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);
int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, start_fn *start, void *argument);
enum eb_key_outcome __wrap_eb_key_build_place(
    struct eb_key_build *build, uint32_t partition, void *scratch, struct eb_key_pair *pair);

static int processor_count;
static bool no_threads;
static unsigned thread_count;
static atomic_uint bad_attempts; /* number of attempts that will fail */
/* Set when a partition is placed. A thread that works alone has then assigned all keys. */
static atomic_bool is_placing;
static int64_t keys[MANY];

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    memset(set, 0, bytes);
    for (int i = 0; i < processor_count; i++) {
        CPU_SET((unsigned)i, set);
    }
    return 0;
}

int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, start_fn *start, void *argument)
{
    thread_count++;
    return no_threads ? EAGAIN : __real_pthread_create(thread, attributes, start, argument);
}

/* Each attempt places the last partition only once, so an attempt is made to fail there. */
enum eb_key_outcome __wrap_eb_key_build_place(
    struct eb_key_build *build, uint32_t partition, void *scratch, struct eb_key_pair *pair)
{
    is_placing = true;
    if (partition + 1 == build->plan.partition_count && bad_attempts > 0) {
        bad_attempts--;
        return EB_KEY_AGAIN;
    }
    return __real_eb_key_build_place(build, partition, scratch, pair);
}

static int set_up(void **state)
{
    (void)state;
    processor_count = 1;
    no_threads = false;
    thread_count = 0;
    bad_attempts = 0;
    is_placing = false;
    return 0;
}

static int make_keys(void **state)
{
    (void)state;
    for (int64_t i = 0; i < MANY; i++) {
        keys[i] = (i - SOME / 2) * 1024;
    }
    return 0;
}

/* Reports of a build. */
struct reports {
    uint64_t bytes;
    uint64_t bytes_max;      /* number of bytes beyond which the build is given up */
    unsigned assigned_count; /* reports before keys are placed */
};

static bool report_and_go_on(void *context, uint64_t bytes)
{
    struct reports *reports = context;
    reports->bytes += bytes;
    reports->assigned_count += bytes > 0 && !is_placing;
    return reports->bytes <= reports->bytes_max;
}

struct fixture {
    struct eb_key_workers workers;
    struct reports reports;
    struct eb_failure failure;
    uint32_t row;
};

static void fixture_init(struct fixture *fixture, uint64_t row_count)
{
    *fixture = (struct fixture){
        .workers = {.keys = keys, .go_on = report_and_go_on, .context = &fixture->reports}};
    assert_true(eb_key_build_plan(row_count, &fixture->workers.plan));
    fixture->workers.index =
        aligned_alloc(EB_KEY_INDEX_ALIGNMENT, fixture->workers.plan.index_bytes);
    assert_non_null(fixture->workers.index);
    fixture->reports.bytes_max = UINT64_MAX;
}

static bool fixture_build(struct fixture *fixture)
{
    return eb_key_workers_build(&fixture->workers, &fixture->row, &fixture->failure);
}

static void fixture_deinit(struct fixture *fixture)
{
    free(fixture->workers.index);
}

static void makes_the_same_bytes_with_any_number_of_threads(void **state)
{
    (void)state;
    static const uint64_t row_counts[] = {0, 1, 17, 5000, SOME, MANY};
    static const int processors[] = {1, 2, 7, 100};
    for (size_t i = 0; i < sizeof row_counts / sizeof row_counts[0]; i++) {
        struct fixture first;
        processor_count = 1;
        fixture_init(&first, row_counts[i]);
        assert_true(fixture_build(&first));
        assert_int_equal(thread_count, 0);
        for (size_t n = 0; n < sizeof processors / sizeof processors[0]; n++) {
            struct fixture fixture;
            processor_count = processors[n];
            fixture_init(&fixture, row_counts[i]);
            assert_true(fixture_build(&fixture));
            assert_memory_equal(
                fixture.workers.index, first.workers.index, first.workers.plan.index_bytes);
            assert_true(thread_count <= PHASES * (EB_KEY_WORKERS_THREADS_MAX - 1));
            thread_count = 0;
            fixture_deinit(&fixture);
        }
        fixture_deinit(&first);
    }
}

static void works_alone_where_no_thread_starts(void **state)
{
    (void)state;
    struct fixture fixture;
    struct eb_key_index index;
    const char *reason;
    processor_count = 4;
    no_threads = true;
    fixture_init(&fixture, SOME);
    assert_true(fixture_build(&fixture));
    assert_int_equal(thread_count, PHASES * 3);
    assert_true(eb_key_index_open(
        &index, fixture.workers.index, fixture.workers.plan.index_bytes, SOME, &reason));
    for (int64_t row = 0; row < SOME; row++) {
        assert_int_equal(eb_key_index_find(&index, keys[row]), row);
    }
    fixture_deinit(&fixture);
}

static void tells_of_all_bytes_from_the_first_rows_on(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_init(&fixture, MANY);
    assert_true(fixture_build(&fixture));
    assert_int_equal(fixture.reports.bytes, fixture.workers.plan.index_bytes);
    assert_int_equal(fixture.reports.assigned_count, 3 * fixture.workers.plan.slice_count);
    fixture_deinit(&fixture);
}

static void tells_of_no_byte_twice_where_it_begins_again(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_init(&fixture, SOME);
    bad_attempts = 3;
    assert_true(fixture_build(&fixture));
    assert_int_equal(bad_attempts, 0);
    assert_int_equal(fixture.reports.bytes, fixture.workers.plan.index_bytes);
    fixture_deinit(&fixture);
}

static void can_be_given_up_at_any_time(void **state)
{
    (void)state;
    for (uint64_t part = 0; part < 8; part++) {
        struct fixture fixture;
        processor_count = 2;
        fixture_init(&fixture, SOME);
        fixture.reports.bytes_max = fixture.workers.plan.index_bytes * part / 8;
        assert_false(fixture_build(&fixture));
        assert_int_equal(fixture.row, 0);
        assert_string_equal(fixture.failure.text, "the load was cancelled");
        fixture_deinit(&fixture);
    }
}

static void names_the_rows_of_a_key_that_is_there_twice(void **state)
{
    (void)state;
    struct fixture fixture;
    processor_count = 3;
    keys[19000] = keys[77];
    fixture_init(&fixture, SOME);
    assert_false(fixture_build(&fixture));
    keys[19000] = (19000 - SOME / 2) * 1024;
    assert_int_equal(fixture.row, 19000);
    eb_scratch_expect(
        fixture.failure.text, "rows 77 and 19000 have the same key -10161152; every row");
    fixture_deinit(&fixture);
}

static void says_how_often_it_tried_and_what_to_do(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_init(&fixture, SOME);
    bad_attempts = 1000;
    assert_false(fixture_build(&fixture));
    assert_int_equal(bad_attempts, 1000 - EB_KEY_ATTEMPTS_MAX);
    assert_int_equal(fixture.row, 0);
    eb_scratch_expect(
        fixture.failure.text, "no index of its 20000 keys could be built: in each of 16 attempts");
    eb_scratch_expect(fixture.failure.text, "with their keys and try again");
    fixture_deinit(&fixture);
}

EB_TEST_GROUP(key_workers)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        TEST(makes_the_same_bytes_with_any_number_of_threads),
        TEST(works_alone_where_no_thread_starts),
        TEST(tells_of_all_bytes_from_the_first_rows_on),
        TEST(tells_of_no_byte_twice_where_it_begins_again),
        TEST(can_be_given_up_at_any_time),
        TEST(names_the_rows_of_a_key_that_is_there_twice),
        TEST(says_how_often_it_tried_and_what_to_do),
    };
    return cmocka_run_group_tests(tests, make_keys, NULL);
}
