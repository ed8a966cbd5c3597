/* Sequences: the rows of each bag without pooling, and the number of rows of each bag. A
 * recommender reads a history of clicks in this way.
 *
 * A sequence lookup consists of a query of SUM, which eb_bag_measure and eb_bag_check treat like
 * any other, and an eb_bag_sequence. Its job is then turned into a job of NONE. Rows of each bag
 * stay in index order, and these members choose them:
 *
 *   max_len      each bag keeps its last max_len rows, or the first ones with keep_first
 *   pad          each bag gets rows of exact +0 at its end, up to max_len rows
 *   unique       each row of the query stays only where it occurs first
 *
 * Rows that SKIP leaves out are removed before max_len is applied. Every index in a bag is checked,
 * even if max_len then drops its row. Empty bags have no rows; the default row is checked but not
 * used.
 *
 * Thread: all functions are pure. Memory: nothing is allocated; scratch and lists are the caller's.
 */
#pragma once

#include "kernels/bag.h"

/* Most rows of a table whose rows can be made unique. With this limit a row and its position fit in
 * 64 bits while they are sorted. */
#define EB_BAG_UNIQUE_ROWS_MAX ((UINT64_C(1) << 40) - 2)

/* The rows of its bags that a sequence lookup returns. All zero: all rows. */
struct eb_bag_sequence {
    uint32_t max_len; /* most rows of a bag; 0: no limit */
    bool keep_first;  /* a longer bag keeps its first rows, not its last; only with max_len */
    bool pad;         /* every bag has max_len rows; only with max_len */
    bool unique;      /* each row once; not with pad or weights */
};

/* The sizes of a sequence lookup. */
struct eb_bag_sequence_extent {
    uint64_t bag_count;
    uint64_t kept_max;       /* most rows that the bags keep, without padding */
    uint64_t rows_max;       /* most rows of the result; with pad, bag_count * max_len */
    uint64_t scratch_offset; /* offset of the sequence's own part of the scratch */
};

/* The lists that tell which row belongs to which bag. */
struct eb_bag_sequence_lists {
    int32_t *lengths;  /* [bag_count] number of rows that each bag keeps, without padding */
    uint32_t *inverse; /* [kept_max] with unique: the row of the result for each row that the bags
                          keep; NULL otherwise */
    /* With unique, the number that is added to every entry of `inverse`: the number of rows before
     * this result if several results lie one after the other. */
    uint32_t first_row;
    uint64_t kept_count; /* sum of the lengths; set by eb_bag_sequence_take */
};

/* Checks a sequence against its query, whose *extent eb_bag_measure has filled in, and adds the
 * scratch that the sequence needs to extent->scratch_bytes. Takes constant time. On failure returns
 * false and sets only *error. */
bool eb_bag_sequence_measure(const struct eb_bag_query *query,
    const struct eb_bag_sequence *sequence, struct eb_bag_extent *extent,
    struct eb_bag_sequence_extent *sizes, struct eb_bag_error *error);

/* Turns a job that eb_bag_check has filled in into the job of the sequence, which has NONE and one
 * bag for each row of the result. Fills in the lists. `extent` and `sizes` must be those that
 * eb_bag_sequence_measure returned. Takes time in proportion to the rows. */
void eb_bag_sequence_take(const struct eb_bag_sequence *sequence,
    const struct eb_bag_extent *extent, const struct eb_bag_sequence_extent *sizes,
    struct eb_bag_job *job, struct eb_bag_sequence_lists *lists);
