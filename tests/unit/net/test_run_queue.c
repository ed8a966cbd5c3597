#include "server/net/run_queue.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define ENTRIES 64

struct fixture {
    struct eb_run_queue queue;
    struct eb_run_entry entries[ENTRIES];
};

static int set_up(void **state)
{
    static struct fixture fixture;
    eb_run_queue_init(&fixture.queue);
    for (int i = 0; i < ENTRIES; i++) {
        eb_run_entry_init(&fixture.entries[i]);
    }
    *state = &fixture;
    return 0;
}

/* Returns the number of the next entry, or -1 if there is none. */
static int pop_number(struct fixture *fixture)
{
    const struct eb_run_entry *entry = eb_run_queue_pop(&fixture->queue);
    return entry ? (int)(entry - fixture->entries) : -1;
}

static void doubles_the_slices_from_level_to_level(void **state)
{
    (void)state;
    assert_int_equal(eb_run_queue_find_level(0), 0);
    assert_int_equal(eb_run_queue_find_level(1), 1);
    assert_int_equal(eb_run_queue_find_level(2), 2);
    assert_int_equal(eb_run_queue_find_level(3), 2);
    assert_int_equal(eb_run_queue_find_level(4), 3);
    assert_int_equal(eb_run_queue_find_level(63), EB_RUN_LEVELS - 2);
    assert_int_equal(eb_run_queue_find_level(64), EB_RUN_LEVELS - 1);
    assert_int_equal(eb_run_queue_find_level(UINT64_MAX), EB_RUN_LEVELS - 1);
}

static void serves_one_level_in_the_order_of_arrival(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(pop_number(fixture), -1);
    for (int i = 0; i < ENTRIES; i++) {
        eb_run_queue_push(&fixture->queue, &fixture->entries[i], 5);
        eb_run_queue_push(&fixture->queue, &fixture->entries[i], 0); /* no effect: already waits */
    }
    assert_int_equal(fixture->queue.count, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        assert_int_equal(pop_number(fixture), i);
        assert_false(fixture->entries[i].is_waiting);
    }
    assert_int_equal(pop_number(fixture), -1);
    assert_int_equal(fixture->queue.count, 0);
}

static void forgets_who_no_longer_waits(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 3; i++) {
        eb_run_queue_push(&fixture->queue, &fixture->entries[i], 1);
    }
    eb_run_queue_remove(&fixture->queue, &fixture->entries[1]);
    eb_run_queue_remove(&fixture->queue, &fixture->entries[1]);
    assert_int_equal(fixture->queue.count, 2);
    assert_int_equal(pop_number(fixture), 0);
    assert_int_equal(pop_number(fixture), 2);
    assert_int_equal(pop_number(fixture), -1);
}

static void prefers_who_has_had_least(void **state)
{
    struct fixture *fixture = *state;
    static const uint64_t slices[] = {1000, 3, 0, 1};
    for (int i = 0; i < 4; i++) {
        eb_run_queue_push(&fixture->queue, &fixture->entries[i], slices[i]);
    }
    assert_int_equal(pop_number(fixture), 2);
    assert_int_equal(pop_number(fixture), 3);
    assert_int_equal(pop_number(fixture), 1);
    assert_int_equal(pop_number(fixture), 0);
}

/* Queues two entries per level, and queues each again as soon as it is served. Counts the slices of
 * each level. */
static void count_slices(struct fixture *fixture, unsigned total, unsigned counts[EB_RUN_LEVELS])
{
    for (unsigned i = 0; i < 2 * EB_RUN_LEVELS; i++) {
        eb_run_queue_push(&fixture->queue, &fixture->entries[i], (UINT64_C(1) << i / 2) >> 1);
        assert_int_equal(fixture->entries[i].level, i / 2);
    }
    for (unsigned i = 0; i < total; i++) {
        unsigned number = (unsigned)pop_number(fixture);
        counts[number / 2]++;
        eb_run_queue_push(
            &fixture->queue, &fixture->entries[number], (UINT64_C(1) << number / 2) >> 1);
    }
}

static void lets_nobody_starve(void **state)
{
    unsigned counts[EB_RUN_LEVELS] = {0};
    unsigned rounds = 100;
    count_slices(*state, rounds * EB_RUN_ROUND * EB_RUN_LEVELS, counts);
    assert_int_equal(counts[0], rounds * ((EB_RUN_ROUND - 1) * EB_RUN_LEVELS + 1));
    for (unsigned level = 1; level < EB_RUN_LEVELS; level++) {
        assert_int_equal(counts[level], rounds);
    }
}

#define MS UINT64_C(1000000)

static void counts_old_slices_by_half(void **state)
{
    (void)state;
    static const struct {
        uint64_t idle_ms;
        uint64_t count;
    } cases[] = {{0, 40}, {99, 40}, {100, 20}, {199, 20}, {200, 10}, {599, 1}, {600, 0}, {6400, 0},
        {UINT64_C(1) << 40, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_run_usage usage = {0};
        for (int slice = 0; slice < 40; slice++) {
            eb_run_usage_add(&usage);
        }
        eb_run_usage_idle(&usage, 5000 * MS);
        assert_int_equal(
            eb_run_usage_resume(&usage, (5000 + cases[i].idle_ms) * MS), cases[i].count);
    }
}

static void counts_the_time_of_each_rest_once(void **state)
{
    (void)state;
    struct eb_run_usage usage = {0};
    for (int slice = 0; slice < 40; slice++) {
        eb_run_usage_add(&usage);
    }
    eb_run_usage_idle(&usage, 0);
    assert_int_equal(eb_run_usage_resume(&usage, 150 * MS), 20);
    assert_int_equal(eb_run_usage_resume(&usage, 199 * MS), 20);
    assert_int_equal(eb_run_usage_resume(&usage, 200 * MS), 10);
    eb_run_usage_add(&usage);
    eb_run_usage_idle(&usage, 1000 * MS);
    assert_int_equal(eb_run_usage_resume(&usage, 1099 * MS), 11);
}

EB_TEST_GROUP(run_queue)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_old_slices_by_half),
        cmocka_unit_test(counts_the_time_of_each_rest_once),
        cmocka_unit_test(doubles_the_slices_from_level_to_level),
        cmocka_unit_test_setup(serves_one_level_in_the_order_of_arrival, set_up),
        cmocka_unit_test_setup(forgets_who_no_longer_waits, set_up),
        cmocka_unit_test_setup(prefers_who_has_had_least, set_up),
        cmocka_unit_test_setup(lets_nobody_starve, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
