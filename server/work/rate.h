/* How fast a thread computes tiles, as measured.
 * Thread: whoever holds its lock. Memory: none. */
#pragma once

#include <stdint.h>

/* What is assumed until tiles have been measured: gathering from memory. */
#define EB_RATE_DEFAULT_BYTES_PER_US 8192
/* How many tiles the average remembers: each new one weighs 1 / EB_RATE_TILES. */
#define EB_RATE_TILES 64
/* A tile counts as at most so many times slower than the average: a thread that was not run for a
 * while says nothing about the next tiles. */
#define EB_RATE_SLOWER_MAX 8

/* Exponentially weighted sums. */
struct eb_rate {
    uint64_t bytes;
    uint64_t ns;
};

void eb_rate_init(struct eb_rate *rate);
/* A tile of that many bytes took one thread that long. */
void eb_rate_add(struct eb_rate *rate, uint64_t bytes, uint64_t ns);
/* Of one thread; at least 1. */
uint64_t eb_rate_bytes_per_us(const struct eb_rate *rate);
