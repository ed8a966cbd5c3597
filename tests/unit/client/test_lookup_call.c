#include "client/lookup_call.h"

#include "proto/codec.h"
#include "proto/grpc_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct embag_query two_queries[2] = {{.table = "a"}, {.table = "b"}};
static const struct embag_request two = {.model = "m", .queries = two_queries, .query_count = 2};

/* Serialises results, reads them back as an answer to `request`. */
static struct eb_lookup_answer *read_back(const struct embag_request *request,
    struct eb_wire_result *results, size_t count, struct eb_error *error)
{
    uint8_t *values_at[8];
    const struct eb_wire_response response = {
        .model = "m", .version = 3, .error_message = "", .result_count = count, .results = results};
    size_t size = eb_lookup_response_bytes(&response);
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    eb_lookup_response_encode(&response, bytes, values_at);
    const struct eb_lookup_expected expected = {request->query_count, request->concat};
    struct eb_lookup_answer *answer = eb_lookup_call_decode(bytes, size, error);
    if (answer != NULL && !eb_lookup_call_check(answer, &expected, error)) {
        eb_lookup_call_free(answer);
        answer = NULL;
    }
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
    static const uint64_t deep[] = {2, 1, 1, 1, 1, 1, 1, 1, 1};
    struct eb_error error;
    struct eb_wire_result wrong[][2] = {{GOOD(1), GOOD(0)}, {GOOD(0), GOOD(2)}, {GOOD(0), GOOD(1)},
        {GOOD(0), GOOD(1)}, {GOOD(0), GOOD(1)}, {GOOD(0), GOOD(1)}, {GOOD(0), GOOD(1)}};
    wrong[2][1].type = 13;
    wrong[3][1].values_bytes = 4;
    wrong[4][1].shape = huge;
    wrong[5][1].shape = deep;
    wrong[5][1].shape_count = 9;
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
    static const uint64_t missing[] = {UINT64_MAX, 0};
    struct eb_wire_result result[] = {GOOD(0)};
    struct embag_request request = two;
    struct eb_error error;
    request.concat = true;
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
}

/* What the server's side of the codec understands of a request. */
static struct eb_wire_request *decode_request(
    struct eb_arena *arena, const struct embag_request *request, struct eb_outgoing **outgoing)
{
    static const struct eb_codec_limits limits = {.queries_max = 10, .name_bytes_max = 255};
    struct eb_error error;
    struct eb_decode_failure failure;
    const struct eb_lookup_label label = {.request_id = 70000, .timeout_us = 2500};
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
    const struct embag_query query = {.table = "t",
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
    const struct embag_request request = {.model = "m",
        .version = 9,
        .queries = &query,
        .query_count = 1,
        .output_type = EMBAG_F16,
        .concat = true};
    struct eb_arena arena;
    struct eb_outgoing *outgoing = NULL;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 100000);
    const struct eb_wire_request *wire = decode_request(&arena, &request, &outgoing);
    assert_string_equal(wire->model, "m");
    assert_int_equal(wire->version, 9);
    assert_int_equal(wire->output_type, EMBAG_F16);
    assert_true(wire->concat);
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
    const struct embag_request request = {.queries = queries, .query_count = 6};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_results_that_fit_the_request),
        cmocka_unit_test(rejects_results_that_do_not_fit_the_request),
        cmocka_unit_test(takes_one_result_for_all_when_concatenated),
        cmocka_unit_test(sends_every_field),
        cmocka_unit_test(says_the_layout_of_empty_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
