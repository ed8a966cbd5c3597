#include "server/tables/scale_tensors.h"

#include "kernels/element.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- planning ---- */

static int compare_scale_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

bool eb_scale_names_init(
    struct eb_scale_names *names, const struct eb_model_config *config, struct eb_failure *failure)
{
    size_t table_count = config ? config->table_count : 0;
    *names = (struct eb_scale_names){.names = calloc(2 * table_count + 1, sizeof *names->names)};
    if (!names->names) {
        return eb_failure_set(failure, "out of memory");
    }
    for (size_t i = 0; i < table_count; i++) {
        const struct eb_model_config_table *table = &config->tables[i];
        if (table->scales) {
            names->names[names->count++] = table->scales;
        }
        if (table->biases) {
            names->names[names->count++] = table->biases;
        }
    }
    qsort(names->names, names->count, sizeof *names->names, compare_scale_names);
    return true;
}

bool eb_scale_names_has(const struct eb_scale_names *names, const char *name)
{
    return names->count > 0 &&
           bsearch(&name, names->names, names->count, sizeof *names->names, compare_scale_names);
}

void eb_scale_names_deinit(struct eb_scale_names *names)
{
    free(names->names);
    *names = (struct eb_scale_names){0};
}

/* Returns what to do about a tensor that does not have one number for each row. */
static const char *find_numbers_hint(
    const struct eb_tensor *tensor, bool is_number, bool is_flat, uint64_t rows)
{
    uint64_t count = tensor->dims[0] * eb_tensor_row_elements(tensor);
    if (!is_flat && count > 1 && tensor->dims[0] == rows) {
        return "scales of blocks of a row are not supported: dequantise the table to F32 or BF16";
    }
    if (!is_number) {
        return "convert it to F32 or F16";
    }
    if (count == 1) {
        return "one scale for the whole table is not supported: repeat it for each row";
    }
    return "name the tensor that belongs to this table";
}

bool eb_scale_tensors_check(
    const struct eb_tensor *tensor, uint64_t rows, struct eb_failure *failure)
{
    bool is_number = tensor->storage == EB_STORAGE_F32 || tensor->storage == EB_STORAGE_F16;
    bool is_flat = tensor->rank == 1 || (tensor->rank == 2 && tensor->dims[1] == 1);
    if (is_number && is_flat && tensor->dims[0] == rows) {
        return true;
    }
    char shape[EB_TENSOR_SHAPE_BYTES];
    eb_tensor_shape_text(tensor, shape);
    return eb_failure_set(failure,
        "expected one f32 or f16 for each row, of shape (%" PRIu64 ",) or (%" PRIu64
        ", 1), but this is %s of %s; %s",
        rows, rows, shape, eb_storage_name(tensor->storage),
        find_numbers_hint(tensor, is_number, is_flat, rows));
}

/* A possible name of a tensor of scales: the first bytes of a table's name, and a suffix. */
struct guess {
    const char *stem;
    size_t stem_bytes;
    const char *suffix;
};

static const char *const scale_suffixes[] = {
    "_scale", "_scales", "_scale_inv", "_qscale", ".scale", ".scales", ".scale_inv"};
#define SUFFIX_COUNT (sizeof scale_suffixes / sizeof scale_suffixes[0])

/* Endings of a table's name that may be absent from the name of its scales. */
static const char *const table_endings[] = {"", ".weight", "_blocks"};
#define ENDING_COUNT (sizeof table_endings / sizeof table_endings[0])

#define GUESS_COUNT (ENDING_COUNT * SUFFIX_COUNT)

/* Makes guess `n` of GUESS_COUNT. Returns false if there is none, because the table has another
 * ending. */
static bool make_guess(const char *name, size_t n, struct guess *guess)
{
    const char *ending = table_endings[n / SUFFIX_COUNT];
    size_t length = strlen(name);
    size_t ending_bytes = strlen(ending);
    if (length <= ending_bytes || strcmp(name + length - ending_bytes, ending) != 0) {
        return false;
    }
    *guess = (struct guess){name, length - ending_bytes, scale_suffixes[n % SUFFIX_COUNT]};
    return true;
}

static int compare_guess_name(const struct guess *guess, const char *name)
{
    int stems = strncmp(guess->stem, name, guess->stem_bytes);
    return stems != 0 ? stems : strcmp(guess->suffix, name + guess->stem_bytes);
}

static int compare_guess(const void *guess, const void *piece)
{
    return compare_guess_name(guess, ((const struct eb_piece *)piece)->name);
}

static const struct eb_piece *find_guess(
    const struct guess *guess, const struct eb_piece *pieces, size_t count)
{
    return count > 0 ? bsearch(guess, pieces, count, sizeof *pieces, compare_guess) : NULL;
}

const struct eb_piece *eb_scale_tensors_find(const struct eb_version_scan *scan, const char *name)
{
    const struct eb_piece *found = NULL;
    struct guess guess;
    for (size_t i = 0; !found && i < GUESS_COUNT; i++) {
        if (!make_guess(name, i, &guess)) {
            continue;
        }
        found = find_guess(&guess, scan->pieces, scan->piece_count);
        if (!found) {
            found = find_guess(&guess, scan->pieces + scan->piece_count, scan->unfit_count);
        }
    }
    return found;
}

bool eb_scale_tensors_is_of(const char *scales, const char *name)
{
    bool is_of = false;
    struct guess guess;
    for (size_t i = 0; !is_of && i < GUESS_COUNT; i++) {
        is_of = make_guess(name, i, &guess) && compare_guess_name(&guess, scales) == 0;
    }
    return is_of;
}

/* ---- reading ---- */

bool eb_scale_reader_open(struct eb_scale_reader *reader, const struct eb_table_plan *plan,
    const struct eb_planned_table *table, uint64_t rows_max, struct eb_load_meter *meter,
    struct eb_failure *failure)
{
    *reader = (struct eb_scale_reader){
        .scan = &plan->scan,
        .meter = meter,
        .scales = {.range = &table->scales},
        .biases = {.range = &table->biases, .is_bias = true},
        .raw = malloc(rows_max * sizeof(float)),
        .rows = calloc(rows_max, sizeof *reader->rows),
    };
    if (!reader->raw || !reader->rows) {
        eb_scale_reader_close(reader);
        return eb_failure_set(failure, "out of memory");
    }
    return true;
}

static void close_cursor(struct eb_scale_cursor *cursor)
{
    if (cursor->is_open) {
        eb_piece_reader_close(&cursor->reader);
    }
    cursor->is_open = false;
}

void eb_scale_reader_close(struct eb_scale_reader *reader)
{
    close_cursor(&reader->scales);
    close_cursor(&reader->biases);
    free(reader->raw);
    free(reader->rows);
    reader->raw = NULL;
    reader->rows = NULL;
}

/* Moves the cursor to the piece that contains `row`, which the planner has checked to exist, and
 * opens it. */
static bool turn_cursor(const struct eb_scale_reader *reader, struct eb_scale_cursor *cursor,
    uint64_t row, struct eb_failure *failure)
{
    const struct eb_version_scan *scan = reader->scan;
    const struct eb_piece *pieces = cursor->range->pieces;
    while (row - cursor->row_first >= pieces[cursor->piece].tensor.dims[0]) {
        close_cursor(cursor);
        cursor->row_first += pieces[cursor->piece].tensor.dims[0];
        cursor->piece++;
    }
    if (!cursor->is_open) {
        const struct eb_piece *piece = &pieces[cursor->piece];
        cursor->is_open = eb_piece_reader_open(&cursor->reader, scan, piece, failure);
    }
    return cursor->is_open;
}

/* Converts the numbers that were read from the file, and writes them to `rows`. */
static void place_numbers(const struct eb_scale_reader *reader,
    const struct eb_scale_cursor *cursor, struct eb_row_scale *rows, uint64_t count)
{
    enum eb_storage storage = cursor->range->pieces[cursor->piece].tensor.storage;
    size_t number_bytes = eb_storage_bytes(storage);
    for (uint64_t i = 0; i < count; i++) {
        float number = (float)eb_element_load_float(storage, reader->raw + i * number_bytes);
        *(cursor->is_bias ? &rows[i].bias : &rows[i].scale) = number;
    }
}

/* Reads the scales, or the biases, of `count` rows from `row` on. */
static bool read_numbers(struct eb_scale_reader *reader, struct eb_scale_cursor *cursor,
    uint64_t row, uint64_t count, struct eb_failure *failure)
{
    for (uint64_t done = 0; done < count;) {
        if (!turn_cursor(reader, cursor, row + done, failure)) {
            return false;
        }
        const struct eb_tensor *tensor = &cursor->range->pieces[cursor->piece].tensor;
        uint64_t number_bytes = eb_storage_bytes(tensor->storage);
        uint64_t at = row + done - cursor->row_first;
        uint64_t left = tensor->dims[0] - at;
        uint64_t some = count - done < left ? count - done : left;
        bool is_good = eb_piece_reader_read(&cursor->reader,
            tensor->data_offset + at * number_bytes, reader->raw, some * number_bytes, failure);
        if (!is_good ||
            !eb_load_meter_add(reader->meter, cursor->reader.path, some * number_bytes, failure)) {
            return false;
        }
        place_numbers(reader, cursor, reader->rows + done, some);
        done += some;
    }
    return true;
}

bool eb_scale_reader_read(
    struct eb_scale_reader *reader, uint64_t row, uint64_t count, struct eb_failure *failure)
{
    return read_numbers(reader, &reader->scales, row, count, failure) &&
           (reader->biases.range->count == 0 ||
               read_numbers(reader, &reader->biases, row, count, failure));
}
