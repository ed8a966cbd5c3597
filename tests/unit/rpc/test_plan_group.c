/* Groups, errors of single queries and positions of missing indices in plans and answers. */
#include "tests/unit/rpc/plan_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Two features with two bags each: rows [1, 2] and [3] of "rows", [] and [0, 1] of "wide". */
static const int32_t values[] = {1, 2, 3, 0, 1};
static const int32_t lengths[] = {2, 1, 0, 2};
static const int32_t offsets[] = {0, 2, 3, 3, 5};
static const char *const features[] = {"rows", "wide"};
static const float pooled[] = {30, 32, 0, 0, 0, 30, 31, 100, 102, 104};

static struct plan_fixture fixture;
static struct eb_wire_group group;

static void use_lengths(const int32_t *data, size_t count)
{
    group.lengths = (struct eb_wire_array){
        .data = data, .bytes = count * sizeof *data, .width = 4, .field = "lengths_i32"};
}

static void use_offsets(const int32_t *data, size_t count)
{
    group.lengths = (struct eb_wire_array){0};
    group.offsets = (struct eb_wire_array){
        .data = data, .bytes = count * sizeof *data, .width = 4, .field = "offsets_i32"};
}

static void use_values(const int32_t *data, size_t count)
{
    group.values = (struct eb_wire_array){
        .data = data, .bytes = count * sizeof *data, .width = 4, .field = "values_i32"};
}

static int set_up(void **state)
{
    (void)state;
    plan_fixture_init(&fixture, 0);
    group = (struct eb_wire_group){.name = "", .feature_count = 2, .features = features, .bags = 2};
    use_values(values, 5);
    use_lengths(lengths, 4);
    fixture.request.groups = &group;
    fixture.request.group_count = 1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    plan_fixture_deinit(&fixture);
    return 0;
}

static const struct eb_wire_result *result_of(size_t i)
{
    assert_true(i < fixture.response->result_count);
    return &fixture.response->results[i];
}

static void expect_pooled(void)
{
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(fixture.response->result_count, 1);
    assert_int_equal(result_of(0)->missing_by_query_count, 2);
    plan_fixture_expect_rows(&fixture, 0, 2, pooled, 10);
}

static void puts_features_side_by_side(void **state)
{
    (void)state;
    expect_pooled();
}

static void takes_offsets_for_lengths(void **state)
{
    (void)state;
    use_offsets(offsets, 5);
    expect_pooled();
}

static void takes_arrays_at_any_address(void **state)
{
    (void)state;
    static uint8_t bytes[1 + sizeof values + sizeof lengths];
    memcpy(bytes + 1, values, sizeof values);
    memcpy(bytes + 1 + sizeof values, lengths, sizeof lengths);
    use_values((const void *)(bytes + 1), 5);
    use_lengths((const void *)(bytes + 1 + sizeof values), 4);
    expect_pooled();
}

/* The second time, the names are not read. The third time, the list comes beside a group with a new
 * list. */
static void knows_a_list_that_comes_again(void **state)
{
    (void)state;
    static const char *const gone[] = {"gone", "away"};
    static const char *const turned[] = {"wide", "rows"};
    static const float turned_pooled[] = {300, 302, 304, 0, 0, 200, 201, 202, 10, 12};
    group.run = (const uint8_t *)"\x12 rows, wide";
    group.run_bytes = 12;
    expect_pooled();
    assert_int_equal(fixture.memo.count, 1);
    group.known = &fixture.memo.lists[0];
    group.features = gone;
    expect_pooled();
    struct eb_wire_group both[] = {group, group};
    both[0].known = NULL;
    both[0].features = turned;
    both[0].run = (const uint8_t *)"\x12 wide, rows";
    fixture.request.groups = both;
    fixture.request.group_count = 2;
    static const int32_t others[] = {1, 2, 2, 0, 1};
    both[0].values.data = others;
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_expect_rows(&fixture, 0, 2, turned_pooled, 10);
    plan_fixture_expect_rows(&fixture, 1, 2, pooled, 10);
    assert_int_equal(fixture.memo.count, 2);
    eb_feature_memo_forget_versions(&fixture.memo);
    fixture.request.group_count = 1;
    fixture.request.groups = &group;
    plan_fixture_expect_refused(&fixture, EB_STATUS_NOT_FOUND, "\"gone\"");
}

static void weighs_each_value(void **state)
{
    (void)state;
    static const float weights[] = {1, 2, 3, 4, 5};
    static const float weighted[] = {50, 53, 0, 0, 0, 90, 93, 500, 509, 518};
    group.weights = weights;
    group.weights_bytes = sizeof weights;
    group.weights_type = EB_F32;
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_expect_rows(&fixture, 0, 2, weighted, 10);
}

static void numbers_groups_behind_queries(void **state)
{
    (void)state;
    static const float rows[] = {30, 32, 30, 31};
    plan_fixture_deinit(&fixture);
    plan_fixture_init(&fixture, 1);
    fixture.request.groups = &group;
    fixture.request.group_count = 1;
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(fixture.response->result_count, 2);
    plan_fixture_expect_rows(&fixture, 0, 2, rows, 4);
    plan_fixture_expect_rows(&fixture, 1, 2, pooled, 10);
}

static void takes_a_group_of_no_bags(void **state)
{
    (void)state;
    group.bags = 0;
    use_values(values, 0);
    use_lengths(lengths, 0);
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(result_of(0)->shape[0], 0);
    assert_int_equal(result_of(0)->shape[1], 5);
    assert_int_equal(result_of(0)->values_bytes, 0);
}

static void expect_invalid(const char *part)
{
    plan_fixture_expect_refused(&fixture, EB_STATUS_INVALID_ARGUMENT, part);
}

static void refuses_arrays_that_do_not_fit(void **state)
{
    (void)state;
    static const int32_t negative[] = {2, -1, 0, 4};
    static const int32_t many[] = {2, 1, 0, 3};
    static const int32_t falling[] = {0, 2, 1, 3, 5};
    static const int32_t late[] = {1, 2, 3, 3, 5};
    static const int32_t beyond[] = {0, 2, 3, 3, 6};
    use_lengths(lengths, 3);
    expect_invalid("groups[0] \"\": lengths_i32 has 3 entries, but 2 features of 2 bags need 4");
    use_lengths(negative, 4);
    expect_invalid("bag 1 of features[0] has -1 values, but 3 are left");
    use_lengths(many, 4);
    expect_invalid("bag 1 of features[1] has 3 values, but 2 are left");
    use_lengths(lengths, 4);
    use_values(values, 4);
    expect_invalid("bag 1 of features[1] has 2 values, but 1 are left");
    use_values((const int32_t[]){1, 2, 3, 0, 1, 1}, 6);
    expect_invalid("lengths_i32 add up to 5 values, but there are 6");
    use_values(values, 5);
    use_offsets(offsets, 4);
    expect_invalid("offsets_i32 has 4 entries");
    use_offsets(falling, 5);
    expect_invalid("offsets_i32[2] = 1 is not possible: the offset before it is 2");
    use_offsets(late, 5);
    expect_invalid("offsets_i32[0] = 1 is not 0");
    use_offsets(beyond, 5);
    expect_invalid(
        "offsets_i32[4] = 6 is not possible: the offset before it is 3, and there are 5 values");
    group.offsets = (struct eb_wire_array){0};
    expect_invalid("neither lengths nor offsets");
    group.bags = 0;
    expect_invalid("neither lengths nor offsets");
    use_values(values, 0);
    assert_true(plan_fixture_check(&fixture));
}

/* The order is the same as for queries: names, sizes, layouts, indices. */
static void tells_names_before_lengths(void **state)
{
    (void)state;
    static const char *const unknown[] = {"rows", "no such"};
    group.features = unknown;
    use_lengths(lengths, 3);
    plan_fixture_expect_refused(&fixture, EB_STATUS_NOT_FOUND, "groups[0].features[1] \"no such\"");
    use_lengths((const int32_t[]){2, -1, 0, 4}, 4);
    plan_fixture_expect_refused(&fixture, EB_STATUS_NOT_FOUND, "groups[0].features[1] \"no such\"");
}

static void refuses_what_is_no_group(void **state)
{
    (void)state;
    static const char *const mixed[] = {"rows", "half"};
    static const char *const whole[] = {"rows", "whole"};
    static const char *const unknown[] = {"rows", "no such"};
    static const int32_t far[] = {1, 2, 3, 0, 3};
    group.features = unknown;
    plan_fixture_expect_refused(
        &fixture, EB_STATUS_NOT_FOUND, "groups[0].features[1] \"no such\": model \"trial\"");
    group.features = mixed;
    expect_invalid("groups[0].features[1] \"half\": a group needs results of one type");
    group.features = whole;
    expect_invalid("a group needs floating-point results");
    group.features = features;
    use_values(far, 5);
    plan_fixture_expect_refused(&fixture, EB_STATUS_OUT_OF_RANGE, "groups[0].features[1] \"wide\"");
    use_values(values, 5);
    group.reduction = EB_REDUCTION_NONE;
    expect_invalid("NONE");
    group.reduction = 0;
    group.feature_count = 0;
    expect_invalid("no features");
    group.name = "named";
    plan_fixture_expect_refused(&fixture, EB_STATUS_NOT_FOUND,
        "groups[0] \"named\": model \"trial\" version 7 has no group of that name");
    group.name = "";
    group.feature_count = 2;
    fixture.request.concat = true;
    expect_invalid("concat");
}

static void counts_features_against_the_caps(void **state)
{
    (void)state;
    fixture.limits.indices_max = 4;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED,
        "groups[0].features[1] \"wide\": including this one");
    fixture.limits.indices_max = 5;
    assert_true(plan_fixture_check(&fixture));
}

static void answers_each_query_for_itself(void **state)
{
    (void)state;
    static const int32_t far[] = {1, 9, 3};
    static const float rows[] = {30, 32, 30, 31};
    plan_fixture_deinit(&fixture);
    plan_fixture_init(&fixture, 3);
    plan_fixture_set_indices(&fixture.queries[0], far, 3);
    fixture.queries[1].table = "no such";
    fixture.request.errors_per_query = true;
    use_lengths(lengths, 3);
    fixture.request.groups = &group;
    fixture.request.group_count = 1;
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(fixture.response->result_count, 4);
    assert_int_equal(result_of(0)->error_code, EB_STATUS_OUT_OF_RANGE);
    assert_non_null(strstr(result_of(0)->error_message, "queries[0] \"rows\""));
    assert_int_equal(result_of(1)->error_code, EB_STATUS_NOT_FOUND);
    assert_int_equal(result_of(3)->error_code, EB_STATUS_INVALID_ARGUMENT);
    assert_int_equal(result_of(3)->query, 3);
    assert_int_equal(fixture.plan.counts.query_count, 1);
    assert_int_equal(fixture.plan.counts.index_count, 3);
    assert_int_equal(fixture.plan.counts.result_rows, 2);
    assert_int_equal(fixture.plan.counts.values_bytes, 4 * sizeof(float));
    plan_fixture_expect_rows(&fixture, 2, 2, rows, 4);
    /* An error of the request as a whole still fails the whole request. */
    fixture.limits.indices_max = 2;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED, "queries[0]");
}

/* Three groups of five indices and four bags each. The first two have an index that names no
 * row. */
static void a_group_that_fails_takes_nothing_of_the_limits(void **state)
{
    (void)state;
    static const int32_t far[] = {1, 2, 3, 0, 9};
    struct eb_wire_group groups[3];
    fixture.request.errors_per_query = true;
    fixture.request.groups = groups;
    fixture.request.group_count = 3;
    groups[2] = group;
    use_values(far, 5);
    groups[0] = groups[1] = group;
    fixture.limits.indices_max = 5;
    fixture.limits.bags_max = 4;
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(fixture.response->result_count, 3);
    assert_int_equal(result_of(0)->error_code, EB_STATUS_OUT_OF_RANGE);
    assert_int_equal(result_of(1)->error_code, EB_STATUS_OUT_OF_RANGE);
    assert_int_equal(fixture.plan.counts.index_count, 5);
    assert_int_equal(fixture.plan.asked.values_bytes, sizeof pooled);
    plan_fixture_expect_rows(&fixture, 2, 2, pooled, 10);
    fixture.limits.indices_max = 4;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED, "groups[0].features[1]");
}

/* A few bytes ask for three groups of 20 padded rows. The rows are made before the first two groups
 * fail, so they count against the limits. */
static void a_padded_group_that_fails_takes_its_rows_of_the_limits(void **state)
{
    (void)state;
    static const char *const equal[] = {"rows", "plain"};
    static const int32_t far[] = {1, 2, 3, 0, 9};
    struct eb_wire_group groups[3];
    fixture.request.errors_per_query = true;
    fixture.request.groups = groups;
    fixture.request.group_count = 3;
    group.features = equal;
    group.reduction = EB_REDUCTION_NONE;
    group.sequence = (struct eb_wire_sequence){.max_len = 5, .pad = true};
    groups[2] = group;
    use_values(far, 5);
    groups[0] = groups[1] = group;
    fixture.limits.indices_max = 5;
    fixture.limits.bags_max = 60;
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(result_of(0)->error_code, EB_STATUS_OUT_OF_RANGE);
    assert_int_equal(result_of(1)->error_code, EB_STATUS_OUT_OF_RANGE);
    assert_int_equal(result_of(2)->error_code, EB_STATUS_OK);
    fixture.limits.bags_max = 59;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED, "groups[2].features[1]");
}

/* The bags of a failed query count towards the limits: before the query fails, num_bags bags are
 * started, however small the query is. */
static void a_query_that_fails_takes_only_bags_of_the_limits(void **state)
{
    (void)state;
    static const int32_t far[] = {1, 2, 9};
    plan_fixture_deinit(&fixture);
    plan_fixture_init(&fixture, 3);
    plan_fixture_set_indices(&fixture.queries[0], far, 3);
    plan_fixture_set_indices(&fixture.queries[1], far, 3);
    fixture.request.errors_per_query = true;
    fixture.limits.indices_max = 3;
    fixture.limits.bags_max = 6;
    assert_true(plan_fixture_check(&fixture));
    assert_int_equal(fixture.plan.counts.query_count, 1);
    assert_int_equal(fixture.plan.asked.values_bytes, fixture.plan.counts.values_bytes);
    fixture.limits.bags_max = 5;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED, "queries[2]");
}

static void expect_positions(size_t i, const uint32_t *positions, size_t count)
{
    assert_int_equal(result_of(i)->missing, count);
    assert_int_equal(result_of(i)->missing_positions_bytes, count * sizeof *positions);
    assert_memory_equal(result_of(i)->missing_positions, positions, count * sizeof *positions);
}

static void says_where_rows_are_missing(void **state)
{
    (void)state;
    static const int32_t indices[] = {-9, 4, 1, -1, 2, 77};
    static const int32_t from_one[] = {1, 3};
    static const int32_t of_group[] = {1, 4, 3, 3, -1};
    plan_fixture_deinit(&fixture);
    plan_fixture_init(&fixture, 1);
    plan_fixture_set_indices(&fixture.queries[0], indices, 6);
    plan_fixture_set_offsets(&fixture.queries[0], from_one, 2);
    fixture.queries[0].missing = EB_MISSING_SKIP;
    use_values(of_group, 5);
    group.missing = EB_MISSING_ZERO;
    fixture.request.groups = &group;
    fixture.request.group_count = 1;
    fixture.request.report_missing = true;
    assert_true(plan_fixture_run(&fixture));
    expect_positions(0, (const uint32_t[]){1, 3, 5}, 3);
    expect_positions(1, (const uint32_t[]){1, 3, 4}, 3);
    fixture.request.report_missing = false;
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(result_of(0)->missing, 3);
    assert_int_equal(result_of(0)->missing_positions_bytes, 0);
}

EB_TEST_GROUP(plan_group)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(puts_features_side_by_side),
        TEST(takes_offsets_for_lengths),
        TEST(takes_arrays_at_any_address),
        TEST(knows_a_list_that_comes_again),
        TEST(weighs_each_value),
        TEST(numbers_groups_behind_queries),
        TEST(takes_a_group_of_no_bags),
        TEST(refuses_arrays_that_do_not_fit),
        TEST(tells_names_before_lengths),
        TEST(refuses_what_is_no_group),
        TEST(counts_features_against_the_caps),
        TEST(answers_each_query_for_itself),
        TEST(a_group_that_fails_takes_nothing_of_the_limits),
        TEST(a_padded_group_that_fails_takes_its_rows_of_the_limits),
        TEST(a_query_that_fails_takes_only_bags_of_the_limits),
        TEST(says_where_rows_are_missing),
    };
    return cmocka_run_group_tests(tests, plan_fixture_load, plan_fixture_unload);
}
