/* Decodes bytes as a server's answer, as the client does. The hand-written decoder accepts exactly
 * the messages that the guard passes, and reads the same values as protobuf-c. The first three
 * bytes of the input define a request. An answer that is accepted for this request outlives the
 * bytes it was decoded from, and a reader that relies on the request stays within the answer. */
#include "client/lookup_call.h"
#include "proto/codec.h"
#include "proto/codec_common.h"
#include "proto/guard.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_BYTES 3
#define QUERIES_MAX 3
#define GROUPS_MAX 2
#define INDICES 6 /* indices of a query, or values of a group */
#define INDICES_PER_BAG 3
#define INDICES_MAX 21 /* seven packed bags */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sum_of_all; /* of an answer's parts, so that reads are not optimised out */

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
    assert(is_same(
        actual->lengths, actual->lengths_bytes, expected->lengths.data, expected->lengths.len));
    assert(is_same(
        actual->inverse, actual->inverse_bytes, expected->inverse.data, expected->inverse.len));
    assert(actual->error_code == expected->error_code);
    assert(strcmp(actual->error_message, expected->error_message) == 0);
    size_t values_bytes = actual->error_code == 0 ? expected->values.len : 0;
    assert(is_same(actual->values, actual->values_bytes, expected->values.data, values_bytes));
}

static void compare_response(
    const struct eb_wire_response *actual, const Embag__V1__LookupResponse *expected)
{
    assert(actual->request_id == expected->request_id);
    assert(strcmp(actual->model, expected->model) == 0);
    assert(actual->version == expected->version);
    /* For a bool, protobuf-c also reads bits beyond the 64th. */
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

/* The request at the start of an input, and the client's state for it. */
struct asked {
    struct embag_request request;
    struct embag_query query; /* all queries are equal to this one */
    struct embag_query queries[QUERIES_MAX];
    struct embag_group groups[GROUPS_MAX]; /* the first has two features, the second a name */
    uint64_t bags;
    struct eb_outgoing *outgoing;
    struct eb_lookup_expected expected;
};

static const int64_t numbers[INDICES_MAX];

static struct embag_integers take_numbers(size_t count)
{
    assert(count <= INDICES_MAX);
    return (struct embag_integers){numbers, count, 8};
}

/* Sets the bags of a query, in one of eight layouts. */
static void ask_bags(struct embag_query *query, uint64_t bags, unsigned layout)
{
    query->indices = take_numbers(INDICES);
    switch (layout) {
    case 0: query->offsets = take_numbers(bags); break;
    case 1:
        query->offsets = take_numbers(bags + 1);
        query->include_last_offset = true;
        break;
    case 2: query->lengths = take_numbers(bags); break;
    case 3:
        query->indices = take_numbers(bags * INDICES_PER_BAG);
        query->indices_per_bag = INDICES_PER_BAG;
        break;
    case 4:
        query->segment_ids = take_numbers(INDICES);
        query->num_segments = bags;
        break;
    case 5: query->num_segments = bags; break;
    case 6:
        query->offsets = take_numbers(0);
        query->num_bags = bags;
        break;
    default: query->num_bags = bags; break;
    }
}

/* Makes the queries and groups sequence lookups, of one of four kinds. */
static void ask_sequences(struct asked *asked, unsigned kind)
{
    static const struct embag_sequence kinds[] = {{.max_len = 2}, {.max_len = 3, .pad = true},
        {.unique = true}, {.max_len = 1, .unique = true}};
    asked->query.reduction = EMBAG_NONE;
    asked->query.sequence = kinds[kind];
    for (size_t i = 0; i < QUERIES_MAX; i++) {
        asked->queries[i] = asked->query;
    }
    for (size_t i = 0; i < GROUPS_MAX; i++) {
        asked->groups[i].reduction = EMBAG_NONE;
        asked->groups[i].sequence = kinds[kind];
    }
}

static void ask_groups(struct asked *asked)
{
    static const char *const features[] = {"a", "b"};
    for (size_t i = 0; i < GROUPS_MAX; i++) {
        asked->groups[i] =
            (struct embag_group){.bags = (uint32_t)asked->bags, .values = take_numbers(INDICES)};
    }
    asked->groups[0].features = features;
    asked->groups[0].feature_count = 2;
    asked->groups[1].name = "g";
}

static void ask(struct asked *asked, const uint8_t *bytes)
{
    static const enum embag_reduction reductions[] = {
        EMBAG_REDUCTION_UNSPECIFIED, EMBAG_SUM, EMBAG_NONE, EMBAG_MIN};
    struct eb_lookup_label label = {.request_id = 1};
    struct eb_error error;
    asked->bags = bytes[1] & 7u;
    asked->query = (struct embag_query){.table = "t", .reduction = reductions[bytes[1] >> 6]};
    ask_bags(&asked->query, asked->bags, bytes[1] >> 3 & 7u);
    for (size_t i = 0; i < QUERIES_MAX; i++) {
        asked->queries[i] = asked->query;
    }
    ask_groups(asked);
    if (bytes[0] & 0x80) {
        ask_sequences(asked, bytes[2] >> 6);
    }
    asked->request = (struct embag_request){.model = "m",
        .version = bytes[2] >> 4 & 3u,
        .queries = asked->queries,
        .query_count = bytes[0] & 3u,
        .groups = asked->groups,
        .group_count = (bytes[0] >> 2 & 3u) % (GROUPS_MAX + 1),
        .output_type = (enum embag_type)(bytes[2] & 15u),
        .concat = bytes[0] >> 4 & 1,
        .errors_per_query = bytes[0] >> 5 & 1,
        .report_missing = bytes[0] >> 6 & 1};
    asked->outgoing = eb_lookup_call_encode(&asked->request, &label, &eb_memory_heap, &error);
    assert(asked->outgoing);
    eb_lookup_call_expect(&asked->request, asked->outgoing, &asked->expected);
}

/* Returns whether the result has several vectors side by side. */
static bool is_joined(const struct asked *asked, size_t position)
{
    return asked->request.concat || position >= asked->request.query_count;
}

/* Returns whether a result is that of a sequence lookup. A group that names no reduction is one if
 * its result has lengths. */
static bool is_sequence(const struct asked *asked, const struct embag_result *result)
{
    return !asked->request.concat && (asked->query.sequence.max_len > 0 ||
                                         asked->query.sequence.unique || result->lengths_count > 0);
}

/* Reads the lists of a sequence lookup. Returns how many rows the result has, or how many bags if
 * it is padded. */
static uint64_t count_sequence_rows(const struct asked *asked, const struct embag_result *result)
{
    const struct embag_sequence *sequence = &asked->query.sequence;
    uint64_t kept_count = 0;
    for (size_t i = 0; i < result->lengths_count; i++) {
        assert(result->lengths[i] >= 0);
        assert(sequence->max_len == 0 || (uint32_t)result->lengths[i] <= sequence->max_len);
        kept_count += (uint64_t)result->lengths[i];
    }
    assert(
        kept_count <= INDICES_MAX && result->inverse_count == (sequence->unique ? kept_count : 0));
    for (size_t i = 0; i < result->inverse_count; i++) {
        assert(result->inverse[i] < result->shape[0]);
    }
    if (sequence->pad) {
        assert(result->rank >= 2 && result->shape[1] == sequence->max_len);
        return result->lengths_count;
    }
    return sequence->unique ? result->shape[0] : kept_count;
}

/* Reads a result as its request suggests: one row for each bag, or one for each index. */
static uint64_t read_rows(const struct asked *asked, const struct embag_result *result)
{
    enum embag_reduction reduction = asked->query.reduction;
    uint64_t indices = asked->query.indices.count;
    bool is_own = reduction == EMBAG_REDUCTION_UNSPECIFIED && !is_joined(asked, result->query);
    bool has_bags = reduction != EMBAG_NONE || is_joined(asked, result->query);
    uint64_t rows = has_bags ? asked->bags : indices;
    if (is_own && result->shape[0] != rows) {
        rows = indices;
    }
    if (is_sequence(asked, result)) {
        rows = count_sequence_rows(asked, result);
    }
    size_t row_bytes = embag_type_bytes(result->type);
    uint64_t sum = 0;
    assert(result->rank >= 1 && result->rank <= EMBAG_RANK_MAX && rows == result->shape[0]);
    for (uint32_t i = 1; i < EMBAG_RANK_MAX; i++) {
        assert((result->shape[i] > 0) == (i < result->rank));
        row_bytes *= i < result->rank ? result->shape[i] : 1;
    }
    assert(rows * row_bytes == result->values_bytes);
    for (uint64_t i = 0; i < rows * row_bytes; i++) {
        sum += ((const uint8_t *)result->values)[i];
    }
    return sum;
}

/* Reads the indices of the request that are reported as missing. */
static uint64_t read_missing(const struct asked *asked, const struct embag_result *result)
{
    bool is_group = result->query >= asked->request.query_count;
    const int64_t *indices = is_group ? asked->groups[0].values.data : asked->query.indices.data;
    size_t index_count = is_group ? asked->groups[0].values.count : asked->query.indices.count;
    uint64_t sum = 0;
    for (size_t i = 0; i < result->missing_by_query_count; i++) {
        sum += result->missing_by_query[i];
    }
    assert(is_joined(asked, result->query) ? sum == result->missing : sum == 0);
    assert(!result->missing_positions || asked->request.report_missing);
    for (uint64_t i = 0; result->missing_positions && i < result->missing; i++) {
        assert(result->missing_positions[i] < index_count);
        sum += (uint64_t)indices[result->missing_positions[i]];
    }
    return sum;
}

static uint64_t check_response_result(const struct asked *asked, const struct embag_result *result)
{
    const struct embag_request *request = &asked->request;
    assert(result->message && result->rank <= EMBAG_RANK_MAX);
    if (result->status != EMBAG_OK) {
        assert(request->errors_per_query && result->rank == 0 && result->values_bytes == 0);
        assert((unsigned)result->status <= EMBAG_UNAUTHENTICATED);
        return strlen(result->message);
    }
    assert(embag_type_bytes(result->type) > 0 && (uintptr_t)result->values % 16 == 0);
    assert(request->output_type == EMBAG_TYPE_UNSPECIFIED || request->output_type == result->type);
    if (is_joined(asked, result->query)) {
        assert(result->rank == (is_sequence(asked, result) && asked->query.sequence.pad ? 3 : 2));
    }
    return read_rows(asked, result) + read_missing(asked, result);
}

static void check_response_answer(const struct asked *asked, const struct embag_answer *answer)
{
    const struct embag_request *request = &asked->request;
    size_t count = request->query_count + request->group_count;
    uint64_t sum = strlen(answer->model);
    assert(answer->result_count == (request->concat ? request->query_count > 0 : count));
    assert(answer->version > 0 && (request->version == 0 || request->version == answer->version));
    for (size_t i = 0; i < answer->result_count; i++) {
        assert(answer->results[i].query == i);
        sum += check_response_result(asked, &answer->results[i]);
    }
    sum_of_all = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < REQUEST_BYTES) {
        return 0;
    }
    struct asked asked;
    ask(&asked, data);
    size -= REQUEST_BYTES;
    struct eb_error error = {.status = EB_STATUS_OK};
    uint8_t *bytes = malloc(size);
    assert(bytes);
    memcpy(bytes, data + REQUEST_BYTES, size);
    bool has_passed = eb_guard_check(
        &embag__v1__lookup_response__descriptor, bytes, size, &eb_codec_answer_limits, &error);
    assert(has_passed == (error.status == EB_STATUS_OK));
    struct eb_lookup_answer *answer = eb_lookup_call_decode(bytes, size, &error);
    assert(has_passed == !!answer);
    if (answer) {
        check_decoded(answer, bytes, size);
        bool fits = eb_lookup_call_check(answer, &asked.expected, &error);
        free(bytes);
        bytes = NULL;
        if (fits) {
            check_response_answer(&asked, &answer->answer);
        } else {
            assert(error.status != EB_STATUS_OK);
        }
    } else {
        assert(error.status != EB_STATUS_OK && error.text[0] != 0);
    }
    eb_lookup_call_free(answer);
    eb_outgoing_drop(asked.outgoing);
    free(bytes);
    return 0;
}
