/* Opens bytes as a key index, or builds an index from bytes as keys and then damages it. No lookup
 * reads outside the index or returns a row that does not exist, and an index that passes
 * verification finds every row. */
#include "kernels/bag_ops.h"
#include "kernels/bag_variant.h"
#include "kernels/key_index.h"
#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 4096
#define HEADER_BYTES sizeof(struct eb_key_header)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Allocates exactly `bytes`, so that a sanitizer detects reads past the end. */
static void *allocate_index(uint64_t bytes)
{
    void *memory = NULL;
    require(posix_memalign(&memory, EB_KEY_INDEX_ALIGNMENT, bytes > 0 ? bytes : 1) == 0);
    return memory;
}

/* Looks up keys together, with every variant that this machine can run, and one by one. */
static void look_up_keys(const struct eb_key_index *index, const int64_t *keys, unsigned count)
{
    int64_t rows[EB_KEY_SLOTS + 1];
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        uint64_t missing_count = 0;
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        memcpy(rows, keys, count * sizeof rows[0]);
        uint64_t missing = eb_bag_ops_variant(ops)->index->take_keys(index, -1, rows, count);
        for (unsigned k = 0; k < count; k++) {
            require(rows[k] >= -1 && rows[k] < (int64_t)index->row_count);
            require(eb_key_index_find(index, keys[k]) == rows[k]);
            missing_count += rows[k] == -1;
        }
        require(missing == missing_count);
    }
}

/* Looks up the key of every slot, and others. */
static void look_up(const struct eb_key_index *index)
{
    uint64_t bucket_count = (uint64_t)index->partition_count * index->partition_buckets;
    for (uint64_t i = 0; i < bucket_count; i++) {
        int64_t keys[EB_KEY_SLOTS + 1];
        memcpy(keys, index->buckets[i].keys, sizeof index->buckets[i].keys);
        keys[EB_KEY_SLOTS] = (int64_t)i;
        look_up_keys(index, keys, EB_KEY_SLOTS + 1);
    }
}

/* Checks that a verified index has every row exactly once, and that lookups find it. */
static void require_whole(const struct eb_key_index *index)
{
    uint64_t bucket_count = (uint64_t)index->partition_count * index->partition_buckets;
    uint64_t found_count = 0;
    for (uint64_t i = 0; i < bucket_count; i++) {
        for (unsigned slot = 0; slot < EB_KEY_SLOTS; slot++) {
            uint32_t row = index->buckets[i].rows[slot];
            if (row != EB_KEY_ROW_NONE) {
                require(eb_key_index_find(index, index->buckets[i].keys[slot]) == row);
                found_count++;
            }
        }
    }
    require(found_count == index->row_count);
}

static bool open_bytes(const void *bytes, uint64_t byte_count, uint64_t row_count)
{
    struct eb_key_index index;
    const char *reason = NULL;
    uint64_t bucket = 0;
    if (!eb_key_index_open(&index, bytes, byte_count, row_count, &reason)) {
        require(reason);
        return false;
    }
    look_up(&index);
    uint64_t *seen = allocate_index(eb_key_index_seen_bytes(row_count));
    bool is_sound = eb_key_index_verify(&index, seen, &bucket, UINT64_MAX, &reason);
    require(is_sound == (!reason));
    if (is_sound) {
        require_whole(&index);
    }
    free(seen);
    return is_sound;
}

/* Tries an index made of the input. The first two bytes are the number of rows, and the third says
 * whether the header is overwritten with one that matches the rest. */
static void try_bytes(const uint8_t *data, size_t size)
{
    uint64_t row_count = (uint64_t)data[0] << 8 | data[1];
    bool is_helped = data[2] & 1;
    uint64_t byte_count = size - 3;
    struct eb_key_header *header = allocate_index(byte_count);
    memcpy(header, data + 3, byte_count);
    if (is_helped && byte_count >= HEADER_BYTES) {
        memcpy(header->magic, EB_KEY_MAGIC, sizeof header->magic);
        memset(header->zero, 0, sizeof header->zero);
        header->row_count = row_count;
        header->partition_count = 1;
        header->partition_buckets = (uint32_t)(byte_count / HEADER_BYTES) - 1;
    }
    open_bytes(header, byte_count, row_count);
    free(header);
}

static void require_pair(const int64_t *keys, uint64_t count, const struct eb_key_pair *pair)
{
    require(pair->first_row < pair->second_row && pair->second_row < count);
    require(keys[pair->first_row] == pair->key && keys[pair->second_row] == pair->key);
}

/* Tries an index built from the input. The first three bytes are a position in the index and the
 * change that is made there; the rest are keys. */
static void try_keys(const uint8_t *data, size_t size)
{
    uint64_t count = (size - 3) / sizeof(int64_t);
    count = count < KEYS_MAX ? count : KEYS_MAX;
    int64_t *keys = allocate_index(count * sizeof keys[0]);
    struct eb_key_build build = {.keys = keys};
    struct eb_key_pair pair;
    require(eb_key_build_plan(count, &build.plan));
    memcpy(keys, data + 3, count * sizeof keys[0]);
    build.index = allocate_index(build.plan.index_bytes);
    build.counts = allocate_index(build.plan.partition_count * sizeof build.counts[0]);
    void *scratch = allocate_index(build.plan.scratch_bytes);
    enum eb_key_outcome outcome = eb_key_build_run(&build, scratch, &pair);
    if (outcome == EB_KEY_DUPLICATE) {
        require_pair(keys, count, &pair);
    } else if (outcome == EB_KEY_OK) {
        require(open_bytes(build.index, build.plan.index_bytes, count));
        uint8_t *bytes = build.index;
        bytes[((uint64_t)data[0] << 8 | data[1]) % build.plan.index_bytes] ^= data[2];
        open_bytes(bytes, build.plan.index_bytes, count);
    }
    free(scratch);
    free(build.counts);
    free(build.index);
    free(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4) {
        return 0;
    }
    if (data[0] & 1) {
        try_keys(data + 1, size - 1);
    } else {
        try_bytes(data + 1, size - 1);
    }
    return 0;
}
