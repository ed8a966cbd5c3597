/* Bytes of a paused call, as they came, in pieces that are filled and emptied in order: they take
 * little more memory than there are of them.
 * Thread: one at a time. Memory: from the eb_memory given. */
#pragma once

#include "proto/memory.h"

#include <stdbool.h>
#include <stdint.h>

struct eb_grpc_piece {
    struct eb_grpc_piece *next;
    size_t capacity;
    size_t first; /* of the bytes that are left */
    size_t end;
    uint64_t filled_ms; /* when bytes were added last */
    uint8_t room[];
};

/* Zeroed is empty. */
struct eb_grpc_backlog {
    struct eb_grpc_piece *head; /* NULL: none */
    struct eb_grpc_piece *tail;
};

/* Appends bytes that came at `now_ms`. false: no memory; some may have been appended. */
bool eb_grpc_backlog_append(struct eb_grpc_backlog *backlog, const struct eb_memory *memory,
    const uint8_t *bytes, size_t count, uint64_t now_ms);
/* The first piece, which leaves the backlog; there must be one. */
struct eb_grpc_piece *eb_grpc_backlog_pop(struct eb_grpc_backlog *backlog);
/* A popped piece goes back to where it was, or, where nothing of it is left, to the memory. */
void eb_grpc_backlog_restore(
    struct eb_grpc_backlog *backlog, const struct eb_memory *memory, struct eb_grpc_piece *piece);
/* Gives every piece back. Accepts a zeroed backlog. */
void eb_grpc_backlog_clear(struct eb_grpc_backlog *backlog, const struct eb_memory *memory);
