#include "tests/unit/proto/request_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t wide[] = {1, 2, -3, INT64_MAX};
static const int32_t narrow[] = {1, 2, -3, INT32_MAX};

/* Expects the request to be accepted with this error in query `index`, which is the last. */
static void assert_bad(const Embag__V1__LookupRequest *message, size_t index, const char *text)
{
    struct fixture fixture;
    fixture_accept(&fixture, message);
    assert_int_equal(fixture.request->query_count, index + 1);
    for (size_t i = 0; i < index; i++) {
        assert_null(fixture.request->queries[i].error);
    }
    const struct eb_error *error = fixture.request->queries[index].error;
    assert_non_null(error);
    assert_string_equal(error->text, text);
    assert_int_equal(error->status, EB_STATUS_INVALID_ARGUMENT);
    assert_string_equal(fixture.request->queries[index].table, message->queries[index]->table);
    fixture_deinit(&fixture);
}

static void assert_query_refused(const struct lone_query *lone, const char *what)
{
    char text[256];
    snprintf(text, sizeof text, "queries[0] \"t\": %s", what);
    assert_bad(&lone->request, 0, text);
}

static void refuses_two_forms_of_one_array(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.indices_i64 = lone_query_binary(wide, 8);
    lone.query.indices_i32 = lone_query_binary(narrow, 4);
    assert_query_refused(
        &lone, "indices_i64 and indices_i32 are forms of the same array: give only one");
    lone_query_init(&lone);
    lone.query.offsets_i32 = lone_query_binary(narrow, 4);
    lone.query.n_offsets = 4;
    lone.query.offsets = (int64_t *)(uintptr_t)wide;
    assert_query_refused(
        &lone, "offsets_i32 and offsets are forms of the same array: give only one");
    lone_query_init(&lone);
    lone.query.lengths_i32 = lone_query_binary(narrow, 4);
    lone.query.lengths_i64 = lone_query_binary(wide, 8);
    assert_query_refused(
        &lone, "lengths_i32 and lengths_i64 are forms of the same array: give only one");
    lone_query_init(&lone);
    lone.query.weights = lone_query_binary(narrow, 4);
    lone.query.n_weights_f32 = 1;
    lone.query.weights_f32 = (float[]){1};
    assert_query_refused(
        &lone, "weights and weights_f32 are forms of the same array: give only one");
    lone.query.weights = lone_query_binary(NULL, 0);
    lone.query.weights_type = EMBAG__V1__DATA_TYPE__DATA_TYPE_F64;
    assert_query_refused(&lone, "weights_f32 is given, but weights_type = 2 is not F32");
}

static void refuses_two_layouts(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.offsets_i64 = lone_query_binary(wide, 8);
    lone.query.indices_per_bag = 2;
    assert_query_refused(
        &lone, "offsets_i64 and indices_per_bag imply different layouts: give only one");
    lone_query_init(&lone);
    lone.query.lengths_i32 = lone_query_binary(narrow, 4);
    lone.query.num_segments = 2;
    assert_query_refused(
        &lone, "lengths_i32 and num_segments imply different layouts: give only one");
    lone_query_init(&lone);
    lone.query.indices_per_bag = 2;
    lone.query.segment_ids_i32 = lone_query_binary(narrow, 4);
    assert_query_refused(
        &lone, "indices_per_bag and segment_ids_i32 imply different layouts: give only one");
}

static void refuses_a_layout_that_the_fields_contradict(void **state)
{
    (void)state;
    struct lone_query lone;
    for (int32_t layout = 2; layout <= 4; layout++) {
        lone_query_init(&lone);
        lone.query.offsets_i32 = lone_query_binary(narrow, 4);
        lone.query.layout = (Embag__V1__BagLayout)layout;
        assert_query_refused(
            &lone, "layout and offsets_i32 imply different layouts: give only one");
    }
    lone.query.layout = EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS;
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    fixture_deinit(&fixture);
}

static void refuses_include_last_offset_with_another_layout(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.include_last_offset = true;
    lone.query.indices_per_bag = 2;
    assert_query_refused(
        &lone, "include_last_offset and indices_per_bag imply different layouts: give only one");
    lone.query.indices_per_bag = 0;
    lone.query.layout = EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_LENGTHS;
    assert_query_refused(
        &lone, "include_last_offset and layout imply different layouts: give only one");
    lone.query.layout = EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS;
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    assert_true(fixture.request->queries[0].include_last_offset);
    fixture_deinit(&fixture);
}

static void refuses_unknown_enum_values(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.reduction = (Embag__V1__Reduction)8;
    assert_query_refused(&lone, "reduction = 8 is not a value of Reduction");
    lone_query_init(&lone);
    lone.query.missing = (Embag__V1__Missing)-1;
    assert_query_refused(&lone, "missing = -1 is not a value of Missing");
    lone_query_init(&lone);
    lone.query.weights_type = (Embag__V1__DataType)13;
    assert_query_refused(&lone, "weights_type = 13 is not a value of DataType");
    lone_query_init(&lone);
    lone.query.layout = (Embag__V1__BagLayout)5;
    assert_query_refused(&lone, "layout = 5 is not a value of BagLayout");
    lone_query_init(&lone);
    lone.request.output_type = (Embag__V1__DataType)INT32_MAX;
    fixture_refuse(&lone.request, EB_STATUS_INVALID_ARGUMENT,
        "output_type = 2147483647 is not a value of DataType");
}

static void refuses_a_query_without_a_table(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.table = "";
    assert_bad(&lone.request, 0, "queries[0] \"\": table is empty");
}

static void refuses_each_field_that_is_not_built(void **state)
{
    (void)state;
    static const char *const names[] = {"unnormalized", "min_sequence", "shard_epoch"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
        message.request_id = 5;
        message.cancel = i % 2 == 0;
        message.unnormalized = i == 0;
        message.min_sequence = i == 1;
        message.shard_epoch = i == 2;
        char text[64];
        snprintf(text, sizeof text, "%s is not implemented", names[i]);
        fixture_refuse(&message, EB_STATUS_UNIMPLEMENTED, text);
    }
}

static void refuses_a_traceparent_that_is_no_text(void **state)
{
    (void)state;
    char text[257];
    memset(text, '0', 256);
    text[256] = '\0';
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.traceparent = text;
    fixture_refuse(&message, EB_STATUS_RESOURCE_EXHAUSTED,
        "LookupRequest.traceparent is longer than a name may be (byte 4)");
    message.traceparent = "00-\xff";
    fixture_refuse(
        &message, EB_STATUS_INVALID_ARGUMENT, "LookupRequest.traceparent is not UTF-8 (byte 6)");
    text[255] = '\0';
    message.traceparent = text;
    struct fixture fixture;
    fixture_accept(&fixture, &message);
    assert_int_equal(fixture.request->traceparent_bytes, 255);
    fixture_deinit(&fixture);
}

static void tells_the_traceparent_of_what_it_refuses(void **state)
{
    (void)state;
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.priority = 2;
    for (int i = 0; i < 2; i++) {
        message.traceparent = i == 0 ? "" : "00-1-1-00";
        struct fixture fixture;
        fixture_init(&fixture, &message);
        fixture_decode(&fixture);
        assert_null(fixture.request);
        assert_int_equal(fixture.failure.traceparent_bytes, strlen(message.traceparent));
        if (i == 1) {
            assert_memory_equal(fixture.failure.traceparent, "00-1-1-00", 9);
        }
        fixture_deinit(&fixture);
    }
}

static void refuses_a_version_and_a_label_together(void **state)
{
    (void)state;
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.version_label = "stable";
    message.version = 1;
    fixture_refuse(&message, EB_STATUS_INVALID_ARGUMENT,
        "version and version_label are both given: give only one");
}

static void reports_the_request_before_its_queries_and_the_first_of_these(void **state)
{
    (void)state;
    Embag__V1__BagQuery good = EMBAG__V1__BAG_QUERY__INIT;
    Embag__V1__BagQuery bad = EMBAG__V1__BAG_QUERY__INIT;
    Embag__V1__BagQuery worse = EMBAG__V1__BAG_QUERY__INIT;
    good.table = "good";
    bad.table = "bad";
    bad.missing = (Embag__V1__Missing)99;
    Embag__V1__BagQuery *queries[] = {&good, &good, &bad, &worse};
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.n_queries = 4;
    message.queries = queries;
    assert_bad(&message, 2, "queries[2] \"bad\": missing = 99 is not a value of Missing");
    message.unnormalized = true;
    fixture_refuse(&message, EB_STATUS_UNIMPLEMENTED, "unnormalized is not implemented");
}

static void goes_on_behind_an_error_with_errors_per_query(void **state)
{
    (void)state;
    Embag__V1__BagQuery good = EMBAG__V1__BAG_QUERY__INIT;
    Embag__V1__BagQuery bad = EMBAG__V1__BAG_QUERY__INIT;
    Embag__V1__BagQuery worse = EMBAG__V1__BAG_QUERY__INIT;
    good.table = "good";
    good.num_bags = 3;
    bad.table = "bad";
    bad.missing = (Embag__V1__Missing)99;
    Embag__V1__BagQuery *queries[] = {&bad, &good, &worse, &good};
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.errors_per_query = true;
    message.n_queries = 4;
    message.queries = queries;
    struct fixture fixture;
    fixture_accept(&fixture, &message);
    assert_int_equal(fixture.request->query_count, 4);
    const struct eb_wire_query *read = fixture.request->queries;
    assert_string_equal(
        read[0].error->text, "queries[0] \"bad\": missing = 99 is not a value of Missing");
    assert_string_equal(read[2].error->text, "queries[2] \"\": table is empty");
    for (size_t i = 1; i < 4; i += 2) {
        assert_null(read[i].error);
        assert_string_equal(read[i].table, "good");
        assert_int_equal(read[i].num_bags, 3);
    }
    fixture_deinit(&fixture);
}

static void limits_the_priority(void **state)
{
    (void)state;
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    for (uint32_t priority = 0; priority <= 1; priority++) {
        message.priority = priority;
        struct fixture fixture;
        fixture_accept(&fixture, &message);
        assert_int_equal(fixture.request->priority, priority);
        fixture_deinit(&fixture);
    }
    message.priority = 2;
    fixture_refuse(&message, EB_STATUS_INVALID_ARGUMENT,
        "priority = 2: expected 0 (interactive) or 1 (batch)");
}

/* As many queries as are allowed, each as short as possible, and then one more. */
static void limits_the_number_of_queries(void **state)
{
    (void)state;
    Embag__V1__BagQuery query = EMBAG__V1__BAG_QUERY__INIT;
    query.table = "t";
    Embag__V1__BagQuery *queries[41];
    for (size_t i = 0; i < 41; i++) {
        queries[i] = &query;
    }
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.n_queries = 40;
    message.queries = queries;
    struct fixture fixture;
    fixture_accept(&fixture, &message);
    assert_int_equal(fixture.request->query_count, 40);
    fixture_deinit(&fixture);
    message.n_queries = 41;
    fixture_refuse(&message, EB_STATUS_RESOURCE_EXHAUSTED,
        "LookupRequest.queries has more elements than a message may have (byte 202)");
}

static void limits_names(void **state)
{
    (void)state;
    char name[257];
    memset(name, 'n', sizeof name);
    name[255] = 0;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.table = name;
    lone.request.model = name;
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    fixture_deinit(&fixture);
    name[255] = 'n';
    name[256] = 0;
    lone.request.model = "";
    fixture_refuse(&lone.request, EB_STATUS_RESOURCE_EXHAUSTED,
        "LookupRequest.queries[0].table is longer than a name may be (byte 8)");
}

/* Decodes a request of one field `tag` that contains `count` unknown fields. Expects it to be
 * refused with this error, or to be accepted if `text` is NULL. */
static void try_fields(uint8_t tag, size_t count, const char *text)
{
    struct lone_query lone;
    lone_query_init(&lone);
    struct fixture fixture;
    fixture_init(&fixture, &lone.request);
    free(fixture.bytes);
    size_t inner = 3 * (count + 1);
    fixture.size = 4 + inner;
    fixture.bytes = malloc(fixture.size);
    assert_non_null(fixture.bytes);
    uint8_t *at = fixture.bytes;
    *at++ = tag;
    *at++ = (uint8_t)(0x80 | (inner & 0x7F));
    *at++ = (uint8_t)(0x80 | (inner >> 7 & 0x7F));
    *at++ = (uint8_t)(inner >> 14);
    memcpy(at, "\x0A\x01t", 3);
    for (at += 3; count > 0; count--, at += 3) {
        memcpy(at, "\xF0\x01\x00", 3);
    }
    fixture_decode(&fixture);
    assert_int_equal(!fixture.request, !!text);
    if (text) {
        assert_string_equal(fixture.failure.error.text, text);
        assert_int_equal(fixture.failure.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    }
    fixture_deinit(&fixture);
}

/* As many fields as are allowed, two of them known, and then one more. */
static void limits_the_number_of_fields(void **state)
{
    (void)state;
    size_t others_max = 4096 + 40 * 64 - 2;
    try_fields(0x22, others_max, NULL);
    try_fields(0x22, others_max + 1,
        "LookupRequest.queries[0].30 exceeds the number of fields that a message may have (byte "
        "19969)");
    try_fields(0x42, others_max, NULL);
    try_fields(0x42, others_max + 1,
        "LookupRequest.groups[0].30 exceeds the number of fields that a message may have (byte "
        "19969)");
}

/* Size of a message that is refused for its size: large enough that memory taken for it would
 * show. */
#define MUCH_BYTES 20000

static void assert_refused_cheaply(const Embag__V1__LookupRequest *message, const char *text)
{
    struct fixture fixture;
    fixture_init(&fixture, message);
    fixture_decode(&fixture);
    assert_null(fixture.request);
    assert_string_equal(fixture.failure.error.text, text);
    assert_in_range(fixture.arena.used_bytes, 1, MUCH_BYTES / 10);
    fixture_deinit(&fixture);
}

static void gives_no_memory_to_what_is_too_large(void **state)
{
    (void)state;
    char name[MUCH_BYTES + 1];
    memset(name, 'n', MUCH_BYTES);
    name[MUCH_BYTES] = 0;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.table = name;
    assert_refused_cheaply(
        &lone.request, "LookupRequest.queries[0].table is longer than a name may be (byte 10)");
    lone_query_init(&lone);
    Embag__V1__FeatureGroup group = EMBAG__V1__FEATURE_GROUP__INIT;
    group.n_features = 1;
    group.features = (char *[]){name};
    lone.request.n_queries = 0;
    lone.request.n_groups = 1;
    lone.request.groups = (Embag__V1__FeatureGroup *[]){&group};
    assert_refused_cheaply(
        &lone.request, "LookupRequest.groups[0].features is longer than a name may be (byte 10)");
}

/* Numbers that are not packed are one field each. */
static void gives_no_memory_to_too_many_fields(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    struct fixture fixture;
    fixture_init(&fixture, &lone.request);
    free(fixture.bytes);
    fixture.size = 4 + MUCH_BYTES;
    fixture.bytes = malloc(fixture.size);
    assert_non_null(fixture.bytes);
    memcpy(fixture.bytes, "\x22\xA0\x9C\x01", 4);
    memcpy(fixture.bytes + 4, "\x0A\x02tt", 4);
    for (size_t at = 8; at < fixture.size; at += 2) {
        memcpy(fixture.bytes + at, "\x30\x01", 2);
    }
    fixture_decode(&fixture);
    assert_null(fixture.request);
    assert_int_equal(fixture.failure.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(fixture.failure.error.text, "number of fields that a message may have"));
    assert_in_range(fixture.arena.used_bytes, 1, MUCH_BYTES / 10);
    fixture_deinit(&fixture);
}

static void names_the_request_that_it_cannot_decode(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.table = "\xFF";
    fixture_refuse(&lone.request, EB_STATUS_INVALID_ARGUMENT,
        "LookupRequest.queries[0].table is not UTF-8 (byte 6)");
    struct fixture fixture;
    fixture_init(&fixture, &lone.request);
    fixture.size = 2;
    fixture.bytes[0] = 0x22;
    fixture_decode(&fixture);
    assert_null(fixture.request);
    assert_int_equal(fixture.failure.error.status, EB_STATUS_INTERNAL);
    assert_true(fixture.failure.undecodable);
    assert_int_equal(fixture.failure.request_id, 0);
    fixture_deinit(&fixture);
}

/* Raises the arena's cap until the request is accepted, and expects every refusal until then to
 * blame the arena. Returns the cap. */
static size_t find_least_cap(const Embag__V1__LookupRequest *message)
{
    struct fixture fixture;
    fixture_init(&fixture, message);
    size_t cap = 0;
    eb_arena_reset(&fixture.arena, cap);
    while (!eb_lookup_request_decode(
        &fixture.arena, fixture.bytes, fixture.size, &fixture_limits, &fixture.failure)) {
        assert_int_equal(fixture.failure.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
        assert_int_equal(fixture.failure.request_id, 77);
        assert_false(fixture.failure.undecodable);
        cap += 16;
        eb_arena_reset(&fixture.arena, cap);
    }
    fixture_deinit(&fixture);
    return cap;
}

static void refuses_a_request_that_outgrows_its_arena(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.indices_i64 = lone_query_binary(wide, sizeof wide);
    assert_in_range(find_least_cap(&lone.request), 200, 1024);
    lone.query.reduction = (Embag__V1__Reduction)99;
    assert_in_range(find_least_cap(&lone.request), 1200, 2048);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    static int64_t zeroes[5000];
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.n_indices = lone.query.n_offsets = sizeof zeroes / sizeof *zeroes;
    lone.query.indices = lone.query.offsets = zeroes;
    struct fixture fixture;
    size_t fail_at = 0;
    do {
        fixture_init(&fixture, &lone.request);
        fixture.lender.fail_at = ++fail_at;
        fixture_decode(&fixture);
        bool decoded = fixture.request;
        assert_true(decoded || fixture.failure.error.status == EB_STATUS_RESOURCE_EXHAUSTED);
        assert_true(decoded == (fixture.lender.taken_count < fail_at));
        fixture_deinit(&fixture);
    } while (!fixture.request);
    assert_in_range(fail_at, 3, 8);
}

EB_TEST_GROUP(codec_refusals)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_two_forms_of_one_array),
        cmocka_unit_test(refuses_two_layouts),
        cmocka_unit_test(refuses_a_layout_that_the_fields_contradict),
        cmocka_unit_test(refuses_include_last_offset_with_another_layout),
        cmocka_unit_test(refuses_unknown_enum_values),
        cmocka_unit_test(refuses_a_query_without_a_table),
        cmocka_unit_test(refuses_each_field_that_is_not_built),
        cmocka_unit_test(refuses_a_traceparent_that_is_no_text),
        cmocka_unit_test(tells_the_traceparent_of_what_it_refuses),
        cmocka_unit_test(refuses_a_version_and_a_label_together),
        cmocka_unit_test(reports_the_request_before_its_queries_and_the_first_of_these),
        cmocka_unit_test(goes_on_behind_an_error_with_errors_per_query),
        cmocka_unit_test(limits_the_priority),
        cmocka_unit_test(limits_the_number_of_queries),
        cmocka_unit_test(limits_names),
        cmocka_unit_test(limits_the_number_of_fields),
        cmocka_unit_test(gives_no_memory_to_what_is_too_large),
        cmocka_unit_test(gives_no_memory_to_too_many_fields),
        cmocka_unit_test(names_the_request_that_it_cannot_decode),
        cmocka_unit_test(refuses_a_request_that_outgrows_its_arena),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
