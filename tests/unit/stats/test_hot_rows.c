#include "server/stats/hot_rows.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define IDS 20000
#define SKETCHES_MAX 4

static uint64_t counts[IDS]; /* how often each rank really occurred */
static double ends[IDS];     /* cumulative shares, each including the rank's own */
static uint64_t random_state;

/* Returns a pseudo-random number from 0 to 1. Each seed has its own sequence. */
static double roll(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(random_state >> 11) * 0x1p-53;
}

/* Prepares ranks whose shares fall as 1 / rank. */
static void prepare_zipf(void)
{
    double sum = 0;
    memset(counts, 0, sizeof counts);
    random_state = 7;
    for (size_t rank = 0; rank < IDS; rank++) {
        sum += 1.0 / (double)(rank + 1);
        ends[rank] = sum;
    }
}

static size_t roll_rank(void)
{
    double at = roll() * ends[IDS - 1];
    size_t first = 0;
    size_t end = IDS - 1;
    while (first < end) {
        size_t middle = (first + end) / 2;
        if (ends[middle] < at) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

/* Neighbouring ranks are not neighbouring rows. */
static int64_t id_of(size_t rank)
{
    return (int64_t)(rank * 7919 % IDS) - IDS / 2;
}

static void add_zipf(struct eb_hot_rows *rows, size_t samples)
{
    for (size_t i = 0; i < samples; i++) {
        size_t rank = roll_rank();
        counts[rank]++;
        eb_hot_rows_add(rows, id_of(rank));
    }
}

static void add(struct eb_hot_rows *rows, int64_t id, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        eb_hot_rows_add(rows, id);
    }
}

static size_t find_top(const struct eb_hot_rows *rows, size_t count, struct eb_stats_hot_row *top)
{
    static struct eb_hot_rows_sum sums[2 * SKETCHES_MAX * EB_HOT_ROWS_KEPT];
    struct eb_hot_rows_merge merge = {.sums = sums, .room = eb_hot_rows_room(count)};
    assert_in_range(merge.room, 2 * count * EB_HOT_ROWS_KEPT, sizeof sums / sizeof sums[0]);
    memset(sums, 0, sizeof sums);
    for (size_t i = 0; i < count; i++) {
        eb_hot_rows_merge(&merge, &rows[i]);
    }
    return eb_hot_rows_top(&merge, top);
}

static void expect_share(const struct eb_stats_hot_row *row, int64_t id, double share)
{
    assert_int_equal(row->id, id);
    if (row->share < share - 1e-9 || row->share > share + 1e-9) {
        fail_msg("id %lld has a share of %g, not %g", (long long)id, row->share, share);
    }
}

static void finds_the_hot_rows_of_a_skewed_stream(void **state)
{
    (void)state;
    struct eb_hot_rows rows = {.indices_per_sample = 100};
    struct eb_stats_hot_row top[EB_STATS_HOT_ROWS];
    prepare_zipf();
    add_zipf(&rows, 400000);
    assert_true(find_top(&rows, 1, top) >= 10);
    for (size_t rank = 0; rank < 5; rank++) {
        double share = 1.0 / (double)(rank + 1) / ends[IDS - 1];
        assert_int_equal(top[rank].id, id_of(rank));
        if (top[rank].share < 0.8 * share || top[rank].share > 1.1 * share) {
            fail_msg("rank %zu has a share of %g, not %g", rank, top[rank].share, share);
        }
    }
}

static void keeps_the_bounds_that_the_paper_proves(void **state)
{
    (void)state;
    struct eb_hot_rows rows = {0};
    prepare_zipf();
    add_zipf(&rows, 100000);
    uint64_t sum = 0;
    for (size_t rank = 0; rank < IDS; rank++) {
        const struct eb_hot_rows_kept *found = NULL;
        for (uint32_t i = 0; i < rows.count && !found; i++) {
            found = rows.kept[i].id == id_of(rank) ? &rows.kept[i] : NULL;
        }
        if (found) {
            assert_in_range(counts[rank], found->hits - found->over, found->hits);
            assert_true(found->over <= rows.samples / EB_HOT_ROWS_KEPT);
            sum += found->hits;
        } else {
            assert_true(counts[rank] <= rows.samples / EB_HOT_ROWS_KEPT);
        }
    }
    assert_int_equal(rows.samples, 100000);
    assert_int_equal(sum, 100000);
}

static void finds_none_where_all_are_alike(void **state)
{
    (void)state;
    static const double ids[] = {2000, 1e6, 1e15};
    random_state = 3;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct eb_hot_rows rows = {.indices_per_sample = 1};
        struct eb_stats_hot_row top[EB_STATS_HOT_ROWS];
        for (size_t n = 0; n < 200000; n++) {
            eb_hot_rows_add(&rows, (int64_t)(roll() * ids[i]));
            if (n % 50000 == 49999) {
                assert_int_equal(find_top(&rows, 1, top), 0);
                eb_hot_rows_halve(&rows);
            }
        }
    }
}

static void tells_the_shares_of_a_few_rows_exactly(void **state)
{
    (void)state;
    struct eb_hot_rows rows = {.indices_per_sample = 1};
    struct eb_stats_hot_row top[EB_STATS_HOT_ROWS];
    add(&rows, INT64_MIN, 25);
    add(&rows, -1, 50);
    add(&rows, INT64_MAX, 25);
    assert_int_equal(find_top(&rows, 1, top), 3);
    expect_share(&top[0], -1, 0.5);
    expect_share(&top[1], INT64_MIN, 0.25);
    expect_share(&top[2], INT64_MAX, 0.25);
}

static void tells_no_more_than_stats_have_room_for(void **state)
{
    (void)state;
    struct eb_hot_rows rows = {.indices_per_sample = 1};
    struct eb_stats_hot_row top[EB_STATS_HOT_ROWS];
    for (int64_t id = 0; id < EB_HOT_ROWS_KEPT; id++) {
        add(&rows, id, 100 + (unsigned)id);
    }
    assert_int_equal(find_top(&rows, 1, top), EB_STATS_HOT_ROWS);
    for (int64_t i = 0; i < EB_STATS_HOT_ROWS; i++) {
        assert_int_equal(top[i].id, EB_HOT_ROWS_KEPT - 1 - i);
    }
}

static void says_nothing_of_too_few_samples(void **state)
{
    (void)state;
    struct eb_hot_rows rows = {.indices_per_sample = 1};
    struct eb_stats_hot_row top[EB_STATS_HOT_ROWS];
    assert_int_equal(find_top(&rows, 0, top), 0);
    assert_int_equal(find_top(&rows, 1, top), 0);
    add(&rows, 5, EB_HOT_ROWS_HITS_MIN - 1);
    assert_int_equal(find_top(&rows, 1, top), 0);
    add(&rows, 5, 1);
    assert_int_equal(find_top(&rows, 1, top), 1);
    expect_share(&top[0], 5, 1);
}

static void forgets_what_was_hot(void **state)
{
    (void)state;
    struct eb_hot_rows rows = {.indices_per_sample = 1};
    struct eb_stats_hot_row top[EB_STATS_HOT_ROWS];
    add(&rows, 1, 1024);
    for (unsigned i = 0; i < 3; i++) {
        eb_hot_rows_halve(&rows);
    }
    add(&rows, 2, 384);
    assert_int_equal(find_top(&rows, 1, top), 2);
    expect_share(&top[0], 2, 0.75);
    expect_share(&top[1], 1, 0.25);
    for (unsigned i = 0; i < 10; i++) {
        eb_hot_rows_halve(&rows);
    }
    assert_int_equal(rows.count, 0);
    assert_int_equal(rows.samples, 0);
}

static void takes_no_hits_of_others_for_its_own_by_halving(void **state)
{
    (void)state;
    struct eb_hot_rows rows = {.indices_per_sample = 1};
    prepare_zipf();
    for (unsigned i = 0; i < 20; i++) {
        add_zipf(&rows, 3001);
        eb_hot_rows_halve(&rows);
        for (size_t rank = 0; rank < IDS; rank++) {
            counts[rank] = (counts[rank] + 1) / 2;
        }
        for (uint32_t k = 0; k < rows.count; k++) {
            assert_true(rows.kept[k].hits > 0 && rows.kept[k].over <= rows.kept[k].hits);
        }
        for (size_t rank = 0; rank < IDS; rank++) {
            for (uint32_t k = 0; k < rows.count; k++) {
                assert_true(rows.kept[k].id != id_of(rank) ||
                            rows.kept[k].hits - rows.kept[k].over <= counts[rank]);
            }
        }
    }
}

static void merges_sketches_by_what_their_samples_stand_for(void **state)
{
    (void)state;
    struct eb_hot_rows rows[3] = {
        {.indices_per_sample = 10}, {.indices_per_sample = 1}, {.indices_per_sample = 1}};
    struct eb_stats_hot_row top[EB_STATS_HOT_ROWS];
    add(&rows[0], 1, 60);
    add(&rows[0], 2, 40);
    add(&rows[1], 2, 193);
    add(&rows[1], 3, EB_HOT_ROWS_HITS_MIN - 1);
    add(&rows[2], 3, EB_HOT_ROWS_HITS_MIN - 1);
    add(&rows[2], 4, EB_HOT_ROWS_HITS_MIN - 2);
    double all = 1000 + 200 + 13;
    assert_int_equal(find_top(rows, 3, top), 3);
    expect_share(&top[0], 1, 600 / all);
    expect_share(&top[1], 2, 593 / all);
    expect_share(&top[2], 3, 14 / all);
}

EB_TEST_GROUP(hot_rows)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_hot_rows_of_a_skewed_stream),
        cmocka_unit_test(keeps_the_bounds_that_the_paper_proves),
        cmocka_unit_test(finds_none_where_all_are_alike),
        cmocka_unit_test(tells_the_shares_of_a_few_rows_exactly),
        cmocka_unit_test(tells_no_more_than_stats_have_room_for),
        cmocka_unit_test(says_nothing_of_too_few_samples),
        cmocka_unit_test(forgets_what_was_hot),
        cmocka_unit_test(takes_no_hits_of_others_for_its_own_by_halving),
        cmocka_unit_test(merges_sketches_by_what_their_samples_stand_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
