/* Features and groups of a model in plans and answers: their defaults, and what is refused. */
#include "tests/unit/rpc/plan_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const int32_t ids[] = {1, 9, 2};
static const int32_t bags[] = {0, 2, 3}; /* the last bag is empty */

static struct plan_fixture fixture;
static struct eb_wire_query *query; /* to "highest", with bags of two ids, one id and none */

static int set_up(void **state)
{
    (void)state;
    plan_fixture_init(&fixture, 1);
    query = &fixture.queries[0];
    query->table = "highest";
    plan_fixture_set_indices(query, ids, 3);
    plan_fixture_set_offsets(query, bags, 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    plan_fixture_deinit(&fixture);
    return 0;
}

static void expect_values(const float *values, size_t count, uint64_t missing)
{
    if (!plan_fixture_run(&fixture)) {
        fail_msg("%s", fixture.error.text);
    }
    plan_fixture_expect_rows(&fixture, 0, 3, values, count);
    assert_int_equal(fixture.response->results[0].missing, missing);
}

static void a_feature_is_as_its_table_where_nothing_is_said(void **state)
{
    (void)state;
    static const float sums[] = {30, 32, 20, 21, 0, 0};
    static const int32_t rows[] = {1, 2, 2};
    query->table = "plain";
    plan_fixture_set_indices(query, rows, 3);
    expect_values(sums, 6, 0);
    plan_fixture_set_indices(query, ids, 3);
    plan_fixture_expect_refused(
        &fixture, EB_STATUS_OUT_OF_RANGE, "queries[0] \"plain\": indices[1] = 9 is outside");
}

static void a_feature_has_its_own_defaults(void **state)
{
    (void)state;
    static const float values[] = {10, 11, 20, 21, 30, 31};
    expect_values(values, 6, 1);
}

static void the_requests_own_word_wins(void **state)
{
    (void)state;
    static const float values[] = {10, 11, 20, 21, 0, 1};
    static const float zeros[] = {10, 11, 20, 21, 0, 0};
    query->reduction = EB_REDUCTION_SUM;
    query->missing = EB_MISSING_ZERO;
    query->has_default = true;
    query->default_index = 0;
    expect_values(values, 6, 1);
    query->default_index = -1;
    expect_values(zeros, 6, 1);
    query->missing = EB_MISSING_ERROR;
    plan_fixture_expect_refused(
        &fixture, EB_STATUS_OUT_OF_RANGE, "queries[0] \"highest\": indices[1] = 9");
    query->missing = EB_MISSING_UNKNOWN_ROW;
    plan_fixture_expect_refused(&fixture, EB_STATUS_INVALID_ARGUMENT,
        "queries[0] \"highest\": missing is UNKNOWN_ROW, but the table has no row");
}

static void maps_ids_but_no_default(void **state)
{
    (void)state;
    static const int32_t far[] = {-1, 4, 302};
    static const float values[] = {300, 302, 304, 200, 201, 202, 0, 0, 0};
    query->table = "around";
    plan_fixture_set_indices(query, far, 3);
    expect_values(values, 9, 0);
    query->missing = EB_MISSING_ERROR;
    expect_values(values, 9, 0);
    query->has_default = true;
    query->default_index = 3;
    plan_fixture_expect_refused(&fixture, EB_STATUS_OUT_OF_RANGE, "\"around\": default_index = 3");
}

static void bounds_the_ids_of_a_bag(void **state)
{
    (void)state;
    static const int32_t long_bag[] = {0, 0, 3};
    plan_fixture_set_offsets(query, long_bag, 3);
    plan_fixture_expect_refused(&fixture, EB_STATUS_INVALID_ARGUMENT,
        "queries[0] \"highest\": bag 1 has 3 indices, more than max_ids = 2");
    query->table = "plain";
    query->missing = EB_MISSING_SKIP;
    assert_true(plan_fixture_check(&fixture));
}

/* ---- groups ---- */

static const int32_t lengths[] = {2, 1, 1, 1};
static const int32_t values[] = {1, 9, 2, -1, 4};
static const float pooled[] = {10, 11, 200, 201, 202, 20, 21, 100, 101, 102};

static void ask_for_pair(struct eb_wire_group *group)
{
    *group = (struct eb_wire_group){
        .name = "pair",
        .bags = 2,
        .values = {values, sizeof values, 4, "values_i32"},
        .lengths = {lengths, sizeof lengths, 4, "lengths_i32"},
    };
    fixture.request.query_count = 0;
    fixture.request.groups = group;
    fixture.request.group_count = 1;
}

static void a_named_group_is_its_features_in_order(void **state)
{
    (void)state;
    static const char *const features[] = {"highest", "around"};
    struct eb_wire_group group;
    ask_for_pair(&group);
    assert_true(plan_fixture_run(&fixture));
    assert_int_equal(fixture.response->results[0].missing_by_query[0], 1);
    assert_int_equal(fixture.response->results[0].missing_by_query[1], 0);
    plan_fixture_expect_rows(&fixture, 0, 2, pooled, 10);
    ask_for_pair(&group);
    group.name = "";
    group.features = features;
    group.feature_count = 2;
    assert_true(plan_fixture_run(&fixture));
    plan_fixture_expect_rows(&fixture, 0, 2, pooled, 10);
}

static void the_groups_own_word_wins(void **state)
{
    (void)state;
    struct eb_wire_group group;
    ask_for_pair(&group);
    group.missing = EB_MISSING_ERROR;
    plan_fixture_expect_refused(&fixture, EB_STATUS_OUT_OF_RANGE,
        "groups[0].features[0] \"highest\": indices[1] = 9 is outside");
    group.missing = EB_MISSING_ZERO;
    group.reduction = EB_REDUCTION_MEAN;
    assert_true(plan_fixture_run(&fixture));
    assert_true(((const float *)fixture.response->results[0].values)[0] == 5);
}

static void names_what_is_wrong_with_a_named_group(void **state)
{
    (void)state;
    static const int32_t long_bag[] = {0, 3, 1, 1};
    struct eb_wire_group group;
    ask_for_pair(&group);
    group.lengths.data = long_bag;
    plan_fixture_expect_refused(&fixture, EB_STATUS_INVALID_ARGUMENT,
        "groups[0].features[0] \"highest\": bag 1 has 3 indices, more than max_ids = 2");
    group.lengths.bytes -= sizeof long_bag[0];
    plan_fixture_expect_refused(&fixture, EB_STATUS_INVALID_ARGUMENT,
        "groups[0] \"pair\": lengths_i32 has 3 entries, but 2 features of 2 bags need 4");
}

static void counts_the_features_of_named_groups(void **state)
{
    (void)state;
    struct eb_wire_group group;
    ask_for_pair(&group);
    fixture.limits.queries_max = 2;
    assert_true(plan_fixture_check(&fixture));
    ask_for_pair(&group);
    fixture.limits.queries_max = 1;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED,
        "2 queries and features of groups; a request may have at most 1");
}

EB_TEST_GROUP(plan_feature)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_feature_is_as_its_table_where_nothing_is_said),
        TEST(a_feature_has_its_own_defaults),
        TEST(the_requests_own_word_wins),
        TEST(maps_ids_but_no_default),
        TEST(bounds_the_ids_of_a_bag),
        TEST(a_named_group_is_its_features_in_order),
        TEST(the_groups_own_word_wins),
        TEST(names_what_is_wrong_with_a_named_group),
        TEST(counts_the_features_of_named_groups),
    };
    return cmocka_run_group_tests(tests, plan_fixture_load, plan_fixture_unload);
}
