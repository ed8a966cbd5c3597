/* Sequence lookups in plans and answers: their weight, what counts against the caps, and what
 * happens if memory runs out. */
#include "tests/unit/rpc/plan_fixture.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ROW_BYTES 8 /* of "rows" */

/* One query of "rows": indices 1, 2 in one bag and 3 in another. */
static struct plan_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    plan_fixture_init(&fixture, 1);
    fixture.queries[0].reduction = EB_REDUCTION_NONE;
    fixture.queries[0].sequence.max_len = 1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    plan_fixture_deinit(&fixture);
    return 0;
}

static const struct eb_wire_result *run_sequence(void)
{
    if (!plan_fixture_run(&fixture)) {
        fail_msg("%s", fixture.error.text);
    }
    return &fixture.response->results[0];
}

static void keeps_the_last_row_of_each_bag(void **state)
{
    (void)state;
    static const float values[] = {20, 21, 30, 31};
    static const int32_t lengths[] = {1, 1};
    const struct eb_wire_result *result = run_sequence();
    plan_fixture_expect_rows(&fixture, 0, 2, values, 4);
    assert_int_equal(result->lengths_bytes, sizeof lengths);
    assert_memory_equal(result->lengths, lengths, sizeof lengths);
    assert_int_equal(result->inverse_bytes, 0);
}

/* The work is queued by the rows that are read: neither rows that max_len cuts nor padding. */
static void weighs_only_the_rows_that_are_read(void **state)
{
    (void)state;
    run_sequence();
    assert_int_equal(fixture.plan.counts.gather_bytes, 2 * ROW_BYTES);
    assert_int_equal(fixture.plan.counts.values_bytes, 2 * ROW_BYTES);
    fixture.queries[0].sequence = (struct eb_wire_sequence){.max_len = 5, .pad = true};
    run_sequence();
    assert_int_equal(fixture.plan.counts.gather_bytes, 3 * ROW_BYTES);
    assert_int_equal(fixture.plan.counts.values_bytes, 10 * ROW_BYTES);
    fixture.queries[0].sequence = (struct eb_wire_sequence){.unique = true};
    static const int32_t same[] = {2, 2, 2};
    plan_fixture_set_indices(&fixture.queries[0], same, 3);
    run_sequence();
    assert_int_equal(fixture.plan.counts.gather_bytes, ROW_BYTES);
    assert_int_equal(fixture.plan.counts.values_bytes, ROW_BYTES);
}

static void counts_padded_rows_as_bags(void **state)
{
    (void)state;
    fixture.queries[0].sequence = (struct eb_wire_sequence){.max_len = 5, .pad = true};
    fixture.limits.bags_max = 10;
    run_sequence();
    fixture.limits.bags_max = 9;
    plan_fixture_expect_refused(&fixture, EB_STATUS_RESOURCE_EXHAUSTED, "bags_max");
    fixture.queries[0].sequence.pad = false;
    run_sequence();
}

/* The caps of a failed query are free for the next one. */
static void frees_the_caps_of_a_query_that_fails(void **state)
{
    (void)state;
    static const int32_t wrong[] = {1, 2, 9};
    fixture.queries[1] = fixture.queries[0];
    fixture.request.query_count = 2;
    fixture.request.errors_per_query = true;
    fixture.limits.response_bytes_max = 128;
    for (size_t i = 0; i < 2; i++) {
        fixture.queries[i].sequence = (struct eb_wire_sequence){.max_len = 7, .pad = i == 0};
    }
    plan_fixture_set_indices(&fixture.queries[0], wrong, 3);
    assert_true(plan_fixture_check(&fixture));
    assert_int_equal(fixture.plan.results[0].status, EB_STATUS_OUT_OF_RANGE);
    assert_int_equal(fixture.plan.results[1].status, EB_STATUS_OK);
    assert_int_equal(fixture.plan.asked.values_bytes, 3 * ROW_BYTES);
}

/* Raises *cap from 0 until the request is answered. */
static void expect_sequence_refused_below(uint64_t *cap, uint64_t step)
{
    int refused_count = 0;
    *cap = 0;
    while (!plan_fixture_run(&fixture)) {
        assert_int_equal(fixture.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
        eb_scratch_expect(fixture.error.text, "no memory left for");
        assert_true(refused_count++ < 1000);
        *cap += step;
    }
    assert_true(refused_count > 2);
    assert_int_equal(fixture.response->results[0].lengths_bytes, 8);
}

static void refuses_sequences_that_memory_does_not_hold(void **state)
{
    (void)state;
    static const struct eb_wire_sequence sequences[] = {
        {.max_len = 400, .pad = true}, {.unique = true}};
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        fixture.queries[0].sequence = sequences[i];
        expect_sequence_refused_below(&fixture.pool.cap_bytes, 1024);
        expect_sequence_refused_below(&fixture.arena_cap_bytes, 64);
    }
}

EB_TEST_GROUP(plan_sequence)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(keeps_the_last_row_of_each_bag),
        TEST(weighs_only_the_rows_that_are_read),
        TEST(counts_padded_rows_as_bags),
        TEST(frees_the_caps_of_a_query_that_fails),
        TEST(refuses_sequences_that_memory_does_not_hold),
    };
    return cmocka_run_group_tests(tests, plan_fixture_load, plan_fixture_unload);
}
