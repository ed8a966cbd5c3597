#include "client/lookup_call.h"

#include "proto/codec.h"
#include "proto/grpc_text.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static unsigned allocation_count; /* allocations of memory for answers */

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    allocation_count++;
    return __real_aligned_alloc(alignment, bytes);
}

static const int64_t zero_rows[70001]; /* indices of row 0 */
static const struct embag_query two_queries[2] = {
    {.table = "a", .indices_per_bag = 1, .indices = {zero_rows, 2, 8}},
    {.table = "b", .lengths = {zero_rows, 2, 8}, .indices = {zero_rows, 70001, 8}}};
static const struct embag_request two = {.model = "m", .queries = two_queries, .query_count = 2};

/* Encodes results, then decodes and checks them as an answer to `request`. Returns NULL if that
 * fails. */
static struct eb_lookup_answer *read_back(const struct embag_request *request,
    struct eb_wire_result *results, size_t count, struct eb_error *error)
{
    uint8_t *values_at[16];
    bool is_incomplete = false;
    for (size_t i = 0; i < count; i++) {
        is_incomplete |= results[i].unreached > 0;
    }
    struct eb_wire_response response = {.model = "m",
        .version = 3,
        .error_message = "",
        .queue_us = 40,
        .compute_us = 500,
        .incomplete = is_incomplete,
        .result_count = count,
        .results = results};
    size_t size = eb_lookup_response_bytes(&response);
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    eb_lookup_response_encode(&response, bytes, values_at);
    struct eb_lookup_expected expected;
    struct eb_lookup_label label = {0};
    struct eb_outgoing *outgoing = eb_lookup_call_encode(request, &label, &eb_memory_heap, error);
    assert_non_null(outgoing);
    eb_lookup_call_expect(request, outgoing, &expected);
    struct eb_lookup_answer *answer = eb_lookup_call_decode(bytes, size, error);
    if (answer && !eb_lookup_call_check(answer, &expected, error)) {
        eb_lookup_call_free(answer);
        answer = NULL;
    }
    eb_outgoing_drop(outgoing);
    free(bytes);
    return answer;
}

static const uint64_t shape[] = {2, 1};
static const float values[] = {1.5f, -2.5f};
#define GOOD(number)                                                                               \
    {                                                                                              \
        .query = (number), .type = 1, .shape_count = 2, .shape = shape,                            \
        .values = (const uint8_t *)values, .values_bytes = sizeof values                           \
    }

/* The result of a group, or of all queries together. */
static const uint64_t wide_shape[] = {2, 2};
static const float wide_values[] = {1.5f, -2.5f, 3.5f, 0};
#define WIDE(number)                                                                               \
    {                                                                                              \
        .query = (number), .type = 1, .shape_count = 2, .shape = wide_shape,                       \
        .values = (const uint8_t *)wide_values, .values_bytes = sizeof wide_values                 \
    }

static void reads_results_that_fit_the_request(void **state)
{
    (void)state;
    struct eb_wire_result results[] = {GOOD(0), GOOD(1)};
    struct eb_error error;
    results[1].missing = 4;
    struct eb_lookup_answer *answer = read_back(&two, results, 2, &error);
    assert_non_null(answer);
    assert_string_equal(answer->answer.model, "m");
    assert_int_equal(answer->answer.version, 3);
    assert_int_equal(answer->answer.queue_us, 40);
    assert_int_equal(answer->answer.compute_us, 500);
    assert_int_equal(answer->answer.results[1].query, 1);
    assert_int_equal(answer->answer.results[1].missing, 4);
    assert_null(answer->answer.results[1].missing_by_query);
    assert_int_equal(answer->answer.results[1].rank, 2);
    assert_int_equal(answer->answer.results[1].shape[0], 2);
    assert_memory_equal(answer->answer.results[1].values, values, sizeof values);
    eb_lookup_call_free(answer);
}

static void rejects_results_that_do_not_fit_the_request(void **state)
{
    (void)state;
    static const uint64_t huge[] = {UINT64_C(1) << 62, 4};
    static const uint64_t deep[] = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct eb_error error;
    struct eb_wire_result wrong[][2] = {{GOOD(1), GOOD(0)}, {GOOD(0), GOOD(2)}, {GOOD(0), GOOD(1)},
        {GOOD(0), GOOD(1)}, {GOOD(0), GOOD(1)}, {GOOD(0), GOOD(1)}, {GOOD(0), GOOD(1)}};
    wrong[2][1].type = 13;
    wrong[3][1].values_bytes = 4;
    wrong[4][1].shape = huge;
    wrong[5][1].shape = deep;
    wrong[5][1].shape_count = 10;
    wrong[6][1].missing_by_query = shape;
    wrong[6][1].missing_by_query_count = 2;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_null(read_back(&two, wrong[i], 2, &error));
        assert_int_equal(error.status, EB_STATUS_INTERNAL);
    }
    assert_null(read_back(&two, wrong[2], 1, &error));
}

static void takes_one_result_for_all_when_concatenated(void **state)
{
    (void)state;
    static const uint64_t missing[] = {1, 70000};
    struct eb_wire_result result[] = {WIDE(0)};
    struct embag_request request = two;
    struct eb_error error;
    request.concat = true;
    result[0].missing = 70001;
    result[0].missing_by_query = missing;
    result[0].missing_by_query_count = 2;
    struct eb_lookup_answer *answer = read_back(&request, result, 1, &error);
    assert_non_null(answer);
    assert_int_equal(answer->answer.result_count, 1);
    assert_memory_equal(answer->answer.results[0].missing_by_query, missing, sizeof missing);
    eb_lookup_call_free(answer);
    for (size_t count = 0; count < 2; count++) {
        result[0].missing_by_query_count = count;
        assert_null(read_back(&request, result, 1, &error));
        assert_int_equal(error.status, EB_STATUS_INTERNAL);
    }
    result[0].missing_by_query_count = 2;
    assert_null(read_back(&request, result, 0, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    request.query_count = 0;
    answer = read_back(&request, result, 0, &error);
    assert_non_null(answer);
    assert_int_equal(answer->answer.result_count, 0);
    eb_lookup_call_free(answer);
}

static const char *const features[] = {"a", "b"};
static const struct embag_group two_features[1] = {
    {.features = features, .feature_count = 2, .bags = 2, .values = {zero_rows, 4, 8}}};
static const struct embag_request mixed = {
    .queries = two_queries, .query_count = 2, .groups = two_features, .group_count = 1};

static void reads_the_result_of_a_group_behind_those_of_queries(void **state)
{
    (void)state;
    static const uint64_t missing[] = {0, 3};
    struct eb_wire_result results[] = {GOOD(0), GOOD(1), WIDE(2)};
    struct eb_error error;
    results[2].missing = 3;
    results[2].missing_by_query = missing;
    results[2].missing_by_query_count = 2;
    struct eb_lookup_answer *answer = read_back(&mixed, results, 3, &error);
    assert_non_null(answer);
    const struct embag_result *last = &answer->answer.results[2];
    assert_int_equal(last->query, 2);
    assert_int_equal(last->missing_by_query_count, 2);
    assert_memory_equal(last->missing_by_query, missing, sizeof missing);
    assert_memory_equal(last->values, wide_values, sizeof wide_values);
    eb_lookup_call_free(answer);
    for (size_t count = 0; count < 2; count++) {
        results[2].missing_by_query_count = count;
        assert_null(read_back(&mixed, results, 3, &error));
        assert_int_equal(error.status, EB_STATUS_INTERNAL);
    }
    results[2].missing_by_query_count = 2;
    assert_null(read_back(&mixed, results, 2, &error));
}

static void tells_what_is_wrong_with_one_query_where_that_was_wanted(void **state)
{
    (void)state;
    struct eb_wire_result results[] = {
        GOOD(0), {.query = 1, .error_code = 5, .error_message = "no such table"}};
    struct embag_request request = two;
    struct eb_error error;
    assert_null(read_back(&request, results, 2, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    request.errors_per_query = true;
    struct eb_lookup_answer *answer = read_back(&request, results, 2, &error);
    assert_non_null(answer);
    const struct embag_result *read = answer->answer.results;
    assert_int_equal(read[0].status, EMBAG_OK);
    assert_string_equal(read[0].message, "");
    assert_int_equal(read[1].status, EMBAG_NOT_FOUND);
    assert_string_equal(read[1].message, "no such table");
    assert_true(read[1].type == EMBAG_TYPE_UNSPECIFIED && read[1].rank == 0);
    assert_int_equal(read[1].values_bytes, 0);
    eb_lookup_call_free(answer);
}

static void says_where_missing_indices_stand_where_that_was_wanted(void **state)
{
    (void)state;
    static const uint32_t positions[] = {1, 70000};
    struct eb_wire_result results[] = {GOOD(0), GOOD(1)};
    struct embag_request request = two;
    struct eb_error error;
    results[1].missing = 2;
    results[1].missing_positions = (const uint8_t *)positions;
    results[1].missing_positions_bytes = sizeof positions;
    assert_null(read_back(&request, results, 2, &error));
    request.report_missing = true;
    struct eb_lookup_answer *answer = read_back(&request, results, 2, &error);
    assert_non_null(answer);
    assert_null(answer->answer.results[0].missing_positions);
    assert_memory_equal(answer->answer.results[1].missing_positions, positions, sizeof positions);
    eb_lookup_call_free(answer);
    for (size_t bytes = 0; bytes < sizeof positions; bytes++) {
        results[1].missing_positions_bytes = bytes;
        assert_null(read_back(&request, results, 2, &error));
        assert_int_equal(error.status, EB_STATUS_INTERNAL);
    }
}

static void says_how_many_indices_were_not_reached_where_that_was_allowed(void **state)
{
    (void)state;
    struct eb_wire_result results[] = {GOOD(0), GOOD(1)};
    struct embag_request request = two;
    struct eb_error error;
    results[1].unreached = 70000;
    results[1].missing = 1;
    assert_null(read_back(&request, results, 2, &error));
    assert_non_null(strstr(error.text, "results[1]: 70000 indices were not reached, but"));
    request.allow_incomplete = true;
    struct eb_lookup_answer *answer = read_back(&request, results, 2, &error);
    assert_non_null(answer);
    assert_true(answer->answer.incomplete);
    assert_int_equal(answer->answer.results[0].unreached, 0);
    assert_int_equal(answer->answer.results[1].unreached, 70000);
    assert_int_equal(answer->answer.results[1].missing, 1);
    eb_lookup_call_free(answer);
    results[1].missing = 2;
    assert_null(read_back(&request, results, 2, &error));
    assert_non_null(strstr(error.text, "70000 indices were not reached and 2 are missing"));
    results[1].unreached = 0;
    answer = read_back(&request, results, 2, &error);
    assert_non_null(answer);
    assert_false(answer->answer.incomplete);
    eb_lookup_call_free(answer);
}

static void hands_out_the_lists_of_sequences(void **state)
{
    (void)state;
    static const int64_t ids[] = {4, 5, 4};
    static const int32_t lengths[] = {1, 0, 2};
    static const uint32_t inverse[] = {0, 1, 0};
    static const struct embag_query query = {.table = "t",
        .reduction = EMBAG_NONE,
        .indices = {ids, 3, 8},
        .lengths = {lengths, 3, 4},
        .sequence = {.unique = true}};
    struct embag_request request = {.queries = &query, .query_count = 1};
    struct eb_wire_result result = GOOD(0);
    struct eb_error error;
    result.lengths = (const uint8_t *)lengths;
    result.lengths_bytes = sizeof lengths;
    result.inverse = (const uint8_t *)inverse;
    result.inverse_bytes = sizeof inverse;
    struct eb_lookup_answer *answer = read_back(&request, &result, 1, &error);
    assert_non_null(answer);
    const struct embag_result *read = answer->answer.results;
    assert_int_equal(read->lengths_count, 3);
    assert_memory_equal(read->lengths, lengths, sizeof lengths);
    assert_int_equal(read->inverse_count, 3);
    assert_memory_equal(read->inverse, inverse, sizeof inverse);
    assert_int_equal((uintptr_t)read->lengths % 4 + (uintptr_t)read->inverse % 4, 0);
    assert_memory_equal(read->values, values, sizeof values);
    eb_lookup_call_free(answer);
}

/* Results of 1, 3, 5, ... bytes, so that none is aligned by chance. */
static void aligns_the_values_of_every_result(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    static const uint8_t bytes[] = "0123456789abcdef";
    struct eb_wire_result results[COUNT];
    struct embag_query queries[COUNT];
    uint64_t shapes[COUNT];
    struct eb_error error;
    for (unsigned i = 0; i < COUNT; i++) {
        shapes[i] = i == 4 ? 0 : 2 * i + 1;
        queries[i] = (struct embag_query){.table = "t", .num_bags = shapes[i]};
        results[i] = (struct eb_wire_result){.query = i,
            .type = EMBAG_U8,
            .shape_count = 1,
            .shape = &shapes[i],
            .values = bytes,
            .values_bytes = shapes[i]};
    }
    struct embag_request request = {.queries = queries, .query_count = COUNT};
    struct eb_lookup_answer *answer = read_back(&request, results, COUNT, &error);
    assert_non_null(answer);
    for (unsigned i = 0; i < COUNT; i++) {
        const struct embag_result *result = &answer->answer.results[i];
        assert_non_null(result->values);
        assert_int_equal((uintptr_t)result->values % 16, 0);
        assert_int_equal(result->values_bytes, shapes[i]);
        assert_memory_equal(result->values, bytes, shapes[i]);
    }
    eb_lookup_call_free(answer);
}

/* The number of allocations stays small, however many results there are: the structs grow by
 * doubling, and all values lie in one block. */
static void takes_memory_for_all_results_at_once(void **state)
{
    (void)state;
    enum { COUNT = 400, BYTES = 4096 };
    static struct eb_wire_result results[COUNT];
    static uint8_t *values_at[COUNT];
    static const uint8_t bytes[BYTES];
    static const uint64_t bags[] = {BYTES};
    static struct eb_lookup_asked asked[COUNT];
    struct eb_wire_response response = {
        .model = "m", .version = 1, .error_message = "", .result_count = COUNT, .results = results};
    struct eb_lookup_expected expected = {.query_count = COUNT, .asked = asked};
    struct eb_error error;
    for (uint32_t i = 0; i < COUNT; i++) {
        asked[i].bags = BYTES;
        results[i] = (struct eb_wire_result){.query = i,
            .type = EMBAG_U8,
            .shape_count = 1,
            .shape = bags,
            .values = bytes,
            .values_bytes = BYTES};
    }
    size_t size = eb_lookup_response_bytes(&response);
    uint8_t *message = malloc(size);
    assert_non_null(message);
    eb_lookup_response_encode(&response, message, values_at);
    allocation_count = 0;
    struct eb_lookup_answer *answer = eb_lookup_call_decode(message, size, &error);
    assert_non_null(answer);
    assert_true(eb_lookup_call_check(answer, &expected, &error));
    assert_in_range(allocation_count, 1, 6);
    eb_lookup_call_free(answer);
    free(message);
}

/* Returns the request as the server's side of the codec decodes it. */
static struct eb_wire_request *decode_request(
    struct eb_arena *arena, const struct embag_request *request, struct eb_outgoing **outgoing)
{
    static const struct eb_codec_limits limits = {.queries_max = 10, .name_bytes_max = 255};
    struct eb_error error;
    struct eb_decode_failure failure;
    struct eb_lookup_label label = {.request_id = 70000, .timeout_us = 2500};
    *outgoing = eb_lookup_call_encode(request, &label, &eb_memory_heap, &error);
    assert_non_null(*outgoing);
    struct eb_wire_request *wire =
        eb_lookup_request_decode(arena, (*outgoing)->bytes + EB_GRPC_PREFIX_BYTES,
            (*outgoing)->size - EB_GRPC_PREFIX_BYTES, &limits, &failure);
    assert_non_null(wire);
    return wire;
}

static void sends_every_field(void **state)
{
    (void)state;
    const int32_t indices[] = {1, 2, 3};
    const int64_t offsets[] = {0, 1, 3};
    const float weights[] = {0.5f, 1, 2};
    struct embag_query query = {.table = "t",
        .reduction = EMBAG_SQRTN,
        .missing = EMBAG_MISSING_SKIP,
        .indices = {indices, 3, 4},
        .offsets = {offsets, 3, 8},
        .num_bags = 2,
        .include_last_offset = true,
        .has_default = true,
        .default_index = -1,
        .weights = weights,
        .weights_count = 3,
        .weights_type = EMBAG_F32};
    struct embag_request request = {.model = "m",
        .version = 9,
        .queries = &query,
        .query_count = 1,
        .output_type = EMBAG_F16,
        .concat = true,
        .priority = EMBAG_BATCH,
        .errors_per_query = true,
        .report_missing = true,
        .traceparent = "00-1-2-03",
        .allow_incomplete = true};
    struct eb_arena arena;
    struct eb_outgoing *outgoing = NULL;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 100000);
    const struct eb_wire_request *wire = decode_request(&arena, &request, &outgoing);
    assert_string_equal(wire->model, "m");
    assert_int_equal(wire->version, 9);
    assert_int_equal(wire->output_type, EMBAG_F16);
    assert_true(wire->concat && wire->errors_per_query && wire->report_missing);
    assert_true(wire->allow_incomplete);
    assert_int_equal(wire->priority, 1);
    assert_int_equal(wire->traceparent_bytes, strlen("00-1-2-03"));
    assert_memory_equal(wire->traceparent, "00-1-2-03", wire->traceparent_bytes);
    assert_int_equal(wire->request_id, 70000);
    assert_int_equal(wire->timeout_us, 2500);
    const struct eb_wire_query *seen = &wire->queries[0];
    assert_int_equal(seen->reduction, EMBAG_SQRTN);
    assert_int_equal(seen->missing, EMBAG_MISSING_SKIP);
    assert_int_equal(seen->indices.width, 4);
    assert_memory_equal(seen->indices.data, indices, sizeof indices);
    assert_int_equal(seen->offsets.width, 8);
    assert_memory_equal(seen->offsets.data, offsets, sizeof offsets);
    assert_true(seen->include_last_offset && seen->has_default);
    assert_int_equal(seen->default_index, -1);
    assert_int_equal(seen->num_bags, 2);
    assert_int_equal(seen->weights_type, EMBAG_F32);
    assert_memory_equal(seen->weights, weights, sizeof weights);
    eb_outgoing_drop(outgoing);
    eb_arena_deinit(&arena);
}

static void sends_every_field_of_a_group(void **state)
{
    (void)state;
    const int32_t indices[] = {1, 2, 3};
    const int64_t offsets[] = {0, 1, 3};
    const int32_t lengths[] = {1, 2};
    const double weights[] = {0.5, 1, 2};
    const struct embag_group groups[] = {
        {.features = features,
            .feature_count = 2,
            .bags = 1,
            .values = {indices, 3, 4},
            .offsets = {offsets, 3, 8},
            .weights = weights,
            .weights_count = 3,
            .weights_type = EMBAG_F64,
            .reduction = EMBAG_SQRTN,
            .missing = EMBAG_MISSING_ZERO},
        {.name = "g", .bags = 2, .lengths = {lengths, 2, 4}},
    };
    struct embag_request request = {
        .queries = two_queries, .query_count = 2, .groups = groups, .group_count = 2};
    struct eb_arena arena;
    struct eb_outgoing *outgoing = NULL;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 100000);
    const struct eb_wire_request *wire = decode_request(&arena, &request, &outgoing);
    assert_int_equal(wire->query_count, 2);
    assert_int_equal(wire->group_count, 2);
    assert_int_equal(wire->priority, 0);
    const struct eb_wire_group *seen = wire->groups;
    assert_string_equal(seen->name, "");
    assert_int_equal(seen->feature_count, 2);
    assert_string_equal(seen->features[1], "b");
    assert_int_equal(seen->bags, 1);
    assert_int_equal(seen->values.width, 4);
    assert_memory_equal(seen->values.data, indices, sizeof indices);
    assert_int_equal(seen->offsets.width, 8);
    assert_memory_equal(seen->offsets.data, offsets, sizeof offsets);
    assert_memory_equal(seen->weights, weights, sizeof weights);
    assert_int_equal(seen->weights_type, EMBAG_F64);
    assert_int_equal(seen->reduction, EMBAG_SQRTN);
    assert_int_equal(seen->missing, EMBAG_MISSING_ZERO);
    assert_string_equal(seen[1].name, "g");
    assert_int_equal(seen[1].lengths.width, 4);
    assert_memory_equal(seen[1].lengths.data, lengths, sizeof lengths);
    eb_outgoing_drop(outgoing);
    eb_arena_deinit(&arena);
}

static void encodes_no_arrays_that_are_none(void **state)
{
    (void)state;
    static const int64_t numbers[2];
    static const char *const holes[] = {"a", NULL};
    const struct embag_group groups[] = {
        {.feature_count = 1},
        {.features = holes, .feature_count = 2},
        {.values = {NULL, 1, 8}},
        {.values = {numbers, 1, 2}},
        {.lengths = {numbers, 2, 8}},
        {.offsets = {NULL, 1, 4}},
        {.weights_count = 1, .weights_type = EMBAG_F32},
        {.weights = numbers, .weights_count = 1},
    };
    struct eb_lookup_label label = {0};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        struct embag_request request = {.groups = &groups[i], .group_count = 1};
        struct eb_error error = {.status = EB_STATUS_OK};
        assert_null(eb_lookup_call_encode(&request, &label, &eb_memory_heap, &error));
        assert_int_equal(error.status, EB_STATUS_INVALID_ARGUMENT);
        assert_memory_equal(error.text, "groups[0]: ", 11);
    }
    const struct embag_request absent[] = {{.query_count = 1}, {.group_count = 1}};
    for (size_t i = 0; i < 2; i++) {
        struct eb_error error = {.status = EB_STATUS_OK};
        assert_null(eb_lookup_call_encode(&absent[i], &label, &eb_memory_heap, &error));
        assert_int_equal(error.status, EB_STATUS_INVALID_ARGUMENT);
    }
}

/* As on the wire, weights are present if they have a type. The pointer of an empty container may be
 * NULL or not. */
static void tells_weights_that_are_missing_from_none(void **state)
{
    (void)state;
    static const int64_t one[1];
    const struct embag_query queries[] = {
        {.table = "t", .weights = one, .weights_type = EMBAG_F32, .indices = {one, 1, 8}},
        {.table = "t", .weights = NULL, .weights_type = EMBAG_F32, .indices = {one, 1, 8}},
        {.table = "t", .weights = one, .weights_type = EMBAG_F32, .indices = {one, 0, 8}},
        {.table = "t", .weights = one, .indices = {one, 1, 8}},
    };
    const struct embag_group groups[] = {
        {.name = "g", .weights = one, .weights_type = EMBAG_F32, .values = {one, 1, 8}},
        {.name = "g", .weights = NULL, .weights_type = EMBAG_F32, .values = {one, 1, 8}},
        {.name = "g", .weights = one, .weights_type = EMBAG_F32, .values = {one, 0, 8}},
        {.name = "g", .weights = one, .values = {one, 1, 8}},
    };
    static const int32_t types[] = {EMBAG_F32, EMBAG_F32, 0, 0};
    struct embag_request request = {
        .queries = queries, .query_count = 4, .groups = groups, .group_count = 4};
    struct eb_arena arena;
    struct eb_outgoing *outgoing = NULL;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 100000);
    const struct eb_wire_request *wire = decode_request(&arena, &request, &outgoing);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(wire->queries[i].weights_type, types[i]);
        assert_int_equal(wire->queries[i].weights_bytes, 0);
        assert_int_equal(wire->groups[i].weights_type, types[i]);
        assert_int_equal(wire->groups[i].weights_bytes, 0);
    }
    eb_outgoing_drop(outgoing);
    eb_arena_deinit(&arena);
}

static void says_the_layout_of_empty_arrays(void **state)
{
    (void)state;
    const struct embag_query queries[] = {
        {.table = "t", .offsets = {NULL, 0, 8}},
        {.table = "t", .lengths = {NULL, 0, 4}},
        {.table = "t", .indices_per_bag = 2},
        {.table = "t", .segment_ids = {NULL, 0, 8}},
        {.table = "t", .num_segments = 3},
        {.table = "t", .num_bags = 3},
    };
    static const int32_t layouts[] = {1, 2, 3, 4, 4, 0};
    struct embag_request request = {.queries = queries, .query_count = 6};
    struct eb_arena arena;
    struct eb_outgoing *outgoing = NULL;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 100000);
    const struct eb_wire_request *wire = decode_request(&arena, &request, &outgoing);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(wire->queries[i].layout, layouts[i]);
    }
    eb_outgoing_drop(outgoing);
    eb_arena_deinit(&arena);
}

static void asks_a_part_by_its_number(void **state)
{
    (void)state;
    const struct embag_query queries[] = {{.table = "t", .part = 7},
        {.table = "t", .has_part = true}, {.table = "t", .has_part = true, .part = 7},
        {.table = "t", .has_part = true, .part = UINT32_MAX - 1}};
    struct embag_request request = {.queries = queries, .query_count = 4};
    struct eb_arena arena;
    struct eb_outgoing *outgoing = NULL;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 100000);
    const struct eb_wire_request *wire = decode_request(&arena, &request, &outgoing);
    assert_int_equal(wire->queries[0].part, 0);
    assert_int_equal(wire->queries[1].part, 1);
    assert_int_equal(wire->queries[2].part, 8);
    assert_int_equal(wire->queries[3].part, UINT32_MAX);
    eb_outgoing_drop(outgoing);
    eb_arena_deinit(&arena);

    struct embag_query large = {.table = "t", .has_part = true, .part = UINT32_MAX};
    struct eb_lookup_label label = {0};
    struct eb_error error = {.status = EB_STATUS_OK};
    request = (struct embag_request){.queries = &large, .query_count = 1};
    assert_null(eb_lookup_call_encode(&request, &label, &eb_memory_heap, &error));
    assert_int_equal(error.status, EB_STATUS_INVALID_ARGUMENT);
    assert_string_equal(
        error.text, "queries[0]: part is not the number of a part: expected at most 4294967294");
}

EB_TEST_GROUP(lookup_call)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_results_that_fit_the_request),
        cmocka_unit_test(rejects_results_that_do_not_fit_the_request),
        cmocka_unit_test(takes_one_result_for_all_when_concatenated),
        cmocka_unit_test(says_how_many_indices_were_not_reached_where_that_was_allowed),
        cmocka_unit_test(hands_out_the_lists_of_sequences),
        cmocka_unit_test(reads_the_result_of_a_group_behind_those_of_queries),
        cmocka_unit_test(tells_what_is_wrong_with_one_query_where_that_was_wanted),
        cmocka_unit_test(says_where_missing_indices_stand_where_that_was_wanted),
        cmocka_unit_test(aligns_the_values_of_every_result),
        cmocka_unit_test(takes_memory_for_all_results_at_once),
        cmocka_unit_test(sends_every_field),
        cmocka_unit_test(sends_every_field_of_a_group),
        cmocka_unit_test(encodes_no_arrays_that_are_none),
        cmocka_unit_test(tells_weights_that_are_missing_from_none),
        cmocka_unit_test(says_the_layout_of_empty_arrays),
        cmocka_unit_test(asks_a_part_by_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
