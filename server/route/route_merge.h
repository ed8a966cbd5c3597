/* Merges the results of a query's sub-queries (route_split.h). Their rows become a scratch table,
 * and a job on that table computes the query's result: each of its bags lists the rows of the
 * scratch table that belong to it, in the order of the parts.
 *
 * The answers come from other processes, which may be of another release, damaged or hostile: each
 * is checked before it is used.
 *
 * Thread: pure. Memory: everything comes from the arena. */
#pragma once

#include "kernels/bag_ops.h"
#include "proto/message.h"
#include "server/route/route_split.h"

struct eb_route_merge {
    const struct eb_route_split *split;
    uint64_t row_bytes;   /* of a row of the scratch table */
    uint8_t *rows;        /* [result_row_count][row_bytes] */
    bool *is_missing;     /* [rows of the job] keys that no part has; NULL if dense */
    uint8_t *default_row; /* fills empty bags, in the output type; NULL: zeros do */
    uint64_t default_row_bytes;
    uint64_t missing_count;  /* missing keys; of a dense table, those of the job */
    bool is_default_missing; /* the key that fills empty bags is not in the table */
    struct eb_table table;   /* the scratch table */
};

/* Begins. *split and its query must outlive *merge. Computes the default row if it is the default
 * vector, and the rows of `vectors`. Returns false if the arena is full. */
bool eb_route_merge_begin(const struct eb_route_split *split, const struct eb_bag_ops *ops,
    struct eb_arena *arena, struct eb_route_merge *merge);

/* Takes the result of split->subs[number]. Each must be taken once. Returns false with *error set
 * to INTERNAL and a text that names the part if it does not fit the sub-query. */
bool eb_route_merge_take(struct eb_route_merge *merge, uint32_t number,
    const struct eb_wire_result *result, struct eb_error *error);

/* Returns the position in the job's rows of a missing key, the first of those that were found.
 * Returns UINT32_MAX if none is missing. */
uint32_t eb_route_merge_find_missing(const struct eb_route_merge *merge);

/* Sets *job to the one that computes the query's result, once all results have been taken. `out`
 * and `out_stride_bytes` are those of the query's job. Must not be called if the default key is
 * missing, or if a key is missing and the policy is ERROR. Returns false if the arena is full. */
bool eb_route_merge_end(
    struct eb_route_merge *merge, struct eb_arena *arena, struct eb_bag_job *job);

/* Copies the default row over the result's empty bags, once *job has been pooled. */
void eb_route_merge_fill(const struct eb_route_merge *merge, const struct eb_bag_job *job);
