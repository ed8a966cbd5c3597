#include "client/cli/pack_keys.h"

#include "client/cli/progress_bar.h"
#include "server/tables/key_workers.h"

#include <inttypes.h>
#include <stdlib.h>

bool eb_pack_keys_check(const struct eb_tensor *tensor, struct eb_failure *failure)
{
    bool is_good = tensor->rank == 1 &&
                   (tensor->storage == EB_STORAGE_I64 || tensor->storage == EB_STORAGE_U64);
    char shape[EB_TENSOR_SHAPE_BYTES];
    eb_tensor_shape_text(tensor, shape);
    return is_good ||
           eb_failure_set(failure, "%s of %s cannot be keys; expected one dimension of i64 or u64",
               shape, eb_storage_name(tensor->storage));
}

static bool make_packed_key_room(
    struct eb_pack_keys *keys, uint64_t count, struct eb_failure *failure)
{
    keys->count = count;
    keys->keys =
        count < SIZE_MAX / sizeof *keys->keys ? malloc((count + 1) * sizeof *keys->keys) : NULL;
    return keys->keys || eb_failure_set(failure, "out of memory for its keys");
}

static bool read_packed_key_source(
    struct eb_pack_keys *keys, struct eb_source_file *source, struct eb_failure *failure)
{
    if (source->table_count != 1) {
        return eb_failure_set(failure,
            "it has %zu tensors; write the keys to an npy file of their own", source->table_count);
    }
    const struct eb_source_table *table = &source->tables[0];
    struct eb_source_range all = {0, table->tensor.data_bytes};
    return eb_pack_keys_check(&table->tensor, failure) &&
           make_packed_key_room(keys, table->tensor.dims[0], failure) &&
           eb_source_file_read(source, table, all, keys->keys, failure);
}

/* Reads the keys of an open source and closes it. */
static bool read_open(
    struct eb_pack_keys *keys, struct eb_source_file *source, struct eb_failure *failure)
{
    bool is_good = read_packed_key_source(keys, source, failure);
    eb_source_file_close(source);
    if (!is_good) {
        eb_pack_keys_deinit(keys);
    }
    return is_good;
}

bool eb_pack_keys_read(struct eb_pack_keys *keys, const char *path, struct eb_failure *failure)
{
    struct eb_source_file source;
    *keys = (struct eb_pack_keys){0};
    return eb_source_file_open(&source, path, failure) && read_open(keys, &source, failure);
}

bool eb_pack_keys_read_whole(
    struct eb_pack_keys *keys, const char *path, struct eb_failure *failure)
{
    struct eb_source_file source;
    *keys = (struct eb_pack_keys){0};
    return eb_source_file_open_whole(&source, path, failure) && read_open(keys, &source, failure);
}

bool eb_pack_keys_read_raw(struct eb_pack_keys *keys, const char *path, struct eb_failure *failure)
{
    struct eb_source_file source;
    *keys = (struct eb_pack_keys){0};
    return eb_source_file_open_raw(&source, path, EB_STORAGE_I64, 0, failure) &&
           read_open(keys, &source, failure);
}

bool eb_pack_keys_unpack(
    struct eb_pack_keys *keys, struct eb_packed_reader *reader, struct eb_failure *failure)
{
    const struct eb_packed_section *section = &reader->format.sections[EB_PACKED_KEYS];
    *keys = (struct eb_pack_keys){0};
    bool is_good = make_packed_key_room(keys, section->bytes / sizeof *keys->keys, failure) &&
                   (section->bytes == 0 || eb_packed_reader_read(reader, section->offset,
                                               keys->keys, section->bytes, failure));
    if (!is_good) {
        eb_pack_keys_deinit(keys);
    }
    return is_good;
}

static bool continue_packed_keys(void *context, uint64_t bytes)
{
    eb_progress_bar_advance(context, bytes);
    return true;
}

bool eb_pack_keys_index(struct eb_pack_keys *keys, struct eb_failure *failure)
{
    struct eb_progress_bar bar;
    struct eb_key_workers workers = {
        .keys = keys->keys, .go_on = continue_packed_keys, .context = &bar};
    if (!eb_key_build_plan(keys->count, &workers.plan)) {
        return eb_failure_set(failure,
            "%" PRIu64 " rows have keys, at most %" PRIu64 " can; split it into several tables",
            keys->count, EB_KEY_INDEX_ROWS_MAX);
    }
    keys->index_bytes = workers.plan.index_bytes;
    keys->index = eb_table_memory_take(&keys->memory, keys->index_bytes, failure);
    if (!keys->index) {
        return false;
    }
    uint32_t row;
    workers.index = keys->index;
    eb_progress_bar_init(&bar, "key index", workers.plan.index_bytes);
    bool is_good = eb_key_workers_build(&workers, &row, failure);
    eb_progress_bar_end(&bar);
    return is_good;
}

void eb_pack_keys_drop_index(struct eb_pack_keys *keys)
{
    eb_table_memory_deinit(&keys->memory);
    keys->memory = (struct eb_table_memory){0};
    keys->index = NULL;
    keys->index_bytes = 0;
}

void eb_pack_keys_deinit(struct eb_pack_keys *keys)
{
    free(keys->keys);
    eb_table_memory_deinit(&keys->memory);
    *keys = (struct eb_pack_keys){0};
}
