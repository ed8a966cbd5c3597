/* The functions under test are compiled into this file, so that every prefetch is noted here
 * instead of being left to the processor. */
static void note_prefetch(const void *address, int is_write, int locality);
#define __builtin_prefetch note_prefetch
#define eb_bag_prefetch_init noted_prefetch_init
#define eb_bag_prefetch_begin noted_prefetch_begin
#define eb_bag_prefetch_heads noted_prefetch_heads
#include "kernels/bag_prefetch.c"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define JOBS 6
#define ROWS_MAX 400
#define NOTES_MAX 8192
/* Nothing is read at the addresses of the tables. */
#define TABLE_BYTES (UINT64_C(1) << 24)
#define SCALES (UINT64_C(1) << 44)
#define L1 3
#define L2 2

struct note {
    uintptr_t address;
    int locality;
};

static struct note notes[NOTES_MAX];
static uint32_t note_count;
static uint32_t checked_count; /* notes that were compared with what was expected */

static struct eb_table tables[JOBS];
static struct eb_bag_job jobs[JOBS];
static int64_t *row_lists[JOBS]; /* no longer than needed, for the address sanitizer */
static uint32_t no_rows[ROWS_MAX + 1];
static struct eb_bag_schedules schedules;
static struct eb_bag_prefetch prefetch;

static void note_prefetch(const void *address, int is_write, int locality)
{
    assert_int_equal(is_write, 0);
    assert_true(note_count < NOTES_MAX);
    notes[note_count++] = (struct note){(uintptr_t)address, locality};
}

/* ---- tables and jobs ---- */

static uintptr_t table_base(unsigned n)
{
    return (uintptr_t)(TABLE_BYTES * (n + 1));
}

static void use_schedule(struct eb_bag_schedule schedule)
{
    for (unsigned i = 0; i < EB_BAG_ROW_CLASS_COUNT; i++) {
        schedules.of_class[i] = schedule;
    }
}

/* Makes table n, of f32. */
static void use_table(unsigned n, uint32_t elements, uint64_t stride_bytes)
{
    tables[n] = (struct eb_table){
        .rows = (const void *)table_base(n),
        .row_count = TABLE_BYTES / stride_bytes,
        .row_stride_bytes = stride_bytes,
        .row_elements = elements,
        .storage = EB_STORAGE_F32,
        .type = EB_F32,
        .unknown_row = -1,
    };
}

/* Makes job n, each bag of which has one row. Its rows are no neighbours. */
static void use_job(unsigned n, uint32_t row_count)
{
    free(row_lists[n]);
    row_lists[n] = malloc(row_count * sizeof(int64_t) + (row_count == 0));
    assert_non_null(row_lists[n]);
    for (uint32_t i = 0; i < row_count; i++) {
        row_lists[n][i] = (int64_t)i * 7 % ROWS_MAX + n;
    }
    jobs[n] = (struct eb_bag_job){
        .table = &tables[n],
        .lines = eb_bag_lines_find(&tables[n], 0, tables[n].row_elements),
        .rows = row_lists[n],
        .bag_count = row_count,
    };
}

/* Makes `count` jobs of these numbers of rows, all of one cache line. */
static void use_jobs(const uint32_t *row_counts, unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        use_table(n, 16, 64);
        use_job(n, row_counts[n]);
    }
}
#define JOBS_OF(...)                                                                               \
    use_jobs((const uint32_t[]){__VA_ARGS__},                                                      \
        sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* Makes the rows of table n ones that are not prefetched. */
static void turn_off(unsigned n)
{
    jobs[n].lines.table_bytes = schedules.cached_bytes;
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

static void begin_jobs(unsigned first, uint32_t job_count)
{
    struct eb_bag_tile tile = tile_of(first, job_count);
    eb_bag_prefetch_begin(&prefetch, &tile, NULL);
}

static void pool_rows(uint64_t row_count)
{
    eb_bag_prefetch_heads(&prefetch, row_count);
}

/* ---- expectations ---- */

static void expect_line(uintptr_t address, int locality)
{
    assert_true(checked_count < note_count);
    const struct note *note = &notes[checked_count++];
    assert_int_equal(note->address / EB_LINE_BYTES, address / EB_LINE_BYTES);
    assert_int_equal(note->locality, locality);
}

/* Expects rows first .. end - 1 of job n, of one cache line each, to have been prefetched next. */
static void expect_rows(unsigned n, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        expect_line(table_base(n) + (uintptr_t)row_lists[n][i] * 64, L2);
    }
}

static void expect_nothing_else(void)
{
    assert_int_equal(note_count, checked_count);
}

static void expect_cursor(unsigned n, uint32_t taken, uint32_t head_count, int64_t rows_before)
{
    const struct eb_bag_cursor *cursor = &prefetch.cursor;
    expect_nothing_else();
    assert_ptr_equal(cursor->job, &jobs[n]);
    assert_int_equal(cursor->taken, taken);
    assert_int_equal(cursor->head_count, head_count);
    assert_int_equal(prefetch.rows_before, rows_before);
}

static int set_up(void **state)
{
    (void)state;
    note_count = 0;
    checked_count = 0;
    schedules = (struct eb_bag_schedules){.cached_bytes = 1};
    use_schedule((struct eb_bag_schedule){0, false, 32, false});
    eb_bag_prefetch_init(&prefetch, &schedules);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned n = 0; n < JOBS; n++) {
        free(row_lists[n]);
        row_lists[n] = NULL;
    }
    return 0;
}

/* ---- heads of ranges ---- */

static void prefetches_the_head_of_the_first_range(void **state)
{
    (void)state;
    JOBS_OF(100);
    begin_jobs(0, 1);
    expect_nothing_else();
    pool_rows(100);
    expect_rows(0, 0, 32);
    expect_cursor(0, 32, 32, -100);
}

static void prefetches_no_more_rows_than_a_range_has(void **state)
{
    (void)state;
    static const uint32_t row_counts[] = {1, 31, 32, 33};
    for (size_t i = 0; i < 4; i++) {
        JOBS_OF(row_counts[i]);
        begin_jobs(0, 1);
        pool_rows(row_counts[i]);
        uint32_t head_count = row_counts[i] < 32 ? row_counts[i] : 32;
        expect_rows(0, 0, head_count);
        expect_cursor(0, head_count, head_count, -(int64_t)row_counts[i]);
    }
}

static void prefetches_the_next_head_before_a_range_is_pooled(void **state)
{
    (void)state;
    JOBS_OF(40, 100);
    begin_jobs(0, 2);
    pool_rows(40);
    expect_rows(0, 0, 32);
    expect_rows(1, 0, 32);
    expect_cursor(1, 32, 32, 0);
    pool_rows(100);
    expect_cursor(1, 32, 32, -100);
}

static void prefetches_heads_across_short_ranges(void **state)
{
    (void)state;
    JOBS_OF(10, 10, 10, 100);
    begin_jobs(0, 4);
    pool_rows(10);
    expect_rows(0, 0, 10);
    expect_rows(1, 0, 10);
    expect_rows(2, 0, 10);
    expect_rows(3, 0, 12); /* Row 12 is 32 rows after row 10 of those pooled. */
    expect_cursor(3, 12, 32, 20);
    pool_rows(10);
    expect_rows(3, 12, 22);
    expect_cursor(3, 22, 32, 10);
    pool_rows(10);
    expect_rows(3, 22, 32);
    expect_cursor(3, 32, 32, 0);
    pool_rows(100);
    expect_cursor(3, 32, 32, -100);
}

static void steps_over_ranges_without_rows(void **state)
{
    (void)state;
    JOBS_OF(5, 0, 4, 6);
    jobs[2].starts = no_rows; /* empty bags */
    begin_jobs(0, 4);
    pool_rows(5);
    expect_rows(0, 0, 5);
    expect_rows(3, 0, 6);
    expect_cursor(3, 6, 6, 0);
    pool_rows(0);
    pool_rows(0);
    expect_cursor(3, 6, 6, 0);
    pool_rows(6);
    expect_cursor(3, 6, 6, -6);
}

static void finds_no_rows_in_a_tile_of_empty_bags(void **state)
{
    (void)state;
    JOBS_OF(4, 0);
    jobs[0].starts = no_rows;
    begin_jobs(0, 2);
    pool_rows(0);
    pool_rows(0);
    expect_nothing_else();
    assert_null(prefetch.cursor.job);
}

static void takes_the_bags_of_a_tile_only(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0, 3, 3, 10, 30};
    JOBS_OF(30, 20);
    jobs[0].starts = starts;
    jobs[0].bag_count = 4;
    struct eb_bag_tile tile = tile_of(0, 2);
    tile.bag_first = 1;
    tile.bag_end = 7;
    eb_bag_prefetch_begin(&prefetch, &tile, NULL);
    pool_rows(27);
    expect_rows(0, 3, 30);
    expect_rows(1, 0, 7);
    expect_cursor(1, 7, 7, 0);
    tile = tile_of(1, 1);
    tile.bag_first = 3;
    tile.bag_end = 9;
    eb_bag_prefetch_begin(&prefetch, &tile, NULL);
    pool_rows(6);
    expect_rows(1, 3, 9);
    expect_cursor(1, 6, 6, -6);
}

static void prefetches_no_rows_of_tables_that_need_none(void **state)
{
    (void)state;
    JOBS_OF(50, 20, 100);
    turn_off(1);
    begin_jobs(0, 3);
    pool_rows(50);
    expect_rows(0, 0, 32);
    expect_rows(2, 0, 12);
    expect_cursor(2, 12, 32, 20);
    pool_rows(20);
    expect_rows(2, 12, 32);
    expect_cursor(2, 32, 32, 0);
    use_schedule((struct eb_bag_schedule){0});
    begin_jobs(0, 3);
    pool_rows(50);
    expect_cursor(2, 0, 0, 20);
    assert_null(prefetch.cursor.schedule);
}

/* The cursor does not move far ahead of pooling, even if there is nothing to prefetch. */
static void enters_a_range_within_its_reach_only(void **state)
{
    (void)state;
    JOBS_OF(50, REACH_ROWS - 1, 100);
    turn_off(1);
    begin_jobs(0, 3);
    pool_rows(50);
    expect_rows(0, 0, 32);
    expect_cursor(2, 0, 32, REACH_ROWS - 1);
    JOBS_OF(50, REACH_ROWS, 100);
    turn_off(1);
    begin_jobs(0, 3);
    pool_rows(50);
    expect_rows(0, 0, 32);
    expect_cursor(1, 0, 0, 0);
    pool_rows(REACH_ROWS);
    expect_rows(2, 0, 32);
    expect_cursor(2, 32, 32, 0);
}

static void prefetches_heads_after_the_last_part_of_a_long_range(void **state)
{
    (void)state;
    JOBS_OF(400, 100);
    begin_jobs(0, 2);
    pool_rows(400 - REACH_ROWS);
    expect_rows(0, 0, 32);
    expect_cursor(0, 32, 32, REACH_ROWS - 400);
    pool_rows(REACH_ROWS);
    expect_rows(1, 0, 32);
    expect_cursor(1, 32, 32, 0);
}

/* ---- tiles ---- */

static void keeps_what_was_prefetched_for_the_next_tile(void **state)
{
    (void)state;
    JOBS_OF(10, 100, 5);
    struct eb_bag_tile tiles[] = {tile_of(0, 1), tile_of(1, 1), tile_of(2, 1)};
    eb_bag_prefetch_begin(&prefetch, &tiles[0], &tiles[1]);
    pool_rows(10);
    expect_rows(0, 0, 10);
    expect_rows(1, 0, 32);
    expect_cursor(1, 32, 32, 0);
    eb_bag_prefetch_begin(&prefetch, &tiles[1], &tiles[2]);
    pool_rows(100);
    expect_rows(2, 0, 5);
    expect_cursor(2, 5, 5, 0);
    eb_bag_prefetch_begin(&prefetch, &tiles[2], NULL);
    pool_rows(5);
    expect_cursor(2, 5, 5, -5);
}

static void goes_on_within_a_head_of_the_next_tile(void **state)
{
    (void)state;
    JOBS_OF(10, 20, 100);
    struct eb_bag_tile tiles[] = {tile_of(0, 1), tile_of(1, 2)};
    eb_bag_prefetch_begin(&prefetch, &tiles[0], &tiles[1]);
    pool_rows(10);
    expect_rows(0, 0, 10);
    expect_rows(1, 0, 20);
    expect_rows(2, 0, 12);
    expect_cursor(2, 12, 32, 20);
    eb_bag_prefetch_begin(&prefetch, &tiles[1], NULL);
    pool_rows(20);
    expect_rows(2, 12, 32);
    expect_cursor(2, 32, 32, 0);
}

static void goes_on_after_a_tile_without_rows(void **state)
{
    (void)state;
    JOBS_OF(10, 3, 40);
    jobs[1].starts = no_rows;
    struct eb_bag_tile tiles[] = {tile_of(0, 1), tile_of(1, 1), tile_of(2, 1)};
    eb_bag_prefetch_begin(&prefetch, &tiles[0], &tiles[1]);
    pool_rows(10);
    expect_rows(0, 0, 10);
    expect_cursor(0, 10, 10, -10);
    eb_bag_prefetch_begin(&prefetch, &tiles[1], &tiles[2]);
    pool_rows(0);
    expect_rows(2, 0, 32);
    expect_cursor(2, 32, 32, 0);
    eb_bag_prefetch_begin(&prefetch, &tiles[2], NULL);
    pool_rows(40);
    expect_cursor(2, 32, 32, -40);
}

static void starts_again_with_a_tile_that_was_not_known(void **state)
{
    (void)state;
    JOBS_OF(10, 40);
    struct eb_bag_tile tiles[] = {tile_of(0, 1), tile_of(1, 1)};
    eb_bag_prefetch_begin(&prefetch, &tiles[0], NULL);
    pool_rows(10);
    expect_rows(0, 0, 10);
    eb_bag_prefetch_begin(&prefetch, &tiles[1], NULL);
    pool_rows(40);
    expect_rows(1, 0, 32);
    expect_cursor(1, 32, 32, -40);
    /* The same tile once more is another one, too. */
    eb_bag_prefetch_begin(&prefetch, &tiles[1], NULL);
    pool_rows(40);
    expect_rows(1, 0, 32);
    expect_cursor(1, 32, 32, -40);
}

static void starts_again_with_another_tile(void **state)
{
    (void)state;
    JOBS_OF(10, 40, 40);
    struct eb_bag_tile first = tile_of(0, 1);
    struct eb_bag_tile next = tile_of(1, 1);
    struct eb_bag_tile others[5];
    for (size_t i = 0; i < 5; i++) {
        others[i] = next;
    }
    others[0].jobs = &jobs[2];
    others[1].bag_first = 1;
    others[2].bag_end = 39;
    others[3].job_count = 2;
    others[4].element_first = 8;
    for (size_t i = 0; i < 5; i++) {
        eb_bag_prefetch_begin(&prefetch, &first, &next);
        pool_rows(10);
        expect_rows(0, 0, 10);
        expect_rows(1, 0, 32);
        eb_bag_prefetch_begin(&prefetch, &others[i], NULL);
        pool_rows(38);
        uint32_t from = others[i].bag_first;
        expect_rows(i == 0 ? 2 : 1, from, from + 32);
        checked_count = note_count;
    }
}

static void starts_again_if_the_tile_before_was_not_pooled(void **state)
{
    (void)state;
    JOBS_OF(200, 200, 40);
    struct eb_bag_tile tiles[] = {tile_of(0, 2), tile_of(2, 1)};
    for (uint32_t pooled = 0; pooled <= 50; pooled += 50) {
        eb_bag_prefetch_begin(&prefetch, &tiles[0], &tiles[1]);
        if (pooled > 0) {
            pool_rows(pooled);
            expect_rows(0, 0, 32);
        }
        eb_bag_prefetch_begin(&prefetch, &tiles[1], NULL);
        pool_rows(40);
        expect_rows(2, 0, 32);
        expect_cursor(2, 32, 32, -40);
    }
}

/* ---- distances, lines and levels ---- */

static void takes_the_distance_at_which_whole_rows_are_prefetched(void **state)
{
    (void)state;
    static const struct {
        struct eb_bag_schedule schedule;
        uint32_t distance;
        int locality;
    } cases[] = {
        {{0, false, 16, true}, 16, L1},
        {{0, false, 48, false}, 48, L2},
        {{64, false, 24, false}, 24, L2},
        {{64, false, 16, true}, 16, L1},
        {{64, true, 4, true}, 64, L2},
        {{20, false, 0, false}, 20, L2},
        {{20, true, 0, false}, 20, L2},
        {{0, true, 16, true}, 16, L1},
    };
    JOBS_OF(100);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        use_schedule(cases[i].schedule);
        begin_jobs(0, 1);
        pool_rows(100);
        for (uint32_t row = 0; row < cases[i].distance; row++) {
            uintptr_t address = table_base(0) + (uintptr_t)row_lists[0][row] * 64;
            expect_line(address, cases[i].locality);
        }
        expect_cursor(0, cases[i].distance, cases[i].distance, -100);
    }
}

static void uses_the_schedule_of_each_table(void **state)
{
    (void)state;
    JOBS_OF(8, 20, 20);
    schedules.of_class[0] = (struct eb_bag_schedule){0, false, 5, false};
    schedules.of_class[1] = (struct eb_bag_schedule){0, false, 3, false};
    schedules.nearby[0] = (struct eb_bag_schedule){0, false, 7, false};
    schedules.nearby_bytes = 4096;
    jobs[1].lines.row_class = 1;
    jobs[2].lines.table_bytes = 4096;
    begin_jobs(0, 3);
    pool_rows(8);
    expect_rows(0, 0, 5);
    expect_rows(1, 0, 3);
    expect_cursor(2, 0, 7, 20);
    pool_rows(20);
    expect_rows(2, 0, 7);
    expect_cursor(2, 7, 7, 0);
}

static void prefetches_every_line_of_a_row(void **state)
{
    (void)state;
    use_table(0, 25, 100);
    use_job(0, 3);
    begin_jobs(0, 1);
    pool_rows(3);
    for (unsigned i = 0; i < 3; i++) {
        uintptr_t row = table_base(0) + (uintptr_t)row_lists[0][i] * 100;
        expect_line(row, L2);
        expect_line(row + 64, L2);
        expect_line(row + 99, L2);
    }
    use_table(0, 32, 128);
    use_job(0, 1);
    begin_jobs(0, 1);
    pool_rows(1);
    expect_line(table_base(0), L2);
    expect_line(table_base(0) + 64, L2);
    expect_nothing_else();
}

static void prefetches_rows_of_any_number_of_lines(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= EB_BAG_LINES_MAX; count++) {
        for (int is_l1 = 0; is_l1 < 2; is_l1++) {
            use_schedule((struct eb_bag_schedule){0, false, 2, is_l1});
            use_table(0, count * 16, (uint64_t)count * 64);
            use_job(0, 2);
            begin_jobs(0, 1);
            pool_rows(2);
            for (uint32_t line = 0; line < 2 * count; line++) {
                uintptr_t row = (uintptr_t)row_lists[0][line / count];
                uintptr_t address = table_base(0) + (row * count + line % count) * 64;
                expect_line(address, is_l1 ? L1 : L2);
            }
            expect_nothing_else();
        }
    }
}

static void prefetches_the_first_and_the_last_lines_of_a_huge_row(void **state)
{
    (void)state;
    use_table(0, EB_BAG_LINES_MAX * 16 + 16, EB_BAG_LINES_MAX * 64 + 64);
    use_job(0, 1);
    begin_jobs(0, 1);
    pool_rows(1);
    for (unsigned line = 0; line < EB_BAG_LINES_MAX - 1; line++) {
        expect_line(table_base(0) + line * 64, L2);
    }
    expect_line(table_base(0) + EB_BAG_LINES_MAX * 64, L2);
    expect_nothing_else();
}

/* A tile that is a portion of one bag has some columns of each row. */
static void prefetches_the_columns_of_a_tile_only(void **state)
{
    (void)state;
    use_table(0, 128, 512);
    use_job(0, 2);
    struct eb_bag_tile tile = tile_of(0, 1);
    tile.element_first = 32;
    tile.element_end = 64;
    eb_bag_prefetch_begin(&prefetch, &tile, NULL);
    pool_rows(2);
    for (unsigned i = 0; i < 2; i++) {
        uintptr_t row = table_base(0) + (uintptr_t)row_lists[0][i] * 512;
        expect_line(row + 128, L2);
        expect_line(row + 192, L2);
    }
    expect_nothing_else();
}

/* Turns the f32 rows of table 0 into rows of codes of 8 bits. */
static void use_codes(uintptr_t scales, uint64_t scale_stride_bytes)
{
    tables[0].storage = EB_STORAGE_INT8;
    tables[0].scales = (const void *)scales;
    tables[0].scale_stride_bytes = scale_stride_bytes;
    use_job(0, 20);
}

static void prefetches_scales_apart(void **state)
{
    (void)state;
    use_table(0, 64, 64);
    use_codes(SCALES, 8);
    begin_jobs(0, 1);
    pool_rows(20);
    expect_rows(0, 0, 20);
    for (unsigned i = 0; i < 20; i++) {
        expect_line(SCALES + (uintptr_t)row_lists[0][i] * 8, L2);
    }
    expect_cursor(0, 20, 20, -20);
}

static void prefetches_scales_with_their_rows(void **state)
{
    (void)state;
    use_table(0, 64, 72);
    use_codes(table_base(0) - 8, 72);
    begin_jobs(0, 1);
    pool_rows(20);
    for (unsigned i = 0; i < 20; i++) {
        uintptr_t row = table_base(0) + (uintptr_t)row_lists[0][i] * 72;
        expect_line(row - 8, L2);
        expect_line(row + 63, L2);
    }
    expect_nothing_else();
}

static void takes_rows_of_zeros_for_rows(void **state)
{
    (void)state;
    JOBS_OF(3);
    row_lists[0][1] = EB_ROW_ZERO;
    begin_jobs(0, 1);
    pool_rows(3);
    expect_rows(0, 0, 3);
    expect_cursor(0, 3, 3, -3);
}

/* ---- while a range is pooled ---- */

/* Takes the step at row `i` of job 0. */
static void step_at(const struct eb_bag_schedule *schedule, uint32_t i)
{
    struct eb_bag_ahead ahead = {schedule, jobs[0].rows + jobs[0].bag_count};
    eb_bag_ahead_step(&ahead, &tables[0], &jobs[0].lines, jobs[0].rows + i);
}

static uintptr_t long_row(uint32_t i)
{
    return table_base(0) + (uintptr_t)row_lists[0][i] * 128;
}

static void expect_long_row(uint32_t i, int locality)
{
    expect_line(long_row(i), locality);
    expect_line(long_row(i) + 64, locality);
}

static void steps_at_both_distances(void **state)
{
    (void)state;
    struct eb_bag_schedule schedule = {8, false, 3, true};
    use_table(0, 32, 128);
    use_job(0, 20);
    step_at(&schedule, 0);
    expect_line(long_row(8), L2);
    expect_long_row(3, L1);
    schedule = (struct eb_bag_schedule){8, true, 3, false};
    step_at(&schedule, 5);
    expect_long_row(13, L2);
    expect_long_row(8, L2);
    schedule = (struct eb_bag_schedule){8, false, 0, false};
    step_at(&schedule, 5);
    expect_line(long_row(13), L2);
    schedule = (struct eb_bag_schedule){0, false, 8, false};
    step_at(&schedule, 5);
    expect_long_row(13, L2);
    expect_nothing_else();
}

static void steps_no_further_than_the_range(void **state)
{
    (void)state;
    struct eb_bag_schedule schedule = {8, false, 3, false};
    use_table(0, 32, 128);
    use_job(0, 20);
    step_at(&schedule, 11);
    expect_line(long_row(19), L2);
    expect_long_row(14, L2);
    step_at(&schedule, 12);
    expect_long_row(15, L2);
    step_at(&schedule, 16);
    expect_long_row(19, L2);
    step_at(&schedule, 17);
    step_at(&schedule, 19);
    expect_nothing_else();
}

static void steps_over_scales_apart(void **state)
{
    (void)state;
    struct eb_bag_schedule schedule = {8, false, 3, true};
    use_table(0, 64, 64);
    use_codes(SCALES, 8);
    step_at(&schedule, 2);
    expect_line(table_base(0) + (uintptr_t)row_lists[0][10] * 64, L2);
    expect_line(table_base(0) + (uintptr_t)row_lists[0][5] * 64, L1);
    expect_line(SCALES + (uintptr_t)row_lists[0][5] * 8, L2);
    expect_nothing_else();
}

/* ---- any sequence of tiles ---- */

static uint64_t seed = 1;

static uint32_t draw_prefetch(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % below);
}

/* One range that the cursor knows. */
struct segment {
    unsigned job;
    uint64_t first; /* number of rows, since the cursor started, before the range */
    uint32_t row_count;
    uint32_t distance; /* 0: not prefetched */
    uint32_t taken;
};

static struct segment segments[2 * JOBS];
static unsigned segment_count;
static uint64_t pooled_count;

static void add_segment(unsigned job)
{
    uint64_t first = 0;
    if (segment_count > 0) {
        first = segments[segment_count - 1].first + segments[segment_count - 1].row_count;
    }
    const struct eb_bag_schedule *schedule = eb_bag_schedule_find(&schedules, &jobs[job].lines);
    segments[segment_count++] = (struct segment){
        .job = job,
        .first = first,
        .row_count = jobs[job].bag_count,
        .distance = schedule ? schedule->near_rows : 0,
    };
}

/* Expects what the rows that are pooled now make due: in every range, the rows at most its distance
 * after the last of them, but none before all of the range before. */
static void expect_heads(uint32_t row_count)
{
    pooled_count += row_count;
    for (unsigned s = 0; s < segment_count; s++) {
        struct segment *segment = &segments[s];
        if (s > 0 && segment->first >= pooled_count + REACH_ROWS) {
            return;
        }
        int64_t head =
            segment->distance < segment->row_count ? segment->distance : segment->row_count;
        int64_t due = (int64_t)(pooled_count + segment->distance) - (int64_t)segment->first;
        due = due < head ? due : head;
        if (due > segment->taken) {
            expect_rows(segment->job, segment->taken, (uint32_t)due);
            segment->taken = (uint32_t)due;
        }
        if (segment->taken < head) {
            return;
        }
    }
}

static void draw_tiles_of(const uint32_t *row_counts)
{
    use_jobs(row_counts, JOBS);
    for (unsigned n = 0; n < JOBS; n++) {
        jobs[n].lines.row_class = (uint8_t)draw_prefetch(EB_BAG_ROW_CLASS_COUNT);
        if (draw_prefetch(4) == 0) {
            turn_off(n);
        }
    }
    for (unsigned i = 0; i < EB_BAG_ROW_CLASS_COUNT; i++) {
        schedules.of_class[i].near_rows = (uint16_t)draw_prefetch(i % 2 ? 100 : 10);
    }
}

/* Pools the rows of a job in up to two parts. */
static void pool_parts(unsigned job)
{
    uint32_t part = draw_prefetch(2) ? draw_prefetch(jobs[job].bag_count + 1) : 0;
    if (part > 0) {
        pool_rows(part);
        expect_heads(part);
    }
    pool_rows(jobs[job].bag_count - part);
    expect_heads(jobs[job].bag_count - part);
    expect_nothing_else();
}

/* Jobs first .. middle - 1 are one tile, those from middle on the next. */
static void pool_two_tiles(unsigned first, unsigned middle, bool is_known)
{
    struct eb_bag_tile tile = tile_of(first, middle - first);
    struct eb_bag_tile next = tile_of(middle, JOBS - middle);
    segment_count = 0;
    pooled_count = 0;
    for (unsigned n = first; n < (is_known ? JOBS : middle); n++) {
        add_segment(n);
    }
    eb_bag_prefetch_begin(&prefetch, &tile, is_known ? &next : NULL);
    for (unsigned n = first; n < middle; n++) {
        pool_parts(n);
    }
    if (!is_known) {
        segment_count = 0;
        pooled_count = 0;
        for (unsigned n = middle; n < JOBS; n++) {
            add_segment(n);
        }
    }
    eb_bag_prefetch_begin(&prefetch, &next, NULL);
    for (unsigned n = middle; n < JOBS; n++) {
        pool_parts(n);
    }
}

static void prefetches_each_head_once_and_in_time(void **state)
{
    (void)state;
    for (unsigned trial = 0; trial < 3000; trial++) {
        uint32_t row_counts[JOBS];
        uint32_t below = 1 + draw_prefetch(draw_prefetch(2) ? ROWS_MAX : 20);
        for (unsigned n = 0; n < JOBS; n++) {
            row_counts[n] = draw_prefetch(4) ? draw_prefetch(below) : 0;
        }
        note_count = 0;
        checked_count = 0;
        draw_tiles_of(row_counts);
        eb_bag_prefetch_init(&prefetch, &schedules);
        pool_two_tiles(0, 1 + draw_prefetch(JOBS - 1), draw_prefetch(2));
    }
}

static bool is_prefetched(const struct eb_bag_job *job)
{
    return !!eb_bag_prefetch_schedule(&schedules, job);
}

/* Checks that tables from `bytes` + 1 on are prefetched, and those of `bytes` only if they
 * `are_prefetched`. */
static void expect_from(struct eb_bag_job *job, uint64_t bytes, bool are_prefetched)
{
    job->lines.table_bytes = bytes;
    assert_int_equal(is_prefetched(job), are_prefetched);
    job->lines.table_bytes = bytes + 1;
    assert_true(is_prefetched(job));
}

static void needs_larger_tables_without_own_functions(void **state)
{
    (void)state;
    JOBS_OF(8);
    struct eb_table table = *jobs[0].table;
    struct eb_bag_job job = jobs[0];
    job.table = &table;
    table.row_elements = 16;
    schedules.generic_cached_bytes = 1000;
    schedules.nearby_bytes = 2000;
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        schedules.nearby[class] = (struct eb_bag_schedule){0, false, 12, true};
    }
    for (int reduction = 1; reduction < EB_REDUCTION_COUNT; reduction++) {
        job.reduction = (enum eb_reduction)reduction;
        table.storage = EB_STORAGE_INT8;
        expect_from(&job, 1000, reduction <= EB_REDUCTION_SQRTN);
        table.storage = EB_STORAGE_F32;
        expect_from(&job, 2000, reduction <= EB_REDUCTION_SQRTN);
        table.storage = EB_STORAGE_F8_E4M3;
        expect_from(&job, 1000, false);
        table.storage = EB_STORAGE_I8;
        expect_from(&job, 2000, false);
    }
    job.reduction = EB_REDUCTION_SUM;
    table.storage = EB_STORAGE_INT8;
    job.has_zero_rows = true;
    expect_from(&job, 1000, false);
    job.has_zero_rows = false;
    job.lines.is_compact = false;
    expect_from(&job, 1000, false);
    job.lines.is_compact = true;
    expect_from(&job, 1000, true);
    table.row_elements = 20;
    expect_from(&job, 1000, false);
}

EB_TEST_GROUP(bag_prefetch)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(prefetches_the_head_of_the_first_range),
        TEST(needs_larger_tables_without_own_functions),
        TEST(prefetches_no_more_rows_than_a_range_has),
        TEST(prefetches_the_next_head_before_a_range_is_pooled),
        TEST(prefetches_heads_across_short_ranges),
        TEST(steps_over_ranges_without_rows),
        TEST(finds_no_rows_in_a_tile_of_empty_bags),
        TEST(takes_the_bags_of_a_tile_only),
        TEST(prefetches_no_rows_of_tables_that_need_none),
        TEST(enters_a_range_within_its_reach_only),
        TEST(prefetches_heads_after_the_last_part_of_a_long_range),
        TEST(keeps_what_was_prefetched_for_the_next_tile),
        TEST(goes_on_within_a_head_of_the_next_tile),
        TEST(goes_on_after_a_tile_without_rows),
        TEST(starts_again_with_a_tile_that_was_not_known),
        TEST(starts_again_with_another_tile),
        TEST(starts_again_if_the_tile_before_was_not_pooled),
        TEST(takes_the_distance_at_which_whole_rows_are_prefetched),
        TEST(uses_the_schedule_of_each_table),
        TEST(prefetches_every_line_of_a_row),
        TEST(prefetches_rows_of_any_number_of_lines),
        TEST(prefetches_the_first_and_the_last_lines_of_a_huge_row),
        TEST(prefetches_the_columns_of_a_tile_only),
        TEST(prefetches_scales_apart),
        TEST(prefetches_scales_with_their_rows),
        TEST(takes_rows_of_zeros_for_rows),
        TEST(steps_at_both_distances),
        TEST(steps_no_further_than_the_range),
        TEST(steps_over_scales_apart),
        TEST(prefetches_each_head_once_and_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
