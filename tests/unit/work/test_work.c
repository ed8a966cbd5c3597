#include "server/work/work.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define BAGS 500
#define DIM 64

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

/* Two jobs of bags of ten rows, answered in bf16. */
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
    const struct eb_bag_tile whole = {
        .jobs = jobs, .job_count = 1, .bag_first = 3, .bag_end = 4, .element_end = UINT32_MAX};
    struct eb_bag_tile part = whole;
    part.element_first = DIM / 2;
    assert_int_equal(eb_work_tile_bytes(&whole), 10 * DIM * sizeof(float) + DIM * 2);
    assert_int_equal(eb_work_tile_bytes(&part) * 2, eb_work_tile_bytes(&whole));
}

/* As the work's weight has them: once a row, however many pieces its columns are in. */
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
    const uint64_t bytes = 10 * (DIM + sizeof(struct eb_row_scale)) + DIM * 2;
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

EB_TEST_GROUP(work)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_tiles_that_add_up_to_what_is_read_and_written),
        cmocka_unit_test(counts_the_columns_of_a_bag_that_is_cut),
        cmocka_unit_test(counts_scales_with_the_first_columns),
        cmocka_unit_test(has_no_last_tile_without_bags),
        cmocka_unit_test(expires_at_its_deadline_or_when_it_is_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
