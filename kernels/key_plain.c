/* Looking up keys without vector instructions, one after the other. */
#include "kernels/key_index.h"

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

#include "kernels/key_take.h"

DEFINE_KEY_TAKE_ROWS(eb_key_index_take_rows)
