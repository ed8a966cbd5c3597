/* Answers that a broken or hostile server may give, each with its request. An answer that does not
 * fit ends the call with INTERNAL, and the text says what was requested and what was answered. */
#include "client/lookup_call.h"
#include "proto/codec.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RESULTS_MAX 4
#define NO_TEXT ""

/* The values of every result here, as many as the largest shape needs. */
static const uint8_t zeros[4096];

static const int64_t numbers[] = {0, 2, 2, 2, 4};
static const int32_t short_numbers[] = {1, 0, 3, 0, 1};

/* Encodes a response, and decodes it as an answer to `request`. Returns whether it is accepted. */
static bool is_taken(const struct embag_request *request, const struct eb_wire_response *response,
    struct eb_error *error)
{
    uint8_t *values_at[RESULTS_MAX];
    struct eb_lookup_label label = {.request_id = 1};
    struct eb_lookup_expected expected;
    size_t size = eb_lookup_response_bytes(response);
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    eb_lookup_response_encode(response, bytes, values_at);
    struct eb_outgoing *outgoing = eb_lookup_call_encode(request, &label, &eb_memory_heap, error);
    assert_non_null(outgoing);
    eb_lookup_call_expect(request, outgoing, &expected);
    struct eb_lookup_answer *answer = eb_lookup_call_decode(bytes, size, error);
    assert_non_null(answer);
    bool is_good = eb_lookup_call_check(answer, &expected, error);
    eb_lookup_call_free(answer);
    eb_outgoing_drop(outgoing);
    free(bytes);
    return is_good;
}

/* Returns a response of version 1 of a model with these results. */
static struct eb_wire_response respond(struct eb_wire_result *results, size_t count)
{
    return (struct eb_wire_response){
        .model = "m", .version = 1, .error_message = "", .result_count = count, .results = results};
}

/* Expects the answer to be accepted if the text is empty. Otherwise expects INTERNAL with that
 * text. */
static void expect_outcome(
    const struct embag_request *request, struct eb_wire_response response, const char *text)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    bool is_good = is_taken(request, &response, &error);
    if (is_good != (text[0] == '\0') || (!is_good && !strstr(error.text, text))) {
        print_error("expected \"%s\", and it was \"%s\"\n", text, is_good ? "" : error.text);
        fail();
    }
    if (!is_good) {
        assert_int_equal(error.status, EB_STATUS_INTERNAL);
    }
}

/* Returns a result of this shape and type, with values that fill it. */
static struct eb_wire_result fill(uint32_t rank, const uint64_t *shape, int32_t type)
{
    struct eb_wire_result result = {
        .type = type, .shape_count = rank, .shape = shape, .values = zeros};
    result.values_bytes = embag_type_bytes((enum embag_type)type);
    for (uint32_t i = 0; i < rank; i++) {
        result.values_bytes *= (size_t)shape[i];
    }
    assert_true(result.values_bytes <= sizeof zeros);
    return result;
}

/* Expects the outcome `text` (see expect_outcome) for an answer to one query, whose result is f32
 * and has this shape. */
static void expect_shape(
    const struct embag_query *query, uint32_t rank, const uint64_t *shape, const char *text)
{
    struct embag_request request = {.queries = query, .query_count = 1};
    struct eb_wire_result result = fill(rank, shape, EMBAG_F32);
    expect_outcome(&request, respond(&result, 1), text);
}

static void refuses_shapes_of_other_bags(void **state)
{
    (void)state;
    static const struct {
        uint32_t rank;
        uint64_t shape[EMBAG_RANK_MAX];
        const char *text;
    } cases[] = {
        {2, {3, 2}, NO_TEXT},
        {1, {3}, NO_TEXT},
        {9, {3, 1, 1, 1, 1, 1, 1, 1, 1}, NO_TEXT},
        {2, {1, 2}, "results[0]: shape [1, 2] has 1 bags, the request has 3"},
        {2, {0, 2}, "results[0]: shape [0, 2] has 0 bags, the request has 3"},
        {2, {4, 2}, "results[0]: shape [4, 2] has 4 bags, the request has 3"},
        {2, {500, 2}, "results[0]: shape [500, 2] has 500 bags, the request has 3"},
        {0, {0}, "results[0]: shape [] has no dimensions"},
        {8, {1, 1, 1, 1, 1, 1, 1, 1}, "has 1 bags, the request has 3"},
        {2, {3, 0}, "results[0]: shape [3, 0] has rows without values"},
        {3, {3, 0, 4}, "results[0]: shape [3, 0, 4] has rows without values"},
    };
    struct embag_query query = {.table = "t",
        .reduction = EMBAG_SUM,
        .indices = {numbers, 4, 8},
        .offsets = {numbers, 3, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_shape(&query, cases[i].rank, cases[i].shape, cases[i].text);
    }
}

static void knows_the_bags_of_every_layout(void **state)
{
    (void)state;
    static const struct {
        struct embag_query query;
        uint64_t bags;
    } cases[] = {
        {{.indices = {numbers, 4, 8}, .offsets = {numbers, 3, 8}}, 3},
        {{.indices = {numbers, 4, 8}, .offsets = {short_numbers, 3, 4}}, 3},
        {{.indices = {numbers, 4, 8}, .offsets = {numbers, 5, 8}, .include_last_offset = true}, 4},
        {{.indices = {numbers, 1, 8}, .offsets = {numbers, 1, 8}, .include_last_offset = true}, 0},
        {{.indices = {numbers, 5, 8}, .lengths = {short_numbers, 5, 4}}, 5},
        {{.indices = {numbers, 4, 8}, .lengths = {numbers, 2, 8}}, 2},
        {{.indices = {short_numbers, 4, 4}, .indices_per_bag = 2}, 2},
        {{.indices = {NULL, 0, 8}, .indices_per_bag = 2}, 0},
        {{.indices = {short_numbers, 4, 4}, .segment_ids = {numbers, 4, 8}, .num_segments = 7}, 7},
        {{.num_segments = 7}, 7},
        {{.indices = {numbers, 4, 8}, .num_bags = 1}, 1},
        {{.num_bags = 6}, 6},
        {{.offsets = {NULL, 0, 8}, .num_bags = 6}, 6},
        {{.lengths = {NULL, 0, 8}, .num_bags = 6}, 6},
        {{.offsets = {NULL, 0, 8}}, 0},
        {{.lengths = {NULL, 0, 4}}, 0},
        {{.table = "t"}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct embag_query query = cases[i].query;
        query.reduction = EMBAG_MAX;
        expect_shape(&query, 2, (uint64_t[]){cases[i].bags, 2}, NO_TEXT);
        expect_shape(&query, 2, (uint64_t[]){cases[i].bags + 1, 2}, "bags, the request has");
        if (cases[i].bags > 0) {
            expect_shape(&query, 2, (uint64_t[]){cases[i].bags - 1, 2}, "bags, the request has");
        }
    }
}

static void wants_a_row_for_every_index_without_reduction(void **state)
{
    (void)state;
    struct embag_query query = {
        .reduction = EMBAG_NONE, .indices = {numbers, 4, 8}, .offsets = {numbers, 3, 8}};
    expect_shape(&query, 2, (uint64_t[]){4, 2}, NO_TEXT);
    expect_shape(&query, 2, (uint64_t[]){3, 2}, "shape [3, 2] has 3 rows, the request has 4");
    query.offsets = (struct embag_integers){0};
    expect_shape(&query, 2, (uint64_t[]){4, 2}, NO_TEXT);
    expect_shape(&query, 2, (uint64_t[]){0, 2}, "shape [0, 2] has 0 rows, the request has 4");
    /* If the query has no reduction, the feature's own applies, which may be NONE. */
    query.offsets = (struct embag_integers){numbers, 3, 8};
    query.reduction = EMBAG_REDUCTION_UNSPECIFIED;
    expect_shape(&query, 2, (uint64_t[]){4, 2}, NO_TEXT);
    expect_shape(&query, 2, (uint64_t[]){3, 2}, NO_TEXT);
    expect_shape(&query, 2, (uint64_t[]){1, 2},
        "shape [1, 2] has 1 rows, the request has 3 bags of 4 indices");
    expect_shape(&query, 2, (uint64_t[]){5, 2}, "shape [5, 2] has 5 rows");
}

static const struct embag_query three_bags = {
    .table = "t", .reduction = EMBAG_SUM, .indices = {numbers, 4, 8}, .offsets = {numbers, 3, 8}};
static const uint64_t three_by_two[] = {3, 2};

static void refuses_types_that_were_not_asked_for(void **state)
{
    (void)state;
    struct embag_request request = {.queries = &three_bags, .query_count = 1};
    for (int32_t type = EMBAG_F32; type <= EMBAG_U64; type++) {
        struct eb_wire_result result = fill(2, three_by_two, type);
        request.output_type = EMBAG_TYPE_UNSPECIFIED;
        expect_outcome(&request, respond(&result, 1), NO_TEXT);
        for (int asked = EMBAG_F32; asked <= EMBAG_BF16; asked++) {
            request.output_type = (enum embag_type)asked;
            expect_outcome(
                &request, respond(&result, 1), type == asked ? NO_TEXT : ", the request asks for ");
        }
    }
    request.output_type = EMBAG_F16;
    struct eb_wire_result result = fill(2, three_by_two, EMBAG_F32);
    expect_outcome(
        &request, respond(&result, 1), "results[0]: values are F32, the request asks for F16");
    static const int32_t none[] = {0, 13, -1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        result.type = none[i];
        request.output_type = EMBAG_TYPE_UNSPECIFIED;
        expect_outcome(&request, respond(&result, 1), " is not an element type");
    }
}

static void refuses_values_that_do_not_fill_their_shape(void **state)
{
    (void)state;
    struct embag_request request = {.queries = &three_bags, .query_count = 1};
    static const size_t sizes[] = {0, 1, 23, 25, 48, 4096};
    struct eb_wire_result result = fill(2, three_by_two, EMBAG_F32);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        result.values_bytes = sizes[i];
        expect_outcome(&request, respond(&result, 1), "results[0]: shape [3, 2] of F32 needs 24");
    }
    /* Shapes whose sizes, multiplied, wrap around to the actual size, and a shape with more
     * dimensions than are allowed. */
    static const uint64_t wrapped[] = {3, UINT64_C(1) << 62, 4};
    static const uint64_t many[] = {3, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    result = (struct eb_wire_result){
        .type = EMBAG_F32, .shape_count = 3, .shape = wrapped, .values = zeros};
    expect_outcome(&request, respond(&result, 1), "of F32 needs more bytes than memory can hold");
    result = fill(10, many, EMBAG_F32);
    expect_outcome(&request, respond(&result, 1), "results[0]: 10 dimensions, at most 9 are");
    struct embag_query no_bags = {.reduction = EMBAG_SUM};
    struct embag_request empty = {.queries = &no_bags, .query_count = 1};
    static const uint64_t wide[] = {0, UINT64_MAX, UINT64_MAX};
    result = (struct eb_wire_result){
        .type = EMBAG_F32, .shape_count = 3, .shape = wide, .values = zeros};
    expect_outcome(&empty, respond(&result, 1), "of F32 needs more bytes than memory can hold");
}

static void refuses_another_number_or_order_of_results(void **state)
{
    (void)state;
    const struct embag_query queries[] = {three_bags, three_bags};
    struct embag_request request = {.queries = queries, .query_count = 2};
    struct eb_wire_result results[3];
    for (uint32_t i = 0; i < 3; i++) {
        results[i] = fill(2, three_by_two, EMBAG_F32);
        results[i].query = i;
    }
    expect_outcome(&request, respond(results, 2), NO_TEXT);
    expect_outcome(&request, respond(results, 0), "0 results, the request has 2 queries");
    expect_outcome(&request, respond(results, 1), "1 results, the request has 2 queries");
    expect_outcome(&request, respond(results, 3), "3 results, the request has 2 queries");
    static const uint32_t wrong[][2] = {{0, 0}, {1, 0}, {1, 1}, {0, 2}, {0, UINT32_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        results[0].query = wrong[i][0];
        results[1].query = wrong[i][1];
        expect_outcome(&request, respond(results, 2), "]: it belongs to query ");
    }
    struct embag_request nothing = {.model = "m"};
    expect_outcome(&nothing, respond(results, 0), NO_TEXT);
    expect_outcome(&nothing, respond(results, 1), "1 results, the request has 0 queries");
}

static void refuses_another_version_and_more_messages(void **state)
{
    (void)state;
    struct embag_request request = {.queries = &three_bags, .query_count = 1, .version = 7};
    struct eb_wire_result result = fill(2, three_by_two, EMBAG_F32);
    struct eb_wire_response response = respond(&result, 1);
    expect_outcome(&request, response, "version 1 answered, but the request names 7");
    response.version = 7;
    expect_outcome(&request, response, NO_TEXT);
    request.version = 0;
    expect_outcome(&request, response, NO_TEXT);
    response.more = true;
    expect_outcome(&request, response, "more is set");
    response.more = false;
    response.version = 0;
    expect_outcome(&request, response, "it names version 0");
    response.version = 7;
    response.incomplete = true;
    expect_outcome(&request, response, "it is incomplete, but the request does not allow that");
    request.allow_incomplete = true;
    expect_outcome(&request, response, NO_TEXT);
    response.incomplete = false;
    result.unreached = 1;
    expect_outcome(&request, response, "results have unreached indices, but incomplete is not set");
}

static const char *const features[] = {"a", "b"};
static const struct embag_group two_features = {.features = features,
    .feature_count = 2,
    .bags = 2,
    .values = {numbers, 5, 8},
    .lengths = {short_numbers, 4, 4}};
static const uint64_t none_missing[] = {0, 0};
static const uint64_t two_by_two[] = {2, 2};

static void checks_the_result_of_a_group(void **state)
{
    (void)state;
    struct embag_request request = {.groups = &two_features, .group_count = 1};
    struct eb_wire_result result = fill(2, two_by_two, EMBAG_F32);
    result.missing_by_query = none_missing;
    result.missing_by_query_count = 2;
    expect_outcome(&request, respond(&result, 1), NO_TEXT);
    static const struct {
        uint32_t rank;
        uint64_t shape[3];
        int32_t type;
        const char *text;
    } cases[] = {
        {2, {2, 9}, EMBAG_BF16, NO_TEXT},
        {2, {1, 2}, EMBAG_F32, "results[0]: shape [1, 2] has 1 bags, the request has 2"},
        {2, {5, 2}, EMBAG_F32, "results[0]: shape [5, 2] has 5 bags, the request has 2"},
        {1, {2}, EMBAG_F32, "results[0]: shape [2] does not have two dimensions"},
        {3, {2, 2, 2}, EMBAG_F32, "results[0]: shape [2, 2, 2] does not have two dimensions"},
        {2, {2, 1}, EMBAG_F32, "results[0]: shape [2, 1] has fewer columns than 2 features"},
        {2, {2, 0}, EMBAG_F32, "has fewer columns than 2 features"},
        {2, {2, 2}, EMBAG_I64, "results[0]: values are I64, but only floating-point"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        result = fill(cases[i].rank, cases[i].shape, cases[i].type);
        result.missing_by_query = none_missing;
        result.missing_by_query_count = 2;
        expect_outcome(&request, respond(&result, 1), cases[i].text);
    }
    /* The request does not say how many features the group has. Only the model does. */
    struct embag_group named = {
        .name = "g", .bags = 2, .values = {numbers, 5, 8}, .lengths = {short_numbers, 4, 4}};
    request.groups = &named;
    result = fill(2, two_by_two, EMBAG_F32);
    for (size_t count = 0; count < 2; count++) {
        result.missing_by_query = none_missing;
        result.missing_by_query_count = count;
        expect_outcome(&request, respond(&result, 1), NO_TEXT);
    }
    const uint64_t three_bags_of_two[] = {3, 2};
    result.shape = three_bags_of_two;
    result.values_bytes = 24;
    expect_outcome(&request, respond(&result, 1), "has 3 bags, the request has 2");
}

static void checks_the_one_result_of_all(void **state)
{
    (void)state;
    struct embag_query queries[] = {three_bags, three_bags};
    struct embag_request request = {.queries = queries, .query_count = 2, .concat = true};
    queries[0].reduction = EMBAG_REDUCTION_UNSPECIFIED;
    static const struct {
        uint32_t rank;
        uint64_t shape[3];
        int32_t type;
        const char *text;
    } cases[] = {
        {2, {3, 2}, EMBAG_F32, NO_TEXT},
        {2, {4, 2}, EMBAG_F32, "results[0]: shape [4, 2] has 4 bags, the request has 3"},
        {1, {3}, EMBAG_F32, "does not have two dimensions"},
        {2, {3, 1}, EMBAG_F32, "has fewer columns than 2 queries"},
        {2, {3, 2}, EMBAG_I32, "only floating-point values can stand side by side"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_wire_result result = fill(cases[i].rank, cases[i].shape, cases[i].type);
        result.missing_by_query = none_missing;
        result.missing_by_query_count = 2;
        expect_outcome(&request, respond(&result, 1), cases[i].text);
    }
    struct eb_wire_result failed = {.error_code = 5, .error_message = "no"};
    expect_outcome(&request, respond(&failed, 1), "results[0]: error NOT_FOUND");
}

/* Checks the count of missing indices of one query, which has four indices. */
static void checks_how_many_are_missing(void **state)
{
    (void)state;
    struct embag_request request = {.queries = &three_bags, .query_count = 1};
    struct eb_wire_result result = fill(2, three_by_two, EMBAG_F32);
    result.missing = 4;
    expect_outcome(&request, respond(&result, 1), NO_TEXT);
    result.missing = 5;
    expect_outcome(
        &request, respond(&result, 1), "results[0]: 5 indices are missing, the request has 4");
    result.missing = UINT64_MAX;
    expect_outcome(&request, respond(&result, 1), "indices are missing, the request has 4");
    result.missing = 1;
    result.missing_by_query = (uint64_t[]){1};
    result.missing_by_query_count = 1;
    expect_outcome(&request, respond(&result, 1), "results[0]: 1 counts of missing indices");
}

/* Checks the counts of missing indices of each feature of a group, and of each query of a
 * concatenated answer. */
static void checks_the_parts_of_what_is_missing(void **state)
{
    (void)state;
    const struct embag_query queries[] = {three_bags, three_bags};
    const struct embag_request requests[] = {{.groups = &two_features, .group_count = 1},
        {.queries = queries, .query_count = 2, .concat = true}};
    static const struct {
        uint64_t counts[2];
        size_t count;
        uint64_t missing;
        const char *text;
    } cases[] = {
        {{1, 2}, 2, 3, NO_TEXT},
        {{1, 2}, 2, 4, "results[0]: 4 indices are missing, but the counts add up to 3"},
        {{1, 2}, 2, 0, "results[0]: 0 indices are missing, but the counts add up to 3"},
        {{UINT64_MAX, 4}, 2, 3, " indices are missing"},
        {{UINT64_MAX - 3, 4}, 2, 0, " indices are missing"},
        {{3}, 1, 3, "results[0]: 1 counts of missing indices, the request needs 2"},
        {{0}, 0, 0, "results[0]: 0 counts of missing indices, the request needs 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t k = 0; k < 2; k++) {
            struct eb_wire_result result = fill(2, k == 0 ? two_by_two : three_by_two, EMBAG_F32);
            result.missing = cases[i].missing;
            result.missing_by_query = cases[i].counts;
            result.missing_by_query_count = cases[i].count;
            expect_outcome(&requests[k], respond(&result, 1), cases[i].text);
        }
    }
}

static void checks_where_missing_indices_stand(void **state)
{
    (void)state;
    struct embag_request request = {
        .queries = &three_bags, .query_count = 1, .report_missing = true};
    static const struct {
        uint32_t positions[3];
        uint64_t missing;
        size_t bytes;
        const char *text;
    } cases[] = {
        {{0, 3}, 2, 8, NO_TEXT},
        {{0}, 0, 0, NO_TEXT},
        {{0, 4}, 2, 8, "results[0]: missing_positions[1] = 4, the request has 4 indices"},
        {{UINT32_MAX}, 1, 4, "results[0]: missing_positions[0] = 4294967295"},
        {{1, 1}, 2, 8, "results[0]: missing_positions[1] = 1 is not above 1"},
        {{2, 1}, 2, 8, "results[0]: missing_positions[1] = 1 is not above 2"},
        {{0, 3}, 1, 8, "results[0]: missing_positions has 8 bytes, 1 missing indices need 4"},
        {{0, 3}, 2, 7, "results[0]: missing_positions has 7 bytes, 2 missing indices need 8"},
        {{0}, 2, 0, "results[0]: missing_positions has 0 bytes, 2 missing indices need 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_wire_result result = fill(2, three_by_two, EMBAG_F32);
        result.missing = cases[i].missing;
        result.missing_positions = (const uint8_t *)cases[i].positions;
        result.missing_positions_bytes = cases[i].bytes;
        expect_outcome(&request, respond(&result, 1), cases[i].text);
    }
    request.report_missing = false;
    struct eb_wire_result result = fill(2, three_by_two, EMBAG_F32);
    result.missing = 1;
    result.missing_positions = (const uint8_t *)cases[0].positions;
    result.missing_positions_bytes = 4;
    expect_outcome(&request, respond(&result, 1), "the request does not ask for them");
}

/* The positions of missing indices in a group are counted through all values of the group. In a
 * concatenated answer the positions begin anew with each query. */
static void checks_where_indices_of_several_are_missing(void **state)
{
    (void)state;
    struct embag_query queries[] = {three_bags, three_bags};
    queries[1].indices.count = 2;
    const struct embag_request requests[] = {
        {.groups = &two_features, .group_count = 1, .report_missing = true},
        {.queries = queries, .query_count = 2, .concat = true, .report_missing = true}};
    static const struct {
        uint32_t positions[3];
        const char *of_group;
        const char *of_all;
    } cases[] = {
        {{0, 1, 4}, NO_TEXT, "missing_positions[2] = 4, the request has 2"},
        {{1, 3, 0}, "missing_positions[2] = 0 is not above 3", NO_TEXT},
        {{1, 3, 1}, "missing_positions[2] = 1 is not above 3", NO_TEXT},
        {{1, 4, 1}, "missing_positions[2] = 1 is not above 4",
            "missing_positions[1] = 4, the request has 4"},
        {{1, 2, 5}, "missing_positions[2] = 5, the request has 5",
            "missing_positions[2] = 5, the request has 2"},
    };
    static const uint64_t counts[] = {2, 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t k = 0; k < 2; k++) {
            struct eb_wire_result result = fill(2, k == 0 ? two_by_two : three_by_two, EMBAG_F32);
            result.missing = 3;
            result.missing_by_query = counts;
            result.missing_by_query_count = 2;
            result.missing_positions = (const uint8_t *)cases[i].positions;
            result.missing_positions_bytes = sizeof cases[i].positions;
            expect_outcome(
                &requests[k], respond(&result, 1), k == 0 ? cases[i].of_group : cases[i].of_all);
        }
    }
    struct eb_wire_result result = fill(2, three_by_two, EMBAG_F32);
    result.missing = 3;
    result.missing_by_query = (uint64_t[]){0, 3};
    result.missing_by_query_count = 2;
    result.missing_positions = zeros;
    result.missing_positions_bytes = 12;
    expect_outcome(&requests[1], respond(&result, 1), "3 indices are missing in queries[1], ");
}

/* A sequence lookup and its answer: lists of up to four entries. */
struct sequence_case {
    struct embag_sequence sequence;
    uint32_t rank;
    uint64_t shape[3];
    size_t lengths_bytes;
    int32_t lengths[4];
    size_t inverse_bytes;
    uint32_t inverse[4];
    const char *text;
};

/* Expects the outcome of each case for the answer to the request's one query or group. */
static void expect_sequences(struct embag_request *request, struct embag_sequence *sequence,
    const struct sequence_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        *sequence = cases[i].sequence;
        struct eb_wire_result result = fill(cases[i].rank, cases[i].shape, EMBAG_F32);
        result.lengths = (const uint8_t *)cases[i].lengths;
        result.lengths_bytes = cases[i].lengths_bytes;
        result.inverse = (const uint8_t *)cases[i].inverse;
        result.inverse_bytes = cases[i].inverse_bytes;
        if (request->group_count > 0) {
            result.missing_by_query = none_missing;
            result.missing_by_query_count = 2;
        }
        expect_outcome(request, respond(&result, 1), cases[i].text);
    }
}

/* The query has four indices in three bags. */
static void checks_the_lists_of_a_sequence(void **state)
{
    (void)state;
    static const struct sequence_case cases[] = {
        {{.max_len = 2}, 2, {4, 2}, 12, {1, 2, 1}, 0, {0}, NO_TEXT},
        {{.max_len = 2}, 2, {0, 2}, 12, {0, 0, 0}, 0, {0}, NO_TEXT},
        {{.max_len = 2}, 1, {3}, 12, {1, 2, 0}, 0, {0}, NO_TEXT},
        {{.max_len = 2}, 2, {4, 2}, 12, {1, 3, 0}, 0, {0},
            "lengths[1] = 3, the request has max_len = 2"},
        {{.max_len = 2}, 2, {4, 2}, 12, {5, -1, 0}, 0, {0},
            "lengths[0] = 5, the request has max_len = 2"},
        {{.max_len = 9}, 2, {4, 2}, 12, {5, -1, 0}, 0, {0}, "lengths[1] = -1"},
        {{.max_len = 9}, 2, {5, 2}, 12, {5, 0, 0}, 0, {0},
            "lengths add up to 5, the request has 4 indices"},
        {{.max_len = 9}, 2, {3, 2}, 12, {1, 2, 1}, 0, {0},
            "shape [3, 2] has 3 rows, lengths add up to 4"},
        {{.max_len = 9}, 2, {4, 2}, 16, {1, 2, 1}, 0, {0},
            "lengths has 16 bytes, 1 features of 3 bags"},
        {{.max_len = 9}, 2, {3, 2}, 8, {1, 2}, 0, {0}, "lengths has 8 bytes, 1 features of 3 bags"},
        {{.max_len = 9}, 2, {3, 2}, 11, {1, 2}, 0, {0}, "lengths has 11 bytes"},
        {{.max_len = 9}, 2, {4, 2}, 0, {0}, 0, {0}, "lengths has 0 bytes, 1 features of 3 bags"},
        {{.max_len = 9}, 2, {4, 2}, 12, {1, 2, 1}, 16, {0, 1, 2, 3}, "it has inverse"},
        {{.max_len = 9}, 2, {4, 0}, 12, {1, 2, 1}, 0, {0}, "has rows without values"},
        {{.max_len = 2, .pad = true}, 3, {3, 2, 2}, 12, {1, 2, 1}, 0, {0}, NO_TEXT},
        {{.max_len = 2, .pad = true}, 2, {3, 2}, 12, {1, 2, 1}, 0, {0}, NO_TEXT},
        {{.max_len = 2, .pad = true}, 3, {4, 2, 2}, 12, {1, 2, 1}, 0, {0},
            "is not that of 3 bags of max_len"},
        {{.max_len = 2, .pad = true}, 3, {3, 1, 2}, 12, {1, 2, 1}, 0, {0},
            "is not that of 3 bags of max_len"},
        {{.max_len = 2, .pad = true}, 1, {3}, 12, {1, 2, 1}, 0, {0},
            "is not that of 3 bags of max_len"},
        {{.unique = true}, 2, {2, 2}, 12, {1, 2, 1}, 16, {0, 1, 0, 1}, NO_TEXT},
        {{.unique = true}, 2, {1, 2}, 12, {1, 2, 1}, 16, {0, 0, 0, 0}, NO_TEXT},
        {{.unique = true}, 2, {0, 2}, 12, {0, 0, 0}, 0, {0}, NO_TEXT},
        {{.unique = true}, 2, {2, 2}, 12, {1, 2, 1}, 16, {0, 2, 0, 1},
            "inverse[1] = 2, but only 1 rows have been named before"},
        {{.unique = true}, 2, {2, 2}, 12, {1, 2, 1}, 16, {1, 0, 0, 1},
            "inverse[0] = 1, but only 0 rows have been named before"},
        {{.unique = true}, 2, {2, 2}, 12, {1, 2, 1}, 16, {0, UINT32_MAX, 0, 1},
            "inverse[1] = 4294967295"},
        {{.unique = true}, 2, {3, 2}, 12, {1, 2, 1}, 16, {0, 1, 0, 1},
            "shape [3, 2] has 3 rows, inverse names 2"},
        {{.unique = true}, 2, {2, 2}, 12, {1, 2, 1}, 12, {0, 1, 0},
            "inverse has 12 bytes, a sum of lengths of 4 needs 16"},
        {{.unique = true}, 2, {2, 2}, 12, {1, 2, 1}, 15, {0, 1, 0}, "inverse has 15 bytes"},
        {{.unique = true}, 2, {4, 2}, 12, {1, 2, 1}, 0, {0}, "inverse has 0 bytes"},
        {{0}, 2, {4, 2}, 12, {1, 2, 1}, 0, {0}, "it has lengths, but the request"},
        {{0}, 2, {4, 2}, 0, {0}, 4, {0}, "it has inverse, but the request"},
        {{0}, 2, {4, 2}, 0, {0}, 0, {0}, NO_TEXT},
    };
    struct embag_query query = three_bags;
    struct embag_request request = {.queries = &query, .query_count = 1};
    query.reduction = EMBAG_NONE;
    expect_sequences(&request, &query.sequence, cases, sizeof cases / sizeof cases[0]);
}

/* The group has five values in two bags of each of two features. */
static void checks_the_lists_of_a_group(void **state)
{
    (void)state;
    static const struct sequence_case cases[] = {
        {{0}, 2, {5, 2}, 16, {1, 0, 3, 1}, 0, {0}, NO_TEXT},
        {{0}, 2, {5, 1}, 16, {1, 0, 3, 1}, 0, {0}, NO_TEXT},
        {{0}, 1, {5}, 16, {1, 0, 3, 1}, 0, {0}, "does not have 2 dimensions"},
        {{0}, 2, {1, 1}, 8, {1, 0}, 0, {0}, "lengths has 8 bytes, 2 features of 2 bags"},
        {{.max_len = 2}, 2, {3, 1}, 16, {1, 0, 2, 0}, 0, {0}, NO_TEXT},
        {{.max_len = 2, .pad = true}, 3, {4, 2, 1}, 16, {1, 0, 2, 0}, 0, {0}, NO_TEXT},
        {{.max_len = 2, .pad = true}, 2, {4, 2}, 16, {1, 0, 2, 0}, 0, {0},
            "does not have 3 dimensions"},
        {{.max_len = 2, .pad = true}, 3, {2, 2, 1}, 16, {1, 0, 2, 0}, 0, {0},
            "of 4 bags of max_len = 2"},
        {{.unique = true}, 2, {2, 1}, 16, {1, 0, 2, 0}, 12, {0, 1, 1}, NO_TEXT},
        {{.unique = true}, 2, {2, 1}, 16, {1, 0, 2, 0}, 12, {0, 1, 2}, "inverse names 3"},
    };
    struct embag_group group = two_features;
    struct embag_request request = {.groups = &group, .group_count = 1};
    group.reduction = EMBAG_NONE;
    expect_sequences(&request, &group.sequence, cases, sizeof cases / sizeof cases[0]);
    /* Only the result says whether a group that names no reduction is a sequence lookup. */
    static const struct sequence_case of_features[] = {
        {{0}, 2, {5, 1}, 16, {1, 0, 3, 1}, 0, {0}, NO_TEXT},
        {{0}, 2, {2, 2}, 0, {0}, 0, {0}, NO_TEXT},
        {{0}, 2, {2, 1}, 0, {0}, 0, {0}, "has fewer columns than 2 features"},
        {{0}, 2, {2, 2}, 0, {0}, 4, {0}, "it has inverse, but the request"},
    };
    group.reduction = EMBAG_REDUCTION_UNSPECIFIED;
    expect_sequences(
        &request, &group.sequence, of_features, sizeof of_features / sizeof of_features[0]);
    static const struct sequence_case pooled = {
        {0}, 2, {5, 1}, 16, {1, 0, 3, 1}, 0, {0}, "it has lengths, but the request"};
    group.reduction = EMBAG_SUM;
    expect_sequences(&request, &group.sequence, &pooled, 1);
}

/* The model lists the group's features, and only the answer tells their number. */
static void multiplies_lengths_without_wrapping(void **state)
{
    (void)state;
    static const uint64_t none_of_many[8] = {0};
    static const uint64_t rows[] = {0, 1};
    struct embag_group group = {
        .name = "g", .bags = UINT32_MAX, .reduction = EMBAG_NONE, .lengths = {NULL, 0, 4}};
    struct embag_request request = {.groups = &group, .group_count = 1};
    struct eb_wire_result result = fill(2, rows, EMBAG_F32);
    result.missing_by_query = none_of_many;
    result.missing_by_query_count = 8;
    expect_outcome(
        &request, respond(&result, 1), "lengths has 0 bytes, 8 features of 4294967295 bags");
    group.bags = 0;
    expect_outcome(&request, respond(&result, 1), NO_TEXT);
}

/* The error gets a status that gRPC defines, whatever number the server sent. */
static void makes_unknown_what_is_no_status(void **state)
{
    (void)state;
    struct embag_request request = {.queries = &three_bags, .query_count = 1};
    static const struct {
        uint32_t code;
        enum eb_status status;
    } cases[] = {{1, EB_STATUS_CANCELLED}, {16, EB_STATUS_UNAUTHENTICATED}, {17, EB_STATUS_UNKNOWN},
        {UINT32_MAX, EB_STATUS_UNKNOWN}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_wire_response response = {
            .model = "", .error_code = cases[i].code, .error_message = "no"};
        struct eb_error error = {.status = EB_STATUS_OK};
        assert_false(is_taken(&request, &response, &error));
        assert_int_equal(error.status, cases[i].status);
        assert_string_equal(error.text, "no");
    }
    struct eb_wire_result failed = {.error_code = 17, .error_message = "no"};
    expect_outcome(&request, respond(&failed, 1), "results[0]: error UNKNOWN");
    request.errors_per_query = true;
    expect_outcome(&request, respond(&failed, 1), NO_TEXT);
}

EB_TEST_GROUP(lookup_check)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_shapes_of_other_bags),
        cmocka_unit_test(knows_the_bags_of_every_layout),
        cmocka_unit_test(wants_a_row_for_every_index_without_reduction),
        cmocka_unit_test(refuses_types_that_were_not_asked_for),
        cmocka_unit_test(refuses_values_that_do_not_fill_their_shape),
        cmocka_unit_test(refuses_another_number_or_order_of_results),
        cmocka_unit_test(refuses_another_version_and_more_messages),
        cmocka_unit_test(checks_the_result_of_a_group),
        cmocka_unit_test(checks_the_one_result_of_all),
        cmocka_unit_test(checks_how_many_are_missing),
        cmocka_unit_test(checks_the_parts_of_what_is_missing),
        cmocka_unit_test(checks_where_missing_indices_stand),
        cmocka_unit_test(checks_where_indices_of_several_are_missing),
        cmocka_unit_test(checks_the_lists_of_a_sequence),
        cmocka_unit_test(checks_the_lists_of_a_group),
        cmocka_unit_test(multiplies_lengths_without_wrapping),
        cmocka_unit_test(makes_unknown_what_is_no_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
