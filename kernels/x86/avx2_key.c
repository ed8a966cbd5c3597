/* Looks up keys with AVX2, which hashes four keys at once. */
#include "kernels/key_index.h"

#include <immintrin.h>
#include <string.h>

#define GROUP 4

typedef uint64_t lanes __attribute__((vector_size(32)));

/* Multiplies lanes. Both factors must be below 2^32. */
static inline lanes multiply(lanes a, uint32_t b)
{
    return (lanes)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
}

static inline lanes hash(uint64_t seed, const int64_t *keys)
{
    lanes x;
    memcpy(&x, keys, sizeof x);
    x += seed;
    x = (x ^ x >> 30) * EB_MIX64_FIRST;
    x = (x ^ x >> 27) * EB_MIX64_SECOND;
    return x ^ x >> 31;
}

/* Does the same as eb_key_hash and eb_key_index_first_bucket, for GROUP keys. */
static inline void hash_group(const struct eb_key_index *index, const int64_t *keys,
    uint64_t *hashes, const struct eb_key_bucket **firsts)
{
    lanes hashed = hash(index->seed, keys);
    lanes partitions = multiply(hashed >> 32, index->partition_count) >> 32;
    lanes buckets = multiply(partitions, index->partition_buckets) +
                    (multiply(hashed & 0xffff, index->partition_buckets) >> 16);
    lanes addresses = (uintptr_t)index->buckets + buckets * sizeof index->buckets[0];
    memcpy(hashes, &hashed, sizeof hashed);
    memcpy(firsts, &addresses, sizeof addresses);
}

static inline unsigned match_slots(const struct eb_key_bucket *bucket, int64_t key)
{
    __m256i four = _mm256_loadu_si256((const __m256i *)(const void *)bucket->keys);
    __m256i equal = _mm256_cmpeq_epi64(four, _mm256_set1_epi64x(key));
    unsigned matches = (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(equal));
    return matches | (unsigned)(bucket->keys[4] == key) << 4;
}

#include "kernels/key_take_tmpl.c"

DEFINE_KEY_TAKE_ROWS(eb_key_avx2_take_rows)
