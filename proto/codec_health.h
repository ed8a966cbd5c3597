/* Translates between serialised messages of grpc.health.v1 and plain values.
 * Thread: pure. Memory: decoding takes from the given arena; encoding writes into the caller's
 * buffer. */
#pragma once

#include "proto/arena.h"
#include "proto/status.h"

/* Serving statuses, with the numbers of HealthCheckResponse.ServingStatus. */
enum eb_health_status {
    EB_HEALTH_UNKNOWN = 0,
    EB_HEALTH_SERVING = 1,
    EB_HEALTH_NOT_SERVING = 2,
    EB_HEALTH_SERVICE_UNKNOWN = 3
};

/* The status of the service or model of this name. */
struct eb_wire_health {
    const char *name;
    enum eb_health_status status;
};

/* Returns the name in a HealthCheckRequest, at most name_bytes_max bytes. Returns NULL with *error
 * set, as the decoders of codec.h do. */
const char *eb_health_request_decode(struct eb_arena *arena, const uint8_t *bytes, size_t size,
    uint32_t name_bytes_max, struct eb_error *error);

/* HealthCheckResponse. */
size_t eb_health_response_bytes(enum eb_health_status status);
void eb_health_response_encode(enum eb_health_status status, uint8_t *out);

/* HealthListResponse. */
size_t eb_health_list_bytes(const struct eb_wire_health *items, size_t count);
void eb_health_list_encode(const struct eb_wire_health *items, size_t count, uint8_t *out);
