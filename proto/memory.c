#include "proto/memory.h"

#include <stdint.h>
#include <stdlib.h>

#define ALIGNMENT 64

static void *take_from_heap(void *context, size_t bytes)
{
    (void)context;
    if (bytes > SIZE_MAX - ALIGNMENT) {
        return NULL;
    }
    /* aligned_alloc requires a multiple of the alignment, and may return NULL for 0 bytes. */
    size_t rounded = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    return aligned_alloc(ALIGNMENT, rounded);
}

static void give_to_heap(void *context, void *memory, size_t bytes)
{
    (void)context;
    (void)bytes;
    free(memory);
}

const struct eb_memory eb_memory_heap = {.take = take_from_heap, .give = give_to_heap};
