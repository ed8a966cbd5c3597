#include "proto/grpc_text.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/plan_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const int32_t one_past[] = {1, 4, 3};
static const int32_t descending[] = {2, 0};
static const int32_t zeros[] = {0, 0, 0, 0, 0};

/* ---- answers ---- */

static void answers_every_query_in_its_own_shape(void **state)
{
    (void)state;
    static const float pooled[] = {30, 32, 30, 31};
    static const float cube[] = {10, 11, 12, 13, 14, 15};
    static const float line[] = {3, 3};
    static const int32_t whole[] = {1, 3, 0, 0};
    static const int32_t ones[] = {1};
    static const int32_t both[] = {0, 1};
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 4);
    fixture.queries[1].table = "cube";
    plan_fixture_set_indices(&fixture.queries[1], ones, 1);
    plan_fixture_set_offsets(&fixture.queries[1], zeros, 1);
    fixture.queries[2].table = "line";
    fixture.queries[3].table = "whole";
    plan_fixture_set_indices(&fixture.queries[3], both, 2);
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(fixture.response->request_id, 42);
    assert_string_equal(fixture.response->model, "trial");
    assert_int_equal(fixture.response->version, 7);
    assert_int_equal(fixture.response->error_code, 0);
    assert_int_equal(fixture.response->result_count, 4);
    plan_fixture_expect_rows(&fixture, 0, 2, pooled, 4);
    const struct eb_wire_result *results = fixture.response->results;
    assert_int_equal(results[1].shape_count, 3);
    assert_int_equal(results[1].shape[0], 1);
    assert_int_equal(results[1].shape[1], 2);
    assert_int_equal(results[1].shape[2], 3);
    assert_int_equal(results[1].values_bytes, sizeof cube);
    assert_memory_equal(results[1].values, cube, sizeof cube);
    assert_int_equal(results[2].shape_count, 1);
    assert_int_equal(results[2].shape[0], 2);
    assert_int_equal(results[2].values_bytes, sizeof line);
    assert_memory_equal(results[2].values, line, sizeof line);
    assert_int_equal(results[3].type, EB_I32);
    assert_int_equal(results[3].values_bytes, sizeof whole);
    assert_memory_equal(results[3].values, whole, sizeof whole);
    plan_fixture_deinit(&fixture);
}

static void weighs_what_it_will_touch(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    fixture.queries[1].table = "line";
    assert_true(plan_fixture_check(&fixture));
    assert_int_equal(fixture.plan.counts.query_count, 2);
    assert_int_equal(fixture.plan.counts.index_count, 6);
    assert_int_equal(fixture.plan.counts.result_rows, 4);
    assert_int_equal(fixture.plan.counts.gather_bytes, 3 * 2 * sizeof(float) + 3 * sizeof(float));
    assert_int_equal(fixture.plan.counts.values_bytes, 2 * 2 * sizeof(float) + 2 * sizeof(float));
    plan_fixture_deinit(&fixture);
}

static void answers_a_request_of_no_queries(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 0);
    for (int concat = 0; concat < 2; concat++) {
        fixture.request.concat = concat;
        assert_true(plan_fixture_run(&fixture));
        assert_int_equal(fixture.response->request_id, 42);
        assert_int_equal(fixture.response->result_count, 0);
    }
    plan_fixture_deinit(&fixture);
}

static void answers_queries_without_indices_or_bags(void **state)
{
    (void)state;
    static const float empty_bags[] = {0, 0, 0, 0};
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 3);
    plan_fixture_set_indices(&fixture.queries[0], NULL, 0);
    plan_fixture_set_offsets(&fixture.queries[0], zeros, 2);
    plan_fixture_set_indices(&fixture.queries[1], NULL, 0);
    plan_fixture_set_offsets(&fixture.queries[1], NULL, 0);
    fixture.queries[2].table = "bare";
    plan_fixture_set_indices(&fixture.queries[2], NULL, 0);
    plan_fixture_set_offsets(&fixture.queries[2], zeros, 2);
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_expect_rows(&fixture, 0, 2, empty_bags, 4);
    plan_fixture_expect_rows(&fixture, 2, 2, empty_bags, 4);
    assert_int_equal(fixture.response->results[1].values_bytes, 0);
    assert_int_equal(fixture.response->results[1].shape[0], 0);
    assert_int_equal(fixture.response->results[1].shape[1], 2);
    plan_fixture_deinit(&fixture);
}

static void counts_the_missing_of_every_query(void **state)
{
    (void)state;
    static const float skipped[] = {10, 11, 30, 31};
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    plan_fixture_set_indices(&fixture.queries[1], one_past, 3);
    fixture.queries[1].missing = EB_MISSING_SKIP;
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(fixture.response->results[0].missing, 0);
    assert_int_equal(fixture.response->results[1].missing, 1);
    plan_fixture_expect_rows(&fixture, 1, 2, skipped, 4);
    plan_fixture_deinit(&fixture);
}

/* Each result is described in full, however much it has in common with the one before. */
static void answers_results_that_differ_in_one_thing(void **state)
{
    (void)state;
    static const float summed[] = {30, 32, 30, 31};
    static const float skipped[] = {10, 11, 30, 31};
    static const float single[] = {60, 63};
    static const int32_t ones[] = {1, 1, 1};
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 4);
    fixture.queries[2].missing = EB_MISSING_SKIP;
    plan_fixture_set_indices(&fixture.queries[2], one_past, 3);
    fixture.queries[3].table = "half";
    plan_fixture_set_indices(&fixture.queries[3], ones, 3);
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_expect_rows(&fixture, 0, 2, summed, 4);
    plan_fixture_expect_rows(&fixture, 1, 2, summed, 4);
    plan_fixture_expect_rows(&fixture, 2, 2, skipped, 4);
    assert_int_equal(fixture.response->results[1].missing, 0);
    assert_int_equal(fixture.response->results[2].missing, 1);
    assert_int_equal(fixture.response->results[3].type, EB_F16);
    assert_int_equal(fixture.response->results[3].values_bytes, 4 * sizeof(uint16_t));
    plan_fixture_set_indices(&fixture.queries[2], fixture.queries[0].indices.data, 3);
    plan_fixture_set_offsets(&fixture.queries[1], zeros, 1);
    fixture.queries[3].table = "wide";
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_expect_rows(&fixture, 1, 1, single, 2);
    plan_fixture_expect_rows(&fixture, 2, 2, summed, 4);
    assert_int_equal(fixture.response->results[3].shape[1], 3);
    plan_fixture_deinit(&fixture);
}

/* ---- concat ---- */

static void concatenates_side_by_side(void **state)
{
    (void)state;
    static const float values[] = {30, 32, 200, 202, 204, 30, 31, 0, 0, 0};
    static const int32_t twos[] = {0, 2, 9};
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    fixture.request.concat = true;
    fixture.queries[1].table = "wide";
    fixture.queries[1].missing = EB_MISSING_SKIP;
    plan_fixture_set_indices(&fixture.queries[1], twos, 3);
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(fixture.response->result_count, 1);
    plan_fixture_expect_rows(&fixture, 0, 2, values, 10);
    const struct eb_wire_result *result = &fixture.response->results[0];
    assert_int_equal(result->missing, 1);
    assert_int_equal(result->missing_by_query_count, 2);
    assert_int_equal(result->missing_by_query[0], 0);
    assert_int_equal(result->missing_by_query[1], 1);
    plan_fixture_deinit(&fixture);
}

static void concatenates_unlike_types_where_one_is_asked_for(void **state)
{
    (void)state;
    static const float values[] = {10, 12, 2, 2, 10, 11, 1, 1};
    static const int32_t rows[] = {0, 1, 1};
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    fixture.request.concat = true;
    fixture.queries[1].table = "half";
    plan_fixture_set_indices(&fixture.queries[0], rows, 3);
    plan_fixture_set_indices(&fixture.queries[1], rows, 3);
    plan_fixture_expect_refused(
        &fixture, EB_STATUS_INVALID_ARGUMENT, "queries[1] \"half\": concat");
    fixture.request.output_type = EB_F32;
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_expect_rows(&fixture, 0, 2, values, 8);
    plan_fixture_deinit(&fixture);
}

static void refuses_to_concatenate_what_does_not_fit_together(void **state)
{
    (void)state;
    static const int32_t both[] = {0, 1, 1};
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    fixture.request.concat = true;
    fixture.queries[1].reduction = EB_REDUCTION_NONE;
    plan_fixture_expect_refused(&fixture, EB_STATUS_INVALID_ARGUMENT,
        "queries[1] \"rows\": concat is not possible with the reduction NONE");
    fixture.queries[1].reduction = EB_REDUCTION_MAX;
    plan_fixture_set_offsets(&fixture.queries[1], zeros, 3);
    plan_fixture_expect_refused(
        &fixture, EB_STATUS_INVALID_ARGUMENT, "this one has 3 and the first has 2");
    plan_fixture_set_offsets(&fixture.queries[1], zeros, 2);
    assert_true(plan_fixture_check(&fixture));
    fixture.queries[0].table = "whole";
    plan_fixture_set_indices(&fixture.queries[0], both, 3);
    plan_fixture_expect_refused(
        &fixture, EB_STATUS_INVALID_ARGUMENT, "queries[0] \"whole\": concat needs floating-point");
    plan_fixture_deinit(&fixture);
}

/* ---- the first error ---- */

static void names_query_field_position_and_value(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    plan_fixture_set_indices(&fixture.queries[1], one_past, 3);
    plan_fixture_expect_refused(&fixture, EB_STATUS_OUT_OF_RANGE,
        "queries[1] \"rows\": indices[1] = 4 is outside the table's 4 rows");
    plan_fixture_set_offsets(&fixture.queries[1], descending, 2);
    plan_fixture_expect_refused(&fixture, EB_STATUS_INVALID_ARGUMENT,
        "queries[1] \"rows\": offsets[1] = 0 is less than offsets[0] = 2");
    fixture.queries[1].table = "nobody";
    plan_fixture_expect_refused(&fixture, EB_STATUS_NOT_FOUND,
        "queries[1] \"nobody\": model \"trial\" version 7 has no table");
    plan_fixture_deinit(&fixture);
}

/* Ways to break a query, in the order in which the errors of one query are reported. */
static void make_unknown(struct eb_wire_query *query)
{
    query->table = "nobody";
}

static void make_misfit(struct eb_wire_query *query)
{
    query->num_bags = 9;
}

static void make_descending(struct eb_wire_query *query)
{
    plan_fixture_set_offsets(query, descending, 2);
}

static void make_missing(struct eb_wire_query *query)
{
    plan_fixture_set_indices(query, one_past, 3);
}

static void make_undecodable(struct eb_wire_query *query)
{
    static const struct eb_error error = {
        .status = EB_STATUS_UNIMPLEMENTED, .text = "queries[1] \"t\": a fault of the codec's"};
    query->error = &error;
}

struct flaw {
    void (*make)(struct eb_wire_query *query);
    enum eb_status status;
    const char *part; /* a part of the error text */
};

static const struct flaw flaws[] = {
    {make_unknown, EB_STATUS_NOT_FOUND, "no table or feature of that name"},
    {make_undecodable, EB_STATUS_UNIMPLEMENTED, "a fault of the codec's"},
    {make_misfit, EB_STATUS_INVALID_ARGUMENT, "num_bags"},
    {make_descending, EB_STATUS_INVALID_ARGUMENT, "offsets[1] = 0"},
    {make_missing, EB_STATUS_OUT_OF_RANGE, "indices[1] = 4"},
};

#define FLAW_COUNT (sizeof flaws / sizeof flaws[0])

static void tells_the_error_of_the_earlier_query(void **state)
{
    (void)state;
    for (size_t first = 0; first < FLAW_COUNT; first++) {
        for (size_t second = 0; second < FLAW_COUNT; second++) {
            struct plan_fixture fixture;
            plan_fixture_init(&fixture, 3);
            flaws[first].make(&fixture.queries[1]);
            flaws[second].make(&fixture.queries[2]);
            plan_fixture_expect_refused(&fixture, flaws[first].status, flaws[first].part);
            eb_scratch_expect(fixture.error.text, first == 0 ? "queries" : "queries[1] ");
            plan_fixture_deinit(&fixture);
        }
    }
}

static void tells_the_first_error_of_one_query(void **state)
{
    (void)state;
    for (size_t first = 0; first < FLAW_COUNT; first++) {
        struct plan_fixture fixture;
        plan_fixture_init(&fixture, 2);
        for (size_t other = FLAW_COUNT; other-- > first;) {
            flaws[other].make(&fixture.queries[1]);
        }
        plan_fixture_expect_refused(&fixture, flaws[first].status, flaws[first].part);
        plan_fixture_deinit(&fixture);
    }
}

static void tells_an_index_before_a_limit_that_a_later_query_breaks(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    fixture.limits.indices_max = 5;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED, "queries[1] \"rows\"");
    plan_fixture_set_indices(&fixture.queries[0], one_past, 3);
    plan_fixture_expect_refused(&fixture, EB_STATUS_OUT_OF_RANGE, "queries[0] \"rows\"");
    plan_fixture_deinit(&fixture);
}

static void refuses_a_type_of_weights_that_are_not_there(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 1);
    fixture.queries[0].weights_type = EB_F32;
    plan_fixture_expect_refused(&fixture, EB_STATUS_INVALID_ARGUMENT, "weights_type is set");
    plan_fixture_set_indices(&fixture.queries[0], NULL, 0);
    plan_fixture_set_offsets(&fixture.queries[0], zeros, 2);
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_deinit(&fixture);
}

static void takes_weights_of_the_tables_type_where_none_is_said(void **state)
{
    (void)state;
    static const float weights[] = {2, 0, -1};
    static const float values[] = {20, 22, -30, -31};
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 1);
    fixture.queries[0].weights = weights;
    fixture.queries[0].weights_bytes = sizeof weights;
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_expect_rows(&fixture, 0, 2, values, 4);
    fixture.queries[0].weights_bytes = sizeof weights - 1;
    plan_fixture_expect_refused(&fixture, EB_STATUS_INVALID_ARGUMENT, "weights");
    plan_fixture_deinit(&fixture);
}

/* ---- limits ---- */

/* Expects the request's two queries to be accepted if *limit is `most`. Expects the second one to
 * be refused, with a text that contains `part`, if *limit is one less. */
static void expect_limit(
    struct plan_fixture *fixture, uint64_t *limit, uint64_t most, const char *part)
{
    *limit = most;
    assert_true(plan_fixture_check(fixture));
    *limit = most - 1;
    plan_fixture_expect_refused(fixture, EB_STATUS_RESOURCE_EXHAUSTED, part);
    eb_scratch_expect(fixture->error.text, "queries[1] \"rows\"");
    *limit = most;
}

static void keeps_to_its_limits_over_all_queries(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    expect_limit(&fixture, &fixture.limits.indices_max, 6, "more than 5 indices (indices_max)");
    expect_limit(&fixture, &fixture.limits.bags_max, 4, "more than 3 bags (bags_max)");
    expect_limit(&fixture, &fixture.limits.response_bytes_max, 32, "more than 31 bytes of answer");
    plan_fixture_deinit(&fixture);
}

static void counts_the_rows_of_none_as_bags(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 1);
    fixture.queries[0].reduction = EB_REDUCTION_NONE;
    fixture.limits.bags_max = 3;
    assert_true(plan_fixture_check(&fixture));
    fixture.limits.bags_max = 2;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED, "more than 2 bags");
    plan_fixture_deinit(&fixture);
}

static void keeps_the_whole_answer_to_its_limit(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    assert_true(plan_fixture_run(&fixture));
    uint64_t whole_bytes = fixture.answer->size - EB_GRPC_PREFIX_BYTES;
    fixture.limits.response_bytes_max = whole_bytes;
    assert_true(plan_fixture_run(&fixture));
    fixture.limits.response_bytes_max = whole_bytes - 1;
    assert_false(plan_fixture_run(&fixture));
    assert_int_equal(fixture.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    eb_scratch_expect(fixture.error.text, "response_bytes_max");
    plan_fixture_deinit(&fixture);
}

static void refuses_more_bags_than_the_kernels_count(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    plan_fixture_set_indices(&fixture.queries[1], NULL, 0);
    plan_fixture_set_offsets(&fixture.queries[1], NULL, 0);
    fixture.queries[1].num_bags = UINT64_MAX;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED, "queries[1] \"rows\"");
    fixture.queries[1].num_bags = fixture.limits.bags_max - 1;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED, "bags_max");
    fixture.queries[1].num_bags = fixture.limits.bags_max - 2;
    assert_true(plan_fixture_check(&fixture));
    plan_fixture_deinit(&fixture);
}

/* ---- memory ---- */

/* Raises *cap from 0 until the request is answered. Until then every run is refused and gives back
 * everything it took. */
static void expect_plan_refused_below(struct plan_fixture *fixture, uint64_t *cap, uint64_t step)
{
    static const float values[] = {30, 32, 30, 31};
    int refused_count = 0;
    *cap = 0;
    while (!plan_fixture_run(fixture)) {
        assert_int_equal(fixture->error.status, EB_STATUS_RESOURCE_EXHAUSTED);
        eb_scratch_expect(fixture->error.text, "no memory left for");
        assert_true(refused_count++ < 1000);
        *cap += step;
    }
    assert_true(refused_count > 2);
    plan_fixture_expect_rows(fixture, 0, 2, values, 4);
}

static void refuses_what_the_loops_memory_does_not_hold(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    expect_plan_refused_below(&fixture, &fixture.pool.cap_bytes, 1024);
    plan_fixture_deinit(&fixture);
}

static void refuses_what_the_arena_does_not_hold(void **state)
{
    (void)state;
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 2);
    expect_plan_refused_below(&fixture, &fixture.arena_cap_bytes, 64);
    fixture.request.concat = true;
    fixture.arena_cap_bytes = 0;
    int refused_count = 0;
    while (!plan_fixture_run(&fixture)) {
        assert_int_equal(fixture.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
        assert_true(refused_count++ < 1000);
        fixture.arena_cap_bytes += 64;
    }
    plan_fixture_deinit(&fixture);
}

/* A query's values do not move, however many values a later query has. */
static void takes_scratch_in_pieces(void **state)
{
    (void)state;
    static const float few[] = {30, 32, 30, 31};
    static const float sums[][2] = {{6000, 6600}, {60000, 66000}, {600, 660}};
    static const uint32_t counts[] = {600, 6000, 60};
    static const int32_t offsets[] = {0};
    static int32_t indices[6000];
    struct plan_fixture fixture;
    plan_fixture_init(&fixture, 4);
    for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++) {
        indices[i] = 1;
    }
    for (size_t i = 0; i < 3; i++) {
        plan_fixture_set_indices(&fixture.queries[i + 1], indices, counts[i]);
        plan_fixture_set_offsets(&fixture.queries[i + 1], offsets, 1);
    }
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_expect_rows(&fixture, 0, 2, few, 4);
    for (size_t i = 0; i < 3; i++) {
        plan_fixture_expect_rows(&fixture, i + 1, 1, sums[i], 2);
    }
    plan_fixture_deinit(&fixture);
}

EB_TEST_GROUP(plan)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_every_query_in_its_own_shape),
        cmocka_unit_test(weighs_what_it_will_touch),
        cmocka_unit_test(answers_a_request_of_no_queries),
        cmocka_unit_test(answers_queries_without_indices_or_bags),
        cmocka_unit_test(counts_the_missing_of_every_query),
        cmocka_unit_test(answers_results_that_differ_in_one_thing),
        cmocka_unit_test(concatenates_side_by_side),
        cmocka_unit_test(concatenates_unlike_types_where_one_is_asked_for),
        cmocka_unit_test(refuses_to_concatenate_what_does_not_fit_together),
        cmocka_unit_test(names_query_field_position_and_value),
        cmocka_unit_test(tells_the_error_of_the_earlier_query),
        cmocka_unit_test(tells_the_first_error_of_one_query),
        cmocka_unit_test(tells_an_index_before_a_limit_that_a_later_query_breaks),
        cmocka_unit_test(refuses_a_type_of_weights_that_are_not_there),
        cmocka_unit_test(takes_weights_of_the_tables_type_where_none_is_said),
        cmocka_unit_test(keeps_to_its_limits_over_all_queries),
        cmocka_unit_test(counts_the_rows_of_none_as_bags),
        cmocka_unit_test(keeps_the_whole_answer_to_its_limit),
        cmocka_unit_test(refuses_more_bags_than_the_kernels_count),
        cmocka_unit_test(refuses_what_the_loops_memory_does_not_hold),
        cmocka_unit_test(refuses_what_the_arena_does_not_hold),
        cmocka_unit_test(takes_scratch_in_pieces),
    };
    return cmocka_run_group_tests(tests, plan_fixture_load, plan_fixture_unload);
}
