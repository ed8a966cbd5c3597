/* f32 tables with AVX-512 F, BW, VL and DQ. */
#include "kernels/bag.h"

#include <immintrin.h>

#define VEC __m512
#define LANES 16

static inline __mmask16 mask_of(unsigned count)
{
    return (__mmask16)((1u << count) - 1);
}

static inline VEC vec_set(float value)
{
    return _mm512_set1_ps(value);
}

static inline VEC vec_load(const uint8_t *floats)
{
    return _mm512_loadu_ps(floats);
}

static inline VEC vec_load_some(const uint8_t *floats, unsigned count)
{
    return _mm512_maskz_loadu_ps(mask_of(count), floats);
}

static inline VEC vec_add(VEC a, VEC b)
{
    return _mm512_add_ps(a, b);
}

static inline VEC vec_fma(VEC a, VEC b, VEC c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline VEC vec_divide(VEC a, VEC b)
{
    return _mm512_div_ps(a, b);
}

/* The instruction gives its second operand for a tie or a NaN on either side. */
static inline VEC vec_max(VEC x, VEC acc)
{
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(_mm512_max_ps(x, acc), is_nan, x);
}

static inline VEC vec_min(VEC x, VEC acc)
{
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(_mm512_min_ps(x, acc), is_nan, x);
}

static inline VEC vec_canonical(VEC v)
{
    const __m512 quiet = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
}

/* By integers, since the processor's own conversion flushes subnormals: half of the lowest kept
 * bit, less one where that bit is even, carries where it must. A canonical NaN stays one. */
static inline __m256i to_bf16(VEC v)
{
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

static inline void vec_store(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    const __mmask16 mask = mask_of(count);
    if (type == EB_F32) {
        _mm512_mask_storeu_ps(out, mask, v);
    } else if (type == EB_F16) {
        __m256i codes = _mm512_maskz_cvtps_ph(mask, v, _MM_FROUND_TO_NEAREST_INT);
        _mm256_mask_storeu_epi16(out, mask, codes);
    } else {
        _mm256_mask_storeu_epi16(out, mask, to_bf16(v));
    }
}

#include "kernels/bag_pool_f32.h"

const struct eb_bag_variant eb_bag_avx512 = {
    .name = "avx512",
    .pool = {[EB_STORAGE_F32] = pool_f32},
};
