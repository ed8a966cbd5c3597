/* Finds the rows or keys of a table that were looked up most in recent times. It is a sketch of
 * fixed size over a sample of the table's indices (Space-Saving: Metwally, Agrawal and El Abbadi
 * 2005). Its counts are halved from time to time.
 *
 * An id that is not kept has less than 1 / EB_HOT_ROWS_KEPT of the samples. An id that is kept has
 * at least hits - over and at most `hits` samples.
 * Thread: one at a time. Memory: part of its owner; empty when zeroed. */
#pragma once

#include "server/stats/stats.h"

#include <stdbool.h>
#include <stdint.h>

#define EB_HOT_ROWS_KEPT 128
/* An id with fewer samples than this is not shown, because it may have been sampled by chance, like
 * any other. */
#define EB_HOT_ROWS_HITS_MIN 8

struct eb_hot_rows {
    uint32_t count;
    uint64_t samples; /* since the start, halved as often as the counts */
    /* Number of indices that one sample represents; set by the owner if sketches are merged. */
    uint64_t indices_per_sample;
    struct eb_hot_rows_kept {
        int64_t id;
        uint32_t hits;
        uint32_t over; /* number of hits that may belong to ids that had this slot before */
    } kept[EB_HOT_ROWS_KEPT];
};

/* Adds a sample. Fewer than 2^32 may be added between halvings. */
void eb_hot_rows_add(struct eb_hot_rows *rows, int64_t id);
/* Halves the weight of everything counted so far. */
void eb_hot_rows_halve(struct eb_hot_rows *rows);

/* An id of one or several sketches. */
struct eb_hot_rows_sum {
    int64_t id;
    uint64_t hits;  /* hits that certainly belong to the id; 0 if the slot is free */
    double indices; /* number of indices that the hits represent */
};

/* Sketches of one table that are being merged: a hash table of ids with open addressing. */
struct eb_hot_rows_merge {
    struct eb_hot_rows_sum *sums; /* [room], zeroed; borrowed */
    size_t room;                  /* eb_hot_rows_room of the number of sketches */
    double indices;
};

/* Returns the room that merging `sketch_count` sketches needs; a power of two. */
size_t eb_hot_rows_room(size_t sketch_count);
void eb_hot_rows_merge(struct eb_hot_rows_merge *merge, const struct eb_hot_rows *rows);
/* Fills in the ids that certainly have the most samples, in descending order, and their shares.
 * A share may be too low, but is never too high. Returns the number of ids. */
size_t eb_hot_rows_top(
    const struct eb_hot_rows_merge *merge, struct eb_stats_hot_row top[EB_STATS_HOT_ROWS]);

/* ---- index sampler ---- */

/* Chooses at random which indices of a stream are sampled: no more than about a thousand per
 * second, whatever the rate; all of them if there are few.
 * Thread: its owner's. Memory: part of its owner. */

/* Length of a window. The indices of one window determine how far apart the samples of the next one
 * are. */
#define EB_INDEX_SAMPLER_WINDOW_NS (UINT64_C(1000000000) / 8)
/* Most samples in a window: 1024 a second. Each costs up to a microsecond. */
#define EB_INDEX_SAMPLER_WINDOW_SAMPLES 128

struct eb_index_sampler {
    uint64_t skip; /* indices to skip before the next sample */
    uint64_t gap;  /* average distance from one sample to the next */
    /* The current window. */
    uint64_t begun_ns;
    uint64_t passed; /* indices that have come so far */
    uint64_t left;   /* samples that may still be taken */
    uint64_t random;
};

void eb_index_sampler_init(struct eb_index_sampler *sampler);
/* Passes `count` indices that come at `now_ns`, which must not decrease. Returns true if the index
 * at position `skip` is the next sample; the caller then calls eb_index_sampler_step. Returns false
 * if none of them is. */
static inline bool eb_index_sampler_pass(
    struct eb_index_sampler *sampler, uint64_t count, uint64_t now_ns);
/* Returns the distance from a sample to the next; at least 1. */
uint64_t eb_index_sampler_step(struct eb_index_sampler *sampler);

/* Begins a new window. Called only by eb_index_sampler_pass. */
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
