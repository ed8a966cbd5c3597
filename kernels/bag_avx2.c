/* f32 tables with AVX2, FMA and F16C. */
#include "kernels/bag.h"

#include <immintrin.h>
#include <string.h>

#define VEC __m256
#define LANES 8

/* All ones in the first `count` lanes. */
static inline __m256i mask_of(unsigned count)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lanes);
}

static inline VEC vec_set(float value)
{
    return _mm256_set1_ps(value);
}

static inline VEC vec_load(const uint8_t *floats)
{
    return _mm256_loadu_ps((const float *)(const void *)floats);
}

static inline VEC vec_load_some(const uint8_t *floats, unsigned count)
{
    return _mm256_maskload_ps((const float *)(const void *)floats, mask_of(count));
}

static inline VEC vec_add(VEC a, VEC b)
{
    return _mm256_add_ps(a, b);
}

static inline VEC vec_fma(VEC a, VEC b, VEC c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline VEC vec_divide(VEC a, VEC b)
{
    return _mm256_div_ps(a, b);
}

/* The instruction gives its second operand for a tie or a NaN on either side. */
static inline VEC vec_max(VEC x, VEC acc)
{
    return _mm256_blendv_ps(_mm256_max_ps(x, acc), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static inline VEC vec_min(VEC x, VEC acc)
{
    return _mm256_blendv_ps(_mm256_min_ps(x, acc), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static inline VEC vec_canonical(VEC v)
{
    const __m256 quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(v, quiet, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

/* By integers: half of the lowest kept bit, less one where that bit is even, carries where it must.
 * A canonical NaN stays one. */
static inline __m128i to_bf16(VEC v)
{
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i codes = _mm256_srli_epi32(rounded, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
}

static inline void store_codes(__m128i codes, uint8_t *out, unsigned count)
{
    if (count == LANES) {
        _mm_storeu_si128((__m128i *)(void *)out, codes);
        return;
    }
    uint16_t all[LANES];
    memcpy(all, &codes, sizeof all);
    memcpy(out, all, count * sizeof all[0]);
}

static inline void vec_store(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    float *floats = (float *)(void *)out;
    if (type == EB_F16) {
        store_codes(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT), out, count);
    } else if (type == EB_BF16) {
        store_codes(to_bf16(v), out, count);
    } else if (count == LANES) {
        _mm256_storeu_ps(floats, v);
    } else {
        _mm256_maskstore_ps(floats, mask_of(count), v);
    }
}

#include "kernels/bag_pool_f32.h"

const struct eb_bag_variant eb_bag_avx2 = {
    .name = "avx2",
    .pool = {[EB_STORAGE_F32] = pool_f32},
};
