#include "server/work/queue.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TILE EB_WORK_TILE_BYTES
#define MANY 5000 /* more than there are buckets */
#define ROUNDS 20000
#define BAGS 500
#define DIM 64

/* ---- work items ---- */

static float rows[8][DIM];
static const struct eb_table table = {.rows = rows,
    .row_count = 8,
    .row_stride_bytes = sizeof rows[0],
    .row_elements = DIM,
    .storage = EB_STORAGE_F32,
    .type = EB_F32,
    .unknown_row = -1};
static int64_t row_list[BAGS * 10];
static uint32_t starts[BAGS + 1];

/* Makes two jobs of bags of ten rows with bf16 results. */
static void make_jobs(struct eb_bag_job jobs[2])
{
    for (uint32_t b = 0; b <= BAGS; b++) {
        starts[b] = b * 10;
    }
    for (int i = 0; i < 2; i++) {
        jobs[i] = (struct eb_bag_job){.table = &table,
            .rows = row_list,
            .starts = starts,
            .bag_count = BAGS,
            .reduction = EB_REDUCTION_SUM,
            .output_type = EB_BF16,
            .default_row = -1};
    }
}

static void cuts_tiles_that_add_up_to_what_is_read_and_written(void **state)
{
    (void)state;
    struct eb_bag_job jobs[2];
    make_jobs(jobs);
    struct eb_work work = {.jobs = jobs, .job_count = 2};
    uint64_t bytes = 0;
    bool was_last = false;
    while (!eb_work_is_all_given(&work)) {
        struct eb_bag_tile tile;
        assert_false(was_last);
        was_last = eb_work_is_last_tile(&work);
        eb_work_cut_tile(&work, &tile);
        assert_ptr_equal(tile.owner, &work);
        assert_true(eb_work_tile_bytes(&tile) <= EB_WORK_TILE_BYTES * 5 / 4);
        bytes += eb_work_tile_bytes(&tile);
    }
    assert_true(was_last);
    assert_int_equal(bytes, 2 * BAGS * (10 * DIM * sizeof(float) + DIM * 2));
    assert_true(work.open_tiles >= bytes / (EB_WORK_TILE_BYTES * 5 / 4));
}

static void counts_the_columns_of_a_bag_that_is_cut(void **state)
{
    (void)state;
    struct eb_bag_job jobs[2];
    make_jobs(jobs);
    struct eb_bag_tile whole = {
        .jobs = jobs, .job_count = 1, .bag_first = 3, .bag_end = 4, .element_end = UINT32_MAX};
    struct eb_bag_tile part = whole;
    part.element_first = DIM / 2;
    assert_int_equal(eb_work_tile_bytes(&whole), 10 * DIM * sizeof(float) + DIM * 2);
    assert_int_equal(eb_work_tile_bytes(&part) * 2, eb_work_tile_bytes(&whole));
}

/* As in the weight of a work item, the scale of each row is counted only once, however many pieces
 * the columns are cut into. */
static void counts_scales_with_the_first_columns(void **state)
{
    (void)state;
    static const struct eb_row_scale scales[1];
    struct eb_table codes = table;
    codes.storage = EB_STORAGE_INT8;
    codes.scales = scales;
    struct eb_bag_job jobs[2];
    make_jobs(jobs);
    jobs[0].table = &codes;
    struct eb_bag_tile tile = {
        .jobs = jobs, .job_count = 1, .bag_first = 3, .bag_end = 4, .element_end = UINT32_MAX};
    uint64_t bytes = 10 * (DIM + sizeof(struct eb_row_scale)) + DIM * 2;
    assert_int_equal(eb_work_tile_bytes(&tile), bytes);
    tile.element_end = DIM / 2;
    uint64_t pieces = eb_work_tile_bytes(&tile);
    tile.element_first = DIM / 2;
    tile.element_end = UINT32_MAX;
    pieces += eb_work_tile_bytes(&tile);
    assert_int_equal(pieces, bytes);
}

static void has_no_last_tile_without_bags(void **state)
{
    (void)state;
    struct eb_work work = {0};
    assert_true(eb_work_is_all_given(&work));
    assert_false(eb_work_is_last_tile(&work));
}

static void expires_at_its_deadline_or_when_it_is_cancelled(void **state)
{
    (void)state;
    atomic_bool cancelled = false;
    struct eb_work work = {.deadline_ns = 100, .cancelled = &cancelled};
    assert_false(eb_work_is_expired(&work, 99));
    assert_true(eb_work_is_expired(&work, 100));
    work.deadline_ns = 0;
    assert_false(eb_work_is_expired(&work, UINT64_MAX));
    atomic_store(&cancelled, true);
    assert_true(eb_work_is_expired(&work, 0));
}

/* ---- the queue ---- */

static const char sources[MANY];
static struct eb_work works[MANY];
static struct eb_queue queue;
static uint64_t random_state;

static int reset_queue(void **state)
{
    (void)state;
    memset(works, 0, sizeof works);
    memset(&queue, 0, sizeof queue);
    random_state = 1;
    return 0;
}

/* The seed is fixed, so that failures can be repeated. */
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

/* Serves a tile of at most `tile_bytes` bytes. Removes the item with its last tile. */
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
    assert_null(queue.swept);
    assert_int_equal(eb_queue_count(&queue), 0);
    assert_int_equal(eb_queue_bytes(&queue, EB_WORK_BATCH), 0);
    for (int i = 0; i < EB_QUEUE_BUCKETS; i++) {
        assert_null(queue.buckets[i]);
    }
}

/* ---- the order of items ---- */

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
    /* An item that has begun keeps its position. */
    assert_ptr_equal(serve(TILE), batch);
    assert_ptr_equal(serve(TILE), batch);
    assert_ptr_equal(serve(TILE), later);
    assert_empty();
}

static void serves_a_new_source_after_one_round_of_each_other(void **state)
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
    assert_int_equal(bytes, 3 * EB_QUEUE_QUANTUM_BYTES - TILE);
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
    assert_true(apart <= EB_QUEUE_QUANTUM_BYTES + 3 * TILE);
}

static void gives_a_source_of_endless_tiles_one_in_each_round(void **state)
{
    (void)state;
    struct eb_work *giant = push(0, 0, EB_WORK_INTERACTIVE, UINT64_C(1) << 40);
    struct eb_work *other = push(1, 1, EB_WORK_INTERACTIVE, UINT64_C(1) << 40);
    for (int i = 0; i < 10; i++) {
        assert_ptr_equal(serve(100 * EB_QUEUE_QUANTUM_BYTES), giant);
        for (int k = 0; k < EB_QUEUE_QUANTUM_BYTES / TILE; k++) {
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
        /* The items of each source come in order, and no item comes twice. */
        int last[2] = {-1, -1};
        for (int i = 0; i < 5; i++) {
            int index = (int)(serve(TILE) - works);
            assert_true(index != first && index > last[index % 2]);
            last[index % 2] = index;
        }
        assert_empty();
    }
}

/* ---- random operations, compared with sums over the items ---- */

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

/* ---- bytes ahead of an item ---- */

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

static void counts_one_round_of_others_before_a_new_source(void **state)
{
    (void)state;
    struct eb_work own = {.source = &sources[9]};
    assert_int_equal(eb_queue_bytes_before(&queue, &own, UINT64_MAX), 0);
    push(0, 0, EB_WORK_INTERACTIVE, 30 * TILE);
    push(1, 1, EB_WORK_INTERACTIVE, 30 * TILE);
    push(2, 2, EB_WORK_INTERACTIVE, TILE);
    assert_int_equal(
        eb_queue_bytes_before(&queue, &own, UINT64_MAX), 2 * EB_QUEUE_QUANTUM_BYTES + TILE);
    serve(TILE);
    assert_int_equal(eb_queue_bytes_before(&queue, &own, UINT64_MAX), 2 * EB_QUEUE_QUANTUM_BYTES);
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
        reset_queue(state);
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

/* ---- expired items ---- */

static void finds_what_has_expired_wherever_it_waits(void **state)
{
    (void)state;
    int count = 101;
    for (int late = 0; late < count; late++) {
        reset_queue(state);
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

/* ---- the rate ---- */

static void add_tiles(struct eb_rate *rate, int count, uint64_t bytes, uint64_t ns)
{
    for (int i = 0; i < count; i++) {
        eb_rate_add(rate, bytes, ns);
    }
}

static void begins_with_what_is_assumed(void **state)
{
    (void)state;
    struct eb_rate rate;
    eb_rate_init(&rate);
    assert_in_range(eb_rate_bytes_per_us(&rate), EB_RATE_DEFAULT_BYTES_PER_US - 1,
        EB_RATE_DEFAULT_BYTES_PER_US);
}

static void comes_to_what_is_measured(void **state)
{
    (void)state;
    const uint64_t speeds[] = {1, 100, 2000, 50000};
    for (int i = 0; i < 4; i++) {
        struct eb_rate rate;
        eb_rate_init(&rate);
        add_tiles(&rate, 20 * EB_RATE_TILES, TILE, TILE * UINT64_C(1000) / speeds[i]);
        uint64_t speed = eb_rate_bytes_per_us(&rate);
        assert_in_range(speed, speeds[i] - speeds[i] / 50, speeds[i] + speeds[i] / 50);
    }
}

static void weighs_tiles_by_their_bytes(void **state)
{
    (void)state;
    struct eb_rate rate;
    eb_rate_init(&rate);
    for (int i = 0; i < 20 * EB_RATE_TILES; i++) {
        eb_rate_add(&rate, TILE, TILE / 4);
        eb_rate_add(&rate, TILE / 64, TILE / 64);
    }
    /* Each round adds 65/64 tiles, in the time that 1/4 + 1/64 tiles take at 1000 bytes per us. */
    assert_in_range(eb_rate_bytes_per_us(&rate), 3700, 3950);
}

static void is_hardly_moved_by_one_thread_that_was_not_run(void **state)
{
    (void)state;
    struct eb_rate rate;
    eb_rate_init(&rate);
    eb_rate_add(&rate, TILE, UINT64_C(60000000000));
    assert_true(eb_rate_bytes_per_us(&rate) > EB_RATE_DEFAULT_BYTES_PER_US * 4 / 5);
}

static void is_never_nothing(void **state)
{
    (void)state;
    struct eb_rate rate;
    eb_rate_init(&rate);
    add_tiles(&rate, 100000, 0, UINT64_C(1000000000));
    assert_true(eb_rate_bytes_per_us(&rate) >= 1);
    add_tiles(&rate, 100000, 1, 0);
    assert_true(eb_rate_bytes_per_us(&rate) >= 1);
}

EB_TEST_GROUP(queue)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_tiles_that_add_up_to_what_is_read_and_written),
        cmocka_unit_test(counts_the_columns_of_a_bag_that_is_cut),
        cmocka_unit_test(counts_scales_with_the_first_columns),
        cmocka_unit_test(has_no_last_tile_without_bags),
        cmocka_unit_test(expires_at_its_deadline_or_when_it_is_cancelled),
        cmocka_unit_test_setup(gives_the_works_of_a_source_in_order, reset_queue),
        cmocka_unit_test_setup(gives_batch_works_only_while_nothing_interactive_waits, reset_queue),
        cmocka_unit_test_setup(serves_a_new_source_after_one_round_of_each_other, reset_queue),
        cmocka_unit_test_setup(gives_sources_the_same_bytes_whatever_their_tiles, reset_queue),
        cmocka_unit_test_setup(gives_a_source_of_endless_tiles_one_in_each_round, reset_queue),
        cmocka_unit_test_setup(keeps_apart_more_sources_than_buckets, reset_queue),
        cmocka_unit_test_setup(serves_those_without_a_source_as_one, reset_queue),
        cmocka_unit_test_setup(removes_works_from_anywhere, reset_queue),
        cmocka_unit_test_setup(counts_what_waits, reset_queue),
        cmocka_unit_test_setup(counts_all_above_and_its_own_before_a_work, reset_queue),
        cmocka_unit_test_setup(counts_one_round_of_others_before_a_new_source, reset_queue),
        cmocka_unit_test_setup(asks_no_more_sources_than_it_must_nor_may, reset_queue),
        cmocka_unit_test_setup(never_counts_more_before_a_work_than_is_given_out, reset_queue),
        cmocka_unit_test_setup(finds_what_has_expired_wherever_it_waits, reset_queue),
        cmocka_unit_test_setup(finds_nothing_expired_in_an_empty_queue, reset_queue),
        cmocka_unit_test(begins_with_what_is_assumed),
        cmocka_unit_test(comes_to_what_is_measured),
        cmocka_unit_test(weighs_tiles_by_their_bytes),
        cmocka_unit_test(is_hardly_moved_by_one_thread_that_was_not_run),
        cmocka_unit_test(is_never_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
