/* How a job is cut into slices. */
#include "server/route/route_slice.h"
#include "tests/lib/test_group.h"
#include "tests/unit/route/parted_table.h"

#include <stdlib.h>

#define PARTS 3

/* Bags of 4, 0, 2, 1 and 5 rows of 8 bytes. */
static const int64_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1};
static const uint32_t starts[] = {0, 4, 4, 6, 7, 12};

struct fixture {
    struct eb_table table;
    struct eb_bag_job job;
    struct eb_arena arena;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    fixture->table = table_of(EB_F32, NULL, 10, 2);
    fixture->job = (struct eb_bag_job){
        .table = &fixture->table,
        .rows = rows,
        .starts = starts,
        .bag_count = 5,
        .reduction = EB_REDUCTION_SUM,
        .output_type = EB_F32,
        .default_row = -1,
    };
    eb_arena_init(&fixture->arena, &eb_memory_heap);
    eb_arena_reset(&fixture->arena, 1 << 20);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_arena_deinit(&fixture->arena);
    free(fixture);
    return 0;
}

static void none_cannot_be_cut(void **state)
{
    struct fixture *fixture = *state;
    assert_true(eb_route_can_slice(&fixture->job));
    fixture->job.reduction = EB_REDUCTION_NONE;
    assert_false(eb_route_can_slice(&fixture->job));
}

static void counts_a_row_for_each_part_at_most(void **state)
{
    struct fixture *fixture = *state;
    /* One more row than parts, because missing rows may be replaced by a vector. */
    assert_int_equal(eb_route_slice_bytes(&fixture->job, 0, 1, PARTS), 4 * 8);
    assert_int_equal(eb_route_slice_bytes(&fixture->job, 4, 5, PARTS), 4 * 8);
    assert_int_equal(eb_route_slice_bytes(&fixture->job, 0, 5, PARTS), 11 * 8);
    assert_int_equal(eb_route_slice_bytes(&fixture->job, 1, 2, PARTS), 0);
}

static void counts_each_row_of_an_integer_mean(void **state)
{
    struct fixture *fixture = *state;
    fixture->table = table_of(EB_I64, NULL, 10, 2);
    fixture->job.reduction = EB_REDUCTION_MEAN;
    assert_int_equal(eb_route_slice_bytes(&fixture->job, 4, 5, PARTS), 5 * 16);
    assert_int_equal(eb_route_slice_bytes(&fixture->job, 0, 5, PARTS), 12 * 16);
}

static void sums_are_counted_in_their_type(void **state)
{
    struct fixture *fixture = *state;
    fixture->table = table_of(EB_F16, NULL, 10, 2);
    assert_int_equal(eb_route_sum_bytes(&fixture->job), 8);
    fixture->table = table_of(EB_F64, NULL, 10, 2);
    assert_int_equal(eb_route_sum_bytes(&fixture->job), 16);
    fixture->table = table_of(EB_I8, NULL, 10, 2);
    assert_int_equal(eb_route_sum_bytes(&fixture->job), 2);
}

static void a_slice_ends_before_it_has_too_many_bytes(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(eb_route_slice_end(&fixture->job, 0, PARTS, 6 * 8), 3);
    assert_int_equal(eb_route_slice_end(&fixture->job, 0, PARTS, 6 * 8 - 1), 2);
    assert_int_equal(eb_route_slice_end(&fixture->job, 3, PARTS, 5 * 8), 5);
    assert_int_equal(eb_route_slice_end(&fixture->job, 0, PARTS, UINT64_MAX), 5);
}

static void a_slice_has_a_bag_at_least(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(eb_route_slice_end(&fixture->job, 0, PARTS, 1), 1);
    assert_int_equal(eb_route_slice_end(&fixture->job, 4, PARTS, 0), 5);
}

/* Expects bags [begin, end) as a job of its own. */
static void expect_slice(struct fixture *fixture, uint32_t begin, uint32_t end)
{
    struct eb_bag_job slice;
    assert_true(eb_route_slice(&fixture->job, begin, end, &fixture->arena, &slice));
    assert_int_equal(slice.bag_count, end - begin);
    assert_int_equal(slice.starts[0], 0);
    assert_ptr_equal(slice.rows, rows + starts[begin]);
    for (uint32_t bag = begin; bag < end; bag++) {
        assert_int_equal(slice.starts[bag - begin + 1] - slice.starts[bag - begin],
            starts[bag + 1] - starts[bag]);
    }
    assert_int_equal(slice.reduction, fixture->job.reduction);
    assert_ptr_equal(slice.table, fixture->job.table);
}

static void slices_have_the_bags_of_the_job(void **state)
{
    for (uint32_t begin = 0; begin < 5; begin++) {
        for (uint32_t end = begin + 1; end <= 5; end++) {
            expect_slice(*state, begin, end);
        }
    }
}

static void expect_weights(struct fixture *fixture, size_t bytes)
{
    static const uint64_t weights[12];
    struct eb_bag_job slice;
    fixture->job.weights = weights;
    assert_true(eb_route_slice(&fixture->job, 3, 5, &fixture->arena, &slice));
    assert_ptr_equal(slice.weights, (const uint8_t *)weights + 6 * bytes);
}

static void slices_have_their_weights(void **state)
{
    struct fixture *fixture = *state;
    expect_weights(fixture, sizeof(float));
    fixture->table = table_of(EB_F16, NULL, 10, 2);
    expect_weights(fixture, sizeof(float));
    fixture->table = table_of(EB_F64, NULL, 10, 2);
    expect_weights(fixture, sizeof(double));
    fixture->table = table_of(EB_I8, NULL, 10, 2);
    expect_weights(fixture, sizeof(uint64_t)); /* A job keeps weights of integers in 64 bits. */
}

static void memory_runs_out(void **state)
{
    struct fixture *fixture = *state;
    struct eb_bag_job slice;
    eb_arena_reset(&fixture->arena, 8);
    assert_false(eb_route_slice(&fixture->job, 0, 5, &fixture->arena, &slice));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(route_slice)
{
    const struct CMUnitTest tests[] = {
        TEST(none_cannot_be_cut),
        TEST(counts_a_row_for_each_part_at_most),
        TEST(counts_each_row_of_an_integer_mean),
        TEST(sums_are_counted_in_their_type),
        TEST(a_slice_ends_before_it_has_too_many_bytes),
        TEST(a_slice_has_a_bag_at_least),
        TEST(slices_have_the_bags_of_the_job),
        TEST(slices_have_their_weights),
        TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
