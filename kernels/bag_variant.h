/* The functions of one instruction set: an index pass, a pool function for every storage, and the
 * conversion of rows.
 * Included only by files that define a variant, choose one or call into one.
 * Thread: the tables are const. Memory: none. */
#pragma once

#include "kernels/bag_index.h"
#include "kernels/bag_prefetch.h"

/* Pools a range of a job whose table has the function's storage. Prefetches rows ahead, unless
 * `ahead` is NULL. */
typedef void (*eb_bag_pool_fn)(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead);

struct eb_quantize_job;

/* Does the same as eb_quantize_rows (quantize.h). */
typedef uint64_t (*eb_quantize_rows_fn)(
    const struct eb_quantize_job *job, const uint8_t *rows, uint64_t count, uint8_t *out);

struct eb_bag_variant {
    const char *name;
    const struct eb_bag_index_fns *index;
    eb_quantize_rows_fn quantize_rows;
    eb_bag_pool_fn pool[EB_STORAGE_COUNT];
    bool prefetches; /* whether its functions prefetch rows */
};

/* A variant, and the processors that it suits (bag_ops.h). */
struct eb_bag_ops {
    const struct eb_bag_variant *variant;
    bool (*runs_here)(void);
    /* Returns whether an earlier variant of the list is faster on a family of processors. NULL: on
     * none. */
    bool (*loses_on)(enum eb_processor_family family);
};

extern const struct eb_bag_variant eb_bag_ref;
uint64_t eb_quantize_ref_rows(
    const struct eb_quantize_job *job, const uint8_t *rows, uint64_t count, uint8_t *out);
uint64_t eb_quantize_avx2_rows(
    const struct eb_quantize_job *job, const uint8_t *rows, uint64_t count, uint8_t *out);
uint64_t eb_quantize_neon_rows(
    const struct eb_quantize_job *job, const uint8_t *rows, uint64_t count, uint8_t *out);

/* Declares the functions of an instruction set for rows whose sums are f32. */
#define EB_BAG_VARIANT_DECLARE_F32(isa)                                                            \
    void eb_bag_##isa##_f32(const struct eb_bag_range *, const struct eb_bag_ahead *);             \
    void eb_bag_##isa##_f16(const struct eb_bag_range *, const struct eb_bag_ahead *);             \
    void eb_bag_##isa##_bf16(const struct eb_bag_range *, const struct eb_bag_ahead *);            \
    void eb_bag_##isa##_e4m3(const struct eb_bag_range *, const struct eb_bag_ahead *);            \
    void eb_bag_##isa##_e5m2(const struct eb_bag_range *, const struct eb_bag_ahead *);            \
    void eb_bag_##isa##_int8(const struct eb_bag_range *, const struct eb_bag_ahead *);            \
    void eb_bag_##isa##_int4(const struct eb_bag_range *, const struct eb_bag_ahead *);            \
    void eb_bag_##isa##_int2(const struct eb_bag_range *, const struct eb_bag_ahead *);
/* Declares the others: the index pass, and the functions for f64 and integers. */
#define EB_BAG_VARIANT_DECLARE_OTHERS(isa)                                                         \
    extern const struct eb_bag_index_fns eb_bag_##isa##_index;                                     \
    void eb_bag_##isa##_f64(const struct eb_bag_range *, const struct eb_bag_ahead *);             \
    void eb_bag_##isa##_int(const struct eb_bag_range *, const struct eb_bag_ahead *);

EB_BAG_VARIANT_DECLARE_F32(avx2) /* x86-64 */
EB_BAG_VARIANT_DECLARE_OTHERS(avx2)
EB_BAG_VARIANT_DECLARE_F32(avx512vl) /* x86-64; its others are those of avx2 */
EB_BAG_VARIANT_DECLARE_F32(avx512)   /* x86-64 */
EB_BAG_VARIANT_DECLARE_OTHERS(avx512)
EB_BAG_VARIANT_DECLARE_F32(neon) /* aarch64 */
EB_BAG_VARIANT_DECLARE_OTHERS(neon)

/* Defines eb_bag_ISA. All functions are called eb_bag_ISA_<storage>. Those of rows whose sums are
 * not f32, and the index pass, are the ones of the instruction set `others`. Rows are converted
 * with the functions of `rows`. */
#define EB_BAG_VARIANT_DEFINE(isa, others, rows)                                                   \
    static const struct eb_bag_variant eb_bag_##isa = {                                            \
        .name = #isa,                                                                              \
        .index = &eb_bag_##others##_index,                                                         \
        .quantize_rows = eb_quantize_##rows##_rows,                                                \
        .pool =                                                                                    \
            {                                                                                      \
                [EB_STORAGE_F32] = eb_bag_##isa##_f32,                                             \
                [EB_STORAGE_F64] = eb_bag_##others##_f64,                                          \
                [EB_STORAGE_F16] = eb_bag_##isa##_f16,                                             \
                [EB_STORAGE_BF16] = eb_bag_##isa##_bf16,                                           \
                [EB_STORAGE_I8] = eb_bag_##others##_int,                                           \
                [EB_STORAGE_U8] = eb_bag_##others##_int,                                           \
                [EB_STORAGE_I16] = eb_bag_##others##_int,                                          \
                [EB_STORAGE_U16] = eb_bag_##others##_int,                                          \
                [EB_STORAGE_I32] = eb_bag_##others##_int,                                          \
                [EB_STORAGE_U32] = eb_bag_##others##_int,                                          \
                [EB_STORAGE_I64] = eb_bag_##others##_int,                                          \
                [EB_STORAGE_U64] = eb_bag_##others##_int,                                          \
                [EB_STORAGE_F8_E4M3] = eb_bag_##isa##_e4m3,                                        \
                [EB_STORAGE_F8_E5M2] = eb_bag_##isa##_e5m2,                                        \
                [EB_STORAGE_INT8] = eb_bag_##isa##_int8,                                           \
                [EB_STORAGE_INT4] = eb_bag_##isa##_int4,                                           \
                [EB_STORAGE_INT2] = eb_bag_##isa##_int2,                                           \
            },                                                                                     \
        .prefetches = true,                                                                        \
    }
