/* The .hex files beside this one are messages, byte by byte, as the contract has them: both
 * directions of the codec are held against them. */
#include "proto/codec.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MESSAGE_BYTES_MAX 256
#define RESULTS_MAX 2

static const struct eb_codec_limits limits = {.queries_max = 4096, .name_bytes_max = 255};

/* Reads pairs of hexadecimal digits; '#' begins a comment. Returns the number of bytes. */
static size_t read_golden(const char *name, uint8_t bytes[MESSAGE_BYTES_MAX])
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.hex", EMBAG_GOLDEN_DIRECTORY, name);
    FILE *file = fopen(path, "r");
    if (!file) {
        fail_msg("%s cannot be read", path);
    }
    char line[256];
    size_t size = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "#")] = 0;
        unsigned byte = 0;
        int used = 0;
        for (const char *at = line; sscanf(at, "%2x%n", &byte, &used) == 1; at += used) {
            assert_true(size < MESSAGE_BYTES_MAX);
            bytes[size++] = (uint8_t)byte;
        }
    }
    fclose(file);
    assert_true(size > 0);
    return size;
}

static const int64_t spec_indices[] = {0, 2, 3, 4};
static const int64_t spec_offsets[] = {0, 2, 2};
static const int32_t last_indices[] = {1, 0, -1};
static const int32_t last_offsets[] = {0, 1, 3};
static const int64_t far_indices[] = {5, INT64_C(1) << 40};
static const int32_t far_lengths[] = {2, 0};
static const int32_t first_four[] = {0, 1, 2, 3};
static const int32_t down_from_nine[] = {9, 8, 7};
static const int32_t scattered_ids[] = {2, 0, 2};
static const int32_t seven[] = {7};
static const float weights[] = {1, 0.5f, -2};
static const int64_t even_indices[] = {0, 2, 4};
static const int64_t two_offsets[] = {0, 1};

static struct eb_wire_query offsets_query[] = {{.table = "users",
    .reduction = 1,
    .layout = 1,
    .indices = {spec_indices, sizeof spec_indices, 8, ""},
    .offsets = {spec_offsets, sizeof spec_offsets, 8, ""},
    .has_default = true}};
static struct eb_wire_query last_offset_query[] = {{.table = "t",
    .layout = 1,
    .indices = {last_indices, sizeof last_indices, 4, ""},
    .offsets = {last_offsets, sizeof last_offsets, 4, ""},
    .include_last_offset = true}};
static struct eb_wire_query lengths_query[] = {{.table = "t",
    .layout = 2,
    .indices = {far_indices, sizeof far_indices, 8, ""},
    .lengths = {far_lengths, sizeof far_lengths, 4, ""}}};
static struct eb_wire_query packed_query[] = {{.table = "t",
    .reduction = 5,
    .layout = 3,
    .indices = {first_four, sizeof first_four, 4, ""},
    .indices_per_bag = 2}};
static struct eb_wire_query segments_query[] = {{.table = "t",
    .reduction = 4,
    .missing = 3,
    .layout = 4,
    .indices = {down_from_nine, sizeof down_from_nine, 4, ""},
    .segment_ids = {scattered_ids, sizeof scattered_ids, 4, ""},
    .num_segments = 3,
    .has_default = true,
    .default_index = -1,
    .weights = weights,
    .weights_bytes = sizeof weights,
    .weights_type = 1}};
static struct eb_wire_query no_layout_queries[] = {
    {.table = "t", .reduction = 7, .indices = {seven, sizeof seven, 4, ""}},
    {.table = "\xC3\xA9", .layout = 1, .num_bags = 2}};
static struct eb_wire_query repeated_query[] = {{.table = "t",
    .layout = 1,
    .indices = {even_indices, sizeof even_indices, 8, ""},
    .offsets = {two_offsets, sizeof two_offsets, 8, ""},
    .weights = weights,
    .weights_bytes = sizeof weights,
    .weights_type = 1}};

static struct eb_wire_query one_bag_query[] = {
    {.table = "t", .indices = {seven, sizeof seven, 4, ""}, .num_bags = 1}};
static const char *const two_features[] = {"user", "item"};
static const int32_t group_lengths[] = {1, 0, 2, 0};
static const int32_t whole_offsets[] = {0, 1};
static struct eb_wire_group two_groups[] = {
    {.name = "",
        .feature_count = 2,
        .features = two_features,
        .bags = 2,
        .values = {even_indices, sizeof even_indices, 8, ""},
        .lengths = {group_lengths, sizeof group_lengths, 4, ""},
        .weights = weights,
        .weights_bytes = sizeof weights,
        .weights_type = 1,
        .reduction = 2,
        .missing = 2},
    {.name = "sparse",
        .bags = 1,
        .values = {seven, sizeof seven, 4, ""},
        .offsets = {whole_offsets, sizeof whole_offsets, 4, ""}}};

/* What a request file says. */
struct golden_request {
    const char *name;
    struct eb_wire_request request;
    bool is_read_only; /* the encoder has other forms */
};

static const struct golden_request requests[] = {
    {"request_offsets",
        {.request_id = 1, .model = "dlrm", .query_count = 1, .queries = offsets_query}, false},
    {"request_last_offset",
        {.model = "", .concat = true, .query_count = 1, .queries = last_offset_query}, false},
    {"request_lengths", {.model = "", .query_count = 1, .queries = lengths_query}, false},
    {"request_packed", {.model = "", .version = 3, .query_count = 1, .queries = packed_query},
        false},
    {"request_segments", {.model = "", .query_count = 1, .queries = segments_query}, false},
    {"request_no_layout",
        {.model = "",
            .timeout_us = 1500,
            .output_type = 4,
            .query_count = 2,
            .queries = no_layout_queries},
        false},
    {"request_groups",
        {.request_id = 5,
            .model = "m",
            .timeout_us = 1500,
            .partial = true,
            .errors_per_query = true,
            .report_missing = true,
            .priority = 1,
            .query_count = 1,
            .queries = one_bag_query,
            .group_count = 2,
            .groups = two_groups},
        false},
    {"request_cancel", {.request_id = 5, .model = "", .cancel = true}, false},
    {"request_repeated", {.model = "", .query_count = 1, .queries = repeated_query}, true},
};
#define REQUEST_COUNT (sizeof requests / sizeof *requests)

static void assert_same_array(const struct eb_wire_array *actual, const struct eb_wire_array *said)
{
    assert_int_equal(actual->width, said->width);
    assert_int_equal(actual->bytes, said->bytes);
    if (said->bytes > 0) {
        assert_memory_equal(actual->data, said->data, said->bytes);
    }
}

static void assert_same_query(const struct eb_wire_query *actual, const struct eb_wire_query *said)
{
    assert_string_equal(actual->table, said->table);
    assert_int_equal(actual->reduction, said->reduction);
    assert_int_equal(actual->missing, said->missing);
    assert_int_equal(actual->layout, said->layout);
    assert_same_array(&actual->indices, &said->indices);
    assert_same_array(&actual->offsets, &said->offsets);
    assert_same_array(&actual->lengths, &said->lengths);
    assert_same_array(&actual->segment_ids, &said->segment_ids);
    assert_int_equal(actual->indices_per_bag, said->indices_per_bag);
    assert_int_equal(actual->num_segments, said->num_segments);
    assert_int_equal(actual->num_bags, said->num_bags);
    assert_int_equal(actual->include_last_offset, said->include_last_offset);
    assert_int_equal(actual->has_default, said->has_default);
    assert_int_equal(actual->default_index, said->default_index);
    assert_int_equal(actual->weights_type, said->weights_type);
    assert_int_equal(actual->weights_bytes, said->weights_bytes);
    if (said->weights_bytes > 0) {
        assert_memory_equal(actual->weights, said->weights, said->weights_bytes);
    }
}

static void assert_same_group(const struct eb_wire_group *actual, const struct eb_wire_group *said)
{
    assert_null(actual->error);
    assert_string_equal(actual->name, said->name);
    assert_int_equal(actual->feature_count, said->feature_count);
    for (size_t i = 0; i < said->feature_count; i++) {
        assert_string_equal(actual->features[i], said->features[i]);
    }
    assert_int_equal(actual->bags, said->bags);
    assert_same_array(&actual->values, &said->values);
    assert_same_array(&actual->lengths, &said->lengths);
    assert_same_array(&actual->offsets, &said->offsets);
    assert_int_equal(actual->weights_type, said->weights_type);
    assert_int_equal(actual->weights_bytes, said->weights_bytes);
    if (said->weights_bytes > 0) {
        assert_memory_equal(actual->weights, said->weights, said->weights_bytes);
    }
    assert_int_equal(actual->reduction, said->reduction);
    assert_int_equal(actual->missing, said->missing);
}

static void reads_requests(void **state)
{
    (void)state;
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    for (size_t i = 0; i < REQUEST_COUNT; i++) {
        uint8_t bytes[MESSAGE_BYTES_MAX];
        size_t size = read_golden(requests[i].name, bytes);
        struct eb_decode_failure failure;
        eb_arena_reset(&arena, 65536);
        const struct eb_wire_request *actual =
            eb_lookup_request_decode(&arena, bytes, size, &limits, &failure);
        assert_non_null(actual);
        const struct eb_wire_request *said = &requests[i].request;
        assert_int_equal(actual->request_id, said->request_id);
        assert_string_equal(actual->model, said->model);
        assert_int_equal(actual->version, said->version);
        assert_int_equal(actual->timeout_us, said->timeout_us);
        assert_int_equal(actual->output_type, said->output_type);
        assert_int_equal(actual->concat, said->concat);
        assert_int_equal(actual->partial, said->partial);
        assert_int_equal(actual->cancel, said->cancel);
        assert_int_equal(actual->errors_per_query, said->errors_per_query);
        assert_int_equal(actual->report_missing, said->report_missing);
        assert_int_equal(actual->priority, said->priority);
        assert_int_equal(actual->group_count, said->group_count);
        for (size_t g = 0; g < said->group_count; g++) {
            assert_same_group(&actual->groups[g], &said->groups[g]);
        }
        assert_int_equal(actual->query_count, said->query_count);
        for (size_t q = 0; q < said->query_count; q++) {
            assert_same_query(&actual->queries[q], &said->queries[q]);
        }
    }
    eb_arena_deinit(&arena);
}

static void assert_same_bytes(const uint8_t *actual, size_t actual_size, const char *name)
{
    uint8_t said[MESSAGE_BYTES_MAX];
    size_t said_size = read_golden(name, said);
    assert_int_equal(actual_size, said_size);
    assert_memory_equal(actual, said, said_size);
}

/* Where arrays tell the layout, the files leave it unsaid. */
static bool has_layout_fields(const struct eb_wire_query *query)
{
    return query->offsets.bytes > 0 || query->lengths.bytes > 0 || query->indices_per_bag > 0 ||
           query->num_segments > 0;
}

static void writes_requests(void **state)
{
    (void)state;
    for (size_t i = 0; i < REQUEST_COUNT; i++) {
        if (requests[i].is_read_only) {
            continue;
        }
        struct eb_wire_request request = requests[i].request;
        struct eb_wire_query queries[2];
        for (size_t q = 0; q < request.query_count; q++) {
            queries[q] = request.queries[q];
            queries[q].layout = has_layout_fields(&queries[q]) ? 0 : queries[q].layout;
        }
        request.queries = queries;
        uint8_t bytes[MESSAGE_BYTES_MAX];
        size_t size = eb_lookup_request_bytes(&request);
        assert_true(size <= sizeof bytes);
        eb_lookup_request_encode(&request, bytes);
        assert_same_bytes(bytes, size, requests[i].name);
    }
}

/* An exact copy, so that a sanitizer sees a read past the end. */
static uint8_t *copy_front(const uint8_t *bytes, size_t size)
{
    uint8_t *front = malloc(size > 0 ? size : 1);
    assert_non_null(front);
    memcpy(front, bytes, size);
    return front;
}

static void survives_requests_cut_anywhere(void **state)
{
    (void)state;
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    for (size_t i = 0; i < REQUEST_COUNT; i++) {
        uint8_t bytes[MESSAGE_BYTES_MAX];
        size_t size = read_golden(requests[i].name, bytes);
        for (size_t cut = 0; cut < size; cut++) {
            uint8_t *front = copy_front(bytes, cut);
            struct eb_decode_failure failure = {.error = {.status = EB_STATUS_OK}};
            eb_arena_reset(&arena, 65536);
            const struct eb_wire_request *request =
                eb_lookup_request_decode(&arena, front, cut, &limits, &failure);
            if (request) {
                assert_true(request->query_count <= requests[i].request.query_count);
            } else {
                assert_int_equal(failure.error.status, EB_STATUS_INTERNAL);
                assert_true(failure.undecodable);
            }
            free(front);
        }
    }
    eb_arena_deinit(&arena);
}

static const uint64_t two_by_two[] = {2, 2};
static const uint64_t none_by_128[] = {0, 128};
static const uint64_t one_by_two[] = {1, 2};
static const float four_values[] = {1, 2, -1, -2};
static const float two_values[] = {1, -2};

static struct eb_wire_result two_results[] = {
    {.type = 1,
        .shape_count = 2,
        .shape = two_by_two,
        .values = (const uint8_t *)four_values,
        .values_bytes = sizeof four_values},
    {.query = 1, .type = 3, .shape_count = 2, .shape = none_by_128, .missing = 5},
};
static struct eb_wire_result concat_result[] = {
    {.type = 1,
        .shape_count = 2,
        .shape = one_by_two,
        .missing = 3,
        .missing_by_query_count = 2,
        .missing_by_query = one_by_two,
        .values = (const uint8_t *)two_values,
        .values_bytes = sizeof two_values},
};
static const uint8_t positions[] = {0, 0, 0, 0, 3, 1, 0, 0};
static struct eb_wire_result partial_results[] = {
    {.query = 1,
        .type = 1,
        .shape_count = 2,
        .shape = one_by_two,
        .missing = 2,
        .missing_positions = positions,
        .missing_positions_bytes = sizeof positions,
        .values = (const uint8_t *)two_values,
        .values_bytes = sizeof two_values},
    {.query = 2, .error_code = 11, .error_message = "wrong"},
};

static const struct {
    const char *name;
    struct eb_wire_response response;
} responses[] = {
    {"response_results", {.request_id = 42,
                             .model = "m",
                             .version = 7,
                             .error_message = "",
                             .result_count = 2,
                             .results = two_results}},
    {"response_concat", {.model = "m",
                            .version = 1,
                            .error_message = "",
                            .result_count = 1,
                            .results = concat_result}},
    {"response_partial", {.request_id = 5,
                             .model = "m",
                             .version = 7,
                             .error_message = "",
                             .more = true,
                             .queue_us = 300,
                             .compute_us = 70000,
                             .is_timed = true,
                             .result_count = 2,
                             .results = partial_results}},
    {"response_error", {.request_id = 9, .model = "", .error_code = 11, .error_message = "wrong"}},
};
#define RESPONSE_COUNT (sizeof responses / sizeof *responses)

static void writes_responses(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESPONSE_COUNT; i++) {
        uint8_t bytes[MESSAGE_BYTES_MAX];
        uint8_t *values_at[RESULTS_MAX];
        size_t size = eb_lookup_response_bytes(&responses[i].response);
        assert_true(size <= sizeof bytes);
        eb_lookup_response_encode(&responses[i].response, bytes, values_at);
        assert_same_bytes(bytes, size, responses[i].name);
    }
}

static void assert_same_result(
    const struct eb_wire_result *actual, const struct eb_wire_result *said)
{
    assert_int_equal(actual->query, said->query);
    assert_int_equal(actual->type, said->type);
    assert_int_equal(actual->shape_count, said->shape_count);
    for (size_t i = 0; i < said->shape_count; i++) {
        assert_int_equal(actual->shape[i], said->shape[i]);
    }
    assert_int_equal(actual->missing, said->missing);
    assert_int_equal(actual->missing_by_query_count, said->missing_by_query_count);
    for (size_t i = 0; i < said->missing_by_query_count; i++) {
        assert_int_equal(actual->missing_by_query[i], said->missing_by_query[i]);
    }
    assert_int_equal(actual->missing_positions_bytes, said->missing_positions_bytes);
    if (said->missing_positions_bytes > 0) {
        assert_memory_equal(
            actual->missing_positions, said->missing_positions, said->missing_positions_bytes);
    }
    assert_int_equal(actual->error_code, said->error_code);
    assert_string_equal(actual->error_message, said->error_message ? said->error_message : "");
    assert_int_equal(actual->values_bytes, said->values_bytes);
    if (said->values_bytes > 0) {
        assert_memory_equal(actual->values, said->values, said->values_bytes);
    }
}

static void reads_responses_and_survives_them_cut_anywhere(void **state)
{
    (void)state;
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    for (size_t i = 0; i < RESPONSE_COUNT; i++) {
        const struct eb_wire_response *said = &responses[i].response;
        uint8_t bytes[MESSAGE_BYTES_MAX];
        size_t size = read_golden(responses[i].name, bytes);
        for (size_t cut = 0; cut < size; cut++) {
            uint8_t *front = copy_front(bytes, cut);
            eb_arena_reset(&arena, 65536);
            const struct eb_wire_response *shorter =
                eb_lookup_response_decode(&arena, front, cut, &error);
            assert_true(shorter || error.status == EB_STATUS_INTERNAL);
            free(front);
        }
        eb_arena_reset(&arena, 65536);
        const struct eb_wire_response *actual =
            eb_lookup_response_decode(&arena, bytes, size, &error);
        assert_non_null(actual);
        assert_int_equal(actual->request_id, said->request_id);
        assert_string_equal(actual->model, said->model);
        assert_int_equal(actual->version, said->version);
        assert_int_equal(actual->error_code, said->error_code);
        assert_string_equal(actual->error_message, said->error_message);
        assert_int_equal(actual->more, said->more);
        assert_int_equal(actual->queue_us, said->queue_us);
        assert_int_equal(actual->compute_us, said->compute_us);
        assert_int_equal(actual->result_count, said->result_count);
        for (size_t r = 0; r < said->result_count; r++) {
            assert_same_result(&actual->results[r], &said->results[r]);
        }
    }
    eb_arena_deinit(&arena);
}

EB_TEST_GROUP(golden)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_requests),
        cmocka_unit_test(writes_requests),
        cmocka_unit_test(survives_requests_cut_anywhere),
        cmocka_unit_test(writes_responses),
        cmocka_unit_test(reads_responses_and_survives_them_cut_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
