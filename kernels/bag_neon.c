#include "kernels/bag_neon.h"

/* Columns of sums that stay in registers: eight vectors. */
#define BLOCK_ELEMENTS 32

/* Of integers: eight vectors. */
#define INT_BLOCK_BYTES 128

const struct eb_bag_variant eb_bag_neon = {
    .name = "neon",
    .index = &eb_bag_neon_index,
    .pool =
        {
            [EB_STORAGE_F32] = eb_bag_neon_f32,
            [EB_STORAGE_F64] = eb_bag_neon_f64,
            [EB_STORAGE_F16] = eb_bag_neon_f16,
            [EB_STORAGE_BF16] = eb_bag_neon_bf16,
            [EB_STORAGE_I8] = eb_bag_neon_int,
            [EB_STORAGE_U8] = eb_bag_neon_int,
            [EB_STORAGE_I16] = eb_bag_neon_int,
            [EB_STORAGE_U16] = eb_bag_neon_int,
            [EB_STORAGE_I32] = eb_bag_neon_int,
            [EB_STORAGE_U32] = eb_bag_neon_int,
            [EB_STORAGE_I64] = eb_bag_neon_int,
            [EB_STORAGE_U64] = eb_bag_neon_int,
            [EB_STORAGE_F8_E4M3] = eb_bag_neon_e4m3,
            [EB_STORAGE_F8_E5M2] = eb_bag_neon_e5m2,
            [EB_STORAGE_INT8] = eb_bag_neon_int8,
            [EB_STORAGE_INT4] = eb_bag_neon_int4,
            [EB_STORAGE_INT2] = eb_bag_neon_int2,
        },
    .block_elements =
        {
            [EB_STORAGE_F32] = BLOCK_ELEMENTS,
            [EB_STORAGE_F64] = BLOCK_ELEMENTS / 2,
            [EB_STORAGE_F16] = BLOCK_ELEMENTS,
            [EB_STORAGE_BF16] = BLOCK_ELEMENTS,
            [EB_STORAGE_I8] = INT_BLOCK_BYTES,
            [EB_STORAGE_U8] = INT_BLOCK_BYTES,
            [EB_STORAGE_I16] = INT_BLOCK_BYTES / 2,
            [EB_STORAGE_U16] = INT_BLOCK_BYTES / 2,
            [EB_STORAGE_I32] = INT_BLOCK_BYTES / 4,
            [EB_STORAGE_U32] = INT_BLOCK_BYTES / 4,
            [EB_STORAGE_I64] = INT_BLOCK_BYTES / 8,
            [EB_STORAGE_U64] = INT_BLOCK_BYTES / 8,
            [EB_STORAGE_F8_E4M3] = BLOCK_ELEMENTS,
            [EB_STORAGE_F8_E5M2] = BLOCK_ELEMENTS,
            [EB_STORAGE_INT8] = BLOCK_ELEMENTS,
            [EB_STORAGE_INT4] = BLOCK_ELEMENTS,
            [EB_STORAGE_INT2] = BLOCK_ELEMENTS,
        },
};
