/* Vectors of 8 floats with AVX2, FMA and F16C, for bag_float_tmpl.c. When
 * compiled for AVX-512VL, the code has 32 registers instead of 16, so a pass keeps twice as many
 * sums.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/types.h"

#include <immintrin.h>
#include <string.h>

#define VEC __m256
#define LANES 8
#ifdef __AVX512VL__
#define PASS_VECTORS 16
#else
#define PASS_VECTORS 8
#endif
#define PASS_VECTORS_IN_PLACE 16

#define INLINE inline __attribute__((always_inline))

/* Returns all ones in the first `count` lanes. */
static INLINE __m256i mask_of(unsigned count)
{
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lanes);
}

static INLINE VEC vec_set(float value)
{
    return _mm256_set1_ps(value);
}

static INLINE VEC vec_add(VEC a, VEC b)
{
    return _mm256_add_ps(a, b);
}

static INLINE VEC vec_fma(VEC a, VEC b, VEC c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static INLINE VEC vec_divide(VEC a, VEC b)
{
    return _mm256_div_ps(a, b);
}

/* The instruction returns its second operand for a tie, or if either operand is a NaN. */
static INLINE VEC vec_max(VEC x, VEC acc)
{
    return _mm256_blendv_ps(_mm256_max_ps(x, acc), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static INLINE VEC vec_min(VEC x, VEC acc)
{
    return _mm256_blendv_ps(_mm256_min_ps(x, acc), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

#define VEC_NANS VEC

/* Returns the lanes in which either vector is a NaN. */
static INLINE VEC_NANS vec_nans(VEC a, VEC b)
{
    return _mm256_cmp_ps(a, b, _CMP_UNORD_Q);
}

static INLINE VEC_NANS vec_nans_or(VEC_NANS a, VEC_NANS b)
{
    return _mm256_or_ps(a, b);
}

static INLINE bool vec_nans_any(VEC_NANS nans)
{
    return _mm256_movemask_ps(nans) != 0;
}

static INLINE VEC vec_canonical(VEC v)
{
    __m256 quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(v, quiet, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

/* Loading: 8 elements of a storage, or fewer. If there are fewer, the contents of the other lanes
 * do not matter. */

/* Loads `count` bytes, at most `whole`, which is the size of 8 elements (at most 16 bytes). */
static INLINE __m128i load_bytes(const uint8_t *bytes, unsigned count, const unsigned whole)
{
    uint8_t some[16] = {0};
    if (count < whole) {
        memcpy(some, bytes, count);
        bytes = some;
    }
    switch (whole) {
    case 2: return _mm_loadu_si16(bytes);
    case 4: return _mm_loadu_si32(bytes);
    case 8: return _mm_loadl_epi64((const void *)bytes);
    default: return _mm_loadu_si128((const void *)bytes);
    }
}

static INLINE VEC widen_bf16(__m128i words)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

/* An e5m2 is the upper byte of an f16. */
static INLINE VEC widen_e5m2(__m128i bytes)
{
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 8));
}

/* If the bits of an e4m3 are shifted to the exponent and mantissa of an f16, they read as an f16
 * that is too small by a factor of 2^8. The one NaN of e4m3 would read as a number. */
static INLINE VEC widen_e4m3(__m128i bytes)
{
    __m128i magnitude = _mm_set1_epi16(0x7f);
    __m128i words = _mm_cvtepu8_epi16(bytes);
    __m128i signless = _mm_and_si128(words, magnitude);
    __m128i sign = _mm_slli_epi16(_mm_andnot_si128(magnitude, words), 8);
    __m128i bits = _mm_or_si128(_mm_slli_epi16(signless, 7), sign);
    __m128i is_nan = _mm_cmpeq_epi16(signless, magnitude);
    bits = _mm_blendv_epi8(bits, _mm_set1_epi16(0x7e00), is_nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(bits), _mm256_set1_ps(256));
}

static INLINE VEC widen_int8(__m128i codes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes));
}

static INLINE VEC widen_int4(__m128i codes)
{
    __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    __m256i shifted = _mm256_srlv_epi32(_mm256_broadcastd_epi32(codes), shifts);
    return _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(0xf)));
}

/* The low three bits of a lane select from the table. The table has each value twice, so that the
 * lowest bit of the next code does not matter. */
static INLINE VEC widen_int2(__m128i codes)
{
    __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256 values = _mm256_setr_ps(0, 1, 2, 3, 0, 1, 2, 3);
    __m256i shifted = _mm256_srlv_epi32(_mm256_broadcastd_epi32(codes), shifts);
    return _mm256_permutevar8x32_ps(values, shifted);
}

/* Returns the first `count` elements at `from`, or the codes if the storage has codes. Reads no
 * byte past the last one. */
static INLINE VEC vec_load(enum eb_storage storage, const uint8_t *from, unsigned count)
{
    switch (storage) {
    case EB_STORAGE_F16: return _mm256_cvtph_ps(load_bytes(from, 2 * count, 16));
    case EB_STORAGE_BF16: return widen_bf16(load_bytes(from, 2 * count, 16));
    case EB_STORAGE_F8_E4M3: return widen_e4m3(load_bytes(from, count, 8));
    case EB_STORAGE_F8_E5M2: return widen_e5m2(load_bytes(from, count, 8));
    case EB_STORAGE_INT8: return widen_int8(load_bytes(from, count, 8));
    case EB_STORAGE_INT4: return widen_int4(load_bytes(from, (count + 1) / 2, 4));
    case EB_STORAGE_INT2: return widen_int2(load_bytes(from, (count + 3) / 4, 2));
    default: break;
    }
    const float *floats = (const void *)from;
    return count == LANES ? _mm256_loadu_ps(floats) : _mm256_maskload_ps(floats, mask_of(count));
}

/* Puts the lanes of a vector in the order of the columns. The vector must have been computed from
 * vectors that vec_load loaded from that storage. */
static INLINE VEC vec_in_order(enum eb_storage storage, VEC v)
{
    (void)storage;
    return v;
}

/* Rounds with integer arithmetic: adds half of the lowest kept bit, less one if that bit is even,
 * so that a carry rounds up. A canonical NaN stays a canonical NaN. */
static INLINE __m128i narrow_bf16(VEC v)
{
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i codes = _mm256_srli_epi32(rounded, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
}

static INLINE void store_words(__m128i words, uint8_t *out, unsigned count)
{
    if (count == LANES) {
        _mm_storeu_si128((__m128i *)(void *)out, words);
        return;
    }
    uint16_t all[LANES];
    memcpy(all, &words, sizeof all);
    memcpy(out, all, count * sizeof all[0]);
}

/* Stores the first `count` lanes as `type`: f32, f16 or bf16. Writes no byte past them. */
static INLINE void vec_store(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    float *floats = (float *)(void *)out;
    if (type == EB_F16) {
        store_words(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT), out, count);
    } else if (type == EB_BF16) {
        store_words(narrow_bf16(v), out, count);
    } else if (count == LANES) {
        _mm256_storeu_ps(floats, v);
    } else {
        _mm256_maskstore_ps(floats, mask_of(count), v);
    }
}
