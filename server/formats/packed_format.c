#include "server/formats/packed_format.h"

#include "kernels/table.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC                                                                                      \
    "\x93"                                                                                         \
    "EMBAG\r\n"
#define MAGIC_BYTES 8
#define DIGEST_END 16 /* offset of the first byte that the digest covers */
#define VERSION 1
#define CHECKSUM_BYTES 8
/* Longest stride as a multiple of a row's bytes. No layout that embag writes has a longer one. */
#define STRIDE_FACTOR_MAX 2

/* The header's bytes, in order. */
struct header {
    uint8_t magic[MAGIC_BYTES];
    uint64_t digest;
    uint32_t version;
    uint32_t storage;
    uint32_t type;
    uint32_t rank;
    uint64_t dims[EB_TENSOR_RANK_MAX];
    uint64_t rows_total;
    uint64_t row_first;
    uint32_t parts;
    uint32_t part;
    int64_t unknown_row;
    uint64_t row_stride_bytes;
    uint64_t row_offset_bytes;
    uint64_t head_bytes;
    uint64_t file_bytes;
    struct eb_packed_section sections[EB_PACKED_KIND_COUNT];
    uint64_t packing;
    uint32_t by_key;
    uint32_t zero;
    uint64_t salt;
    uint8_t zeros[280];
};
static_assert(sizeof(struct header) == EB_PACKED_FORMAT_HEADER_BYTES, "no gaps");
static_assert(offsetof(struct header, sections) == 160, "as the table in the header file says");
static_assert(offsetof(struct header, salt) == 224, "as the table in the header file says");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are little-endian");

static uint64_t align(uint64_t offset)
{
    return (offset + EB_PACKED_FORMAT_ALIGNMENT - 1) / EB_PACKED_FORMAT_ALIGNMENT *
           EB_PACKED_FORMAT_ALIGNMENT;
}

static uint64_t count_blocks(uint64_t data_bytes)
{
    return (data_bytes + EB_PACKED_FORMAT_BLOCK_BYTES - 1) / EB_PACKED_FORMAT_BLOCK_BYTES;
}

uint64_t eb_packed_format_part_rows(uint64_t rows_total, uint32_t parts, uint32_t part)
{
    return rows_total / parts + (rows_total % parts > part);
}

bool eb_packed_format_is_whole(const struct eb_packed_format *format)
{
    return !format->by_key && format->tensor.dims[0] == format->rows_total;
}

bool eb_packed_format_is_keyed(const struct eb_packed_format *format)
{
    return format->by_key || format->sections[EB_PACKED_KEYS].bytes > 0 ||
           format->sections[EB_PACKED_KEY_INDEX].bytes > 0;
}

/* Checks which rows a part by row numbers holds. */
static bool check_rows_by_number(const struct eb_packed_format *format, struct eb_failure *failure)
{
    uint64_t rows = eb_packed_format_part_rows(format->rows_total, format->parts, format->part);
    if (format->row_first > rows || format->tensor.dims[0] > rows - format->row_first) {
        return eb_failure_set(failure,
            "fields 'row_first', 'shape': %" PRIu64 " rows from row %" PRIu64
            " on reach past the %" PRIu64 " rows of this part of the table",
            format->tensor.dims[0], format->row_first, rows);
    }
    return format->salt == 0 ||
           eb_failure_set(failure,
               "field 'salt': %016" PRIx64 " without by_key; only a part by keys has a salt",
               format->salt);
}

/* Checks which rows a part by keys holds. */
static bool check_rows_by_key(const struct eb_packed_format *format, struct eb_failure *failure)
{
    uint64_t rows = format->tensor.dims[0];
    uint64_t rows_min = format->parts == 1 ? format->rows_total : format->unknown_row >= 0;
    if (format->row_first != 0) {
        return eb_failure_set(failure,
            "field 'row_first': %" PRIu64 " in a part by keys; expected 0, because it is one file",
            format->row_first);
    }
    if (rows < rows_min || rows > format->rows_total) {
        return eb_failure_set(failure,
            "field 'shape': %" PRIu64 " rows in a part by keys; expected %" PRIu64 " to %" PRIu64,
            rows, rows_min, format->rows_total);
    }
    if (rows > 0 && format->sections[EB_PACKED_KEYS].bytes == 0) {
        return eb_failure_set(failure, "field 'keys': a part by keys has rows but no keys");
    }
    return format->salt != 0 ||
           eb_failure_set(failure, "field 'salt': 0 in a part by keys; expected another number");
}

static bool check_format_rows(const struct eb_packed_format *format, struct eb_failure *failure)
{
    if (format->parts == 0 || format->part >= format->parts) {
        return eb_failure_set(failure,
            "fields 'parts', 'part': part %" PRIu32 " of %" PRIu32 "; parts are numbered from 0",
            format->part, format->parts);
    }
    if (format->rows_total > INT64_MAX) {
        return eb_failure_set(
            failure, "field 'rows_total': %" PRIu64 " is above 2^63 - 1", format->rows_total);
    }
    if (format->unknown_row < -1 || format->unknown_row >= (int64_t)format->rows_total) {
        return eb_failure_set(failure,
            "field 'unknown_row': %" PRIi64 " is neither -1 nor one of the %" PRIu64 " rows",
            format->unknown_row, format->rows_total);
    }
    return format->by_key ? check_rows_by_key(format, failure)
                          : check_rows_by_number(format, failure);
}

static bool check_format_shape(const struct eb_tensor *tensor, struct eb_failure *failure)
{
    if (tensor->rank == 0 || tensor->rank > EB_TENSOR_RANK_MAX) {
        return eb_failure_set(
            failure, "field 'rank': %" PRIu32 " is not in 1..%d", tensor->rank, EB_TENSOR_RANK_MAX);
    }
    uint64_t elements = 1;
    for (uint32_t i = 1; i < tensor->rank; i++) {
        if (tensor->dims[i] == 0 || tensor->dims[i] > UINT32_MAX / elements) {
            return eb_failure_set(
                failure, "field 'shape': a row has no values, or more than 2^32 - 1");
        }
        elements *= tensor->dims[i];
    }
    return true;
}

static bool check_row_type(const struct eb_packed_format *format, struct eb_failure *failure)
{
    enum eb_storage storage = format->tensor.storage;
    if (storage <= EB_STORAGE_UNSPECIFIED || storage >= EB_STORAGE_COUNT ||
        !eb_type_is_valid((int)format->type) || !eb_storage_holds(storage, format->type)) {
        return eb_failure_set(failure,
            "fields 'storage', 'T': storage %s (%u) cannot hold a table of type %s (%u)",
            eb_storage_name(storage), (unsigned)storage, eb_type_name(format->type),
            (unsigned)format->type);
    }
    return true;
}

/* Computes where the values lie in a row, and how many bytes the rows have. */
static bool lay_out_rows(struct eb_packed_format *format, struct eb_failure *failure)
{
    struct eb_tensor *tensor = &format->tensor;
    if (!check_row_type(format, failure) || !check_format_shape(tensor, failure)) {
        return false;
    }
    bool has_scales = eb_storage_is_code(tensor->storage);
    format->row_offset_bytes = has_scales ? sizeof(struct eb_row_scale) : 0;
    uint64_t row_bytes = format->row_offset_bytes +
                         eb_storage_row_bytes(tensor->storage, eb_tensor_row_elements(tensor));
    if (format->row_stride_bytes < row_bytes ||
        format->row_stride_bytes > row_bytes * STRIDE_FACTOR_MAX) {
        return eb_failure_set(failure,
            "field 'row_stride': %" PRIu64 " for rows of %" PRIu64
            " bytes; expected at least the bytes of a row, and at most twice as many",
            format->row_stride_bytes, row_bytes);
    }
    struct eb_packed_section *rows = &format->sections[EB_PACKED_ROWS];
    if (__builtin_mul_overflow(tensor->dims[0], format->row_stride_bytes, &rows->bytes)) {
        return eb_failure_set(failure, "field 'shape': the rows have more than 2^64 bytes");
    }
    return true;
}

static bool check_format_keys(const struct eb_packed_format *format, struct eb_failure *failure)
{
    uint64_t bytes = format->sections[EB_PACKED_KEYS].bytes;
    uint64_t rows = format->tensor.dims[0];
    if (bytes != 0 && (bytes % sizeof(int64_t) != 0 || bytes / sizeof(int64_t) != rows)) {
        return eb_failure_set(failure,
            "field 'keys': %" PRIu64 " bytes; expected 8 bytes for each of %" PRIu64 " rows", bytes,
            rows);
    }
    return bytes > 0 || rows == 0 || format->sections[EB_PACKED_KEY_INDEX].bytes == 0 ||
           eb_failure_set(failure, "field 'key index': the file has an index of keys but no keys");
}

static uint64_t measure_head(uint64_t data_bytes)
{
    return align(EB_PACKED_FORMAT_HEADER_BYTES + count_blocks(data_bytes) * CHECKSUM_BYTES);
}

/* Computes the head's size from the bytes of all sections, then the offsets of the sections. */
static bool place_sections(struct eb_packed_format *format, struct eb_failure *failure)
{
    uint64_t data_bytes = 0;
    for (int i = 0; i < EB_PACKED_KIND_COUNT; i++) {
        uint64_t bytes = format->sections[i].bytes;
        if (bytes > EB_PACKED_FORMAT_FILE_BYTES_MAX) {
            return eb_failure_set(failure,
                "the table has more than %" PRIu64 " bytes, the maximum of a packed file; split it",
                EB_PACKED_FORMAT_FILE_BYTES_MAX);
        }
        data_bytes = bytes > 0 ? align(data_bytes) + bytes : data_bytes;
    }
    format->head_bytes = measure_head(data_bytes);
    format->file_bytes = format->head_bytes + data_bytes;
    if (format->file_bytes > EB_PACKED_FORMAT_FILE_BYTES_MAX) {
        return eb_failure_set(failure,
            "the file would have %" PRIu64 " bytes, more than the maximum of %" PRIu64
            "; split the table",
            format->file_bytes, EB_PACKED_FORMAT_FILE_BYTES_MAX);
    }
    uint64_t end = format->head_bytes;
    for (int i = 0; i < EB_PACKED_KIND_COUNT; i++) {
        struct eb_packed_section *section = &format->sections[i];
        section->offset = section->bytes > 0 ? align(end) : 0;
        end = section->bytes > 0 ? section->offset + section->bytes : end;
    }
    assert(end == format->file_bytes);
    return true;
}

bool eb_packed_format_lay_out(struct eb_packed_format *format, struct eb_failure *failure)
{
    if (!lay_out_rows(format, failure) || !check_format_rows(format, failure) ||
        !check_format_keys(format, failure) || !place_sections(format, failure)) {
        return false;
    }
    const struct eb_packed_section *rows = &format->sections[EB_PACKED_ROWS];
    format->tensor.data_offset = rows->bytes > 0 ? rows->offset : format->head_bytes;
    format->tensor.data_bytes = rows->bytes;
    return true;
}

uint64_t eb_packed_format_block_count(const struct eb_packed_format *format)
{
    return count_blocks(format->file_bytes - format->head_bytes);
}

uint64_t eb_packed_format_block_bytes(const struct eb_packed_format *format, uint64_t block)
{
    uint64_t left = format->file_bytes - format->head_bytes - block * EB_PACKED_FORMAT_BLOCK_BYTES;
    return left < EB_PACKED_FORMAT_BLOCK_BYTES ? left : EB_PACKED_FORMAT_BLOCK_BYTES;
}

uint64_t eb_packed_format_checksum(const void *bytes, uint64_t size)
{
    return XXH3_64bits(bytes, size);
}

uint64_t eb_packed_format_checksum_offset(uint64_t block)
{
    return EB_PACKED_FORMAT_HEADER_BYTES + block * CHECKSUM_BYTES;
}

static uint64_t take_digest(const uint8_t *head, uint64_t head_bytes)
{
    return eb_packed_format_checksum(head + DIGEST_END, head_bytes - DIGEST_END);
}

void eb_packed_format_write(struct eb_packed_format *format, uint8_t *head)
{
    struct header header = {
        .magic = MAGIC,
        .version = VERSION,
        .storage = format->tensor.storage,
        .type = format->type,
        .rank = format->tensor.rank,
        .rows_total = format->rows_total,
        .row_first = format->row_first,
        .parts = format->parts,
        .part = format->part,
        .unknown_row = format->unknown_row,
        .row_stride_bytes = format->row_stride_bytes,
        .row_offset_bytes = format->row_offset_bytes,
        .head_bytes = format->head_bytes,
        .file_bytes = format->file_bytes,
        .packing = format->packing,
        .by_key = format->by_key,
        .salt = format->salt,
    };
    memcpy(header.dims, format->tensor.dims, format->tensor.rank * sizeof header.dims[0]);
    memcpy(header.sections, format->sections, sizeof header.sections);
    memcpy(head, &header, sizeof header);
    format->digest = take_digest(head, format->head_bytes);
    memcpy(head + offsetof(struct header, digest), &format->digest, sizeof format->digest);
}

bool eb_packed_format_measure(
    const uint8_t *header, uint64_t file_bytes, uint64_t *head_bytes, struct eb_failure *failure)
{
    if (file_bytes < MAGIC_BYTES || memcmp(header, MAGIC, MAGIC_BYTES) != 0) {
        return eb_failure_set(failure, "byte 0: not a packed table; write it with embag pack");
    }
    struct header fields;
    if (file_bytes < sizeof fields) {
        return eb_failure_set(failure,
            "byte %" PRIu64 ": the file ends inside its header; copy it again", file_bytes);
    }
    memcpy(&fields, header, sizeof fields);
    if (fields.version != VERSION) {
        return eb_failure_set(failure,
            "byte 16: version %" PRIu32
            " of packed tables is not supported; expected %d; pack the table again",
            fields.version, VERSION);
    }
    if (fields.file_bytes != file_bytes) {
        return eb_failure_set(failure,
            "the file has %" PRIu64 " bytes, but its header says %" PRIu64 "; copy it again",
            file_bytes, fields.file_bytes);
    }
    if (file_bytes > EB_PACKED_FORMAT_FILE_BYTES_MAX || fields.head_bytes > file_bytes ||
        fields.head_bytes != measure_head(file_bytes - fields.head_bytes)) {
        return eb_failure_set(failure,
            "byte 144: a head of %" PRIu64 " bytes does not match a file of %" PRIu64
            " bytes; copy it again",
            fields.head_bytes, file_bytes);
    }
    *head_bytes = fields.head_bytes;
    return true;
}

static bool is_zero(const uint8_t *bytes, uint64_t count)
{
    uint8_t any = 0;
    for (uint64_t i = 0; i < count; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

/* Checks that the head's redundant fields match the others, and that unused bytes are zero. */
static bool check_agreement(const struct header *header, const uint8_t *head,
    const struct eb_packed_format *format, struct eb_failure *failure)
{
    if (header->head_bytes != format->head_bytes || header->file_bytes != format->file_bytes ||
        header->row_offset_bytes != format->row_offset_bytes ||
        memcmp(header->sections, format->sections, sizeof format->sections) != 0) {
        return eb_failure_set(failure, "fields 'row_offset' to 'key index': they do not match "
                                       "shape and storage; pack the table "
                                       "again");
    }
    uint64_t checksums_end = eb_packed_format_checksum_offset(eb_packed_format_block_count(format));
    const uint64_t *dims_end = header->dims + header->rank;
    if (!is_zero(
            (const uint8_t *)dims_end, (EB_TENSOR_RANK_MAX - header->rank) * sizeof *dims_end) ||
        header->by_key > 1 || header->zero != 0 || !is_zero(header->zeros, sizeof header->zeros) ||
        !is_zero(head + checksums_end, format->head_bytes - checksums_end)) {
        return eb_failure_set(
            failure, "the head has unknown fields; use the version of embag that wrote it");
    }
    return true;
}

uint64_t eb_packed_format_chain(uint64_t chain, uint64_t digest)
{
    const uint64_t link[] = {chain, digest};
    return eb_packed_format_checksum(link, sizeof link);
}

bool eb_packed_format_parse(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_packed_format *format, struct eb_failure *failure)
{
    assert(head_bytes >= sizeof(struct header) && head_bytes <= file_bytes);
    struct header header;
    memcpy(&header, head, sizeof header);
    uint64_t digest = take_digest(head, head_bytes);
    if (header.digest != digest) {
        return eb_failure_set(failure,
            "the head is damaged: its digest is %016" PRIx64 ", but its bytes give %016" PRIx64
            "; copy the file again",
            header.digest, digest);
    }
    *format = (struct eb_packed_format){
        .tensor = {.storage = (enum eb_storage)header.storage, .rank = header.rank},
        .type = (enum eb_type)header.type,
        .row_stride_bytes = header.row_stride_bytes,
        .rows_total = header.rows_total,
        .row_first = header.row_first,
        .parts = header.parts,
        .part = header.part,
        .unknown_row = header.unknown_row,
        .packing = header.packing,
        .by_key = header.by_key != 0,
        .salt = header.salt,
        .digest = digest,
    };
    memcpy(format->tensor.dims, header.dims, sizeof header.dims);
    for (int i = EB_PACKED_KEYS; i < EB_PACKED_KIND_COUNT; i++) {
        format->sections[i].bytes = header.sections[i].bytes;
    }
    return eb_packed_format_lay_out(format, failure) &&
           check_agreement(&header, head, format, failure);
}
