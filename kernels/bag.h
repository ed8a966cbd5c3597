/* The operation: bags of row numbers (or keys, for a keyed table) in, pooled rows out (OpenVINO's
 * EmbeddingBagOffsets-15, EmbeddingBagPacked-15 and EmbeddingSegmentsSum-3, PyTorch's
 * EmbeddingBag).
 *
 * A lookup goes through three steps. `eb_bag_measure` looks at sizes only and says how large
 * result and scratch will be; `eb_bag_check` reads every bound and index once and brings all
 * layouts to one internal form; `eb_bag_pool` (bag_ops.h) computes, and cannot fail.
 *
 * In pseudocode, for each bag and each element of a row, with rows i of the bag in index order, x
 * the row's element and w its weight:
 *
 *   SUM             acc = -0.0;  each row: acc = acc + x, weighted acc = fma(w, x, acc)
 *   MEAN            SUM / n
 *   WEIGHTED_MEAN   SUM / (sum of w), +0 where that is 0; w is 1 where none are given
 *   SQRTN           SUM / sqrt(sum of w^2 by fma), +0 where that is 0
 *   MAX             acc = first x;  each further row: if (x > acc or x is NaN) acc = x
 *   MIN             the same with <
 *   NONE            x, weighted w * x: a bag for every index
 *   empty bag       the default row's x, or +0
 *   EB_ROW_ZERO     x = +0, and acc = acc + x even if weighted; counts in n and the sums of w
 *
 * Of rows of codes q with scale s and bias b, whose value is x = fma(s, q, b), SUM keeps the bias
 * apart, one sum for the whole bag:
 *
 *   SUM             acc = B = -0.0;  each row: acc = fma(s, q, acc), B = B + b,
 *                   weighted acc = fma(w * s, q, acc), B = fma(w, b, B);  the sum is acc + B
 *   EB_ROW_ZERO     acc = acc + 0, B = B + 0
 *
 * Rounding: acc, n and the sums of w are f32 for f32, f16, bf16, fp8 and codes, f64 for f64, each
 * operation rounded once, to nearest, ties to even; subnormals are kept. One more rounding stores
 * the output type. Computed NaNs become the canonical one; unweighted NONE and default rows that
 * are put out as they are stored are copies. Integers wrap modulo 2^bits of T; their MEAN divides
 * the exact sum (64 bits: the wrapped one) and truncates. The bits of a result depend on nothing
 * else: not on the instruction set, the threads, the layout or the cut into tiles.
 *
 * Thread: all functions are pure; a job is immutable once checked, so any number of threads may
 * pool disjoint ranges of its bags. Memory: nothing is allocated; scratch, result and the arrays
 * of the query are the caller's and must outlive the job. */
#pragma once

#include "kernels/id_map.h"
#include "kernels/table.h"

#include <stdint.h>

/* X(NAME, number, text). Numbers are those of embag.v1.Reduction, .Missing and .BagLayout. */
#define EB_REDUCTION_LIST(X)                                                                       \
    X(SUM, 1, "SUM")                                                                               \
    X(MEAN, 2, "MEAN")                                                                             \
    X(WEIGHTED_MEAN, 3, "WEIGHTED_MEAN")                                                           \
    X(SQRTN, 4, "SQRTN")                                                                           \
    X(MAX, 5, "MAX")                                                                               \
    X(MIN, 6, "MIN")                                                                               \
    X(NONE, 7, "NONE")

#define EB_MISSING_LIST(X)                                                                         \
    X(ERROR, 1, "ERROR")                                                                           \
    X(SKIP, 2, "SKIP")                                                                             \
    X(ZERO, 3, "ZERO")                                                                             \
    X(UNKNOWN_ROW, 4, "UNKNOWN_ROW")

#define EB_LAYOUT_LIST(X)                                                                          \
    X(OFFSETS, 1, "OFFSETS")                                                                       \
    X(LENGTHS, 2, "LENGTHS")                                                                       \
    X(PACKED, 3, "PACKED")                                                                         \
    X(SEGMENTS, 4, "SEGMENTS")

#define X(name, number, text) EB_REDUCTION_##name = number,
enum eb_reduction { EB_REDUCTION_UNSPECIFIED = 0, EB_REDUCTION_LIST(X) EB_REDUCTION_COUNT };
#undef X
#define X(name, number, text) EB_MISSING_##name = number,
enum eb_missing { EB_MISSING_UNSPECIFIED = 0, EB_MISSING_LIST(X) EB_MISSING_COUNT };
#undef X
#define X(name, number, text) EB_LAYOUT_##name = number,
enum eb_layout { EB_LAYOUT_UNSPECIFIED = 0, EB_LAYOUT_LIST(X) EB_LAYOUT_COUNT };
#undef X

const char *eb_reduction_name(enum eb_reduction reduction);

/* Most indices, and most bags, of one query. 2^24 keeps every count exact in f32, so that a mean
 * divides by the number of its rows, and lets bag starts be 32 bits wide. */
#define EB_BAG_INDICES_MAX (UINT64_C(1) << 24)
#define EB_BAG_BAGS_MAX (UINT64_C(1) << 24)

/* The functions of one instruction set (bag_ops.h). */
struct eb_bag_ops;

/* An array of little-endian integers as it came off the wire: any alignment. */
struct eb_int_array {
    const void *data; /* may be NULL where bytes is 0 */
    uint64_t bytes;
    uint32_t width; /* 4 (int32) or 8 (int64); where bytes is 0 it may be 0 */
};

/* What the table, reduction, missing and output_type of a query decide, whatever its arrays are. */
struct eb_bag_kind {
    uint64_t result_row_bytes;
    /* What reading a row of the table touches: its bytes, and its scale's. */
    uint64_t gather_row_bytes;
    enum eb_type output_type; /* never unspecified */
};

/* What a caller says. Enums must be valid and specified, but for `layout` (unspecified: no layout
 * was given) and `output_type` (unspecified: T); everything else may be anything a peer sends. */
struct eb_bag_query {
    const struct eb_table *table;
    /* By eb_bag_kind_find of a query of the same table, reduction, missing and output_type; NULL:
     * to be found by eb_bag_measure. */
    const struct eb_bag_kind *kind;
    const struct eb_id_map *id_map; /* borrowed; NULL: none, as always for a keyed table */
    uint64_t max_ids;               /* indices of one bag; 0: as many as there are. Not with NONE */
    int64_t default_index;          /* a row number or a key, which no id map changes */
    enum eb_reduction reduction;
    enum eb_missing missing;
    enum eb_type output_type;
    enum eb_layout layout;
    struct eb_int_array indices; /* [num_indices] or [bags * indices_per_bag] */
    struct eb_int_array bounds;  /* offsets, lengths or segment ids, as layout says */
    uint64_t num_segments;       /* SEGMENTS */
    uint64_t num_bags;           /* 0: not said; else must agree, or says what the rest cannot */
    uint64_t indices_per_bag;    /* PACKED */
    const void *weights;         /* [num_indices] of weights_type, any alignment; NULL: none */
    uint64_t weights_bytes;
    enum eb_type weights_type; /* T, or F32 where T is a floating-point type */
    bool include_last_offset;  /* bounds has one entry more than there are bags */
    bool has_default;          /* default_index is given */
};

/* Sizes of a query's result and of what computing it needs; no product of them overflows. */
struct eb_bag_extent {
    uint64_t index_count;
    uint64_t result_rows; /* bags; NONE: index_count */
    uint64_t result_row_bytes;
    enum eb_type output_type;
    uint64_t gather_row_bytes; /* as of its kind */
    /* For eb_bag_check, a multiple of 64: 8 per index, 4 more with weights (8 for f64 and
     * integers), 4 per bag; row numbers, then weights, then bag starts. */
    uint64_t scratch_bytes;
    uint64_t weights_offset; /* in the scratch; 0: no weights */
    uint64_t starts_offset;
};

/* What kind of error an error is. */
enum eb_bag_error_class {
    EB_BAG_ERROR_MALFORMED,    /* sizes or a combination that make no sense */
    EB_BAG_ERROR_OUT_OF_RANGE, /* an index, segment id or default index that names nothing */
    EB_BAG_ERROR_TOO_LARGE     /* past EB_BAG_INDICES_MAX or EB_BAG_BAGS_MAX */
};

#define EB_BAG_ERROR_TEXT_BYTES 256

/* The first thing wrong with a query: class and text such as
 * "offsets[17] = 41 is less than offsets[16] = 52". */
struct eb_bag_error {
    enum eb_bag_error_class class;
    char text[EB_BAG_ERROR_TEXT_BYTES];
};

/* A checked query in internal form. The caller sets `scratch` before eb_bag_check, which fills the
 * rest, but for `out` and `out_stride_bytes`, which the caller sets before pooling. Everything else
 * is read-only. */
struct eb_bag_job {
    void *scratch; /* the extent's scratch_bytes, aligned to 64; may be NULL where that is 0 */
    const struct eb_table *table;
    const int64_t *rows;    /* [row list] row number, or EB_ROW_ZERO; bags one after the other */
    const void *weights;    /* beside rows, aligned, in the accumulator's type; NULL: none */
    const uint32_t *starts; /* [bag_count + 1] into rows; NULL for NONE: bag b is rows[b] alone */
    uint32_t bag_count;     /* rows of the result */
    enum eb_reduction reduction;
    enum eb_type output_type;
    int64_t default_row;    /* fills empty bags; -1: zeros */
    uint64_t missing_count; /* checked indices that name no row */
    uint64_t gather_bytes;  /* bytes of rows and scales that pooling touches: the job's weight */
    uint8_t *out;           /* result row b at out + b * out_stride_bytes; any alignment */
    uint64_t out_stride_bytes;
};

/* In eb_bag_job.rows: an exact +0 row in place of a missing one. */
#define EB_ROW_ZERO INT64_C(-1)

/* false: no query of this kind is sound; *error is set and nothing else. */
bool eb_bag_kind_find(
    const struct eb_bag_query *query, struct eb_bag_kind *kind, struct eb_bag_error *error);

/* Checks sizes and combinations only, in constant time. With NONE the layout's fields and num_bags
 * are not looked at. false: *error is set and nothing else. */
bool eb_bag_measure(
    const struct eb_bag_query *query, struct eb_bag_extent *extent, struct eb_bag_error *error);

/* Checks the layout values, then default_index, then the indices, and fills *job, whose scratch
 * belongs to it afterwards. Reads every bound and every index inside a bag, or every index if the
 * array of offsets is empty; reads indices twice if some are missing or if segment ids are not
 * sorted. `extent` is what eb_bag_measure gave for the same query. Returns false with the query's
 * first error in *error; *job is then unchanged except for the contents of its scratch. The outcome
 * does not depend on the ops. */
bool eb_bag_check(const struct eb_bag_ops *ops, const struct eb_bag_query *query,
    const struct eb_bag_extent *extent, struct eb_bag_job *job, struct eb_bag_error *error);
