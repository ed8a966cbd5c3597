#include "server/tables/row_load.h"

#include "kernels/bag_ops.h"
#include "kernels/quantize.h"
#include "server/contents/piece_reader.h"
#include "server/tables/scale_tensors.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Chunks of a packed file that a worker takes at once. They hold 8 MiB, of which the worker reads
 * at most two blocks of 1 MiB that others read too. */
#define PACKED_TASK_CHUNKS 16u

/* All rows of a run. */
struct row_run {
    struct eb_row_load *loads;
    size_t count;
    const struct eb_bag_ops *ops;
    struct eb_load_meter *meter;
};

/* What one worker has open. */
struct row_worker {
    const struct row_run *run;
    struct eb_row_load *load; /* the table that it works on; NULL before the first */
    size_t piece;             /* the piece of the table that it reads */
    uint64_t piece_first;     /* the first row of that piece */
    struct eb_piece_reader reader;
    bool is_open;
    uint8_t *raw;    /* rows as in the file; NULL if they are read straight to their destination */
    float *values;   /* values of the row that is being converted; NULL if rows are not converted */
    uint8_t *buffer; /* a chunk that is compared; NULL if rows are loaded */
    uint64_t row;    /* row of the whole table with which the rows in `raw` begin */
    struct eb_scale_reader scales;       /* for rows that hold only codes */
    struct eb_table_storage_check check; /* of the rows of this task */
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

/* Sets *failure to say which value keeps the row from being converted. Always returns false. */
static bool refuse_loaded_row(struct row_worker *worker, uint64_t row, const uint8_t *raw)
{
    const struct eb_planned_table *table = worker->load->table;
    const float *values = worker->values;
    uint32_t elements = (uint32_t)eb_tensor_row_elements(&table->tensor);
    eb_dequantize_row(table->tensor.storage, raw, NULL, elements, worker->values);
    uint32_t excess = eb_quantize_find_excess(table->storage, values, elements);
    if (excess < elements) {
        return eb_failure_set(worker->failure,
            "%s: row %" PRIu64 " of table '%.64s': value %" PRIu32
            " is %g, more than %s can hold; choose another storage or correct the table",
            worker->reader.path, row, table->name, excess, (double)values[excess],
            eb_storage_name(table->storage));
    }
    uint32_t column = eb_quantize_find_error(values, elements);
    return eb_failure_set(worker->failure,
        "%s: row %" PRIu64 " of table '%.64s': value %" PRIu32 " is %g; %s codes need finite "
        "values that are at most 2^126 apart",
        worker->reader.path, row, table->name, column,
        column < elements ? (double)values[column] : 0.0, eb_storage_name(table->storage));
}

/* Returns the file to correct if the row's scale and bias are wrong. */
static const char *find_row_path(
    const struct row_worker *worker, uint64_t row, const struct eb_row_scale *scale)
{
    const struct eb_planned_table *table = worker->load->table;
    const struct eb_piece *piece = table->rows.pieces;
    if (table->has_scales) {
        bool is_bias = table->biases.count > 0 && isfinite(scale->scale) && !isfinite(scale->bias);
        piece = is_bias ? table->biases.pieces : table->scales.pieces;
    }
    for (; row >= piece->tensor.dims[0]; piece++) {
        row -= piece->tensor.dims[0];
    }
    return worker->load->plan->scan.files[piece->file].path;
}

/* Adds the file, row and table of a row with a wrong scale or bias to *failure. Always returns
 * false. */
static bool locate_loaded_row(
    const struct row_worker *worker, uint64_t row, const struct eb_row_scale *scale)
{
    struct eb_failure why = *worker->failure;
    return eb_failure_set(worker->failure, "%s: row %" PRIu64 " of table '%.64s': %s",
        find_row_path(worker, row, scale), row, worker->load->table->name, why.text);
}

/* Takes the codes, the scale and the bias of a row that is fused or has its scale in another
 * tensor. Writes them to `to`. */
static bool split_loaded_row(
    struct row_worker *worker, uint64_t row, const uint8_t *raw, uint8_t *to)
{
    const struct eb_planned_table *table = worker->load->table;
    struct eb_row_scale scale;
    uint8_t *codes = to + table->row_offset_bytes;
    if (table->is_fused) {
        eb_fused_row_split(&table->fused, raw, codes, &scale);
    } else {
        scale = worker->scales.rows[row - worker->row];
        memcpy(codes, raw, table->file_row_bytes);
    }
    memcpy(to, &scale, sizeof scale);
    return eb_table_storage_check_row(
               &worker->check, &table->fused, row, codes, &scale, worker->failure) ||
           locate_loaded_row(worker, row, &scale);
}

/* Converts the rows in `raw`. Writes them to `to`. */
static bool convert_loaded_rows(
    struct row_worker *worker, const uint8_t *raw, uint64_t count, uint8_t *to)
{
    const struct eb_planned_table *table = worker->load->table;
    struct eb_quantize_job job = {
        .from = table->tensor.storage,
        .to = table->storage,
        .elements = (uint32_t)eb_tensor_row_elements(&table->tensor),
        .from_stride_bytes = table->file_row_bytes,
        .to_stride_bytes = table->row_stride_bytes,
        .to_offset_bytes = table->row_offset_bytes,
        .values = worker->values,
    };
    uint64_t done = 0;
    if (!table->is_fused && !table->has_scales) {
        done = eb_quantize_rows(worker->run->ops, &job, raw, count, to);
        return done == count ||
               refuse_loaded_row(worker, worker->row + done, raw + done * job.from_stride_bytes);
    }
    while (done < count && split_loaded_row(worker, worker->row + done, raw, to)) {
        raw += job.from_stride_bytes;
        to += job.to_stride_bytes;
        done++;
    }
    return done == count;
}

/* Reads and converts `count` rows from `row` on, which lie in the open piece. Writes them to `to`.
 */
static bool fetch_rows(struct row_worker *worker, uint64_t row, uint64_t count, uint8_t *to)
{
    const struct eb_planned_table *table = worker->load->table;
    const struct eb_piece *piece = &table->rows.pieces[worker->piece];
    uint64_t bytes = count * table->file_row_bytes;
    uint64_t offset =
        piece->tensor.data_offset + (row - worker->piece_first) * table->file_row_bytes;
    uint8_t *raw = worker->raw ? worker->raw : to + count * table->row_stride_bytes - bytes;
    worker->row = row;
    bool is_good =
        eb_piece_reader_read(&worker->reader, offset, raw, bytes, worker->failure) &&
        (!table->has_scales || eb_scale_reader_read(&worker->scales, row, count, worker->failure));
    if (is_good && !worker->raw) {
        spread_rows(to, count, table);
    }
    if (is_good && worker->raw) {
        is_good = convert_loaded_rows(worker, raw, count, to);
    }
    return is_good &&
           eb_load_meter_add(worker->run->meter, worker->reader.path, bytes, worker->failure);
}

/* ---- tables and pieces ---- */

uint64_t eb_row_load_chunk_rows(uint64_t row_stride_bytes)
{
    return row_stride_bytes < EB_ROW_LOAD_CHUNK_BYTES ? EB_ROW_LOAD_CHUNK_BYTES / row_stride_bytes
                                                      : 1;
}

uint64_t eb_row_load_chunk_count(const struct eb_planned_table *table)
{
    uint64_t rows = table->tensor.dims[0];
    uint64_t chunk_rows = eb_row_load_chunk_rows(table->row_stride_bytes);
    return rows / chunk_rows + (rows % chunk_rows > 0);
}

static uint64_t count_task_chunks(const struct eb_planned_table *table)
{
    return table->rows.pieces->packed ? PACKED_TASK_CHUNKS : 1;
}

/* Returns the most rows that are read at once. */
static uint64_t count_at_once(const struct eb_planned_table *table)
{
    uint64_t row_bytes = table->file_row_bytes > table->row_stride_bytes ? table->file_row_bytes
                                                                         : table->row_stride_bytes;
    return eb_row_load_chunk_rows(row_bytes);
}

static void close_piece(struct row_worker *worker)
{
    if (worker->is_open) {
        eb_piece_reader_close(&worker->reader);
        worker->is_open = false;
    }
}

/* Closes and frees what belongs to the worker's table. */
static void close_table(struct row_worker *worker)
{
    close_piece(worker);
    eb_scale_reader_close(&worker->scales);
    free(worker->raw);
    free(worker->values);
    free(worker->buffer);
    worker->raw = NULL;
    worker->values = NULL;
    worker->buffer = NULL;
    worker->load = NULL;
}

/* Allocates the buffers of a conversion, if one is needed. */
static bool prepare_conversion(struct row_worker *worker)
{
    const struct eb_planned_table *table = worker->load->table;
    bool is_packed = table->rows.pieces->packed;
    bool has_codes = table->is_fused || table->has_scales;
    if (is_packed || (!has_codes && table->storage == table->tensor.storage)) {
        return true;
    }
    if (table->has_scales && !eb_scale_reader_open(&worker->scales, worker->load->plan, table,
                                 count_at_once(table), worker->run->meter, worker->failure)) {
        return false;
    }
    worker->raw = malloc(count_at_once(table) * table->file_row_bytes);
    worker->values = calloc(eb_tensor_row_elements(&table->tensor), sizeof *worker->values);
    return (worker->raw && worker->values) || eb_failure_set(worker->failure, "out of memory");
}

/* Makes the worker ready for another table. */
static bool open_table(struct row_worker *worker, struct eb_row_load *load)
{
    const struct eb_planned_table *table = load->table;
    close_table(worker);
    worker->load = load;
    worker->piece = 0;
    worker->piece_first = 0;
    if (!load->rows) {
        /* The buffer is zeroed because the gaps between rows in memory are zeros. */
        worker->buffer =
            calloc(eb_row_load_chunk_rows(table->row_stride_bytes), table->row_stride_bytes);
        if (!worker->buffer) {
            return eb_failure_set(worker->failure, "out of memory");
        }
    }
    return prepare_conversion(worker);
}

/* Opens the piece that holds `row`, which is not before the rows that were read last. */
static bool turn_to_piece(struct row_worker *worker, uint64_t row)
{
    const struct eb_row_load *load = worker->load;
    const struct eb_piece *pieces = load->table->rows.pieces;
    while (row - worker->piece_first >= pieces[worker->piece].tensor.dims[0]) {
        close_piece(worker);
        worker->piece_first += pieces[worker->piece].tensor.dims[0];
        worker->piece++;
    }
    if (!worker->is_open) {
        const struct eb_piece *piece = &pieces[worker->piece];
        worker->is_open =
            eb_piece_reader_open(&worker->reader, &load->plan->scan, piece, worker->failure);
    }
    return worker->is_open;
}

/* ---- chunks and tasks ---- */

/* Returns the bytes of a chunk's rows in memory. */
static uint64_t count_chunk_bytes(const struct eb_planned_table *table, uint64_t chunk)
{
    uint64_t chunk_rows = eb_row_load_chunk_rows(table->row_stride_bytes);
    uint64_t left = table->tensor.dims[0] - chunk * chunk_rows;
    return (left < chunk_rows ? left : chunk_rows) * table->row_stride_bytes;
}

/* Reads and converts the rows of a chunk, which is not before the one that was read last. Writes
 * them to `to`. */
static bool fetch_chunk(struct row_worker *worker, uint64_t chunk, uint8_t *to)
{
    const struct eb_planned_table *table = worker->load->table;
    uint64_t stride = table->row_stride_bytes;
    uint64_t first = chunk * eb_row_load_chunk_rows(stride);
    uint64_t count = count_chunk_bytes(table, chunk) / stride;
    uint64_t at_once = count_at_once(table);
    for (uint64_t done = 0; done < count;) {
        if (!turn_to_piece(worker, first + done)) {
            return false;
        }
        uint64_t there =
            worker->piece_first + table->rows.pieces[worker->piece].tensor.dims[0] - (first + done);
        uint64_t some = count - done < there ? count - done : there;
        some = some < at_once ? some : at_once;
        if (!fetch_rows(worker, first + done, some, to + done * stride)) {
            return false;
        }
        done += some;
    }
    return true;
}

/* Loads a chunk to its destination and hashes it, or compares it with the resident rows. */
static bool load_chunk(struct row_worker *worker, uint64_t chunk)
{
    struct eb_row_load *load = worker->load;
    uint64_t stride = load->table->row_stride_bytes;
    uint64_t offset = (chunk - load->chunk_first) * eb_row_load_chunk_rows(stride) * stride;
    uint64_t bytes = count_chunk_bytes(load->table, chunk);
    uint8_t *to = load->resident ? worker->buffer : load->rows + offset;
    if (!fetch_chunk(worker, chunk, to)) {
        return false;
    }
    load->chunk_hashes[chunk] = XXH3_64bits(to, bytes);
    if (load->resident && memcmp(to, load->resident + offset, bytes) != 0) {
        atomic_store_explicit(&load->is_different, true, memory_order_relaxed);
    }
    return true;
}

/* Adds the check of a task's rows to that of the table. Checks the scales of the table as a whole
 * when its last task is done. */
static bool end_task(struct row_worker *worker)
{
    struct eb_row_load *load = worker->load;
    pthread_mutex_lock(&load->mutex);
    eb_table_storage_check_join(&load->check, &worker->check);
    bool is_last =
        --load->tasks_left == 0 && load->chunk_end == eb_row_load_chunk_count(load->table);
    pthread_mutex_unlock(&load->mutex);
    return !is_last || atomic_load_explicit(&load->is_different, memory_order_relaxed) ||
           eb_table_storage_check_end(&load->check, &load->table->fused, worker->failure) ||
           locate_loaded_row(worker, load->check.row, &load->check.scale);
}

/* Returns the table that a task belongs to. */
static struct eb_row_load *find_load(const struct row_run *run, uint64_t task)
{
    size_t low = 0;
    size_t high = run->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (run->loads[middle].task_first <= task) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &run->loads[low];
}

static bool run_row_task(
    void *context, struct eb_pool_worker *pool, uint64_t task, struct eb_failure *failure)
{
    const struct row_run *run = context;
    struct row_worker *worker = pool->state;
    struct eb_row_load *load = find_load(run, task);
    worker->failure = failure;
    if (atomic_load_explicit(&load->is_different, memory_order_relaxed)) {
        return true; /* The rest need not be compared. */
    }
    if (load != worker->load && !open_table(worker, load)) {
        return false;
    }
    worker->check = (struct eb_table_storage_check){.has_scales = load->table->has_scales};
    uint64_t step = count_task_chunks(load->table);
    uint64_t first = load->chunk_first + (task - load->task_first) * step;
    for (uint64_t i = first; i < first + step && i < load->chunk_end; i++) {
        if (!load_chunk(worker, i)) {
            return false;
        }
    }
    return end_task(worker);
}

static void *open_row_worker(void *context, struct eb_failure *failure)
{
    struct row_worker *worker = calloc(1, sizeof *worker);
    if (worker) {
        worker->run = context;
    } else {
        eb_failure_set(failure, "out of memory");
    }
    return worker;
}

static void close_row_worker(void *state)
{
    close_table(state);
    free(state);
}

bool eb_row_load_hash_chunk(const struct eb_table_plan *plan, const struct eb_planned_table *table,
    uint64_t chunk, struct eb_load_meter *meter, uint64_t *hash, struct eb_failure *failure)
{
    struct eb_row_load load = {.plan = plan, .table = table};
    struct row_run run = {&load, 1, eb_bag_ops_find(NULL), meter};
    struct row_worker *worker = open_row_worker(&run, failure);
    if (!worker) {
        return false;
    }
    worker->failure = failure;
    worker->check = (struct eb_table_storage_check){.has_scales = table->has_scales};
    bool is_good = open_table(worker, &load) && fetch_chunk(worker, chunk, worker->buffer);
    if (is_good) {
        *hash = XXH3_64bits(worker->buffer, count_chunk_bytes(table, chunk));
    }
    close_row_worker(worker);
    return is_good;
}

bool eb_row_load_init(struct eb_row_load *load, const struct eb_table_plan *plan,
    const struct eb_planned_table *table, struct eb_failure *failure)
{
    *load = (struct eb_row_load){.plan = plan, .table = table};
    uint64_t count = eb_row_load_chunk_count(table);
    load->chunk_hashes = calloc(count + 1, sizeof *load->chunk_hashes);
    if (!load->chunk_hashes || pthread_mutex_init(&load->mutex, NULL) != 0) {
        free(load->chunk_hashes);
        return eb_failure_set(failure, "out of memory");
    }
    load->check.has_scales = table->has_scales;
    eb_row_load_limit(load, 0, count);
    return true;
}

void eb_row_load_limit(struct eb_row_load *load, uint64_t first, uint64_t end)
{
    uint64_t step = count_task_chunks(load->table);
    load->chunk_first = first;
    load->chunk_end = end;
    load->task_count = (end - first) / step + ((end - first) % step > 0);
    load->tasks_left = load->task_count;
}

void eb_row_load_deinit(struct eb_row_load *load)
{
    (void)pthread_mutex_destroy(&load->mutex);
    free(load->chunk_hashes);
}

bool eb_row_load_run(struct eb_row_load *loads, size_t count, unsigned thread_count,
    const struct eb_bag_ops *ops, struct eb_load_meter *meter, struct eb_failure *failure)
{
    struct row_run run = {loads, count, ops ? ops : eb_bag_ops_find(NULL), meter};
    struct eb_worker_pool pool = {
        .thread_count = thread_count,
        .meter = meter,
        .open = open_row_worker,
        .run = run_row_task,
        .close = close_row_worker,
        .context = &run,
    };
    for (size_t i = 0; i < count; i++) {
        loads[i].task_first = pool.task_count;
        pool.task_count += loads[i].task_count;
    }
    bool is_good = eb_worker_pool_run(&pool, failure);
    for (size_t i = 0; i < count; i++) {
        loads[i].has_difference = atomic_load(&loads[i].is_different);
    }
    return is_good;
}
