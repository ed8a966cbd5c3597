/* Pooling of integer rows, the same for every instruction set and type: bag by bag, a block of
 * columns at a time, of it a few rows at a time, and of these the columns in pieces of powers of
 * two. An instruction set brings the functions that fold a piece (bag_int_fold.h).
 *
 * Columns that are no whole piece are folded by one that begins before them: it computes some
 * columns twice, to the same bytes, and touches none that are not asked for.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_variant.h"

/* The longest piece, and a block of columns, has so many vectors. */
#define EB_BAG_INT_BLOCK_VECTORS 8
#define EB_BAG_INT_VECTOR_BYTES_MAX 64

enum eb_bag_int_fold {
    EB_BAG_INT_SUM,      /* sum + x */
    EB_BAG_INT_WEIGHTED, /* sum + weight * x */
    EB_BAG_INT_MAX,      /* the greater of max and x as numbers with a sign, bits flipped */
    EB_BAG_INT_WIDE,     /* sum + x in 64 bits, x a number with a sign, bits flipped */
    EB_BAG_INT_FOLD_COUNT
};

/* Some rows of a bag. */
struct eb_bag_int_chunk {
    const uint8_t **rows;    /* [row_count] a block's columns of each */
    const uint64_t *weights; /* [row_count], WEIGHTED only */
    uint32_t row_count;
    uint64_t flip; /* MAX and WIDE: bits of x to turn over, and back in the greatest */
};

/* Folds a piece of a chunk's columns, from byte `offset` of the block on. `before` is what the
 * chunks before gave for the piece, NULL where there were none; what there is now goes to `after`.
 * Both are values of the type, of WIDE 64-bit numbers, at any alignment. */
typedef void (*eb_bag_int_fold_fn)(
    const struct eb_bag_int_chunk *chunk, size_t offset, const void *before, void *after);

/* By the logarithm of a piece's columns. NULL: too long. */
#define EB_BAG_INT_PIECE_SIZES 10
typedef const eb_bag_int_fold_fn eb_bag_int_pieces[EB_BAG_INT_PIECE_SIZES];

/* What an instruction set brings. */
struct eb_bag_int_folds {
    uint32_t vector_bytes;
    /* By the logarithm of the type's bytes. */
    eb_bag_int_pieces *pieces[EB_BAG_INT_FOLD_COUNT][4];
};

/* Pools a part of any integer storage, as an eb_bag_pool_fn does. */
void eb_bag_int_pool(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch,
    const struct eb_bag_int_folds *folds);
