/* Calls of ModelAdmin between the wire and the client.
 * Thread: pure. Memory: requests from the eb_memory given, progress on the heap. */
#pragma once

#include "proto/memory.h"
#include "proto/send_queue.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_admin_progress {
    uint64_t done_bytes;
    uint64_t total_bytes;
    bool done; /* and text says what is the case */
    char text[EB_ERROR_TEXT_BYTES];
};

/* A VersionRequest behind its gRPC prefix. model may be NULL. NULL: *error says that there is no
 * memory. */
struct eb_outgoing *eb_admin_call_encode(
    const char *model, uint64_t version, const struct eb_memory *memory, struct eb_error *error);
/* Reads a serialised VersionProgress, to be freed. NULL: *error is set. */
struct eb_admin_progress *eb_admin_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error);
