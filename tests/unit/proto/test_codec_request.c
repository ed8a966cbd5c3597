#include "tests/unit/proto/request_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void decodes_a_request_without_queries(void **state)
{
    (void)state;
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    struct fixture fixture;
    fixture_accept(&fixture, &message);
    assert_int_equal(fixture.size, 0);
    assert_int_equal(fixture.request->query_count, 0);
    assert_string_equal(fixture.request->model, "");
    fixture_deinit(&fixture);
}

static void decodes_the_fields_of_the_request(void **state)
{
    (void)state;
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.request_id = UINT64_MAX;
    message.model = "m\xC3\xA9";
    message.version = 12;
    message.output_type = EMBAG__V1__DATA_TYPE__DATA_TYPE_U64;
    message.concat = true;
    message.timeout_us = 1500;
    struct fixture fixture;
    fixture_accept(&fixture, &message);
    assert_true(fixture.request->request_id == UINT64_MAX);
    assert_string_equal(fixture.request->model, "m\xC3\xA9");
    assert_int_equal(fixture.request->version, 12);
    assert_string_equal(fixture.request->version_label, "");
    assert_int_equal(fixture.request->output_type, 12);
    assert_true(fixture.request->concat);
    assert_int_equal(fixture.request->timeout_us, 1500);
    fixture_deinit(&fixture);
}

static void decodes_a_version_by_its_label(void **state)
{
    (void)state;
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.version_label = "stable";
    struct fixture fixture;
    fixture_accept(&fixture, &message);
    assert_string_equal(fixture.request->version_label, "stable");
    assert_int_equal(fixture.request->version, 0);
    fixture_deinit(&fixture);
}

static void decodes_a_traceparent_whatever_it_says(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "x", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
        message.traceparent = (char *)(uintptr_t)texts[i];
        struct fixture fixture;
        fixture_accept(&fixture, &message);
        assert_int_equal(fixture.request->traceparent_bytes, strlen(texts[i]));
        if (*texts[i]) {
            assert_memory_equal(fixture.request->traceparent, texts[i], strlen(texts[i]));
        }
        fixture_deinit(&fixture);
    }
}

static void decodes_the_fields_of_a_query(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.reduction = EMBAG__V1__REDUCTION__REDUCTION_NONE;
    lone.query.missing = EMBAG__V1__MISSING__MISSING_UNKNOWN_ROW;
    lone.query.num_bags = UINT64_MAX;
    lone.query.weights = lone_query_binary("123", 3);
    lone.query.weights_type = EMBAG__V1__DATA_TYPE__DATA_TYPE_BF16;
    lone.query.default_row_case = EMBAG__V1__BAG_QUERY__DEFAULT_ROW_DEFAULT_INDEX;
    lone.query.default_index = -1;
    lone.query.max_len = UINT32_MAX;
    lone.query.keep_first = true;
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    const struct eb_wire_query *query = fixture.request->queries;
    assert_int_equal(query->sequence.max_len, UINT32_MAX);
    assert_true(query->sequence.keep_first);
    assert_false(query->sequence.pad || query->sequence.unique);
    assert_string_equal(query->table, "t");
    assert_int_equal(query->reduction, 7);
    assert_int_equal(query->missing, 4);
    assert_int_equal(query->layout, 0);
    assert_true(query->num_bags == UINT64_MAX);
    assert_true(query->has_default);
    assert_int_equal(query->default_index, -1);
    assert_int_equal(query->weights_bytes, 3);
    assert_memory_equal(query->weights, "123", 3);
    assert_int_equal(query->weights_type, 4);
    fixture_expect_absent(&query->indices);
    fixture_expect_absent(&query->offsets);
    fixture_expect_absent(&query->lengths);
    fixture_expect_absent(&query->segment_ids);
    fixture_deinit(&fixture);
}

static void tells_a_default_row_of_zero_from_none(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    assert_false(fixture.request->queries[0].has_default);
    fixture_deinit(&fixture);
    lone.query.default_row_case = EMBAG__V1__BAG_QUERY__DEFAULT_ROW_DEFAULT_INDEX;
    fixture_accept(&fixture, &lone.request);
    assert_true(fixture.request->queries[0].has_default);
    assert_int_equal(fixture.request->queries[0].default_index, 0);
    fixture_deinit(&fixture);
}

static void takes_indices_and_offsets_in_every_form(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct lone_query lone;
        lone_query_init(&lone);
        if (form == 0) {
            lone.query.indices_i64 = lone_query_binary(fixture_wide, sizeof fixture_wide);
            lone.query.offsets_i64 = lone_query_binary(fixture_wide, sizeof fixture_wide);
        } else if (form == 1) {
            lone.query.indices_i32 = lone_query_binary(fixture_narrow, sizeof fixture_narrow);
            lone.query.offsets_i32 = lone_query_binary(fixture_narrow, sizeof fixture_narrow);
        } else {
            lone.query.n_indices = lone.query.n_offsets = 4;
            lone.query.indices = lone.query.offsets = (int64_t *)(uintptr_t)fixture_wide;
        }
        static const char *const names[][2] = {
            {"indices_i64", "offsets_i64"}, {"indices_i32", "offsets_i32"}, {"indices", "offsets"}};
        struct fixture fixture;
        fixture_accept(&fixture, &lone.request);
        fixture_expect_array(
            &fixture.request->queries[0].indices, form == 1 ? 4 : 8, names[form][0]);
        fixture_expect_array(
            &fixture.request->queries[0].offsets, form == 1 ? 4 : 8, names[form][1]);
        assert_int_equal(fixture.request->queries[0].layout, 1);
        fixture_deinit(&fixture);
    }
}

static void takes_segment_ids_in_every_form(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct lone_query lone;
        lone_query_init(&lone);
        if (form == 0) {
            lone.query.segment_ids_i64 = lone_query_binary(fixture_wide, sizeof fixture_wide);
        } else if (form == 1) {
            lone.query.segment_ids_i32 = lone_query_binary(fixture_narrow, sizeof fixture_narrow);
        } else {
            lone.query.n_segment_ids = 4;
            lone.query.segment_ids = (int64_t *)(uintptr_t)fixture_wide;
        }
        lone.query.num_segments = 9;
        static const char *const names[] = {"segment_ids_i64", "segment_ids_i32", "segment_ids"};
        struct fixture fixture;
        fixture_accept(&fixture, &lone.request);
        fixture_expect_array(
            &fixture.request->queries[0].segment_ids, form == 1 ? 4 : 8, names[form]);
        assert_int_equal(fixture.request->queries[0].num_segments, 9);
        assert_int_equal(fixture.request->queries[0].layout, 4);
        fixture_deinit(&fixture);
    }
}

static void takes_lengths_in_both_forms(void **state)
{
    (void)state;
    struct lone_query lone;
    struct fixture fixture;
    lone_query_init(&lone);
    lone.query.lengths_i64 = lone_query_binary(fixture_wide, sizeof fixture_wide);
    fixture_accept(&fixture, &lone.request);
    fixture_expect_array(&fixture.request->queries[0].lengths, 8, "lengths_i64");
    assert_int_equal(fixture.request->queries[0].layout, 2);
    fixture_deinit(&fixture);
    lone_query_init(&lone);
    lone.query.lengths_i32 = lone_query_binary(fixture_narrow, sizeof fixture_narrow);
    fixture_accept(&fixture, &lone.request);
    fixture_expect_array(&fixture.request->queries[0].lengths, 4, "lengths_i32");
    assert_int_equal(fixture.request->queries[0].layout, 2);
    fixture_deinit(&fixture);
}

static void takes_the_packed_layout(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.indices_per_bag = UINT32_MAX;
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    assert_true(fixture.request->queries[0].indices_per_bag == UINT32_MAX);
    assert_int_equal(fixture.request->queries[0].layout, 3);
    fixture_deinit(&fixture);
}

static void takes_a_layout_that_no_field_bears_out(void **state)
{
    (void)state;
    for (int32_t layout = 0; layout <= 4; layout++) {
        struct lone_query lone;
        lone_query_init(&lone);
        lone.query.layout = (Embag__V1__BagLayout)layout;
        struct fixture fixture;
        fixture_accept(&fixture, &lone.request);
        assert_int_equal(fixture.request->queries[0].layout, layout);
        fixture_deinit(&fixture);
    }
}

static void takes_segments_that_no_index_names(void **state)
{
    (void)state;
    struct lone_query lone;
    lone_query_init(&lone);
    lone.query.num_segments = 3;
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    assert_int_equal(fixture.request->queries[0].layout, 4);
    fixture_expect_absent(&fixture.request->queries[0].segment_ids);
    fixture_deinit(&fixture);
}

static void takes_weights_in_both_forms(void **state)
{
    (void)state;
    float weights[] = {1, 2.5f, -3};
    for (int type = 0; type <= 1; type++) {
        struct lone_query lone;
        lone_query_init(&lone);
        lone.query.n_weights_f32 = 3;
        lone.query.weights_f32 = weights;
        lone.query.weights_type = (Embag__V1__DataType)type;
        struct fixture fixture;
        fixture_accept(&fixture, &lone.request);
        const struct eb_wire_query *query = fixture.request->queries;
        assert_int_equal(query->weights_bytes, sizeof weights);
        assert_memory_equal(query->weights, weights, sizeof weights);
        assert_int_equal(query->weights_type, 1);
        fixture_deinit(&fixture);
    }
}

static void decodes_large_requests_within_the_cap_that_it_names(void **state)
{
    (void)state;
    Embag__V1__BagQuery query = EMBAG__V1__BAG_QUERY__INIT;
    query.table = "t";
    query.num_bags = 1;
    enum { COUNT = 4096 };
    struct eb_codec_limits many = {.queries_max = COUNT, .name_bytes_max = 255};
    Embag__V1__BagQuery *queries[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        queries[i] = &query;
    }
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.n_queries = COUNT;
    message.queries = queries;
    struct fixture fixture;
    fixture_init(&fixture, &message);
    eb_arena_reset(&fixture.arena, eb_lookup_request_arena_bytes(fixture.size, &many));
    fixture.request = eb_lookup_request_decode(
        &fixture.arena, fixture.bytes, fixture.size, &many, &fixture.failure);
    assert_non_null(fixture.request);
    fixture_deinit(&fixture);
}

/* Compares the client's encoder with protobuf-c. */
static void encodes_what_protobuf_reads(void **state)
{
    (void)state;
    struct eb_wire_query queries[] = {
        {.table = "a",
            .reduction = 2,
            .missing = 3,
            .layout = 1,
            .indices = {fixture_wide, 32, 8, ""},
            .offsets = {fixture_narrow, 16, 4, ""},
            .include_last_offset = true,
            .has_default = true,
            .default_index = -1,
            .weights = "1234",
            .weights_bytes = 4,
            .weights_type = 1},
        {.table = "b",
            .indices = {fixture_narrow, 16, 4, ""},
            .lengths = {fixture_wide, 32, 8, ""},
            .num_bags = 4},
        {.table = "c", .segment_ids = {fixture_narrow, 16, 4, ""}, .num_segments = 300},
        {.table = "d",
            .indices_per_bag = 128,
            .reduction = -1,
            .lengths = {fixture_narrow, 16, 4, ""}},
    };
    struct eb_wire_request request = {.request_id = 9,
        .model = "m",
        .version = 3,
        .version_label = "stable",
        .traceparent = "00-1-2-03 and more",
        .traceparent_bytes = strlen("00-1-2-03"),
        .timeout_us = 7,
        .output_type = 4,
        .concat = true,
        .query_count = 4,
        .queries = queries};
    size_t size = eb_lookup_request_bytes(&request);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    eb_lookup_request_encode(&request, bytes);
    Embag__V1__LookupRequest *read = embag__v1__lookup_request__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_int_equal(embag__v1__lookup_request__get_packed_size(read), size);
    assert_int_equal(read->request_id, 9);
    assert_string_equal(read->model, "m");
    assert_int_equal(read->version, 3);
    assert_string_equal(read->version_label, "stable");
    assert_string_equal(read->traceparent, "00-1-2-03");
    assert_int_equal(read->timeout_us, 7);
    assert_int_equal(read->output_type, 4);
    assert_true(read->concat);
    assert_int_equal(read->n_queries, 4);
    const Embag__V1__BagQuery *query = read->queries[0];
    assert_string_equal(query->table, "a");
    assert_int_equal(query->reduction, 2);
    assert_int_equal(query->missing, 3);
    assert_int_equal(query->layout, 1);
    assert_memory_equal(query->indices_i64.data, fixture_wide, 32);
    assert_memory_equal(query->offsets_i32.data, fixture_narrow, 16);
    assert_true(query->include_last_offset);
    assert_int_equal(query->default_row_case, 19);
    assert_int_equal(query->default_index, -1);
    assert_memory_equal(query->weights.data, "1234", 4);
    assert_int_equal(query->weights_type, 1);
    assert_memory_equal(read->queries[1]->indices_i32.data, fixture_narrow, 16);
    assert_memory_equal(read->queries[1]->lengths_i64.data, fixture_wide, 32);
    assert_int_equal(read->queries[1]->num_bags, 4);
    assert_int_equal(read->queries[1]->default_row_case, 0);
    assert_memory_equal(read->queries[2]->segment_ids_i32.data, fixture_narrow, 16);
    assert_int_equal(read->queries[2]->num_segments, 300);
    assert_int_equal(read->queries[3]->indices_per_bag, 128);
    assert_int_equal((int32_t)read->queries[3]->reduction, -1);
    assert_memory_equal(read->queries[3]->lengths_i32.data, fixture_narrow, 16);
    embag__v1__lookup_request__free_unpacked(read, NULL);
    free(bytes);
}

static void encodes_sequences_that_protobuf_reads(void **state)
{
    (void)state;
    struct eb_wire_query queries[] = {
        {.table = "a", .sequence = {.max_len = 300, .keep_first = true, .pad = true}},
        {.table = "b", .sequence = {.unique = true}},
    };
    struct eb_wire_request request = {.model = "m", .query_count = 2, .queries = queries};
    size_t size = eb_lookup_request_bytes(&request);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    eb_lookup_request_encode(&request, bytes);
    Embag__V1__LookupRequest *read = embag__v1__lookup_request__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_int_equal(read->queries[0]->max_len, 300);
    assert_true(read->queries[0]->keep_first && read->queries[0]->pad);
    assert_false(read->queries[0]->unique);
    assert_true(read->queries[1]->unique);
    assert_int_equal(read->queries[1]->max_len, 0);
    assert_false(read->queries[1]->keep_first || read->queries[1]->pad);
    embag__v1__lookup_request__free_unpacked(read, NULL);
    free(bytes);
}

static uint64_t read_timeout(const uint8_t *bytes, size_t size)
{
    Embag__V1__LookupRequest *read = embag__v1__lookup_request__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_string_equal(read->model, "m");
    uint64_t timeout_us = read->timeout_us;
    embag__v1__lookup_request__free_unpacked(read, NULL);
    return timeout_us;
}

static uint32_t read_attempt(const uint8_t *bytes, size_t size)
{
    Embag__V1__LookupRequest *read = embag__v1__lookup_request__unpack(NULL, size, bytes);
    assert_non_null(read);
    uint32_t attempt = read->attempt;
    embag__v1__lookup_request__free_unpacked(read, NULL);
    return attempt;
}

static void writes_another_timeout_over_the_first(void **state)
{
    (void)state;
    static const uint64_t timeouts_us[] = {1, 127, 128, 1000000, UINT32_MAX, 7};
    struct eb_wire_request request = {
        .model = "m", .timeout_us = UINT64_MAX, .is_timed = true, .priority = 1};
    uint8_t bytes[64];
    size_t size = eb_lookup_request_bytes(&request);
    assert_in_range(size, 1, sizeof bytes);
    eb_lookup_request_encode(&request, bytes);
    assert_int_equal(read_timeout(bytes, size), UINT32_MAX);
    for (size_t i = 0; i < sizeof timeouts_us / sizeof timeouts_us[0]; i++) {
        eb_lookup_request_set_timeout(bytes, size, timeouts_us[i]);
        assert_int_equal(read_timeout(bytes, size), timeouts_us[i]);
    }
    eb_lookup_request_set_timeout(bytes, size, UINT64_C(1) << 32);
    assert_int_equal(read_timeout(bytes, size), UINT32_MAX);
}

static void writes_another_attempt_over_the_first(void **state)
{
    (void)state;
    static const uint32_t attempts[] = {0, 1, 127, 3, 128, UINT32_MAX};
    static const uint32_t written[] = {0, 1, 127, 3, 127, 127};
    struct eb_wire_request request = {.model = "m", .attempt = 200, .is_timed = true};
    uint8_t bytes[64];
    size_t size = eb_lookup_request_bytes(&request);
    assert_in_range(size, 1, sizeof bytes);
    eb_lookup_request_encode(&request, bytes);
    assert_int_equal(read_attempt(bytes, size), 127);
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        eb_lookup_request_set_timeout(bytes, size, 1000 + i);
        eb_lookup_request_set_attempt(bytes, size, attempts[i]);
        assert_int_equal(read_attempt(bytes, size), written[i]);
        assert_int_equal(read_timeout(bytes, size), 1000 + i);
    }
}

static void decodes_model_queries(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x0A, 4, 'd', 'l', 'r', 'm', 0x10, 17};
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 4096);
    const struct eb_wire_model_query *read =
        eb_model_query_decode(&arena, bytes, sizeof bytes, &fixture_limits, &error);
    assert_non_null(read);
    assert_string_equal(read->model, "dlrm");
    assert_int_equal(read->version, 17);
    assert_null(eb_model_query_decode(&arena, bytes, sizeof bytes - 1, &fixture_limits, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    eb_arena_deinit(&arena);
}

static void takes_any_message_where_no_field_is_declared(void **state)
{
    (void)state;
    struct eb_error error;
    assert_true(eb_empty_decode(NULL, 0, &error));
    assert_true(eb_empty_decode((const uint8_t *)"\x0A\x01\xFF", 3, &error));
    assert_false(eb_empty_decode((const uint8_t *)"\x0A\x02\xFF", 3, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
}

EB_TEST_GROUP(codec_request)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_a_request_without_queries),
        cmocka_unit_test(decodes_the_fields_of_the_request),
        cmocka_unit_test(decodes_a_version_by_its_label),
        cmocka_unit_test(decodes_a_traceparent_whatever_it_says),
        cmocka_unit_test(decodes_the_fields_of_a_query),
        cmocka_unit_test(tells_a_default_row_of_zero_from_none),
        cmocka_unit_test(takes_indices_and_offsets_in_every_form),
        cmocka_unit_test(takes_segment_ids_in_every_form),
        cmocka_unit_test(takes_lengths_in_both_forms),
        cmocka_unit_test(takes_the_packed_layout),
        cmocka_unit_test(takes_a_layout_that_no_field_bears_out),
        cmocka_unit_test(takes_segments_that_no_index_names),
        cmocka_unit_test(takes_weights_in_both_forms),
        cmocka_unit_test(decodes_large_requests_within_the_cap_that_it_names),
        cmocka_unit_test(encodes_what_protobuf_reads),
        cmocka_unit_test(encodes_sequences_that_protobuf_reads),
        cmocka_unit_test(writes_another_timeout_over_the_first),
        cmocka_unit_test(writes_another_attempt_over_the_first),
        cmocka_unit_test(decodes_model_queries),
        cmocka_unit_test(takes_any_message_where_no_field_is_declared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
