#include "server/tables/row_load.h"

#include "kernels/quantize.h"
#include "server/contents/piece_reader.h"
#include "server/tables/scale_tensors.h"
#include "server/tables/table_storage.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that are read at a time, unless one row is larger. They are enough that the overhead does
 * not matter, and few enough that the rows are still in the second-level cache when they are
 * converted and added to the digest (38 ms for 100 MiB, but 44 ms with chunks of 8 MiB). Also, a
 * paced load then pauses every half millisecond instead of using a processor for several
 * milliseconds. */
#define CHUNK_BYTES (UINT64_C(512) << 10)

/* The state of loading or comparing rows, one chunk at a time. */
struct chunk {
    const struct eb_row_load *load;
    struct eb_piece_reader reader;
    uint8_t *raw;   /* rows as in the file; NULL if they are read straight to their destination */
    float *values;  /* values of the row that is being converted; NULL if rows are not converted */
    uint64_t row;   /* row of the whole table with which the chunk begins */
    uint64_t count; /* number of rows in the chunk */
    /* Resident rows to compare with; the chunk is then read into `buffer`. NULL if rows are
     * loaded. */
    const uint8_t *resident;
    uint8_t *buffer;
    bool has_difference;
    struct eb_scale_reader scales;       /* for rows that hold only codes */
    struct eb_table_storage_check check; /* check of fused rows, and of rows of only codes */
    struct eb_failure *failure;
};

/* Moves `row_count` rows apart so that there are gaps between them. Before that they lie without
 * gaps at the end of the space that they will fill. No row is overwritten before it is moved,
 * because its destination never begins after its source. */
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

/* Sets *failure to say that a value of the row cannot be quantised. Always returns false. */
static bool refuse_loaded_row(const struct chunk *chunk, uint64_t row, const float *values)
{
    const struct eb_planned_table *table = chunk->load->table;
    uint32_t elements = (uint32_t)eb_tensor_row_elements(&table->tensor);
    uint32_t column = eb_quantize_find_error(values, elements);
    return eb_failure_set(chunk->failure,
        "%s: row %" PRIu64 " of table '%.64s': value %" PRIu32 " is %g; %s codes need finite "
        "values that are at most 2^126 apart",
        chunk->reader.path, row, table->name, column,
        column < elements ? (double)values[column] : 0.0, eb_storage_name(table->storage));
}

/* Sets *failure to say that a value of the row is too large for its storage. Always returns
 * false. */
static bool refuse_row_excess(
    const struct chunk *chunk, uint64_t row, uint32_t column, const float *values)
{
    const struct eb_planned_table *table = chunk->load->table;
    return eb_failure_set(chunk->failure,
        "%s: row %" PRIu64 " of table '%.64s': value %" PRIu32
        " is %g, more than %s can hold; choose another storage or correct the table",
        chunk->reader.path, row, table->name, column, (double)values[column],
        eb_storage_name(table->storage));
}

/* Returns the file to correct if the row's scale and bias are wrong. */
static const char *find_row_path(
    const struct chunk *chunk, uint64_t row, const struct eb_row_scale *scale)
{
    const struct eb_planned_table *table = chunk->load->table;
    const struct eb_piece *piece = table->rows.pieces;
    if (table->has_scales) {
        bool is_bias = table->biases.count > 0 && isfinite(scale->scale) && !isfinite(scale->bias);
        piece = is_bias ? table->biases.pieces : table->scales.pieces;
    }
    for (; row >= piece->tensor.dims[0]; piece++) {
        row -= piece->tensor.dims[0];
    }
    return chunk->load->plan->scan.files[piece->file].path;
}

/* Adds the file, row and table of a row with a wrong scale or bias to *failure. Always returns
 * false. */
static bool locate_loaded_row(
    const struct chunk *chunk, uint64_t row, const struct eb_row_scale *scale)
{
    struct eb_failure why = *chunk->failure;
    return eb_failure_set(chunk->failure, "%s: row %" PRIu64 " of table '%.64s': %s",
        find_row_path(chunk, row, scale), row, chunk->load->table->name, why.text);
}

/* Takes the codes, the scale and the bias of a row that is fused or has its scale in another
 * tensor. Writes the codes to `to`. */
static bool split_loaded_row(
    struct chunk *chunk, uint64_t row, const uint8_t *raw, uint8_t *to, struct eb_row_scale *scale)
{
    const struct eb_planned_table *table = chunk->load->table;
    if (table->is_fused) {
        eb_fused_row_split(&table->fused, raw, to, scale);
    } else {
        *scale = chunk->scales.rows[row - chunk->row];
        memcpy(to, raw, table->file_row_bytes);
    }
    return eb_table_storage_check_row(
               &chunk->check, &table->fused, row, to, scale, chunk->failure) ||
           locate_loaded_row(chunk, row, scale);
}

/* Converts a row. `to` is the destination of the row with its scale. */
static bool convert_loaded_row(struct chunk *chunk, uint64_t row, const uint8_t *raw, uint8_t *to)
{
    const struct eb_planned_table *table = chunk->load->table;
    uint32_t elements = (uint32_t)eb_tensor_row_elements(&table->tensor);
    struct eb_row_scale scale = {0};
    if (table->is_fused || table->has_scales) {
        if (!split_loaded_row(chunk, row, raw, to + table->row_offset_bytes, &scale)) {
            return false;
        }
    } else {
        eb_dequantize_row(table->tensor.storage, raw, NULL, elements, chunk->values);
        uint32_t excess = eb_quantize_find_excess(table->storage, chunk->values, elements);
        if (excess < elements) {
            return refuse_row_excess(chunk, row, excess, chunk->values);
        }
        if (!eb_quantize_row(
                table->storage, chunk->values, elements, to + table->row_offset_bytes, &scale)) {
            return refuse_loaded_row(chunk, row, chunk->values);
        }
    }
    if (table->row_offset_bytes > 0) {
        memcpy(to, &scale, sizeof scale);
    }
    return true;
}

/* Reads and converts the chunk at `offset` of the file. Writes its rows to `to`. */
static bool fetch_chunk(struct chunk *chunk, uint64_t offset, uint8_t *to)
{
    const struct eb_planned_table *table = chunk->load->table;
    uint64_t bytes = chunk->count * table->file_row_bytes;
    uint64_t end = chunk->count * table->row_stride_bytes;
    uint8_t *raw = chunk->raw ? chunk->raw : to + end - bytes;
    if (!eb_piece_reader_read(&chunk->reader, offset, raw, bytes, chunk->failure)) {
        return false;
    }
    if (!chunk->raw) {
        spread_rows(to, chunk->count, table);
        return true;
    }
    if (table->has_scales &&
        !eb_scale_reader_read(&chunk->scales, chunk->row, chunk->count, chunk->failure)) {
        return false;
    }
    for (uint64_t i = 0; i < chunk->count; i++) {
        if (!convert_loaded_row(chunk, chunk->row + i, raw + i * table->file_row_bytes,
                to + i * table->row_stride_bytes)) {
            return false;
        }
    }
    return true;
}

/* Returns the number of rows in a full chunk. */
static uint64_t count_at_once(const struct eb_planned_table *table)
{
    uint64_t row_bytes = table->file_row_bytes > table->row_stride_bytes ? table->file_row_bytes
                                                                         : table->row_stride_bytes;
    return CHUNK_BYTES / row_bytes + (row_bytes > CHUNK_BYTES);
}

/* Loads the chunk at `offset` of the file to its destination, or compares it with the resident
 * rows. */
static bool move_chunk(struct chunk *chunk, uint64_t offset)
{
    const struct eb_row_load *load = chunk->load;
    const struct eb_planned_table *table = load->table;
    uint64_t place = chunk->row * table->row_stride_bytes;
    uint64_t bytes = chunk->count * table->row_stride_bytes;
    uint8_t *to = chunk->resident ? chunk->buffer : load->rows + place;
    if (!fetch_chunk(chunk, offset, to)) {
        return false;
    }
    chunk->has_difference = chunk->resident && memcmp(to, chunk->resident + place, bytes) != 0;
    eb_table_digest_update(load->digest, to, bytes);
    return eb_load_meter_add(
        load->meter, chunk->reader.path, chunk->count * table->file_row_bytes, chunk->failure);
}

static bool load_piece(struct chunk *chunk, const struct eb_piece *piece)
{
    const struct eb_planned_table *table = chunk->load->table;
    uint64_t at_once = count_at_once(table);
    uint64_t offset = piece->tensor.data_offset;
    for (uint64_t left = piece->tensor.dims[0]; left > 0 && !chunk->has_difference;
         left -= chunk->count) {
        chunk->count = left < at_once ? left : at_once;
        if (!move_chunk(chunk, offset)) {
            return false;
        }
        offset += chunk->count * table->file_row_bytes;
        chunk->row += chunk->count;
    }
    return true;
}

static bool load_pieces(struct chunk *chunk)
{
    const struct eb_piece_range *range = &chunk->load->table->rows;
    for (size_t i = 0; i < range->count && !chunk->has_difference; i++) {
        const struct eb_piece *piece = &range->pieces[i];
        if (!eb_piece_reader_open(
                &chunk->reader, &chunk->load->plan->scan, piece, chunk->failure)) {
            return false;
        }
        bool is_good = load_piece(chunk, piece);
        eb_piece_reader_close(&chunk->reader);
        if (!is_good) {
            return false;
        }
    }
    return true;
}

/* Allocates the buffers of a conversion, if one is needed. */
static bool prepare_rows(struct chunk *chunk)
{
    const struct eb_planned_table *table = chunk->load->table;
    bool is_packed = table->rows.pieces->packed;
    bool has_codes = table->is_fused || table->has_scales;
    chunk->check.has_scales = table->has_scales;
    if (is_packed || (!has_codes && table->storage == table->tensor.storage)) {
        return true;
    }
    if (table->has_scales && !eb_scale_reader_open(&chunk->scales, chunk->load->plan, table,
                                 count_at_once(table), chunk->load->meter, chunk->failure)) {
        return false;
    }
    uint64_t chunk_bytes =
        table->file_row_bytes > CHUNK_BYTES ? table->file_row_bytes : CHUNK_BYTES;
    chunk->raw = malloc(chunk_bytes);
    chunk->values = calloc(eb_tensor_row_elements(&table->tensor), sizeof *chunk->values);
    return (chunk->raw && chunk->values) || eb_failure_set(chunk->failure, "out of memory");
}

/* Checks the scales of fused rows, or of codes, as a whole, if all of them have been read. */
static bool check_row_scales(const struct chunk *chunk)
{
    return chunk->has_difference ||
           eb_table_storage_check_end(&chunk->check, &chunk->load->table->fused, chunk->failure) ||
           locate_loaded_row(chunk, chunk->check.row, &chunk->check.scale);
}

static bool load_rows_of_piece(struct chunk *chunk)
{
    bool is_good = prepare_rows(chunk) && load_pieces(chunk) && check_row_scales(chunk);
    eb_scale_reader_close(&chunk->scales);
    free(chunk->raw);
    free(chunk->values);
    return is_good;
}

bool eb_row_load(const struct eb_row_load *load, struct eb_failure *failure)
{
    struct chunk chunk = {.load = load, .failure = failure};
    return load_rows_of_piece(&chunk);
}

bool eb_row_load_compare(const struct eb_row_load *load, const uint8_t *resident, bool *is_same,
    struct eb_failure *failure)
{
    /* The buffer is zeroed because the gaps between resident rows are zeros. */
    struct chunk chunk = {
        .load = load,
        .resident = resident,
        .buffer = calloc(count_at_once(load->table), load->table->row_stride_bytes),
        .failure = failure,
    };
    if (!chunk.buffer) {
        return eb_failure_set(failure, "out of memory");
    }
    bool is_good = load_rows_of_piece(&chunk);
    *is_same = is_good && !chunk.has_difference;
    free(chunk.buffer);
    return is_good;
}
