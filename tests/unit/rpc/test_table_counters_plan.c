/* Compares the counters of planned requests with a second count, made one index at a time. */
#include "server/rpc/table_counters.h"

#include "tests/lib/test_group.h"
#include "tests/unit/rpc/plan_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROUNDS 4000
#define SEED 11
#define NOW_NS 0
#define INDICES_MAX 6
#define BAGS_MAX 3
#define TABLES 7
#define NAMES 10
#define QUERIES_MAX PLAN_FIXTURE_QUERIES_MAX
#define FEATURES 2 /* per group */

/* A name that a request may use, and what it refers to. */
struct name {
    const char *text;
    unsigned table;
    int32_t row_count;
    bool is_mapped; /* every id maps to a row */
};

static const struct name names[NAMES] = {
    {"rows", 0, 4, false},
    {"wide", 1, 3, false},
    {"cube", 2, 2, false},
    {"line", 3, 5, false},
    {"half", 4, 2, false},
    {"whole", 5, 2, false},
    {"bare", 6, 0, false},
    {"plain", 0, 4, false},
    {"highest", 0, 4, false},
    {"around", 1, 3, true},
};
static const char *const tables[TABLES] = {"rows", "wide", "cube", "line", "half", "whole", "bare"};

struct counts {
    uint64_t bags;
    uint64_t indices;
    uint64_t missing;
};

/* A query, or one feature of the group. */
struct made {
    const struct name *name;
    int32_t indices[INDICES_MAX];
    int32_t offsets[BAGS_MAX];
    int32_t lengths[BAGS_MAX];
    uint32_t index_count;
    uint32_t bag_count;
    uint32_t result_count; /* bags or, with reduction NONE, indices */
};

static struct eb_snapshot_version served = {.number = 7};
static struct eb_snapshot_model model = {.version_count = 1, .versions = &served};
static const struct eb_snapshot snapshot = {.count = 1, .models = &model};
static struct eb_table_counters counters;
static struct plan_fixture fixture;
static struct made made[QUERIES_MAX];
static struct made made_features[FEATURES];
static const char *feature_names[FEATURES];
static int32_t group_values[FEATURES * INDICES_MAX];
static int32_t group_lengths[FEATURES * BAGS_MAX];
static struct eb_wire_group group;
static struct counts expected[TABLES];
static uint64_t random_state;

static uint32_t roll(uint32_t count)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % count;
}

/* Makes indices, some of which name no row, in bags that begin at the first index. */
static void make_plan(struct made *one, uint32_t bag_count)
{
    *one = (struct made){.name = &names[roll(NAMES)], .bag_count = bag_count};
    for (uint32_t bag = 0; bag < bag_count; bag++) {
        one->offsets[bag] = (int32_t)one->index_count;
        one->lengths[bag] = (int32_t)roll(INDICES_MAX / BAGS_MAX + 1);
        one->index_count += (uint32_t)one->lengths[bag];
    }
    one->result_count = bag_count;
    for (uint32_t i = 0; i < one->index_count; i++) {
        one->indices[i] = (int32_t)(roll(6) > 0 ? roll(2) : roll(8)) - (roll(20) == 0);
    }
}

static int32_t choose_missing(void)
{
    return (int32_t)roll(EB_MISSING_COUNT);
}

static void make_query(size_t number)
{
    struct made *one = &made[number];
    struct eb_wire_query *query = &fixture.queries[number];
    make_plan(one, roll(BAGS_MAX + 1));
    *query = (struct eb_wire_query){.table = one->name->text, .missing = choose_missing()};
    plan_fixture_set_indices(query, one->indices, one->index_count);
    if (roll(4) == 0) {
        query->reduction = EB_REDUCTION_NONE;
        one->result_count = one->index_count;
    } else {
        plan_fixture_set_offsets(query, one->offsets, one->bag_count);
    }
}

static void make_group(void)
{
    uint32_t bag_count = roll(BAGS_MAX + 1);
    size_t value_count = 0;
    for (size_t f = 0; f < FEATURES; f++) {
        struct made *one = &made_features[f];
        make_plan(one, bag_count);
        feature_names[f] = one->name->text;
        memcpy(&group_lengths[f * bag_count], one->lengths, bag_count * sizeof one->lengths[0]);
        memcpy(&group_values[value_count], one->indices, one->index_count * sizeof one->indices[0]);
        value_count += one->index_count;
    }
    group = (struct eb_wire_group){.name = "",
        .feature_count = FEATURES,
        .features = feature_names,
        .bags = bag_count,
        .missing = choose_missing(),
        .reduction = EB_REDUCTION_SUM};
    group.values = (struct eb_wire_array){.data = group_values,
        .bytes = value_count * sizeof group_values[0],
        .width = sizeof group_values[0],
        .field = "values_i32"};
    group.lengths = (struct eb_wire_array){.data = group_lengths,
        .bytes = FEATURES * bag_count * sizeof group_lengths[0],
        .width = sizeof group_lengths[0],
        .field = "lengths_i32"};
}

static void expect_made(const struct made *one)
{
    struct counts *counts = &expected[one->name->table];
    counts->bags += one->result_count;
    counts->indices += one->index_count;
    for (uint32_t i = 0; i < one->index_count; i++) {
        int32_t index = one->indices[i];
        bool is_row = index >= 0 && index < one->name->row_count;
        counts->missing += !is_row && !(one->name->is_mapped && one->name->row_count > 0);
    }
}

static bool is_answered(size_t result)
{
    assert_true(result < fixture.response->result_count);
    return fixture.response->results[result].error_code == EB_STATUS_OK;
}

/* Checks each answered query and feature. Returns how many were answered. */
static size_t expect_answered(void)
{
    size_t query_count = fixture.request.query_count;
    size_t count = 0;
    for (size_t i = 0; i < query_count; i++) {
        if (is_answered(fixture.request.concat ? 0 : i)) {
            expect_made(&made[i]);
            count++;
        }
    }
    if (fixture.request.group_count > 0 && is_answered(query_count)) {
        for (size_t f = 0; f < FEATURES; f++) {
            expect_made(&made_features[f]);
            count++;
        }
    }
    return count;
}

static void expect_counts(void)
{
    struct eb_table_sums *part = eb_table_counters_copy(&counters, NOW_NS);
    assert_non_null(part);
    assert_int_equal(part->count, TABLES);
    for (size_t i = 0; i < TABLES; i++) {
        const struct eb_table_sum *sum = part->sums;
        while (strcmp(sum->table, tables[i]) != 0) {
            sum++;
        }
        assert_string_equal(sum->model, "trial");
        assert_int_equal(sum->bags, expected[i].bags);
        assert_int_equal(sum->indices, expected[i].indices);
        assert_int_equal(sum->missing, expected[i].missing);
    }
    free(part);
}

static int set_up(void **state)
{
    (void)state;
    memset(expected, 0, sizeof expected);
    random_state = SEED;
    served.loaded = (struct eb_model_version *)plan_fixture_version();
    eb_table_counters_init(&counters, NOW_NS);
    eb_table_counters_swap(&counters, &snapshot, NOW_NS);
    plan_fixture_init(&fixture, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    plan_fixture_deinit(&fixture);
    eb_table_counters_deinit(&counters);
    return 0;
}

/* Random requests of all kinds, a good part of which are answered. */
static void counts_what_was_asked_for(void **state)
{
    (void)state;
    size_t answered = 0;
    for (int round = 0; round < ROUNDS; round++) {
        fixture.request.query_count = roll(QUERIES_MAX + 1);
        for (size_t i = 0; i < fixture.request.query_count; i++) {
            make_query(i);
        }
        make_group();
        fixture.request.groups = &group;
        fixture.request.concat = fixture.request.query_count > 0 && roll(4) == 0;
        fixture.request.group_count = fixture.request.concat ? 0 : roll(2);
        fixture.request.errors_per_query = roll(2);
        fixture.request.report_missing = roll(2);
        if (plan_fixture_run(&fixture)) {
            eb_table_counters_add(&counters, &fixture.plan, NOW_NS);
            answered += expect_answered();
        }
    }
    assert_true(answered > ROUNDS);
    expect_counts();
    for (size_t i = 0; i < TABLES; i++) {
        assert_true(expected[i].bags > 0 && expected[i].indices > 0);
    }
}

static void counts_indices_in_no_bag(void **state)
{
    (void)state;
    static const int32_t indices[] = {-1, 99, 1, -1, 2};
    static const int32_t offsets[] = {2};
    fixture.request.query_count = 1;
    fixture.queries[0] = (struct eb_wire_query){.table = "rows", .missing = EB_MISSING_SKIP};
    plan_fixture_set_indices(&fixture.queries[0], indices, 5);
    plan_fixture_set_offsets(&fixture.queries[0], offsets, 1);
    assert_true(plan_fixture_run(&fixture));
    eb_table_counters_add(&counters, &fixture.plan, NOW_NS);
    expected[0] = (struct counts){.bags = 1, .indices = 5, .missing = 1};
    expect_counts();
}

EB_TEST_GROUP(table_counters_plan)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_what_was_asked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts_indices_in_no_bag, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, plan_fixture_load, plan_fixture_unload);
}
