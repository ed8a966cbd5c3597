/* How queries on tables in parts are split. */
#include "tests/lib/test_group.h"
#include "tests/unit/route/parted_table.h"

#include <stdlib.h>
#include <string.h>

/* A job on a table of 10 rows in 3 parts, and its split. */
struct fixture {
    struct eb_table table;
    struct eb_bag_job job;
    struct eb_route_query query;
    struct eb_route_split split;
    struct eb_arena arena;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    fixture->table = table_of(EB_F32, NULL, 10, 2);
    fixture->job = (struct eb_bag_job){
        .table = &fixture->table,
        .reduction = EB_REDUCTION_SUM,
        .output_type = EB_F32,
        .default_row = -1,
    };
    fixture->query = (struct eb_route_query){
        .job = &fixture->job, .rule = {3, false, 0}, .missing = EB_MISSING_ERROR};
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

static void split_rows(struct fixture *fixture, const int64_t *rows, const uint32_t *starts)
{
    fixture->job.rows = rows;
    fixture->job.starts = starts;
    assert_true(eb_route_split(&fixture->query, &fixture->arena, &fixture->split));
}

static void assert_sub(const struct eb_route_sub *sub, uint32_t part, const int64_t *indices,
    uint32_t index_count, const uint32_t *bags)
{
    assert_int_equal(sub->part, part);
    assert_int_equal(sub->index_count, index_count);
    assert_memory_equal(sub->indices, indices, index_count * sizeof *indices);
    if (bags) {
        assert_memory_equal(sub->bags, bags, sub->bag_count * sizeof *bags);
    }
}

static void deals_rows_in_order(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t rows[] = {4, 0, 7, 9, 1, 1};
    static const uint32_t starts[] = {0, 3, 3, 6};
    fixture->job.bag_count = 3;
    split_rows(fixture, rows, starts);
    /* Rows 0 and 9 are in part 0; 4, 7, 1 and 1 in part 1; part 2 has none. */
    assert_int_equal(fixture->split.sub_count, 2);
    const struct eb_route_sub *subs = fixture->split.subs;
    assert_sub(&subs[0], 0, (int64_t[]){0, 3}, 2, (uint32_t[]){0, 2});
    assert_sub(&subs[1], 1, (int64_t[]){1, 2, 0, 0}, 4, (uint32_t[]){0, 2});
    assert_int_equal(subs[1].bag_count, 2);
    assert_memory_equal(subs[1].lengths, ((int32_t[]){2, 2}), 8);
    assert_memory_equal(subs[1].positions, ((uint32_t[]){0, 2, 4, 5}), 16);
    assert_int_equal(subs[0].result_row, 0);
    assert_int_equal(subs[1].result_row, 2);
    assert_int_equal(fixture->split.result_row_count, 4);
}

static void leaves_out_zeros_and_keeps_vectors(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t rows[] = {EB_ROW_ZERO, 2, EB_ROW_VECTOR, 5};
    static const uint32_t starts[] = {0, 4};
    fixture->job.bag_count = 1;
    split_rows(fixture, rows, starts);
    assert_int_equal(fixture->split.sub_count, 1);
    assert_sub(&fixture->split.subs[0], 2, (int64_t[]){0, 1}, 2, (uint32_t[]){0});
    assert_sub(&fixture->split.vectors, 3, (int64_t[]){EB_ROW_VECTOR}, 1, (uint32_t[]){0});
    assert_int_equal(fixture->split.vectors.result_row, 1);
    assert_int_equal(fixture->split.result_row_count, 2);
}

static void keys_may_have_the_numbers_of_zeros_and_vectors(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t rows[] = {EB_ROW_ZERO, EB_ROW_VECTOR};
    static const uint32_t starts[] = {0, 2};
    fixture->query.rule = (struct eb_part_rule){1, true, 99};
    fixture->query.missing = EB_MISSING_ZERO;
    fixture->job.bag_count = 1;
    split_rows(fixture, rows, starts);
    assert_int_equal(fixture->split.sub_count, 1);
    assert_sub(&fixture->split.subs[0], 0, rows, 2, (uint32_t[]){0});
    assert_int_equal(fixture->split.subs[0].missing, EB_MISSING_SKIP);
    assert_true(fixture->split.subs[0].reports_missing);
}

static void unknown_keys_are_replaced_in_the_part(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t rows[] = {7};
    static const uint32_t starts[] = {0, 1};
    fixture->query.rule = (struct eb_part_rule){1, true, 99};
    fixture->query.missing = EB_MISSING_UNKNOWN_ROW;
    fixture->job.bag_count = 1;
    split_rows(fixture, rows, starts);
    assert_int_equal(fixture->split.subs[0].missing, EB_MISSING_UNKNOWN_ROW);
    assert_false(fixture->split.subs[0].reports_missing);
    fixture->query.wants_missing = true;
    split_rows(fixture, rows, starts);
    assert_true(fixture->split.subs[0].reports_missing);
}

static void asks_for_sums_unless_rows_are_needed(void **state)
{
    static const struct {
        enum eb_type type;
        enum eb_reduction asked;
        enum eb_type output_type;
        enum eb_reduction sub;
        enum eb_type sub_type;
    } cases[] = {
        {EB_F16, EB_REDUCTION_SUM, EB_F16, EB_REDUCTION_SUM, EB_F32},
        {EB_BF16, EB_REDUCTION_MEAN, EB_F16, EB_REDUCTION_SUM, EB_F32},
        {EB_F64, EB_REDUCTION_SQRTN, EB_F32, EB_REDUCTION_SUM, EB_F64},
        {EB_F16, EB_REDUCTION_MAX, EB_F16, EB_REDUCTION_MAX, EB_F32},
        {EB_F64, EB_REDUCTION_NONE, EB_F16, EB_REDUCTION_NONE, EB_F16},
        {EB_I8, EB_REDUCTION_SUM, EB_I8, EB_REDUCTION_SUM, EB_I8},
        {EB_I8, EB_REDUCTION_MEAN, EB_I8, EB_REDUCTION_NONE, EB_I8},
        {EB_U64, EB_REDUCTION_MIN, EB_U64, EB_REDUCTION_MIN, EB_U64},
    };
    struct fixture *fixture = *state;
    static const int64_t rows[] = {3};
    static const uint32_t starts[] = {0, 1};
    fixture->job.bag_count = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture->table = table_of(cases[i].type, NULL, 10, 2);
        fixture->job.reduction = cases[i].asked;
        fixture->job.output_type = cases[i].output_type;
        split_rows(fixture, rows, cases[i].asked == EB_REDUCTION_NONE ? NULL : starts);
        assert_int_equal(fixture->split.subs[0].reduction, cases[i].sub);
        assert_int_equal(fixture->split.subs[0].output_type, cases[i].sub_type);
    }
}

static void narrows_the_weights_of_integers(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t rows[] = {3, 6};
    static const uint32_t starts[] = {0, 2};
    static const uint64_t weights[] = {UINT64_MAX - 1, 259};
    fixture->table = table_of(EB_I8, NULL, 10, 2);
    fixture->job.output_type = EB_I8;
    fixture->job.bag_count = 1;
    fixture->job.weights = weights;
    split_rows(fixture, rows, starts);
    assert_int_equal(fixture->split.subs[0].weights_type, EB_I8);
    assert_memory_equal(fixture->split.subs[0].weights, ((int8_t[]){-2, 3}), 2);
}

static void asks_for_the_default_row_if_a_bag_is_empty(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t rows[] = {3};
    static const uint32_t full[] = {0, 1};
    static const uint32_t empty[] = {0, 0, 1};
    fixture->query.has_default = true;
    fixture->query.default_index = 8;
    fixture->job.output_type = EB_F16;
    fixture->job.bag_count = 1;
    split_rows(fixture, rows, full);
    assert_int_equal(fixture->split.sub_count, 1);
    fixture->job.bag_count = 2;
    split_rows(fixture, rows, empty);
    assert_int_equal(fixture->split.sub_count, 2);
    assert_true(fixture->split.subs[1].is_default);
    assert_int_equal(fixture->split.subs[1].output_type, EB_F16);
    assert_sub(&fixture->split.subs[1], 2, (int64_t[]){2}, 1, NULL);
    /* -1 is no row of a dense table: zeros fill the bag. */
    fixture->query.default_index = -1;
    split_rows(fixture, rows, empty);
    assert_int_equal(fixture->split.sub_count, 1);
    /* A bag may become empty. */
    fixture->query.may_leave_out = true;
    split_rows(fixture, rows, empty);
    assert_int_equal(fixture->split.sub_count, 1);
    fixture->query.default_index = 8;
    fixture->job.bag_count = 1;
    split_rows(fixture, rows, full);
    assert_int_equal(fixture->split.sub_count, 2);
}

static void splits_a_query_without_rows(void **state)
{
    struct fixture *fixture = *state;
    static const uint32_t starts[] = {0, 0};
    fixture->job.bag_count = 1;
    split_rows(fixture, NULL, starts);
    assert_int_equal(fixture->split.sub_count, 0);
    fixture->job.bag_count = 0;
    fixture->job.reduction = EB_REDUCTION_NONE;
    split_rows(fixture, NULL, NULL);
    assert_int_equal(fixture->split.sub_count, 0);
}

static void splits_among_the_most_parts(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t rows[] = {EB_PARTS_MAX - 1, EB_PARTS_MAX};
    static const uint32_t starts[] = {0, 2};
    fixture->query.rule.parts = EB_PARTS_MAX;
    fixture->job.bag_count = 1;
    split_rows(fixture, rows, starts);
    assert_int_equal(fixture->split.sub_count, 2);
    assert_sub(&fixture->split.subs[0], 0, (int64_t[]){1}, 1, NULL);
    assert_sub(&fixture->split.subs[1], EB_PARTS_MAX - 1, (int64_t[]){0}, 1, NULL);
}

/* Splits queries of one index each, with the same memory for counts. */
static void takes_no_memory_for_parts_without_rows(void **state)
{
    struct fixture *fixture = *state;
    static const uint32_t starts[] = {0, 1};
    struct eb_route_split_counts counts = {0};
    size_t used_bytes = 0;
    fixture->query.rule.parts = EB_PARTS_MAX;
    fixture->query.counts = &counts;
    fixture->job.bag_count = 1;
    for (int64_t row = 0; row < 1000; row++) {
        split_rows(fixture, &row, starts);
        assert_int_equal(fixture->split.sub_count, 1);
        assert_sub(&fixture->split.subs[0], (uint32_t)row, (int64_t[]){0}, 1, (uint32_t[]){0});
        used_bytes = row == 0 ? fixture->arena.used_bytes : used_bytes;
    }
    assert_true(used_bytes < EB_PARTS_MAX * 32);
    assert_true(fixture->arena.used_bytes - used_bytes < 999 * 256);
}

static void counts_serve_tables_with_more_or_fewer_parts(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t rows[] = {4, EB_ROW_VECTOR, 9};
    static const uint32_t starts[] = {0, 2, 3};
    struct eb_route_split_counts counts = {0};
    fixture->query.counts = &counts;
    fixture->job.bag_count = 2;
    for (uint32_t i = 0; i < 6; i++) {
        fixture->query.rule.parts = i % 2 == 0 ? 5 + i : 6 - i;
        uint32_t parts = fixture->query.rule.parts;
        split_rows(fixture, rows, starts);
        assert_int_equal(fixture->split.sub_count, 4 % parts == 9 % parts ? 1 : 2);
        assert_sub(&fixture->split.vectors, parts, (int64_t[]){EB_ROW_VECTOR}, 1, (uint32_t[]){0});
    }
}

static void fails_if_the_arena_is_full(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t rows[] = {4, 0, EB_ROW_VECTOR, 9, 1, 1};
    static const uint32_t starts[] = {0, 3, 3, 6};
    static const float weights[6] = {1, 1, 1, 1, 1, 1};
    fixture->job.rows = rows;
    fixture->job.starts = starts;
    fixture->job.weights = weights;
    fixture->job.bag_count = 3;
    fixture->query.has_default = true;
    size_t failures = 0;
    bool is_good = false;
    for (size_t cap = 0; !is_good; cap += 16) {
        eb_arena_reset(&fixture->arena, cap);
        is_good = eb_route_split(&fixture->query, &fixture->arena, &fixture->split);
        assert_int_equal(is_good, !fixture->arena.is_exhausted);
        failures += !is_good;
    }
    assert_true(failures > 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(route_split)
{
    const struct CMUnitTest tests[] = {
        TEST(deals_rows_in_order),
        TEST(leaves_out_zeros_and_keeps_vectors),
        TEST(keys_may_have_the_numbers_of_zeros_and_vectors),
        TEST(unknown_keys_are_replaced_in_the_part),
        TEST(asks_for_sums_unless_rows_are_needed),
        TEST(narrows_the_weights_of_integers),
        TEST(asks_for_the_default_row_if_a_bag_is_empty),
        TEST(splits_a_query_without_rows),
        TEST(splits_among_the_most_parts),
        TEST(takes_no_memory_for_parts_without_rows),
        TEST(counts_serve_tables_with_more_or_fewer_parts),
        TEST(fails_if_the_arena_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
