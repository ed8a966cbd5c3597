/* Tests how tensors are grouped, how each group becomes a query, and which bytes the answer has. */
#include "server/rpc/infer_query.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/plan_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define INPUTS_MAX 8

static const int64_t ids[] = {1, 2, 3, 0};

static struct eb_infer_input inputs[INPUTS_MAX];
static struct eb_infer_output outputs[INPUTS_MAX];
static struct eb_infer_request infer;
static struct eb_arena arena;
static struct eb_error error;

static int set_up(void **state)
{
    (void)state;
    infer = (struct eb_infer_request){.inputs = inputs, .outputs = outputs, .id = ""};
    eb_arena_init(&arena, &eb_memory_heap);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_arena_deinit(&arena);
    return 0;
}

/* Adds an input of rank 1 with `count` ids. */
static struct eb_infer_input *add(const char *table, enum eb_infer_role role, uint64_t count)
{
    assert_true(infer.input_count < INPUTS_MAX);
    struct eb_infer_input *input = &inputs[infer.input_count++];
    *input = (struct eb_infer_input){
        .table = table,
        .role = role,
        .rank = 1,
        .dims = {count},
        .type = role == EB_INFER_WEIGHTS ? EB_F32 : EB_I64,
        .array = {.data = ids, .bytes = (size_t)count * 8, .width = 8, .field = "indices"},
    };
    return input;
}

static struct eb_infer_input *add_packed(const char *table, uint64_t bags, uint64_t per_bag)
{
    struct eb_infer_input *input = add(table, EB_INFER_INDICES, bags * per_bag);
    input->rank = 2;
    input->dims[0] = bags;
    input->dims[1] = per_bag;
    return input;
}

static void ask_for_output(const char *table, int32_t output_type)
{
    assert_true(infer.output_count < INPUTS_MAX);
    outputs[infer.output_count++] =
        (struct eb_infer_output){.table = table, .output_type = output_type};
}

static bool make_infer_query(uint64_t queries_max)
{
    error = (struct eb_error){.status = EB_STATUS_OK};
    eb_arena_reset(&arena, 1 << 16);
    return eb_infer_query_make(&infer, plan_fixture_version(), &arena, queries_max, &error);
}

static const struct eb_wire_query *accept(void)
{
    if (!make_infer_query(4)) {
        fail_msg("%s", error.text);
    }
    return infer.request.queries;
}

static void expect_query_refused(enum eb_status status, const char *text)
{
    assert_false(make_infer_query(4));
    assert_string_equal(error.text, text);
    assert_int_equal(error.status, status);
}

static void sorts_inputs_by_what_they_belong_to(void **state)
{
    (void)state;
    add("wide", EB_INFER_OFFSETS, 2);
    add("plain", EB_INFER_WEIGHTS, 4);
    add("rows", EB_INFER_INDICES, 3);
    add("wide", EB_INFER_INDICES, 4);
    add("plain", EB_INFER_OFFSETS, 1);
    add("rows", EB_INFER_OFFSETS, 3);
    add("plain", EB_INFER_INDICES, 4);
    const struct eb_wire_query *queries = accept();
    assert_int_equal(infer.request.query_count, 3);
    assert_int_equal(infer.output_count, 3);
    static const char *const names[] = {"wide", "plain", "rows"};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(queries[i].table, names[i]);
        assert_string_equal(infer.outputs[i].table, names[i]);
        assert_int_equal(queries[i].layout, EB_LAYOUT_OFFSETS);
        assert_null(queries[i].error);
    }
    assert_ptr_equal(queries[0].indices.data, ids);
    assert_int_equal(queries[0].indices.bytes, 32);
    assert_int_equal(queries[0].offsets.bytes, 16);
    assert_int_equal(queries[0].weights_bytes, 0);
    assert_int_equal(queries[0].weights_type, 0);
    assert_int_equal(queries[1].weights_bytes, 32);
    assert_int_equal(queries[1].weights_type, EB_F32);
}

static void two_dimensions_are_packed_bags(void **state)
{
    (void)state;
    add_packed("rows", 2, 2);
    add_packed("wide", 5, 0);
    add_packed("plain", 0, 7);
    const struct eb_wire_query *queries = accept();
    assert_int_equal(queries[0].layout, EB_LAYOUT_PACKED);
    assert_int_equal(queries[0].num_bags, 2);
    assert_int_equal(queries[0].indices_per_bag, 2);
    assert_int_equal(queries[1].num_bags, 5);
    assert_int_equal(queries[1].indices_per_bag, 0);
    assert_int_equal(queries[2].num_bags, 0);
    assert_int_equal(queries[2].indices_per_bag, 7);
}

static void what_a_table_says_goes_before_what_is_said_of_all(void **state)
{
    (void)state;
    infer.options = (struct eb_infer_options){.reduction = EB_REDUCTION_MAX, .missing = 2};
    add_packed("rows", 2, 2);
    struct eb_infer_input *own = add_packed("wide", 2, 2);
    own->options = (struct eb_infer_options){
        .reduction = EB_REDUCTION_MIN, .missing = 3, .has_default = true, .default_index = -1};
    const struct eb_wire_query *queries = accept();
    assert_int_equal(queries[0].reduction, EB_REDUCTION_MAX);
    assert_int_equal(queries[0].missing, 2);
    assert_false(queries[0].has_default);
    assert_int_equal(queries[1].reduction, EB_REDUCTION_MIN);
    assert_int_equal(queries[1].missing, 3);
    assert_true(queries[1].has_default);
    assert_int_equal(queries[1].default_index, -1);
}

static void what_is_said_of_all_holds_where_a_tensor_says_nothing(void **state)
{
    (void)state;
    infer.options = (struct eb_infer_options){.has_default = true,
        .default_index = 2,
        .has_last_offset = true,
        .include_last_offset = true};
    add("rows", EB_INFER_INDICES, 2);
    add("rows", EB_INFER_OFFSETS, 2);
    add("wide", EB_INFER_INDICES, 2)->options =
        (struct eb_infer_options){.has_default = true, .default_index = -1};
    add("wide", EB_INFER_OFFSETS, 2)->options = (struct eb_infer_options){.has_last_offset = true};
    add_packed("plain", 2, 2);
    const struct eb_wire_query *queries = accept();
    assert_true(queries[0].include_last_offset);
    assert_true(queries[0].has_default);
    assert_int_equal(queries[0].default_index, 2);
    assert_false(queries[1].include_last_offset);
    assert_int_equal(queries[1].default_index, -1);
    /* Packed bags have no offsets, so include_last_offset does not apply. */
    assert_false(queries[2].include_last_offset);
    assert_int_equal(queries[2].default_index, 2);
}

static void outputs_are_queries_in_their_order(void **state)
{
    (void)state;
    add_packed("rows", 2, 2);
    add_packed("wide", 1, 1);
    add("plain", EB_INFER_WEIGHTS, 1); /* not used, and not checked */
    ask_for_output("wide", EB_BF16);
    ask_for_output("rows", 0);
    const struct eb_wire_query *queries = accept();
    assert_int_equal(infer.request.query_count, 2);
    assert_string_equal(queries[0].table, "wide");
    assert_int_equal(queries[0].output_type, EB_BF16);
    assert_string_equal(queries[1].table, "rows");
    assert_int_equal(queries[1].output_type, 0);
}

static void refuses_outputs_without_inputs(void **state)
{
    (void)state;
    add_packed("rows", 2, 2);
    ask_for_output("wide", 0);
    expect_query_refused(
        EB_STATUS_INVALID_ARGUMENT, "\"wide\": its output is requested, but it has no inputs");
    infer.output_count = 0;
    ask_for_output("rows", 0);
    ask_for_output("rows", 0);
    expect_query_refused(EB_STATUS_INVALID_ARGUMENT, "\"rows\": its output is requested twice");
    infer.output_count = 0;
    ask_for_output("nothing", 0);
    expect_query_refused(EB_STATUS_NOT_FOUND,
        "\"nothing\": model \"trial\" version 7 has no table or feature of that name");
    infer.output_count = 0;
    ask_for_output("", 0);
    expect_query_refused(EB_STATUS_INVALID_ARGUMENT,
        "expected tensor names such as TABLE.indices; the table may be left out only if the model "
        "has one table, but model \"trial\" has 7");
}

static void refuses_inputs_that_do_not_go_together(void **state)
{
    (void)state;
    expect_query_refused(EB_STATUS_INVALID_ARGUMENT,
        "there are no inputs; a lookup needs at least one, called TABLE.indices");
    add("rows", EB_INFER_OFFSETS, 1);
    expect_query_refused(
        EB_STATUS_INVALID_ARGUMENT, "\"rows\": its indices are missing; they may be empty");
    add("rows", EB_INFER_OFFSETS, 1);
    expect_query_refused(EB_STATUS_INVALID_ARGUMENT, "\"rows\": offsets is given twice");
    infer.input_count = 1;
    add_packed("rows", 2, 2);
    expect_query_refused(EB_STATUS_INVALID_ARGUMENT,
        "\"rows\": indices of two dimensions are packed bags, which have no offsets; remove "
        "the offsets or give indices of one dimension");
    infer.input_count = 0;
    add("nothing", EB_INFER_INDICES, 1);
    expect_query_refused(EB_STATUS_NOT_FOUND,
        "\"nothing\": model \"trial\" version 7 has no table or feature of that name");
}

static void one_dimension_needs_offsets_but_for_rows_as_they_are(void **state)
{
    (void)state;
    struct eb_infer_input *indices = add("rows", EB_INFER_INDICES, 4);
    expect_query_refused(EB_STATUS_INVALID_ARGUMENT,
        "\"rows\": indices of one dimension need offsets; give indices of two dimensions "
        "for packed bags");
    indices->options.reduction = EB_REDUCTION_NONE;
    assert_int_equal(accept()[0].layout, EB_LAYOUT_UNSPECIFIED);
}

static void weights_have_the_shape_of_indices(void **state)
{
    (void)state;
    add_packed("rows", 2, 2);
    struct eb_infer_input *weights = add("rows", EB_INFER_WEIGHTS, 4);
    const char refusal[] = "\"rows\": per_sample_weights does not have the shape of indices";
    expect_query_refused(EB_STATUS_INVALID_ARGUMENT, refusal);
    weights->rank = 2;
    weights->dims[0] = 1;
    weights->dims[1] = 4;
    expect_query_refused(EB_STATUS_INVALID_ARGUMENT, refusal);
    weights->dims[0] = 2;
    weights->dims[1] = 2;
    assert_int_equal(accept()[0].weights_bytes, 32);
}

static void takes_as_many_tables_as_queries(void **state)
{
    (void)state;
    add_packed("rows", 1, 1);
    add_packed("wide", 1, 1);
    assert_true(make_infer_query(2));
    infer.output_count = 0;
    add_packed("plain", 1, 1);
    assert_false(make_infer_query(2));
    assert_string_equal(
        error.text, "inputs of 3 tables are more than a request may have, 2 (queries_max)");
    assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
}

static void makes_no_query_without_memory(void **state)
{
    (void)state;
    add_packed("rows", 1, 1);
    bool is_made = false;
    for (size_t cap_bytes = 0; !is_made; cap_bytes += EB_ARENA_ALIGNMENT) {
        infer.output_count = 0;
        eb_arena_reset(&arena, cap_bytes);
        is_made = eb_infer_query_make(&infer, plan_fixture_version(), &arena, 4, &error);
        assert_true(is_made || error.status == EB_STATUS_RESOURCE_EXHAUSTED);
    }
    /* The memory used is at most what the arena's cap provides for one query. */
    assert_true(arena.used_bytes <=
                EB_INFER_QUERY_BYTES + sizeof(struct eb_wire_query) + 4 * EB_ARENA_ALIGNMENT);
}

EB_TEST_GROUP(infer_query)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(sorts_inputs_by_what_they_belong_to),
        EACH(two_dimensions_are_packed_bags),
        EACH(what_a_table_says_goes_before_what_is_said_of_all),
        EACH(what_is_said_of_all_holds_where_a_tensor_says_nothing),
        EACH(outputs_are_queries_in_their_order),
        EACH(refuses_outputs_without_inputs),
        EACH(refuses_inputs_that_do_not_go_together),
        EACH(one_dimension_needs_offsets_but_for_rows_as_they_are),
        EACH(weights_have_the_shape_of_indices),
        EACH(takes_as_many_tables_as_queries),
        EACH(makes_no_query_without_memory),
    };
    return cmocka_run_group_tests(tests, plan_fixture_load, plan_fixture_unload);
}
