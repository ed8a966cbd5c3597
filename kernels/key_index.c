#include "kernels/key_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Average number of keys in a partition. It is so large that even with a billion rows no partition
 * has a seventh more keys than the average, and so small that a partition's buckets and keys fit
 * into L2. */
#define PARTITION_KEYS 4096
/* There are four buckets for 17 keys, so that 0.85 of the slots are used. */
#define BUCKETS_PER_KEYS 4
#define KEYS_PER_BUCKETS 17
/* Most keys that are moved to make room for one key. */
#define MOVES_MAX 500

/* ---- looking up one key, and checking an index ---- */

const struct eb_key_index eb_key_index_remote;

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
 * NULL if the header is valid. */
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

/* Returns what is wrong with a slot that is not empty, or NULL if the slot is sound. Marks the
 * slot's row in `seen`. */
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

/* ---- building ---- */

/* A key that has no bucket yet. Until the keys of a partition are placed, its entries are stored
 * one after the other in the memory of its buckets. */
struct entry {
    uint32_t key[2]; /* an int64 in two halves, so that the struct is aligned to 4 bytes only */
    uint32_t row;
};

static_assert(sizeof(struct entry) * EB_KEY_SLOTS <= sizeof(struct eb_key_bucket),
    "a partition has room for as many entries as for keys");

/* A partition that is being built. */
struct partition {
    struct eb_key_bucket *buckets;
    uint64_t seed;
    uint32_t bucket_count;
    uint64_t dice;
};

bool eb_key_build_plan(uint64_t row_count, struct eb_key_plan *plan)
{
    if (row_count > EB_KEY_INDEX_ROWS_MAX) {
        return false;
    }
    uint64_t partitions = (row_count + PARTITION_KEYS / 2) / PARTITION_KEYS;
    partitions = partitions > 0 ? partitions : 1;
    uint64_t keys = (row_count + partitions - 1) / partitions;
    uint64_t buckets = (keys * BUCKETS_PER_KEYS + KEYS_PER_BUCKETS - 1) / KEYS_PER_BUCKETS;
    buckets = buckets > EB_KEY_BUCKETS_MIN ? buckets : EB_KEY_BUCKETS_MIN;
    *plan = (struct eb_key_plan){
        .row_count = row_count,
        .index_bytes =
            sizeof(struct eb_key_header) + partitions * buckets * sizeof(struct eb_key_bucket),
        .scratch_bytes = buckets * EB_KEY_SLOTS * sizeof(struct entry),
        .slice_count = (row_count + EB_KEY_SLICE_ROWS - 1) / EB_KEY_SLICE_ROWS,
        .partition_count = (uint32_t)partitions,
        .partition_buckets = (uint32_t)buckets,
    };
    return true;
}

static struct eb_key_header *header_of(const struct eb_key_build *build)
{
    return build->index;
}

static struct eb_key_bucket *buckets_of(const struct eb_key_build *build, uint64_t partition)
{
    struct eb_key_bucket *buckets = (void *)(header_of(build) + 1);
    return buckets + partition * build->plan.partition_buckets;
}

static int64_t key_of_entry(const struct entry *entry)
{
    int64_t key;
    memcpy(&key, entry->key, sizeof key);
    return key;
}

static int compare_build_entries(const void *a, const void *b)
{
    const struct entry *left = a;
    const struct entry *right = b;
    int64_t left_key = key_of_entry(left);
    int64_t right_key = key_of_entry(right);
    if (left_key != right_key) {
        return left_key < right_key ? -1 : 1;
    }
    return (left->row > right->row) - (left->row < right->row);
}

/* Finds out why there was no room for entries: either two of them have the same key, or keys are
 * badly distributed. */
static enum eb_key_outcome explain_build(
    struct entry *entries, uint32_t count, struct eb_key_pair *pair)
{
    qsort(entries, count, sizeof entries[0], compare_build_entries);
    for (uint32_t i = 1; i < count; i++) {
        if (key_of_entry(&entries[i - 1]) == key_of_entry(&entries[i])) {
            *pair =
                (struct eb_key_pair){key_of_entry(&entries[i]), entries[i - 1].row, entries[i].row};
            return EB_KEY_DUPLICATE;
        }
    }
    return EB_KEY_AGAIN;
}

static uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

/* Runs rounds of SipHash on its state v. */
static void mix_key(uint64_t v[4], unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

static void start_build(uint64_t v[4])
{
    v[0] = UINT64_C(0x736f6d6570736575);
    v[1] = UINT64_C(0x646f72616e646f6d);
    v[2] = UINT64_C(0x6c7967656e657261);
    v[3] = UINT64_C(0x7465646279746573);
}

static void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix_key(v, 2);
    v[0] ^= word;
}

static uint64_t finish_build(uint64_t v[4])
{
    v[2] ^= 0xff;
    mix_key(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Returns the rows of a slice. */
static struct eb_key_range slice_rows(const struct eb_key_build *build, uint64_t slice)
{
    uint64_t first = slice * EB_KEY_SLICE_ROWS;
    uint64_t left = build->plan.row_count - first;
    return (struct eb_key_range){
        first, first + (left < EB_KEY_SLICE_ROWS ? left : EB_KEY_SLICE_ROWS)};
}

static int64_t load_key(const struct eb_key_build *build, uint64_t row)
{
    int64_t key;
    memcpy(&key, (const uint8_t *)build->keys + row * sizeof key, sizeof key);
    return key;
}

/* Returns SipHash-2-4 of a slice's keys. The same function joins the digests of slices. A simpler
 * hash could be manipulated: somebody could choose a seed, find keys that it distributes badly, and
 * find one more key that makes the hash produce that seed. */
uint64_t eb_key_build_digest(const struct eb_key_build *build, uint64_t slice)
{
    struct eb_key_range rows = slice_rows(build, slice);
    uint64_t v[4];
    start_build(v);
    for (uint64_t row = rows.first; row < rows.end; row++) {
        absorb(v, (uint64_t)load_key(build, row));
    }
    return finish_build(v);
}

void eb_key_build_digest_all(struct eb_key_build *build)
{
    uint64_t v[4];
    start_build(v);
    for (uint64_t i = 0; i < build->plan.slice_count; i++) {
        absorb(v, eb_key_build_digest(build, i));
    }
    build->digest = finish_build(v);
}

void eb_key_build_join(struct eb_key_build *build, const uint64_t *digests)
{
    uint64_t v[4];
    start_build(v);
    for (uint64_t i = 0; i < build->plan.slice_count; i++) {
        absorb(v, digests[i]);
    }
    build->digest = finish_build(v);
}

void eb_key_build_begin(struct eb_key_build *build, uint32_t attempt)
{
    assert((uintptr_t)build->index % EB_KEY_INDEX_ALIGNMENT == 0);
    struct eb_key_header header = {
        .magic = EB_KEY_MAGIC,
        .row_count = build->plan.row_count,
        .seed = eb_key_hash(build->digest, (int64_t)attempt + 1),
        .partition_count = build->plan.partition_count,
        .partition_buckets = build->plan.partition_buckets,
    };
    uint64_t count = (uint64_t)build->share_count * build->plan.partition_count;
    memcpy(build->index, &header, sizeof header);
    memset(build->counts, 0, count * sizeof build->counts[0]);
}

static uint32_t *counts_of(const struct eb_key_build *build, uint32_t share)
{
    return build->counts + (uint64_t)share * build->plan.partition_count;
}

static uint32_t entries_max(const struct eb_key_build *build)
{
    return build->plan.partition_buckets * EB_KEY_SLOTS;
}

void eb_key_build_count(struct eb_key_build *build, uint32_t share, struct eb_key_range rows)
{
    uint64_t seed = header_of(build)->seed;
    uint32_t *counts = counts_of(build, share);
    for (uint64_t row = rows.first; row < rows.end; row++) {
        uint64_t hash = eb_key_hash(seed, load_key(build, row));
        counts[eb_key_partition(hash, build->plan.partition_count)]++;
    }
}

void eb_key_build_allot(struct eb_key_build *build)
{
    for (uint32_t partition = 0; partition < build->plan.partition_count; partition++) {
        uint32_t next = 0;
        for (uint32_t share = 0; share < build->share_count; share++) {
            uint32_t *count = counts_of(build, share) + partition;
            uint32_t first = next;
            next += *count;
            *count = first;
        }
    }
}

/* Leaves out keys for which their partition has no room. eb_key_build_place then sees that the
 * partition has too many keys. */
void eb_key_build_assign(struct eb_key_build *build, uint32_t share, struct eb_key_range rows)
{
    uint64_t seed = header_of(build)->seed;
    uint32_t room = entries_max(build);
    uint32_t *nexts = counts_of(build, share);
    for (uint64_t row = rows.first; row < rows.end; row++) {
        int64_t key = load_key(build, row);
        uint32_t partition = eb_key_partition(eb_key_hash(seed, key), build->plan.partition_count);
        struct entry *entries = (void *)buckets_of(build, partition);
        uint32_t next = nexts[partition]++;
        if (next < room) {
            memcpy(entries[next].key, &key, sizeof key);
            entries[next].row = (uint32_t)row;
        }
    }
}

static void clear_buckets(struct partition *partition)
{
    for (uint32_t i = 0; i < partition->bucket_count; i++) {
        struct eb_key_bucket *bucket = &partition->buckets[i];
        *bucket = (struct eb_key_bucket){0};
        memset(bucket->rows, 0xff, sizeof bucket->rows);
    }
}

/* Puts an entry into a free slot. Returns false if the bucket is full. */
static bool put_entry(struct eb_key_bucket *bucket, int64_t key, uint32_t row)
{
    for (unsigned slot = 0; slot < EB_KEY_SLOTS; slot++) {
        if (bucket->rows[slot] == EB_KEY_ROW_NONE) {
            bucket->keys[slot] = key;
            bucket->rows[slot] = row;
            return true;
        }
    }
    return false;
}

/* Returns the other bucket of a key that is in bucket `at`. */
static uint32_t other_bucket(const struct partition *partition, uint32_t at, int64_t key)
{
    uint64_t hash = eb_key_hash(partition->seed, key);
    uint32_t first = eb_key_first(hash, partition->bucket_count);
    return at == first ? eb_key_second(hash, partition->bucket_count) : first;
}

static bool is_build_full(const struct eb_key_bucket *bucket)
{
    return bucket->rows[EB_KEY_SLOTS - 1] != EB_KEY_ROW_NONE;
}

/* Returns the slot of a full bucket whose key must leave. Prefers a key that has room in its other
 * bucket, since any other key would make a further key move to its second bucket. */
static unsigned choose_slot(struct partition *partition, uint32_t at)
{
    const struct eb_key_bucket *bucket = &partition->buckets[at];
    for (unsigned slot = 0; slot < EB_KEY_SLOTS; slot++) {
        if (!is_build_full(&partition->buckets[other_bucket(partition, at, bucket->keys[slot])])) {
            return slot;
        }
    }
    partition->dice = partition->dice * UINT64_C(6364136223846793005) + 1;
    return (unsigned)((partition->dice >> 32) % EB_KEY_SLOTS);
}

/* Puts a key whose first bucket is full into its second bucket. If the second bucket is full too,
 * puts the key into its first bucket and moves one of the keys there to the moved key's other
 * bucket, and so on. So hardly more keys leave their first buckets than is necessary. Returns false
 * if too many keys would have to move. */
static bool make_build_room(struct partition *partition, int64_t key, uint32_t row)
{
    uint64_t hash = eb_key_hash(partition->seed, key);
    uint32_t at = eb_key_second(hash, partition->bucket_count);
    if (is_build_full(&partition->buckets[at])) {
        at = eb_key_first(hash, partition->bucket_count);
    }
    for (unsigned moves = 0; moves < MOVES_MAX; moves++) {
        struct eb_key_bucket *bucket = &partition->buckets[at];
        if (put_entry(bucket, key, row)) {
            return true;
        }
        unsigned slot = choose_slot(partition, at);
        int64_t moved_key = bucket->keys[slot];
        uint32_t moved_row = bucket->rows[slot];
        bucket->keys[slot] = key;
        bucket->rows[slot] = row;
        key = moved_key;
        row = moved_row;
        at = other_bucket(partition, at, key);
    }
    return false;
}

/* The outcome of a search for an entry's key in its buckets: the key is not there, is there with
 * the entry's row, or is there with another row. */
enum standing { STANDS_NOWHERE, STANDS_AS_ITSELF, STANDS_FOR_ANOTHER };

static enum standing look_at(const struct eb_key_bucket *bucket, const struct entry *entry)
{
    enum standing standing = STANDS_NOWHERE;
    for (unsigned left = eb_key_match(bucket, key_of_entry(entry)); left > 0; left &= left - 1) {
        uint32_t row = bucket->rows[__builtin_ctz(left)];
        if (row == entry->row) {
            standing = STANDS_AS_ITSELF;
        } else if (row != EB_KEY_ROW_NONE) {
            return STANDS_FOR_ANOTHER;
        }
    }
    return standing;
}

/* Searches both buckets, even if the first one has the key: a key that is there with this entry's
 * row may also be in the other bucket with another row. */
static enum standing find_standing(const struct partition *partition, const struct entry *entry)
{
    uint64_t hash = eb_key_hash(partition->seed, key_of_entry(entry));
    uint32_t first = eb_key_first(hash, partition->bucket_count);
    uint32_t second = eb_key_second(hash, partition->bucket_count);
    enum standing in_first = look_at(&partition->buckets[first], entry);
    if (in_first == STANDS_FOR_ANOTHER) {
        return in_first;
    }
    enum standing in_second = look_at(&partition->buckets[second], entry);
    return in_second == STANDS_NOWHERE ? in_first : in_second;
}

/* Puts keys into their first buckets as long as there is room. This must be done for all keys
 * before any goes to its second bucket. */
static void place_first(struct partition *partition, const struct entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int64_t key = key_of_entry(&entries[i]);
        uint64_t hash = eb_key_hash(partition->seed, key);
        put_entry(
            &partition->buckets[eb_key_first(hash, partition->bucket_count)], key, entries[i].row);
    }
}

static enum eb_key_outcome place_rest(
    struct partition *partition, struct entry *entries, uint32_t count, struct eb_key_pair *pair)
{
    for (uint32_t i = 0; i < count; i++) {
        enum standing standing = find_standing(partition, &entries[i]);
        if (standing == STANDS_FOR_ANOTHER ||
            (standing == STANDS_NOWHERE &&
                !make_build_room(partition, key_of_entry(&entries[i]), entries[i].row))) {
            return explain_build(entries, count, pair);
        }
    }
    return EB_KEY_OK;
}

static void mark_buckets(struct partition *partition)
{
    for (uint32_t i = 0; i < partition->bucket_count; i++) {
        const struct eb_key_bucket *bucket = &partition->buckets[i];
        for (unsigned s = 0; s < EB_KEY_SLOTS && bucket->rows[s] != EB_KEY_ROW_NONE; s++) {
            uint64_t hash = eb_key_hash(partition->seed, bucket->keys[s]);
            uint32_t first = eb_key_first(hash, partition->bucket_count);
            if (first != i) {
                partition->buckets[first].marks |= eb_key_mark(hash);
            }
        }
    }
}

enum eb_key_outcome eb_key_build_place(
    struct eb_key_build *build, uint32_t number, void *scratch, struct eb_key_pair *pair)
{
    struct partition partition = {
        .buckets = buckets_of(build, number),
        .seed = header_of(build)->seed,
        .bucket_count = build->plan.partition_buckets,
    };
    struct entry *entries = scratch;
    uint32_t room = entries_max(build);
    /* After assigning, the position of the last share's next key is the number of the partition's
     * keys. */
    uint32_t count = counts_of(build, build->share_count - 1)[number];
    memcpy(entries, partition.buckets, (count < room ? count : room) * sizeof entries[0]);
    if (count > room) {
        return explain_build(entries, room, pair);
    }
    clear_buckets(&partition);
    place_first(&partition, entries, count);
    enum eb_key_outcome outcome = place_rest(&partition, entries, count, pair);
    mark_buckets(&partition);
    return outcome;
}

static enum eb_key_outcome run_build_attempt(
    struct eb_key_build *build, void *scratch, struct eb_key_pair *pair)
{
    struct eb_key_range rows = {0, build->plan.row_count};
    enum eb_key_outcome outcome = EB_KEY_OK;
    eb_key_build_count(build, 0, rows);
    eb_key_build_allot(build);
    eb_key_build_assign(build, 0, rows);
    for (uint32_t i = 0; i < build->plan.partition_count && outcome == EB_KEY_OK; i++) {
        outcome = eb_key_build_place(build, i, scratch, pair);
    }
    return outcome;
}

enum eb_key_outcome eb_key_build_run(
    struct eb_key_build *build, void *scratch, struct eb_key_pair *pair)
{
    enum eb_key_outcome outcome = EB_KEY_AGAIN;
    build->share_count = 1;
    eb_key_build_digest_all(build);
    for (uint32_t attempt = 0; attempt < EB_KEY_ATTEMPTS_MAX && outcome == EB_KEY_AGAIN;
         attempt++) {
        eb_key_build_begin(build, attempt);
        outcome = run_build_attempt(build, scratch, pair);
    }
    return outcome;
}

/* ---- looking up many keys without vector instructions, one after the other ---- */

#define GROUP 1

static inline void hash_group(const struct eb_key_index *index, const int64_t *keys,
    uint64_t *hashes, const struct eb_key_bucket **firsts)
{
    hashes[0] = eb_key_hash(index->seed, keys[0]);
    firsts[0] = eb_key_index_first_bucket(index, hashes[0]);
}

static inline unsigned match_slots(const struct eb_key_bucket *bucket, int64_t key)
{
    return eb_key_match(bucket, key);
}

#include "kernels/key_take_tmpl.c"

DEFINE_KEY_TAKE_ROWS(eb_key_index_take_rows)
