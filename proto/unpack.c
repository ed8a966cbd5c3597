#include "proto/unpack.h"

const struct eb_guard_limits eb_unpack_answer_limits = {
    .fields_max = UINT32_MAX,
    .name_bytes_max = 65536, /* error texts are strings too */
    .submessages_max = UINT32_MAX,
};

void eb_unpack_refuse_for_memory(const struct eb_arena *arena, struct eb_error *error)
{
    eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
        "decoding takes more memory than there is for this message (%zu bytes taken, at most %zu)",
        arena->used_bytes, arena->cap_bytes);
}

void *eb_unpack_message(
    struct eb_arena *arena, const struct eb_unpack_input *input, struct eb_error *error)
{
    if (!eb_guard_check(input->descriptor, input->bytes, input->size, &input->limits, error)) {
        return NULL;
    }
    ProtobufCMessage *message =
        protobuf_c_message_unpack(input->descriptor, &arena->allocator, input->size, input->bytes);
    if (message) {
        return message;
    }
    /* protobuf-c says no more than that it failed. */
    if (arena->is_exhausted) {
        eb_unpack_refuse_for_memory(arena, error);
    } else {
        eb_error_set(
            error, EB_STATUS_INTERNAL, "%s cannot be unpacked", input->descriptor->short_name);
    }
    return NULL;
}
