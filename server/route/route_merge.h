/* Merges the results of a query's sub-queries (route_split.h). Their rows become a scratch table,
 * and a job on that table computes the query's result: each of its bags lists the rows of the
 * scratch table that belong to it, in the order of the parts.
 *
 * The answers come from other processes, which may be of another release, damaged or hostile: each
 * is checked before it is used.
 *
 * Thread: pure. Memory: everything but the rows of a merge that is only prepared comes from the
 * arena. */
#pragma once

#include "kernels/bag_ops.h"
#include "proto/message.h"
#include "server/route/route_split.h"

struct eb_route_merge {
    const struct eb_route_split *split;
    const struct eb_bag_ops *ops;
    uint64_t row_bytes;   /* of a row of the scratch table */
    uint8_t *rows;        /* [result_row_count][row_bytes] */
    bool *is_missing;     /* [rows of the job] keys that no part has; NULL if dense */
    bool *is_unreached;   /* [rows of the job] rows of parts that were left out; NULL: none were */
    uint8_t *default_row; /* fills empty bags, in the output type; NULL: zeros do */
    uint64_t default_row_bytes;
    uint64_t missing_count;   /* missing keys; of a dense table, those of the job */
    uint64_t *taken_missing;  /* [split->sub_count] missing keys of the results that were taken */
    uint64_t unreached_count; /* rows of parts that were left out */
    uint64_t stand_in_count;  /* those that may replace missing row numbers */
    /* The row that fills empty bags was left out; of a whole table: and a bag needs it. */
    bool is_default_left_out;
    bool is_default_missing; /* the key that fills empty bags is not in the table */
    bool *lacks_default;     /* [split->sub_count] results that say so */
    struct eb_table table;   /* the scratch table */
};

/* Begins without memory for the rows. *split and its query must outlive *merge. Computes the
 * default row if it is the default vector. Returns false if the arena is full. */
bool eb_route_merge_prepare(const struct eb_route_split *split, const struct eb_bag_ops *ops,
    struct eb_arena *arena, struct eb_route_merge *merge);
/* Returns the bytes of the scratch table's rows. */
uint64_t eb_route_merge_rows_bytes(const struct eb_route_merge *merge);
/* Sets the memory for these rows, aligned as the arena's, before the first result is taken. It must
 * stay until the query's result has been computed. Computes the rows of `vectors`. Returns false if
 * the arena is full. */
bool eb_route_merge_set_rows(struct eb_route_merge *merge, const struct eb_bag_ops *ops,
    struct eb_arena *arena, uint8_t *rows);
/* Begins, with rows from the arena. */
bool eb_route_merge_begin(const struct eb_route_split *split, const struct eb_bag_ops *ops,
    struct eb_arena *arena, struct eb_route_merge *merge);

/* Takes the result of split->subs[number]. Each must be taken or left out; one that is taken again
 * replaces the former. Returns false with *error set to INTERNAL and a text that names the part if
 * it does not fit the sub-query. */
bool eb_route_merge_take(struct eb_route_merge *merge, uint32_t number,
    const struct eb_wire_result *result, struct eb_error *error);

/* Leaves out the rows of split->subs[number], whose part cannot be reached: they count as skipped.
 * Where the result has a row for each index, theirs is zero; so is a default row there. The default
 * vector and the zeros that a whole table has in place of missing rows are not left out. The rows
 * may be set later, unless the table is whole. Returns false if the arena is full. */
bool eb_route_merge_leave_out(
    struct eb_route_merge *merge, uint32_t number, struct eb_arena *arena);

/* Sets *job to the one that computes the query's result, once all results have been taken. `out`
 * and `out_stride_bytes` are those of the query's job. Must not be called if the default key is
 * missing, or if a key is missing and the policy is ERROR. Returns false if the arena is full. */
bool eb_route_merge_end(
    struct eb_route_merge *merge, struct eb_arena *arena, struct eb_bag_job *job);

/* Copies the default row over the result's empty bags, once *job has been pooled. */
void eb_route_merge_fill(const struct eb_route_merge *merge, const struct eb_bag_job *job);

/* Returns whether an empty bag of *job is zeros because the row that fills it was left out. */
bool eb_route_merge_lacks_default(const struct eb_route_merge *merge, const struct eb_bag_job *job);
/* Returns whether a row of a dense table may be in the job in place of a missing row number. */
bool eb_route_merge_is_stand_in(const struct eb_route_merge *merge, int64_t row);
