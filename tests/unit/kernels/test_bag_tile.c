#include "tests/unit/kernels/bag_fixture.h"

#include "tests/lib/test_group.h"

#include <string.h>

#define DIM 64
#define ROW_BYTES (DIM * 4)
#define JOBS 3

static const float floats[DIM];
static struct eb_table table;
static struct eb_bag_job jobs[JOBS];

static void use_starts(struct eb_bag_job *job, const uint32_t *starts, uint32_t bag_count)
{
    table = table_of(EB_F32, floats, 1, DIM);
    *job = (struct eb_bag_job){
        .table = &table, .starts = starts, .bag_count = bag_count, .output_type = EB_F32};
}

/* Cuts the next tile of the first `job_count` jobs. */
static struct eb_bag_tile cut(uint32_t job_count, uint64_t row_count, struct eb_bag_cut *position)
{
    struct eb_bag_tile tile = {.owner = &jobs};
    assert_false(eb_bag_cut_is_over(jobs, job_count, position));
    eb_bag_cut_tile(jobs, job_count, row_count * ROW_BYTES, position, &tile);
    assert_ptr_equal(tile.owner, &jobs);
    return tile;
}

static void assert_tile(const struct eb_bag_tile *tile, uint32_t first, uint32_t end)
{
    assert_int_equal(tile->bag_first, first);
    assert_int_equal(tile->bag_end, end);
    assert_int_equal(tile->element_first, 0);
    assert_int_equal(tile->element_end, UINT32_MAX);
}

static void cuts_where_enough_rows_are_gathered(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 4, 8, 9, 20, 22};
    use_starts(&jobs[0], starts, 5);
    struct eb_bag_cut position = {0};
    struct eb_bag_tile tile = cut(1, 8, &position);
    assert_tile(&tile, 0, 2);
    tile = cut(1, 10, &position);
    assert_tile(&tile, 2, 4);
    tile = cut(1, 10, &position);
    assert_tile(&tile, 4, 5);
    assert_true(eb_bag_cut_is_over(jobs, 1, &position));
}

static void takes_one_bag_at_least(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 3, 3, 6};
    use_starts(&jobs[0], starts, 3);
    struct eb_bag_cut position = {0};
    for (uint32_t bag = 0; bag < 3; bag++) {
        struct eb_bag_tile tile = cut(1, bag == 1 ? 1 : 2, &position);
        assert_tile(&tile, bag, bag + 1);
    }
}

static void counts_empty_bags_as_rows(void **state)
{
    (void)state;
    static const uint32_t starts[101];
    use_starts(&jobs[0], starts, 100);
    struct eb_bag_cut position = {.bag = 85};
    struct eb_bag_tile tile = cut(1, 10, &position);
    assert_tile(&tile, 85, 95);
    tile = cut(1, 10, &position);
    assert_tile(&tile, 95, 100);
}

/* If rows are codes of two bits, results are sixteen times as long. */
static void counts_results_that_are_longer_than_rows(void **state)
{
    (void)state;
    static const uint32_t empty[101];
    static const uint32_t starts[] = {0, 20, 21, 22, 23, 24, 60, 80};
    struct eb_table codes = table_of_codes(EB_STORAGE_INT2, floats, NULL, 1, DIM);
    jobs[0] = (struct eb_bag_job){
        .table = &codes, .starts = empty, .bag_count = 100, .output_type = EB_F32};
    struct eb_bag_cut position = {0};
    struct eb_bag_tile tile = cut(1, 10, &position);
    assert_tile(&tile, 0, 10);
    jobs[0].starts = starts;
    jobs[0].bag_count = 7;
    position = (struct eb_bag_cut){0};
    tile = cut(1, 3, &position);
    assert_tile(&tile, 0, 3);
    tile = cut(1, 2, &position);
    assert_tile(&tile, 3, 5);
    /* 32 rows of codes have as many bytes as two results. */
    tile = cut(1, 2, &position);
    assert_tile(&tile, 5, 6);
}

static void cuts_rows_of_none(void **state)
{
    (void)state;
    use_starts(&jobs[0], NULL, 100);
    struct eb_bag_cut position = {.bag = 20};
    struct eb_bag_tile tile = cut(1, 10, &position);
    assert_tile(&tile, 20, 30);
    tile = cut(1, 1000, &position);
    assert_tile(&tile, 30, 100);
}

static void goes_on_into_the_next_jobs(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 2, 4};
    use_starts(&jobs[0], starts, 2);
    use_starts(&jobs[1], starts, 0);
    use_starts(&jobs[2], starts, 2);
    struct eb_bag_cut position = {0};
    struct eb_bag_tile tile = cut(JOBS, 6, &position);
    assert_ptr_equal(tile.jobs, &jobs[0]);
    assert_int_equal(tile.job_count, 3);
    assert_tile(&tile, 0, 1);
    struct eb_bag_range range = eb_bag_tile_range(&tile, 0);
    assert_int_equal(range.bag_first, 0);
    assert_int_equal(range.bag_end, 2);
    assert_int_equal(range.element_end, DIM);
    range = eb_bag_tile_range(&tile, 1);
    assert_int_equal(range.bag_end, 0);
    range = eb_bag_tile_range(&tile, 2);
    assert_int_equal(range.bag_end, 1);
    tile = cut(JOBS, 6, &position);
    assert_ptr_equal(tile.jobs, &jobs[2]);
    assert_tile(&tile, 1, 2);
    assert_true(eb_bag_cut_is_over(jobs, JOBS, &position));
}

static void splits_a_giant_bag_by_columns(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 2, 1002, 1004};
    use_starts(&jobs[0], starts, 3);
    struct eb_bag_cut position = {0};
    struct eb_bag_tile tile = cut(1, 100, &position);
    assert_tile(&tile, 0, 1);
    for (uint32_t piece = 0; piece < 2; piece++) {
        /* No piece of a row is shorter than two cache lines. */
        tile = cut(1, 100, &position);
        assert_int_equal(tile.bag_first, 1);
        assert_int_equal(tile.bag_end, 2);
        assert_int_equal(tile.element_first, piece * DIM / 2);
        assert_int_equal(tile.element_end, (piece + 1) * DIM / 2);
        assert_int_equal(eb_bag_tile_range(&tile, 0).element_first, piece * DIM / 2);
    }
    tile = cut(1, 100, &position);
    assert_tile(&tile, 2, 3);
    assert_true(eb_bag_cut_is_over(jobs, 1, &position));
}

static void ends_a_bag_in_columns_whatever_the_target_becomes(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 1000, 1001};
    use_starts(&jobs[0], starts, 2);
    struct eb_bag_cut position = {0};
    struct eb_bag_tile tile = cut(1, 100, &position);
    assert_int_equal(tile.element_end, DIM / 2);
    tile = cut(1, 5000, &position);
    assert_int_equal(tile.bag_end, 1);
    assert_int_equal(tile.element_first, DIM / 2);
    assert_int_equal(tile.element_end, DIM);
    tile = cut(1, 100, &position);
    assert_tile(&tile, 1, 2);
}

static void keeps_a_giant_bag_whole_where_rows_are_short(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 1000};
    use_starts(&jobs[0], starts, 1);
    table.row_elements = 32;
    struct eb_bag_cut position = {0};
    struct eb_bag_tile tile = cut(1, 1, &position);
    assert_tile(&tile, 0, 1);
}

static void ends_groups_at_enough_rows(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 100, 163, 164, 170};
    use_starts(&jobs[0], starts, 4);
    table.row_stride_bytes = 512; /* 64 rows fill a group. */
    assert_int_equal(eb_bag_group_end(&jobs[0], 0, 4), 1);
    assert_int_equal(eb_bag_group_end(&jobs[0], 1, 4), 3);
    assert_int_equal(eb_bag_group_end(&jobs[0], 1, 2), 2);
    assert_int_equal(eb_bag_group_end(&jobs[0], 3, 4), 4);
    use_starts(&jobs[0], NULL, 100);
    table.row_stride_bytes = 512;
    assert_int_equal(eb_bag_group_end(&jobs[0], 0, 100), 64);
    assert_int_equal(eb_bag_group_end(&jobs[0], 64, 100), 100);
    table.row_stride_bytes = 256;
    assert_int_equal(eb_bag_group_end(&jobs[0], 0, 100), 100);
    assert_int_equal(eb_bag_group_end(&jobs[0], 0, 200), 128);
    table.row_stride_bytes = 32768 * 2;
    assert_int_equal(eb_bag_group_end(&jobs[0], 7, 100), 8);
}

EB_TEST_GROUP(bag_tile)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_groups_at_enough_rows),
        cmocka_unit_test(cuts_where_enough_rows_are_gathered),
        cmocka_unit_test(takes_one_bag_at_least),
        cmocka_unit_test(counts_empty_bags_as_rows),
        cmocka_unit_test(counts_results_that_are_longer_than_rows),
        cmocka_unit_test(cuts_rows_of_none),
        cmocka_unit_test(goes_on_into_the_next_jobs),
        cmocka_unit_test(splits_a_giant_bag_by_columns),
        cmocka_unit_test(ends_a_bag_in_columns_whatever_the_target_becomes),
        cmocka_unit_test(keeps_a_giant_bag_whole_where_rows_are_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
