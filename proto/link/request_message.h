/* Serialised requests: gRPC messages in memory of their own, with room for the sender's notes.
 * Thread: pure. Memory: each message comes from the eb_memory it is given, which must outlive it,
 * and is released with its last hold. */
#pragma once

#include "proto/memory.h"
#include "proto/send_queue.h"

/* Returns a request with room for a message of `size` bytes and for notes_bytes of notes. Its gRPC
 * prefix has been written; the caller writes the message after the prefix, at EB_GRPC_PREFIX_BYTES.
 * Returns NULL if out of memory. */
struct eb_outgoing *eb_request_message_create(
    const struct eb_memory *memory, size_t notes_bytes, size_t size);
/* Returns the notes of a request, which are aligned for any type. */
void *eb_request_message_notes(struct eb_outgoing *request);
/* Returns a copy without notes, for another send queue. Returns NULL if out of memory. */
struct eb_outgoing *eb_request_message_copy(const struct eb_outgoing *request);

/* Writes the time that is left, at least 1, and how often the request was sent before, into a
 * LookupRequest that is about to be sent. */
void eb_request_message_stamp(struct eb_outgoing *request, uint64_t timeout_us, uint32_t attempt);
/* Returns a LookupRequest without queries, which is answered at once. Returns NULL if out of
 * memory. */
struct eb_outgoing *eb_request_message_create_probe(
    const struct eb_memory *memory, uint64_t request_id);
/* Returns a LookupRequest that cancels the one of the same id on the same stream. Returns NULL if
 * out of memory. */
struct eb_outgoing *eb_request_message_create_cancel(
    const struct eb_memory *memory, uint64_t request_id);
