#include "client/cli/source_file.h"

#include "server/contents/file_name.h"
#include "server/formats/npy.h"
#include "server/formats/safetensors.h"
#include "server/tables/table_storage.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define NUMBER_DIGITS 5

static const char *base_of_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- several npy files ---- */

/* Reads the header of an open npy file. Returns false if it has none; *failure says why, without
 * the path. */
static bool read_npy_header(
    struct eb_table_file *file, struct eb_tensor *tensor, struct eb_failure *failure)
{
    uint64_t bytes = file->bytes < EB_NPY_HEADER_BYTES_MAX ? file->bytes : EB_NPY_HEADER_BYTES_MAX;
    uint8_t *head = malloc(bytes + 1);
    if (!head) {
        return eb_failure_set(failure, "out of memory");
    }
    bool is_good = eb_table_file_read(file, 0, head, bytes, failure) &&
                   eb_npy_parse(head, bytes, file->bytes, tensor, failure);
    free(head);
    return is_good;
}

/* Returns whether a file is named like a piece of several. */
static bool is_npy_piece(const char *path)
{
    struct eb_file_name name = eb_file_name_parse(base_of_path(path));
    return name.is_split && (name.kind == EB_FILE_NPY || name.kind == EB_FILE_KEYS);
}

/* Puts the path of the current piece before an error, unless that is the path that the caller gave.
 * Always returns false. */
static bool locate_npy_error(const struct eb_npy_pieces *pieces, struct eb_failure *failure)
{
    return pieces->at != pieces->given && eb_failure_locate(failure, pieces->path);
}

static void close_piece(struct eb_npy_pieces *pieces)
{
    if (pieces->is_open) {
        eb_table_file_close(&pieces->file);
    }
    pieces->is_open = false;
}

static bool open_piece(struct eb_npy_pieces *pieces, uint32_t number, struct eb_failure *failure)
{
    char digits[2 * NUMBER_DIGITS + 1]; /* room for any number; those of pieces have five digits */
    close_piece(pieces);
    pieces->at = number;
    snprintf(digits, sizeof digits, "%0*" PRIu32, NUMBER_DIGITS, number);
    memcpy(pieces->path + pieces->number, digits, NUMBER_DIGITS);
    pieces->is_open = eb_table_file_open(pieces->path, &pieces->file, failure);
    return pieces->is_open || locate_npy_error(pieces, failure);
}

/* Reads the header of the next piece and appends its rows to *whole. */
static bool add_npy_piece(struct eb_npy_pieces *pieces, struct eb_tensor *whole, uint32_t number,
    struct eb_failure *failure)
{
    struct eb_npy_piece *piece = &pieces->pieces[number];
    if (!open_piece(pieces, number, failure)) {
        return false;
    }
    piece->stamp = pieces->file;
    if (!read_npy_header(&pieces->file, &piece->tensor, failure)) {
        return locate_npy_error(pieces, failure);
    }
    const struct eb_tensor *tensor = &piece->tensor;
    if (number == 0) {
        *whole = *tensor;
        whole->data_offset = 0;
        return true;
    }
    bool is_alike =
        tensor->storage == whole->storage && tensor->rank == whole->rank &&
        memcmp(tensor->dims + 1, whole->dims + 1, (tensor->rank - 1) * sizeof tensor->dims[0]) == 0;
    if (!is_alike || __builtin_add_overflow(whole->dims[0], tensor->dims[0], &whole->dims[0]) ||
        __builtin_add_overflow(whole->data_bytes, tensor->data_bytes, &whole->data_bytes)) {
        eb_failure_set(
            failure, "its type or row shape differs from piece 0's; all pieces must agree");
        return locate_npy_error(pieces, failure);
    }
    return true;
}

static bool add_npy_pieces(
    struct eb_npy_pieces *pieces, struct eb_tensor *whole, struct eb_failure *failure)
{
    for (uint32_t i = 0; i < pieces->count; i++) {
        if (!add_npy_piece(pieces, whole, i, failure)) {
            return false;
        }
    }
    return true;
}

/* Accepts zeroed pieces. */
static void close_npy_pieces(struct eb_npy_pieces *pieces)
{
    close_piece(pieces);
    free(pieces->path);
    free(pieces->pieces);
    *pieces = (struct eb_npy_pieces){0};
}

/* Reads the headers of all pieces; `path` names any of them. *whole becomes their common tensor,
 * with a data_offset of 0. Returns false if a piece is missing or the pieces do not fit together;
 * then nothing is open. *failure does not contain `path`; if the error is about another piece, it
 * contains that piece's path. */
static bool open_npy_pieces(struct eb_npy_pieces *pieces, const char *path, struct eb_tensor *whole,
    struct eb_failure *failure)
{
    const char *base = base_of_path(path);
    struct eb_file_name name = eb_file_name_parse(base);
    *pieces = (struct eb_npy_pieces){
        .number = (size_t)(base - path) + name.base_bytes + 1,
        .given = name.piece,
        .count = name.pieces,
    };
    if (name.piece >= name.pieces) {
        return eb_failure_set(failure,
            "its name says piece %" PRIu32 " of %" PRIu32 "; pieces are numbered from 0",
            name.piece, name.pieces);
    }
    pieces->path = strdup(path);
    pieces->pieces = calloc(name.pieces, sizeof *pieces->pieces);
    bool is_good = pieces->path && pieces->pieces ? add_npy_pieces(pieces, whole, failure)
                                                  : eb_failure_set(failure, "out of memory");
    if (!is_good) {
        close_npy_pieces(pieces);
    }
    return is_good;
}

/* Makes a piece the current one. */
static bool turn_to(struct eb_npy_pieces *pieces, uint32_t number, struct eb_failure *failure)
{
    if (pieces->is_open && pieces->at == number) {
        return true;
    }
    if (!open_piece(pieces, number, failure)) {
        return false;
    }
    if (!eb_table_file_is_same(&pieces->file, &pieces->pieces[number].stamp)) {
        close_piece(pieces);
        eb_failure_set(failure, "the file changed while it was read; pack it again");
        return locate_npy_error(pieces, failure);
    }
    return true;
}

/* Reads a valid range of the rows of all pieces. *failure is as for open_npy_pieces. */
static bool read_npy_pieces(struct eb_npy_pieces *pieces, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure)
{
    uint8_t *to = out;
    for (uint32_t i = 0; bytes > 0 && i < pieces->count; i++) {
        const struct eb_tensor *tensor = &pieces->pieces[i].tensor;
        if (offset >= tensor->data_bytes) {
            offset -= tensor->data_bytes;
            continue;
        }
        uint64_t left = tensor->data_bytes - offset;
        uint64_t count = bytes < left ? bytes : left;
        if (!turn_to(pieces, i, failure)) {
            return false;
        }
        if (!eb_table_file_read(&pieces->file, tensor->data_offset + offset, to, count, failure)) {
            return locate_npy_error(pieces, failure);
        }
        to += count;
        bytes -= count;
        offset = 0;
    }
    return true;
}

/* ---- a file of any format ---- */

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

/* Returns the first `bytes` bytes of the file; the caller frees them. Returns NULL with *failure
 * set. */
static uint8_t *read_source_head(
    struct eb_table_file *file, uint64_t bytes, struct eb_failure *failure)
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
    bool is_good =
        read_npy_header(&source->file, &tensor, failure) && make_tables(source, 1, failure);
    if (is_good) {
        source->tables[0] = describe_tensor(&tensor);
    }
    return is_good;
}

/* Makes a table of each entry. */
static bool take_entries(
    struct eb_source_file *source, const struct eb_safetensors *list, struct eb_failure *failure)
{
    if (!make_tables(source, list->count, failure)) {
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        struct eb_source_table *table = &source->tables[i];
        struct eb_tensor tensor;
        struct eb_failure unfit;
        bool is_fit = eb_safetensors_tensor(list, i, &tensor, &unfit);
        if (is_fit) {
            *table = describe_tensor(&tensor);
        }
        table->name = strdup(list->entries[i].name);
        table->unfit = is_fit ? NULL : strdup(unfit.text);
        if (!table->name || (!is_fit && !table->unfit)) {
            return eb_failure_set(failure, "out of memory");
        }
    }
    return true;
}

static bool open_safetensors(struct eb_source_file *source, struct eb_failure *failure)
{
    struct eb_table_file *file = &source->file;
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

/* Returns the index of the file's format; FORMAT_COUNT if it has none. */
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

/* If the file's format does not name its one table, names the table after the file. */
static bool name_table(struct eb_source_file *source, const char *path, struct eb_failure *failure)
{
    if (source->tables[0].name) {
        return true;
    }
    const char *base = base_of_path(path);
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
            failure, "expected a file NAME.npy, NAME.safetensors or NAME" EB_PACKED_FORMAT_SUFFIX);
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
    if (!open_npy_pieces(&source->parts, source->path, &whole, failure)) {
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
    if (!is_npy_piece(path)) {
        return eb_source_file_open(source, path, failure);
    }
    *source = (struct eb_source_file){.path = path};
    if (!open_split(source, failure)) {
        eb_source_file_close(source);
        return false;
    }
    return true;
}

/* Describes the values of an open raw file. */
static bool measure_raw(const struct eb_source_file *source, enum eb_storage storage, uint32_t dim,
    struct eb_tensor *tensor, struct eb_failure *failure)
{
    uint64_t row_bytes = eb_storage_row_bytes(storage, dim > 0 ? dim : 1);
    uint64_t bytes = source->file.bytes;
    *tensor = (struct eb_tensor){.storage = storage, .rank = 1, .dims = {bytes / row_bytes}};
    if (bytes % row_bytes != 0 && dim == 0) {
        return eb_failure_set(failure,
            "it has %" PRIu64 " bytes, which is not a multiple of %" PRIu64
            "; expected values of %s and nothing else",
            bytes, row_bytes, eb_storage_name(storage));
    }
    if (bytes % row_bytes != 0) {
        return eb_failure_set(failure,
            "it has %" PRIu64 " bytes, which is not a multiple of the %" PRIu64 " bytes of %" PRIu32
            " %s; check type and dimension, or write the file again",
            bytes, row_bytes, dim, eb_storage_name(storage));
    }
    if (dim > 0) {
        tensor->rank = 2;
        tensor->dims[1] = dim;
    }
    return eb_tensor_measure(tensor, failure);
}

bool eb_source_file_open_raw(struct eb_source_file *source, const char *path,
    enum eb_storage storage, uint32_t dim, struct eb_failure *failure)
{
    struct eb_tensor tensor;
    *source = (struct eb_source_file){.path = path};
    if (find_format(path) < FORMAT_COUNT) {
        return eb_failure_set(
            failure, "a file of this name has a header and is not raw; give it as INPUT or --keys");
    }
    if (!eb_table_file_open(path, &source->file, failure)) {
        return false;
    }
    source->is_open = true;
    bool is_good =
        measure_raw(source, storage, dim, &tensor, failure) && make_tables(source, 1, failure);
    if (is_good) {
        source->tables[0] = describe_tensor(&tensor);
        source->tables[0].name = strdup(base_of_path(path));
        is_good = source->tables[0].name || eb_failure_set(failure, "out of memory");
    }
    if (!is_good) {
        eb_source_file_close(source);
    }
    return is_good;
}

bool eb_source_table_fuse(struct eb_source_table *table, enum eb_model_format format, uint32_t dim,
    struct eb_failure *failure)
{
    table->has_scales = eb_model_format_is_codes(format);
    table->is_fused = !table->has_scales;
    if (!(table->has_scales ? eb_table_storage_find_codes : eb_table_storage_find_fused)(
            format, dim, &table->tensor, &table->fused, failure)) {
        return false;
    }
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
    close_npy_pieces(&source->parts);
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
        return read_npy_pieces(&source->parts, offset, out, range.bytes, failure);
    }
    return source->is_packed
               ? eb_packed_reader_read(&source->reader, offset, out, range.bytes, failure)
               : eb_table_file_read(&source->file, offset, out, range.bytes, failure);
}
