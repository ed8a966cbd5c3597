/* Which rows of a table, or keys, are asked for most lately: a sketch of fixed size over a sample
 * of its indices (Space-Saving: Metwally, Agrawal and El Abbadi 2005), whose counts are halved now
 * and then.
 *
 * An id that is not kept has less than 1 / EB_HOT_ROWS_KEPT of the samples; of those that are kept
 * at least hits - over are the id's own, and at most `hits`.
 * Thread: one at a time. Memory: part of its owner; empty when zeroed. */
#pragma once

#include "server/stats/stats.h"

#include <stdbool.h>
#include <stdint.h>

#define EB_HOT_ROWS_KEPT 128
/* Fewer samples of an id than this say nothing of it: any other could have been there. */
#define EB_HOT_ROWS_HITS_MIN 8

struct eb_hot_rows {
    uint32_t count;
    uint64_t samples; /* since the start, as often halved as what lies behind them */
    /* What a sample stands for, where sketches with others are merged: its owner's. */
    uint64_t indices_per_sample;
    struct eb_hot_rows_kept {
        int64_t id;
        uint32_t hits;
        uint32_t over; /* of these: those of ids that had the place before, at most */
    } kept[EB_HOT_ROWS_KEPT];
};

/* One more sample. There are less than 2^32 between halvings. */
void eb_hot_rows_add(struct eb_hot_rows *rows, int64_t id);
/* What has been counted until now weighs half as much from now on. */
void eb_hot_rows_halve(struct eb_hot_rows *rows);

/* An id of one sketch or of several. */
struct eb_hot_rows_sum {
    int64_t id;
    uint64_t hits;  /* surely its own; 0: the place is free */
    double indices; /* that they stand for */
};

/* Sketches of one table that are being merged: ids by open addressing. */
struct eb_hot_rows_merge {
    struct eb_hot_rows_sum *sums; /* [room], zeroed; borrowed */
    size_t room;                  /* eb_hot_rows_room of so many sketches */
    double indices;
};

/* A power of two. */
size_t eb_hot_rows_room(size_t sketch_count);
void eb_hot_rows_merge(struct eb_hot_rows_merge *merge, const struct eb_hot_rows *rows);
/* The ids that surely have most, most first, and their shares, which are rather too small than too
 * large. Returns how many there are. */
size_t eb_hot_rows_top(
    const struct eb_hot_rows_merge *merge, struct eb_stats_hot_row top[EB_STATS_HOT_ROWS]);

/* ---- index sampler ---- */

/* Which of a stream of indices are looked at: one of so many, by chance, that no more than a
 * thousand in a second are, whatever comes; all of them where few come.
 * Thread: its owner's. Memory: part of its owner. */

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
