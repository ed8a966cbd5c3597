/* Vectors of 8 doubles with AVX-512 F, BW, VL and DQ, for bag_float_tmpl.c.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/types.h"

#include <immintrin.h>

#define VEC __m512d
#define LANES 8
#define PASS_VECTORS 16
#define PASS_VECTORS_IN_PLACE 16

#define INLINE inline __attribute__((always_inline))

static INLINE __mmask8 mask_of(unsigned count)
{
    return (__mmask8)((1u << count) - 1);
}

static INLINE VEC vec_set(double value)
{
    return _mm512_set1_pd(value);
}

static INLINE VEC vec_add(VEC a, VEC b)
{
    return _mm512_add_pd(a, b);
}

static INLINE VEC vec_fma(VEC a, VEC b, VEC c)
{
    return _mm512_fmadd_pd(a, b, c);
}

static INLINE VEC vec_divide(VEC a, VEC b)
{
    return _mm512_div_pd(a, b);
}

/* The instruction returns its second operand for a tie, or if either operand is a NaN. */
static INLINE VEC vec_max(VEC x, VEC acc)
{
    __mmask8 is_nan = _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_pd(_mm512_max_pd(x, acc), is_nan, x);
}

static INLINE VEC vec_min(VEC x, VEC acc)
{
    __mmask8 is_nan = _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_pd(_mm512_min_pd(x, acc), is_nan, x);
}

#define VEC_NANS __mmask8

/* Returns the lanes in which either vector is a NaN. */
static INLINE VEC_NANS vec_nans(VEC a, VEC b)
{
    return _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q);
}

static INLINE VEC_NANS vec_nans_or(VEC_NANS a, VEC_NANS b)
{
    return a | b;
}

static INLINE bool vec_nans_any(VEC_NANS nans)
{
    return nans != 0;
}

static INLINE VEC vec_canonical(VEC v)
{
    __m512d quiet = _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff8000000000000));
    return _mm512_mask_mov_pd(v, _mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q), quiet);
}

/* Returns the first `count` elements at `from`. The contents of the other lanes do not matter.
 * Reads no byte past the elements. */
static INLINE VEC vec_load(enum eb_storage storage, const uint8_t *from, unsigned count)
{
    (void)storage;
    return count == LANES ? _mm512_loadu_pd(from) : _mm512_maskz_loadu_pd(mask_of(count), from);
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
static INLINE __m256 round_to_odd(VEC v)
{
    __m256 cut = _mm512_cvt_roundpd_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __mmask8 is_inexact = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), v, _CMP_NEQ_OQ);
    __m256i bits = _mm256_castps_si256(cut);
    return _mm256_castsi256_ps(_mm256_mask_or_epi32(bits, is_inexact, bits, _mm256_set1_epi32(1)));
}

/* Rounds with integer arithmetic, since the processor's own conversion flushes subnormals: adds
 * half of the lowest kept bit, less one if that bit is even, so that a carry rounds up. A canonical
 * NaN stays a canonical NaN. */
static INLINE __m128i narrow_bf16(__m256 v)
{
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_cvtepi32_epi16(_mm256_srli_epi32(rounded, 16));
}

static INLINE void store_words(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    __m256 single = round_to_odd(v);
    __m128i words =
        type == EB_F16 ? _mm256_cvtps_ph(single, _MM_FROUND_TO_NEAREST_INT) : narrow_bf16(single);
    _mm_mask_storeu_epi16(out, mask_of(count), words);
}

/* Stores the first `count` lanes as `type`: f64, f32, f16 or bf16. Writes no byte past them. */
static INLINE void vec_store(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    if (type == EB_F64 && count == LANES) {
        _mm512_storeu_pd(out, v);
    } else if (type == EB_F64) {
        _mm512_mask_storeu_pd(out, mask_of(count), v);
    } else if (type == EB_F32) {
        _mm256_mask_storeu_ps(out, mask_of(count), _mm512_cvtpd_ps(v));
    } else {
        store_words(type, v, out, count);
    }
}
