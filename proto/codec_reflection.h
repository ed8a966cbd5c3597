/* Translates between serialised messages of grpc.reflection.v1 and plain structs. The messages of
 * v1alpha are the same bytes.
 * Thread: pure. Memory: decoding takes from the given arena; encoding writes into the caller's
 * buffer. */
#pragma once

#include "proto/arena.h"
#include "proto/schema.h"
#include "proto/status.h"

#define EB_REFLECTION_NAME_BYTES_MAX 4096 /* most bytes of a name in a request */

/* The kinds of question. Their numbers are those of the request's fields. */
enum eb_reflection_question {
    EB_REFLECTION_NONE = 0, /* no question, or one of an unknown kind */
    EB_REFLECTION_FILE = 3,
    EB_REFLECTION_SYMBOL = 4,
    EB_REFLECTION_EXTENSION = 5,
    EB_REFLECTION_EXTENSION_NUMBERS = 6,
    EB_REFLECTION_SERVICES = 7
};

/* ServerReflectionRequest. */
struct eb_wire_reflection_request {
    const char *host;
    enum eb_reflection_question question;
    const char *name; /* name of a file, symbol or type */
};

/* Returns NULL with *error set, as the decoders of codec.h do. */
struct eb_wire_reflection_request *eb_reflection_request_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);

/* ServerReflectionResponse. The answer is the first of these members that is set: error, files,
 * base_type, services. */
struct eb_wire_reflection_response {
    const char *host;
    const uint8_t *request; /* bytes of the request, as they came */
    size_t request_bytes;
    const struct eb_error *error;
    const struct eb_schema_files *files;
    const char *base_type;       /* name of a message type; messages here have no extensions */
    const char *const *services; /* [service_count] names */
    size_t service_count;
};

size_t eb_reflection_response_bytes(const struct eb_wire_reflection_response *response);
void eb_reflection_response_encode(
    const struct eb_wire_reflection_response *response, uint8_t *out);
