/* The finaliser of splitmix64 (Stafford's variant 13 of the finaliser of MurmurHash3): a bijection.
 * Each bit of the result depends on all bits of the argument. Files for one instruction set compute
 * the same function for several numbers at once, with the factors defined here.
 * Thread: pure. Memory: none. */
#pragma once

#include <stdint.h>

#define EB_MIX64_STEP UINT64_C(0x9E3779B97F4A7C15) /* splitmix64 adds this at each step */
#define EB_MIX64_FIRST UINT64_C(0xBF58476D1CE4E5B9)
#define EB_MIX64_SECOND UINT64_C(0x94D049BB133111EB)

static inline uint64_t eb_mix64(uint64_t x)
{
    x = (x ^ x >> 30) * EB_MIX64_FIRST;
    x = (x ^ x >> 27) * EB_MIX64_SECOND;
    return x ^ x >> 31;
}
