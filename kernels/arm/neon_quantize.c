/* Conversion of rows with NEON. */
#include "kernels/arm/vec_neon.h"
#include "kernels/quantize_range.h"

typedef int32_t KEYS __attribute__((vector_size(4 * LANES)));
#define CODE_VECTORS 4

static INLINE KEYS vec_unsigned_min(KEYS a, KEYS b)
{
    return (KEYS)vminq_u32((uint32x4_t)a, (uint32x4_t)b);
}

static INLINE KEYS vec_unsigned_max(KEYS a, KEYS b)
{
    return (KEYS)vmaxq_u32((uint32x4_t)a, (uint32x4_t)b);
}

static INLINE KEYS vec_keys_max(KEYS a, KEYS b)
{
    return (KEYS)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
}

static INLINE int32_t vec_keys_lowest(KEYS keys)
{
    return vminvq_s32((int32x4_t)keys);
}

static INLINE int32_t vec_keys_highest(KEYS keys)
{
    return vmaxvq_s32((int32x4_t)keys);
}

static INLINE bool vec_keys_any(KEYS mask)
{
    return vminvq_s32((int32x4_t)mask) < 0;
}

/* Returns the codes of two values. */
static INLINE uint32x2_t encode_neon(float64x2_t values, const struct eb_quantize_factors *factors)
{
    float64x2_t units = vsubq_f64(values, vdupq_n_f64(factors->scale.bias));
    float64x2_t codes = vmulq_f64(units, vdupq_n_f64(factors->codes_per_unit));
    return vmovn_u64(vcvtq_u64_f64(vaddq_f64(codes, vdupq_n_f64(0.5))));
}

static INLINE KEYS vec_encode(VEC v, const struct eb_quantize_factors *factors)
{
    uint32x2_t low = encode_neon(vcvt_f64_f32(vget_low_f32(v)), factors);
    uint32x2_t high = encode_neon(vcvt_high_f64_f32(v), factors);
    return (KEYS)vcombine_u32(low, high);
}

/* Returns 16 codes as bytes. */
static INLINE uint8x16_t take_bytes(const KEYS *codes)
{
    uint16x8_t first = vuzp1q_u16((uint16x8_t)codes[0], (uint16x8_t)codes[1]);
    uint16x8_t last = vuzp1q_u16((uint16x8_t)codes[2], (uint16x8_t)codes[3]);
    return vuzp1q_u8((uint8x16_t)first, (uint8x16_t)last);
}

/* Returns pairs of bytes of `codes`, the second shifted left by `bits`, in the low half. */
static INLINE uint8x16_t join_pairs(uint8x16_t codes, const int bits)
{
    uint8x16_t zero = vdupq_n_u8(0);
    uint8x16_t second = vshlq_u8(vuzp2q_u8(codes, zero), vdupq_n_s8((int8_t)bits));
    return vorrq_u8(vuzp1q_u8(codes, zero), second);
}

static INLINE void vec_store_codes(unsigned bits, const KEYS *codes, unsigned vectors, uint8_t *out)
{
    if (vectors == 1) {
        int shift = (int)bits;
        int32x4_t left = {0, shift, 2 * shift, 3 * shift};
        uint32_t packed = vaddvq_u32(vshlq_u32((uint32x4_t)codes[0], left));
        memcpy(out, &packed, LANES * bits / 8);
        return;
    }
    uint8x16_t all = take_bytes(codes);
    if (bits <= 4) {
        all = join_pairs(all, (int)bits);
    }
    if (bits == 2) {
        all = join_pairs(all, 4);
    }
    memcpy(out, &all, 4 * LANES * bits / 8);
}

#include "kernels/quantize_tmpl.c"

DEFINE_QUANTIZE_ROWS(eb_quantize_neon_rows)
