/* Vectors of 2 doubles with Advanced SIMD, for bag_float_tmpl.c.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/types.h"

#include <arm_neon.h>
#include <string.h>

#define VEC float64x2_t
#define LANES 2
#define PASS_VECTORS 8
#define PASS_VECTORS_IN_PLACE 8

#define INLINE inline __attribute__((always_inline))

static INLINE VEC vec_set(double value)
{
    return vdupq_n_f64(value);
}

static INLINE VEC vec_add(VEC a, VEC b)
{
    return vaddq_f64(a, b);
}

static INLINE VEC vec_fma(VEC a, VEC b, VEC c)
{
    return vfmaq_f64(c, a, b);
}

static INLINE VEC vec_divide(VEC a, VEC b)
{
    return vdivq_f64(a, b);
}

static INLINE uint64x2_t is_number(VEC v)
{
    return vceqq_f64(v, v);
}

/* The processor's own maximum distinguishes the zeros, and returns a NaN if either operand is
 * one. */
static INLINE VEC vec_max(VEC x, VEC acc)
{
    return vbslq_f64(is_number(x), vbslq_f64(vcgtq_f64(x, acc), x, acc), x);
}

static INLINE VEC vec_min(VEC x, VEC acc)
{
    return vbslq_f64(is_number(x), vbslq_f64(vcltq_f64(x, acc), x, acc), x);
}

/* The lanes of VEC_NANS are inverted here: zeros mean a NaN. */
#define VEC_NANS uint64x2_t

/* Returns all ones in the lanes in which neither vector is a NaN. */
static INLINE VEC_NANS vec_nans(VEC a, VEC b)
{
    return vandq_u64(is_number(a), is_number(b));
}

/* An AND, since the lanes are inverted. */
static INLINE VEC_NANS vec_nans_or(VEC_NANS a, VEC_NANS b)
{
    return vandq_u64(a, b);
}

static INLINE bool vec_nans_any(VEC_NANS nans)
{
    return vminvq_u32(vreinterpretq_u32_u64(nans)) == 0;
}

static INLINE VEC vec_canonical(VEC v)
{
    float64x2_t quiet = vreinterpretq_f64_u64(vdupq_n_u64(0x7ff8000000000000));
    return vbslq_f64(is_number(v), v, quiet);
}

/* Returns the first `count` elements at `from`. The contents of the other lanes do not matter.
 * Reads no byte past the elements. */
static INLINE VEC vec_load(enum eb_storage storage, const uint8_t *from, unsigned count)
{
    (void)storage;
    double some[LANES] = {0};
    memcpy(some, from, count * sizeof some[0]);
    return vld1q_f64(some);
}

/* Puts the lanes of a vector in the order of the columns. The vector must have been computed from
 * vectors that vec_load loaded from that storage. */
static INLINE VEC vec_in_order(enum eb_storage storage, VEC v)
{
    (void)storage;
    return v;
}

/* Truncates to f32, and sets the last bit if that was inexact. Rounding the result to at least two
 * bits fewer gives the same as rounding `v` directly. */
static INLINE float32x4_t round_to_odd(VEC v)
{
    return vcombine_f32(vcvtx_f32_f64(v), vdup_n_f32(0));
}

/* Rounds with integer arithmetic: adds half of the lowest kept bit, less one if that bit is even,
 * so that a carry rounds up. A canonical NaN stays a canonical NaN. */
static INLINE uint16x4_t narrow_bf16(float32x4_t v)
{
    uint32x4_t bits = vreinterpretq_u32_f32(v);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    return vshrn_n_u32(rounded, 16);
}

/* Stores the first `count` lanes as `type`: f64, f32, f16 or bf16. Writes no byte past them. */
static INLINE void vec_store(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    if (type == EB_F64) {
        memcpy(out, &v, count * sizeof(double));
        return;
    }
    if (type == EB_F32) {
        float32x2_t singles = vcvt_f32_f64(v);
        memcpy(out, &singles, count * sizeof(float));
        return;
    }
    float32x4_t odd = round_to_odd(v);
    uint16x4_t words = type == EB_F16 ? vreinterpret_u16_f16(vcvt_f16_f32(odd)) : narrow_bf16(odd);
    memcpy(out, &words, count * sizeof(uint16_t));
}
