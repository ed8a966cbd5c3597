/* The legs of a request: their messages, and the answers to them. */
#include "proto/codec.h"
#include "server/route/route_legs.h"
#include "tests/lib/test_group.h"
#include "tests/unit/route/parted_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS 3
#define ITEMS 2

static const struct eb_route_version version = {"m", 7, UINT64_C(0x1234567890abcdef)};

/* Two queries on tables in three parts, and the answers to their legs. */
struct fixture {
    struct parted_table tables[ITEMS];
    struct parted_request requests[ITEMS];
    struct bag_fixture checked[ITEMS];
    struct eb_route_query queries[ITEMS];
    struct eb_route_split splits[ITEMS];
    struct eb_route_item items[ITEMS];
    struct eb_route_legs legs;
    struct eb_wire_result results[PARTS][2 * ITEMS];
    struct eb_wire_response answers[PARTS];
    struct eb_arena arena;
};

static void make_item(struct fixture *fixture, size_t i)
{
    struct parted_options options = {
        .type = i == 0 ? EB_F16 : EB_I32,
        .storage = i == 0 ? EB_STORAGE_F16 : EB_STORAGE_I32,
        .parts = PARTS,
        .row_count = 30,
        .row_elements = 2,
        .is_keyed = i == 0,
    };
    struct parted_table *table = &fixture->tables[i];
    parted_init(table, &options, 77 + i);
    do { /* Every part gets a leg. */
        parted_request_deinit(&fixture->requests[i]);
        bag_fixture_release(&fixture->checked[i]);
        parted_draw(table, EB_REDUCTION_SUM, EB_MISSING_SKIP, &fixture->requests[i]);
        parted_check(table, &fixture->requests[i].query, &fixture->checked[i]);
        fixture->queries[i] = (struct eb_route_query){
            .job = &fixture->checked[i].job, .rule = table->rule, .missing = EB_MISSING_SKIP};
        assert_true(eb_route_split(&fixture->queries[i], &fixture->arena, &fixture->splits[i]));
    } while (fixture->splits[i].sub_count < PARTS);
    fixture->items[i].table = i == 0 ? "first" : "second";
    assert_true(eb_route_merge_begin(
        &fixture->splits[i], eb_bag_ops_find("ref"), &fixture->arena, &fixture->items[i].merge));
}

static void answer_leg(struct fixture *fixture, uint32_t number)
{
    const struct eb_route_leg *leg = &fixture->legs.legs[number];
    struct eb_wire_result *results = fixture->results[number];
    for (uint32_t i = 0; i < leg->query_count; i++) {
        uint32_t item = leg->queries[i].item;
        parted_answer(
            &fixture->tables[item], &fixture->splits[item].subs[leg->queries[i].sub], &results[i]);
        results[i].query = i;
    }
    fixture->answers[number] = (struct eb_wire_response){.version = version.version,
        .digest = version.digest,
        .result_count = leg->query_count,
        .results = results};
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    eb_arena_init(&fixture->arena, &eb_memory_heap);
    eb_arena_reset(&fixture->arena, 1 << 20);
    for (size_t i = 0; i < ITEMS; i++) {
        make_item(fixture, i);
    }
    assert_true(eb_route_legs_group(fixture->items, ITEMS, NULL, &fixture->arena, &fixture->legs));
    for (uint32_t i = 0; i < fixture->legs.count; i++) {
        answer_leg(fixture, i);
    }
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < fixture->legs.count; i++) {
        for (uint32_t k = 0; k < fixture->legs.legs[i].query_count; k++) {
            parted_answer_free(&fixture->results[i][k]);
        }
    }
    for (size_t i = 0; i < ITEMS; i++) {
        bag_fixture_release(&fixture->checked[i]);
        parted_request_deinit(&fixture->requests[i]);
        parted_deinit(&fixture->tables[i]);
    }
    eb_arena_deinit(&fixture->arena);
    free(fixture);
    return 0;
}

static void groups_the_sub_queries_by_part(void **state)
{
    struct fixture *fixture = *state;
    uint32_t queries = 0;
    assert_int_equal(fixture->legs.count, PARTS);
    for (uint32_t i = 0; i < fixture->legs.count; i++) {
        const struct eb_route_leg *leg = &fixture->legs.legs[i];
        assert_true(i == 0 || leg->part > fixture->legs.legs[i - 1].part);
        for (uint32_t k = 0; k < leg->query_count; k++) {
            const struct eb_route_split *split = &fixture->splits[leg->queries[k].item];
            assert_int_equal(split->subs[leg->queries[k].sub].part, leg->part);
        }
        queries += leg->query_count;
    }
    assert_int_equal(queries, fixture->splits[0].sub_count + fixture->splits[1].sub_count);
}

static void a_request_without_remote_queries_has_no_legs(void **state)
{
    struct fixture *fixture = *state;
    struct eb_route_legs legs;
    assert_true(eb_route_legs_group(NULL, 0, NULL, &fixture->arena, &legs));
    assert_int_equal(legs.count, 0);
}

/* The message of a leg is read back as a server would read it. */
static void a_message_asks_for_the_sub_queries(void **state)
{
    struct fixture *fixture = *state;
    const struct eb_route_leg *leg = &fixture->legs.legs[0];
    static const struct eb_codec_limits limits = {.queries_max = 10, .name_bytes_max = 100};
    struct eb_wire_request request = {.model = ""};
    struct eb_decode_failure failure;
    assert_true(eb_route_leg_fill(leg, fixture->items, &version, &fixture->arena, &request));
    size_t bytes = eb_lookup_request_bytes(&request);
    uint8_t *message = malloc(bytes);
    assert_non_null(message);
    eb_lookup_request_encode(&request, message);
    const struct eb_wire_request *read =
        eb_lookup_request_decode(&fixture->arena, message, bytes, &limits, &failure);
    assert_non_null(read);
    assert_string_equal(read->model, "m");
    assert_int_equal(read->version, 7);
    assert_true(read->report_missing);
    assert_int_equal(read->query_count, leg->query_count);
    for (uint32_t i = 0; i < leg->query_count; i++) {
        const struct eb_route_item *item = &fixture->items[leg->queries[i].item];
        const struct eb_route_sub *sub = &item->merge.split->subs[leg->queries[i].sub];
        const struct eb_wire_query *query = &read->queries[i];
        assert_string_equal(query->table, item->table);
        assert_int_equal(query->part, 1 + leg->part);
        assert_int_equal(query->output_type, sub->output_type);
        assert_int_equal(query->missing, sub->missing);
        /* Row numbers of small tables take 4 bytes. */
        bool is_keyed = item->merge.split->query->rule.by_key;
        assert_int_equal(query->indices.width, is_keyed ? sizeof(int64_t) : sizeof(int32_t));
        assert_int_equal(query->indices.bytes, sub->index_count * query->indices.width);
        for (uint32_t k = 0; k < sub->index_count; k++) {
            int64_t key;
            int32_t row;
            memcpy(&key, (const int64_t *)query->indices.data + (is_keyed ? k : 0), sizeof key);
            memcpy(&row, (const int32_t *)query->indices.data + k, sizeof row);
            assert_int_equal(is_keyed ? key : row, sub->indices[k]);
        }
        assert_int_equal(query->lengths.bytes, sub->bag_count * sizeof(int32_t));
    }
    free(message);
}

/* Only the part knows whether a keyed table has the key; row numbers are checked here. */
static void asks_for_errors_of_results_only_for_default_keys(void **state)
{
    struct fixture *fixture = *state;
    const struct eb_route_leg *leg = &fixture->legs.legs[0];
    for (uint32_t i = 0; i < ITEMS; i++) {
        struct eb_wire_request request = {.model = ""};
        struct eb_route_sub *sub = &fixture->splits[i].subs[0];
        sub->has_default = true;
        assert_true(eb_route_leg_fill(leg, fixture->items, &version, &fixture->arena, &request));
        assert_int_equal(request.errors_per_query, fixture->queries[i].rule.by_key);
        sub->has_default = false;
    }
}

static void divides_what_is_too_much_for_one_message(void **state)
{
    struct fixture *fixture = *state;
    static const struct eb_route_caps one_query = {UINT64_MAX, UINT64_MAX, 1, 0};
    static const struct eb_route_caps few_bytes = {1, UINT64_MAX, UINT32_MAX, 0};
    static const struct eb_route_caps *const caps[] = {&one_query, &few_bytes};
    for (size_t c = 0; c < 2; c++) {
        struct eb_route_legs legs;
        uint32_t queries = 0;
        assert_true(eb_route_legs_group(fixture->items, ITEMS, caps[c], &fixture->arena, &legs));
        for (uint32_t i = 0; i < legs.count; i++) {
            assert_int_equal(legs.legs[i].query_count, 1);
            const struct eb_route_leg_query *query = &legs.legs[i].queries[0];
            assert_int_equal(fixture->splits[query->item].subs[query->sub].part, legs.legs[i].part);
            queries++;
        }
        assert_int_equal(queries, fixture->splits[0].sub_count + fixture->splits[1].sub_count);
    }
}

/* Groups the items, with at most `rows_bytes` of rows in a leg. Returns the number of legs. */
static uint32_t count_legs(struct fixture *fixture, uint64_t rows_bytes)
{
    struct eb_route_caps caps = {UINT64_MAX, UINT64_MAX, UINT32_MAX, rows_bytes};
    struct eb_route_legs legs;
    assert_true(eb_route_legs_group(fixture->items, ITEMS, &caps, &fixture->arena, &legs));
    for (uint32_t i = 0; i < legs.count && legs.count > fixture->legs.count; i++) {
        const struct eb_route_leg *leg = &legs.legs[i];
        assert_int_equal(leg->queries[0].item, leg->queries[leg->query_count - 1].item);
    }
    return legs.count;
}

static void no_leg_covers_items_with_too_many_rows(void **state)
{
    struct fixture *fixture = *state;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < ITEMS; i++) {
        fixture->items[i].merge.rows = NULL;
        bytes += eb_route_merge_rows_bytes(&fixture->items[i].merge);
    }
    assert_int_equal(count_legs(fixture, bytes), PARTS);
    assert_int_equal(count_legs(fixture, bytes - 1), ITEMS * PARTS);
    assert_int_equal(count_legs(fixture, 1), ITEMS * PARTS);
    assert_int_equal(count_legs(fixture, 0), PARTS);
}

static void rows_that_have_memory_do_not_divide_legs(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(count_legs(fixture, 1), PARTS);
    fixture->items[1].merge.rows = NULL;
    assert_int_equal(count_legs(fixture, 1), PARTS);
}

static void takes_sound_answers(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < fixture->legs.count; i++) {
        struct eb_error error = {0};
        if (!eb_route_leg_take(
                &fixture->legs.legs[i], fixture->items, &version, &fixture->answers[i], &error)) {
            fail_msg("%s", error.text);
        }
    }
}

static void refuses_another_number_of_results(void **state)
{
    struct fixture *fixture = *state;
    struct eb_wire_response answer = fixture->answers[0];
    struct eb_error error = {0};
    char text[100];
    answer.result_count = 3;
    snprintf(text, sizeof text, "it has 3 results, expected %u", fixture->legs.legs[0].query_count);
    assert_false(
        eb_route_leg_take(&fixture->legs.legs[0], fixture->items, &version, &answer, &error));
    assert_non_null(strstr(error.text, text));
}

static void assert_leg_refused(
    struct fixture *fixture, const struct eb_wire_response *answer, enum eb_status status)
{
    struct eb_error error = {0};
    assert_false(
        eb_route_leg_take(&fixture->legs.legs[0], fixture->items, &version, answer, &error));
    assert_int_equal(error.status, status);
    assert_non_null(strstr(error.text, "part 0"));
}

static void refuses_answers_to_something_else(void **state)
{
    struct fixture *fixture = *state;
    struct eb_wire_response answer = fixture->answers[0];
    answer.version = 8;
    assert_leg_refused(fixture, &answer, EB_STATUS_INTERNAL);
    answer = fixture->answers[0];
    answer.digest++;
    assert_leg_refused(fixture, &answer, EB_STATUS_FAILED_PRECONDITION);
    answer = fixture->answers[0];
    answer.more = true;
    assert_leg_refused(fixture, &answer, EB_STATUS_INTERNAL);
    answer = fixture->answers[0];
    answer.result_count--;
    assert_leg_refused(fixture, &answer, EB_STATUS_INTERNAL);
    answer.result_count += 2;
    assert_leg_refused(fixture, &answer, EB_STATUS_INTERNAL);
}

static void refuses_results_in_another_order_and_errors(void **state)
{
    struct fixture *fixture = *state;
    fixture->results[0][0].query = 1;
    assert_leg_refused(fixture, &fixture->answers[0], EB_STATUS_INTERNAL);
    fixture->results[0][0].query = 0;
    fixture->results[0][0].error_code = EB_STATUS_OUT_OF_RANGE;
    assert_leg_refused(fixture, &fixture->answers[0], EB_STATUS_INTERNAL);
}

static void grouping_fails_if_the_arena_is_full(void **state)
{
    struct fixture *fixture = *state;
    struct eb_arena arena;
    struct eb_route_legs legs;
    struct eb_wire_request request = {.model = ""};
    size_t failures = 0;
    bool is_good = false;
    eb_arena_init(&arena, &eb_memory_heap);
    for (size_t cap = 0; !is_good; cap += 16) {
        eb_arena_reset(&arena, cap);
        is_good = eb_route_legs_group(fixture->items, ITEMS, NULL, &arena, &legs) &&
                  eb_route_leg_fill(&legs.legs[0], fixture->items, &version, &arena, &request);
        assert_int_equal(is_good, !arena.is_exhausted);
        failures += !is_good;
    }
    assert_true(failures > 5);
    eb_arena_deinit(&arena);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(route_legs)
{
    const struct CMUnitTest tests[] = {
        TEST(groups_the_sub_queries_by_part),
        TEST(divides_what_is_too_much_for_one_message),
        TEST(no_leg_covers_items_with_too_many_rows),
        TEST(rows_that_have_memory_do_not_divide_legs),
        TEST(a_request_without_remote_queries_has_no_legs),
        TEST(a_message_asks_for_the_sub_queries),
        TEST(asks_for_errors_of_results_only_for_default_keys),
        TEST(takes_sound_answers),
        TEST(refuses_another_number_of_results),
        TEST(refuses_answers_to_something_else),
        TEST(refuses_results_in_another_order_and_errors),
        TEST(grouping_fails_if_the_arena_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
