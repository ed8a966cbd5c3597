#include "client/cli/source_file.h"

#include "server/formats/safetensors.h"
#include "server/tables/table_storage.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8

static struct eb_source_table describe_tensor(const struct eb_tensor *tensor)
{
    return (struct eb_source_table){
        .tensor = *tensor,
        .type = eb_storage_type(tensor->storage),
        .row_stride_bytes = eb_storage_row_bytes(tensor->storage, eb_tensor_row_elements(tensor)),
    };
}

static bool make_tables(struct eb_source_file *source, size_t count, struct eb_failure *failure)
{
    source->tables = calloc(count, sizeof *source->tables);
    if (!source->tables) {
        return eb_failure_set(failure, "out of memory");
    }
    source->table_count = count;
    return true;
}

/* The first `bytes` bytes, to be freed. NULL: *error. */
static uint8_t *read_source_head(
    const struct eb_table_file *file, uint64_t bytes, struct eb_failure *failure)
{
    uint8_t *head = malloc(bytes > 0 ? bytes : 1);
    if (!head) {
        eb_failure_set(failure, "out of memory");
    } else if (!eb_table_file_read(file, 0, head, bytes, failure)) {
        free(head);
        head = NULL;
    }
    return head;
}

static bool open_npy(struct eb_source_file *source, struct eb_failure *failure)
{
    struct eb_tensor tensor;
    bool is_good = eb_npy_pieces_read_header(&source->file, &tensor, failure) &&
                   make_tables(source, 1, failure);
    if (is_good) {
        source->tables[0] = describe_tensor(&tensor);
    }
    return is_good;
}

/* Takes over the names of the entries. */
static bool take_entries(
    struct eb_source_file *source, struct eb_safetensors *list, struct eb_failure *failure)
{
    if (!make_tables(source, list->count, failure)) {
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        struct eb_safetensors_entry *entry = &list->entries[i];
        if (!entry->unfit) {
            source->tables[i] = describe_tensor(&entry->tensor);
        }
        source->tables[i].name = entry->name;
        source->tables[i].unfit = entry->unfit;
        entry->name = NULL;
        entry->unfit = NULL;
    }
    return true;
}

static bool open_safetensors(struct eb_source_file *source, struct eb_failure *failure)
{
    const struct eb_table_file *file = &source->file;
    uint8_t first[LENGTH_BYTES] = {0};
    uint64_t head_bytes;
    if (!eb_table_file_read(
            file, 0, first, file->bytes < sizeof first ? file->bytes : sizeof first, failure) ||
        !eb_safetensors_head_bytes(first, file->bytes, &head_bytes, failure)) {
        return false;
    }
    struct eb_safetensors list = {0};
    uint8_t *head = read_source_head(file, head_bytes, failure);
    bool is_good = head && eb_safetensors_parse(head, head_bytes, file->bytes, &list, failure) &&
                   take_entries(source, &list, failure);
    eb_safetensors_deinit(&list);
    free(head);
    return is_good;
}

static bool open_packed(struct eb_source_file *source, struct eb_failure *failure)
{
    source->is_packed = true;
    if (!eb_packed_reader_open(&source->reader, &source->file, failure) ||
        !make_tables(source, 1, failure)) {
        return false;
    }
    const struct eb_packed_format *format = &source->reader.format;
    source->tables[0] = (struct eb_source_table){
        .tensor = format->tensor,
        .type = format->type,
        .row_stride_bytes = format->row_stride_bytes,
        .row_offset_bytes = format->row_offset_bytes,
    };
    return true;
}

static const struct {
    const char *suffix;
    bool (*open)(struct eb_source_file *source, struct eb_failure *failure);
} formats[] = {
    {".npy", open_npy},
    {".safetensors", open_safetensors},
    {EB_PACKED_FORMAT_SUFFIX, open_packed},
};
#define FORMAT_COUNT (sizeof formats / sizeof formats[0])

/* The format's number, FORMAT_COUNT where there is none. */
static size_t find_format(const char *path)
{
    size_t format = 0;
    for (; format < FORMAT_COUNT; format++) {
        size_t length = strlen(formats[format].suffix);
        if (strlen(path) > length &&
            strcmp(path + strlen(path) - length, formats[format].suffix) == 0) {
            break;
        }
    }
    return format;
}

bool eb_source_file_is_known(const char *path)
{
    return find_format(path) < FORMAT_COUNT;
}

/* The only table of a file that has no names is called like the file. */
static bool name_table(struct eb_source_file *source, const char *path, struct eb_failure *failure)
{
    if (source->tables[0].name) {
        return true;
    }
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t length = strlen(base) - strlen(formats[find_format(path)].suffix);
    source->tables[0].name = strndup(base, length);
    return source->tables[0].name || eb_failure_set(failure, "out of memory");
}

bool eb_source_file_open(
    struct eb_source_file *source, const char *path, struct eb_failure *failure)
{
    size_t format = find_format(path);
    *source = (struct eb_source_file){.path = path};
    if (format == FORMAT_COUNT) {
        return eb_failure_set(
            failure, "it is no NAME.npy, NAME.safetensors or NAME" EB_PACKED_FORMAT_SUFFIX);
    }
    if (!eb_table_file_open(path, &source->file, failure)) {
        return false;
    }
    source->is_open = true;
    if (!formats[format].open(source, failure) || !name_table(source, path, failure)) {
        eb_source_file_close(source);
        return false;
    }
    return true;
}

static bool open_split(struct eb_source_file *source, struct eb_failure *failure)
{
    struct eb_tensor whole;
    if (!eb_npy_pieces_open(&source->parts, source->path, &whole, failure)) {
        return false;
    }
    source->is_split = true;
    if (!make_tables(source, 1, failure)) {
        return false;
    }
    source->tables[0] = describe_tensor(&whole);
    return name_table(source, source->path, failure);
}

bool eb_source_file_open_whole(
    struct eb_source_file *source, const char *path, struct eb_failure *failure)
{
    if (!eb_npy_pieces_is_one(path)) {
        return eb_source_file_open(source, path, failure);
    }
    *source = (struct eb_source_file){.path = path};
    if (!open_split(source, failure)) {
        eb_source_file_close(source);
        return false;
    }
    return true;
}

bool eb_source_table_fuse(struct eb_source_table *table, enum eb_model_format format, uint32_t dim,
    struct eb_failure *failure)
{
    if (!eb_table_storage_find_fused(format, dim, &table->tensor, &table->fused, failure)) {
        return false;
    }
    table->is_fused = true;
    table->tensor.storage = table->fused.storage;
    table->tensor.dims[1] = table->fused.elements;
    table->type = EB_F32;
    table->row_offset_bytes = sizeof(struct eb_row_scale);
    return true;
}

void eb_source_file_close(struct eb_source_file *source)
{
    for (size_t i = 0; i < source->table_count; i++) {
        free(source->tables[i].name);
        free(source->tables[i].unfit);
    }
    free(source->tables);
    eb_packed_reader_close(&source->reader);
    eb_npy_pieces_close(&source->parts);
    if (source->is_open) {
        eb_table_file_close(&source->file);
    }
    *source = (struct eb_source_file){0};
}

bool eb_source_file_read(struct eb_source_file *source, const struct eb_source_table *table,
    struct eb_source_range range, void *out, struct eb_failure *failure)
{
    assert(range.from <= table->tensor.data_bytes);
    assert(range.bytes <= table->tensor.data_bytes - range.from);
    uint64_t offset = table->tensor.data_offset + range.from;
    if (source->is_split) {
        return eb_npy_pieces_read(&source->parts, offset, out, range.bytes, failure);
    }
    return source->is_packed
               ? eb_packed_reader_read(&source->reader, offset, out, range.bytes, failure)
               : eb_table_file_read(&source->file, offset, out, range.bytes, failure);
}
