/* Sequences: the rows of each bag as they are, not pooled, with the number of rows of each bag. A
 * recommender's history of clicks is read in this way.
 *
 * A sequence lookup is a query of SUM, which eb_bag_measure and eb_bag_check treat like any other,
 * and an eb_bag_sequence. Its job is then turned into one of NONE, whose rows are chosen like this,
 * with the rows of each bag in index order:
 *
 *   max_len      each bag keeps its last max_len rows, or the first ones with keep_first
 *   pad          each bag gets rows of exact +0 at its end, up to max_len rows
 *   unique       each row of the query stays only where it occurs first
 *
 * Rows that SKIP leaves out are gone before max_len counts. Every index in a bag is checked, also
 * if max_len then drops its row. Empty bags have no rows; the default row is only checked.
 *
 * Thread: all functions are pure. Memory: nothing is allocated; scratch and lists are the caller's.
 */
#pragma once

#include "kernels/bag.h"

/* Most rows of a table whose rows can be made unique. It lets a row and its position share 64 bits
 * while they are sorted. */
#define EB_BAG_UNIQUE_ROWS_MAX ((UINT64_C(1) << 40) - 2)

/* Which rows of its bags a sequence lookup wants. All zero: all of them. */
struct eb_bag_sequence {
    uint32_t max_len; /* most rows of a bag; 0: no limit */
    bool keep_first;  /* a longer bag keeps its first rows, not its last; only with max_len */
    bool pad;         /* every bag has max_len rows; only with max_len */
    bool unique;      /* each row once; neither with pad nor with weights */
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
    int32_t *lengths;  /* [bag_count] how many rows each bag keeps, without padding */
    uint32_t *inverse; /* [kept_max] with unique: the row of the result for each row that the bags
                          keep; NULL otherwise */
    /* With unique, the first row of this result, for results that lie one after the other: it is
     * added to every number in `inverse`. */
    uint32_t first_row;
    uint64_t kept_count; /* sum of the lengths; set by eb_bag_sequence_take */
};

/* Checks a sequence against its query, whose *extent eb_bag_measure has filled in, and adds the
 * scratch that the sequence needs to extent->scratch_bytes. Takes constant time. On failure returns
 * false and sets only *error. */
bool eb_bag_sequence_measure(const struct eb_bag_query *query,
    const struct eb_bag_sequence *sequence, struct eb_bag_extent *extent,
    struct eb_bag_sequence_extent *sizes, struct eb_bag_error *error);

/* Turns a job that eb_bag_check has filled in into the sequence's: of NONE, with a bag for every
 * row of the result. Fills in the lists. `extent` and `sizes` must be those that
 * eb_bag_sequence_measure returned. Takes time in proportion to the rows. */
void eb_bag_sequence_take(const struct eb_bag_sequence *sequence,
    const struct eb_bag_extent *extent, const struct eb_bag_sequence_extent *sizes,
    struct eb_bag_job *job, struct eb_bag_sequence_lists *lists);
