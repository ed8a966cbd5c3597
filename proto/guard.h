/* Looks at a serialised protobuf message before anything else does: bytes that are none, and what
 * protobuf-c 1.4.1 gets wrong (nesting without limit, quadratic merging of repeated singular
 * sub-messages, NULs and bad UTF-8 in strings), are refused here, driven by the message's
 * descriptor.
 * Thread: pure. Memory: none; no recursion. */
#pragma once

#include "proto/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_GUARD_DEPTH_MAX 8 /* nested messages; ours need 4 */

struct eb_guard_limits {
    uint32_t fields_max;     /* fields of the whole message, unknown ones and all depths together */
    uint32_t name_bytes_max; /* longest string field */
    uint32_t submessages_max; /* occurrences of repeated message fields, all together */
};

/* true: protobuf-c can unpack it in memory linear in its size. false: *error is set: INTERNAL where
 * the bytes are no such message, INVALID_ARGUMENT for a string that is not UTF-8 or holds a NUL,
 * RESOURCE_EXHAUSTED over a limit; the text names the field and the position. */
bool eb_guard_check(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t size,
    const struct eb_guard_limits *limits, struct eb_error *error);

/* The value of varint field `number` of the message's own, the last one where there are several, 0
 * where there is none: for saying which message it was that was refused. Reads up to the first
 * byte that is none of a message's. */
uint64_t eb_guard_find_varint(const uint8_t *bytes, size_t size, uint32_t number);

/* Whether the bytes of a word are ASCII, and none is NUL. */
static inline bool eb_guard_is_plain(uint64_t word)
{
    uint64_t ones = UINT64_C(0x0101010101010101);
    /* Where no byte is 0x80 or above, what is taken from one that is 0 comes out as 0xFF. */
    return ((word | (word - ones)) & (ones << 7)) == 0;
}

/* Whether a string field may hold these bytes: UTF-8 without NUL. */
bool eb_guard_is_text(const uint8_t *bytes, size_t size);

/* The same, and whether they are not too many. */
static inline bool eb_guard_is_name(
    const uint8_t *bytes, size_t size, const struct eb_guard_limits *limits)
{
    return size <= limits->name_bytes_max && eb_guard_is_text(bytes, size);
}
