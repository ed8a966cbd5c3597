/* Which rows of a table, or keys, are asked for most lately: a sketch of fixed size over a sample
 * of its indices (Space-Saving: Metwally, Agrawal and El Abbadi 2005), whose counts are halved now
 * and then.
 *
 * An id that is not kept has less than 1 / EB_HOT_ROWS_KEPT of the samples; of those that are kept
 * at least hits - over are the id's own, and at most `hits`.
 * Thread: one at a time. Memory: part of its owner; empty when zeroed. */
#pragma once

#include "server/stats/stats.h"

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
