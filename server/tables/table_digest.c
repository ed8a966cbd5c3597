#include "server/tables/table_digest.h"

#include "server/tables/row_load.h"

#include <string.h>
#include <xxhash.h>

uint64_t eb_table_digest_of(
    const struct eb_planned_table *table, const uint64_t *chunk_hashes, uint64_t keys_hash)
{
    if (eb_table_digest_is_known(table)) {
        return table->rows.pieces->packed->digest;
    }
    const uint64_t head[] = {table->type, table->storage, table->row_stride_bytes, table->is_keyed,
        keys_hash, table->tensor.rank};
    uint64_t digest = XXH3_64bits(head, sizeof head);
    digest = XXH3_64bits_withSeed(
        table->tensor.dims, table->tensor.rank * sizeof table->tensor.dims[0], digest);
    return XXH3_64bits_withSeed(
        chunk_hashes, eb_row_load_chunk_count(table) * sizeof *chunk_hashes, digest);
}

bool eb_table_digest_is_known(const struct eb_planned_table *table)
{
    return table->rows.pieces->packed && table->rows.count == 1 && table->keys.count == 0;
}

uint64_t eb_table_digest_of_set(const struct eb_table_set *set)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < set->count; i++) {
        const struct eb_named_table *table = &set->tables[i];
        digest = XXH3_64bits_withSeed(table->name, strlen(table->name) + 1, digest);
        digest = XXH3_64bits_withSeed(&table->digest, sizeof table->digest, digest);
    }
    return digest;
}
