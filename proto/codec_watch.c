#include "proto/codec_watch.h"

#include "proto/codec_common.h"
#include "proto/field.h"

#include "embag/v1/embedding_bag.fields.h"
#include "embag/v1/embedding_bag.pb-c.h"

/* Largest accepted number of fields of a request, including unknown ones and those of its claims.
 * The messages declare 3 and 4 fields. */
#define REQUEST_FIELDS_MAX (16 + EB_WATCH_CLAIMS_MAX * 8)
/* The same of a response: a holding declares 13 fields. A part may be a field of its own if parts
 * are not packed. */
#define RESPONSE_FIELDS_MAX (64 + EB_WATCH_HOLDINGS_MAX * 32)

/* ---- requests ---- */

static bool check_claim(const Embag__V1__Claim *claim, size_t index, struct eb_error *error)
{
    if (claim->model[0] == '\0') {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "claims[%zu] names no model", index);
    } else if (claim->version == 0) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "claims[%zu] names no version of model \"%s\"", index, claim->model);
    } else {
        return true;
    }
    return false;
}

struct eb_wire_watch_request *eb_watch_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, uint32_t name_bytes_max, struct eb_error *error)
{
    struct eb_codec_input input = {&embag__v1__watch_models_request__descriptor, bytes, size,
        {.fields_max = REQUEST_FIELDS_MAX,
            .name_bytes_max = name_bytes_max,
            .submessages_max = EB_WATCH_CLAIMS_MAX}};
    const Embag__V1__WatchModelsRequest *message = eb_codec_unpack(arena, &input, error);
    if (!message) {
        return NULL;
    }
    struct eb_wire_watch_request *request =
        eb_codec_take_elements(arena, 1, sizeof *request, error);
    struct eb_wire_claim *claims =
        request ? eb_codec_take_elements(arena, message->n_claims, sizeof *claims, error) : NULL;
    if (!claims) {
        return NULL;
    }
    for (size_t i = 0; i < message->n_claims; i++) {
        const Embag__V1__Claim *claim = message->claims[i];
        if (!check_claim(claim, i, error)) {
            return NULL;
        }
        claims[i] =
            (struct eb_wire_claim){claim->model, claim->version, claim->digest, claim->served};
    }
    *request =
        (struct eb_wire_watch_request){message->n_claims, claims, message->router, message->level};
    return request;
}

static void write_claim(struct eb_field_writer *writer, const struct eb_wire_claim *claim)
{
    eb_field_put_text(writer, EB_FIELD_CLAIM_MODEL, claim->model);
    eb_field_put_number(writer, EB_FIELD_CLAIM_VERSION, claim->version);
    eb_field_put_fixed64(writer, EB_FIELD_CLAIM_DIGEST, claim->digest);
    eb_field_put_number(writer, EB_FIELD_CLAIM_SERVED, claim->served);
}

static void write_watch_request(
    struct eb_field_writer *writer, const struct eb_wire_watch_request *request)
{
    for (size_t i = 0; i < request->claim_count; i++) {
        struct eb_field_writer counter = {.out = NULL};
        write_claim(&counter, &request->claims[i]);
        eb_field_put_length(writer, EB_FIELD_WATCH_MODELS_REQUEST_CLAIMS, counter.bytes);
        write_claim(writer, &request->claims[i]);
    }
    eb_field_put_text(writer, EB_FIELD_WATCH_MODELS_REQUEST_ROUTER, request->router);
    eb_field_put_number(writer, EB_FIELD_WATCH_MODELS_REQUEST_LEVEL, request->level);
}

size_t eb_watch_request_bytes(const struct eb_wire_watch_request *request)
{
    struct eb_field_writer counter = {.out = NULL};
    write_watch_request(&counter, request);
    return counter.bytes;
}

void eb_watch_request_encode(const struct eb_wire_watch_request *request, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_watch_request(&writer, request);
}

/* ---- responses ---- */

/* Checks that each part that the holding owns is one of its version's. */
static bool check_owned(const Embag__V1__Holding *holding, size_t index, struct eb_error *error)
{
    if (holding->n_owned_parts > EB_WATCH_PARTS_MAX) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "holdings[%zu] owns %zu parts; the limit is %u", index, holding->n_owned_parts,
            EB_WATCH_PARTS_MAX);
        return false;
    }
    for (size_t i = 0; i < holding->n_owned_parts; i++) {
        if (holding->owned_parts[i] >= holding->parts) {
            eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
                "holdings[%zu] owns part %u, but its version has %u parts", index,
                holding->owned_parts[i], holding->parts);
            return false;
        }
    }
    return true;
}

/* Subtracts the bytes of the holding's error text from *left_bytes. */
static bool check_holding(const Embag__V1__Holding *holding, size_t index, uint32_t name_bytes_max,
    size_t *left_bytes, struct eb_error *error)
{
    size_t name_bytes = strlen(holding->model);
    size_t error_bytes = strlen(holding->error);
    if (name_bytes == 0) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "holdings[%zu] names no model", index);
    } else if (name_bytes > name_bytes_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "holdings[%zu]: its model's name has %zu bytes; the limit is %u", index, name_bytes,
            name_bytes_max);
    } else if (error_bytes > *left_bytes) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "holdings[%zu]: the error texts have more than %u bytes in all", index,
            EB_WATCH_ERROR_BYTES_MAX);
    } else {
        *left_bytes -= error_bytes;
        return check_owned(holding, index, error);
    }
    return false;
}

static struct eb_wire_holding read_holding(const Embag__V1__Holding *holding)
{
    return (struct eb_wire_holding){
        .model = holding->model,
        .version = holding->version,
        .digest = holding->digest,
        .parts = holding->parts,
        .owned_part_count = holding->n_owned_parts,
        .owned_parts = holding->owned_parts,
        .state = (int32_t)holding->state,
        .error = holding->error,
        .served_by_router = holding->served_by_router,
        .claimed = holding->claimed,
    };
}

struct eb_wire_holdings *eb_holdings_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, uint32_t name_bytes_max, struct eb_error *error)
{
    struct eb_codec_input input = {&embag__v1__watch_models_response__descriptor, bytes, size,
        {.fields_max = RESPONSE_FIELDS_MAX,
            .name_bytes_max = EB_WATCH_ERROR_BYTES_MAX, /* error texts are strings too */
            .submessages_max = EB_WATCH_HOLDINGS_MAX}};
    const Embag__V1__WatchModelsResponse *message = eb_codec_unpack(arena, &input, error);
    if (!message) {
        return NULL;
    }
    struct eb_wire_holdings *holdings = eb_codec_take_elements(arena, 1, sizeof *holdings, error);
    struct eb_wire_holding *items =
        holdings ? eb_codec_take_elements(arena, message->n_holdings, sizeof *items, error) : NULL;
    size_t left_bytes = EB_WATCH_ERROR_BYTES_MAX;
    if (!items) {
        return NULL;
    }
    for (size_t i = 0; i < message->n_holdings; i++) {
        if (!check_holding(message->holdings[i], i, name_bytes_max, &left_bytes, error)) {
            return NULL;
        }
        items[i] = read_holding(message->holdings[i]);
    }
    *holdings = (struct eb_wire_holdings){
        message->n_holdings, items, message->draining, message->instance, message->level};
    return holdings;
}

static void write_owned_parts(struct eb_field_writer *writer, const struct eb_wire_holding *holding)
{
    size_t size = 0;
    for (size_t i = 0; i < holding->owned_part_count; i++) {
        size += eb_field_varint_bytes(holding->owned_parts[i]);
    }
    if (size == 0) {
        return;
    }
    eb_field_put_length(writer, EB_FIELD_HOLDING_OWNED_PARTS, size);
    for (size_t i = 0; i < holding->owned_part_count; i++) {
        eb_field_put_varint(writer, holding->owned_parts[i]);
    }
}

static void write_holding(struct eb_field_writer *writer, const struct eb_wire_holding *holding)
{
    eb_field_put_text(writer, EB_FIELD_HOLDING_MODEL, holding->model);
    eb_field_put_number(writer, EB_FIELD_HOLDING_VERSION, holding->version);
    eb_field_put_fixed64(writer, EB_FIELD_HOLDING_DIGEST, holding->digest);
    eb_field_put_number(writer, EB_FIELD_HOLDING_PARTS, holding->parts);
    write_owned_parts(writer, holding);
    eb_field_put_enum(writer, EB_FIELD_HOLDING_STATE, holding->state);
    eb_field_put_number(writer, EB_FIELD_HOLDING_SERVED_BY_ROUTER, holding->served_by_router);
    eb_field_put_text(writer, EB_FIELD_HOLDING_ERROR, holding->error);
    eb_field_put_number(writer, EB_FIELD_HOLDING_CLAIMED, holding->claimed);
}

static void write_holdings(struct eb_field_writer *writer, const struct eb_wire_holdings *holdings)
{
    assert(holdings->count <= EB_WATCH_HOLDINGS_MAX);
    for (size_t i = 0; i < holdings->count; i++) {
        struct eb_field_writer counter = {.out = NULL};
        write_holding(&counter, &holdings->items[i]);
        eb_field_put_length(writer, EB_FIELD_WATCH_MODELS_RESPONSE_HOLDINGS, counter.bytes);
        write_holding(writer, &holdings->items[i]);
    }
    eb_field_put_number(writer, EB_FIELD_WATCH_MODELS_RESPONSE_DRAINING, holdings->draining);
    eb_field_put_fixed64(writer, EB_FIELD_WATCH_MODELS_RESPONSE_INSTANCE, holdings->instance);
    eb_field_put_number(writer, EB_FIELD_WATCH_MODELS_RESPONSE_LEVEL, holdings->level);
}

size_t eb_holdings_bytes(const struct eb_wire_holdings *holdings)
{
    struct eb_field_writer counter = {.out = NULL};
    write_holdings(&counter, holdings);
    return counter.bytes;
}

void eb_holdings_encode(const struct eb_wire_holdings *holdings, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_holdings(&writer, holdings);
}
