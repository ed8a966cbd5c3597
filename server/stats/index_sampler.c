#include "server/stats/index_sampler.h"

/* Further than any window goes. */
#define NO_MORE (UINT64_C(1) << 62)

void eb_index_sampler_init(struct eb_index_sampler *sampler)
{
    *sampler = (struct eb_index_sampler){.gap = 1, .random = UINT64_C(0x9E3779B97F4A7C15)};
}

/* Marsaglia's xorshift: good enough that no client's regularity is met. */
static uint64_t roll(struct eb_index_sampler *sampler)
{
    uint64_t random = sampler->random;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    sampler->random = random;
    return random >> 16;
}

void eb_index_sampler_begin(struct eb_index_sampler *sampler, uint64_t now_ns)
{
    const uint64_t windows = (now_ns - sampler->begun_ns) / EB_INDEX_SAMPLER_WINDOW_NS;
    sampler->gap = sampler->passed / windows / EB_INDEX_SAMPLER_WINDOW_SAMPLES + 1;
    sampler->begun_ns = now_ns;
    sampler->passed = 0;
    sampler->left = EB_INDEX_SAMPLER_WINDOW_SAMPLES;
    sampler->skip = roll(sampler) % sampler->gap;
}

uint64_t eb_index_sampler_step(struct eb_index_sampler *sampler)
{
    sampler->left--;
    return sampler->left == 0 ? NO_MORE : 1 + roll(sampler) % (2 * sampler->gap - 1);
}
