/* A server's answer as the client takes it. The decoder, which reads by hand, takes what the guard
 * lets pass and nothing else, and finds in it what protobuf-c finds. What then fits a request, of
 * which the first byte says what it asks, is whole: it outlives the bytes that it came in. */
#include "client/lookup_call.h"
#include "proto/codec.h"
#include "proto/guard.h"
#include "proto/unpack.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sum_of_all; /* of an answer's parts: reading them cannot be left out */

static bool is_same(
    const void *actual, size_t actual_bytes, const void *expected, size_t expected_bytes)
{
    return actual_bytes == expected_bytes &&
           (actual_bytes == 0 || memcmp(actual, expected, actual_bytes) == 0);
}

static void compare_result(
    const struct eb_wire_result *actual, const Embag__V1__BagResult *expected)
{
    assert(actual->query == expected->query && actual->type == (int32_t)expected->type);
    assert(is_same(actual->shape, actual->shape_count * sizeof(uint64_t), expected->shape,
        expected->n_shape * sizeof(uint64_t)));
    assert(actual->missing == expected->missing);
    assert(is_same(actual->missing_by_query, actual->missing_by_query_count * sizeof(uint64_t),
        expected->missing_by_query, expected->n_missing_by_query * sizeof(uint64_t)));
    assert(is_same(actual->missing_positions, actual->missing_positions_bytes,
        expected->missing_positions.data, expected->missing_positions.len));
    assert(actual->error_code == expected->error_code);
    assert(strcmp(actual->error_message, expected->error_message) == 0);
    const size_t values_bytes = actual->error_code == 0 ? expected->values.len : 0;
    assert(is_same(actual->values, actual->values_bytes, expected->values.data, values_bytes));
}

static void compare_response(
    const struct eb_wire_response *actual, const Embag__V1__LookupResponse *expected)
{
    assert(actual->request_id == expected->request_id);
    assert(strcmp(actual->model, expected->model) == 0);
    assert(actual->version == expected->version);
    /* protobuf-c also looks at those of a bool's bits that are beyond the 64th. */
    assert(!actual->more || expected->more);
    assert(actual->error_code == expected->error_code);
    assert(strcmp(actual->error_message, expected->error_message) == 0);
    assert(actual->retry_after_ms == expected->retry_after_ms);
    assert(actual->queue_us == expected->queue_us);
    assert(actual->compute_us == expected->compute_us);
    assert(actual->result_count == expected->n_results);
    for (size_t i = 0; i < actual->result_count; i++) {
        compare_result(&actual->results[i], expected->results[i]);
    }
}

static void check_decoded(const struct eb_lookup_answer *answer, const uint8_t *data, size_t size)
{
    Embag__V1__LookupResponse *message = embag__v1__lookup_response__unpack(NULL, size, data);
    assert(message);
    compare_response(answer->response, message);
    embag__v1__lookup_response__free_unpacked(message, NULL);
}

static struct eb_lookup_expected take_expected(uint8_t flags)
{
    static const uint32_t feature_counts[] = {2, 0};
    return (struct eb_lookup_expected){
        .query_count = flags & 3u,
        .group_count = (flags >> 2 & 3u) % 3,
        .feature_counts = feature_counts,
        .concat = flags >> 4 & 1,
        .errors_per_query = flags >> 5 & 1,
        .report_missing = flags >> 6 & 1,
    };
}

static void check_result(
    const struct embag_result *result, const struct eb_lookup_expected *expected)
{
    assert(result->message && result->rank <= EMBAG_RANK_MAX);
    if (result->status != EMBAG_OK) {
        assert(expected->errors_per_query && result->rank == 0 && result->values_bytes == 0);
        return;
    }
    size_t bytes = embag_type_bytes(result->type);
    assert(bytes > 0 && (uintptr_t)result->values % 16 == 0);
    for (uint32_t i = 0; i < result->rank; i++) {
        bytes *= result->shape[i];
    }
    assert(bytes == result->values_bytes);
    assert(!result->missing_positions || expected->report_missing);
}

/* A sanitizer sees what is not there: all of it is read. */
static uint64_t add_up(const struct embag_result *result)
{
    uint64_t sum = strlen(result->message);
    for (size_t i = 0; i < result->values_bytes; i++) {
        sum += ((const uint8_t *)result->values)[i];
    }
    for (size_t i = 0; i < result->missing_by_query_count; i++) {
        sum += result->missing_by_query[i];
    }
    for (uint64_t i = 0; result->missing_positions && i < result->missing; i++) {
        sum += result->missing_positions[i];
    }
    return sum;
}

static void check_answer(
    const struct embag_answer *answer, const struct eb_lookup_expected *expected)
{
    const size_t count = expected->query_count + expected->group_count;
    uint64_t sum = strlen(answer->model);
    assert(answer->result_count == (expected->concat ? expected->query_count > 0 : count));
    for (size_t i = 0; i < answer->result_count; i++) {
        assert(answer->results[i].query == i);
        check_result(&answer->results[i], expected);
        sum += add_up(&answer->results[i]);
    }
    sum_of_all = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const struct eb_lookup_expected expected = take_expected(data[0]);
    struct eb_error error = {.status = EB_STATUS_OK};
    uint8_t *bytes = malloc(size);
    assert(bytes);
    memcpy(bytes, data + 1, --size);
    const bool has_passed = eb_guard_check(
        &embag__v1__lookup_response__descriptor, bytes, size, &eb_unpack_answer_limits, &error);
    assert(has_passed == (error.status == EB_STATUS_OK));
    struct eb_lookup_answer *answer = eb_lookup_call_decode(bytes, size, &error);
    assert(has_passed == (answer != NULL));
    if (answer) {
        check_decoded(answer, bytes, size);
        const bool fits = eb_lookup_call_check(answer, &expected, &error);
        free(bytes);
        bytes = NULL;
        if (fits) {
            check_answer(&answer->answer, &expected);
        } else {
            assert(error.status != EB_STATUS_OK);
        }
    } else {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
    }
    eb_lookup_call_free(answer);
    free(bytes);
    return 0;
}
