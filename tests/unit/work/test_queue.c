#include "server/work/queue.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TILE EB_WORK_TILE_BYTES
#define MANY 5000 /* more than buckets */
#define ROUNDS 20000

static const char sources[MANY];
static struct eb_work works[MANY];
static struct eb_queue queue;
static uint64_t random_state;

static int reset(void **state)
{
    (void)state;
    memset(works, 0, sizeof works);
    memset(&queue, 0, sizeof queue);
    random_state = 1;
    return 0;
}

/* The seed is fixed, so that failures come again. */
static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(random_state >> 33) % below;
}

static struct eb_work *push(int index, int source, unsigned priority, uint64_t bytes)
{
    works[index] =
        (struct eb_work){.source = &sources[source], .priority = priority, .weight_bytes = bytes};
    eb_queue_push(&queue, &works[index]);
    return &works[index];
}

/* Gives out a tile of at most that many bytes; the work leaves with its last one. */
static struct eb_work *serve(uint64_t tile_bytes)
{
    struct eb_work *work = eb_queue_next(&queue);
    assert_non_null(work);
    eb_queue_charge(&queue, work, work->left_bytes < tile_bytes ? work->left_bytes : tile_bytes);
    if (work->left_bytes == 0) {
        eb_queue_remove(&queue, work);
    }
    return work;
}

static void assert_empty(void)
{
    assert_null(eb_queue_next(&queue));
    assert_null(queue.hand);
    assert_int_equal(eb_queue_count(&queue), 0);
    assert_int_equal(eb_queue_bytes(&queue, EB_WORK_BATCH), 0);
    for (int i = 0; i < EB_QUEUE_BUCKETS; i++) {
        assert_null(queue.buckets[i]);
    }
}

static void gives_the_works_of_a_source_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        push(i, 0, EB_WORK_INTERACTIVE, 3 * TILE);
    }
    for (int i = 0; i < 15; i++) {
        assert_ptr_equal(serve(TILE), &works[i / 3]);
    }
    assert_empty();
}

static void gives_batch_works_only_while_nothing_interactive_waits(void **state)
{
    (void)state;
    struct eb_work *batch = push(0, 0, EB_WORK_BATCH, 3 * TILE);
    struct eb_work *later = push(1, 0, 7, TILE);
    assert_ptr_equal(serve(TILE), batch);
    struct eb_work *interactive = push(2, 0, EB_WORK_INTERACTIVE, 2 * TILE);
    assert_ptr_equal(serve(TILE), interactive);
    assert_ptr_equal(serve(TILE), interactive);
    /* What has begun goes on where it was. */
    assert_ptr_equal(serve(TILE), batch);
    assert_ptr_equal(serve(TILE), batch);
    assert_ptr_equal(serve(TILE), later);
    assert_empty();
}

static void serves_a_new_source_after_one_turn_of_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        push(i, i % 3, EB_WORK_INTERACTIVE, 50 * TILE);
    }
    serve(TILE);
    struct eb_work *work = push(100, 3, EB_WORK_INTERACTIVE, TILE);
    uint64_t bytes = 0;
    while (serve(TILE) != work) {
        bytes += TILE;
    }
    assert_int_equal(bytes, 3 * EB_QUEUE_TURN_BYTES - TILE);
}

static void gives_sources_the_same_bytes_whatever_their_tiles(void **state)
{
    (void)state;
    uint64_t given[2] = {0};
    push(0, 0, EB_WORK_INTERACTIVE, UINT64_C(1) << 40);
    push(1, 1, EB_WORK_INTERACTIVE, UINT64_C(1) << 40);
    for (int i = 0; i < ROUNDS; i++) {
        size_t which = (size_t)(eb_queue_next(&queue) - works);
        uint64_t bytes = which == 0 ? 3 * TILE : TILE / 7;
        serve(bytes);
        given[which] += bytes;
    }
    uint64_t apart = given[0] > given[1] ? given[0] - given[1] : given[1] - given[0];
    assert_true(apart <= EB_QUEUE_TURN_BYTES + 3 * TILE);
}

static void gives_a_source_of_endless_tiles_one_in_each_round(void **state)
{
    (void)state;
    struct eb_work *giant = push(0, 0, EB_WORK_INTERACTIVE, UINT64_C(1) << 40);
    struct eb_work *other = push(1, 1, EB_WORK_INTERACTIVE, UINT64_C(1) << 40);
    for (int i = 0; i < 10; i++) {
        assert_ptr_equal(serve(100 * EB_QUEUE_TURN_BYTES), giant);
        for (int k = 0; k < EB_QUEUE_TURN_BYTES / TILE; k++) {
            assert_ptr_equal(serve(TILE), other);
        }
    }
}

static void keeps_apart_more_sources_than_buckets(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++) {
        push(i, i, EB_WORK_INTERACTIVE, TILE + (uint64_t)i);
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(eb_queue_source_bytes(&queue, &works[i]), TILE + i);
    }
    for (int i = 0; i < MANY; i++) {
        assert_ptr_equal(serve(2 * TILE), &works[i]);
    }
    assert_empty();
}

static void serves_those_without_a_source_as_one(void **state)
{
    (void)state;
    struct eb_work nobodys[3] = {
        {.weight_bytes = TILE}, {.weight_bytes = TILE}, {.weight_bytes = TILE}};
    for (int i = 0; i < 3; i++) {
        eb_queue_push(&queue, &nobodys[i]);
    }
    assert_int_equal(eb_queue_source_bytes(&queue, &nobodys[0]), 3 * TILE);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(serve(TILE), &nobodys[i]);
    }
    assert_empty();
}

static void removes_works_from_anywhere(void **state)
{
    (void)state;
    for (int first = 0; first < 6; first++) {
        for (int i = 0; i < 6; i++) {
            push(i, i % 2, EB_WORK_INTERACTIVE, TILE);
        }
        eb_queue_remove(&queue, &works[first]);
        assert_int_equal(eb_queue_bytes(&queue, EB_WORK_INTERACTIVE), 5 * TILE);
        assert_int_equal(eb_queue_source_bytes(&queue, &works[first]), 2 * TILE);
        /* Either source's in order, and no work twice. */
        int last[2] = {-1, -1};
        for (int i = 0; i < 5; i++) {
            int index = (int)(serve(TILE) - works);
            assert_true(index != first && index > last[index % 2]);
            last[index % 2] = index;
        }
        assert_empty();
    }
}

/* ---- against the works themselves, at random ---- */

static void check_sums(const bool *waits)
{
    uint64_t levels[EB_WORK_PRIORITIES] = {0};
    size_t count = 0;
    for (int i = 0; i < MANY; i++) {
        if (waits[i]) {
            levels[works[i].priority] += works[i].left_bytes;
            count++;
        }
    }
    assert_int_equal(eb_queue_count(&queue), count);
    assert_int_equal(eb_queue_bytes(&queue, EB_WORK_INTERACTIVE), levels[0]);
    assert_int_equal(eb_queue_bytes(&queue, EB_WORK_BATCH), levels[0] + levels[1]);
}

static void step(bool *waits)
{
    int index = (int)draw(MANY);
    unsigned action = draw(3);
    if (action == 0 && eb_queue_count(&queue) > 0) {
        struct eb_work *work = eb_queue_next(&queue);
        serve(TILE);
        waits[work - works] = work->left_bytes > 0;
    } else if (action == 1 && waits[index]) {
        eb_queue_remove(&queue, &works[index]);
        waits[index] = false;
    } else if (!waits[index]) {
        push(index, (int)draw(7), draw(2), 1 + draw(5 * TILE));
        waits[index] = true;
    }
}

static void counts_what_waits(void **state)
{
    (void)state;
    static bool waits[MANY];
    for (int i = 0; i < ROUNDS; i++) {
        step(waits);
        if (i % 50 == 0) {
            check_sums(waits);
        }
    }
    while (eb_queue_count(&queue) > 0) {
        serve(TILE);
    }
    assert_empty();
}

/* ---- what comes before ---- */

static void counts_all_above_and_its_own_before_a_work(void **state)
{
    (void)state;
    push(0, 0, EB_WORK_INTERACTIVE, 30 * TILE);
    push(1, 1, EB_WORK_BATCH, 5 * TILE);
    struct eb_work own = {.source = &sources[0]};
    assert_int_equal(eb_queue_bytes_before(&queue, &own, UINT64_MAX), 30 * TILE);
    own.priority = EB_WORK_BATCH;
    own.source = &sources[1];
    assert_int_equal(eb_queue_bytes_before(&queue, &own, UINT64_MAX), 35 * TILE);
}

static void counts_one_turn_of_others_before_a_new_source(void **state)
{
    (void)state;
    struct eb_work own = {.source = &sources[9]};
    assert_int_equal(eb_queue_bytes_before(&queue, &own, UINT64_MAX), 0);
    push(0, 0, EB_WORK_INTERACTIVE, 30 * TILE);
    push(1, 1, EB_WORK_INTERACTIVE, 30 * TILE);
    push(2, 2, EB_WORK_INTERACTIVE, TILE);
    assert_int_equal(
        eb_queue_bytes_before(&queue, &own, UINT64_MAX), 2 * EB_QUEUE_TURN_BYTES + TILE);
    serve(TILE);
    assert_int_equal(eb_queue_bytes_before(&queue, &own, UINT64_MAX), 2 * EB_QUEUE_TURN_BYTES);
}

static void asks_no_more_sources_than_it_must_nor_may(void **state)
{
    (void)state;
    struct eb_work own = {.source = &sources[MANY - 1]};
    for (int i = 0; i < 1000; i++) {
        push(i, i, EB_WORK_INTERACTIVE, TILE);
    }
    assert_int_equal(eb_queue_bytes_before(&queue, &own, 10 * TILE), 10 * TILE);
    assert_int_equal(eb_queue_bytes_before(&queue, &own, 10 * TILE + 1), 11 * TILE);
    assert_int_equal(
        eb_queue_bytes_before(&queue, &own, UINT64_MAX), EB_QUEUE_SOURCES_ASKED * TILE);
    push(1000, MANY - 1, EB_WORK_INTERACTIVE, 20 * TILE);
    assert_int_equal(eb_queue_bytes_before(&queue, &own, 10 * TILE), 20 * TILE);
}

static void never_counts_more_before_a_work_than_is_given_out(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        reset(state);
        random_state = (uint64_t)round;
        int count = 1 + (int)draw(40);
        for (int i = 0; i < count; i++) {
            push(i, (int)draw(5), draw(2), 1 + draw(20 * TILE));
            if (draw(2) == 0) {
                serve(1 + draw(2 * TILE));
            }
        }
        struct eb_work own = {
            .source = &sources[draw(6)], .priority = draw(2), .weight_bytes = TILE};
        uint64_t before = eb_queue_bytes_before(&queue, &own, UINT64_MAX);
        eb_queue_push(&queue, &own);
        uint64_t given = 0;
        while (eb_queue_next(&queue) != &own) {
            uint64_t left = eb_queue_bytes(&queue, EB_WORK_BATCH);
            serve(1 + draw(2 * TILE));
            given += left - eb_queue_bytes(&queue, EB_WORK_BATCH);
        }
        assert_true(before <= given);
    }
}

/* ---- what has expired ---- */

static void finds_what_has_expired_wherever_it_waits(void **state)
{
    (void)state;
    const int count = 101;
    for (int late = 0; late < count; late++) {
        reset(state);
        for (int i = 0; i < count; i++) {
            push(i, i % 4, (unsigned)i % 2, TILE);
            works[i].deadline_ns = i == late ? 10 : 0;
        }
        assert_null(eb_queue_sweep(&queue, 9));
        struct eb_work *found = NULL;
        int calls = 0;
        while (!found && calls <= count / EB_QUEUE_SWEEP_WORKS) {
            found = eb_queue_sweep(&queue, 10);
            calls++;
        }
        assert_ptr_equal(found, &works[late]);
        assert_ptr_equal(eb_queue_sweep(&queue, 10), found);
        eb_queue_remove(&queue, found);
        for (int i = 0; i < count; i++) {
            assert_null(eb_queue_sweep(&queue, 10));
        }
    }
}

static void finds_nothing_expired_in_an_empty_queue(void **state)
{
    (void)state;
    assert_null(eb_queue_sweep(&queue, UINT64_MAX));
}

EB_TEST_GROUP(queue)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gives_the_works_of_a_source_in_order, reset),
        cmocka_unit_test_setup(gives_batch_works_only_while_nothing_interactive_waits, reset),
        cmocka_unit_test_setup(serves_a_new_source_after_one_turn_of_each_other, reset),
        cmocka_unit_test_setup(gives_sources_the_same_bytes_whatever_their_tiles, reset),
        cmocka_unit_test_setup(gives_a_source_of_endless_tiles_one_in_each_round, reset),
        cmocka_unit_test_setup(keeps_apart_more_sources_than_buckets, reset),
        cmocka_unit_test_setup(serves_those_without_a_source_as_one, reset),
        cmocka_unit_test_setup(removes_works_from_anywhere, reset),
        cmocka_unit_test_setup(counts_what_waits, reset),
        cmocka_unit_test_setup(counts_all_above_and_its_own_before_a_work, reset),
        cmocka_unit_test_setup(counts_one_turn_of_others_before_a_new_source, reset),
        cmocka_unit_test_setup(asks_no_more_sources_than_it_must_nor_may, reset),
        cmocka_unit_test_setup(never_counts_more_before_a_work_than_is_given_out, reset),
        cmocka_unit_test_setup(finds_what_has_expired_wherever_it_waits, reset),
        cmocka_unit_test_setup(finds_nothing_expired_in_an_empty_queue, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
