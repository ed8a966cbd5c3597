/* The functions of one instruction set: an index pass, and a pool function for every storage.
 * Included only by files that define a variant, choose one or call into one.
 * Thread: the tables are const. Memory: none. */
#pragma once

#include "kernels/bag_index.h"
#include "kernels/bag_prefetch.h"

/* Pools a range of a job whose table has the function's storage. Takes a step of `prefetch` for
 * every row of every block of columns, unless `prefetch` is NULL. */
typedef void (*eb_bag_pool_fn)(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch);

struct eb_bag_variant {
    const char *name;
    const struct eb_bag_index_fns *index;
    eb_bag_pool_fn pool[EB_STORAGE_COUNT];
    /* Columns pooled in one pass over a bag's rows; 0: the function takes no prefetch steps. */
    uint32_t block_elements[EB_STORAGE_COUNT];
};

extern const struct eb_bag_variant eb_bag_ref;

/* Declares the functions of an instruction set that has one for every storage. */
#define EB_BAG_VARIANT_DECLARE(isa)                                                                \
    extern const struct eb_bag_index_fns eb_bag_##isa##_index;                                     \
    void eb_bag_##isa##_f32(const struct eb_bag_range *, struct eb_bag_prefetch *);                \
    void eb_bag_##isa##_f64(const struct eb_bag_range *, struct eb_bag_prefetch *);                \
    void eb_bag_##isa##_f16(const struct eb_bag_range *, struct eb_bag_prefetch *);                \
    void eb_bag_##isa##_bf16(const struct eb_bag_range *, struct eb_bag_prefetch *);               \
    void eb_bag_##isa##_e4m3(const struct eb_bag_range *, struct eb_bag_prefetch *);               \
    void eb_bag_##isa##_e5m2(const struct eb_bag_range *, struct eb_bag_prefetch *);               \
    void eb_bag_##isa##_int8(const struct eb_bag_range *, struct eb_bag_prefetch *);               \
    void eb_bag_##isa##_int4(const struct eb_bag_range *, struct eb_bag_prefetch *);               \
    void eb_bag_##isa##_int2(const struct eb_bag_range *, struct eb_bag_prefetch *);               \
    void eb_bag_##isa##_int(const struct eb_bag_range *, struct eb_bag_prefetch *);

EB_BAG_VARIANT_DECLARE(avx2)   /* x86-64 */
EB_BAG_VARIANT_DECLARE(avx512) /* x86-64 */
EB_BAG_VARIANT_DECLARE(neon)   /* aarch64 */

/* Defines eb_bag_ISA. One pass sums up `block` columns of floats or codes, or `int_block_bytes`
 * bytes of integers. All functions are called eb_bag_ISA_<storage>. */
#define EB_BAG_VARIANT_DEFINE(isa, block, int_block_bytes)                                         \
    static const struct eb_bag_variant eb_bag_##isa = {                                            \
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
