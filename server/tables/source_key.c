#include "server/tables/source_key.h"

#include "server/tables/resident_footer.h"

#include <string.h>
#include <xxhash.h>

/* The first word of a file's identity. */
enum identity { BY_DIGEST = 1, BY_STAMP, BY_NAME };

/* What identifies files without a digest. */
struct key_kind {
    const char *model; /* NULL in origins, which take the stamps */
    uint64_t version;
};

#define ADD(key, words) XXH3_64bits_withSeed(words, sizeof(words), key)

static uint64_t add_text(uint64_t key, const char *text)
{
    return XXH3_64bits_withSeed(text, strlen(text) + 1, key);
}

static uint64_t add_stamp(uint64_t key, const struct eb_table_file *stamp)
{
    const uint64_t words[] = {BY_STAMP, stamp->device, stamp->inode, stamp->bytes,
        (uint64_t)stamp->changed.tv_sec, (uint64_t)stamp->changed.tv_nsec,
        (uint64_t)stamp->born.tv_sec, (uint64_t)stamp->born.tv_nsec};
    return ADD(key, words);
}

static uint64_t add_name(
    uint64_t key, const struct key_kind *kind, const struct eb_scanned_file *file)
{
    const struct eb_table_file *stamp = &file->stamp;
    const char *slash = strrchr(file->path, '/');
    const uint64_t words[] = {BY_NAME, kind->version, stamp->bytes, (uint64_t)stamp->changed.tv_sec,
        (uint64_t)stamp->changed.tv_nsec};
    key = ADD(key, words);
    return add_text(add_text(key, kind->model), slash ? slash + 1 : file->path);
}

static uint64_t add_file(
    uint64_t key, const struct key_kind *kind, const struct eb_scanned_file *file)
{
    if (file->has_digest) {
        const uint64_t words[] = {BY_DIGEST, file->stamp.bytes, file->digest};
        return ADD(key, words);
    }
    return kind->model ? add_name(key, kind, file) : add_stamp(key, &file->stamp);
}

static uint64_t add_pieces(uint64_t key, const struct key_kind *kind,
    const struct eb_table_plan *plan, const struct eb_piece_range *range)
{
    for (size_t i = 0; i < range->count; i++) {
        const struct eb_piece *piece = &range->pieces[i];
        const uint64_t data[] = {piece->tensor.data_offset, piece->tensor.data_bytes};
        key = ADD(add_file(key, kind, &plan->scan.files[piece->file]), data);
    }
    return key;
}

static uint64_t make_key(const struct eb_table_plan *plan, const struct eb_planned_table *table,
    const struct key_kind *kind)
{
    const uint64_t head[] = {EB_RESIDENT_LAYOUT_VERSION, table->type, table->storage,
        table->row_stride_bytes, table->row_offset_bytes, table->tensor.storage, table->is_fused,
        table->is_fused ? table->fused.layout : 0, table->has_scales, table->rows.count,
        table->keys.count, table->scales.count, table->biases.count, table->tensor.rank};
    uint64_t key = XXH3_64bits(head, sizeof head);
    key = XXH3_64bits_withSeed(
        table->tensor.dims, table->tensor.rank * sizeof table->tensor.dims[0], key);
    const struct eb_piece_range *const ranges[] = {
        &table->rows, &table->keys, &table->scales, &table->biases};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        key = add_pieces(key, kind, plan, ranges[i]);
    }
    return key;
}

uint64_t eb_source_key_origin(
    const struct eb_table_plan *plan, const struct eb_planned_table *table)
{
    return make_key(plan, table, &(struct key_kind){0});
}

uint64_t eb_source_key(const struct eb_table_plan *plan, const struct eb_planned_table *table,
    const char *model, uint64_t version)
{
    return make_key(plan, table, &(struct key_kind){model, version});
}
