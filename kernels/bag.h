/* The operation: it takes bags of row numbers (or of keys, for a keyed table) and pools the rows of
 * each bag. It covers OpenVINO's EmbeddingBagOffsets-15, EmbeddingBagPacked-15 and
 * EmbeddingSegmentsSum-3, and PyTorch's EmbeddingBag.
 *
 * A lookup takes three steps. `eb_bag_measure` uses only sizes, and computes how large the result
 * and the scratch will be. `eb_bag_check` reads the bounds and indices and brings all layouts to
 * one internal form. `eb_bag_pool` (bag_stream.h) computes, and cannot fail.
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
 *   empty bag       the default row's x, or that of the table's default vector, or +0
 *   EB_ROW_ZERO     x = +0, and acc = acc + x even if weighted; counts in n and the sums of w
 *   EB_ROW_VECTOR   x is an element of the table's default vector, which is read like a row of a
 *                   table stored as T
 *
 * For rows of codes q with scale s and bias b, a value is x = fma(s, q, b), and SUM adds up the
 * biases separately, in one sum B for the whole bag:
 *
 *   SUM             acc = B = -0.0;  each row: acc = fma(s, q, acc), B = B + b,
 *                   weighted acc = fma(w * s, q, acc), B = fma(w, b, B);  the sum is acc + B
 *   EB_ROW_ZERO     acc = acc + 0, B = B + 0
 *   EB_ROW_VECTOR   acc = acc + x, weighted acc = fma(w, x, acc);  B stays as it is
 *
 * Rounding: acc, n and the sums of w are f32 for f32, f16, bf16, fp8 and codes, and f64 for f64.
 * Each operation is rounded once, to nearest, ties to even; subnormals are kept. Storing the output
 * type rounds once more. Computed NaNs become the canonical one. Rows of an unweighted NONE, and
 * default rows, are copies if the table is stored as the output type, and a default vector that
 * fills an empty bag is a copy if T is the output type. Integers wrap modulo 2^bits of T. Their
 * MEAN divides the exact sum (64 bits: the wrapped one) and truncates. The bits of a result depend
 * on nothing else: not on the instruction set, the threads, the layout or the cut into tiles.
 *
 * Tables in parts. The rows of a table may be divided among P parts, on several servers
 * (server/formats/part_of.h). The rows of a bag that lie in part p are summed as above, in index
 * order, which gives S_p in the accumulator's type (for codes acc + B, rounded). Then
 *
 *   SUM             acc = -0.0;  each p = 0 .. P - 1 in which the bag has rows: acc = acc + S_p
 *   MAX, MIN        their rule, applied to the results of the parts in order of p
 *
 * and the steps after a sum follow as above. n and the sums of w are taken over the whole bag, in
 * index order. The mean of integers divides the exact sum of the whole bag. A missing row number is
 * replaced by the unknown row before its part is found. A missing key under UNKNOWN_ROW belongs to
 * the part of the key. EB_ROW_VECTOR rows of a table without keys lie in no part: they are one more
 * part after the last one. EB_ROW_ZERO rows lie in no part: if a bag has any, acc = acc + 0 comes
 * last, or +0 is the last value of MAX and MIN. So the bits depend only on the request and on the
 * version, to which P belongs. They are those of the undivided table for NONE, for empty bags and
 * for integers; and if all rows of a bag lie in one part, but for the sign of zeros if some are
 * EB_ROW_ZERO. MAX and MIN always have them, but for the sign of zeros.
 *
 * Thread: all functions are pure. A checked job is immutable, so any number of threads may pool
 * disjoint ranges of its bags. Memory: nothing is allocated. Scratch, result and the query's arrays
 * are the caller's. They must outlive the job, and the arrays must not change, because a checked
 * job may read row numbers from them. */
#pragma once

#include "kernels/bag_schedule.h"
#include "kernels/id_map.h"

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

/* An array of little-endian integers as it was received, at any alignment. */
struct eb_int_array {
    const void *data; /* may be NULL if bytes is 0 */
    uint64_t bytes;
    uint32_t width; /* 4 (int32) or 8 (int64); may be 0 if bytes is 0 */
};

/* The properties of a query that depend only on its table, reduction, missing and output_type. */
struct eb_bag_kind {
    uint64_t result_row_bytes;
    /* Bytes that reading a row of the table touches: those of the row and of its scale. */
    uint64_t gather_row_bytes;
    struct eb_bag_lines lines; /* of whole rows */
    enum eb_type output_type;  /* never unspecified */
};

/* A query as its caller gives it. Enums must be valid. Only two of them may be unspecified:
 * `layout` if no layout was given, and `output_type`, which then is T. Everything else may be
 * anything that a peer sends. */
struct eb_bag_query {
    const struct eb_table *table;
    /* The kind that eb_bag_kind_find found for a query with the same table, reduction, missing and
     * output_type. If it is NULL, eb_bag_measure finds the kind. */
    const struct eb_bag_kind *kind;
    const struct eb_id_map *id_map; /* borrowed; NULL if none; always NULL for a keyed table */
    uint64_t max_ids;      /* most indices of one bag; 0 means no limit. Not used with NONE */
    int64_t default_index; /* a row number or a key; no id map changes it */
    enum eb_reduction reduction;
    enum eb_missing missing;
    enum eb_type output_type;
    enum eb_layout layout;
    struct eb_int_array indices; /* [num_indices] or [bags * indices_per_bag] */
    struct eb_int_array bounds;  /* offsets, lengths or segment ids, as layout says */
    uint64_t num_segments;       /* number of bags, with SEGMENTS */
    uint64_t num_bags; /* number of bags if the layout does not determine it; if the layout does,
                          num_bags must agree with the layout, or be 0 (not given) */
    uint64_t indices_per_bag; /* number of indices of each bag, with PACKED */
    const void *weights;      /* [num_indices] of weights_type, at any alignment; NULL if none */
    uint64_t weights_bytes;
    enum eb_type weights_type; /* T, or F32 if T is a floating-point type */
    bool include_last_offset;  /* bounds has one entry more than there are bags */
    bool has_default; /* whether default_index is given; if not, empty bags get the table's default
                         vector or, if it has none, zeros */
};

/* The sizes of a query's result and of the memory that computing it needs. No product of them
 * overflows. */
struct eb_bag_extent {
    uint64_t index_count;
    uint64_t result_rows; /* number of bags; index_count with NONE */
    uint64_t result_row_bytes;
    enum eb_type output_type;
    uint64_t gather_row_bytes; /* gather_row_bytes of the query's kind */
    struct eb_bag_lines lines; /* lines of the query's kind */
    /* Size of the scratch for eb_bag_check, a multiple of 64: 8 bytes per index, 4 more with
     * weights (8 for f64 and integers), 4 per bag. Row numbers come first, then weights, then bag
     * starts. */
    uint64_t scratch_bytes;
    uint64_t weights_offset; /* offset in the scratch; 0 if there are no weights */
    uint64_t starts_offset;
};

/* The class of an error. */
enum eb_bag_error_class {
    EB_BAG_ERROR_MALFORMED,    /* sizes, or a combination of fields, that make no sense */
    EB_BAG_ERROR_OUT_OF_RANGE, /* an index, segment id or default index that names nothing */
    EB_BAG_ERROR_TOO_LARGE     /* more than EB_BAG_INDICES_MAX or EB_BAG_BAGS_MAX */
};

#define EB_BAG_ERROR_TEXT_BYTES 256

/* The first error in a query: its class, and a text such as "offsets[17] = 41 is less than
 * offsets[16] = 52". */
struct eb_bag_error {
    enum eb_bag_error_class class;
    char text[EB_BAG_ERROR_TEXT_BYTES];
};

/* A row number, EB_ROW_ZERO or EB_ROW_VECTOR, at any alignment: checked indices may lie where they
 * were received. */
typedef int64_t eb_bag_row __attribute__((aligned(1), may_alias));

/* A checked query in internal form. The caller sets `scratch` before eb_bag_check, which fills in
 * the rest, except `out` and `out_stride_bytes`: the caller sets them before pooling. Everything
 * else is read-only. */
struct eb_bag_job {
    void *scratch; /* [scratch_bytes of the extent], aligned to 64; may be NULL if scratch_bytes is
                      0 */
    const struct eb_table *table;
    struct eb_bag_lines lines; /* of the table's whole rows */
    /* [row list] row numbers, EB_ROW_ZERO or EB_ROW_VECTOR, bag after bag; in the scratch or, if
     * the query's indices are these numbers, among the indices */
    const eb_bag_row *rows;
    const void *weights;    /* parallel to rows, aligned, in the accumulator's type; NULL if none */
    const uint32_t *starts; /* [bag_count + 1] into rows; NULL for NONE: bag b is rows[b] alone */
    uint32_t bag_count;     /* count of rows in the result */
    enum eb_reduction reduction;
    enum eb_type output_type;
    bool has_zero_rows;     /* whether EB_ROW_ZERO may be among the rows */
    bool has_vector_rows;   /* whether EB_ROW_VECTOR may be among the rows */
    int64_t default_row;    /* row for empty bags, or EB_ROW_VECTOR; -1 means zeros */
    uint64_t missing_count; /* count of checked indices that name no row */
    uint64_t gather_bytes;  /* bytes of rows and scales that pooling touches: the job's weight */
    uint8_t *out;           /* result row b at out + b * out_stride_bytes; any alignment */
    uint64_t out_stride_bytes;
    /* [bag_count] in the accumulator's type: divides the sums of bags that are not empty, in place
     * of the divisor that their own rows would give, with MEAN, WEIGHTED_MEAN and SQRTN of
     * floating-point tables. NULL except in a job that merges the sums of parts. */
    const void *divisors;
};

/* A row number in eb_bag_job.rows: a row of exact +0 in place of a missing one. */
#define EB_ROW_ZERO INT64_C(-1)

/* Finds the kind of a query. If no query of this kind is sound, returns false and sets only
 * *error. */
bool eb_bag_kind_find(
    const struct eb_bag_query *query, struct eb_bag_kind *kind, struct eb_bag_error *error);

/* Checks sizes and combinations only, in constant time. With NONE the layout's fields and num_bags
 * are ignored. On failure returns false and sets only *error. */
bool eb_bag_measure(
    const struct eb_bag_query *query, struct eb_bag_extent *extent, struct eb_bag_error *error);

/* Checks the layout's values, then default_index, then the indices, and fills in *job. The scratch
 * then belongs to the job, which may also point into the query's indices. Reads every bound and
 * every index inside a bag, or every index if the array of offsets is empty. Reads indices twice if
 * some are missing or if segment ids are not sorted. `extent` must be what eb_bag_measure returned
 * for the same query. On failure returns false with the query's first error in *error, and changes
 * nothing of the job but the contents of its scratch. The outcome does not depend on `ops`. */
bool eb_bag_check(const struct eb_bag_ops *ops, const struct eb_bag_query *query,
    const struct eb_bag_extent *extent, struct eb_bag_job *job, struct eb_bag_error *error);

/* Writes the positions of the first `count` checked indices that name no row of the table, each
 * plus `base`, in ascending order; `count` is at most the checked job's missing_count. */
void eb_bag_list_missing(
    const struct eb_bag_query *query, uint32_t base, uint64_t count, uint32_t *positions);
