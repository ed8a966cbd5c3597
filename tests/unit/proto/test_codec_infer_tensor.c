/* Inputs and their contents, each alone in a request. */
#include "tests/unit/proto/infer_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define INPUTS 5
#define RAW 7

static const int64_t wide[] = {1, -2, INT64_MAX};
static const int32_t narrow[] = {1, -2, INT32_MAX};
static const double weights[] = {0.5, -1, 2};

static const char called[] =
    "expected a name TABLE.indices, TABLE.offsets or TABLE.per_sample_weights";

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

/* ---- typed contents ---- */

/* Makes a request of one input with these typed contents. */
static void make_typed(struct infer_message *request, const char *name, const char *datatype,
    const struct infer_message *contents)
{
    struct infer_message input;
    infer_message_init_input(&input, name, datatype, 3);
    infer_message_put(&input, 5, contents);
    infer_message_init(request);
    infer_message_put(request, INPUTS, &input);
}

static void takes_integers_one_by_one_and_packed(void **state)
{
    (void)state;
    struct infer_message request;
    struct infer_message contents;
    infer_message_init(&contents);
    eb_field_put_packed(&contents.writer, 3, (const uint64_t *)wide, 2);
    eb_field_put_present(&contents.writer, 3, (uint64_t)wide[2]);
    make_typed(&request, "t.indices", "INT64", &contents);
    infer_fixture_expect_array(
        &infer_fixture_accept(&fixture, &request)->inputs[0], 8, wide, sizeof wide);

    static const int64_t widened[] = {1, -2, INT32_MAX};
    infer_message_init(&contents);
    eb_field_put_packed(&contents.writer, 2, (const uint64_t *)widened, 3);
    make_typed(&request, "t.offsets", "INT32", &contents);
    infer_fixture_expect_array(
        &infer_fixture_accept(&fixture, &request)->inputs[0], 8, widened, sizeof widened);
}

static void takes_floats_as_they_come(void **state)
{
    (void)state;
    static const float singles[] = {0.5f, -1, 2};
    struct infer_message request;
    struct infer_message contents;
    infer_message_init(&contents);
    eb_field_put_bytes(&contents.writer, 6, singles, sizeof singles);
    make_typed(&request, "t.per_sample_weights", "FP32", &contents);
    infer_fixture_expect_array(
        &infer_fixture_accept(&fixture, &request)->inputs[0], 4, singles, sizeof singles);
    infer_message_init(&contents);
    eb_field_put_bytes(&contents.writer, 7, weights, 16);
    eb_field_put_varint(&contents.writer, 7 << 3 | EB_FIELD_WIRE_FIXED64);
    eb_field_put_content(&contents.writer, &weights[2], sizeof weights[2]);
    make_typed(&request, "t.per_sample_weights", "FP64", &contents);
    infer_fixture_expect_array(
        &infer_fixture_accept(&fixture, &request)->inputs[0], 8, weights, sizeof weights);
}

static void refuses_contents_of_another_type(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *datatype;
        uint32_t field;
    } wrong[] = {
        {"t.indices", "INT64", 2},
        {"t.indices", "INT64", 5},
        {"t.indices", "INT32", 3},
        {"t.indices", "INT32", 8},
        {"t.per_sample_weights", "INT64", 3},
        {"t.per_sample_weights", "FP16", 1},
        {"t.per_sample_weights", "FP32", 7},
        {"t.per_sample_weights", "FP64", 6},
    };
    struct infer_message request;
    struct infer_message contents;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[EB_ERROR_TEXT_BYTES];
        infer_message_init(&contents);
        eb_field_put_bytes(&contents.writer, wrong[i].field, "\1\1\1\1\1\1\1\1", 8);
        make_typed(&request, wrong[i].name, wrong[i].datatype, &contents);
        snprintf(text, sizeof text,
            "inputs[0] \"%s\": contents must be int64_contents (INT64) or int_contents (INT32) "
            "for indices and offsets, and fp32_contents (FP32) or fp64_contents (FP64) for "
            "weights; "
            "other types need raw_input_contents",
            wrong[i].name);
        infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, text);
    }
}

static void refuses_contents_of_another_size(void **state)
{
    (void)state;
    struct infer_message request;
    struct infer_message contents;
    infer_message_init(&contents);
    eb_field_put_packed(&contents.writer, 3, (const uint64_t *)wide, 2);
    make_typed(&request, "t.indices", "INT64", &contents);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "inputs[0] \"t.indices\": contents have 16 bytes; shape needs 3 elements of 8 bytes");
    infer_message_init(&contents);
    make_typed(&request, "t.indices", "INT32", &contents);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "inputs[0] \"t.indices\": contents have 0 bytes; shape needs 3 elements of 4 bytes");
    eb_field_put_bytes(&request.writer, RAW, narrow, 11);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "inputs[0] \"t.indices\": contents have 11 bytes; shape needs 3 elements of 4 bytes");
}

static void refuses_contents_in_two_forms(void **state)
{
    (void)state;
    struct infer_message request;
    struct infer_message contents;
    infer_message_init(&contents);
    eb_field_put_packed(&contents.writer, 3, (const uint64_t *)wide, 3);
    make_typed(&request, "t.indices", "INT64", &contents);
    eb_field_put_bytes(&request.writer, RAW, wide, sizeof wide);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "inputs[0] \"t.indices\": contents and raw_input_contents are forms of the same array: "
        "give only one");
    eb_field_put_bytes(&request.writer, RAW, wide, sizeof wide);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "raw_input_contents has 2 elements for 1 inputs; expected one for each, or none");
}

/* ---- names, types and shapes ---- */

/* Makes a request of one raw input with one element of 8 bytes. */
static void make_raw(struct infer_message *request, const char *name, const char *datatype)
{
    struct infer_message input;
    infer_message_init_input(&input, name, datatype, 1);
    infer_message_init(request);
    infer_message_put(request, INPUTS, &input);
    eb_field_put_bytes(&request->writer, RAW, wide, 8);
}

static void refuses_inputs_that_are_called_otherwise(void **state)
{
    (void)state;
    static const char *const names[] = {
        "", "t", ".indices", "tindices", "t.pooled", "t.indices.", "t.Indices", ".", "t.weights"};
    struct infer_message request;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[EB_ERROR_TEXT_BYTES];
        make_raw(&request, names[i], "INT64");
        snprintf(text, sizeof text, "inputs[0] \"%s\": %s", names[i], called);
        infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, text);
    }
}

static void takes_a_table_whose_name_ends_like_a_tensor(void **state)
{
    (void)state;
    struct infer_message request;
    make_raw(&request, "t.indices.indices", "INT64");
    assert_string_equal(infer_fixture_accept(&fixture, &request)->inputs[0].table, "t.indices");
    make_raw(&request, "..indices", "INT64");
    assert_string_equal(infer_fixture_accept(&fixture, &request)->inputs[0].table, ".");
}

static void takes_names_up_to_their_limit(void **state)
{
    (void)state;
    struct infer_message request;
    make_raw(&request, "12345678901234567890.per_sample_weights", "FP64");
    assert_string_equal(
        infer_fixture_accept(&fixture, &request)->inputs[0].table, "12345678901234567890");
    make_raw(&request, "12345678901234567890.indices", "INT64");
    assert_string_equal(
        infer_fixture_accept(&fixture, &request)->inputs[0].table, "12345678901234567890");
    make_raw(&request, "123456789012345678901.indices", "INT64");
    infer_fixture_refuse(
        &request, EB_STATUS_RESOURCE_EXHAUSTED, "inputs[0] has a name that is too long");
    make_raw(&request, "123456789012345678901.per_sample_weights", "FP64");
    infer_fixture_refuse(
        &request, EB_STATUS_RESOURCE_EXHAUSTED, "inputs[0] has a name that is too long");
    make_raw(&request, "1234567890123456789012.per_sample_weights", "FP64");
    infer_fixture_refuse(&request, EB_STATUS_RESOURCE_EXHAUSTED,
        "ModelInferRequest.inputs[0].name is longer than a name may be (byte 4)");
    infer_message_init(&request);
    eb_field_put_text(&request.writer, 1, "12345678901234567890");
    infer_fixture_accept(&fixture, &request);
    eb_field_put_text(&request.writer, 1, "123456789012345678901");
    infer_fixture_refuse(
        &request, EB_STATUS_RESOURCE_EXHAUSTED, "model_name is too long: at most 20 bytes");
}

static void refuses_types_that_go_with_nothing(void **state)
{
    (void)state;
    static const char *const types[] = {"", "int64", "UINT64", "FP32", "BYTES", "BOOL"};
    struct infer_message request;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char text[EB_ERROR_TEXT_BYTES];
        make_raw(&request, "t.offsets", types[i]);
        snprintf(text, sizeof text,
            "inputs[0] \"t.offsets\": datatype \"%s\" is not accepted here: expected INT64 or "
            "INT32",
            types[i]);
        infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, text);
    }
    make_raw(&request, "t.per_sample_weights", "BYTES");
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT,
        "inputs[0] \"t.per_sample_weights\": datatype \"BYTES\" is not accepted here");
}

static void refuses_shape(const char *name, const uint64_t *dims, size_t rank, const char *text)
{
    struct infer_message request;
    struct infer_message input;
    infer_message_init(&input);
    eb_field_put_text(&input.writer, 1, name);
    eb_field_put_text(&input.writer, 2, "INT64");
    eb_field_put_packed(&input.writer, 3, dims, rank);
    infer_message_init(&request);
    infer_message_put(&request, INPUTS, &input);
    infer_fixture_refuse(&request, EB_STATUS_INVALID_ARGUMENT, text);
}

static void refuses_shapes_that_are_none(void **state)
{
    (void)state;
    const uint64_t threefold[] = {1, 1, 1};
    const uint64_t negative[] = {1, (uint64_t)-5};
    const uint64_t huge[] = {(uint64_t)UINT32_MAX + 1};
    const uint64_t large[] = {UINT32_MAX, UINT32_MAX};
    refuses_shape(
        "t.indices", NULL, 0, "inputs[0] \"t.indices\": shape has 0 dimensions; expected 1 or 2");
    refuses_shape("t.indices", threefold, 3,
        "inputs[0] \"t.indices\": shape has 3 dimensions; expected 1 or 2");
    refuses_shape(
        "t.offsets", threefold, 2, "inputs[0] \"t.offsets\": shape has 2 dimensions; expected 1");
    refuses_shape(
        "t.indices", negative, 2, "inputs[0] \"t.indices\": shape[1] = -5 is not a valid size");
    refuses_shape(
        "t.indices", huge, 1, "inputs[0] \"t.indices\": shape[0] = 4294967296 is not a valid size");
    refuses_shape("t.indices", large, 2,
        "inputs[0] \"t.indices\": contents have 0 bytes; shape needs 18446744065119617025 "
        "elements of 8 bytes");
}

EB_TEST_GROUP(codec_infer_tensor)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(takes_integers_one_by_one_and_packed),
        EACH(takes_floats_as_they_come),
        EACH(refuses_contents_of_another_type),
        EACH(refuses_contents_of_another_size),
        EACH(refuses_contents_in_two_forms),
        EACH(refuses_inputs_that_are_called_otherwise),
        EACH(takes_a_table_whose_name_ends_like_a_tensor),
        EACH(takes_names_up_to_their_limit),
        EACH(refuses_types_that_go_with_nothing),
        EACH(refuses_shapes_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
