#include "server/tables/key_load.h"

#include "server/contents/piece_reader.h"
#include "server/tables/key_workers.h"

#include <stdlib.h>
#include <xxhash.h>

#define CHUNK_BYTES (UINT64_C(8) << 20)

/* Returns the range of a piece's keys in its file. */
static struct eb_packed_section find_keys(const struct eb_piece *piece)
{
    return piece->is_keys
               ? (struct eb_packed_section){piece->tensor.data_offset, piece->tensor.data_bytes}
               : piece->packed->sections[EB_PACKED_KEYS];
}

static const struct eb_piece_range *find_pieces(const struct eb_planned_table *table)
{
    return table->keys.count > 0 ? &table->keys : &table->rows;
}

/* Reads a section of a piece to `to`. */
static bool read_section(const struct eb_key_load *load, const struct eb_piece *piece,
    const struct eb_packed_section *section, uint8_t *to, struct eb_failure *failure)
{
    struct eb_piece_reader reader;
    if (!eb_piece_reader_open(&reader, &load->plan->scan, piece, failure)) {
        return false;
    }
    bool is_good = true;
    uint64_t count = 0;
    for (uint64_t done = 0; is_good && done < section->bytes; done += count) {
        uint64_t left = section->bytes - done;
        count = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        is_good =
            eb_piece_reader_read(&reader, section->offset + done, to + done, count, failure) &&
            eb_load_meter_add(load->meter, reader.path, count, failure);
    }
    eb_piece_reader_close(&reader);
    return is_good;
}

static bool read_key_keys(const struct eb_key_load *load, uint8_t *keys, struct eb_failure *failure)
{
    const struct eb_piece_range *range = find_pieces(load->table);
    for (size_t i = 0; i < range->count; i++) {
        struct eb_packed_section section = find_keys(&range->pieces[i]);
        if (!read_section(load, &range->pieces[i], &section, keys, failure)) {
            return false;
        }
        keys += section.bytes;
    }
    return true;
}

/* The state of building an index, for its callback. */
struct building {
    const struct eb_key_load *load;
    const char *path;
    struct eb_failure *failure;
};

static bool continue_key_load(void *context, uint64_t bytes)
{
    const struct building *building = context;
    return eb_load_meter_add(building->load->meter, building->path, bytes, building->failure);
}

/* Returns the path of the file with the key of `row`. */
static const char *find_key_path(const struct eb_key_load *load, uint32_t row)
{
    const struct eb_piece_range *range = find_pieces(load->table);
    size_t at = 0;
    uint64_t rows = range->pieces[0].tensor.dims[0];
    while (rows <= row && at + 1 < range->count) {
        rows += range->pieces[++at].tensor.dims[0];
    }
    return load->plan->scan.files[range->pieces[at].file].path;
}

static bool build_index(
    const struct eb_key_load *load, struct eb_key_workers *workers, struct eb_failure *failure)
{
    struct eb_failure why_given_up;
    struct building building = {load, find_key_path(load, 0), &why_given_up};
    uint32_t row;
    workers->go_on = continue_key_load;
    workers->context = &building;
    return eb_key_workers_build(workers, &row, failure) ||
           eb_failure_locate(failure, find_key_path(load, row));
}

static bool make_index(const struct eb_key_load *load, uint64_t *hash, struct eb_failure *failure)
{
    struct eb_key_workers workers = {.index = load->bytes};
    bool is_planned = eb_key_build_plan(load->table->tensor.dims[0], &workers.plan);
    uint8_t *keys = is_planned ? malloc(workers.plan.row_count * sizeof(int64_t) + 1) : NULL;
    workers.keys = keys;
    bool is_good = keys || eb_failure_set(failure, "out of memory");
    is_good = is_good && read_key_keys(load, keys, failure);
    if (is_good) {
        *hash = XXH3_64bits(keys, workers.plan.row_count * sizeof(int64_t));
        is_good = build_index(load, &workers, failure);
    }
    free(keys);
    return is_good;
}

bool eb_key_load(const struct eb_key_load *load, struct eb_key_index *index, uint64_t *hash,
    struct eb_failure *failure)
{
    *hash = 0;
    const struct eb_planned_table *table = load->table;
    const struct eb_piece *piece = find_pieces(table)->pieces;
    bool is_good = table->has_index
                       ? read_section(load, piece, &piece->packed->sections[EB_PACKED_KEY_INDEX],
                             load->bytes, failure)
                       : make_index(load, hash, failure);
    const char *reason;
    if (!is_good) {
        return false;
    }
    return eb_key_index_open(
               index, load->bytes, table->index_bytes, table->tensor.dims[0], &reason) ||
           eb_failure_set(failure, "%s: its index of keys is invalid: %s; pack the table again",
               load->plan->scan.files[piece->file].path, reason);
}

/* Adds a piece's keys to the hash, one chunk at a time. */
static bool hash_piece(const struct eb_key_load *load, const struct eb_piece *piece,
    uint8_t *buffer, XXH3_state_t *state, struct eb_failure *failure)
{
    struct eb_packed_section keys = find_keys(piece);
    for (uint64_t done = 0; done < keys.bytes; done += CHUNK_BYTES) {
        uint64_t left = keys.bytes - done;
        struct eb_packed_section part = {
            keys.offset + done, left < CHUNK_BYTES ? left : CHUNK_BYTES};
        if (!read_section(load, piece, &part, buffer, failure)) {
            return false;
        }
        (void)XXH3_64bits_update(state, buffer, part.bytes);
    }
    return true;
}

bool eb_key_load_hash(const struct eb_key_load *load, uint64_t *hash, struct eb_failure *failure)
{
    const struct eb_piece_range *range = find_pieces(load->table);
    uint8_t *buffer = malloc(CHUNK_BYTES);
    XXH3_state_t *state = XXH3_createState();
    bool is_good = (buffer && state) || eb_failure_set(failure, "out of memory");
    if (is_good) {
        (void)XXH3_64bits_reset(state);
    }
    for (size_t i = 0; i < range->count && is_good; i++) {
        is_good = hash_piece(load, &range->pieces[i], buffer, state, failure);
    }
    *hash = is_good ? XXH3_64bits_digest(state) : 0;
    (void)XXH3_freeState(state);
    free(buffer);
    return is_good;
}

/* Reads those of the keys of `rows` that are in a piece, which has the rows `piece_rows`. */
static bool read_piece_keys(const struct eb_key_load *load, const struct eb_piece *piece,
    struct eb_key_range piece_rows, struct eb_key_range rows, int64_t *keys,
    struct eb_failure *failure)
{
    struct eb_packed_section section = find_keys(piece);
    uint64_t first = rows.first > piece_rows.first ? rows.first : piece_rows.first;
    uint64_t end = rows.end < piece_rows.end ? rows.end : piece_rows.end;
    if (first >= end) {
        return true;
    }
    if (section.bytes == 0) {
        return eb_failure_set(failure,
            "%s: the file has an index of keys but no keys; pack the table again",
            load->plan->scan.files[piece->file].path);
    }
    section.offset += (first - piece_rows.first) * sizeof *keys;
    section.bytes = (end - first) * sizeof *keys;
    return read_section(load, piece, &section, (uint8_t *)(keys + (first - rows.first)), failure);
}

bool eb_key_load_read(const struct eb_key_load *load, uint64_t first, uint64_t count, int64_t *keys,
    struct eb_failure *failure)
{
    const struct eb_piece_range *range = find_pieces(load->table);
    struct eb_key_range rows = {first, first + count};
    struct eb_key_range piece_rows = {0, 0};
    for (size_t i = 0; i < range->count && piece_rows.first < rows.end; i++) {
        piece_rows.end = piece_rows.first + range->pieces[i].tensor.dims[0];
        if (!read_piece_keys(load, &range->pieces[i], piece_rows, rows, keys, failure)) {
            return false;
        }
        piece_rows.first = piece_rows.end;
    }
    return true;
}
