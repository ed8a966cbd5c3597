#include "proto/codec_watch.h"

#include "tests/lib/test_group.h"
#include "tests/unit/proto/lender.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NAME_BYTES_MAX 20
#define ARENA_BYTES ((size_t)1 << 24)

static const struct eb_wire_claim claims[] = {
    {.model = "dlrm", .version = UINT64_MAX, .digest = UINT64_MAX - 1, .served = true},
    {.model = "a name of 20 bytes..", .version = 1},
};

static const struct eb_wire_watch_request request = {
    .claim_count = 2, .claims = claims, .router = "router-7", .level = UINT32_MAX};

static const uint32_t owned_parts[] = {0, 300, 4095};

static const struct eb_wire_holding items[] = {
    {.model = "dlrm",
        .version = UINT64_MAX,
        .digest = UINT64_MAX - 1,
        .parts = 4096,
        .owned_part_count = 3,
        .owned_parts = owned_parts,
        .state = EMBAG__V1__MODEL_VERSION__STATE__STATE_SERVING,
        .error = "",
        .served_by_router = true},
    {.model = "dlrm",
        .version = 8,
        .state = EMBAG__V1__MODEL_VERSION__STATE__STATE_FAILED,
        .error = "users.npy: cut off",
        .claimed = true},
};

static const struct eb_wire_holdings holdings = {
    .count = 2, .items = items, .draining = true, .instance = UINT64_MAX - 2, .level = 1};

/* An encoded message, on the heap. */
struct encoded {
    size_t size;
    uint8_t *bytes;
};

static struct encoded encode_watch_request(const struct eb_wire_watch_request *from)
{
    struct encoded encoded = {.size = eb_watch_request_bytes(from)};
    encoded.bytes = malloc(encoded.size + 1);
    assert_non_null(encoded.bytes);
    eb_watch_request_encode(from, encoded.bytes);
    return encoded;
}

static struct encoded encode_holdings(const struct eb_wire_holdings *from)
{
    struct encoded encoded = {.size = eb_holdings_bytes(from)};
    encoded.bytes = malloc(encoded.size + 1);
    assert_non_null(encoded.bytes);
    eb_holdings_encode(from, encoded.bytes);
    return encoded;
}

static void assert_is_request(const struct eb_wire_watch_request *read)
{
    assert_int_equal(read->claim_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(read->claims[i].model, claims[i].model);
        assert_true(read->claims[i].version == claims[i].version);
        assert_true(read->claims[i].digest == claims[i].digest);
        assert_int_equal(read->claims[i].served, claims[i].served);
    }
    assert_string_equal(read->router, "router-7");
    assert_true(read->level == UINT32_MAX);
}

static void assert_is_holdings(const struct eb_wire_holdings *read)
{
    assert_int_equal(read->count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct eb_wire_holding *item = &read->items[i];
        assert_string_equal(item->model, items[i].model);
        assert_true(item->version == items[i].version);
        assert_true(item->digest == items[i].digest);
        assert_int_equal(item->parts, items[i].parts);
        assert_int_equal(item->owned_part_count, items[i].owned_part_count);
        for (size_t k = 0; k < item->owned_part_count; k++) {
            assert_int_equal(item->owned_parts[k], owned_parts[k]);
        }
        assert_int_equal(item->state, items[i].state);
        assert_string_equal(item->error, items[i].error);
        assert_int_equal(item->served_by_router, items[i].served_by_router);
        assert_int_equal(item->claimed, items[i].claimed);
    }
    assert_true(read->draining);
    assert_true(read->instance == UINT64_MAX - 2);
    assert_int_equal(read->level, 1);
}

/* Decodes a request. Returns its status, OK if it was accepted; then checks it if `check` is not
 * NULL. */
static enum eb_status try_request(
    const void *bytes, size_t size, void (*check)(const struct eb_wire_watch_request *read))
{
    struct eb_arena arena;
    struct eb_error error = {.status = EB_STATUS_OK};
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    const struct eb_wire_watch_request *read =
        eb_watch_request_decode(&arena, bytes, size, NAME_BYTES_MAX, &error);
    assert_int_equal(!read, error.status != EB_STATUS_OK);
    if (read && check) {
        check(read);
    }
    eb_arena_deinit(&arena);
    return error.status;
}

/* The same for a response. */
static enum eb_status try_holdings(
    const void *bytes, size_t size, void (*check)(const struct eb_wire_holdings *read))
{
    struct eb_arena arena;
    struct eb_error error = {.status = EB_STATUS_OK};
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    const struct eb_wire_holdings *read =
        eb_holdings_decode(&arena, bytes, size, NAME_BYTES_MAX, &error);
    assert_int_equal(!read, error.status != EB_STATUS_OK);
    if (read && check) {
        check(read);
    }
    eb_arena_deinit(&arena);
    return error.status;
}

static enum eb_status try_encoded_request(const struct eb_wire_watch_request *from)
{
    struct encoded encoded = encode_watch_request(from);
    enum eb_status status = try_request(encoded.bytes, encoded.size, NULL);
    free(encoded.bytes);
    return status;
}

static enum eb_status try_encoded_holdings(const struct eb_wire_holdings *from)
{
    struct encoded encoded = encode_holdings(from);
    enum eb_status status = try_holdings(encoded.bytes, encoded.size, NULL);
    free(encoded.bytes);
    return status;
}

static void carries_claims(void **state)
{
    (void)state;
    struct encoded encoded = encode_watch_request(&request);
    assert_int_equal(try_request(encoded.bytes, encoded.size, assert_is_request), EB_STATUS_OK);
    Embag__V1__WatchModelsRequest *read =
        embag__v1__watch_models_request__unpack(NULL, encoded.size, encoded.bytes);
    assert_non_null(read);
    assert_int_equal(read->n_claims, 2);
    assert_true(read->claims[0]->digest == claims[0].digest);
    embag__v1__watch_models_request__free_unpacked(read, NULL);
    free(encoded.bytes);
    assert_int_equal(try_request(NULL, 0, NULL), EB_STATUS_OK);
}

static void carries_holdings(void **state)
{
    (void)state;
    struct encoded encoded = encode_holdings(&holdings);
    assert_int_equal(try_holdings(encoded.bytes, encoded.size, assert_is_holdings), EB_STATUS_OK);
    Embag__V1__WatchModelsResponse *read =
        embag__v1__watch_models_response__unpack(NULL, encoded.size, encoded.bytes);
    assert_non_null(read);
    assert_int_equal(read->n_holdings, 2);
    assert_int_equal(read->holdings[0]->n_owned_parts, 3);
    assert_int_equal(read->holdings[0]->owned_parts[2], 4095);
    embag__v1__watch_models_response__free_unpacked(read, NULL);
    free(encoded.bytes);
    assert_int_equal(try_holdings(NULL, 0, NULL), EB_STATUS_OK);
}

static enum eb_status attempt_request(const uint8_t *bytes, size_t size)
{
    return try_request(bytes, size, NULL);
}

static enum eb_status attempt_holdings(const uint8_t *bytes, size_t size)
{
    return try_holdings(bytes, size, NULL);
}

/* Returns how many beginnings of a message are themselves messages. */
static size_t count_messages_in(
    const struct encoded *encoded, enum eb_status (*attempt)(const uint8_t *bytes, size_t size))
{
    size_t accepted = 0;
    for (size_t size = 0; size < encoded->size; size++) {
        uint8_t *cut = malloc(size + 1);
        assert_non_null(cut);
        memcpy(cut, encoded->bytes, size);
        enum eb_status status = attempt(cut, size);
        accepted += status == EB_STATUS_OK;
        assert_true(status == EB_STATUS_OK || status == EB_STATUS_INTERNAL);
        free(cut);
    }
    return accepted;
}

static void refuses_messages_that_are_cut_off(void **state)
{
    (void)state;
    struct encoded encoded = encode_watch_request(&request);
    /* Cut before a field: nothing, one claim, two claims, and the name too. */
    assert_int_equal(count_messages_in(&encoded, attempt_request), 4);
    free(encoded.bytes);
    encoded = encode_holdings(&holdings);
    assert_int_equal(count_messages_in(&encoded, attempt_holdings), 5);
    free(encoded.bytes);
}

static void decodes_without_memory_to_spare(void **state)
{
    (void)state;
    struct encoded encoded = encode_holdings(&holdings);
    bool is_decoded = false;
    size_t fail_at = 0;
    while (!is_decoded) {
        struct lender lender;
        struct eb_arena arena;
        struct eb_error error = {.status = EB_STATUS_OK};
        lender_init(&lender, ++fail_at);
        eb_arena_init(&arena, &lender.memory);
        eb_arena_reset(&arena, ARENA_BYTES);
        is_decoded =
            eb_holdings_decode(&arena, encoded.bytes, encoded.size, NAME_BYTES_MAX, &error);
        assert_int_equal(error.status, is_decoded ? EB_STATUS_OK : EB_STATUS_RESOURCE_EXHAUSTED);
        eb_arena_deinit(&arena);
        assert_int_equal(lender.lent_bytes, 0);
    }
    assert_int_equal(fail_at, 2);
    free(encoded.bytes);
}

static void refuses_too_many_claims(void **state)
{
    (void)state;
    struct eb_wire_claim many[EB_WATCH_CLAIMS_MAX + 1];
    for (size_t i = 0; i < EB_WATCH_CLAIMS_MAX + 1; i++) {
        many[i] =
            (struct eb_wire_claim){.model = "m", .version = 1 + i, .digest = 1, .served = true};
    }
    struct eb_wire_watch_request wide = {EB_WATCH_CLAIMS_MAX, many, "r", 1};
    assert_int_equal(try_encoded_request(&wide), EB_STATUS_OK);
    wide.claim_count++;
    assert_int_equal(try_encoded_request(&wide), EB_STATUS_RESOURCE_EXHAUSTED);
}

static void refuses_claims_without_model_or_version(void **state)
{
    (void)state;
    struct eb_wire_claim claim = {.model = "m", .version = 1};
    struct eb_wire_watch_request one = {1, &claim, "", 1};
    assert_int_equal(try_encoded_request(&one), EB_STATUS_OK);
    claim.model = "";
    assert_int_equal(try_encoded_request(&one), EB_STATUS_INVALID_ARGUMENT);
    claim = (struct eb_wire_claim){.model = "m"};
    assert_int_equal(try_encoded_request(&one), EB_STATUS_INVALID_ARGUMENT);
    claim = (struct eb_wire_claim){.model = "a name of 21 bytes...", .version = 1};
    assert_int_equal(try_encoded_request(&one), EB_STATUS_RESOURCE_EXHAUSTED);
    claim = (struct eb_wire_claim){.model = "\xff", .version = 1};
    assert_int_equal(try_encoded_request(&one), EB_STATUS_INVALID_ARGUMENT);
}

static void refuses_too_many_holdings(void **state)
{
    (void)state;
    /* A holding of model "m", which the encoder would not repeat too often. */
    static const uint8_t holding[] = {0x0a, 3, 0x0a, 1, 'm'};
    size_t size = sizeof holding * (EB_WATCH_HOLDINGS_MAX + 1);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = holding[i % sizeof holding];
    }
    assert_int_equal(try_holdings(bytes, size - sizeof holding, NULL), EB_STATUS_OK);
    assert_int_equal(try_holdings(bytes, size, NULL), EB_STATUS_RESOURCE_EXHAUSTED);
    free(bytes);
}

static void refuses_error_texts_that_are_too_long_in_all(void **state)
{
    (void)state;
    char *text = malloc(EB_WATCH_ERROR_BYTES_MAX + 1);
    assert_non_null(text);
    memset(text, 'e', EB_WATCH_ERROR_BYTES_MAX);
    text[EB_WATCH_ERROR_BYTES_MAX] = '\0';
    struct eb_wire_holding two[] = {{.model = "m", .error = text}, {.model = "n", .error = ""}};
    struct eb_wire_holdings both = {.count = 2, .items = two};
    assert_int_equal(try_encoded_holdings(&both), EB_STATUS_OK);
    two[1].error = "e";
    assert_int_equal(try_encoded_holdings(&both), EB_STATUS_RESOURCE_EXHAUSTED);
    free(text);
}

static void refuses_holdings_that_cannot_be(void **state)
{
    (void)state;
    static const uint32_t last = 2;
    struct eb_wire_holding item = {
        .model = "m", .error = "", .parts = 3, .owned_part_count = 1, .owned_parts = &last};
    struct eb_wire_holdings one = {.count = 1, .items = &item};
    assert_int_equal(try_encoded_holdings(&one), EB_STATUS_OK);
    item.parts = 2;
    assert_int_equal(try_encoded_holdings(&one), EB_STATUS_INVALID_ARGUMENT);
    item = (struct eb_wire_holding){.model = "", .error = ""};
    assert_int_equal(try_encoded_holdings(&one), EB_STATUS_INVALID_ARGUMENT);
    item.model = "a name of 21 bytes...";
    assert_int_equal(try_encoded_holdings(&one), EB_STATUS_RESOURCE_EXHAUSTED);
    item = (struct eb_wire_holding){.model = "m", .error = "\xff"};
    assert_int_equal(try_encoded_holdings(&one), EB_STATUS_INVALID_ARGUMENT);
}

static void refuses_too_many_parts(void **state)
{
    (void)state;
    uint32_t *owned = calloc(EB_WATCH_PARTS_MAX + 1, sizeof *owned);
    assert_non_null(owned);
    struct eb_wire_holding item = {.model = "m",
        .error = "",
        .parts = 1,
        .owned_part_count = EB_WATCH_PARTS_MAX,
        .owned_parts = owned};
    struct eb_wire_holdings one = {.count = 1, .items = &item};
    assert_int_equal(try_encoded_holdings(&one), EB_STATUS_OK);
    item.owned_part_count++;
    assert_int_equal(try_encoded_holdings(&one), EB_STATUS_RESOURCE_EXHAUSTED);
    free(owned);
}

EB_TEST_GROUP(codec_watch)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carries_claims),
        cmocka_unit_test(carries_holdings),
        cmocka_unit_test(refuses_messages_that_are_cut_off),
        cmocka_unit_test(decodes_without_memory_to_spare),
        cmocka_unit_test(refuses_too_many_claims),
        cmocka_unit_test(refuses_claims_without_model_or_version),
        cmocka_unit_test(refuses_too_many_holdings),
        cmocka_unit_test(refuses_error_texts_that_are_too_long_in_all),
        cmocka_unit_test(refuses_holdings_that_cannot_be),
        cmocka_unit_test(refuses_too_many_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
