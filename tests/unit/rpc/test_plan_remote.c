/* Requests to a router's version, whose tables are in part remote. */
#include "kernels/bag_ops.h"
#include "server/models/model_version.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/plan_fixture.h"
#include "tests/unit/tables/parts_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROW_BYTES 32 /* of all tables */

static const char description[] = "features: [{name: f, table: here}, {name: g, table: rows}]\n"
                                  "groups: [{name: pair, features: [f, g]}]\n";

static struct eb_model_settings *settings;
static struct eb_model_version *version;
static struct plan_fixture fixture;

static int load_router_version(void **state)
{
    (void)state;
    static const struct eb_parts_fixture_table tables[] = {
        {.name = "here", .placement = EB_PLACEMENT_EVERYWHERE, .rows = 7, .elements = 8},
        {.name = "keyed",
            .placement = EB_PLACEMENT_WHOLE,
            .is_keyed = true,
            .rows = 9,
            .elements = 8},
        {.name = "rows", .placement = EB_PLACEMENT_ROWS, .rows = 9, .elements = 8},
    };
    static const struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .is_router = true};
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_scratch scratch;
    struct eb_failure failure = {.text = ""};
    eb_scratch_init(&scratch);
    eb_parts_fixture_write(&scratch, "1", 2, "", tables, 3);
    eb_scratch_path(&scratch, "1", path);
    settings = eb_model_settings_create();
    assert_non_null(settings);
    assert_true(eb_model_config_parse(
        (const uint8_t *)description, strlen(description), 255, &settings->config, &failure));
    struct eb_version_source source = {
        .model = "m", .version = 1, .path = path, .settings = settings};
    version = eb_model_version_load(&source, &options, NULL, &failure);
    eb_scratch_deinit(&scratch);
    if (!version) {
        fail_msg("%s", failure.text);
    }
    return 0;
}

static int free_router_version(void **state)
{
    (void)state;
    eb_model_version_give(version);
    eb_model_settings_give(settings);
    return 0;
}

/* Checks a request to the router's version. */
static bool check_request(void)
{
    eb_arena_init(&fixture.arena, &fixture.memory);
    eb_arena_reset(&fixture.arena, fixture.arena_cap_bytes);
    fixture.plan = (struct eb_plan){
        .request = &fixture.request,
        .version = version,
        .limits = &fixture.limits,
        .ops = eb_bag_ops_find(NULL),
        .arena = &fixture.arena,
        .pool = &fixture.pool,
        .memo = &fixture.memo,
    };
    return eb_plan_check(&fixture.plan, &fixture.error);
}

static void plans_queries_on_tables_everywhere(void **state)
{
    (void)state;
    plan_fixture_init(&fixture, 2);
    fixture.queries[0].table = "here";
    fixture.queries[1].table = "f";
    assert_true(check_request());
    assert_int_equal(fixture.plan.counts.query_count, 2);
    plan_fixture_deinit(&fixture);
}

static void lists_queries_on_remote_tables(void **state)
{
    (void)state;
    static const char *const names[] = {"rows", "keyed", "g"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        plan_fixture_init(&fixture, 3);
        fixture.queries[0].table = "rows";
        fixture.queries[1].table = "here";
        fixture.queries[2].table = names[i];
        assert_true(check_request());
        assert_int_equal(fixture.plan.remote_count, 2);
        const struct eb_plan_remote *last = fixture.plan.remotes;
        assert_int_equal(last->number, 2);
        assert_string_equal(last->position.table, names[i]);
        assert_int_equal(last->next->number, 0);
        assert_null(last->next->next);
        plan_fixture_deinit(&fixture);
    }
}

static void forgets_those_of_a_group_that_fails(void **state)
{
    (void)state;
    static const char *const features[] = {"g", "nowhere"};
    struct eb_wire_group group = {.features = features, .feature_count = 2, .name = ""};
    plan_fixture_init(&fixture, 1);
    fixture.queries[0].table = "rows";
    fixture.request.groups = &group;
    fixture.request.group_count = 1;
    fixture.request.errors_per_query = true;
    assert_true(check_request());
    assert_int_equal(fixture.plan.results[1].status, EB_STATUS_NOT_FOUND);
    assert_int_equal(fixture.plan.remote_count, 1);
    assert_int_equal(fixture.plan.remotes->number, 0);
    plan_fixture_deinit(&fixture);
}

/* Makes the first query a sequence lookup of "keyed": indices 1, 2 in one bag and 3 in another. */
static void ask_for_sequence(const struct eb_wire_sequence *sequence)
{
    fixture.queries[0].table = "keyed";
    fixture.queries[0].reduction = EB_REDUCTION_NONE;
    fixture.queries[0].sequence = *sequence;
}

/* Has rows of the table "here" take the place of the rows or keys of a job, as if they had been
 * fetched. */
static void put_rows_here(uint32_t number)
{
    for (size_t i = 0; i < version->tables.count; i++) {
        if (strcmp(version->tables.tables[i].name, "here") == 0) {
            fixture.plan.jobs[number].table = &version->tables.tables[i].table;
        }
    }
}

static void leaves_sequences_of_keys_held_elsewhere_pending(void **state)
{
    (void)state;
    plan_fixture_init(&fixture, 1);
    ask_for_sequence(&(struct eb_wire_sequence){.max_len = 1});
    assert_true(check_request());
    const struct eb_plan *plan = &fixture.plan;
    const struct eb_plan_sequence *sequence = plan->results[0].sequence;
    assert_non_null(sequence->pending);
    assert_true(plan->remotes->is_fetched);
    assert_int_equal(plan->remotes->row_count, 3);
    assert_int_equal(plan->counts.result_rows, 0);
    assert_int_equal(plan->counts.values_bytes, 0);
    assert_int_equal(plan->jobs[0].bag_count, 2);
    assert_int_equal(plan->jobs[0].starts[1], 2);
    put_rows_here(0);
    assert_true(eb_plan_take_pending(&fixture.plan, &fixture.error));
    assert_int_equal(plan->jobs[0].reduction, EB_REDUCTION_NONE);
    assert_int_equal(plan->jobs[0].bag_count, 2);
    assert_true(plan->jobs[0].rows[0] == 2 && plan->jobs[0].rows[1] == 3);
    assert_int_equal(sequence->lengths_count, 2);
    assert_true(sequence->lengths[0] == 1 && sequence->lengths[1] == 1);
    assert_int_equal(sequence->row_count, 2);
    assert_int_equal(plan->counts.result_rows, 2);
    assert_int_equal(plan->counts.values_bytes, 2 * ROW_BYTES);
    assert_int_equal(plan->counts.gather_bytes, 2 * ROW_BYTES);
    plan_fixture_deinit(&fixture);
}

static void counts_padded_rows_of_pending_sequences_at_once(void **state)
{
    (void)state;
    plan_fixture_init(&fixture, 1);
    ask_for_sequence(&(struct eb_wire_sequence){.max_len = 5, .pad = true});
    fixture.limits.bags_max = 9;
    assert_false(check_request());
    assert_int_equal(fixture.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    eb_scratch_expect(fixture.error.text, "bags_max");
    eb_plan_deinit(&fixture.plan);
    eb_arena_deinit(&fixture.arena);
    fixture.limits.bags_max = 10;
    assert_true(check_request());
    assert_int_equal(fixture.plan.counts.result_rows, 10);
    put_rows_here(0);
    assert_true(eb_plan_take_pending(&fixture.plan, &fixture.error));
    assert_int_equal(fixture.plan.counts.result_rows, 10);
    assert_int_equal(fixture.plan.counts.values_bytes, 10 * ROW_BYTES);
    assert_int_equal(fixture.plan.counts.gather_bytes, 3 * ROW_BYTES);
    plan_fixture_deinit(&fixture);
}

/* The number of rows is known late, and counts all the same. */
static void refuses_more_values_than_fit_the_answer(void **state)
{
    (void)state;
    for (uint64_t more = 0; more < 2; more++) {
        plan_fixture_init(&fixture, 1);
        ask_for_sequence(&(struct eb_wire_sequence){.unique = true});
        fixture.limits.response_bytes_max = 3 * ROW_BYTES - more;
        fixture.request.errors_per_query = true;
        assert_true(check_request());
        put_rows_here(0);
        assert_int_equal(eb_plan_take_pending(&fixture.plan, &fixture.error), more == 0);
        if (more > 0) {
            assert_int_equal(fixture.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
            eb_scratch_expect(fixture.error.text, "queries[0] \"keyed\"");
            eb_scratch_expect(fixture.error.text, "response_bytes_max");
        }
        plan_fixture_deinit(&fixture);
    }
}

/* All features of a group wait if one has to, because their lists follow each other. */
static void leaves_whole_groups_pending(void **state)
{
    (void)state;
    static const char *const features[] = {"f", "keyed", "g"};
    static const int64_t values[] = {4, 4, 5, 6, 5, 3, 3};
    static const int32_t lengths[] = {2, 3, 2};
    static const uint32_t inverse[] = {0, 0, 1, 2, 1, 3, 3};
    struct eb_wire_group group = {.features = features,
        .feature_count = 3,
        .name = "",
        .bags = 1,
        .values = {values, sizeof values, 8, "values_i64"},
        .lengths = {lengths, sizeof lengths, 4, "lengths_i32"},
        .reduction = EB_REDUCTION_NONE,
        .sequence = {.unique = true}};
    plan_fixture_init(&fixture, 0);
    fixture.request.groups = &group;
    fixture.request.group_count = 1;
    assert_true(check_request());
    const struct eb_plan *plan = &fixture.plan;
    assert_int_equal(plan->remote_count, 2);
    assert_true(plan->remotes->is_fetched && plan->remotes->next->is_fetched);
    assert_int_equal(plan->remotes->first_index, 5);
    put_rows_here(1);
    put_rows_here(2);
    assert_true(eb_plan_take_pending(&fixture.plan, &fixture.error));
    const struct eb_plan_sequence *sequence = plan->results[0].sequence;
    assert_int_equal(sequence->row_count, 4);
    assert_int_equal(sequence->lengths_count, 3);
    assert_memory_equal(sequence->lengths, lengths, sizeof lengths);
    assert_int_equal(sequence->inverse_count, 7);
    assert_memory_equal(sequence->inverse, inverse, sizeof inverse);
    assert_int_equal(plan->jobs[1].bag_count, 2);
    assert_int_equal(plan->counts.result_rows, 4);
    plan_fixture_deinit(&fixture);
}

/* Without keys elsewhere, sequences are made at once, and only their rows are asked for. */
static void makes_other_sequences_at_once(void **state)
{
    (void)state;
    plan_fixture_init(&fixture, 1);
    ask_for_sequence(&(struct eb_wire_sequence){.max_len = 1});
    fixture.queries[0].table = "rows";
    assert_true(check_request());
    assert_null(fixture.plan.results[0].sequence->pending);
    assert_false(fixture.plan.remotes->is_fetched);
    assert_int_equal(fixture.plan.remotes->row_count, 2);
    plan_fixture_deinit(&fixture);
}

static void fetches_keys_that_are_in_no_bag(void **state)
{
    (void)state;
    static const char *const names[] = {"keyed", "rows"};
    for (size_t i = 0; i < 2; i++) {
        plan_fixture_init(&fixture, 1);
        fixture.queries[0].table = names[i];
        plan_fixture_set_offsets(&fixture.queries[0], NULL, 0);
        fixture.queries[0].layout = EB_LAYOUT_OFFSETS;
        assert_true(check_request());
        assert_int_equal(fixture.plan.jobs[0].bag_count, 0);
        assert_int_equal(fixture.plan.remotes->is_fetched, i == 0);
        assert_int_equal(fixture.plan.remotes->row_count, i == 0 ? 3 : 0);
        plan_fixture_deinit(&fixture);
    }
}

/* Raises *cap from 0 until the request is planned. */
static void expect_pending_refused_below(size_t *cap, size_t step)
{
    int refused_count = 0;
    *cap = 0;
    while (!check_request()) {
        assert_int_equal(fixture.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
        eb_scratch_expect(fixture.error.text, "no memory left for");
        assert_true(refused_count++ < 1000);
        *cap += step;
        eb_plan_deinit(&fixture.plan);
        eb_arena_deinit(&fixture.arena);
    }
    assert_true(refused_count > 2);
}

static void refuses_pending_sequences_that_memory_does_not_hold(void **state)
{
    (void)state;
    plan_fixture_init(&fixture, 1);
    ask_for_sequence(&(struct eb_wire_sequence){.unique = true});
    expect_pending_refused_below(&fixture.arena_cap_bytes, 16);
    assert_non_null(fixture.plan.results[0].sequence->pending);
    plan_fixture_deinit(&fixture);
}

EB_TEST_GROUP(plan_remote)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_queries_on_tables_everywhere),
        cmocka_unit_test(lists_queries_on_remote_tables),
        cmocka_unit_test(forgets_those_of_a_group_that_fails),
        cmocka_unit_test(leaves_sequences_of_keys_held_elsewhere_pending),
        cmocka_unit_test(counts_padded_rows_of_pending_sequences_at_once),
        cmocka_unit_test(refuses_more_values_than_fit_the_answer),
        cmocka_unit_test(leaves_whole_groups_pending),
        cmocka_unit_test(makes_other_sequences_at_once),
        cmocka_unit_test(fetches_keys_that_are_in_no_bag),
        cmocka_unit_test(refuses_pending_sequences_that_memory_does_not_hold),
    };
    return cmocka_run_group_tests(tests, load_router_version, free_router_version);
}
