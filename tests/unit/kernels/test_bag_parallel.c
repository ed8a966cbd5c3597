#include "kernels/bag_parallel.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <stdatomic.h>
#include <string.h>

#define BAGS 1000
#define DIM 5
#define THREADS_MAX 7

/* Hands out a job bag by bag. */
struct supply {
    struct eb_bag_job job;
    atomic_uint next_bag;
    atomic_uint told_to_end;
    atomic_uint done[BAGS];
    atomic_uint strangers; /* callbacks with an invalid thread number or owner */
    unsigned thread_count;
};

static bool next_tile(void *context, unsigned thread, bool may_wait, struct eb_bag_tile *tile)
{
    struct supply *supply = context;
    atomic_fetch_add(&supply->strangers, thread >= supply->thread_count);
    unsigned bag = atomic_fetch_add(&supply->next_bag, 1);
    if (bag >= BAGS) {
        atomic_fetch_add(&supply->told_to_end, may_wait);
        return false;
    }
    *tile = (struct eb_bag_tile){
        .jobs = &supply->job,
        .job_count = 1,
        .bag_first = bag,
        .bag_end = bag + 1,
        .element_end = UINT32_MAX,
        .owner = supply,
    };
    return true;
}

static void count_done(void *context, unsigned thread, const struct eb_bag_tile *tile)
{
    struct supply *supply = context;
    atomic_fetch_add(&supply->strangers, thread >= supply->thread_count || tile->owner != supply);
    atomic_fetch_add(&supply->done[tile->bag_first], 1);
}

static void assert_same_bytes(unsigned thread_count)
{
    static float rows[BAGS * DIM];
    static int32_t indices[2 * BAGS];
    for (int32_t i = 0; i < BAGS; i++) {
        indices[2 * i] = i;
        indices[2 * i + 1] = BAGS - 1 - i;
        rows[i * DIM] = (float)i / 3;
    }
    struct eb_table table = table_of(EB_F32, rows, BAGS, DIM);
    struct eb_bag_query query = query_of(&table);
    query.indices = INTS(indices);
    query.layout = EB_LAYOUT_PACKED;
    query.indices_per_bag = 2;
    struct bag_fixture fixture;
    assert_true(bag_fixture_check(&fixture, &query));
    bag_fixture_pool(&fixture, eb_bag_ops_find("ref"));

    static uint8_t out[BAGS * DIM * sizeof(float)];
    memset(out, 0xa5, sizeof out);
    static struct supply supply;
    memset(&supply, 0, sizeof supply);
    supply.job = fixture.job;
    supply.job.out = out;
    supply.thread_count = thread_count;
    struct eb_bag_team team = {
        .ops = eb_bag_ops_find(NULL),
        .schedules = &eb_bag_schedules_default,
        .thread_count = thread_count,
        .next = next_tile,
        .done = count_done,
        .context = &supply,
    };
    unsigned ran = eb_bag_parallel_run(&team);
    assert_in_range(ran, 1, thread_count);
    assert_int_equal(supply.told_to_end, ran);
    assert_int_equal(supply.strangers, 0);
    for (size_t bag = 0; bag < BAGS; bag++) {
        assert_int_equal(supply.done[bag], 1);
    }
    assert_memory_equal(out, fixture.out, sizeof out);
    bag_fixture_release(&fixture);
}

static void one_thread_does_it_all(void **state)
{
    (void)state;
    assert_same_bytes(1);
}

/* A thread sanitizer does not see OpenMP's own synchronisation, and would report races. */
#ifndef __SANITIZE_THREAD__
static void threads_share_tiles(void **state)
{
    (void)state;
    assert_same_bytes(2);
    assert_same_bytes(THREADS_MAX);
}
#endif

EB_TEST_GROUP(bag_parallel)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_does_it_all),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(threads_share_tiles),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
