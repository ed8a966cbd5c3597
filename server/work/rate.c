#include "server/work/rate.h"

#include "server/work/work.h"

/* What is assumed weighs as much as what will be remembered. */
#define ASSUMED_BYTES (UINT64_C(1) * EB_RATE_TILES * EB_WORK_TILE_BYTES)

void eb_rate_init(struct eb_rate *rate)
{
    *rate = (struct eb_rate){
        .bytes = ASSUMED_BYTES,
        .ns = ASSUMED_BYTES * 1000 / EB_RATE_DEFAULT_BYTES_PER_US,
    };
}

void eb_rate_add(struct eb_rate *rate, uint64_t bytes, uint64_t ns)
{
    uint64_t ns_max = (bytes * 1000 / eb_rate_bytes_per_us(rate) + 1) * EB_RATE_SLOWER_MAX;
    rate->bytes += bytes - rate->bytes / EB_RATE_TILES;
    rate->ns += (ns < ns_max ? ns : ns_max) - rate->ns / EB_RATE_TILES;
}

uint64_t eb_rate_bytes_per_us(const struct eb_rate *rate)
{
    uint64_t bytes_per_us = rate->bytes * 1000 / (rate->ns + 1);
    return bytes_per_us > 0 ? bytes_per_us : 1;
}
