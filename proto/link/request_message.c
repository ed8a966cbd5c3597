#include "proto/link/request_message.h"

#include "proto/codec.h"
#include "proto/grpc_text.h"
#include "proto/list.h"

#include <stdalign.h>
#include <stddef.h>
#include <string.h>

struct request_message {
    struct eb_outgoing outgoing;
    const struct eb_memory *memory;
    size_t taken_bytes;
    alignas(max_align_t) uint8_t notes[]; /* the message follows the notes */
};

static void release_message(struct eb_outgoing *request)
{
    struct request_message *message = EB_CONTAINER_OF(request, struct request_message, outgoing);
    message->memory->give(message->memory->context, message, message->taken_bytes);
}

struct eb_outgoing *eb_request_message_create(
    const struct eb_memory *memory, size_t notes_bytes, size_t size)
{
    size_t bytes = size + EB_GRPC_PREFIX_BYTES;
    size_t taken_bytes = sizeof(struct request_message) + notes_bytes + bytes;
    struct request_message *message = memory->take(memory->context, taken_bytes);
    if (!message) {
        return NULL;
    }
    message->outgoing = (struct eb_outgoing){.bytes = message->notes + notes_bytes,
        .size = bytes,
        .holds = 1,
        .release = release_message};
    message->memory = memory;
    message->taken_bytes = taken_bytes;
    eb_grpc_prefix_write(message->outgoing.bytes, (uint32_t)size);
    return &message->outgoing;
}

void *eb_request_message_notes(struct eb_outgoing *request)
{
    return EB_CONTAINER_OF(request, struct request_message, outgoing)->notes;
}

struct eb_outgoing *eb_request_message_copy(const struct eb_outgoing *request)
{
    const struct request_message *message =
        EB_CONTAINER_OF(request, struct request_message, outgoing);
    struct eb_outgoing *copy =
        eb_request_message_create(message->memory, 0, request->size - EB_GRPC_PREFIX_BYTES);
    if (copy) {
        memcpy(copy->bytes, request->bytes, request->size);
    }
    return copy;
}

void eb_request_message_stamp(struct eb_outgoing *request, uint64_t timeout_us, uint32_t attempt)
{
    uint8_t *message = request->bytes + EB_GRPC_PREFIX_BYTES;
    size_t size = request->size - EB_GRPC_PREFIX_BYTES;
    eb_lookup_request_set_timeout(message, size, timeout_us);
    eb_lookup_request_set_attempt(message, size, attempt);
}

static struct eb_outgoing *encode_small(
    const struct eb_memory *memory, const struct eb_wire_request *wire)
{
    struct eb_outgoing *request =
        eb_request_message_create(memory, 0, eb_lookup_request_bytes(wire));
    if (request) {
        eb_lookup_request_encode(wire, request->bytes + EB_GRPC_PREFIX_BYTES);
    }
    return request;
}

struct eb_outgoing *eb_request_message_create_probe(
    const struct eb_memory *memory, uint64_t request_id)
{
    return encode_small(memory, &(struct eb_wire_request){.request_id = request_id, .model = ""});
}

struct eb_outgoing *eb_request_message_create_cancel(
    const struct eb_memory *memory, uint64_t request_id)
{
    return encode_small(
        memory, &(struct eb_wire_request){.request_id = request_id, .model = "", .cancel = true});
}
