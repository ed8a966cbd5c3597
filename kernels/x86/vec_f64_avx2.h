/* Vectors of 4 doubles with AVX2, FMA and F16C, for bag_float_tmpl.c.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/types.h"

#include <immintrin.h>
#include <string.h>

#define VEC __m256d
#define LANES 4
#define PASS_VECTORS 8
#define PASS_VECTORS_IN_PLACE 8

#define INLINE inline __attribute__((always_inline))

/* Returns all ones in the first `count` lanes. */
static INLINE __m256i mask_of(unsigned count)
{
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x((int)count), _mm256_setr_epi64x(0, 1, 2, 3));
}

static INLINE VEC vec_set(double value)
{
    return _mm256_set1_pd(value);
}

static INLINE VEC vec_add(VEC a, VEC b)
{
    return _mm256_add_pd(a, b);
}

static INLINE VEC vec_fma(VEC a, VEC b, VEC c)
{
    return _mm256_fmadd_pd(a, b, c);
}

static INLINE VEC vec_divide(VEC a, VEC b)
{
    return _mm256_div_pd(a, b);
}

/* The instruction returns its second operand for a tie, or if either operand is a NaN. */
static INLINE VEC vec_max(VEC x, VEC acc)
{
    return _mm256_blendv_pd(_mm256_max_pd(x, acc), x, _mm256_cmp_pd(x, x, _CMP_UNORD_Q));
}

static INLINE VEC vec_min(VEC x, VEC acc)
{
    return _mm256_blendv_pd(_mm256_min_pd(x, acc), x, _mm256_cmp_pd(x, x, _CMP_UNORD_Q));
}

#define VEC_NANS VEC

/* Returns the lanes in which either vector is a NaN. */
static INLINE VEC_NANS vec_nans(VEC a, VEC b)
{
    return _mm256_cmp_pd(a, b, _CMP_UNORD_Q);
}

static INLINE VEC_NANS vec_nans_or(VEC_NANS a, VEC_NANS b)
{
    return _mm256_or_pd(a, b);
}

static INLINE bool vec_nans_any(VEC_NANS nans)
{
    return _mm256_movemask_pd(nans) != 0;
}

static INLINE VEC vec_canonical(VEC v)
{
    __m256d quiet = _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8000000000000));
    return _mm256_blendv_pd(v, quiet, _mm256_cmp_pd(v, v, _CMP_UNORD_Q));
}

/* Returns the first `count` elements at `from`. The contents of the other lanes do not matter.
 * Reads no byte past the elements. */
static INLINE VEC vec_load(enum eb_storage storage, const uint8_t *from, unsigned count)
{
    (void)storage;
    const double *doubles = (const void *)from;
    return count == LANES ? _mm256_loadu_pd(doubles) : _mm256_maskload_pd(doubles, mask_of(count));
}

/* Puts the lanes of a vector in the order of the columns. The vector must have been computed from
 * vectors that vec_load loaded from that storage. */
static INLINE VEC vec_in_order(enum eb_storage storage, VEC v)
{
    (void)storage;
    return v;
}

/* Returns the lower half of each lane. */
static INLINE __m128i take_lower(__m256d v)
{
    __m128 low = _mm_castpd_ps(_mm256_castpd256_pd128(v));
    __m128 high = _mm_castpd_ps(_mm256_extractf128_pd(v, 1));
    return _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)));
}

/* Truncates to f32, and sets the last bit if that was inexact. Rounding the result to at least two
 * bits fewer gives the same as rounding `v` directly. */
static INLINE __m128i round_to_odd(VEC v)
{
    __m256d sign = _mm256_set1_pd(-0.0);
    __m128 nearest = _mm256_cvtpd_ps(v);
    __m256d back = _mm256_cvtps_pd(nearest);
    __m256d is_inexact = _mm256_cmp_pd(back, v, _CMP_NEQ_OQ);
    __m256d is_beyond =
        _mm256_cmp_pd(_mm256_andnot_pd(sign, back), _mm256_andnot_pd(sign, v), _CMP_GT_OQ);
    __m128i cut = _mm_add_epi32(_mm_castps_si128(nearest), take_lower(is_beyond));
    return _mm_or_si128(cut, _mm_and_si128(take_lower(is_inexact), _mm_set1_epi32(1)));
}

/* Rounds with integer arithmetic: adds half of the lowest kept bit, less one if that bit is even,
 * so that a carry rounds up. A canonical NaN stays a canonical NaN. */
static INLINE __m128i narrow_bf16(__m128i bits)
{
    __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    __m128i rounded = _mm_add_epi32(bits, _mm_add_epi32(odd, _mm_set1_epi32(0x7fff)));
    __m128i codes = _mm_srli_epi32(rounded, 16);
    return _mm_packus_epi32(codes, codes);
}

static INLINE void store_words(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    __m128i bits = round_to_odd(v);
    __m128i words = type == EB_F16 ? _mm_cvtps_ph(_mm_castsi128_ps(bits), _MM_FROUND_TO_NEAREST_INT)
                                   : narrow_bf16(bits);
    uint16_t all[2 * LANES];
    memcpy(all, &words, sizeof all);
    memcpy(out, all, count * sizeof all[0]);
}

/* Stores the first `count` lanes as `type`: f64, f32, f16 or bf16. Writes no byte past them. */
static INLINE void vec_store(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    void *at = out;
    if (type == EB_F64 && count == LANES) {
        _mm256_storeu_pd(at, v);
    } else if (type == EB_F64) {
        _mm256_maskstore_pd(at, mask_of(count), v);
    } else if (type == EB_F32 && count == LANES) {
        _mm_storeu_ps(at, _mm256_cvtpd_ps(v));
    } else if (type == EB_F32) {
        __m128i mask = take_lower(_mm256_castsi256_pd(mask_of(count)));
        _mm_maskstore_ps(at, mask, _mm256_cvtpd_ps(v));
    } else {
        store_words(type, v, out, count);
    }
}
