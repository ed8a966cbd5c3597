/* Where the functions of this folder get memory: from whoever embeds them, so that a peer's bytes
 * are always counted against somebody's cap.
 * Thread: as the lender says; one session or arena is used by one thread at a time. */
#pragma once

#include <stddef.h>

struct eb_memory {
    /* At least `bytes` bytes aligned to 64, or NULL where the lender's cap is reached. */
    void *(*take)(void *context, size_t bytes);
    /* Gives back what take gave, with the size that was asked for. */
    void (*give)(void *context, void *memory, size_t bytes);
    void *context;
};

/* The C library's heap without a cap: for clients, tools and tests. */
extern const struct eb_memory eb_memory_heap;
