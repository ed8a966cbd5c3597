/* The index pass with AVX-512. */
#include <immintrin.h>

#define VECTOR_BYTES 64
#define WIDEN(v) ((lanes)_mm512_cvtepi32_epi64((__m256i)(v)))
#define NARROW(v) ((int32_lanes)_mm512_cvtepi64_epi32((__m512i)(v)))
#define SUM_UP(v) ((lanes)sum_up_avx512((__m512i)(v)))

static inline __m512i sum_up_avx512(__m512i v)
{
    __m512i zero = _mm512_setzero_si512();
    v = _mm512_add_epi64(v, _mm512_alignr_epi64(v, zero, 7));
    v = _mm512_add_epi64(v, _mm512_alignr_epi64(v, zero, 6));
    return _mm512_add_epi64(v, _mm512_alignr_epi64(v, zero, 4));
}

#include "kernels/bag_index_tmpl.c"

DEFINE_INDEX_FNS(eb_bag_avx512_index, eb_key_avx2_take_rows)
