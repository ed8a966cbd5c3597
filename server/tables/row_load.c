#include "server/tables/row_load.h"

#include "kernels/quantize.h"
#include "server/contents/piece_reader.h"
#include "server/tables/table_storage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes read at a time, or one row: large enough to cost nothing, small enough to be still in the
 * second cache when they are converted and their digest is made (38 ms for 100 MiB, 44 by 8 MiB),
 * and for a load that is paced to pause every half millisecond rather than to take a processor for
 * several. */
#define CHUNK_BYTES (UINT64_C(512) << 10)

/* A piece on its way. */
struct passage {
    const struct eb_row_load *load;
    struct eb_piece_reader reader;
    uint8_t *raw;   /* rows as the file has them; NULL: they are read to their place */
    float *values;  /* of one row; NULL: they need no conversion, or are split only */
    uint64_t row;   /* of the whole table: the first of the chunk */
    uint64_t count; /* of rows in the chunk */
    /* What rows are compared with, in a chunk of their own; NULL: they are loaded. */
    const uint8_t *resident;
    uint8_t *chunk;
    bool has_difference;
    struct eb_table_storage_check check; /* of fused rows */
    struct eb_file_fault *fault;
};

/* Moves `row_count` rows, which end the space that rows with gaps between them will take, to their
 * places. No row is overwritten before it is moved: its place never lies behind it. */
static void spread_rows(uint8_t *space, uint64_t row_count, const struct eb_planned_table *table)
{
    uint64_t gap = table->row_stride_bytes - table->file_row_bytes;
    if (gap == 0) {
        return;
    }
    uint8_t *from = space + row_count * gap;
    for (uint64_t i = 0; i < row_count; i++) {
        memmove(space, from, table->file_row_bytes);
        memset(space + table->file_row_bytes, 0, gap);
        from += table->file_row_bytes;
        space += table->row_stride_bytes;
    }
}

/* Always false. */
static bool refuse_row(const struct passage *passage, uint64_t row, const float *values)
{
    const struct eb_planned_table *table = passage->load->table;
    uint32_t elements = (uint32_t)eb_tensor_row_elements(&table->tensor);
    uint32_t column = eb_quantize_find_fault(values, elements);
    return eb_file_fault_set(passage->fault,
        "%s: row %" PRIu64 " of table '%.64s': value %" PRIu32 " is %g; %s codes need finite "
        "values that are at most 2^126 apart",
        passage->reader.path, row, table->name, column,
        column < elements ? (double)values[column] : 0.0, eb_storage_name(table->storage));
}

/* Always false. */
static bool refuse_excess(
    const struct passage *passage, uint64_t row, uint32_t column, const float *values)
{
    const struct eb_planned_table *table = passage->load->table;
    return eb_file_fault_set(passage->fault,
        "%s: row %" PRIu64 " of table '%.64s': value %" PRIu32
        " is %g, more than %s can hold; choose another storage or correct the table",
        passage->reader.path, row, table->name, column, (double)values[column],
        eb_storage_name(table->storage));
}

/* The file that has the row. */
static const char *find_path(const struct passage *passage, uint64_t row)
{
    const struct eb_piece *piece = passage->load->table->rows.pieces;
    for (; row >= piece->tensor.dims[0]; piece++) {
        row -= piece->tensor.dims[0];
    }
    return passage->load->plan->scan.files[piece->file].path;
}

/* Says which row is no fused one. Always false. */
static bool locate_row(const struct passage *passage, uint64_t row)
{
    const struct eb_file_fault why = *passage->fault;
    return eb_file_fault_set(passage->fault, "%s: row %" PRIu64 " of table '%.64s': %s",
        find_path(passage, row), row, passage->load->table->name, why.text);
}

/* `to` is where the row, with its scale, belongs. */
static bool convert_row(struct passage *passage, uint64_t row, const uint8_t *raw, uint8_t *to)
{
    const struct eb_planned_table *table = passage->load->table;
    uint32_t elements = (uint32_t)eb_tensor_row_elements(&table->tensor);
    struct eb_row_scale scale = {0};
    if (table->is_fused) {
        eb_fused_row_split(&table->fused, raw, to + table->row_offset_bytes, &scale);
        if (!eb_table_storage_check_row(&passage->check, &table->fused, row,
                to + table->row_offset_bytes, &scale, passage->fault)) {
            return locate_row(passage, row);
        }
    } else {
        eb_dequantize_row(table->tensor.storage, raw, NULL, elements, passage->values);
        uint32_t excess = eb_quantize_find_excess(table->storage, passage->values, elements);
        if (excess < elements) {
            return refuse_excess(passage, row, excess, passage->values);
        }
        if (!eb_quantize_row(
                table->storage, passage->values, elements, to + table->row_offset_bytes, &scale)) {
            return refuse_row(passage, row, passage->values);
        }
    }
    if (table->row_offset_bytes > 0) {
        memcpy(to, &scale, sizeof scale);
    }
    return true;
}

/* Brings the chunk, which is at `offset` of the file, to `to`. */
static bool fetch_chunk(struct passage *passage, uint64_t offset, uint8_t *to)
{
    const struct eb_planned_table *table = passage->load->table;
    uint64_t bytes = passage->count * table->file_row_bytes;
    uint64_t end = passage->count * table->row_stride_bytes;
    uint8_t *raw = passage->raw ? passage->raw : to + end - bytes;
    if (!eb_piece_reader_read(&passage->reader, offset, raw, bytes, passage->fault)) {
        return false;
    }
    if (!passage->raw) {
        spread_rows(to, passage->count, table);
        return true;
    }
    for (uint64_t i = 0; i < passage->count; i++) {
        if (!convert_row(passage, passage->row + i, raw + i * table->file_row_bytes,
                to + i * table->row_stride_bytes)) {
            return false;
        }
    }
    return true;
}

/* Rows of a full chunk. */
static uint64_t count_at_once(const struct eb_planned_table *table)
{
    uint64_t row_bytes = table->file_row_bytes > table->row_stride_bytes ? table->file_row_bytes
                                                                         : table->row_stride_bytes;
    return CHUNK_BYTES / row_bytes + (row_bytes > CHUNK_BYTES);
}

/* Brings the chunk, which is at `offset` of the file, to its place, or compares it with what is
 * there. */
static bool move_chunk(struct passage *passage, uint64_t offset)
{
    const struct eb_row_load *load = passage->load;
    const struct eb_planned_table *table = load->table;
    uint64_t place = passage->row * table->row_stride_bytes;
    uint64_t bytes = passage->count * table->row_stride_bytes;
    uint8_t *to = passage->resident ? passage->chunk : load->rows + place;
    if (!fetch_chunk(passage, offset, to)) {
        return false;
    }
    passage->has_difference =
        passage->resident && memcmp(to, passage->resident + place, bytes) != 0;
    eb_table_digest_update(load->digest, to, bytes);
    return eb_load_meter_add(
        load->meter, passage->reader.path, passage->count * table->file_row_bytes, passage->fault);
}

static bool load_piece(struct passage *passage, const struct eb_piece *piece)
{
    const struct eb_planned_table *table = passage->load->table;
    uint64_t at_once = count_at_once(table);
    uint64_t offset = piece->tensor.data_offset;
    for (uint64_t left = piece->tensor.dims[0]; left > 0 && !passage->has_difference;
         left -= passage->count) {
        passage->count = left < at_once ? left : at_once;
        if (!move_chunk(passage, offset)) {
            return false;
        }
        offset += passage->count * table->file_row_bytes;
        passage->row += passage->count;
    }
    return true;
}

static bool load_pieces(struct passage *passage)
{
    const struct eb_piece_range *range = &passage->load->table->rows;
    for (size_t i = 0; i < range->count && !passage->has_difference; i++) {
        const struct eb_piece *piece = &range->pieces[i];
        if (!eb_piece_reader_open(
                &passage->reader, &passage->load->plan->scan, piece, passage->fault)) {
            return false;
        }
        bool is_good = load_piece(passage, piece);
        eb_piece_reader_close(&passage->reader);
        if (!is_good) {
            return false;
        }
    }
    return true;
}

/* Takes what conversion needs. */
static bool prepare(struct passage *passage)
{
    const struct eb_planned_table *table = passage->load->table;
    bool is_packed = table->rows.pieces->packed;
    if (is_packed || (!table->is_fused && table->storage == table->tensor.storage)) {
        return true;
    }
    uint64_t chunk_bytes =
        table->file_row_bytes > CHUNK_BYTES ? table->file_row_bytes : CHUNK_BYTES;
    passage->raw = malloc(chunk_bytes);
    passage->values = calloc(eb_tensor_row_elements(&table->tensor), sizeof *passage->values);
    return (passage->raw && passage->values) || eb_file_fault_set(passage->fault, "out of memory");
}

/* Judges fused rows together, if all of them have been read. */
static bool check_fused(const struct passage *passage)
{
    return passage->has_difference ||
           eb_table_storage_check_end(
               &passage->check, &passage->load->table->fused, passage->fault) ||
           locate_row(passage, passage->check.row);
}

static bool run(struct passage *passage)
{
    bool is_good = prepare(passage) && load_pieces(passage) && check_fused(passage);
    free(passage->raw);
    free(passage->values);
    return is_good;
}

bool eb_row_load(const struct eb_row_load *load, struct eb_file_fault *fault)
{
    struct passage passage = {.load = load, .fault = fault};
    return run(&passage);
}

bool eb_row_load_compare(const struct eb_row_load *load, const uint8_t *resident, bool *is_same,
    struct eb_file_fault *fault)
{
    /* Zeroed, as what lies between rows is. */
    struct passage passage = {
        .load = load,
        .resident = resident,
        .chunk = calloc(count_at_once(load->table), load->table->row_stride_bytes),
        .fault = fault,
    };
    if (!passage.chunk) {
        return eb_file_fault_set(fault, "out of memory");
    }
    bool is_good = run(&passage);
    *is_same = is_good && !passage.has_difference;
    free(passage.chunk);
    return is_good;
}
