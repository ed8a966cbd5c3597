/* The index pass with AVX2. */
#include <immintrin.h>

#define VECTOR_BYTES 32
#define WIDEN(v) ((lanes)_mm256_cvtepi32_epi64((__m128i)(v)))
#define NARROW(v) ((int32_lanes)low_halves((__m256i)(v)))
#define SUM_UP(v) ((lanes)sum_up_avx2((__m256i)(v)))

static inline __m128i low_halves(__m256i v)
{
    __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(v, even));
}

static inline __m256i sum_up_avx2(__m256i v)
{
    v = _mm256_add_epi64(v, _mm256_slli_si256(v, 8));
    __m256i low_sum = _mm256_permute4x64_epi64(v, 0x55);
    return _mm256_add_epi64(v, _mm256_blend_epi32(_mm256_setzero_si256(), low_sum, 0xf0));
}

#include "kernels/bag_index_tmpl.c"

DEFINE_INDEX_FNS(eb_bag_avx2_index, eb_key_avx2_take_rows)
