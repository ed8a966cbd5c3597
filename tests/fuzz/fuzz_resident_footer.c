/* Decodes bytes as the footer of a resident file, first as they are, then with a corrected size and
 * digest. The tables of an accepted footer lie in the file's data without overlap, and encoding it
 * gives the same bytes. */
#include "server/tables/resident_footer.h"

#include "kernels/types.h"
#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FILE_BYTES (UINT64_C(1) << 40)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_table(const struct eb_resident_table *table, uint64_t data_bytes, uint64_t *end)
{
    require(table->name[0] != '\0' && strlen(table->name) <= EB_RESIDENT_TEXT_BYTES_MAX);
    require(table->rank >= 1 && table->rank <= EB_TENSOR_RANK_MAX);
    require(eb_storage_holds(table->storage, table->type));
    require(table->rows_bytes / table->row_stride_bytes == table->dims[0]);
    require(table->rows_bytes % table->row_stride_bytes == 0);
    require(table->rows_offset % 64 == 0 && table->rows_offset >= *end);
    *end = table->rows_offset + table->rows_bytes;
    require(*end >= table->rows_offset && *end <= data_bytes);
    if (table->index_bytes > 0) {
        require(table->index_offset % 64 == 0 && table->index_offset >= *end);
        *end = table->index_offset + table->index_bytes;
        require(*end >= table->index_offset && *end <= data_bytes);
    }
    uint64_t rows = 0; /* of all chunks but the last */
    if (table->chunk_count > 0) {
        rows = (table->chunk_count - 1) * table->chunk_rows;
        require(rows < table->dims[0] && table->dims[0] - rows <= table->chunk_rows);
    }
    require(table->chunk_count > 0 || table->dims[0] == 0);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        sum += table->chunk_hashes[i]; /* so that the sanitizers see a list that is too short */
    }
    volatile uint64_t used = sum;
    (void)used;
}

static void decode_footer(const uint8_t *bytes, uint32_t size)
{
    struct eb_resident_footer footer;
    struct eb_failure failure = {.text = ""};
    enum eb_resident_footer_outcome outcome =
        eb_resident_footer_decode(bytes, size, FILE_BYTES, &footer, &failure);
    if (outcome != EB_RESIDENT_FOOTER_GOOD) {
        require(!footer.tables && !footer.memory);
        require((outcome == EB_RESIDENT_FOOTER_DAMAGED) == (failure.text[0] != '\0'));
        return;
    }
    uint64_t end = 0;
    require(footer.table_count >= 1 && footer.table_count <= EB_RESIDENT_TABLES_MAX);
    for (size_t i = 0; i < footer.table_count; i++) {
        check_table(&footer.tables[i], FILE_BYTES - size, &end);
    }
    require(eb_resident_footer_bytes(&footer) == size);
    uint8_t *again = malloc(size);
    require(again);
    eb_resident_footer_encode(&footer, again + size);
    require(memcmp(again, bytes, size) == 0);
    free(again);
    eb_resident_footer_deinit(&footer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t footer_bytes = (uint32_t)size;
    decode_footer(data, footer_bytes);
    if (size < EB_RESIDENT_TRAILER_BYTES) {
        return 0;
    }
    uint8_t *bytes = malloc(size);
    require(bytes);
    memcpy(bytes, data, size);
    uint8_t *trailer = bytes + size - EB_RESIDENT_TRAILER_BYTES;
    uint64_t digest;
    memcpy(trailer + sizeof digest, &footer_bytes, sizeof footer_bytes);
    digest =
        XXH3_64bits_withSeed(trailer + sizeof digest, EB_RESIDENT_TRAILER_BYTES - sizeof digest,
            XXH3_64bits(bytes, size - EB_RESIDENT_TRAILER_BYTES));
    memcpy(trailer, &digest, sizeof digest);
    decode_footer(bytes, footer_bytes);
    free(bytes);
    return 0;
}
