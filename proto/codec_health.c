#include "proto/codec_health.h"

#include "proto/codec_common.h"
#include "proto/field.h"

#include "grpc/health/v1/health.fields.h"
#include "grpc/health/v1/health.pb-c.h"

/* Largest accepted number of fields, including unknown ones. The message declares one. */
#define REQUEST_FIELDS_MAX 64

const char *eb_health_request_decode(struct eb_arena *arena, const uint8_t *bytes, size_t size,
    uint32_t name_bytes_max, struct eb_error *error)
{
    struct eb_codec_input input = {&grpc__health__v1__health_check_request__descriptor, bytes, size,
        {.fields_max = REQUEST_FIELDS_MAX, .name_bytes_max = name_bytes_max}};
    const Grpc__Health__V1__HealthCheckRequest *message = eb_codec_unpack(arena, &input, error);
    return message ? message->service : NULL;
}

static void write_health_response(struct eb_field_writer *writer, enum eb_health_status status)
{
    eb_field_put_enum(writer, EB_FIELD_HEALTH_CHECK_RESPONSE_STATUS, (int32_t)status);
}

size_t eb_health_response_bytes(enum eb_health_status status)
{
    struct eb_field_writer counter = {.out = NULL};
    write_health_response(&counter, status);
    return counter.bytes;
}

void eb_health_response_encode(enum eb_health_status status, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_health_response(&writer, status);
}

/* Writes an entry of the map: the name, and a HealthCheckResponse. */
static void write_entry(struct eb_field_writer *writer, const struct eb_wire_health *item)
{
    eb_field_put_text(writer, EB_FIELD_HEALTH_LIST_RESPONSE_STATUSES_ENTRY_KEY, item->name);
    eb_field_put_length(writer, EB_FIELD_HEALTH_LIST_RESPONSE_STATUSES_ENTRY_VALUE,
        eb_health_response_bytes(item->status));
    write_health_response(writer, item->status);
}

static void write_list(
    struct eb_field_writer *writer, const struct eb_wire_health *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct eb_field_writer counter = {.out = NULL};
        write_entry(&counter, &items[i]);
        eb_field_put_length(writer, EB_FIELD_HEALTH_LIST_RESPONSE_STATUSES, counter.bytes);
        write_entry(writer, &items[i]);
    }
}

size_t eb_health_list_bytes(const struct eb_wire_health *items, size_t count)
{
    struct eb_field_writer counter = {.out = NULL};
    write_list(&counter, items, count);
    return counter.bytes;
}

void eb_health_list_encode(const struct eb_wire_health *items, size_t count, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_list(&writer, items, count);
}
