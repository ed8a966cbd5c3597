#include "server/tables/table_digest.h"

#include <string.h>
#include <xxhash.h>

bool eb_table_digest_init(struct eb_table_digest *digest, const struct eb_planned_table *table,
    struct eb_failure *failure)
{
    digest->state = XXH3_createState();
    if (!digest->state) {
        return eb_failure_set(failure, "out of memory");
    }
    (void)XXH3_64bits_reset(digest->state);
    const uint64_t head[] = {
        table->type, table->storage, table->row_stride_bytes, table->is_keyed, table->tensor.rank};
    eb_table_digest_update(digest, head, sizeof head);
    eb_table_digest_update(
        digest, table->tensor.dims, table->tensor.rank * sizeof table->tensor.dims[0]);
    return true;
}

void eb_table_digest_deinit(struct eb_table_digest *digest)
{
    (void)XXH3_freeState(digest->state);
    digest->state = NULL;
}

void eb_table_digest_update(struct eb_table_digest *digest, const void *bytes, uint64_t size)
{
    (void)XXH3_64bits_update(digest->state, bytes, size);
}

uint64_t eb_table_digest_read(
    const struct eb_table_digest *digest, const struct eb_planned_table *table)
{
    return eb_table_digest_is_known(table) ? table->rows.pieces->packed->digest
                                           : XXH3_64bits_digest(digest->state);
}

bool eb_table_digest_is_known(const struct eb_planned_table *table)
{
    return table->rows.pieces->packed && table->rows.count == 1 && table->keys.count == 0;
}

static uint64_t add_digest_pieces(
    const struct eb_table_plan *plan, const struct eb_piece_range *range, uint64_t digest)
{
    for (size_t i = 0; i < range->count; i++) {
        const struct eb_piece *piece = &range->pieces[i];
        const struct eb_table_file *look = &plan->scan.files[piece->file].look;
        const uint64_t place[] = {look->device, look->inode, look->bytes,
            (uint64_t)look->changed.tv_sec, (uint64_t)look->changed.tv_nsec,
            (uint64_t)look->born.tv_sec, (uint64_t)look->born.tv_nsec, piece->tensor.data_offset,
            piece->tensor.data_bytes};
        digest = XXH3_64bits_withSeed(place, sizeof place, digest);
    }
    return digest;
}

uint64_t eb_table_digest_of_origin(
    const struct eb_table_plan *plan, const struct eb_planned_table *table)
{
    const uint64_t head[] = {table->is_fused, table->fused.layout, table->tensor.storage,
        table->type, table->storage, table->row_stride_bytes, table->rows.count, table->keys.count,
        table->scales.count, table->biases.count};
    uint64_t digest = XXH3_64bits(head, sizeof head);
    digest = XXH3_64bits_withSeed(
        table->tensor.dims, table->tensor.rank * sizeof table->tensor.dims[0], digest);
    const struct eb_piece_range *const ranges[] = {
        &table->rows, &table->keys, &table->scales, &table->biases};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        digest = add_digest_pieces(plan, ranges[i], digest);
    }
    return digest;
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
