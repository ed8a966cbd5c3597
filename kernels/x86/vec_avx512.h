/* Vectors of 16 floats with AVX-512 F, BW, VL and DQ, for bag_float_tmpl.c.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/types.h"

#include <immintrin.h>
#include <string.h>

#define VEC __m512
#define LANES 16
#define PASS_VECTORS 16
#define PASS_VECTORS_IN_PLACE 16

#define INLINE inline __attribute__((always_inline))

static INLINE __mmask16 mask_of(unsigned count)
{
    return (__mmask16)((1u << count) - 1);
}

static INLINE VEC vec_set(float value)
{
    return _mm512_set1_ps(value);
}

static INLINE VEC vec_add(VEC a, VEC b)
{
    return _mm512_add_ps(a, b);
}

static INLINE VEC vec_fma(VEC a, VEC b, VEC c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static INLINE VEC vec_divide(VEC a, VEC b)
{
    return _mm512_div_ps(a, b);
}

/* The instruction returns its second operand for a tie, or if either operand is a NaN. */
static INLINE VEC vec_max(VEC x, VEC acc)
{
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(_mm512_max_ps(x, acc), is_nan, x);
}

static INLINE VEC vec_min(VEC x, VEC acc)
{
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(_mm512_min_ps(x, acc), is_nan, x);
}

#define VEC_NANS __mmask16

/* Returns the lanes in which either vector is a NaN. */
static INLINE VEC_NANS vec_nans(VEC a, VEC b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
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
    __m512 quiet = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
}

/* Loading: 16 elements of a storage, or fewer. If there are fewer, the contents of the other lanes
 * do not matter. */

static INLINE __m128i load_bytes(const uint8_t *bytes, unsigned count)
{
    return count == 16 ? _mm_loadu_si128((const void *)bytes)
                       : _mm_maskz_loadu_epi8(mask_of(count), bytes);
}

/* Loads the bytes of `count` codes. `whole` is the size of 16 codes, at most 8 bytes. Returns an
 * integer, because compilers broadcast integers straight from memory, which does not occupy the
 * vector ports. */
static INLINE int64_t load_codes(const uint8_t *codes, unsigned count, const unsigned whole)
{
    int64_t some = 0;
    memcpy(&some, codes, count == LANES ? whole : (count * whole + LANES - 1) / LANES);
    return some;
}

static INLINE __m256i load_words(const uint8_t *words, unsigned count)
{
    return count == LANES ? _mm256_loadu_si256((const void *)words)
                          : _mm256_maskz_loadu_epi16(mask_of(count), words);
}

static INLINE VEC widen_bf16(__m256i words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

/* An e5m2 is the upper byte of an f16. */
static INLINE VEC widen_e5m2(__m128i bytes)
{
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8));
}

/* If the bits of an e4m3 are shifted to the exponent and mantissa of an f16, they read as an f16
 * that is too small by a factor of 2^8. The one NaN of e4m3 would read as a number. */
static INLINE VEC widen_e4m3(__m128i bytes)
{
    __m256i magnitude = _mm256_set1_epi16(0x7f);
    __m256i words = _mm256_cvtepu8_epi16(bytes);
    __m256i signless = _mm256_and_si256(words, magnitude);
    __m256i sign = _mm256_slli_epi16(_mm256_andnot_si256(magnitude, words), 8);
    __m256i bits = _mm256_or_si256(_mm256_slli_epi16(signless, 7), sign);
    bits = _mm256_mask_mov_epi16(
        bits, _mm256_cmpeq_epi16_mask(signless, magnitude), _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(256));
}

static INLINE VEC widen_int8(__m128i codes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
}

/* Widens 16 codes of 4 bits, in an order that vec_in_order undoes: lane 2j has code j, lane 2j + 1
 * code 8 + j. The low four bits of a lane select from the table. The bits above them do not
 * matter. */
static INLINE VEC widen_int4(int64_t codes)
{
    __m512i shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi64(codes), shifts), values);
}

/* The table has each value four times, so that the next code in the same four bits does not
 * matter. */
static INLINE VEC widen_int2(int64_t codes)
{
    __m512i shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512 values = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    return _mm512_permutexvar_ps(
        _mm512_srlv_epi32(_mm512_set1_epi32((int32_t)codes), shifts), values);
}

/* Returns the first `count` elements at `from`, or the codes if the storage has codes. The lanes of
 * codes are still to be put in order with vec_in_order. Reads no byte past the last element. */
static INLINE VEC vec_load(enum eb_storage storage, const uint8_t *from, unsigned count)
{
    switch (storage) {
    case EB_STORAGE_F16: return _mm512_cvtph_ps(load_words(from, count));
    case EB_STORAGE_BF16: return widen_bf16(load_words(from, count));
    case EB_STORAGE_F8_E4M3: return widen_e4m3(load_bytes(from, count));
    case EB_STORAGE_F8_E5M2: return widen_e5m2(load_bytes(from, count));
    case EB_STORAGE_INT8: return widen_int8(load_bytes(from, count));
    case EB_STORAGE_INT4: return widen_int4(load_codes(from, count, 8));
    case EB_STORAGE_INT2: return widen_int2(load_codes(from, count, 4));
    default:
        return count == LANES ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(mask_of(count), from);
    }
}

/* Puts the lanes of a vector in the order of the columns. The vector must have been computed from
 * vectors that vec_load loaded from that storage. */
static INLINE VEC vec_in_order(enum eb_storage storage, VEC v)
{
    __m512i lanes = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return storage == EB_STORAGE_INT4 ? _mm512_permutexvar_ps(lanes, v) : v;
}

/* Rounds with integer arithmetic, since the processor's own conversion flushes subnormals: adds
 * half of the lowest kept bit, less one if that bit is even, so that a carry rounds up. A canonical
 * NaN stays a canonical NaN. */
static INLINE __m256i narrow_bf16(VEC v)
{
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

/* Stores the first `count` lanes as `type`: f32, f16 or bf16. Writes no byte past them. */
static INLINE void vec_store(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    if (type == EB_F32 && count == LANES) {
        _mm512_storeu_ps(out, v);
    } else if (type == EB_F32) {
        _mm512_mask_storeu_ps(out, mask_of(count), v);
    } else {
        /* Without the mask, the conversion is a macro that causes warnings in unoptimised
         * builds. */
        __m256i words = type == EB_F16 ? _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT)
                                       : narrow_bf16(v);
        _mm256_mask_storeu_epi16(out, mask_of(count), words);
    }
}
