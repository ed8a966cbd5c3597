/* Splits a checked query on a table whose rows are divided into sub-queries, one for each part that
 * has rows of it. route_merge.h turns their results into the query's result. What the two compute
 * together is specified in kernels/bag.h ("Tables in parts").
 *
 * A sub-query on rows that are pooled asks for sums (or for maxima or minima) in the accumulator's
 * type, of the bags that have rows in its part. NONE, and the mean of integers, ask for the rows
 * themselves. One more sub-query asks for the row that fills empty bags. A query on a table that
 * lies whole in one part becomes one sub-query, whose result is the query's.
 *
 * Thread: pure. Memory: everything comes from the arena and borrows from the job. */
#pragma once

#include "kernels/bag.h"
#include "proto/arena.h"
#include "server/formats/part_of.h"

/* Bounds of one leg. A bag is never cut, because its sum in a part is made in index order, so a leg
 * with a single bag may exceed them. */
struct eb_route_caps {
    uint64_t request_bytes; /* of indices, weights and lengths */
    uint64_t answer_bytes;  /* of values and positions */
    uint32_t queries;
    /* Of the rows of all consecutive items that one leg covers, as far as they have no memory yet
     * (eb_route_merge_prepare). A single item may exceed it. 0: no limit. */
    uint64_t rows_bytes;
};

/* What a split counts for each part, in memory that serves the splits of several queries in turn.
 * Zero it before the first; it then belongs to the arena of that one, which must serve all. */
struct eb_route_split_counts {
    uint32_t parts;             /* it has room for so many; 0: it has no memory yet */
    uint32_t *numbers;          /* [3 * (parts + 1)] */
    struct eb_route_sub **subs; /* [parts + 1] the sub-query of each part */
};

struct eb_route_query {
    /* The checked job. Its rows are row numbers of the whole table or, if the table is keyed, keys
     * (eb_key_index_remote). It has no results yet. */
    const struct eb_bag_job *job;
    struct eb_part_rule rule;
    enum eb_missing missing; /* policy for the keys that no part has; never UNSPECIFIED */
    int64_t default_index;   /* row or key that fills empty bags, if has_default */
    bool has_default;        /* not set if the default vector or zeros fill empty bags */
    /* Whether the row that replaces missing keys has a key itself, unknown_key. Only route_fetch.h
     * needs to know. */
    bool has_unknown_key;
    int64_t unknown_key;
    bool may_leave_out;                   /* bags may become empty (eb_route_merge_leave_out) */
    bool wants_missing;                   /* the caller wants to know which keys are missing */
    const struct eb_route_caps *caps;     /* sub-queries that exceed them are cut; NULL: none is */
    struct eb_route_split_counts *counts; /* NULL: the split has its own */
};

struct eb_route_sub {
    uint32_t part;
    bool is_default;  /* the sub-query for the row that fills empty bags */
    bool is_whole;    /* it asks for the query's own result, from a table that is not divided */
    bool has_default; /* only if is_whole: it names the row or key that fills empty bags */
    int64_t default_index; /* that row or key */
    enum eb_reduction reduction;
    enum eb_missing missing;
    bool reports_missing; /* its result must list the positions of missing keys */
    enum eb_type output_type;
    enum eb_type weights_type; /* F32, F64 or the integer T */
    uint32_t index_count;
    uint32_t bag_count;  /* rows of its result: index_count with NONE */
    int64_t *indices;    /* [index_count] row numbers within the part, or keys */
    void *weights;       /* [index_count] of weights_type; NULL if there are none */
    int32_t *lengths;    /* [bag_count]; NULL with NONE */
    uint32_t *bags;      /* [bag_count] the job's bag of each of its bags; NULL with NONE */
    uint32_t *positions; /* [index_count] position of each index in the job's rows; NULL for
                            is_default */
    uint32_t result_row; /* first row of its result in the scratch table (route_merge.h) */
};

struct eb_route_split {
    const struct eb_route_query *query;
    bool is_whole; /* the only sub-query asks for the query's own result */
    /* Whether the sub-queries ask for rows that are pooled or copied only when they are merged. */
    bool by_row;
    enum eb_type result_type; /* type of the rows of all results but the default row's */
    uint32_t sub_count;
    /* [sub_count] in order of parts; several of one part have different bags. That of the default
     * row is last. */
    struct eb_route_sub *subs;
    /* The rows in which the table's default vector stands for missing row numbers of a dense table.
     * They lie in no part: this sub-query is computed here, on job->table, as if it were that of a
     * part after the last one. Its indices are EB_ROW_VECTOR. Its index_count may be 0. */
    struct eb_route_sub vectors;
    uint32_t result_row_count; /* rows of all results, without the default row */
};

/* Splits *query, which must outlive *split. The rule's parts are at most EB_PARTS_MAX.
 * Returns false if the arena is full. */
bool eb_route_split(
    const struct eb_route_query *query, struct eb_arena *arena, struct eb_route_split *split);

/* Does the same for a query on a table that lies whole in the part with this number; the rule only
 * says whether the table is keyed. */
bool eb_route_split_whole(const struct eb_route_query *query, uint32_t part, struct eb_arena *arena,
    struct eb_route_split *split);

/* Returns the type of the numbers in which the parts send sums of rows of type T. */
enum eb_type eb_route_sum_type(enum eb_type type);
/* Returns whether the parts of a divided table send the job's rows one by one. */
bool eb_route_is_by_row(const struct eb_bag_job *job);

/* Returns the bytes of a sub-query's arrays in a request. */
uint64_t eb_route_sub_request_bytes(const struct eb_route_sub *sub);
/* Returns the bytes of its values and positions in an answer, with rows of `row_bytes` bytes. */
uint64_t eb_route_sub_answer_bytes(const struct eb_route_sub *sub, uint64_t row_bytes);

/* Returns the number of entries in a job's row list. */
static inline uint32_t eb_route_row_count(const struct eb_bag_job *job)
{
    return job->starts ? job->starts[job->bag_count] : job->bag_count;
}
