#include "kernels/key_index.h"

#include <string.h>

static uint32_t find_key_row(const struct eb_key_bucket *bucket, int64_t key)
{
    return eb_key_matched_row(bucket, eb_key_match(bucket, key));
}

int64_t eb_key_index_find(const struct eb_key_index *index, int64_t key)
{
    uint64_t hash = eb_key_hash(index->seed, key);
    const struct eb_key_bucket *first = eb_key_index_first_bucket(index, hash);
    uint32_t row = find_key_row(first, key);
    if (row >= index->row_count && (first->marks & eb_key_mark(hash))) {
        row = find_key_row(eb_key_index_second_bucket(index, hash), key);
    }
    return row < index->row_count ? (int64_t)row : -1;
}

/* Returns what is wrong with the header of an index of `row_count` rows and `byte_count` bytes, or
 * NULL. */
static const char *check_header(
    const struct eb_key_header *header, uint64_t byte_count, uint64_t row_count)
{
    static const uint8_t zero[sizeof header->zero];
    uint64_t bucket_bytes = byte_count - sizeof *header;
    uint64_t bucket_count = (uint64_t)header->partition_count * header->partition_buckets;
    if (memcmp(header->magic, EB_KEY_MAGIC, sizeof header->magic) != 0) {
        return "it does not begin like a key index of this version";
    }
    if (memcmp(header->zero, zero, sizeof zero) != 0) {
        return "its header has bytes that should be zero and are not";
    }
    if (header->row_count != row_count || row_count > EB_KEY_INDEX_ROWS_MAX) {
        return "its number of rows differs from the table's";
    }
    if (header->partition_count == 0 || header->partition_buckets < EB_KEY_BUCKETS_MIN ||
        header->partition_buckets > EB_KEY_BUCKETS_MAX) {
        return "its number of partitions, or of buckets in a partition, is invalid";
    }
    if (bucket_bytes % sizeof(struct eb_key_bucket) != 0 ||
        bucket_bytes / sizeof(struct eb_key_bucket) != bucket_count) {
        return "its size differs from what its header says";
    }
    return NULL;
}

bool eb_key_index_open(struct eb_key_index *index, const void *bytes, uint64_t byte_count,
    uint64_t row_count, const char **reason)
{
    const struct eb_key_header *header = bytes;
    assert((uintptr_t)bytes % EB_KEY_INDEX_ALIGNMENT == 0);
    *reason = byte_count < sizeof *header ? "it is shorter than its header"
                                          : check_header(header, byte_count, row_count);
    if (*reason) {
        return false;
    }
    *index = (struct eb_key_index){
        .buckets = (const void *)(header + 1),
        .row_count = row_count,
        .seed = header->seed,
        .partition_count = header->partition_count,
        .partition_buckets = header->partition_buckets,
    };
    return true;
}

uint64_t eb_key_index_seen_bytes(uint64_t row_count)
{
    return (row_count + 63) / 64 * sizeof(uint64_t);
}

/* Returns what is wrong with a slot that is not empty, or NULL. */
static const char *verify_slot(
    const struct eb_key_index *index, int64_t key, uint32_t row, uint64_t *seen)
{
    uint64_t bit = UINT64_C(1) << (row % 64);
    if (row >= index->row_count) {
        return "a key leads to a row that the table does not have";
    }
    if (seen[row / 64] & bit) {
        return "a row has two keys";
    }
    seen[row / 64] |= bit;
    return eb_key_index_find(index, key) == row
               ? NULL
               : "a key is in a bucket where lookups do not find it";
}

static const char *verify_bucket(
    const struct eb_key_index *index, const struct eb_key_bucket *bucket, uint64_t *seen)
{
    const char *reason = NULL;
    for (unsigned slot = 0; slot < EB_KEY_SLOTS && !reason; slot++) {
        if (bucket->rows[slot] != EB_KEY_ROW_NONE) {
            reason = verify_slot(index, bucket->keys[slot], bucket->rows[slot], seen);
        }
    }
    return reason;
}

static uint64_t count_seen(const struct eb_key_index *index, const uint64_t *seen)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < eb_key_index_seen_bytes(index->row_count) / sizeof *seen; i++) {
        count += (uint64_t)__builtin_popcountll(seen[i]);
    }
    return count;
}

bool eb_key_index_verify(const struct eb_key_index *index, uint64_t *seen, uint64_t *bucket,
    uint64_t count, const char **reason)
{
    uint64_t bucket_count = eb_key_index_bucket_count(index);
    if (*bucket == 0) {
        memset(seen, 0, eb_key_index_seen_bytes(index->row_count));
    }
    for (; *bucket < bucket_count && count > 0; (*bucket)++, count--) {
        *reason = verify_bucket(index, index->buckets + *bucket, seen);
        if (*reason) {
            return false;
        }
    }
    bool is_whole = *bucket == bucket_count;
    *reason = is_whole && count_seen(index, seen) != index->row_count
                  ? "there are rows without a key"
                  : NULL;
    return !*reason;
}
