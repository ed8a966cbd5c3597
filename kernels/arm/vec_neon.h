/* Vectors of 4 floats with Advanced SIMD, which every aarch64 processor has, for bag_float_tmpl.c.
 * The floating-point control register must have the value with which a process starts: rounding to
 * nearest, ties to even, no flushing of subnormals.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/types.h"

#include <arm_neon.h>
#include <string.h>

#define VEC float32x4_t
#define LANES 4
#define PASS_VECTORS 8
#define PASS_VECTORS_IN_PLACE 8

#define INLINE inline __attribute__((always_inline))

static INLINE VEC vec_set(float value)
{
    return vdupq_n_f32(value);
}

static INLINE VEC vec_add(VEC a, VEC b)
{
    return vaddq_f32(a, b);
}

static INLINE VEC vec_fma(VEC a, VEC b, VEC c)
{
    return vfmaq_f32(c, a, b);
}

static INLINE VEC vec_divide(VEC a, VEC b)
{
    return vdivq_f32(a, b);
}

static INLINE uint32x4_t is_nan(VEC v)
{
    return vmvnq_u32(vceqq_f32(v, v));
}

/* The processor's own maximum distinguishes the zeros, and returns a NaN if either operand is
 * one. */
static INLINE VEC vec_max(VEC x, VEC acc)
{
    return vbslq_f32(vorrq_u32(vcgtq_f32(x, acc), is_nan(x)), x, acc);
}

static INLINE VEC vec_min(VEC x, VEC acc)
{
    return vbslq_f32(vorrq_u32(vcltq_f32(x, acc), is_nan(x)), x, acc);
}

#define VEC_NANS uint32x4_t

/* Returns the lanes in which either vector is a NaN. */
static INLINE VEC_NANS vec_nans(VEC a, VEC b)
{
    return vorrq_u32(is_nan(a), is_nan(b));
}

static INLINE VEC_NANS vec_nans_or(VEC_NANS a, VEC_NANS b)
{
    return vorrq_u32(a, b);
}

static INLINE bool vec_nans_any(VEC_NANS nans)
{
    return vmaxvq_u32(nans) != 0;
}

static INLINE VEC vec_canonical(VEC v)
{
    float32x4_t quiet = vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000));
    return vbslq_f32(is_nan(v), quiet, v);
}

/* Loading: 4 elements of a storage, or fewer. If there are fewer, the contents of the other lanes
 * do not matter. */

/* Loads `count` bytes, at most `whole`, which is the size of 4 elements (at most 8 bytes). */
static INLINE uint8x8_t load_bytes(const uint8_t *bytes, unsigned count, const unsigned whole)
{
    uint8_t some[8] = {0};
    if (count < whole) {
        memcpy(some, bytes, count);
        bytes = some;
    }
    uint64_t bits = 0;
    memcpy(&bits, bytes, whole);
    return vcreate_u8(bits);
}

static INLINE uint16x4_t load_words(const uint8_t *words, unsigned count)
{
    return vreinterpret_u16_u8(load_bytes(words, 2 * count, 8));
}

/* Widens the lowest four bytes to words. */
static INLINE uint16x4_t widen_bytes(uint8x8_t bytes)
{
    return vget_low_u16(vmovl_u8(bytes));
}

static INLINE VEC widen_f16(uint16x4_t words)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(words));
}

static INLINE VEC widen_bf16(uint16x4_t words)
{
    return vreinterpretq_f32_u32(vshll_n_u16(words, 16));
}

/* An e5m2 is the upper byte of an f16. */
static INLINE VEC widen_e5m2(uint8x8_t bytes)
{
    return widen_f16(vshl_n_u16(widen_bytes(bytes), 8));
}

/* If the bits of an e4m3 are shifted to the exponent and mantissa of an f16, they read as an f16
 * that is too small by a factor of 2^8. The one NaN of e4m3 would read as a number. */
static INLINE VEC widen_e4m3(uint8x8_t bytes)
{
    uint16x4_t magnitude = vdup_n_u16(0x7f);
    uint16x4_t words = widen_bytes(bytes);
    uint16x4_t signless = vand_u16(words, magnitude);
    uint16x4_t sign = vshl_n_u16(vbic_u16(words, magnitude), 8);
    uint16x4_t bits = vorr_u16(vshl_n_u16(signless, 7), sign);
    bits = vbsl_u16(vceq_u16(signless, magnitude), vdup_n_u16(0x7e00), bits);
    return vmulq_n_f32(widen_f16(bits), 256);
}

static INLINE VEC widen_int8(uint8x8_t codes)
{
    return vcvtq_f32_u32(vmovl_u16(widen_bytes(codes)));
}

/* Widens codes of a few bits, all of which are in the lowest two bytes. `right` has the shift of
 * each code, negated. */
static INLINE VEC widen_bits(uint8x8_t codes, int32x4_t right, uint32_t mask)
{
    uint32x4_t all = vdupq_lane_u32(vreinterpret_u32_u8(codes), 0);
    return vcvtq_f32_u32(vandq_u32(vshlq_u32(all, right), vdupq_n_u32(mask)));
}

static INLINE VEC widen_int4(uint8x8_t codes)
{
    int32x4_t right = {0, -4, -8, -12};
    return widen_bits(codes, right, 0xf);
}

static INLINE VEC widen_int2(uint8x8_t codes)
{
    int32x4_t right = {0, -2, -4, -6};
    return widen_bits(codes, right, 0x3);
}

static INLINE VEC load_floats(const uint8_t *from, unsigned count)
{
    float some[LANES] = {0};
    memcpy(some, from, count * sizeof some[0]);
    return vld1q_f32(some);
}

/* Returns the first `count` elements at `from`, or the codes if the storage has codes. Reads no
 * byte past the last one. */
static INLINE VEC vec_load(enum eb_storage storage, const uint8_t *from, unsigned count)
{
    switch (storage) {
    case EB_STORAGE_F16: return widen_f16(load_words(from, count));
    case EB_STORAGE_BF16: return widen_bf16(load_words(from, count));
    case EB_STORAGE_F8_E4M3: return widen_e4m3(load_bytes(from, count, 4));
    case EB_STORAGE_F8_E5M2: return widen_e5m2(load_bytes(from, count, 4));
    case EB_STORAGE_INT8: return widen_int8(load_bytes(from, count, 4));
    case EB_STORAGE_INT4: return widen_int4(load_bytes(from, (count + 1) / 2, 2));
    case EB_STORAGE_INT2: return widen_int2(load_bytes(from, (count + 3) / 4, 1));
    default: return load_floats(from, count);
    }
}

/* Puts the lanes of a vector in the order of the columns. The vector must have been computed from
 * vectors that vec_load loaded from that storage. */
static INLINE VEC vec_in_order(enum eb_storage storage, VEC v)
{
    (void)storage;
    return v;
}

/* Rounds with integer arithmetic: adds half of the lowest kept bit, less one if that bit is even,
 * so that a carry rounds up. A canonical NaN stays a canonical NaN. */
static INLINE uint16x4_t narrow_bf16(VEC v)
{
    uint32x4_t bits = vreinterpretq_u32_f32(v);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    return vshrn_n_u32(rounded, 16);
}

/* Stores the first `count` lanes as `type`: f32, f16 or bf16. Writes no byte past them. */
static INLINE void vec_store(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    if (type == EB_F32) {
        memcpy(out, &v, count * sizeof(float));
        return;
    }
    uint16x4_t words = type == EB_F16 ? vreinterpret_u16_f16(vcvt_f16_f32(v)) : narrow_bf16(v);
    memcpy(out, &words, count * sizeof(uint16_t));
}
