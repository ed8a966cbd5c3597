/* A capped arena. All memory for decoding one request is taken from it and given back at once.
 * Thread: one at a time. Memory: blocks from an eb_memory, each larger than the one before. A reset
 * keeps the first block, unless that block was made larger for one large piece. So an arena that is
 * used again serves small requests without taking another block. */
#pragma once

#include "proto/memory.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#define EB_ARENA_ALIGNMENT 16

struct eb_arena_block;

struct eb_arena {
    const struct eb_memory *memory;
    struct eb_arena_block *blocks; /* newest first */
    uint8_t *room;                 /* free part of the newest block */
    size_t room_bytes;             /* size of `room`, as far as the cap allows its use */
    size_t used_bytes;             /* bytes handed out since the last reset */
    size_t cap_bytes;              /* most bytes handed out between resets */
    bool is_exhausted;             /* something was refused since the last reset */
    ProtobufCAllocator allocator;  /* interface to protobuf-c; its free does nothing */
};

/* Takes no memory yet; the cap is 0 until the first reset. `memory` is borrowed for the arena's
 * life. The arena must not move, because its allocator points at it. */
void eb_arena_init(struct eb_arena *arena, const struct eb_memory *memory);
/* Gives every block back. Accepts a zeroed or deinitialised arena. */
void eb_arena_deinit(struct eb_arena *arena);

/* Forgets everything handed out and sets the cap for the next request. */
void eb_arena_reset(struct eb_arena *arena, size_t cap_bytes);

/* Does the work of eb_arena_take if the newest block has no room, or if `bytes` is 0. */
void *eb_arena_take_more(struct eb_arena *arena, size_t bytes);

static inline size_t eb_arena_round(size_t bytes)
{
    return (bytes + (EB_ARENA_ALIGNMENT - 1)) / EB_ARENA_ALIGNMENT * EB_ARENA_ALIGNMENT;
}

/* Takes `bytes` bytes aligned to 16, uninitialised. Sets is_exhausted and returns NULL if `bytes`
 * exceeds what the cap leaves, or if the provider has no memory. */
static inline void *eb_arena_take(struct eb_arena *arena, size_t bytes)
{
    /* `rounded` is 0 for 0 bytes, and also if rounding wraps around. */
    size_t rounded = eb_arena_round(bytes);
    if (rounded - 1 >= arena->room_bytes) {
        return eb_arena_take_more(arena, bytes);
    }
    uint8_t *piece = arena->room;
    arena->room += rounded;
    arena->room_bytes -= rounded;
    arena->used_bytes += rounded;
    return piece;
}
