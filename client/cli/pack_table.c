#include "client/cli/pack_table.h"

#include "kernels/bag_ops.h"
#include "kernels/element.h"
#include "kernels/quantize.h"
#include "kernels/table.h"
#include "proto/splitmix64.h"
#include "server/tables/table_storage.h"
#include "server/tables/worker_pool.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Bytes of the source's rows that are read at a time: a whole number of a packed file's blocks. */
#define CHUNK_BYTES (4 * EB_PACKED_FORMAT_BLOCK_BYTES)

/* Number of open files besides those that are written; a generous estimate. */
#define OTHER_FILES 32

/* Constant, so that a table has the same sample every time. */
#define SAMPLE_SEED UINT64_C(0x243f6a8885a308d3)

/* ---- the errors of a conversion ---- */

struct eb_pack_draw {
    uint64_t row;
    size_t bag;
};

static int compare_draws(const void *left, const void *right)
{
    const struct eb_pack_draw *a = left;
    const struct eb_pack_draw *b = right;
    return (a->row > b->row) - (a->row < b->row);
}

static size_t choose_bag_count(uint64_t row_count, uint32_t elements)
{
    uint64_t room = EB_PACK_ERROR_BYTES_MAX / (2 * sizeof(double) * (uint64_t)elements);
    uint64_t count = room < EB_PACK_ERROR_BAGS_MAX ? room : EB_PACK_ERROR_BAGS_MAX;
    return row_count == 0 ? 0 : count > 0 ? count : 1;
}

bool eb_pack_error_init(struct eb_pack_error *error, uint64_t row_count, uint32_t elements)
{
    size_t bags = choose_bag_count(row_count, elements);
    *error = (struct eb_pack_error){
        .elements = elements, .bag_count = bags, .draw_count = bags * EB_PACK_ERROR_BAG_ROWS};
    error->draws = calloc(error->draw_count + 1, sizeof *error->draws);
    error->exact_sums = calloc(bags * elements + 1, sizeof *error->exact_sums);
    error->stored_sums = calloc(bags * elements + 1, sizeof *error->stored_sums);
    if (!error->draws || !error->exact_sums || !error->stored_sums) {
        eb_pack_error_deinit(error);
        return false;
    }
    uint64_t state = SAMPLE_SEED;
    for (size_t i = 0; i < error->draw_count; i++) {
        error->draws[i] = (struct eb_pack_draw){
            .row = eb_splitmix64_next(&state) % row_count, .bag = i / EB_PACK_ERROR_BAG_ROWS};
    }
    qsort(error->draws, error->draw_count, sizeof *error->draws, compare_draws);
    return true;
}

void eb_pack_error_deinit(struct eb_pack_error *error)
{
    free(error->draws);
    free(error->exact_sums);
    free(error->stored_sums);
    *error = (struct eb_pack_error){0};
}

static double difference(double exact, double stored)
{
    if (exact == stored || (isnan(exact) && isnan(stored))) {
        return 0;
    }
    double error = fabs(stored - exact);
    return isnan(error) ? INFINITY : error;
}

/* Adds the error of one number to the sum, and to the maximum if it is the largest so far. */
static void add_difference(
    struct eb_pack_deviation *deviation, uint64_t row, double exact, double stored)
{
    double error = difference(exact, stored);
    if (error > deviation->max) {
        deviation->max = error;
        deviation->max_row = row;
    }
    deviation->sum += error;
    deviation->count++;
}

void eb_pack_deviation_add(struct eb_pack_deviation *deviation, uint64_t row, uint32_t elements,
    const float *exact, const float *stored)
{
    for (uint32_t i = 0; i < elements; i++) {
        add_difference(deviation, row, exact[i], stored[i]);
    }
}

void eb_pack_deviation_join(
    struct eb_pack_deviation *deviation, const struct eb_pack_deviation *part)
{
    if (part->max > deviation->max) {
        deviation->max = part->max;
        deviation->max_row = part->max_row;
    }
    deviation->sum += part->sum;
    deviation->count += part->count;
}

uint64_t eb_pack_error_next_row(const struct eb_pack_error *error, uint64_t end)
{
    bool has_next =
        error->next_draw < error->draw_count && error->draws[error->next_draw].row < end;
    return has_next ? error->draws[error->next_draw].row : end;
}

static void add_to_bag(
    struct eb_pack_error *error, size_t bag, const float *exact, const float *stored)
{
    double *exact_sum = error->exact_sums + bag * error->elements;
    double *stored_sum = error->stored_sums + bag * error->elements;
    for (uint32_t i = 0; i < error->elements; i++) {
        exact_sum[i] += exact[i];
        stored_sum[i] += stored[i];
    }
}

void eb_pack_error_add_row(
    struct eb_pack_error *error, uint64_t row, const float *exact, const float *stored)
{
    for (; error->next_draw < error->draw_count && error->draws[error->next_draw].row == row;
         error->next_draw++) {
        add_to_bag(error, error->draws[error->next_draw].bag, exact, stored);
    }
}

struct eb_pack_deviation eb_pack_error_bags(const struct eb_pack_error *error)
{
    struct eb_pack_deviation bags = {0};
    for (size_t i = 0; i < error->bag_count * error->elements; i++) {
        add_difference(&bags, 0, error->exact_sums[i], error->stored_sums[i]);
    }
    return bags;
}

double eb_pack_error_mean(const struct eb_pack_deviation *deviation)
{
    return deviation->count > 0 ? deviation->sum / (double)deviation->count : 0;
}

/* ---- the files ---- */

struct packing {
    const struct eb_pack_plan *plan;
    const struct eb_bag_ops *ops; /* functions that convert rows */
    struct eb_pack_result *result;
    struct eb_packed_format format; /* format of all rows that are packed, as if in one file */
    struct eb_packed_writer *writers;
    struct eb_progress_bar bar;
    struct eb_pack_error error;
    uint32_t elements;                   /* values of a row */
    uint64_t chunk_rows;                 /* rows packed at a time */
    struct eb_table_storage_check check; /* for fused rows and rows of only codes */
    struct eb_fused_format fused;        /* as the table's, with the layout that the check needs */
    struct eb_failure *failure;
};

/* The rows of one file, which worker threads pack: chunks of them are read one at a time, converted
 * at the same time, and appended to the file in order. So files and errors do not depend on the
 * number of threads. */
struct pack_run {
    struct packing *packing;
    struct eb_packed_writer *writer;
    uint64_t first;             /* number of the file's first row */
    pthread_mutex_t read_mutex; /* held to read from the source */
    pthread_mutex_t mutex;      /* guards the writer, the members below, and those of the packing
                                   that change: bar, error and check */
    pthread_cond_t changed;
    uint64_t next;   /* chunk that is appended next */
    uint64_t failed; /* least chunk that has failed; UINT64_MAX if none has */
};

/* One thread's chunk. */
struct pack_chunk {
    const struct packing *packing;
    uint64_t row;     /* number of its first row; counts only rows that are packed */
    uint64_t count;   /* its rows, at most chunk_rows */
    uint8_t *from;    /* [chunk_rows] rows of the source, and the skipped rows between them */
    uint8_t *to;      /* [chunk_rows] packed rows */
    uint8_t *split;   /* one row of codes with its scale, in the layout of a table of codes */
    uint8_t *numbers; /* scales or biases of the source, and the skipped ones between them */
    struct eb_row_scale *scales;         /* [chunk_rows], if they are in separate tensors */
    float *values;                       /* values of one row */
    float *stored;                       /* values of one row as they will be read back */
    struct eb_pack_deviation deviation;  /* of the chunk's values */
    struct eb_table_storage_check check; /* of the chunk's rows */
    struct eb_failure *failure;
};

char *eb_pack_table_path(const char *path, uint32_t number, uint32_t file_count)
{
    char *out = NULL;
    int length = (int)(strlen(path) - strlen(EB_PACKED_FORMAT_SUFFIX));
    int printed = file_count == 1 ? asprintf(&out, "%s", path)
                                  : asprintf(&out, "%.*s-%05" PRIu32 "-of-%05" PRIu32 "%s", length,
                                        path, number, file_count, EB_PACKED_FORMAT_SUFFIX);
    return printed < 0 ? NULL : out;
}

/* Sets which rows of the whole table are packed. */
static void set_place(struct packing *packing)
{
    const struct eb_pack_plan *plan = packing->plan;
    struct eb_packed_format *format = &packing->format;
    uint64_t rows = plan->table->tensor.dims[0];
    *format = (struct eb_packed_format){.rows_total = rows, .parts = plan->parts};
    if (plan->source->is_packed) {
        *format = plan->source->reader.format;
        memset(format->sections, 0, sizeof format->sections);
        /* `packing` identifies the files of one table. The rows of one such file keep that number.
         */
        format->packing = eb_packed_format_is_whole(format) ? 0 : format->packing;
    }
    if (plan->parts > 1) {
        format->parts = plan->parts;
        format->part = plan->part;
        rows = eb_packed_format_part_rows(rows, plan->parts, plan->part);
    }
    format->tensor = plan->table->tensor;
    format->tensor.dims[0] = rows;
    format->unknown_row = plan->unknown_row;
}

/* Puts the source's path before an error. Always returns false. */
static bool locate_packed_error(const struct packing *packing)
{
    return eb_failure_locate(packing->failure, packing->plan->source->path);
}

/* Puts the path of the file with a wrong scale or bias before an error. Always returns false. */
static bool locate_packed_scale(
    const struct eb_pack_plan *plan, const struct eb_row_scale *scale, struct eb_failure *failure)
{
    bool is_bias = plan->biases.source && isfinite(scale->scale) && !isfinite(scale->bias);
    const struct eb_source_file *source = is_bias                   ? plan->biases.source
                                          : plan->table->has_scales ? plan->scales.source
                                                                    : plan->source;
    return eb_failure_locate(failure, source->path);
}

/* Refuses parts and files without rows, unless the table has no rows. */
static bool check_packed_counts(const struct packing *packing)
{
    const struct eb_pack_plan *plan = packing->plan;
    uint64_t rows = plan->table->tensor.dims[0];
    uint64_t rows_left = packing->format.tensor.dims[0];
    if (plan->parts > 1 && plan->parts > rows) {
        return eb_failure_set(packing->failure,
            "its %" PRIu64 " rows are too few for %" PRIu32 " parts; choose fewer --parts", rows,
            plan->parts);
    }
    return plan->file_count == 1 || plan->file_count <= rows_left ||
           eb_failure_set(packing->failure,
               "%" PRIu64 " rows are too few for %" PRIu32 " files; choose a smaller --split",
               rows_left, plan->file_count);
}

/* Raises the limit of open files: all files stay open until the last one is complete. */
static bool allow_files(const struct packing *packing)
{
    struct rlimit limit;
    uint64_t needed = (uint64_t)packing->plan->file_count + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed) {
        limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        return limit.rlim_cur == needed ||
               eb_failure_set(packing->failure,
                   "%" PRIu32 " files must be open at once, but this process may open %" PRIu64
                   "; raise ulimit -n or choose a smaller --split",
                   packing->plan->file_count, (uint64_t)limit.rlim_max);
    }
    return true;
}

static bool lay_packed_out(struct packing *packing)
{
    const struct eb_pack_plan *plan = packing->plan;
    struct eb_packed_format *format = &packing->format;
    uint64_t elements = eb_tensor_row_elements(&plan->table->tensor);
    if (elements > UINT32_MAX) {
        return eb_failure_set(packing->failure,
            "its rows have %" PRIu64 " values, at most 2^32 - 1 are allowed", elements);
    }
    set_place(packing);
    if (!check_packed_counts(packing)) {
        return false;
    }
    format->tensor.storage = plan->storage;
    format->type = plan->table->type;
    format->row_stride_bytes = eb_row_format_of(plan->storage, (uint32_t)elements).stride_bytes;
    return eb_packed_format_lay_out(format, packing->failure);
}

/* Takes the memory that all threads share, and decides how many rows are packed at a time. */
static bool take_packed_memory(struct packing *packing)
{
    const struct eb_pack_plan *plan = packing->plan;
    /* check_packed_counts ensures that parts <= rows */
    uint64_t stride = plan->table->row_stride_bytes * plan->parts;
    packing->elements = (uint32_t)eb_tensor_row_elements(&plan->table->tensor);
    packing->chunk_rows = stride < CHUNK_BYTES ? CHUNK_BYTES / stride : 1;
    packing->writers = calloc(plan->file_count, sizeof *packing->writers);
    bool has_error = packing->result->is_converted;
    return (packing->writers &&
               (!has_error || eb_pack_error_init(&packing->error, packing->format.tensor.dims[0],
                                  packing->elements))) ||
           eb_failure_set(packing->failure, "out of memory");
}

/* ---- chunks ---- */

static void close_pack_chunk(void *state)
{
    struct pack_chunk *chunk = state;
    free(chunk->from);
    free(chunk->to);
    free(chunk->split);
    free(chunk->numbers);
    free(chunk->scales);
    free(chunk->values);
    free(chunk->stored);
    free(chunk);
}

/* Makes the memory for the chunks of one thread. Returns NULL with *failure set, including the
 * path, if out of memory. */
static void *open_pack_chunk(void *context, struct eb_failure *failure)
{
    const struct pack_run *run = context;
    const struct packing *packing = run->packing;
    const struct eb_source_table *table = packing->plan->table;
    uint64_t skipped_rows = (packing->chunk_rows - 1) * packing->plan->parts;
    struct pack_chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk) {
        chunk->packing = packing;
        chunk->from = malloc((skipped_rows + 1) * table->row_stride_bytes);
        chunk->to = calloc(packing->chunk_rows, packing->format.row_stride_bytes);
        chunk->split = malloc(table->row_offset_bytes +
                              eb_storage_row_bytes(table->tensor.storage, packing->elements));
        chunk->numbers = malloc((skipped_rows + 1) * sizeof(float));
        chunk->scales = calloc(packing->chunk_rows, sizeof *chunk->scales);
        chunk->values = malloc(packing->elements * sizeof *chunk->values);
        chunk->stored = malloc(packing->elements * sizeof *chunk->stored);
    }
    if (chunk && chunk->from && chunk->to && chunk->split && chunk->numbers && chunk->scales &&
        chunk->values && chunk->stored) {
        return chunk;
    }
    if (chunk) {
        close_pack_chunk(chunk);
    }
    eb_failure_set(failure, "out of memory");
    eb_failure_locate(failure, packing->plan->source->path);
    return NULL;
}

/* Reads the scales, or the biases, of a chunk's rows into chunk->scales. Returns false with
 * *chunk->failure set, including the path. */
static bool read_packed_numbers(struct pack_chunk *chunk, const struct eb_pack_numbers *numbers)
{
    const struct eb_pack_plan *plan = chunk->packing->plan;
    bool is_bias = numbers == &plan->biases;
    if (!numbers->source) {
        return true;
    }
    enum eb_storage storage = numbers->table->tensor.storage;
    uint64_t bytes = eb_storage_bytes(storage);
    uint64_t stride = bytes * plan->parts;
    struct eb_source_range range = {.from = chunk->row * stride + plan->part * bytes,
        .bytes = (chunk->count - 1) * stride + bytes};
    if (!eb_source_file_read(
            numbers->source, numbers->table, range, chunk->numbers, chunk->failure)) {
        return eb_failure_locate(chunk->failure, numbers->source->path);
    }
    for (uint64_t i = 0; i < chunk->count; i++) {
        float number = (float)eb_element_load_float(storage, chunk->numbers + i * stride);
        *(is_bias ? &chunk->scales[i].bias : &chunk->scales[i].scale) = number;
    }
    return true;
}

/* Reads a chunk's rows, and their scales and biases if those are in other tensors. Returns false
 * with *chunk->failure set, including the path. */
static bool read_pack_chunk(struct pack_run *run, struct pack_chunk *chunk)
{
    const struct eb_pack_plan *plan = chunk->packing->plan;
    const struct eb_source_table *table = plan->table;
    uint64_t stride = table->row_stride_bytes * plan->parts;
    struct eb_source_range range = {
        .from = chunk->row * stride + plan->part * table->row_stride_bytes,
        .bytes = (chunk->count - 1) * stride + table->row_stride_bytes,
    };
    pthread_mutex_lock(&run->read_mutex);
    bool is_good = eb_source_file_read(plan->source, table, range, chunk->from, chunk->failure) ||
                   eb_failure_locate(chunk->failure, plan->source->path);
    is_good = is_good && read_packed_numbers(chunk, &plan->scales) &&
              read_packed_numbers(chunk, &plan->biases);
    pthread_mutex_unlock(&run->read_mutex);
    return is_good;
}

static struct eb_row_scale load_packed_scale(enum eb_storage storage, const uint8_t *row)
{
    struct eb_row_scale scale = {0};
    if (eb_storage_is_code(storage)) {
        memcpy(&scale, row, sizeof scale);
    }
    return scale;
}

/* Returns row `i` of the chunk in its table's storage, preceded by its scale. */
static const uint8_t *split_pack_row(struct pack_chunk *chunk, uint64_t i)
{
    const struct eb_pack_plan *plan = chunk->packing->plan;
    const struct eb_source_table *table = plan->table;
    const uint8_t *from = chunk->from + i * table->row_stride_bytes * plan->parts;
    struct eb_row_scale scale = chunk->scales[i];
    uint8_t *codes = chunk->split + table->row_offset_bytes;
    if (!table->is_fused && !table->has_scales) {
        return from;
    }
    if (table->is_fused) {
        eb_fused_row_split(&table->fused, from, codes, &scale);
    } else {
        memcpy(codes, from, table->row_stride_bytes);
    }
    memcpy(chunk->split, &scale, sizeof scale);
    return chunk->split;
}

/* Puts the row's number before an error about fused rows. Always returns false. */
static bool locate_packed_row(struct eb_failure *failure, uint64_t row)
{
    struct eb_failure why = *failure;
    return eb_failure_set(failure, "packed row %" PRIu64 ": %s", row, why.text);
}

/* Checks the scale of row `i` of the chunk if it came with codes. `from` is what split_pack_row
 * returned. Returns false with *chunk->failure set, including the path. */
static bool check_pack_row(struct pack_chunk *chunk, uint64_t i, const uint8_t *from)
{
    const struct packing *packing = chunk->packing;
    const struct eb_source_table *table = packing->plan->table;
    if (!table->is_fused && !table->has_scales) {
        return true;
    }
    struct eb_row_scale scale = load_packed_scale(table->tensor.storage, from);
    if (!eb_table_storage_check_row(&chunk->check, &packing->fused, chunk->row + i,
            from + table->row_offset_bytes, &scale, chunk->failure)) {
        locate_packed_row(chunk->failure, chunk->row + i);
        return locate_packed_scale(packing->plan, &scale, chunk->failure);
    }
    return true;
}

/* Sets chunk->values to the values of a row that split_pack_row returned. */
static void load_exact_values(struct pack_chunk *chunk, const uint8_t *from)
{
    const struct eb_source_table *table = chunk->packing->plan->table;
    struct eb_row_scale scale = load_packed_scale(table->tensor.storage, from);
    eb_dequantize_row(table->tensor.storage, from + table->row_offset_bytes, &scale,
        chunk->packing->elements, chunk->values);
}

static uint8_t *packed_row_at(const struct pack_chunk *chunk, uint64_t i)
{
    return chunk->to + i * chunk->packing->format.row_stride_bytes;
}

/* Sets chunk->stored to the values of row `i` as they will be read back. */
static void load_stored_values(struct pack_chunk *chunk, uint64_t i)
{
    const struct eb_packed_format *format = &chunk->packing->format;
    const uint8_t *row = packed_row_at(chunk, i);
    struct eb_row_scale scale = load_packed_scale(format->tensor.storage, row);
    eb_dequantize_row(format->tensor.storage, row + format->row_offset_bytes, &scale,
        chunk->packing->elements, chunk->stored);
}

/* ---- conversion ---- */

/* Refuses a row with a value that the storage cannot hold. Always returns false. */
static bool refuse_packed_excess(const struct pack_chunk *chunk, uint64_t row, uint32_t value)
{
    return eb_failure_set(chunk->failure,
        "packed row %" PRIu64 ": value %" PRIu32
        " is %g, more than %s can hold; choose another --storage or correct the table",
        row, value, (double)chunk->values[value], eb_storage_name(chunk->packing->plan->storage));
}

/* Refuses row `i`, whose values have been loaded and cannot be converted: one is too large for the
 * storage, or codes need one that is finite or nearer to the others. Always returns false. */
static bool refuse_packed_row(const struct pack_chunk *chunk, uint64_t i)
{
    const struct packing *packing = chunk->packing;
    uint64_t row = chunk->row + i;
    uint32_t elements = packing->elements;
    uint32_t excess = eb_quantize_find_excess(packing->plan->storage, chunk->values, elements);
    if (excess < elements) {
        refuse_packed_excess(chunk, row, excess);
    } else {
        uint32_t value = eb_quantize_find_error(chunk->values, elements);
        assert(value < elements);
        eb_failure_set(chunk->failure,
            "packed row %" PRIu64 ": value %" PRIu32 " is %g, which is not finite or differs from "
            "another value by more than 2^126; use --storage bf16, or correct the table",
            row, value, (double)chunk->values[value]);
    }
    return eb_failure_locate(chunk->failure, packing->plan->source->path);
}

/* Converts all rows of a chunk of values at once. */
static bool convert_value_rows(struct pack_chunk *chunk)
{
    const struct packing *packing = chunk->packing;
    const struct eb_pack_plan *plan = packing->plan;
    struct eb_quantize_job job = {
        .from = plan->table->tensor.storage,
        .to = packing->format.tensor.storage,
        .elements = packing->elements,
        .from_stride_bytes = plan->table->row_stride_bytes * plan->parts,
        .to_stride_bytes = packing->format.row_stride_bytes,
        .to_offset_bytes = packing->format.row_offset_bytes,
        .values = chunk->values,
    };
    uint64_t done = eb_quantize_rows(packing->ops, &job, chunk->from, chunk->count, chunk->to);
    if (done < chunk->count) {
        load_exact_values(chunk, split_pack_row(chunk, done));
        return refuse_packed_row(chunk, done);
    }
    return true;
}

/* Converts row `i`, whose values have been loaded. */
static bool convert_loaded_values(struct pack_chunk *chunk, uint64_t i)
{
    const struct packing *packing = chunk->packing;
    const uint8_t *values = (const uint8_t *)chunk->values;
    struct eb_quantize_job job = {
        .from = EB_STORAGE_F32,
        .to = packing->format.tensor.storage,
        .elements = packing->elements,
        .to_offset_bytes = packing->format.row_offset_bytes,
    };
    return eb_quantize_rows(packing->ops, &job, values, 1, packed_row_at(chunk, i)) == 1 ||
           refuse_packed_row(chunk, i);
}

static bool copy_pack_rows(struct pack_chunk *chunk)
{
    const struct packing *packing = chunk->packing;
    const struct eb_source_table *table = packing->plan->table;
    uint64_t row_bytes =
        table->row_offset_bytes + eb_storage_row_bytes(packing->plan->storage, packing->elements);
    for (uint64_t i = 0; i < chunk->count; i++) {
        const uint8_t *from = split_pack_row(chunk, i);
        if (!check_pack_row(chunk, i, from)) {
            return false;
        }
        memcpy(packed_row_at(chunk, i), from, row_bytes);
    }
    return true;
}

/* Converts the rows, and counts how far their values are off. */
static bool convert_pack_rows(struct pack_chunk *chunk)
{
    bool has_codes = eb_storage_is_code(chunk->packing->plan->table->tensor.storage);
    if (!has_codes && !convert_value_rows(chunk)) {
        return false;
    }
    for (uint64_t i = 0; i < chunk->count; i++) {
        const uint8_t *from = split_pack_row(chunk, i);
        if (!check_pack_row(chunk, i, from)) {
            return false;
        }
        load_exact_values(chunk, from);
        if (has_codes && !convert_loaded_values(chunk, i)) {
            return false;
        }
        load_stored_values(chunk, i);
        eb_pack_deviation_add(&chunk->deviation, chunk->row + i, chunk->packing->elements,
            chunk->values, chunk->stored);
    }
    return true;
}

/* ---- the order of chunks ---- */

/* Adds what a chunk's rows have shown to what is known of those before it. */
static void gather_pack_chunk(struct packing *packing, struct pack_chunk *chunk)
{
    struct eb_pack_error *error = &packing->error;
    uint64_t end = chunk->row + chunk->count;
    uint64_t row;
    eb_table_storage_check_join(&packing->check, &chunk->check);
    eb_pack_deviation_join(&error->values, &chunk->deviation);
    while ((row = eb_pack_error_next_row(error, end)) < end) {
        load_exact_values(chunk, split_pack_row(chunk, row - chunk->row));
        load_stored_values(chunk, row - chunk->row);
        eb_pack_error_add_row(error, row, chunk->values, chunk->stored);
    }
    eb_progress_bar_advance(&packing->bar, chunk->count * packing->plan->table->row_stride_bytes);
}

/* Appends chunk `number` to the file when all before it have been appended. Does nothing if one of
 * those has failed: nobody needs this one then. */
static bool append_pack_chunk(struct pack_run *run, struct pack_chunk *chunk, uint64_t number)
{
    struct packing *packing = run->packing;
    bool is_good = true;
    pthread_mutex_lock(&run->mutex);
    while (run->next < number && run->failed > number) {
        (void)pthread_cond_wait(&run->changed, &run->mutex);
    }
    if (run->next == number) {
        gather_pack_chunk(packing, chunk);
        is_good = eb_packed_writer_append(run->writer, chunk->to,
            chunk->count * packing->format.row_stride_bytes, chunk->failure);
        run->next += is_good;
        (void)pthread_cond_broadcast(&run->changed);
    }
    pthread_mutex_unlock(&run->mutex);
    return is_good;
}

/* Lets the threads that wait for a chunk know that it has failed. */
static void note_failed_chunk(struct pack_run *run, uint64_t number)
{
    pthread_mutex_lock(&run->mutex);
    run->failed = number < run->failed ? number : run->failed;
    (void)pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->mutex);
}

/* Packs chunk `number` of a file. */
static bool run_pack_chunk(
    void *context, struct eb_pool_worker *worker, uint64_t number, struct eb_failure *failure)
{
    struct pack_run *run = context;
    struct pack_chunk *chunk = worker->state;
    const struct packing *packing = run->packing;
    uint64_t done = number * packing->chunk_rows;
    uint64_t left = run->writer->format.tensor.dims[0] - done;
    chunk->row = run->first + done;
    chunk->count = left < packing->chunk_rows ? left : packing->chunk_rows;
    chunk->deviation = (struct eb_pack_deviation){0};
    chunk->check = (struct eb_table_storage_check){.has_scales = packing->plan->table->has_scales};
    chunk->failure = failure;
    bool is_good =
        read_pack_chunk(run, chunk) &&
        (packing->result->is_converted ? convert_pack_rows(chunk) : copy_pack_rows(chunk)) &&
        append_pack_chunk(run, chunk, number);
    if (!is_good) {
        note_failed_chunk(run, number);
    }
    return is_good;
}

/* Packs the rows of a file, from `first` on. */
static bool append_pack_rows(
    struct packing *packing, struct eb_packed_writer *writer, uint64_t first)
{
    uint64_t rows = writer->format.tensor.dims[0];
    struct pack_run run = {
        .packing = packing,
        .writer = writer,
        .first = first,
        .read_mutex = PTHREAD_MUTEX_INITIALIZER,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .failed = UINT64_MAX,
    };
    struct eb_worker_pool pool = {
        .thread_count = packing->plan->thread_count,
        .task_count = rows / packing->chunk_rows + (rows % packing->chunk_rows > 0),
        .open = open_pack_chunk,
        .run = run_pack_chunk,
        .close = close_pack_chunk,
        .context = &run,
    };
    return eb_worker_pool_run(&pool, packing->failure);
}

/* ---- sections and files ---- */

static bool append_section(struct packing *packing, struct eb_packed_writer *writer,
    enum eb_packed_kind kind, const void *bytes)
{
    const uint8_t *from = bytes;
    uint64_t left = writer->format.sections[kind].bytes;
    bool is_good = left == 0 || eb_packed_writer_begin(writer, kind, packing->failure);
    while (is_good && left > 0) {
        uint64_t count = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        is_good = eb_packed_writer_append(writer, from, count, packing->failure);
        eb_progress_bar_advance(&packing->bar, count);
        from += count;
        left -= count;
    }
    return is_good;
}

/* Returns the bytes of keys, and of their index if there is one, in all files. */
static uint64_t count_packed_key_bytes(const struct eb_pack_keys *keys)
{
    return keys ? keys->count * sizeof *keys->keys + keys->index_bytes : 0;
}

/* Fills a file with its rows, from `first` on, and their keys and index. */
static bool fill_file(struct packing *packing, struct eb_packed_writer *writer, uint64_t first)
{
    const struct eb_pack_keys *keys = packing->plan->keys;
    return append_pack_rows(packing, writer, first) &&
           append_section(packing, writer, EB_PACKED_KEYS, keys ? keys->keys + first : NULL) &&
           append_section(packing, writer, EB_PACKED_KEY_INDEX, keys ? keys->index : NULL) &&
           eb_packed_writer_end(writer, packing->failure);
}

/* Packs the rows from `first` to `end` - 1 into one file. These numbers count only rows that are
 * packed. */
static bool pack_file(struct packing *packing, uint32_t number, uint64_t first, uint64_t end)
{
    const struct eb_pack_plan *plan = packing->plan;
    struct eb_packed_writer *writer = &packing->writers[number];
    struct eb_packed_format format = packing->format;
    format.row_first += first;
    format.tensor.dims[0] = end - first;
    if (plan->keys) {
        format.sections[EB_PACKED_KEYS].bytes = (end - first) * sizeof *plan->keys->keys;
        format.sections[EB_PACKED_KEY_INDEX].bytes = plan->keys->index_bytes;
    }
    char *path = eb_pack_table_path(plan->path, number, plan->file_count);
    bool is_good = path ? eb_packed_format_lay_out(&format, packing->failure)
                        : eb_failure_set(packing->failure, "out of memory");
    is_good = is_good ? eb_packed_writer_open(writer, path, &format, packing->failure)
                      : locate_packed_error(packing);
    free(path);
    packing->result->file_bytes += format.file_bytes;
    return is_good && fill_file(packing, writer, first);
}

static bool pack_files(struct packing *packing)
{
    const struct eb_pack_plan *plan = packing->plan;
    uint64_t rows = packing->format.tensor.dims[0];
    uint64_t first = 0;
    for (uint32_t i = 0; i < plan->file_count; i++) {
        uint64_t files_left = plan->file_count - i;
        uint64_t end = first + (rows - first) / files_left;
        if (!pack_file(packing, i, first, end)) {
            return false;
        }
        first = end;
    }
    assert(first == rows);
    return true;
}

/* Writes into all files that they belong to one packing. */
static bool mark_files(struct packing *packing)
{
    uint32_t count = packing->plan->file_count;
    uint64_t identity = packing->format.packing;
    bool is_good = true;
    for (uint32_t i = 0; packing->format.packing == 0 && i < count; i++) {
        identity = eb_packed_format_chain(identity, packing->writers[i].format.digest);
    }
    for (uint32_t i = 0; is_good && i < count; i++) {
        is_good = eb_packed_writer_mark(&packing->writers[i], identity, packing->failure);
    }
    return is_good;
}

static bool check_error(struct packing *packing)
{
    struct eb_pack_result *result = packing->result;
    result->values = packing->error.values;
    result->bags = eb_pack_error_bags(&packing->error);
    result->bag_count = packing->error.bag_count;
    return result->values.max <= packing->plan->error_max ||
           eb_failure_set(packing->failure,
               "packed row %" PRIu64 ": a value is off by %g, more than --max-error %g allows; "
               "choose a more precise --storage",
               result->values.max_row, result->values.max, packing->plan->error_max);
}

/* Runs the checks of scales that need all rows. */
static bool check_packed_scales(const struct packing *packing)
{
    if (eb_table_storage_check_end(&packing->check, &packing->fused, packing->failure)) {
        return true;
    }
    locate_packed_row(packing->failure, packing->check.row);
    return locate_packed_scale(packing->plan, &packing->check.scale, packing->failure);
}

static bool publish_packed(struct packing *packing)
{
    bool is_good = true;
    for (uint32_t i = 0; is_good && i < packing->plan->file_count; i++) {
        is_good = eb_packed_writer_publish(&packing->writers[i], packing->failure);
    }
    return is_good;
}

static bool pack_rows(struct packing *packing)
{
    struct eb_pack_result *result = packing->result;
    const struct eb_source_table *table = packing->plan->table;
    if (!lay_packed_out(packing) || !allow_files(packing) || !take_packed_memory(packing)) {
        return locate_packed_error(packing);
    }
    result->row_count = packing->format.tensor.dims[0];
    result->source_bytes = result->row_count * table->row_stride_bytes;
    result->rows_bytes = packing->format.tensor.data_bytes;
    eb_progress_bar_init(&packing->bar, table->name,
        result->source_bytes + count_packed_key_bytes(packing->plan->keys));
    bool is_good = pack_files(packing);
    eb_progress_bar_end(&packing->bar);
    if (!is_good) {
        return false;
    }
    if (!check_packed_scales(packing)) {
        return false;
    }
    if (!check_error(packing)) {
        return locate_packed_error(packing);
    }
    return mark_files(packing) && publish_packed(packing);
}

bool eb_pack_table(
    const struct eb_pack_plan *plan, struct eb_pack_result *result, struct eb_failure *failure)
{
    assert(plan->file_count > 0 && plan->file_count <= EB_PACK_TABLE_FILES_MAX);
    assert(eb_storage_holds(plan->storage, plan->table->type));
    *result = (struct eb_pack_result){.is_converted = plan->storage != plan->table->tensor.storage};
    struct packing packing = {.plan = plan,
        .ops = eb_bag_ops_find(NULL),
        .result = result,
        .check = {.has_scales = plan->table->has_scales},
        .fused = plan->table->fused,
        .failure = failure};
    if (plan->scales.source) {
        packing.fused.layout = eb_table_storage_scales_layout(plan->scales.table->tensor.storage);
    }
    bool is_good = pack_rows(&packing);
    for (uint32_t i = 0; packing.writers && i < plan->file_count; i++) {
        eb_packed_writer_close(&packing.writers[i]);
    }
    free(packing.writers);
    eb_pack_error_deinit(&packing.error);
    return is_good;
}
