/* The source of memory for the functions of this folder. The program that uses these functions
 * provides the memory, so that a peer's bytes count against a cap.
 * Thread: as the provider says; one session or arena is used by one thread at a time. */
#pragma once

#include <stddef.h>

struct eb_memory {
    /* Returns at least `bytes` bytes aligned to 64; NULL if the provider's cap is reached. */
    void *(*take)(void *context, size_t bytes);
    /* Gives back memory from `take`. `bytes` is the size that was passed to `take`. */
    void (*give)(void *context, void *memory, size_t bytes);
    void *context;
};

/* The C library's heap without a cap: for clients, tools and tests, and for the few bytes of a TLS
 * handshake, which other limits bound. */
extern const struct eb_memory eb_memory_heap;
