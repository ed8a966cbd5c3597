/* The rows of a checked job one by one, without pooling them. A router needs them in this form for
 * the lists of a sequence lookup (kernels/bag_sequence.h): which rows these list depends on which
 * keys are missing, and only the parts know that. It also learns in this way which keys are missing
 * among those that lie in no bag.
 *
 * eb_route_fetch_begin makes a job of NONE for the distinct rows. That job is split and merged like
 * any other, with `wants_missing`. Then eb_route_fetch_end puts the rows that came into the row
 * list of the checked job, as if they had been here when it was checked.
 *
 * Thread: pure. Memory: everything comes from the arena and borrows from the checked job. */
#pragma once

#include "server/route/route_merge.h"

struct eb_route_fetch {
    /* NONE, with each row or key once. If the checked job has weights, all its rows with their
     * weights, because the parts multiply the rows by them. */
    struct eb_bag_job job;
    uint32_t row_count;      /* length of the checked job's row list */
    const uint32_t *numbers; /* [row_count] index in job.rows of each row of that list */
};

/* Begins to fetch the first `row_count` rows of the checked job's row list, whether or not they lie
 * in bags. Returns false if the arena is full. */
bool eb_route_fetch_begin(const struct eb_bag_job *checked, uint32_t row_count,
    struct eb_arena *arena, struct eb_route_fetch *fetch);

/* Replaces the row list of *job, the checked job, by rows of merge->table, once all results have
 * been taken. Rows of missing keys are treated as the policy says. Rows of parts that were left out
 * leave their bags; *unreached_count is their number. The job keeps its reduction and its scratch,
 * and has no weights. Must not be called if a key is missing and the policy is ERROR. Returns false
 * if the arena is full. */
bool eb_route_fetch_end(const struct eb_route_fetch *fetch, struct eb_route_merge *merge,
    struct eb_arena *arena, struct eb_bag_job *job, uint64_t *unreached_count);
