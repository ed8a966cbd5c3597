/* The index pass with AVX-512. */
#include <immintrin.h>

#define VECTOR_BYTES 64
#define WIDEN(v) ((lanes)_mm512_cvtepi32_epi64((__m256i)(v)))
#define NARROW(v) ((int32_lanes)_mm512_cvtepi64_epi32((__m512i)(v)))

#include "kernels/bag_index_lanes.h"

DEFINE_INDEX_FNS(eb_bag_avx512_index)
