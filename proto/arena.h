/* A capped arena: what one request's decoding needs is taken from it and goes back at once.
 * Thread: one at a time. Memory: blocks from an eb_memory, each larger than the one before; the
 * first is kept over a reset unless one large piece made it large, so that a pooled arena serves
 * small requests without asking again. */
#pragma once

#include "proto/memory.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

struct eb_arena_block;

struct eb_arena {
    const struct eb_memory *memory;
    struct eb_arena_block *blocks; /* newest first */
    size_t used_bytes;             /* handed out since the last reset */
    size_t cap_bytes;              /* most that may be handed out between resets */
    bool is_exhausted;             /* something was refused since the last reset */
    ProtobufCAllocator allocator;  /* this arena as protobuf-c takes it; its free does nothing */
};

/* Takes nothing yet; the cap is 0 until the first reset. `memory` is borrowed for the arena's life,
 * and the arena must not move: its allocator points at it. */
void eb_arena_init(struct eb_arena *arena, const struct eb_memory *memory);
/* Gives every block back. Accepts a zeroed arena, and one that is deinitialised already. */
void eb_arena_deinit(struct eb_arena *arena);

/* Forgets all that was handed out and sets the cap for the next request. */
void eb_arena_reset(struct eb_arena *arena, size_t cap_bytes);

/* `bytes` bytes aligned to 16, uninitialised. NULL: over the cap, or the lender has none; both are
 * remembered in is_exhausted. */
void *eb_arena_take(struct eb_arena *arena, size_t bytes);
