/* Conversion of rows with AVX2. */
#include "kernels/quantize_range.h"
#include "kernels/x86/vec_avx2.h"

typedef int32_t KEYS __attribute__((vector_size(4 * LANES)));
#define CODE_VECTORS 4

static INLINE KEYS vec_unsigned_min(KEYS a, KEYS b)
{
    return (KEYS)_mm256_min_epu32((__m256i)a, (__m256i)b);
}

static INLINE KEYS vec_unsigned_max(KEYS a, KEYS b)
{
    return (KEYS)_mm256_max_epu32((__m256i)a, (__m256i)b);
}

static INLINE KEYS vec_keys_max(KEYS a, KEYS b)
{
    return (KEYS)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

static INLINE int32_t vec_keys_lowest(KEYS keys)
{
    __m128i low = _mm256_castsi256_si128((__m256i)keys);
    low = _mm_min_epi32(low, _mm256_extracti128_si256((__m256i)keys, 1));
    low = _mm_min_epi32(low, _mm_shuffle_epi32(low, _MM_SHUFFLE(1, 0, 3, 2)));
    low = _mm_min_epi32(low, _mm_shuffle_epi32(low, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtsi128_si32(low);
}

static INLINE int32_t vec_keys_highest(KEYS keys)
{
    return ~vec_keys_lowest(~keys);
}

static INLINE bool vec_keys_any(KEYS mask)
{
    return _mm256_movemask_ps((__m256)mask) != 0;
}

/* Returns the codes of four values, as 32-bit integers. */
static INLINE __m128i encode_avx2(__m128 values, const struct eb_quantize_factors *factors)
{
    __m256d units = _mm256_sub_pd(_mm256_cvtps_pd(values), _mm256_set1_pd(factors->scale.bias));
    __m256d codes = _mm256_mul_pd(units, _mm256_set1_pd(factors->codes_per_unit));
    return _mm256_cvttpd_epi32(_mm256_add_pd(codes, _mm256_set1_pd(0.5)));
}

static INLINE KEYS vec_encode(VEC v, const struct eb_quantize_factors *factors)
{
    __m128i low = encode_avx2(_mm256_castps256_ps128(v), factors);
    __m128i high = encode_avx2(_mm256_extractf128_ps(v, 1), factors);
    return (KEYS)_mm256_set_m128i(high, low);
}

/* Returns 8 codes as bytes, in the low half. */
static INLINE __m128i take_bytes(KEYS codes)
{
    __m128i low = _mm256_castsi256_si128((__m256i)codes);
    __m128i words = _mm_packus_epi32(low, _mm256_extracti128_si256((__m256i)codes, 1));
    return _mm_packus_epi16(words, words);
}

/* Returns 32 codes as bytes. The instructions that pack treat the halves of a vector one by one, so
 * groups of four bytes are then put in order. */
static INLINE __m256i take_bytes_of_all(const KEYS *codes)
{
    __m256i first = _mm256_packus_epi32((__m256i)codes[0], (__m256i)codes[1]);
    __m256i last = _mm256_packus_epi32((__m256i)codes[2], (__m256i)codes[3]);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, last), order);
}

/* Packs the codes in the bytes of `codes`, which must be below 2^bits. Codes of 4 or 2 bits fill
 * the low half or quarter of the result. */
static INLINE __m128i pack_codes(unsigned bits, __m128i codes)
{
    if (bits <= 4) { /* a + 2^bits b, in words */
        codes = _mm_maddubs_epi16(codes, _mm_set1_epi16((short)((1 << (8 + bits)) + 1)));
    }
    if (bits == 2) { /* the same of words of 4 bits */
        codes = _mm_madd_epi16(codes, _mm_set1_epi32((16 << 16) + 1));
        codes = _mm_packs_epi32(codes, codes);
    }
    return bits <= 4 ? _mm_packus_epi16(codes, codes) : codes;
}

static INLINE void vec_store_codes(unsigned bits, const KEYS *codes, unsigned vectors, uint8_t *out)
{
    if (vectors == 1) {
        __m128i packed = pack_codes(bits, take_bytes(codes[0]));
        memcpy(out, &packed, LANES * bits / 8);
        return;
    }
    __m256i all = take_bytes_of_all(codes);
    if (bits == 8) {
        _mm256_storeu_si256((__m256i *)(void *)out, all);
        return;
    }
    __m128i low = pack_codes(bits, _mm256_castsi256_si128(all));
    __m128i high = pack_codes(bits, _mm256_extracti128_si256(all, 1));
    memcpy(out, &low, 2 * LANES * bits / 8);
    memcpy(out + 2 * LANES * bits / 8, &high, 2 * LANES * bits / 8);
}

#include "kernels/quantize_tmpl.c"

DEFINE_QUANTIZE_ROWS(eb_quantize_avx2_rows)
