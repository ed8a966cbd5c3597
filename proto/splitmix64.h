/* splitmix64 (Steele, Lea, Flood 2014): numbers that look random, made from a counter or from any
 * value that must be spread evenly. Not for secrets.
 * Thread: any; a state is used by one thread at a time. Memory: none. */
#pragma once

#include <stdint.h>

#define EB_SPLITMIX64_STEP UINT64_C(0x9E3779B97F4A7C15)

/* Returns a number whose every bit depends on all bits of x. Different x give different numbers. */
static inline uint64_t eb_splitmix64_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* Returns the next number of a sequence. Initialise *state with the seed. */
static inline uint64_t eb_splitmix64_next(uint64_t *state)
{
    return eb_splitmix64_mix(*state += EB_SPLITMIX64_STEP);
}
