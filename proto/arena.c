#include "proto/arena.h"

#include <assert.h>
#include <stdint.h>

/* Sizes of whole blocks, including their header. The first block suffices for a request of some
 * forty queries. Growth stops at a size at which another block costs little compared with filling
 * it. */
#define FIRST_BLOCK_BYTES ((size_t)32 << 10)
#define GROWN_BLOCK_BYTES_MAX ((size_t)1 << 20)

struct eb_arena_block {
    _Alignas(EB_ARENA_ALIGNMENT) struct eb_arena_block *next;
    size_t block_bytes; /* size taken from the provider */
};

static_assert(
    sizeof(struct eb_arena_block) % EB_ARENA_ALIGNMENT == 0, "what follows the header is aligned");

static void *allocate_for_protobuf(void *context, size_t bytes)
{
    return eb_arena_take(context, bytes);
}

static void free_for_protobuf(void *context, void *memory)
{
    (void)context;
    (void)memory;
}

void eb_arena_init(struct eb_arena *arena, const struct eb_memory *memory)
{
    *arena = (struct eb_arena){
        .memory = memory,
        .allocator = {allocate_for_protobuf, free_for_protobuf, arena},
    };
}

static void give_newest(struct eb_arena *arena)
{
    struct eb_arena_block *block = arena->blocks;
    arena->blocks = block->next;
    arena->memory->give(arena->memory->context, block, block->block_bytes);
}

void eb_arena_deinit(struct eb_arena *arena)
{
    while (arena->blocks) {
        give_newest(arena);
    }
    *arena = (struct eb_arena){.memory = NULL};
}

/* Makes the whole newest block available, within the cap. */
static void open_newest(struct eb_arena *arena)
{
    const struct eb_arena_block *block = arena->blocks;
    size_t left = arena->cap_bytes - arena->used_bytes;
    size_t bytes = block ? block->block_bytes - sizeof *block : 0;
    arena->room = block ? (uint8_t *)arena->blocks + sizeof *block : NULL;
    arena->room_bytes = bytes < left ? bytes : left;
}

void eb_arena_reset(struct eb_arena *arena, size_t cap_bytes)
{
    while (
        arena->blocks && (arena->blocks->next || arena->blocks->block_bytes > FIRST_BLOCK_BYTES)) {
        give_newest(arena);
    }
    arena->used_bytes = 0;
    arena->cap_bytes = cap_bytes;
    arena->is_exhausted = false;
    open_newest(arena);
}

/* Adds a block with room for `bytes` at the head of the list. Returns false if out of memory. */
static bool grow_arena(struct eb_arena *arena, size_t bytes)
{
    size_t block_bytes = FIRST_BLOCK_BYTES;
    if (arena->blocks) {
        block_bytes = 2 * arena->blocks->block_bytes;
        block_bytes = block_bytes > GROWN_BLOCK_BYTES_MAX ? GROWN_BLOCK_BYTES_MAX : block_bytes;
    }
    if (block_bytes - sizeof(struct eb_arena_block) < bytes) {
        block_bytes = bytes + sizeof(struct eb_arena_block);
    }
    struct eb_arena_block *block = arena->memory->take(arena->memory->context, block_bytes);
    if (!block) {
        return false;
    }
    *block = (struct eb_arena_block){arena->blocks, block_bytes};
    arena->blocks = block;
    open_newest(arena);
    return true;
}

void *eb_arena_take_more(struct eb_arena *arena, size_t bytes)
{
    size_t left = arena->cap_bytes - arena->used_bytes;
    /* `rounded` is 0 if rounding wraps around. */
    size_t rounded = eb_arena_round(bytes > 0 ? bytes : 1);
    if (rounded == 0 || rounded > left ||
        (rounded > arena->room_bytes && !grow_arena(arena, rounded))) {
        arena->is_exhausted = true;
        return NULL;
    }
    return eb_arena_take(arena, rounded);
}
