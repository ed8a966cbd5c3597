/* Answers of parts that do not fit their sub-queries, as from a damaged or hostile server. */
#include "tests/lib/test_group.h"
#include "tests/unit/route/parted_table.h"

#include <stdlib.h>
#include <string.h>

/* A keyed table in two parts, a request with missing keys, and the sound answer of its first
 * sub-query. */
struct fixture {
    struct parted_table table;
    struct parted_request request;
    struct bag_fixture checked;
    struct eb_route_query query;
    struct eb_route_split split;
    struct eb_route_merge merge;
    struct eb_wire_result answer;
};

static int set_up(void **state)
{
    static const struct parted_options options = {
        .type = EB_F32,
        .storage = EB_STORAGE_F32,
        .parts = 2,
        .row_count = 20,
        .row_elements = 3,
        .is_keyed = true,
    };
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    parted_init(&fixture->table, &options, 5);
    do {
        parted_request_deinit(&fixture->request);
        parted_draw(&fixture->table, EB_REDUCTION_SUM, EB_MISSING_ZERO, &fixture->request);
        bag_fixture_release(&fixture->checked);
        parted_check(&fixture->table, &fixture->request.query, &fixture->checked);
        parted_answer_free(&fixture->answer);
        fixture->query = (struct eb_route_query){
            .job = &fixture->checked.job, .rule = fixture->table.rule, .missing = EB_MISSING_ZERO};
        assert_true(eb_route_split(&fixture->query, &fixture->table.arena, &fixture->split));
        fixture->answer = (struct eb_wire_result){0};
        if (fixture->split.sub_count > 0) {
            parted_answer(&fixture->table, &fixture->split.subs[0], &fixture->answer);
        }
    } while (fixture->answer.missing < 2 || fixture->answer.shape[0] < 2);
    assert_true(eb_route_merge_begin(
        &fixture->split, eb_bag_ops_find("ref"), &fixture->table.arena, &fixture->merge));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    parted_answer_free(&fixture->answer);
    parted_request_deinit(&fixture->request);
    bag_fixture_release(&fixture->checked);
    parted_deinit(&fixture->table);
    free(fixture);
    return 0;
}

static void assert_refused(
    struct fixture *fixture, const struct eb_wire_result *answer, const char *what)
{
    struct eb_error error = {0};
    assert_false(eb_route_merge_take(&fixture->merge, 0, answer, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    assert_non_null(strstr(error.text, "part 0"));
    if (!strstr(error.text, what)) {
        fail_msg("\"%s\" is not in \"%s\"", what, error.text);
    }
}

static void takes_a_sound_answer(void **state)
{
    struct fixture *fixture = *state;
    struct eb_error error = {0};
    assert_true(eb_route_merge_take(&fixture->merge, 0, &fixture->answer, &error));
    assert_int_equal(fixture->merge.missing_count, fixture->answer.missing);
    assert_true(fixture->merge.missing_count > 0);
}

/* A part answers, the answer is discarded, and then the part cannot be reached. */
static void an_answer_that_was_taken_leaves_nothing_if_its_part_is_lost(void **state)
{
    struct fixture *fixture = *state;
    struct eb_route_merge *merge = &fixture->merge;
    const struct eb_route_sub *sub = &fixture->split.subs[0];
    struct eb_error error = {0};
    assert_true(eb_route_merge_take(merge, 0, &fixture->answer, &error));
    assert_true(merge->missing_count > 0);
    assert_true(eb_route_merge_leave_out(merge, 0, &fixture->table.arena));
    assert_int_equal(merge->missing_count, 0);
    assert_int_equal(merge->unreached_count, sub->index_count);
    for (uint32_t i = 0; i < sub->index_count; i++) {
        assert_false(merge->is_missing[sub->positions[i]]);
        assert_true(merge->is_unreached[sub->positions[i]]);
    }
}

/* The row that fills empty bags is left out with its part: it has no positions in the request. */
static void a_default_row_that_is_left_out_is_zero(void **state)
{
    struct fixture *fixture = *state;
    struct eb_arena *arena = &fixture->table.arena;
    struct eb_route_query query = fixture->query;
    struct eb_route_split split;
    struct eb_route_merge merge;
    query.has_default = true;
    query.default_index = fixture->table.part_keys[0].keys[0];
    assert_true(eb_route_split(&query, arena, &split));
    assert_true(eb_route_merge_begin(&split, eb_bag_ops_find("ref"), arena, &merge));
    assert_true(split.subs[split.sub_count - 1].is_default);
    memset(merge.default_row, 1, merge.default_row_bytes);
    for (uint32_t i = 0; i < split.sub_count; i++) {
        assert_true(eb_route_merge_leave_out(&merge, i, arena));
    }
    for (uint64_t i = 0; i < merge.default_row_bytes; i++) {
        assert_int_equal(merge.default_row[i], 0);
    }
}

/* A default row that was left out is missed only by empty bags. */
static void only_an_empty_bag_lacks_the_default_row(void **state)
{
    struct fixture *fixture = *state;
    struct eb_arena *arena = &fixture->table.arena;
    static const uint32_t full[] = {0, 1, 2};
    static const uint32_t empty[] = {0, 1, 1};
    struct eb_route_query query = fixture->query;
    struct eb_route_split split;
    struct eb_route_merge merge;
    struct eb_bag_job job = {.bag_count = 2, .starts = empty};
    query.has_default = true;
    query.default_index = fixture->table.part_keys[0].keys[0];
    assert_true(eb_route_split(&query, arena, &split));
    assert_true(eb_route_merge_begin(&split, eb_bag_ops_find("ref"), arena, &merge));
    assert_false(eb_route_merge_lacks_default(&merge, &job));
    assert_true(eb_route_merge_leave_out(&merge, split.sub_count - 1, arena));
    assert_int_equal(merge.unreached_count, 0);
    assert_true(eb_route_merge_lacks_default(&merge, &job));
    job.starts = full;
    assert_false(eb_route_merge_lacks_default(&merge, &job));
    job.starts = NULL;
    assert_false(eb_route_merge_lacks_default(&merge, &job));
}

/* One server of a part lacks the key that fills empty bags, and then another one has it. */
static void a_later_answer_may_have_the_default_key(void **state)
{
    struct fixture *fixture = *state;
    struct eb_arena *arena = &fixture->table.arena;
    struct eb_route_query query = fixture->query;
    struct eb_route_split split;
    struct eb_route_merge merge;
    struct eb_wire_result result;
    struct eb_error error = {0};
    query.has_default = true;
    query.default_index = fixture->table.part_keys[0].keys[0];
    assert_true(eb_route_split_whole(&query, 0, arena, &split));
    assert_true(eb_route_merge_begin(&split, eb_bag_ops_find("ref"), arena, &merge));
    struct eb_wire_result refusal = {.error_code = EB_STATUS_OUT_OF_RANGE};
    assert_true(eb_route_merge_take(&merge, 0, &refusal, &error));
    assert_true(merge.is_default_missing);
    parted_answer(&fixture->table, &split.subs[0], &result);
    if (!eb_route_merge_take(&merge, 0, &result, &error)) {
        fail_msg("%s", error.text);
    }
    assert_false(merge.is_default_missing);
    parted_answer_free(&result);
}

/* The answers to a query on a whole table come in pieces, only one of which says that the default
 * key is missing. */
static void another_piece_says_nothing_about_the_default_key(void **state)
{
    struct fixture *fixture = *state;
    struct eb_arena *arena = &fixture->table.arena;
    static const struct eb_route_caps small = {1, UINT64_MAX, UINT32_MAX, 0};
    struct eb_route_query query = fixture->query;
    struct eb_route_split split;
    struct eb_route_merge merge;
    struct eb_wire_result result;
    struct eb_error error = {0};
    query.has_default = true;
    query.default_index = INT64_C(1) << 62;
    query.caps = &small;
    assert_true(eb_route_split_whole(&query, 0, arena, &split));
    assert_true(split.sub_count > 1);
    assert_true(eb_route_merge_begin(&split, eb_bag_ops_find("ref"), arena, &merge));
    struct eb_wire_result refusal = {.error_code = EB_STATUS_OUT_OF_RANGE};
    assert_true(eb_route_merge_take(&merge, 0, &refusal, &error));
    struct eb_route_sub other = split.subs[1];
    other.has_default = false;
    parted_answer(&fixture->table, &other, &result);
    if (!eb_route_merge_take(&merge, 1, &result, &error)) {
        fail_msg("%s", error.text);
    }
    assert_true(merge.is_default_missing);
    assert_true(eb_route_merge_leave_out(&merge, 1, arena));
    assert_true(merge.is_default_missing);
    assert_true(eb_route_merge_leave_out(&merge, 0, arena));
    assert_false(merge.is_default_missing);
    parted_answer_free(&result);
}

static void refuses_another_type(void **state)
{
    struct fixture *fixture = *state;
    struct eb_wire_result answer = fixture->answer;
    answer.type = EB_F16;
    assert_refused(fixture, &answer, "its type is f16, expected f32");
    answer.type = -1;
    assert_refused(fixture, &answer, "its type is number -1, expected f32");
}

static void refuses_another_shape(void **state)
{
    struct fixture *fixture = *state;
    struct eb_wire_result answer = fixture->answer;
    uint64_t rows = answer.shape[0];
    const uint64_t shapes[][4] = {
        {rows + 1, 3}, {rows - 1, 3}, {rows, 2}, {rows, 4}, {rows, 0}, {3, rows}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        answer.shape = shapes[i];
        assert_refused(fixture, &answer, "shape");
    }
    const uint64_t wraps[] = {rows, UINT64_C(1) << 63, 2, 3};
    answer.shape = wraps;
    answer.shape_count = 4;
    assert_refused(fixture, &answer, ", 9223372036854775808, 2, 3], expected ");
    answer.shape_count = 0;
    assert_refused(fixture, &answer, "its shape is [], expected ");
    static const uint64_t most[] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
        UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    answer.shape = most;
    answer.shape_count = 8;
    assert_refused(fixture, &answer, "18446744073709551615], expected ");
    answer.shape_count = 9;
    assert_refused(fixture, &answer, "18446744073709551615, ...], expected ");
}

static void names_the_error_of_a_result(void **state)
{
    struct fixture *fixture = *state;
    struct eb_wire_result answer = {.error_code = EB_STATUS_NOT_FOUND, .error_message = "no table"};
    assert_refused(fixture, &answer, "NOT_FOUND: no table");
    answer = (struct eb_wire_result){.error_code = 17, .error_message = ""};
    assert_refused(fixture, &answer, "error UNKNOWN");
}

static void refuses_values_of_another_size(void **state)
{
    struct fixture *fixture = *state;
    struct eb_wire_result answer = fixture->answer;
    answer.values_bytes--;
    assert_refused(fixture, &answer, "size");
    answer.values_bytes = 0;
    assert_refused(fixture, &answer, "size");
    answer.values_bytes = fixture->answer.values_bytes + 4;
    assert_refused(fixture, &answer, "size");
}

static void refuses_wrong_missing_positions(void **state)
{
    struct fixture *fixture = *state;
    struct eb_wire_result answer = fixture->answer;
    uint32_t count = fixture->split.subs[0].index_count;
    const uint32_t descending[] = {1, 0};
    const uint32_t repeated[] = {1, 1};
    const uint32_t outside[] = {0, count};
    answer.missing = (uint64_t)count + 1;
    assert_refused(fixture, &answer, "missing");
    answer.missing = 2;
    answer.missing_positions_bytes = 7;
    assert_refused(fixture, &answer, "missing");
    answer.missing_positions_bytes = 4;
    assert_refused(fixture, &answer, "missing");
    answer.missing_positions_bytes = 8;
    const uint32_t *const lists[] = {descending, repeated, outside};
    for (size_t i = 0; i < 3; i++) {
        answer.missing_positions = (const uint8_t *)lists[i];
        assert_refused(fixture, &answer, "position");
    }
}

static void refuses_missing_rows_of_a_dense_table(void **state)
{
    struct fixture *fixture = *state;
    struct eb_wire_result answer = fixture->answer;
    fixture->split.subs[0].missing = EB_MISSING_ERROR;
    answer.missing = 1;
    assert_refused(fixture, &answer, "missing");
}

static void merging_fails_if_the_arena_is_full(void **state)
{
    struct fixture *fixture = *state;
    struct eb_arena arena;
    struct eb_route_merge merge;
    struct eb_bag_job job;
    size_t failures = 0;
    bool is_good = false;
    fixture->checked.job.reduction = EB_REDUCTION_MEAN;
    eb_arena_init(&arena, &eb_memory_heap);
    for (size_t cap = 0; !is_good; cap += 16) {
        eb_arena_reset(&arena, cap);
        is_good = eb_route_merge_begin(&fixture->split, eb_bag_ops_find("ref"), &arena, &merge) &&
                  eb_route_merge_end(&merge, &arena, &job);
        assert_int_equal(is_good, !arena.is_exhausted);
        failures += !is_good;
    }
    assert_true(failures > 5);
    eb_arena_deinit(&arena);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(route_answers)
{
    const struct CMUnitTest tests[] = {
        TEST(takes_a_sound_answer),
        TEST(an_answer_that_was_taken_leaves_nothing_if_its_part_is_lost),
        TEST(a_default_row_that_is_left_out_is_zero),
        TEST(a_later_answer_may_have_the_default_key),
        TEST(another_piece_says_nothing_about_the_default_key),
        TEST(only_an_empty_bag_lacks_the_default_row),
        TEST(names_the_error_of_a_result),
        TEST(refuses_another_type),
        TEST(refuses_another_shape),
        TEST(refuses_values_of_another_size),
        TEST(refuses_wrong_missing_positions),
        TEST(refuses_missing_rows_of_a_dense_table),
        TEST(merging_fails_if_the_arena_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
