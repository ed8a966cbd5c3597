#include "proto/guard.h"
#include "tests/lib/test_group.h"
#include "tests/unit/proto/infer_fixture.h"

#include "embag/v1/embedding_bag.pb-c.h"
#include "inference/open_inference.pb-c.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PARAMETERS 4
#define INPUTS 5
#define OUTPUTS 6
#define RAW 7

#define OF_REQUESTS                                                                                \
    "reduction, missing, output_type, default_index, include_last_offset, timeout, priority, "     \
    "sequence_id, sequence_start, sequence_end, binary_data_output"

static const int64_t wide[] = {1, -2, INT64_MAX};
static const int32_t narrow[] = {1, -2, INT32_MAX};
static const double weights[] = {0.5, -1, 2};

static struct infer_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    infer_fixture_init(&fixture);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    infer_fixture_deinit(&fixture);
    return 0;
}

/* Makes a request with everything that one may contain, with raw contents. */
static void make_whole(struct infer_message *request)
{
    static const uint64_t dims[] = {3, 1};
    struct infer_message tensor;
    infer_message_init(request);
    eb_field_put_text(&request->writer, 1, "model");
    eb_field_put_text(&request->writer, 2, "7");
    eb_field_put_text(&request->writer, 3, "an id");
    infer_message_put_text(request, PARAMETERS, "reduction", "weighted_mean");
    infer_message_put_text(request, PARAMETERS, "missing", "skip");
    infer_message_put_text(request, PARAMETERS, "output_type", "bf16");
    infer_message_put_number(request, PARAMETERS, "timeout", 2, 1500);
    infer_message_init(&tensor);
    eb_field_put_text(&tensor.writer, 1, "a.b.indices");
    eb_field_put_text(&tensor.writer, 2, "INT64");
    eb_field_put_present(&tensor.writer, 3, dims[0]);
    eb_field_put_present(&tensor.writer, 3, dims[1]);
    infer_message_put_text(&tensor, PARAMETERS, "reduction", "max");
    infer_message_put_text(&tensor, PARAMETERS, "missing", "unknown_row");
    infer_message_put_number(&tensor, PARAMETERS, "default_index", 2, UINT64_MAX);
    infer_message_put(request, INPUTS, &tensor);
    infer_message_init_input(&tensor, "offsets", "INT32", 3);
    infer_message_put_number(&tensor, PARAMETERS, "include_last_offset", 1, 1);
    infer_message_put(request, INPUTS, &tensor);
    infer_message_init_input(&tensor, "a.b.per_sample_weights", "FP64", 3);
    infer_message_put(request, INPUTS, &tensor);
    infer_message_init(&tensor);
    eb_field_put_text(&tensor.writer, 1, "a.b.pooled");
    infer_message_put_text(&tensor, 2, "output_type", "f16");
    infer_message_put(request, OUTPUTS, &tensor);
    infer_message_init(&tensor);
    eb_field_put_text(&tensor.writer, 1, "pooled");
    infer_message_put(request, OUTPUTS, &tensor);
    eb_field_put_bytes(&request->writer, RAW, wide, sizeof wide);
    eb_field_put_bytes(&request->writer, RAW, narrow, sizeof narrow);
    eb_field_put_bytes(&request->writer, RAW, weights, sizeof weights);
}

static void expect_inputs(const struct eb_infer_input *inputs)
{
    assert_string_equal(inputs[0].table, "a.b");
    assert_int_equal(inputs[0].role, EB_INFER_INDICES);
    assert_int_equal(inputs[0].rank, 2);
    assert_int_equal(inputs[0].dims[0], 3);
    assert_int_equal(inputs[0].dims[1], 1);
    assert_string_equal(inputs[0].array.field, "indices");
    infer_fixture_expect_array(&inputs[0], 8, wide, sizeof wide);
    assert_int_equal(inputs[0].options.reduction, EMBAG__V1__REDUCTION__REDUCTION_MAX);
    assert_int_equal(inputs[0].options.missing, EMBAG__V1__MISSING__MISSING_UNKNOWN_ROW);
    assert_true(inputs[0].options.has_default);
    assert_int_equal(inputs[0].options.default_index, -1);
    assert_string_equal(inputs[1].table, "");
    assert_int_equal(inputs[1].role, EB_INFER_OFFSETS);
    assert_int_equal(inputs[1].rank, 1);
    infer_fixture_expect_array(&inputs[1], 4, narrow, sizeof narrow);
    assert_true(inputs[1].options.include_last_offset);
    assert_string_equal(inputs[2].table, "a.b");
    assert_int_equal(inputs[2].role, EB_INFER_WEIGHTS);
    assert_int_equal(inputs[2].type, EMBAG__V1__DATA_TYPE__DATA_TYPE_F64);
    infer_fixture_expect_array(&inputs[2], 8, weights, sizeof weights);
}

static void reads_all_that_a_request_says(void **state)
{
    (void)state;
    struct infer_message message;
    make_whole(&message);
    const struct eb_infer_request *infer = infer_fixture_accept(&fixture, &message);
    const struct eb_wire_request *request = &infer->request;
    assert_ptr_equal(request->infer, infer);
    assert_string_equal(request->model, "model");
    assert_int_equal(request->version, 7);
    assert_string_equal(request->version_label, "");
    assert_int_equal(request->query_count, 0);
    assert_int_equal(request->output_type, EMBAG__V1__DATA_TYPE__DATA_TYPE_BF16);
    assert_int_equal(request->timeout_us, 1500);
    assert_string_equal(infer->id, "an id");
    assert_int_equal(infer->options.reduction, EMBAG__V1__REDUCTION__REDUCTION_WEIGHTED_MEAN);
    assert_int_equal(infer->options.missing, EMBAG__V1__MISSING__MISSING_SKIP);
    assert_int_equal(infer->input_count, 3);
    expect_inputs(infer->inputs);
    assert_int_equal(infer->output_count, 2);
    assert_string_equal(infer->outputs[0].table, "a.b");
    assert_int_equal(infer->outputs[0].output_type, EMBAG__V1__DATA_TYPE__DATA_TYPE_F16);
    assert_string_equal(infer->outputs[1].table, "");
    assert_int_equal(infer->outputs[1].output_type, 0);
}

static void leaves_raw_contents_where_they_are(void **state)
{
    (void)state;
    struct infer_message message;
    make_whole(&message);
    const uint8_t *data = infer_fixture_accept(&fixture, &message)->inputs[2].array.data;
    assert_ptr_equal(data + sizeof weights, message.bytes + message.writer.bytes);
}

static void reads_a_request_that_says_nothing(void **state)
{
    (void)state;
    struct infer_message message;
    infer_message_init(&message);
    const struct eb_infer_request *infer = infer_fixture_accept(&fixture, &message);
    assert_string_equal(infer->request.model, "");
    assert_int_equal(infer->request.version, 0);
    assert_string_equal(infer->id, "");
    assert_int_equal(infer->input_count, 0);
    assert_int_equal(infer->output_count, 0);
}

/* ---- limits, memory, and bytes that are not a message ---- */

/* Makes a request of `inputs` empty tensors and `outputs` outputs. */
static void make_many(struct infer_message *request, unsigned inputs, unsigned outputs)
{
    struct infer_message tensor;
    infer_message_init(request);
    for (unsigned i = 0; i < inputs; i++) {
        infer_message_init_input(&tensor, "indices", "INT64", 0);
        infer_message_put(request, INPUTS, &tensor);
    }
    for (unsigned i = 0; i < outputs; i++) {
        infer_message_init(&tensor);
        eb_field_put_text(&tensor.writer, 1, "pooled");
        infer_message_put(request, OUTPUTS, &tensor);
    }
}

static void takes_as_many_tensors_as_queries_have(void **state)
{
    (void)state;
    struct infer_message request;
    make_many(&request, 6, 2);
    assert_int_equal(infer_fixture_accept(&fixture, &request)->input_count, 6);
    assert_int_equal(infer_fixture_accept(&fixture, &request)->output_count, 2);
    make_many(&request, 7, 0);
    infer_fixture_refuse(&request, EB_STATUS_RESOURCE_EXHAUSTED,
        "7 inputs and 0 outputs; a request may have those of at most 2 tables");
    make_many(&request, 1, 3);
    infer_fixture_refuse(&request, EB_STATUS_RESOURCE_EXHAUSTED,
        "1 inputs and 3 outputs; a request may have those of at most 2 tables");
}

static void takes_the_largest_requests_within_the_cap_of_a_lookup(void **state)
{
    (void)state;
    enum { QUERIES = 4096 };
    static const struct eb_codec_limits many = {.queries_max = QUERIES, .name_bytes_max = 20};
    struct infer_message one;
    make_many(&one, 3, 1);
    size_t size = QUERIES * one.writer.bytes;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < QUERIES; i++) {
        memcpy(bytes + i * one.writer.bytes, one.bytes, one.writer.bytes);
    }
    eb_arena_reset(&fixture.arena, eb_lookup_request_arena_bytes(size, &many));
    const struct eb_infer_request *infer =
        eb_infer_request_decode(&fixture.arena, bytes, size, &many, &fixture.failure);
    assert_non_null(infer);
    assert_int_equal(infer->input_count, 3 * QUERIES);
    free(bytes);
}

static void fails_where_memory_does(void **state)
{
    (void)state;
    struct infer_message message;
    make_whole(&message);
    bool is_read = false;
    for (size_t fail_at = 1; !is_read; fail_at++) {
        struct infer_fixture failing;
        infer_fixture_init(&failing);
        failing.lender.fail_at = fail_at;
        is_read = infer_fixture_decode(&failing, message.bytes, message.writer.bytes);
        assert_true(is_read || failing.failure.error.status == EB_STATUS_RESOURCE_EXHAUSTED);
        assert_true(is_read || !failing.failure.undecodable);
        infer_fixture_deinit(&failing);
    }
}

/* Decodes a copy that ends where its memory ends. Returns whether it is accepted. */
static bool is_taken(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    bool taken = infer_fixture_decode(&fixture, copy, size);
    struct eb_guard_limits lenient = {
        .fields_max = UINT32_MAX, .name_bytes_max = 64, .submessages_max = UINT32_MAX};
    struct eb_error error;
    if (taken) {
        assert_true(eb_guard_check(
            &inference__model_infer_request__descriptor, copy, size, &lenient, &error));
    } else {
        assert_true(fixture.failure.error.status != EB_STATUS_OK);
        assert_true(fixture.failure.error.text[0] != '\0');
    }
    free(copy);
    return taken;
}

static void survives_a_cut_at_every_byte(void **state)
{
    (void)state;
    struct infer_message message;
    make_whole(&message);
    size_t taken = 0;
    for (size_t size = 0; size < message.writer.bytes; size++) {
        taken += is_taken(message.bytes, size);
    }
    /* A cut is accepted only between the fields before the first input. After those, the raw
     * contents of an input are missing. */
    assert_int_equal(taken, 8);
    assert_true(is_taken(message.bytes, message.writer.bytes));
}

static void survives_every_wrong_byte(void **state)
{
    (void)state;
    struct infer_message message;
    make_whole(&message);
    for (size_t i = 0; i < message.writer.bytes; i++) {
        uint8_t right = message.bytes[i];
        for (unsigned bit = 0; bit < 8; bit++) {
            message.bytes[i] = (uint8_t)(right ^ 1u << bit);
            (void)is_taken(message.bytes, message.writer.bytes);
        }
        message.bytes[i] = right;
    }
}

static void refuses_a_message_that_occurs_twice(void **state)
{
    (void)state;
    struct infer_message request;
    struct infer_message input;
    struct infer_message nothing;
    infer_message_init(&nothing);
    infer_message_init_input(&input, "indices", "INT64", 0);
    infer_message_put(&input, 5, &nothing);
    infer_message_put(&input, 5, &nothing);
    infer_message_init(&request);
    infer_message_put(&request, INPUTS, &input);
    infer_fixture_refuse(&request, EB_STATUS_INTERNAL,
        "ModelInferRequest.inputs[0].contents occurs twice (byte 25)");
    infer_message_init(&input);
    infer_message_put(&input, 2, &nothing);
    infer_message_put(&input, 2, &nothing);
    infer_message_init(&request);
    infer_message_put(&request, PARAMETERS, &input);
    infer_fixture_refuse(&request, EB_STATUS_INTERNAL,
        "ModelInferRequest.parameters[0].value occurs twice (byte 6)");
}

static void skips_unknown_fields(void **state)
{
    (void)state;
    struct infer_message request;
    struct infer_message input;
    infer_message_init_input(&input, "indices", "INT64", 0);
    eb_field_put_text(&input.writer, 99, "\xff");
    infer_message_init(&request);
    eb_field_put_number(&request.writer, 8, 5);
    infer_message_put(&request, INPUTS, &input);
    assert_int_equal(infer_fixture_accept(&fixture, &request)->input_count, 1);
}

/* ---- parameters ---- */

static void refuses_parameters_by_name_and_place(void **state)
{
    (void)state;
    struct infer_message request;
    struct infer_message tensor;
    infer_message_init(&request);
    infer_message_put_text(&request, PARAMETERS, "binary_data", "0");
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "parameter \"binary_data\" is not accepted here; expected one of " OF_REQUESTS);
    infer_message_init_input(&tensor, "per_sample_weights", "FP32", 0);
    infer_message_put_text(&tensor, PARAMETERS, "reduction", "sum");
    infer_message_init(&request);
    infer_message_put(&request, INPUTS, &tensor);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "inputs[0] \"per_sample_weights\": parameter \"reduction\" is not accepted here; expected "
        "one of "
        "binary_data_size");
}

static void passes_over_parameters_that_are_tritons_own(void **state)
{
    (void)state;
    struct infer_message request;
    infer_message_init(&request);
    infer_message_put_text(&request, PARAMETERS, "triton_any", "word");
    infer_message_put_number(&request, PARAMETERS, "triton_", 1, 1);
    infer_fixture_accept(&fixture, &request);
    infer_message_init(&request);
    infer_message_put_text(&request, PARAMETERS, "triton", "word");
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "parameter \"triton\" is not accepted here; expected one of " OF_REQUESTS);
}

static void takes_integers_of_both_signs(void **state)
{
    (void)state;
    struct infer_message request;
    infer_message_init(&request);
    infer_message_put_number(&request, PARAMETERS, "timeout", 5, 12);
    assert_int_equal(infer_fixture_accept(&fixture, &request)->request.timeout_us, 12);
    infer_message_init(&request);
    infer_message_put_number(&request, PARAMETERS, "timeout", 5, (uint64_t)INT64_MAX + 1);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "parameter \"timeout\" must be an integer of at least 0, in microseconds");
    infer_message_init(&request);
    infer_message_put_number(&request, PARAMETERS, "timeout", 1, 1);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "parameter \"timeout\" must be an integer of at least 0, in microseconds");
}

/* Makes a request with one parameter, which is a number. */
static void make_number(
    struct infer_message *request, const char *name, uint32_t form, uint64_t value)
{
    infer_message_init(request);
    infer_message_put_number(request, PARAMETERS, name, form, value);
}

static void takes_options_for_all_tables(void **state)
{
    (void)state;
    struct infer_message request;
    make_number(&request, "default_index", 2, 3);
    infer_message_put_number(&request, PARAMETERS, "include_last_offset", 1, 1);
    const struct eb_infer_options *options = &infer_fixture_accept(&fixture, &request)->options;
    assert_true(options->has_default);
    assert_int_equal(options->default_index, 3);
    assert_true(options->has_last_offset);
    assert_true(options->include_last_offset);
    make_number(&request, "default_index", 1, 1);
    infer_fixture_refuse(
        &request, EB_STATUS_INVALID_ARGUMENT, "parameter \"default_index\" must be an integer");
    make_number(&request, "include_last_offset", 2, 1);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "parameter \"include_last_offset\" must be a boolean");
}

static void takes_priorities_as_triton_has_them(void **state)
{
    (void)state;
    static const uint32_t batch[] = {0, 0, 1};
    struct infer_message request;
    const char *refusal = "parameter \"priority\" must be 0 or 1 (interactive) or 2 (batch)";
    for (uint64_t priority = 0; priority < 3; priority++) {
        make_number(&request, "priority", 5, priority);
        assert_int_equal(
            infer_fixture_accept(&fixture, &request)->request.priority, batch[priority]);
        make_number(&request, "priority", 2, priority);
        assert_int_equal(
            infer_fixture_accept(&fixture, &request)->request.priority, batch[priority]);
    }
    make_number(&request, "priority", 5, 3);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, refusal);
    make_number(&request, "priority", 2, UINT64_MAX);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, refusal);
    make_number(&request, "priority", 1, 1);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, refusal);
}

static void refuses_sequences(void **state)
{
    (void)state;
    struct infer_message request;
    const char *no_id = "parameter \"sequence_id\" must be 0: sequences are not supported, since "
                        "requests are independent";
    make_number(&request, "sequence_id", 2, 0);
    infer_message_put_number(&request, PARAMETERS, "sequence_id", 5, 0);
    infer_message_put_number(&request, PARAMETERS, "sequence_start", 1, 0);
    infer_message_put_number(&request, PARAMETERS, "sequence_end", 1, 0);
    infer_fixture_accept(&fixture, &request);
    make_number(&request, "sequence_id", 2, 7);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, no_id);
    make_number(&request, "sequence_id", 1, 0);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, no_id);
    infer_message_init(&request);
    infer_message_put_text(&request, PARAMETERS, "sequence_id", "a");
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, no_id);
    make_number(&request, "sequence_start", 1, 1);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "parameter \"sequence_start\" must be false: sequences are not supported, since requests "
        "are independent");
    make_number(&request, "sequence_end", 2, 0);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "parameter \"sequence_end\" must be false: sequences are not supported, since requests "
        "are independent");
}

/* ---- KServe's parameters for binary data ---- */

/* Makes a request of one input, with three raw integers or none, and one output, with these
 * parameters. */
static void make_binary(struct infer_message *request, uint32_t size_form, uint64_t size,
    uint32_t output_form, bool has_raw)
{
    struct infer_message tensor;
    infer_message_init_input(&tensor, "indices", "INT64", has_raw ? 3 : 0);
    infer_message_put_number(&tensor, PARAMETERS, "binary_data_size", size_form, size);
    infer_message_init(request);
    infer_message_put(request, INPUTS, &tensor);
    infer_message_init(&tensor);
    eb_field_put_text(&tensor.writer, 1, "pooled");
    infer_message_put_number(&tensor, 2, "binary_data", output_form, 1);
    infer_message_put(request, OUTPUTS, &tensor);
    if (has_raw) {
        eb_field_put_bytes(&request->writer, RAW, wide, sizeof wide);
    }
}

static void takes_what_says_that_data_is_binary(void **state)
{
    (void)state;
    struct infer_message request;
    make_binary(&request, 2, sizeof wide, 1, true);
    infer_message_put_number(&request, PARAMETERS, "binary_data_output", 1, 1);
    infer_fixture_expect_array(
        &infer_fixture_accept(&fixture, &request)->inputs[0], 8, wide, sizeof wide);
}

static void refuses_binary_data_that_is_not_as_it_says(void **state)
{
    (void)state;
    struct infer_message request;
    make_binary(&request, 2, sizeof wide + 1, 1, true);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "inputs[0] \"indices\": parameter \"binary_data_size\" is 25, but raw_input_contents has "
        "24 bytes for it");
    /* Typed contents have no binary_data_size, so not even a size of 0 is accepted. */
    for (uint64_t size = 0; size <= sizeof wide; size += sizeof wide) {
        char text[EB_ERROR_TEXT_BYTES];
        snprintf(text, sizeof text,
            "inputs[0] \"indices\": parameter \"binary_data_size\" is %" PRIu64
            ", but the request has no raw_input_contents; leave it out if contents are typed",
            size);
        make_binary(&request, 2, size, 1, false);
        infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, text);
    }
    static const struct {
        uint32_t form;
        uint64_t size;
    } wrong[] = {{5, sizeof wide}, {1, 1}, {2, (uint64_t)-1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        make_binary(&request, wrong[i].form, wrong[i].size, 1, true);
        infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
            "inputs[0] \"indices\": parameter \"binary_data_size\" must be an int64, the number of "
            "bytes of the input's raw contents");
    }
    make_binary(&request, 2, sizeof wide, 2, true);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "outputs[0] \"pooled\": parameter \"binary_data\" must be a boolean");
    make_number(&request, "binary_data_output", 2, 1);
    infer_fixture_refuse(
        &request, EB_STATUS_INVALID_ARGUMENT, "parameter \"binary_data_output\" must be a boolean");
}

static void takes_the_last_of_several_values(void **state)
{
    (void)state;
    struct infer_message request;
    infer_message_init(&request);
    infer_message_put_text(&request, PARAMETERS, "missing", "skip");
    infer_message_put_text(&request, PARAMETERS, "missing", "zero");
    assert_int_equal(infer_fixture_accept(&fixture, &request)->options.missing,
        EMBAG__V1__MISSING__MISSING_ZERO);
}

EB_TEST_GROUP(codec_infer_request)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(reads_all_that_a_request_says),
        EACH(leaves_raw_contents_where_they_are),
        EACH(reads_a_request_that_says_nothing),
        EACH(takes_as_many_tensors_as_queries_have),
        EACH(takes_the_largest_requests_within_the_cap_of_a_lookup),
        EACH(fails_where_memory_does),
        EACH(survives_a_cut_at_every_byte),
        EACH(survives_every_wrong_byte),
        EACH(refuses_a_message_that_occurs_twice),
        EACH(skips_unknown_fields),
        EACH(refuses_parameters_by_name_and_place),
        EACH(passes_over_parameters_that_are_tritons_own),
        EACH(takes_integers_of_both_signs),
        EACH(takes_options_for_all_tables),
        EACH(takes_priorities_as_triton_has_them),
        EACH(refuses_sequences),
        EACH(takes_what_says_that_data_is_binary),
        EACH(refuses_binary_data_that_is_not_as_it_says),
        EACH(takes_the_last_of_several_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
