#include "proto/codec.h"
#include "tests/lib/test_group.h"
#include "tests/unit/proto/lender.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CANARY_BYTES 16

static const uint64_t shape[] = {3, 0, 128, UINT64_MAX};
static const uint64_t missing[] = {0, 127, 128};

/* Encodes into a buffer of exactly the announced size, followed by a canary. */
static uint8_t *encode(const struct eb_wire_response *response, size_t *size, uint8_t **values_at)
{
    *size = eb_lookup_response_bytes(response);
    uint8_t *bytes = malloc(*size + CANARY_BYTES);
    assert_non_null(bytes);
    memset(bytes, 0xEE, *size + CANARY_BYTES);
    eb_lookup_response_encode(response, bytes, values_at);
    for (size_t i = 0; i < CANARY_BYTES; i++) {
        assert_int_equal(bytes[*size + i], 0xEE);
    }
    return bytes;
}

static Embag__V1__LookupResponse *read_back(const uint8_t *bytes, size_t size)
{
    Embag__V1__LookupResponse *read = embag__v1__lookup_response__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_int_equal(embag__v1__lookup_response__get_packed_size(read), size);
    return read;
}

static void encodes_an_answer_that_protobuf_reads(void **state)
{
    (void)state;
    struct eb_wire_result results[] = {
        {.query = 0,
            .type = 1,
            .shape_count = 4,
            .shape = shape,
            .missing = 300,
            .values = (const uint8_t *)"12345678",
            .values_bytes = 8},
        {.query = 128,
            .type = 12,
            .missing_by_query_count = 3,
            .missing_by_query = missing,
            .lengths = (const uint8_t *)"\2\0\0\0",
            .lengths_bytes = 4,
            .inverse = (const uint8_t *)"\0\0\0\0\1\0\0\0",
            .inverse_bytes = 8},
        {.query = UINT32_MAX,
            .type = -1,
            .shape_count = 1,
            .shape = shape,
            .values = (const uint8_t *)"x",
            .values_bytes = 1},
    };
    struct eb_wire_response response = {.request_id = 1 << 20,
        .model = "m",
        .version = 5,
        .error_message = "",
        .result_count = 3,
        .results = results};
    uint8_t *values_at[3];
    size_t size = 0;
    uint8_t *bytes = encode(&response, &size, values_at);
    Embag__V1__LookupResponse *read = read_back(bytes, size);
    assert_int_equal(read->request_id, 1 << 20);
    assert_string_equal(read->model, "m");
    assert_int_equal(read->version, 5);
    assert_int_equal(read->n_results, 3);
    const Embag__V1__BagResult *result = read->results[0];
    assert_int_equal(result->query, 0);
    assert_int_equal(result->type, 1);
    assert_int_equal(result->n_shape, 4);
    assert_memory_equal(result->shape, shape, sizeof shape);
    assert_int_equal(result->missing, 300);
    assert_int_equal(result->values.len, 8);
    assert_memory_equal(result->values.data, "12345678", 8);
    result = read->results[1];
    assert_int_equal(result->query, 128);
    assert_int_equal(result->n_missing_by_query, 3);
    assert_memory_equal(result->missing_by_query, missing, sizeof missing);
    assert_int_equal(result->lengths.len, 4);
    assert_memory_equal(result->lengths.data, "\2\0\0\0", 4);
    assert_int_equal(result->inverse.len, 8);
    assert_memory_equal(result->inverse.data, "\0\0\0\0\1\0\0\0", 8);
    assert_int_equal(result->values.len, 0);
    result = read->results[2];
    assert_true(result->query == UINT32_MAX);
    assert_int_equal((int32_t)result->type, -1);
    assert_memory_equal(result->values.data, "x", 1);
    assert_memory_equal(values_at[0], "12345678", 8);
    assert_memory_equal(values_at[2], "x", 1);
    embag__v1__lookup_response__free_unpacked(read, NULL);
    free(bytes);
}

static void encodes_an_error(void **state)
{
    (void)state;
    struct eb_wire_response response = {.request_id = 7,
        .model = "",
        .error_code = 11,
        .retry_after_ms = 250,
        .error_message = "queries[0]: indices[2] = 9 is no row"};
    size_t size = 0;
    uint8_t *bytes = encode(&response, &size, NULL);
    Embag__V1__LookupResponse *read = read_back(bytes, size);
    assert_int_equal(read->error_code, 11);
    assert_string_equal(read->error_message, response.error_message);
    assert_int_equal(read->retry_after_ms, 250);
    assert_int_equal(read->n_results, 0);
    embag__v1__lookup_response__free_unpacked(read, NULL);
    free(bytes);
}

static void encodes_one_of_several_answers(void **state)
{
    (void)state;
    struct eb_wire_response response = {
        .model = "m", .error_message = "", .more = true, .queue_us = 17, .compute_us = UINT32_MAX};
    size_t size = 0;
    uint8_t *bytes = encode(&response, &size, NULL);
    Embag__V1__LookupResponse *read = read_back(bytes, size);
    assert_true(read->more);
    assert_int_equal(read->queue_us, 17);
    assert_true(read->compute_us == UINT32_MAX);
    embag__v1__lookup_response__free_unpacked(read, NULL);
    free(bytes);
}

static void encodes_what_became_of_each_query(void **state)
{
    (void)state;
    static const uint8_t positions[] = {0, 0, 0, 0, 1, 1, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF};
    struct eb_wire_result results[] = {
        {.query = 1, .error_code = 11, .error_message = "no such row"},
        {.query = 2,
            .type = 1,
            .missing = 3,
            .missing_positions = positions,
            .missing_positions_bytes = sizeof positions,
            .values = (const uint8_t *)"1234",
            .values_bytes = 4},
    };
    struct eb_wire_response response = {
        .model = "m", .error_message = "", .result_count = 2, .results = results};
    uint8_t *values_at[2];
    size_t size = 0;
    uint8_t *bytes = encode(&response, &size, values_at);
    Embag__V1__LookupResponse *read = read_back(bytes, size);
    assert_int_equal(read->results[0]->query, 1);
    assert_int_equal(read->results[0]->error_code, 11);
    assert_string_equal(read->results[0]->error_message, "no such row");
    assert_int_equal(read->results[0]->values.len, 0);
    const Embag__V1__BagResult *result = read->results[1];
    assert_int_equal(result->error_code, 0);
    assert_string_equal(result->error_message, "");
    assert_int_equal(result->missing_positions.len, sizeof positions);
    assert_memory_equal(result->missing_positions.data, positions, sizeof positions);
    assert_memory_equal(result->values.data, "1234", 4);
    /* Values are the last bytes of the message. */
    assert_ptr_equal(values_at[1] + 4, bytes + size);
    embag__v1__lookup_response__free_unpacked(read, NULL);
    free(bytes);
}

/* The answer has the same bytes as one in which all results are given in full. */
static void writes_results_that_are_like_an_earlier_one(void **state)
{
    (void)state;
    const struct eb_wire_result models[] = {
        {.type = 1, .shape_count = 2, .shape = shape, .values_bytes = 5},
        {.type = 1, .shape_count = 2, .shape = shape + 2, .values_bytes = 1200},
        {.type = -1, .shape_count = 2, .shape = shape + 2, .missing = UINT64_MAX},
        {.type = 1, .shape_count = 0, .shape = shape, .values_bytes = 1},
        {.type = 1, .shape_count = 4, .shape = shape, .values_bytes = 5},
        {.type = 12, .missing_by_query_count = 3, .missing_by_query = missing},
        {.error_code = 11, .error_message = "no such row"},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct eb_wire_result full[3] = {models[i], models[i], models[i]};
        struct eb_wire_result alike[3] = {models[i], {.like = alike}, {.like = alike}};
        full[1].query = alike[1].query = 1;
        full[2].query = alike[2].query = 300;
        struct eb_wire_response response = {
            .model = "m", .error_message = "", .result_count = 3, .results = full};
        uint8_t *values_at[3];
        uint8_t *alike_at[3];
        size_t size = 0;
        size_t alike_size = 0;
        uint8_t *bytes = encode(&response, &size, values_at);
        response.results = alike;
        uint8_t *alike_bytes = encode(&response, &alike_size, alike_at);
        assert_int_equal(alike_size, size);
        assert_memory_equal(alike_bytes, bytes, size);
        for (size_t k = 0; k < 3; k++) {
            assert_ptr_equal(alike_bytes + (values_at[k] - bytes), alike_at[k]);
        }
        free(alike_bytes);
        free(bytes);
    }
}

static void counts_missing_by_query_where_none_is(void **state)
{
    (void)state;
    static const uint64_t none[200];
    struct eb_wire_result results[] = {
        {.missing_by_query_count = 1, .missing_by_query = none},
        {.missing_by_query_count = 200, .missing_by_query = none},
    };
    struct eb_wire_response response = {
        .model = "m", .error_message = "", .result_count = 2, .results = results};
    uint8_t *values_at[2];
    size_t size = 0;
    size_t short_size = 0;
    uint8_t *bytes = encode(&response, &size, values_at);
    results[0].missing_by_query = NULL;
    results[1].missing_by_query = NULL;
    uint8_t *short_bytes = encode(&response, &short_size, values_at);
    assert_int_equal(short_size, size);
    assert_memory_equal(short_bytes, bytes, size);
    free(short_bytes);
    free(bytes);
}

static void makes_a_part_the_last_one(void **state)
{
    (void)state;
    struct eb_wire_response response = {
        .request_id = 7, .model = "m", .error_message = "", .more = true, .is_timed = true};
    size_t size = 0;
    uint8_t *values_at = NULL;
    uint8_t *bytes = encode(&response, &size, &values_at);
    for (unsigned i = 0; i < 2; i++) {
        Embag__V1__LookupResponse *read = embag__v1__lookup_response__unpack(NULL, size, bytes);
        assert_non_null(read);
        assert_int_equal(read->more, i == 0);
        assert_int_equal(read->request_id, 7);
        embag__v1__lookup_response__free_unpacked(read, NULL);
        eb_lookup_response_set_last(bytes);
    }
    free(bytes);
}

/* Times are overwritten in place: short ones, long ones and zeros. */
static void writes_times_into_an_answer_that_is_laid_out(void **state)
{
    (void)state;
    struct eb_wire_result result = {.query = 3,
        .type = 1,
        .shape_count = 4,
        .shape = shape,
        .values = (const uint8_t *)"12345678",
        .values_bytes = 8};
    struct eb_wire_response response = {.request_id = 7,
        .model = "m",
        .version = 5,
        .error_message = "",
        .is_timed = true,
        .queue_us = 5,
        .compute_us = 6,
        .result_count = 1,
        .results = &result};
    static const uint32_t times[][2] = {
        {5, 6}, {0, 0}, {1, 127}, {128, 16384}, {UINT32_MAX, 1 << 28}, {0, UINT32_MAX}, {9, 0}};
    uint8_t *values_at = NULL;
    size_t size = 0;
    uint8_t *bytes = encode(&response, &size, &values_at);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        if (i > 0) {
            eb_lookup_response_set_times(bytes, times[i][0], times[i][1]);
        }
        Embag__V1__LookupResponse *read = embag__v1__lookup_response__unpack(NULL, size, bytes);
        assert_non_null(read);
        assert_true(read->queue_us == times[i][0]);
        assert_true(read->compute_us == times[i][1]);
        assert_int_equal(read->request_id, 7);
        assert_string_equal(read->model, "m");
        assert_int_equal(read->version, 5);
        assert_int_equal(read->n_results, 1);
        assert_int_equal(read->results[0]->query, 3);
        assert_memory_equal(read->results[0]->values.data, "12345678", 8);
        embag__v1__lookup_response__free_unpacked(read, NULL);
    }
    assert_ptr_equal(values_at + 8, bytes + size);
    free(bytes);
}

/* Sizes at which the lengths in front of values and results grow by a byte. */
static void leaves_gaps_for_values(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 110, 120, 127, 128, 16370, 16383, 16384, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct eb_wire_result results[] = {
            {.query = 1, .type = 1, .shape_count = 2, .shape = shape, .values_bytes = sizes[i]},
            {.query = 2, .type = 1, .values_bytes = 3},
        };
        struct eb_wire_response response = {
            .model = "m", .error_message = "", .result_count = 2, .results = results};
        uint8_t *values_at[2];
        size_t size = 0;
        uint8_t *bytes = encode(&response, &size, values_at);
        for (size_t b = 0; b < sizes[i]; b++) {
            assert_int_equal(values_at[0][b], 0xEE);
        }
        memset(values_at[0], 0x11, sizes[i]);
        memset(values_at[1], 0x22, 3);
        Embag__V1__LookupResponse *read = read_back(bytes, size);
        assert_int_equal(read->results[0]->values.len, sizes[i]);
        for (size_t b = 0; b < sizes[i]; b++) {
            assert_int_equal(read->results[0]->values.data[b], 0x11);
        }
        assert_memory_equal(read->results[1]->values.data, "\x22\x22\x22", 3);
        embag__v1__lookup_response__free_unpacked(read, NULL);
        free(bytes);
    }
}

/* Decodes while the n-th allocation fails. Returns whether there was an answer, which must be
 * right. */
static bool decodes_back(const uint8_t *bytes, size_t size, size_t fail_at)
{
    struct lender lender;
    lender_init(&lender, fail_at);
    struct eb_arena arena;
    eb_arena_init(&arena, &lender.memory);
    eb_arena_reset(&arena, (size_t)1 << 20);
    struct eb_error error = {.status = EB_STATUS_OK};
    const struct eb_wire_response *read = eb_lookup_response_decode(&arena, bytes, size, &error);
    bool decoded = read;
    if (decoded) {
        assert_int_equal(read->request_id, 3);
        assert_string_equal(read->model, "m");
        assert_int_equal(read->version, 5);
        assert_int_equal(read->error_code, 8);
        assert_string_equal(read->error_message, "full");
        assert_int_equal(read->retry_after_ms, 20);
        assert_true(read->more);
        assert_int_equal(read->queue_us, 300);
        assert_int_equal(read->compute_us, 70000);
        assert_int_equal(read->result_count, 2);
        const struct eb_wire_result *result = read->results;
        assert_int_equal(result->query, 4);
        assert_int_equal(result->type, 2);
        assert_int_equal(result->shape_count, 4);
        assert_memory_equal(result->shape, shape, sizeof shape);
        assert_int_equal(result->missing, 6);
        assert_int_equal(result->missing_by_query_count, 3);
        assert_memory_equal(result->missing_by_query, missing, sizeof missing);
        assert_int_equal(result->missing_positions_bytes, 8);
        assert_memory_equal(result->missing_positions, "\1\0\0\0\2\0\0\0", 8);
        assert_int_equal(result->lengths_bytes, 8);
        assert_memory_equal(result->lengths, "\2\0\0\0\3\0\0\0", 8);
        assert_int_equal(result->inverse_bytes, 4);
        assert_memory_equal(result->inverse, "\7\0\0\0", 4);
        assert_int_equal(result->values_bytes, 60000);
        assert_int_equal(result->error_code, 0);
        assert_string_equal(result->error_message, "");
        assert_int_equal(result[1].error_code, 5);
        assert_string_equal(result[1].error_message, "no such table");
        assert_int_equal(result[1].values_bytes, 0);
    } else {
        assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    }
    eb_arena_deinit(&arena);
    assert_int_equal(lender.lent_bytes, 0);
    return decoded;
}

static void decodes_what_it_encodes_whatever_allocation_fails(void **state)
{
    (void)state;
    struct eb_wire_result results[] = {
        {.query = 4,
            .type = 2,
            .shape_count = 4,
            .shape = shape,
            .missing = 6,
            .missing_by_query_count = 3,
            .missing_by_query = missing,
            .missing_positions = (const uint8_t *)"\1\0\0\0\2\0\0\0",
            .missing_positions_bytes = 8,
            .lengths = (const uint8_t *)"\2\0\0\0\3\0\0\0",
            .lengths_bytes = 8,
            .inverse = (const uint8_t *)"\7\0\0\0",
            .inverse_bytes = 4,
            .values_bytes = 60000},
        {.query = 5, .error_code = 5, .error_message = "no such table"},
    };
    struct eb_wire_response response = {.request_id = 3,
        .model = "m",
        .version = 5,
        .error_code = 8,
        .retry_after_ms = 20,
        .error_message = "full",
        .more = true,
        .queue_us = 300,
        .compute_us = 70000,
        .is_timed = true,
        .result_count = 2,
        .results = results};
    uint8_t *values_at[2];
    size_t size = 0;
    uint8_t *bytes = encode(&response, &size, values_at);
    assert_true(decodes_back(bytes, size, 0));
    size_t fail_at = 1;
    while (!decodes_back(bytes, size, fail_at)) {
        fail_at++;
    }
    assert_in_range(fail_at, 2, 8);
    free(bytes);
}

/* A server other than ours might send this. */
static void leaves_out_values_of_a_query_that_failed(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x22, 6, 0x48, 3, 0x7A, 2, 'x', 'y'};
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 4096);
    const struct eb_wire_response *read =
        eb_lookup_response_decode(&arena, bytes, sizeof bytes, &error);
    assert_non_null(read);
    assert_int_equal(read->results[0].error_code, 3);
    assert_null(read->results[0].values);
    assert_int_equal(read->results[0].values_bytes, 0);
    eb_arena_deinit(&arena);
}

/* Values are not copied, because the answer of a large lookup has megabytes of them. */
static void leaves_values_where_they_lie(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x22, 8, 0x3A, 4, 9, 0, 0, 0, 0x7A, 0, 0x22, 4, 0x7A, 2, 8, 7};
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 4096);
    const struct eb_wire_response *read =
        eb_lookup_response_decode(&arena, bytes, sizeof bytes, &error);
    assert_non_null(read);
    assert_ptr_equal(read->results[0].missing_positions, bytes + 4);
    assert_int_equal(read->results[0].missing_positions_bytes, 4);
    assert_int_equal(read->results[0].values_bytes, 0);
    assert_ptr_equal(read->results[1].values, bytes + 14);
    assert_int_equal(read->results[1].values_bytes, 2);
    eb_arena_deinit(&arena);
}

/* A list may come packed, number by number, or in pieces. Unknown fields are skipped. */
static void reads_lists_in_every_form(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x22, 24, 0x18, 0x80, 0x01, 0x1A, 3, 1, 0xAC, 0x02, 0x58, 6,
        0xA5, 0x06, 0, 0, 0, 0, 0x5A, 1, 7, 0x18, 0, 0x7A, 1, 'v'};
    static const uint64_t expected[] = {128, 1, 300, 0};
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 4096);
    const struct eb_wire_response *read =
        eb_lookup_response_decode(&arena, bytes, sizeof bytes, &error);
    assert_non_null(read);
    assert_int_equal(read->result_count, 1);
    assert_int_equal(read->results[0].shape_count, 4);
    assert_memory_equal(read->results[0].shape, expected, sizeof expected);
    assert_int_equal(read->results[0].missing_by_query_count, 2);
    assert_int_equal(read->results[0].missing_by_query[0], 6);
    assert_int_equal(read->results[0].missing_by_query[1], 7);
    assert_int_equal(read->results[0].values_bytes, 1);
    eb_arena_deinit(&arena);
}

static bool lies_within(const uint8_t *piece, size_t piece_size, const uint8_t *bytes, size_t size)
{
    return piece_size == 0 || (piece >= bytes && piece_size <= size - (size_t)(piece - bytes));
}

/* Decodes bytes that may be an answer, and expects everything that it borrows to lie within them.
 * Returns whether it was accepted. */
static bool reads_within(const uint8_t *bytes, size_t size)
{
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, (size_t)1 << 20);
    const struct eb_wire_response *read = eb_lookup_response_decode(&arena, bytes, size, &error);
    for (size_t i = 0; read && i < read->result_count; i++) {
        const struct eb_wire_result *result = &read->results[i];
        assert_true(lies_within(result->values, result->values_bytes, bytes, size));
        assert_true(
            lies_within(result->missing_positions, result->missing_positions_bytes, bytes, size));
        assert_true(lies_within(result->lengths, result->lengths_bytes, bytes, size));
        assert_true(lies_within(result->inverse, result->inverse_bytes, bytes, size));
    }
    eb_arena_deinit(&arena);
    return read;
}

static void reads_or_refuses_whatever_a_byte_becomes(void **state)
{
    (void)state;
    struct eb_wire_result results[] = {
        {.query = 1,
            .type = 1,
            .shape_count = 4,
            .shape = shape,
            .missing = 2,
            .missing_by_query_count = 3,
            .missing_by_query = missing,
            .missing_positions = (const uint8_t *)"\1\0\0\0\2\0\0\0",
            .missing_positions_bytes = 8,
            .lengths = (const uint8_t *)"\2\0\0\0",
            .lengths_bytes = 4,
            .inverse = (const uint8_t *)"\1\0\0\0",
            .inverse_bytes = 4,
            .values = (const uint8_t *)"01234567",
            .values_bytes = 8},
        {.query = 2, .error_code = 5, .error_message = "no"},
    };
    struct eb_wire_response response = {.request_id = 3,
        .model = "m",
        .error_message = "x",
        .is_timed = true,
        .result_count = 2,
        .results = results};
    uint8_t *values_at[2];
    size_t size = 0;
    size_t read_count = 0;
    uint8_t *bytes = encode(&response, &size, values_at);
    for (size_t at = 0; at < size; at++) {
        uint8_t was = bytes[at];
        for (unsigned value = 0; value < 256; value++) {
            bytes[at] = (uint8_t)value;
            read_count += reads_within(bytes, size);
        }
        bytes[at] = was;
    }
    assert_in_range(read_count, size, 256 * size - 1);
    free(bytes);
}

static void refuses_answers_that_are_none(void **state)
{
    (void)state;
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 4096);
    assert_null(eb_lookup_response_decode(&arena, (const uint8_t *)"\x22\x05", 2, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    assert_string_equal(
        error.text, "LookupResponse.results extends past the end of its message (byte 0)");
    eb_arena_deinit(&arena);
}

EB_TEST_GROUP(codec_response)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_an_answer_that_protobuf_reads),
        cmocka_unit_test(encodes_an_error),
        cmocka_unit_test(encodes_one_of_several_answers),
        cmocka_unit_test(encodes_what_became_of_each_query),
        cmocka_unit_test(writes_results_that_are_like_an_earlier_one),
        cmocka_unit_test(counts_missing_by_query_where_none_is),
        cmocka_unit_test(makes_a_part_the_last_one),
        cmocka_unit_test(writes_times_into_an_answer_that_is_laid_out),
        cmocka_unit_test(leaves_gaps_for_values),
        cmocka_unit_test(decodes_what_it_encodes_whatever_allocation_fails),
        cmocka_unit_test(leaves_out_values_of_a_query_that_failed),
        cmocka_unit_test(leaves_values_where_they_lie),
        cmocka_unit_test(reads_lists_in_every_form),
        cmocka_unit_test(reads_or_refuses_whatever_a_byte_becomes),
        cmocka_unit_test(refuses_answers_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
