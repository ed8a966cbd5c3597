/* The table of an instruction set that has a function for every storage. It has the same shape for
 * all of them. For the files that define one.
 * Thread: the tables are const. Memory: none. */
#pragma once

#include "kernels/bag_variant.h"

/* Defines eb_bag_ISA. One pass sums up `block` columns of floats or codes, or `int_block_bytes`
 * bytes of integers. All functions are called eb_bag_ISA_<storage>. */
#define EB_BAG_VARIANT_DEFINE(isa, block, int_block_bytes)                                         \
    const struct eb_bag_variant eb_bag_##isa = {                                                   \
        .name = #isa,                                                                              \
        .index = &eb_bag_##isa##_index,                                                            \
        .pool =                                                                                    \
            {                                                                                      \
                [EB_STORAGE_F32] = eb_bag_##isa##_f32,                                             \
                [EB_STORAGE_F64] = eb_bag_##isa##_f64,                                             \
                [EB_STORAGE_F16] = eb_bag_##isa##_f16,                                             \
                [EB_STORAGE_BF16] = eb_bag_##isa##_bf16,                                           \
                [EB_STORAGE_I8] = eb_bag_##isa##_int,                                              \
                [EB_STORAGE_U8] = eb_bag_##isa##_int,                                              \
                [EB_STORAGE_I16] = eb_bag_##isa##_int,                                             \
                [EB_STORAGE_U16] = eb_bag_##isa##_int,                                             \
                [EB_STORAGE_I32] = eb_bag_##isa##_int,                                             \
                [EB_STORAGE_U32] = eb_bag_##isa##_int,                                             \
                [EB_STORAGE_I64] = eb_bag_##isa##_int,                                             \
                [EB_STORAGE_U64] = eb_bag_##isa##_int,                                             \
                [EB_STORAGE_F8_E4M3] = eb_bag_##isa##_e4m3,                                        \
                [EB_STORAGE_F8_E5M2] = eb_bag_##isa##_e5m2,                                        \
                [EB_STORAGE_INT8] = eb_bag_##isa##_int8,                                           \
                [EB_STORAGE_INT4] = eb_bag_##isa##_int4,                                           \
                [EB_STORAGE_INT2] = eb_bag_##isa##_int2,                                           \
            },                                                                                     \
        .block_elements =                                                                          \
            {                                                                                      \
                [EB_STORAGE_F32] = (block),                                                        \
                [EB_STORAGE_F64] = (block) / 2,                                                    \
                [EB_STORAGE_F16] = (block),                                                        \
                [EB_STORAGE_BF16] = (block),                                                       \
                [EB_STORAGE_I8] = (int_block_bytes),                                               \
                [EB_STORAGE_U8] = (int_block_bytes),                                               \
                [EB_STORAGE_I16] = (int_block_bytes) / 2,                                          \
                [EB_STORAGE_U16] = (int_block_bytes) / 2,                                          \
                [EB_STORAGE_I32] = (int_block_bytes) / 4,                                          \
                [EB_STORAGE_U32] = (int_block_bytes) / 4,                                          \
                [EB_STORAGE_I64] = (int_block_bytes) / 8,                                          \
                [EB_STORAGE_U64] = (int_block_bytes) / 8,                                          \
                [EB_STORAGE_F8_E4M3] = (block),                                                    \
                [EB_STORAGE_F8_E5M2] = (block),                                                    \
                [EB_STORAGE_INT8] = (block),                                                       \
                [EB_STORAGE_INT4] = (block),                                                       \
                [EB_STORAGE_INT2] = (block),                                                       \
            },                                                                                     \
    }
