#include "kernels/bag_prefetch.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define ROWS 128
#define JOBS 3
#define MEMORY_BYTES 65536
#define F32_BLOCK 16
#define INT8_BLOCK 32

static _Alignas(64) uint8_t memory[MEMORY_BYTES];
static int64_t rows[JOBS][ROWS];
static struct eb_table tables[JOBS];
static struct eb_bag_job jobs[JOBS];
static struct eb_bag_schedules schedules;
static uint32_t block_elements[EB_STORAGE_COUNT];
static struct eb_bag_prefetch prefetch;

static void use_schedule(struct eb_bag_schedule schedule)
{
    for (unsigned i = 0; i < EB_BAG_ROW_CLASS_COUNT; i++) {
        schedules.of_class[i] = schedule;
    }
}

/* Makes table n, which lies at `offset` in the memory. */
static void use_f32(unsigned n, uint32_t elements, uint64_t stride, size_t offset)
{
    tables[n] = (struct eb_table){
        .rows = memory + offset,
        .row_count = ROWS,
        .row_stride_bytes = stride,
        .row_elements = elements,
        .storage = EB_STORAGE_F32,
        .type = EB_F32,
        .unknown_row = -1,
    };
}

static void use_int8(uint32_t elements, uint64_t stride, size_t offset)
{
    use_f32(0, elements, stride, offset);
    tables[0].storage = EB_STORAGE_INT8;
}

static void use_scales(size_t offset, uint64_t stride)
{
    tables[0].scales = memory + offset;
    tables[0].scale_stride_bytes = stride;
}

/* Makes job n. If `starts` is NULL, each bag has one row. */
static void use_job(unsigned n, const uint32_t *starts, uint32_t bag_count)
{
    jobs[n] = (struct eb_bag_job){
        .table = &tables[n], .rows = rows[n], .starts = starts, .bag_count = bag_count};
}

static struct eb_bag_tile tile_of(unsigned first, uint32_t job_count)
{
    return (struct eb_bag_tile){
        .jobs = &jobs[first],
        .job_count = job_count,
        .bag_end = jobs[first + job_count - 1].bag_count,
        .element_end = UINT32_MAX,
    };
}

static void begin_prefetch(const struct eb_bag_tile *tile, const struct eb_bag_tile *next)
{
    eb_bag_prefetch_begin(&prefetch, tile, next);
}

static void begin_first_jobs(uint32_t job_count)
{
    struct eb_bag_tile tile = tile_of(0, job_count);
    begin_prefetch(&tile, NULL);
}

static void pool_part(const struct eb_bag_tile *tile, uint32_t step_count)
{
    struct eb_bag_range range = eb_bag_tile_range(tile, 0);
    eb_bag_prefetch_range(&prefetch, &range);
    for (uint32_t i = 0; i < step_count; i++) {
        eb_bag_prefetch_step(&prefetch);
    }
}

/* Expects the cursor to step over these rows of job n, from bounds[0] to before bounds[1]. The
 * columns begin at `offset` in row 0. */
static void expect_run(
    struct eb_bag_cursor *cursor, unsigned n, const uint32_t bounds[2], size_t offset)
{
    for (uint32_t i = bounds[0]; i < bounds[1]; i++) {
        eb_bag_cursor_step(&prefetch, cursor);
        assert_false(cursor->is_over);
        assert_ptr_equal(cursor->at - 1, &rows[n][i]);
        assert_int_equal(cursor->at[-1], rows[n][i]);
        assert_int_equal(cursor->base, (uintptr_t)memory + offset);
        assert_int_equal(cursor->row_stride_bytes, tables[n].row_stride_bytes);
    }
}
#define BOUNDS(first, end) ((const uint32_t[2]){first, end})

static void expect_over(struct eb_bag_cursor *cursor)
{
    const int64_t *at = cursor->at;
    eb_bag_cursor_step(&prefetch, cursor);
    assert_true(cursor->is_over);
    assert_int_equal(cursor->line_count, 0);
    assert_false(cursor->is_plain);
    assert_ptr_equal(cursor->at, at);
}

static void expect_lines(
    const struct eb_bag_cursor *cursor, uint32_t line_count, uint32_t last_byte)
{
    assert_int_equal(cursor->line_count, line_count);
    assert_int_equal(cursor->last_byte, last_byte);
}

/* Expects the near cursor to prefetch these lines of the first row of table 0, which is pooled in
 * one block. */
static void expect_near_lines(uint32_t line_count, uint32_t last_byte)
{
    use_job(0, NULL, 1);
    begin_first_jobs(1);
    eb_bag_cursor_step(&prefetch, &prefetch.near);
    expect_lines(&prefetch.near, line_count, last_byte);
}

static int set_up(void **state)
{
    (void)state;
    for (unsigned n = 0; n < JOBS; n++) {
        for (int64_t i = 0; i < ROWS; i++) {
            rows[n][i] = (i * 37 + n) % ROWS;
        }
    }
    schedules.cached_bytes = 0;
    schedules.nearby_bytes = 0;
    use_schedule((struct eb_bag_schedule){64, false, 32, false});
    block_elements[EB_STORAGE_F32] = F32_BLOCK;
    block_elements[EB_STORAGE_INT8] = INT8_BLOCK;
    eb_bag_prefetch_init(&prefetch, &schedules, block_elements);
    return 0;
}

static void takes_rows_of_one_block_in_order(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 70, 70, 75};
    use_f32(0, 16, 64, 128);
    use_job(0, starts, 3);
    rows[0][3] = EB_ROW_ZERO;
    begin_first_jobs(1);
    expect_run(&prefetch.near, 0, BOUNDS(0, 1), 128);
    assert_ptr_equal(prefetch.near.end, &rows[0][75]);
    expect_run(&prefetch.near, 0, BOUNDS(1, 75), 128);
    expect_over(&prefetch.near);
    expect_run(&prefetch.far, 0, BOUNDS(0, 75), 128);
    expect_over(&prefetch.far);
}

static void takes_the_bags_of_a_tile_only(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 2, 5, 9, 20};
    use_f32(0, 16, 64, 0);
    use_job(0, starts, 4);
    struct eb_bag_tile tile = tile_of(0, 1);
    tile.bag_first = 1;
    tile.bag_end = 3;
    begin_prefetch(&tile, NULL);
    expect_run(&prefetch.near, 0, BOUNDS(2, 9), 0);
    expect_over(&prefetch.near);
}

static void takes_blocks_group_by_group(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 40, 80, 81};
    use_f32(0, 40, 192, 0);
    use_job(0, starts, 3);
    begin_first_jobs(1);
    expect_run(&prefetch.near, 0, BOUNDS(0, 80), 0);
    expect_lines(&prefetch.near, 1, 63);
    expect_run(&prefetch.near, 0, BOUNDS(0, 80), 64);
    expect_lines(&prefetch.near, 1, 63);
    expect_run(&prefetch.near, 0, BOUNDS(0, 80), 128);
    expect_lines(&prefetch.near, 1, 31);
    for (size_t block = 0; block < 3; block++) {
        expect_run(&prefetch.near, 0, BOUNDS(80, 81), block * 64);
    }
    expect_over(&prefetch.near);
}

static void takes_blocks_of_rows_without_starts(void **state)
{
    (void)state;
    use_f32(0, 32, 128, 0);
    use_job(0, NULL, 70);
    begin_first_jobs(1);
    expect_run(&prefetch.far, 0, BOUNDS(0, 64), 0);
    expect_run(&prefetch.far, 0, BOUNDS(0, 64), 64);
    expect_run(&prefetch.far, 0, BOUNDS(64, 70), 0);
    expect_run(&prefetch.far, 0, BOUNDS(64, 70), 64);
    expect_over(&prefetch.far);
}

static void counts_a_line_more_where_rows_may_straddle(void **state)
{
    (void)state;
    use_f32(0, 16, 64, 0);
    expect_near_lines(1, 63);
    use_f32(0, 16, 64, 4);
    expect_near_lines(2, 63);
    use_f32(0, 16, 68, 0);
    expect_near_lines(2, 63);
    use_f32(0, 8, 32, 0);
    expect_near_lines(1, 31);
    use_f32(0, 8, 32, 16);
    expect_near_lines(2, 31);
    use_f32(0, 8, 48, 0);
    expect_near_lines(2, 31);
    use_f32(0, 4, 48, 16);
    expect_near_lines(1, 15);
}

static void counts_the_lines_of_a_long_block(void **state)
{
    (void)state;
    block_elements[EB_STORAGE_F32] = 128;
    use_f32(0, 128, 512, 0);
    expect_near_lines(8, 511);
    use_f32(0, 128, 512, 32);
    expect_near_lines(9, 511);
    use_f32(0, 72, 288, 0);
    expect_near_lines(5, 287);
    use_f32(0, 72, 288, 16);
    expect_near_lines(6, 287);
}

static void prefetches_far_what_the_schedule_says(void **state)
{
    (void)state;
    block_elements[EB_STORAGE_F32] = 64;
    use_f32(0, 64, 256, 0);
    use_job(0, NULL, 8);
    begin_first_jobs(1);
    expect_run(&prefetch.far, 0, BOUNDS(0, 1), 0);
    expect_lines(&prefetch.far, 1, 0);
    /* Only the schedule of the class of these rows applies. */
    schedules.of_class[2] = (struct eb_bag_schedule){64, true, 32, true};
    begin_first_jobs(1);
    expect_run(&prefetch.far, 0, BOUNDS(0, 1), 0);
    expect_lines(&prefetch.far, 4, 255);
    assert_false(prefetch.far.is_l1);
    expect_run(&prefetch.near, 0, BOUNDS(0, 1), 0);
    expect_lines(&prefetch.near, 4, 255);
    assert_true(prefetch.near.is_l1);
}

static void counts_rows_where_the_schedule_is_off(void **state)
{
    (void)state;
    use_schedule((struct eb_bag_schedule){0, true, 0, true});
    use_int8(32, 32, 0);
    use_scales(4096, 8);
    use_job(0, NULL, 5);
    begin_first_jobs(1);
    struct eb_bag_cursor *cursors[] = {&prefetch.far, &prefetch.near};
    for (unsigned i = 0; i < 2; i++) {
        expect_run(cursors[i], 0, BOUNDS(0, 5), 0);
        assert_int_equal(cursors[i]->line_count, 0);
        assert_false(cursors[i]->is_l1);
        assert_int_equal(cursors[i]->scales, 0);
        expect_over(cursors[i]);
    }
}

static void takes_the_columns_of_a_tile_only(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 1, 21};
    use_f32(0, 80, 320, 0);
    use_job(0, starts, 2);
    struct eb_bag_tile tile = tile_of(0, 1);
    tile.bag_first = 1;
    tile.element_first = 32;
    tile.element_end = 56;
    begin_prefetch(&tile, NULL);
    expect_run(&prefetch.near, 0, BOUNDS(1, 21), 128);
    expect_lines(&prefetch.near, 1, 63);
    expect_run(&prefetch.near, 0, BOUNDS(1, 21), 192);
    expect_lines(&prefetch.near, 1, 31);
    expect_over(&prefetch.near);
}

static void prefetches_scales_apart_once(void **state)
{
    (void)state;
    use_int8(64, 64, 0);
    use_scales(16384, 12);
    use_job(0, NULL, 3);
    begin_first_jobs(1);
    expect_run(&prefetch.far, 0, BOUNDS(0, 3), 0);
    assert_int_equal(prefetch.far.scales, (uintptr_t)memory + 16384);
    assert_int_equal(prefetch.far.scale_stride_bytes, 12);
    expect_run(&prefetch.far, 0, BOUNDS(0, 3), 32);
    assert_int_equal(prefetch.far.scales, 0);
    expect_run(&prefetch.near, 0, BOUNDS(0, 3), 0);
    assert_int_equal(prefetch.near.scales, 0);
}

static void leaves_scales_to_the_near_cursor_if_no_far_one_prefetches(void **state)
{
    (void)state;
    use_schedule((struct eb_bag_schedule){0, false, 32, false});
    use_int8(64, 64, 0);
    use_scales(16384, 8);
    use_job(0, NULL, 3);
    begin_first_jobs(1);
    expect_run(&prefetch.far, 0, BOUNDS(0, 3), 0);
    assert_int_equal(prefetch.far.scales, 0);
    expect_run(&prefetch.near, 0, BOUNDS(0, 3), 0);
    assert_int_equal(prefetch.near.scales, (uintptr_t)memory + 16384);
    assert_int_equal(prefetch.near.scale_stride_bytes, 8);
    expect_run(&prefetch.near, 0, BOUNDS(0, 3), 32);
    assert_int_equal(prefetch.near.scales, 0);
}

static void prefetches_scales_in_front_with_their_rows(void **state)
{
    (void)state;
    use_int8(64, 128, 8);
    use_scales(0, 128);
    use_job(0, NULL, 3);
    begin_first_jobs(1);
    expect_run(&prefetch.near, 0, BOUNDS(0, 3), 0);
    expect_lines(&prefetch.near, 1, 39);
    assert_int_equal(prefetch.near.scales, 0);
    expect_run(&prefetch.near, 0, BOUNDS(0, 3), 40);
    assert_int_equal(prefetch.near.last_byte, 31);
    expect_over(&prefetch.near);
    expect_run(&prefetch.far, 0, BOUNDS(0, 3), 0);
    assert_int_equal(prefetch.far.scales, 0);
}

static void steps_over_jobs_without_bags(void **state)
{
    (void)state;
    static const uint32_t bag_counts[JOBS] = {2, 0, 2};
    for (unsigned n = 0; n < JOBS; n++) {
        use_f32(n, 32, 128, 0);
        use_job(n, NULL, bag_counts[n]);
    }
    begin_first_jobs(JOBS);
    for (unsigned n = 0; n < JOBS; n += 2) {
        expect_run(&prefetch.near, n, BOUNDS(0, 2), 0);
        expect_run(&prefetch.near, n, BOUNDS(0, 2), 64);
    }
    expect_over(&prefetch.near);
}

static void prefetches_nearby_tables_as_is_said_for_them(void **state)
{
    (void)state;
    use_int8(64, 64, 0);
    schedules.nearby = (struct eb_bag_schedule){0, false, 16, true};
    schedules.nearby_bytes = tables[0].row_count * 64 - 1;
    assert_ptr_equal(eb_bag_schedule_find(&schedules, &tables[0]), &schedules.of_class[0]);
    schedules.nearby_bytes++;
    assert_ptr_equal(eb_bag_schedule_find(&schedules, &tables[0]), &schedules.nearby);
    assert_true(eb_bag_prefetch_is_on(&prefetch, &tables[0]));
    use_f32(1, 16, 64, 0);
    assert_false(eb_bag_prefetch_is_on(&prefetch, &tables[1]));
    use_job(0, NULL, 5);
    begin_first_jobs(1);
    expect_run(&prefetch.near, 0, BOUNDS(0, 5), 0);
    assert_true(prefetch.near.is_l1);
    expect_run(&prefetch.far, 0, BOUNDS(0, 5), 0);
    assert_int_equal(prefetch.far.line_count, 0);
}

static void steps_over_tables_that_are_not_prefetched(void **state)
{
    (void)state;
    static const uint32_t none[] = {0, 0};
    use_f32(0, 16, 64, 0);
    use_f32(1, 16, 64, 64);
    use_f32(2, 16, 64, 128);
    tables[1].row_count = 4;
    schedules.nearby_bytes = 4 * 64;
    assert_true(eb_bag_prefetch_is_on(&prefetch, &tables[0]));
    assert_false(eb_bag_prefetch_is_on(&prefetch, &tables[1]));
    for (unsigned n = 0; n < JOBS; n++) {
        use_job(n, NULL, 5);
    }
    begin_first_jobs(JOBS);
    expect_run(&prefetch.near, 0, BOUNDS(0, 5), 0);
    expect_run(&prefetch.near, 2, BOUNDS(0, 5), 128);
    expect_over(&prefetch.near);
    tables[1].row_count = 5;
    begin_first_jobs(JOBS);
    expect_run(&prefetch.near, 0, BOUNDS(0, 5), 0);
    expect_run(&prefetch.near, 1, BOUNDS(0, 5), 64);
    /* This job has only empty bags, and is skipped. */
    use_job(1, none, 1);
    begin_first_jobs(JOBS);
    expect_run(&prefetch.near, 0, BOUNDS(0, 5), 0);
    expect_run(&prefetch.near, 2, BOUNDS(0, 5), 128);
    block_elements[EB_STORAGE_F32] = 0;
    assert_false(eb_bag_prefetch_is_on(&prefetch, &tables[0]));
}

/* Makes a tile of 10 rows and one of 100. */
static void use_two_tiles(struct eb_bag_tile tiles[2])
{
    use_f32(0, 16, 64, 0);
    use_f32(1, 16, 64, 64);
    use_job(0, NULL, 10);
    use_job(1, NULL, 100);
    tiles[0] = tile_of(0, 1);
    tiles[1] = tile_of(1, 1);
}

static void runs_ahead_as_far_as_the_schedule_says(void **state)
{
    (void)state;
    struct eb_bag_tile tiles[2];
    use_two_tiles(tiles);
    begin_prefetch(&tiles[1], NULL);
    pool_part(&tiles[1], 0);
    assert_ptr_equal(prefetch.near.at, &rows[1][32]);
    assert_ptr_equal(prefetch.far.at, &rows[1][64]);
    eb_bag_prefetch_step(&prefetch);
    assert_ptr_equal(prefetch.near.at, &rows[1][33]);
    assert_ptr_equal(prefetch.far.at, &rows[1][65]);
}

static void takes_spans_up_to_the_next_run_of_either_cursor(void **state)
{
    (void)state;
    struct eb_bag_tile tiles[2];
    use_two_tiles(tiles);
    begin_prefetch(&tiles[0], &tiles[1]);
    pool_part(&tiles[0], 0);
    /* In the second tile, which has 100 rows, the far cursor has 46 rows left and the near cursor
     * 78. */
    struct eb_bag_span span = eb_bag_prefetch_span(&prefetch, 1000);
    assert_ptr_equal(span.prefetch, &prefetch);
    assert_ptr_equal(span.far, &rows[1][54]);
    assert_ptr_equal(span.near, &rows[1][22]);
    assert_int_equal(span.count, 46);
    /* The far cursor has reached its end: it limits no span and does not move. */
    span = eb_bag_prefetch_span(&prefetch, 1000);
    assert_true(prefetch.far.is_over);
    assert_int_equal(prefetch.far.line_count, 0);
    assert_ptr_equal(prefetch.far.at, &rows[1][100]);
    assert_ptr_equal(span.near, &rows[1][68]);
    assert_int_equal(span.count, 32);
    assert_int_equal(eb_bag_prefetch_span(&prefetch, 1000).count, 1000);
    assert_true(prefetch.near.is_over);
}

static void keeps_what_was_prefetched_for_the_next_tile(void **state)
{
    (void)state;
    struct eb_bag_tile tiles[2];
    use_two_tiles(tiles);
    begin_prefetch(&tiles[0], &tiles[1]);
    pool_part(&tiles[0], 10);
    assert_ptr_equal(prefetch.near.at, &rows[1][32]);
    assert_ptr_equal(prefetch.far.at, &rows[1][64]);
    begin_prefetch(&tiles[1], &tiles[0]);
    pool_part(&tiles[1], 0);
    assert_ptr_equal(prefetch.near.at, &rows[1][32]);
    assert_ptr_equal(prefetch.far.at, &rows[1][64]);
    expect_run(&prefetch.near, 1, BOUNDS(32, 100), 64);
    expect_run(&prefetch.near, 0, BOUNDS(0, 10), 0);
    expect_over(&prefetch.near);
}

static void goes_on_after_a_cursor_was_over(void **state)
{
    (void)state;
    struct eb_bag_tile tiles[2];
    use_two_tiles(tiles);
    jobs[1].bag_count = 5;
    tiles[1].bag_end = 5;
    begin_prefetch(&tiles[0], &tiles[1]);
    pool_part(&tiles[0], 10);
    assert_true(prefetch.near.is_over);
    begin_prefetch(&tiles[1], &tiles[0]);
    expect_run(&prefetch.near, 0, BOUNDS(0, 10), 0);
    expect_over(&prefetch.near);
}

static void begins_the_next_tile_where_nothing_of_it_has_been_prefetched(void **state)
{
    (void)state;
    struct eb_bag_tile tiles[2];
    use_schedule((struct eb_bag_schedule){16, false, 0, false});
    use_two_tiles(tiles);
    begin_prefetch(&tiles[0], &tiles[1]);
    pool_part(&tiles[0], 10);
    assert_ptr_equal(prefetch.near.at, &rows[0][10]);
    use_schedule((struct eb_bag_schedule){16, false, 8, false});
    begin_prefetch(&tiles[1], NULL);
    pool_part(&tiles[1], 0);
    assert_ptr_equal(prefetch.near.at, &rows[1][8]);
    assert_ptr_equal(prefetch.far.at, &rows[1][16]);
}

static void starts_again_with_another_tile(void **state)
{
    (void)state;
    struct eb_bag_tile tiles[2];
    use_two_tiles(tiles);
    begin_prefetch(&tiles[0], &tiles[1]);
    pool_part(&tiles[0], 10);
    struct eb_bag_tile other = tiles[1];
    other.bag_first = 1;
    begin_prefetch(&other, NULL);
    pool_part(&other, 0);
    assert_ptr_equal(prefetch.near.at, &rows[1][33]);
    assert_ptr_equal(prefetch.far.at, &rows[1][65]);
}

static void starts_again_where_the_tile_was_forgotten(void **state)
{
    (void)state;
    struct eb_bag_tile tiles[2];
    use_two_tiles(tiles);
    begin_prefetch(&tiles[0], &tiles[1]);
    pool_part(&tiles[0], 10);
    eb_bag_prefetch_forget(&prefetch);
    begin_prefetch(&tiles[1], NULL);
    expect_run(&prefetch.near, 1, BOUNDS(0, 1), 64);
}

static bool is_short(uint32_t row_count, uint32_t elements)
{
    use_f32(0, elements, (uint64_t)elements * 4, 0);
    use_job(0, NULL, row_count);
    struct eb_bag_tile tile = tile_of(0, 1);
    struct eb_bag_range range = eb_bag_tile_range(&tile, 0);
    return eb_bag_prefetch_short(&prefetch, &range);
}

static void prefetches_few_rows_at_once(void **state)
{
    (void)state;
    assert_true(is_short(1, 16));
    assert_true(is_short(EB_BAG_SHORT_ROWS, 16));
    assert_false(is_short(EB_BAG_SHORT_ROWS + 1, 16));
}

static void prefetches_few_bytes_at_once(void **state)
{
    (void)state;
    assert_true(is_short(64, 256));
    assert_false(is_short(64, 257));
    assert_true(is_short(16, 1024));
    assert_false(is_short(17, 1024));
}

EB_TEST_GROUP(bag_prefetch)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        TEST(takes_rows_of_one_block_in_order),
        TEST(takes_the_bags_of_a_tile_only),
        TEST(takes_blocks_group_by_group),
        TEST(takes_blocks_of_rows_without_starts),
        TEST(counts_a_line_more_where_rows_may_straddle),
        TEST(counts_the_lines_of_a_long_block),
        TEST(prefetches_far_what_the_schedule_says),
        TEST(counts_rows_where_the_schedule_is_off),
        TEST(takes_the_columns_of_a_tile_only),
        TEST(prefetches_scales_apart_once),
        TEST(leaves_scales_to_the_near_cursor_if_no_far_one_prefetches),
        TEST(prefetches_scales_in_front_with_their_rows),
        TEST(steps_over_jobs_without_bags),
        TEST(prefetches_nearby_tables_as_is_said_for_them),
        TEST(steps_over_tables_that_are_not_prefetched),
        TEST(runs_ahead_as_far_as_the_schedule_says),
        TEST(takes_spans_up_to_the_next_run_of_either_cursor),
        TEST(keeps_what_was_prefetched_for_the_next_tile),
        TEST(goes_on_after_a_cursor_was_over),
        TEST(begins_the_next_tile_where_nothing_of_it_has_been_prefetched),
        TEST(starts_again_with_another_tile),
        TEST(starts_again_where_the_tile_was_forgotten),
        TEST(prefetches_few_rows_at_once),
        TEST(prefetches_few_bytes_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
