/* The index pass with AVX2. */
#include <immintrin.h>

#define VECTOR_BYTES 32
#define WIDEN(v) ((lanes)_mm256_cvtepi32_epi64((__m128i)(v)))
#define NARROW(v) ((int32_lanes)low_halves((__m256i)(v)))

static inline __m128i low_halves(__m256i v)
{
    const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(v, even));
}

#include "kernels/bag_index_lanes.h"

DEFINE_INDEX_FNS(eb_bag_avx2_index)
