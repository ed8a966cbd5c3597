/* Checks a serialised protobuf message against its descriptor, before anything else reads it.
 * Refuses bytes that are not a message of the descriptor's type, and inputs that protobuf-c 1.4.1
 * handles badly: nesting without limit, quadratic merging of repeated singular sub-messages, NULs
 * and bad UTF-8 in strings.
 * Thread: pure. Memory: none; no recursion. */
#pragma once

#include "proto/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_GUARD_DEPTH_MAX 8 /* deepest nesting of messages; ours need 4 */

struct eb_guard_limits {
    uint32_t fields_max; /* limit on fields of a message, unknown ones and all depths included */
    uint32_t name_bytes_max;  /* limit on each string field */
    uint32_t submessages_max; /* occurrences of repeated message fields, all together */
};

/* Returns true if protobuf-c can unpack the message in memory linear in its size. Otherwise returns
 * false with *error set: INTERNAL if the bytes are not a message of that type, INVALID_ARGUMENT if
 * a string is not UTF-8 or holds a NUL, RESOURCE_EXHAUSTED if a limit is exceeded. The text names
 * the field and the position. */
bool eb_guard_check(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t size,
    const struct eb_guard_limits *limits, struct eb_error *error);

/* Returns the value of varint field `number` of the outermost message: the last one if there are
 * several, 0 if there is none. Stops at the first bytes that are not a field. Serves to identify a
 * message that was refused. */
uint64_t eb_guard_find_varint(const uint8_t *bytes, size_t size, uint32_t number);

/* Returns whether all bytes of the word are ASCII and none is NUL. */
static inline bool eb_guard_is_plain(uint64_t word)
{
    uint64_t ones = UINT64_C(0x0101010101010101);
    /* If no byte is 0x80 or above, subtracting 1 from a byte that is 0 yields 0xFF. */
    return ((word | (word - ones)) & (ones << 7)) == 0;
}

/* Returns whether a string field may hold these bytes: UTF-8 without NUL. */
bool eb_guard_is_text(const uint8_t *bytes, size_t size);

/* Returns whether the bytes are UTF-8 without NUL and within the limit on names. */
static inline bool eb_guard_is_name(
    const uint8_t *bytes, size_t size, const struct eb_guard_limits *limits)
{
    return size <= limits->name_bytes_max && eb_guard_is_text(bytes, size);
}
