#include "server/tables/resident_footer.h"

#include "kernels/table.h"
#include "server/base/name.h"
#include "server/tables/numa_policy.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define ALIGNMENT 64u        /* of rows and indexes */
#define TABLE_FIELDS_MIN 15u /* u64 of a table without dims, hashes and the bytes of its name */

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they are");

static const char magic[16] = "embag resident\0\1";
static const char text_padding[8];

struct trailer {
    uint64_t digest;
    uint32_t footer_bytes;
    uint32_t layout_version;
    char magic[16];
};

static_assert(sizeof(struct trailer) == EB_RESIDENT_TRAILER_BYTES, "it is written as it is");

/* Returns the bytes that a text of `length` bytes takes after its size. */
static uint64_t padded_bytes(uint64_t length)
{
    return length / 8 * 8 + 8;
}

static uint64_t digest_footer(const uint8_t *body, uint64_t body_bytes, const uint8_t *trailer)
{
    size_t skipped = sizeof(uint64_t);
    return XXH3_64bits_withSeed(
        trailer + skipped, EB_RESIDENT_TRAILER_BYTES - skipped, XXH3_64bits(body, body_bytes));
}

/* ---- encoding ---- */

/* Where to write; only counts if `at` is NULL. */
struct writer {
    uint8_t *at;
    uint64_t bytes;
    bool is_too_long; /* a text or a list of hashes exceeds its limit */
};

static void write_bytes(struct writer *writer, const void *bytes, uint64_t count)
{
    if (writer->at && count > 0) {
        memcpy(writer->at, bytes, count);
        writer->at += count;
    }
    writer->bytes += count;
}

static void write_number(struct writer *writer, uint64_t number)
{
    write_bytes(writer, &number, sizeof number);
}

static void write_text(struct writer *writer, const char *text)
{
    uint64_t length = strlen(text);
    writer->is_too_long = writer->is_too_long || length > EB_RESIDENT_TEXT_BYTES_MAX;
    write_number(writer, length);
    write_bytes(writer, text, length);
    write_bytes(writer, text_padding, padded_bytes(length) - length);
}

static void write_resident_table(struct writer *writer, const struct eb_resident_table *table)
{
    write_text(writer, table->name);
    write_number(writer, table->type);
    write_number(writer, table->storage);
    write_number(writer, table->rank);
    write_bytes(writer, table->dims, table->rank * sizeof table->dims[0]);
    const uint64_t numbers[] = {table->row_offset_bytes, table->row_stride_bytes,
        table->rows_offset, table->rows_bytes, table->index_offset, table->index_bytes,
        table->index_hash, table->source_key, table->digest, table->chunk_rows, table->chunk_count};
    write_bytes(writer, numbers, sizeof numbers);
    if (writer->at) {
        write_bytes(writer, table->chunk_hashes, table->chunk_count * sizeof(uint64_t));
    } else if (table->chunk_count <= EB_RESIDENT_FOOTER_BYTES_MAX / sizeof(uint64_t)) {
        writer->bytes += table->chunk_count * sizeof(uint64_t);
    } else {
        writer->is_too_long = true;
    }
}

static void write_footer_body(struct writer *writer, const struct eb_resident_footer *footer)
{
    write_number(writer, footer->numa);
    write_text(writer, footer->embag_version);
    write_text(writer, footer->source);
    write_number(writer, footer->table_count);
    for (size_t i = 0; i < footer->table_count; i++) {
        write_resident_table(writer, &footer->tables[i]);
    }
}

uint64_t eb_resident_footer_bytes(const struct eb_resident_footer *footer)
{
    struct writer writer = {0};
    write_footer_body(&writer, footer);
    uint64_t bytes = writer.bytes + EB_RESIDENT_TRAILER_BYTES;
    bool is_good = !writer.is_too_long && footer->table_count > 0 &&
                   footer->table_count <= EB_RESIDENT_TABLES_MAX &&
                   bytes <= EB_RESIDENT_FOOTER_BYTES_MAX;
    return is_good ? bytes : UINT64_MAX;
}

uint64_t eb_resident_footer_file_bytes(const struct eb_resident_footer *footer, uint64_t data_bytes)
{
    uint64_t bytes = eb_resident_footer_bytes(footer);
    uint64_t page = EB_RESIDENT_PAGE_BYTES;
    if (bytes == UINT64_MAX || data_bytes > INT64_MAX - bytes - page) {
        return UINT64_MAX;
    }
    return (data_bytes + bytes + page - 1) / page * page;
}

void eb_resident_footer_encode(const struct eb_resident_footer *footer, uint8_t *end)
{
    uint64_t bytes = eb_resident_footer_bytes(footer);
    assert(bytes != UINT64_MAX);
    uint8_t *begin = end - bytes;
    struct writer writer = {.at = begin};
    write_footer_body(&writer, footer);
    struct trailer trailer = {
        .footer_bytes = (uint32_t)bytes, .layout_version = EB_RESIDENT_LAYOUT_VERSION};
    memcpy(trailer.magic, magic, sizeof magic);
    trailer.digest = digest_footer(begin, writer.bytes, (const uint8_t *)&trailer);
    memcpy(writer.at, &trailer, sizeof trailer);
}

/* ---- decoding ---- */

struct parser {
    const uint8_t *at;
    uint64_t left;
    bool is_broken;
};

/* Returns the next `count` bytes, or NULL if there are fewer. */
static const uint8_t *parse_bytes(struct parser *parser, uint64_t count)
{
    if (parser->is_broken || count > parser->left) {
        parser->is_broken = true;
        return NULL;
    }
    const uint8_t *bytes = parser->at;
    parser->at += count;
    parser->left -= count;
    return bytes;
}

static uint64_t parse_number(struct parser *parser)
{
    uint64_t number = 0;
    const uint8_t *bytes = parse_bytes(parser, sizeof number);
    if (bytes) {
        memcpy(&number, bytes, sizeof number);
    }
    return number;
}

/* Returns a text, which stays where it is and ends with NUL, or NULL if it is not valid. */
static const char *parse_footer_text(struct parser *parser)
{
    uint64_t length = parse_number(parser);
    if (length > EB_RESIDENT_TEXT_BYTES_MAX) {
        parser->is_broken = true;
        return NULL;
    }
    uint64_t padded = padded_bytes(length);
    const char *text = (const char *)parse_bytes(parser, padded);
    if (text &&
        (memchr(text, '\0', length) || memcmp(text + length, text_padding, padded - length) != 0)) {
        parser->is_broken = true;
        return NULL;
    }
    return text;
}

/* Returns a number that must be at most `most`. */
static uint64_t parse_bounded(struct parser *parser, uint64_t most)
{
    uint64_t number = parse_number(parser);
    parser->is_broken = parser->is_broken || number > most;
    return parser->is_broken ? 0 : number;
}

static void parse_resident_table(struct parser *parser, struct eb_resident_table *table)
{
    table->name = parse_footer_text(parser);
    table->type = (enum eb_type)parse_bounded(parser, EB_TYPE_COUNT - 1);
    table->storage = (enum eb_storage)parse_bounded(parser, EB_STORAGE_COUNT - 1);
    table->rank = (uint32_t)parse_bounded(parser, EB_TENSOR_RANK_MAX);
    for (uint32_t i = 0; i < table->rank; i++) {
        table->dims[i] = parse_number(parser);
    }
    table->row_offset_bytes = parse_number(parser);
    table->row_stride_bytes = parse_number(parser);
    table->rows_offset = parse_number(parser);
    table->rows_bytes = parse_number(parser);
    table->index_offset = parse_number(parser);
    table->index_bytes = parse_number(parser);
    table->index_hash = parse_number(parser);
    table->source_key = parse_number(parser);
    table->digest = parse_number(parser);
    table->chunk_rows = parse_number(parser);
    table->chunk_count = parse_bounded(parser, parser->left / sizeof(uint64_t));
    table->chunk_hashes =
        (const uint64_t *)(const void *)parse_bytes(parser, table->chunk_count * sizeof(uint64_t));
}

/* Returns whether the `bytes` bytes at `offset` are aligned, do not begin before *end, and end
 * within the first data_bytes bytes. If so, moves *end behind them. */
static bool take_range(uint64_t offset, uint64_t bytes, uint64_t data_bytes, uint64_t *end)
{
    bool is_inside = offset % ALIGNMENT == 0 && offset >= *end && offset <= data_bytes &&
                     bytes <= data_bytes - offset;
    *end = is_inside ? offset + bytes : *end;
    return is_inside;
}

/* Returns whether the values of a row fit between the starts of two rows, after the scale and the
 * bias that codes have. */
static bool check_row_shape(const struct eb_resident_table *table)
{
    struct eb_tensor tensor = {.storage = EB_STORAGE_U8, .rank = table->rank};
    memcpy(tensor.dims, table->dims, sizeof tensor.dims);
    struct eb_failure unused;
    if (!eb_tensor_measure(&tensor, &unused) || eb_tensor_row_elements(&tensor) > UINT32_MAX) {
        return false;
    }
    uint64_t row_bytes = eb_storage_row_bytes(table->storage, eb_tensor_row_elements(&tensor));
    uint64_t scale_bytes = eb_storage_is_code(table->storage) ? sizeof(struct eb_row_scale) : 0;
    return table->row_offset_bytes >= scale_bytes &&
           table->row_offset_bytes <= table->row_stride_bytes &&
           row_bytes <= table->row_stride_bytes - table->row_offset_bytes;
}

/* Returns whether the chunks are of a size that a reader can copy, and cover all rows. */
static bool check_chunks(const struct eb_resident_table *table)
{
    uint64_t rows = table->dims[0];
    bool is_small = table->chunk_rows == 1 ||
                    table->chunk_rows <= EB_RESIDENT_CHUNK_BYTES_MAX / table->row_stride_bytes;
    return is_small &&
           table->chunk_count == rows / table->chunk_rows + (rows % table->chunk_rows > 0);
}

/* Returns whether the table is valid, and lies behind *end. */
static bool check_resident_table(
    const struct eb_resident_table *table, uint64_t data_bytes, uint64_t *end)
{
    if (eb_name_error(table->name, EB_RESIDENT_TEXT_BYTES_MAX) ||
        table->type <= EB_TYPE_UNSPECIFIED || table->storage <= EB_STORAGE_UNSPECIFIED ||
        !eb_storage_holds(table->storage, table->type) || table->rank == 0 ||
        table->row_stride_bytes == 0 || table->chunk_rows == 0) {
        return false;
    }
    bool is_keyed = table->index_bytes > 0;
    return check_row_shape(table) && check_chunks(table) &&
           table->dims[0] <= UINT64_MAX / table->row_stride_bytes &&
           table->rows_bytes == table->dims[0] * table->row_stride_bytes &&
           take_range(table->rows_offset, table->rows_bytes, data_bytes, end) &&
           (is_keyed ? take_range(table->index_offset, table->index_bytes, data_bytes, end)
                     : table->index_offset == 0 && table->index_hash == 0);
}

/* Parses the footer without its trailer. What is allocated is freed with the footer, whatever the
 * result. */
static bool parse_footer_body(
    struct parser *parser, uint64_t data_bytes, struct eb_resident_footer *footer)
{
    footer->numa = (uint32_t)parse_bounded(parser, EB_NUMA_COUNT - 1);
    footer->embag_version = parse_footer_text(parser);
    footer->source = parse_footer_text(parser);
    uint64_t most = parser->left / (TABLE_FIELDS_MIN * sizeof(uint64_t));
    footer->table_count =
        parse_bounded(parser, most < EB_RESIDENT_TABLES_MAX ? most : EB_RESIDENT_TABLES_MAX);
    struct eb_resident_table *tables = calloc(footer->table_count + 1, sizeof *tables);
    footer->tables = tables;
    uint64_t end = 0;
    bool is_good = tables && !parser->is_broken && footer->table_count > 0;
    for (size_t i = 0; i < footer->table_count && is_good; i++) {
        parse_resident_table(parser, &tables[i]);
        is_good = !parser->is_broken && check_resident_table(&tables[i], data_bytes, &end);
    }
    return is_good && parser->left == 0;
}

/* Returns the trailer at the end of the footer. */
static struct trailer read_trailer(const uint8_t *bytes, uint32_t size)
{
    struct trailer trailer;
    memcpy(&trailer, bytes + size - sizeof trailer, sizeof trailer);
    return trailer;
}

bool eb_resident_footer_find(
    const uint8_t bytes[EB_RESIDENT_TRAILER_BYTES], uint64_t file_bytes, uint32_t *footer_bytes)
{
    struct trailer trailer = read_trailer(bytes, EB_RESIDENT_TRAILER_BYTES);
    *footer_bytes = trailer.footer_bytes;
    return memcmp(trailer.magic, magic, sizeof magic) == 0 &&
           trailer.footer_bytes >= EB_RESIDENT_TRAILER_BYTES &&
           trailer.footer_bytes <= EB_RESIDENT_FOOTER_BYTES_MAX &&
           trailer.footer_bytes <= file_bytes;
}

enum eb_resident_footer_outcome eb_resident_footer_decode(const uint8_t *bytes, uint32_t size,
    uint64_t file_bytes, struct eb_resident_footer *footer, struct eb_failure *failure)
{
    *footer = (struct eb_resident_footer){.file_bytes = file_bytes};
    uint32_t footer_bytes;
    if (size < EB_RESIDENT_TRAILER_BYTES || size > file_bytes ||
        !eb_resident_footer_find(
            bytes + size - EB_RESIDENT_TRAILER_BYTES, file_bytes, &footer_bytes) ||
        footer_bytes != size) {
        eb_failure_set(failure, "it has no footer: it is not a resident file, or not complete");
        return EB_RESIDENT_FOOTER_DAMAGED;
    }
    struct trailer trailer = read_trailer(bytes, size);
    uint32_t body_bytes = size - EB_RESIDENT_TRAILER_BYTES;
    if (digest_footer(bytes, body_bytes, bytes + body_bytes) != trailer.digest) {
        eb_failure_set(failure, "its footer is damaged");
        return EB_RESIDENT_FOOTER_DAMAGED;
    }
    if (trailer.layout_version != EB_RESIDENT_LAYOUT_VERSION) {
        return EB_RESIDENT_FOOTER_OTHER_LAYOUT;
    }
    footer->memory = malloc(body_bytes + 1);
    if (!footer->memory) {
        eb_failure_set(failure, "out of memory");
        return EB_RESIDENT_FOOTER_DAMAGED;
    }
    memcpy(footer->memory, bytes, body_bytes);
    struct parser parser = {.at = footer->memory, .left = body_bytes};
    if (!parse_footer_body(&parser, file_bytes - size, footer)) {
        eb_resident_footer_deinit(footer);
        eb_failure_set(failure, "its footer is not valid, or there is too little memory");
        return EB_RESIDENT_FOOTER_DAMAGED;
    }
    return EB_RESIDENT_FOOTER_GOOD;
}

void eb_resident_footer_deinit(struct eb_resident_footer *footer)
{
    free((void *)footer->tables);
    free(footer->memory);
    *footer = (struct eb_resident_footer){0};
}
