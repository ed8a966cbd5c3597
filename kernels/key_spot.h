/* Which buckets of an index a key may stand in; for the files that look keys up.
 * Thread: pure functions. Memory: none. */
#pragma once

#include "kernels/key_bucket.h"
#include "kernels/key_index.h"

static inline const struct eb_key_bucket *eb_key_spot_first(
    const struct eb_key_index *index, uint64_t hash)
{
    uint64_t partition = eb_key_partition(hash, index->partition_count);
    return index->buckets + partition * index->partition_buckets +
           eb_key_first(hash, index->partition_buckets);
}

static inline const struct eb_key_bucket *eb_key_spot_second(
    const struct eb_key_index *index, uint64_t hash)
{
    uint64_t partition = eb_key_partition(hash, index->partition_count);
    return index->buckets + partition * index->partition_buckets +
           eb_key_second(hash, index->partition_buckets);
}
