/* Folding of integer columns in vectors of VECTOR_BYTES. The including file defines VECTOR_BYTES as
 * the length of its instruction set's vectors. This template uses GCC's vector types, and defines
 * `folds`, the struct eb_bag_int_folds of the instruction set. Lanes of sums are unsigned, so that
 * they wrap.
 * Thread: pure. Memory: none. */
#include "kernels/bag_int.h"

#define PIECE_BYTES_MAX (EB_BAG_INT_BLOCK_VECTORS * VECTOR_BYTES)

/* For each fold: the initial value, the value after a row, and the bits in which a value in a
 * register differs from the same value in memory. */
#define START_SUM(lane) 0
#define START_WEIGHTED(lane) 0
#define START_MAX(lane) ((lane)(UINT64_C(1) << (8 * sizeof(lane) - 1)))
#define START_WIDE(lane) 0

#define ROW_SUM(lane, sum, x) ((sum) + (x))
#define ROW_WEIGHTED(lane, sum, x) ((sum) + (x) * (lane)chunk->weights[i])
#define ROW_MAX(lane, max, x) ((max) ^ ((((x) ^ flip) ^ (max)) & (((x) ^ flip) > (max))))
#define ROW_WIDE(lane, sum, x) ((sum) + __builtin_convertvector((x) ^ flip, sums))

#define OUT_SUM(sum) (sum)
#define OUT_WEIGHTED(sum) (sum)
#define OUT_MAX(max) ((max) ^ flip)
#define OUT_WIDE(sum) (sum)

/* Defines the function for a piece of 2^size columns. */
#define DEFINE_PIECE(fold, lane, sum_lane, size)                                                   \
    static void fold##_##lane##_##size(                                                            \
        const struct eb_bag_int_chunk *chunk, size_t offset, const void *before, void *after)      \
    {                                                                                              \
        enum { BYTES = sizeof(sum_lane) << size };                                                 \
        enum { VECTOR = BYTES < VECTOR_BYTES ? BYTES : VECTOR_BYTES, COUNT = BYTES / VECTOR };     \
        typedef sum_lane sums __attribute__((vector_size(VECTOR), aligned(1), may_alias));         \
        typedef lane columns __attribute__((                                                       \
            vector_size(VECTOR / sizeof(sum_lane) * sizeof(lane)), aligned(1), may_alias));        \
        const lane flip __attribute__((unused)) = (lane)chunk->flip;                               \
        const sums *from = before;                                                                 \
        sums *to = after;                                                                          \
        sums acc[COUNT];                                                                           \
        _Pragma("GCC unroll 8") for (unsigned v = 0; v < COUNT; v++)                               \
        {                                                                                          \
            acc[v] = (sums){0} + START_##fold(lane);                                               \
            if (from) {                                                                            \
                acc[v] = OUT_##fold(from[v]);                                                      \
            }                                                                                      \
        }                                                                                          \
        for (uint32_t i = 0; i < chunk->row_count; i++) {                                          \
            const columns *x = (const void *)(chunk->rows[i] + offset);                            \
            _Pragma("GCC unroll 8") for (unsigned v = 0; v < COUNT; v++)                           \
            {                                                                                      \
                acc[v] = ROW_##fold(lane, acc[v], x[v]);                                           \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (unsigned v = 0; v < COUNT; v++)                               \
        {                                                                                          \
            to[v] = OUT_##fold(acc[v]);                                                            \
        }                                                                                          \
    }

/* The name of a piece's function, or NULL if the piece is too long. */
#define PIECE(fold, lane, sum_lane, size)                                                          \
    (sizeof(sum_lane) << size <= PIECE_BYTES_MAX ? fold##_##lane##_##size : NULL)

#define DEFINE_FOLD(fold, lane, sum_lane)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 0)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 1)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 2)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 3)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 4)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 5)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 6)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 7)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 8)                                                          \
    DEFINE_PIECE(fold, lane, sum_lane, 9)                                                          \
    static eb_bag_int_pieces fold##_##lane = {                                                     \
        PIECE(fold, lane, sum_lane, 0),                                                            \
        PIECE(fold, lane, sum_lane, 1),                                                            \
        PIECE(fold, lane, sum_lane, 2),                                                            \
        PIECE(fold, lane, sum_lane, 3),                                                            \
        PIECE(fold, lane, sum_lane, 4),                                                            \
        PIECE(fold, lane, sum_lane, 5),                                                            \
        PIECE(fold, lane, sum_lane, 6),                                                            \
        PIECE(fold, lane, sum_lane, 7),                                                            \
        PIECE(fold, lane, sum_lane, 8),                                                            \
        PIECE(fold, lane, sum_lane, 9),                                                            \
    };

DEFINE_FOLD(SUM, uint8_t, uint8_t)
DEFINE_FOLD(SUM, uint16_t, uint16_t)
DEFINE_FOLD(SUM, uint32_t, uint32_t)
DEFINE_FOLD(SUM, uint64_t, uint64_t)
DEFINE_FOLD(WEIGHTED, uint8_t, uint8_t)
DEFINE_FOLD(WEIGHTED, uint16_t, uint16_t)
DEFINE_FOLD(WEIGHTED, uint32_t, uint32_t)
DEFINE_FOLD(WEIGHTED, uint64_t, uint64_t)
DEFINE_FOLD(MAX, int8_t, int8_t)
DEFINE_FOLD(MAX, int16_t, int16_t)
DEFINE_FOLD(MAX, int32_t, int32_t)
DEFINE_FOLD(MAX, int64_t, int64_t)
DEFINE_FOLD(WIDE, int8_t, uint64_t)
DEFINE_FOLD(WIDE, int16_t, uint64_t)
DEFINE_FOLD(WIDE, int32_t, uint64_t)

static const struct eb_bag_int_folds folds = {
    .vector_bytes = VECTOR_BYTES,
    .pieces =
        {
            [EB_BAG_INT_SUM] = {&SUM_uint8_t, &SUM_uint16_t, &SUM_uint32_t, &SUM_uint64_t},
            [EB_BAG_INT_WEIGHTED] = {&WEIGHTED_uint8_t, &WEIGHTED_uint16_t, &WEIGHTED_uint32_t,
                &WEIGHTED_uint64_t},
            [EB_BAG_INT_MAX] = {&MAX_int8_t, &MAX_int16_t, &MAX_int32_t, &MAX_int64_t},
            [EB_BAG_INT_WIDE] = {&WIDE_int8_t, &WIDE_int16_t, &WIDE_int32_t, &SUM_uint64_t},
        },
};

/* Defines an eb_bag_pool_fn for integer rows. */
#define DEFINE_INT_POOL(name)                                                                      \
    void name(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead)                  \
    {                                                                                              \
        eb_bag_int_pool(range, ahead, &folds);                                                     \
    }
