/* Pooling of integer rows, the same for every instruction set and type: bag by bag, a block of
 * columns at a time, a few rows of the block at a time, and their columns in pieces whose sizes are
 * powers of two. An instruction set supplies the functions that fold a piece (bag_int_fold.h).
 *
 * Columns that do not fill a piece are folded by a piece that begins before them. Such a piece
 * computes some columns twice, to the same bytes, and touches no column outside the range.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_variant.h"

/* Number of vectors in the longest piece and in a block of columns, and the largest size of a
 * vector. */
#define EB_BAG_INT_BLOCK_VECTORS 8
#define EB_BAG_INT_VECTOR_BYTES_MAX 64

enum eb_bag_int_fold {
    EB_BAG_INT_SUM,      /* sum + x */
    EB_BAG_INT_WEIGHTED, /* sum + weight * x */
    EB_BAG_INT_MAX,      /* the greater of max and x as signed numbers, bits flipped */
    EB_BAG_INT_WIDE,     /* sum + x in 64 bits, x a signed number, bits flipped */
    EB_BAG_INT_FOLD_COUNT
};

/* A chunk of a bag's rows. */
struct eb_bag_int_chunk {
    const uint8_t **rows;    /* [row_count] the block's columns of each row */
    const uint64_t *weights; /* [row_count], WEIGHTED only */
    uint32_t row_count;
    uint64_t flip; /* MAX and WIDE: bits of x to flip; MAX flips them back in its result */
};

/* Folds a piece of a chunk's columns, from byte `offset` of the block on. `before` is the piece's
 * result of the chunks before, or NULL if there were none. The new result goes to `after`. Both are
 * arrays of the table's type, or of 64-bit numbers for WIDE, at any alignment. */
typedef void (*eb_bag_int_fold_fn)(
    const struct eb_bag_int_chunk *chunk, size_t offset, const void *before, void *after);

/* Functions by the logarithm of a piece's columns. NULL: the piece is too long. */
#define EB_BAG_INT_PIECE_SIZES 10
typedef const eb_bag_int_fold_fn eb_bag_int_pieces[EB_BAG_INT_PIECE_SIZES];

/* The functions of an instruction set. */
struct eb_bag_int_folds {
    uint32_t vector_bytes;
    /* Second index: the logarithm of the type's bytes. */
    eb_bag_int_pieces *pieces[EB_BAG_INT_FOLD_COUNT][4];
};

/* Pools a range of any integer storage. Does what an eb_bag_pool_fn does. */
void eb_bag_int_pool(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead,
    const struct eb_bag_int_folds *folds);
