/* From bytes to protobuf-c's structs, the safe way: guard, then unpacking into a capped arena.
 * Thread: one per arena. Memory: from the arena. */
#pragma once

#include "proto/arena.h"
#include "proto/guard.h"

#include <assert.h>

struct eb_unpack_input {
    const ProtobufCMessageDescriptor *descriptor;
    const uint8_t *bytes;
    size_t size;
    struct eb_guard_limits limits;
};

/* For a server's answers, which are capped in size only. */
extern const struct eb_guard_limits eb_unpack_answer_limits;

/* The message, as long-lived as the arena's content. NULL: *error is set as eb_guard_check does, or
 * to RESOURCE_EXHAUSTED where the arena is. */
void *eb_unpack_message(
    struct eb_arena *arena, const struct eb_unpack_input *input, struct eb_error *error);

/* Sets the error that says that the arena is exhausted. */
void eb_unpack_refuse_for_memory(const struct eb_arena *arena, struct eb_error *error);

/* `count` elements of `bytes` bytes each from the arena, uninitialised; not NULL for no elements.
 * NULL: *error says that the arena is exhausted. */
static inline void *eb_unpack_take(
    struct eb_arena *arena, size_t count, size_t bytes, struct eb_error *error)
{
    size_t total = 0;
    bool overflows = __builtin_mul_overflow(count, bytes, &total);
    assert(!overflows);
    void *elements = eb_arena_take(arena, total);
    if (!elements) {
        eb_unpack_refuse_for_memory(arena, error);
    }
    return elements;
}
