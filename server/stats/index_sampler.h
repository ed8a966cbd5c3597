/* Which of a stream of indices are looked at: one of so many, by chance, that no more than a
 * thousand in a second are, whatever comes; all of them where few come.
 * Thread: its owner's. Memory: part of its owner. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* By what came in one window the next one's samples are spread. */
#define EB_INDEX_SAMPLER_WINDOW_NS (UINT64_C(1000000000) / 8)
/* Most that are taken in a window: 1024 in a second, each of which costs up to a microsecond. */
#define EB_INDEX_SAMPLER_WINDOW_SAMPLES 128

struct eb_index_sampler {
    uint64_t skip; /* indices to pass over before the next sample */
    uint64_t gap;  /* from one sample to the next, about */
    /* Of the window. */
    uint64_t begun_ns;
    uint64_t passed; /* indices */
    uint64_t left;   /* samples that may still be taken */
    uint64_t random;
};

void eb_index_sampler_init(struct eb_index_sampler *sampler);
/* So many indices come at `now_ns`, which must not run back. true: the one at position `skip` is
 * the next sample, to be followed by eb_index_sampler_step; false: none of them is. */
static inline bool eb_index_sampler_pass(
    struct eb_index_sampler *sampler, uint64_t count, uint64_t now_ns);
/* How far behind a sample the next one is; at least 1. */
uint64_t eb_index_sampler_step(struct eb_index_sampler *sampler);

/* For eb_index_sampler_pass: a window is over. */
void eb_index_sampler_begin(struct eb_index_sampler *sampler, uint64_t now_ns);

static inline bool eb_index_sampler_pass(
    struct eb_index_sampler *sampler, uint64_t count, uint64_t now_ns)
{
    if (now_ns - sampler->begun_ns >= EB_INDEX_SAMPLER_WINDOW_NS) {
        eb_index_sampler_begin(sampler, now_ns);
    }
    sampler->passed += count;
    if (sampler->skip >= count) {
        sampler->skip -= count;
        return false;
    }
    return true;
}
