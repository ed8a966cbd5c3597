#include "server/models/key_load.h"

#include "kernels/key_build.h"
#include "server/models/piece_reader.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define CHUNK_BYTES (UINT64_C(8) << 20)
/* Rows that are assigned between two looks at whether the attempt is over. */
#define SLICE_ROWS (UINT64_C(1) << 20)

/* All who work on one attempt. */
struct crew {
    const struct eb_key_load *load;
    struct eb_key_build *build;
    struct eb_file_fault *fault;
    const char *path;
    atomic_bool is_over; /* someone has failed */
    atomic_uint placed_count;
    uint64_t reported_bytes; /* of the index, by the thread that loads */
};

struct worker {
    struct crew *crew;
    struct eb_key_range partitions;
    void *scratch;
    enum eb_key_outcome outcome;
    struct eb_key_pair pair;
    bool is_loader; /* it runs on the thread that loads, which reports */
    bool has_thread;
    pthread_t thread;
};

/* Where a piece has its keys. */
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
    const struct eb_packed_section *section, uint8_t *to, struct eb_file_fault *fault)
{
    struct eb_piece_reader reader;
    if (!eb_piece_reader_open(&reader, &load->plan->scan, piece, fault)) {
        return false;
    }
    bool is_good = true;
    uint64_t count = 0;
    for (uint64_t done = 0; is_good && done < section->bytes; done += count) {
        uint64_t left = section->bytes - done;
        count = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        is_good = eb_piece_reader_read(&reader, section->offset + done, to + done, count, fault) &&
                  eb_load_meter_add(load->meter, reader.path, count, fault);
    }
    eb_piece_reader_close(&reader);
    return is_good;
}

static bool read_keys(const struct eb_key_load *load, uint8_t *keys, struct eb_file_fault *fault)
{
    const struct eb_piece_range *range = find_pieces(load->table);
    for (size_t i = 0; i < range->count; i++) {
        struct eb_packed_section section = find_keys(&range->pieces[i]);
        if (!read_section(load, &range->pieces[i], &section, keys, fault)) {
            return false;
        }
        eb_table_digest_update(load->digest, keys, section.bytes);
        keys += section.bytes;
    }
    return true;
}

/* ---- the crew ---- */

/* Tells how far all are. false: the load is given up. */
static bool report(struct crew *crew)
{
    uint64_t partitions = crew->build->plan.partition_count;
    uint64_t placed = atomic_load_explicit(&crew->placed_count, memory_order_relaxed);
    uint64_t bytes = crew->build->plan.index_bytes * placed / partitions;
    uint64_t more = bytes > crew->reported_bytes ? bytes - crew->reported_bytes : 0;
    crew->reported_bytes += more;
    return eb_load_meter_add(crew->load->meter, crew->path, more, crew->fault);
}

static enum eb_key_outcome assign(struct worker *worker)
{
    struct crew *crew = worker->crew;
    uint64_t row_count = crew->build->plan.row_count;
    enum eb_key_outcome outcome = EB_KEY_OK;
    for (uint64_t row = 0; row < row_count && outcome == EB_KEY_OK && !crew->is_over;
         row += SLICE_ROWS) {
        uint64_t left = row_count - row;
        const struct eb_key_range rows = {row, row + (left < SLICE_ROWS ? left : SLICE_ROWS)};
        outcome = eb_key_build_assign(crew->build, rows, worker->partitions, &worker->pair);
    }
    return outcome;
}

static enum eb_key_outcome place(struct worker *worker)
{
    struct crew *crew = worker->crew;
    enum eb_key_outcome outcome = EB_KEY_OK;
    for (uint64_t i = worker->partitions.first;
         i < worker->partitions.end && outcome == EB_KEY_OK && !crew->is_over; i++) {
        outcome = eb_key_build_place(crew->build, (uint32_t)i, worker->scratch, &worker->pair);
        crew->placed_count++;
        if (worker->is_loader && !report(crew)) {
            crew->is_over = true;
        }
    }
    return outcome;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    worker->outcome = assign(worker);
    if (worker->outcome == EB_KEY_OK) {
        worker->outcome = place(worker);
    }
    if (worker->outcome != EB_KEY_OK) {
        worker->crew->is_over = true;
    }
    return NULL;
}

/* As many as may run at once, each with a partition at least. */
static uint32_t count_workers(uint32_t partition_count)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    uint32_t workers = count < EB_KEY_LOAD_THREADS_MAX ? (uint32_t)count : EB_KEY_LOAD_THREADS_MAX;
    return workers < partition_count ? workers : partition_count;
}

/* Each has its part of the partitions; the first works on this thread. */
static void run_workers(struct worker *workers, uint32_t worker_count)
{
    for (uint32_t i = 1; i < worker_count; i++) {
        workers[i].has_thread = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    }
    work(&workers[0]);
    for (uint32_t i = 1; i < worker_count; i++) {
        if (workers[i].has_thread) {
            pthread_join(workers[i].thread, NULL);
        } else {
            work(&workers[i]);
        }
    }
}

/* Who has the worst news. */
static const struct worker *find_outcome(const struct worker *workers, uint32_t worker_count)
{
    const struct worker *worst = workers;
    for (uint32_t i = 1; i < worker_count; i++) {
        worst = workers[i].outcome > worst->outcome ? &workers[i] : worst;
    }
    return worst;
}

static bool prepare_workers(struct worker *workers, uint32_t worker_count, struct crew *crew)
{
    uint64_t partitions = crew->build->plan.partition_count;
    for (uint32_t i = 0; i < worker_count; i++) {
        workers[i] = (struct worker){
            .crew = crew,
            .partitions = {partitions * i / worker_count, partitions * (i + 1) / worker_count},
            .scratch = malloc(crew->build->plan.scratch_bytes),
            .is_loader = i == 0,
        };
        if (!workers[i].scratch) {
            return eb_file_fault_set(crew->fault, "%s: out of memory", crew->path);
        }
    }
    return true;
}

/* ---- the index ---- */

/* Always false. */
static bool refuse_pair(const struct crew *crew, const struct eb_key_pair *pair)
{
    const struct eb_key_load *load = crew->load;
    const struct eb_piece_range *range = find_pieces(load->table);
    size_t at = 0;
    uint64_t rows = range->pieces[0].tensor.dims[0];
    while (rows <= pair->second_row && at + 1 < range->count) {
        rows += range->pieces[++at].tensor.dims[0];
    }
    return eb_file_fault_set(crew->fault,
        "%s: rows %" PRIu32 " and %" PRIu32 " of table '%.64s' have the same key, %" PRId64
        "; every row needs its own",
        load->plan->scan.files[range->pieces[at].file].path, pair->first_row, pair->second_row,
        load->table->name, pair->key);
}

static bool run_attempts(struct crew *crew, struct worker *workers, uint32_t worker_count)
{
    for (uint32_t attempt = 0; attempt < EB_KEY_ATTEMPTS_MAX; attempt++) {
        crew->is_over = false;
        crew->placed_count = 0;
        eb_key_build_begin(crew->build, attempt);
        run_workers(workers, worker_count);
        const struct worker *worst = find_outcome(workers, worker_count);
        if (worst->outcome == EB_KEY_DUPLICATE) {
            return refuse_pair(crew, &worst->pair);
        }
        if (worst->outcome == EB_KEY_OK) {
            return !crew->is_over && report(crew);
        }
    }
    return eb_file_fault_set(crew->fault,
        "%s: no index could be made of these keys in %d attempts; they were made to fail",
        crew->path, EB_KEY_ATTEMPTS_MAX);
}

static bool build_index(
    const struct eb_key_load *load, struct eb_key_build *build, struct eb_file_fault *fault)
{
    struct crew crew = {
        .load = load,
        .build = build,
        .fault = fault,
        .path = load->plan->scan.files[find_pieces(load->table)->pieces[0].file].path,
    };
    struct worker workers[EB_KEY_LOAD_THREADS_MAX] = {{0}};
    uint32_t worker_count = count_workers(build->plan.partition_count);
    bool is_good =
        prepare_workers(workers, worker_count, &crew) && run_attempts(&crew, workers, worker_count);
    for (uint32_t i = 0; i < worker_count; i++) {
        free(workers[i].scratch);
    }
    return is_good;
}

static bool make_index(const struct eb_key_load *load, struct eb_file_fault *fault)
{
    struct eb_key_build build = {.index = load->bytes};
    bool is_planned = eb_key_build_plan(load->table->tensor.dims[0], &build.plan);
    uint8_t *keys = is_planned ? malloc(build.plan.row_count * sizeof(int64_t) + 1) : NULL;
    build.keys = keys;
    build.counts = is_planned ? calloc(build.plan.partition_count, sizeof *build.counts) : NULL;
    bool is_good = (keys && build.counts) || eb_file_fault_set(fault, "out of memory");
    is_good = is_good && read_keys(load, keys, fault) && build_index(load, &build, fault);
    free(keys);
    free(build.counts);
    return is_good;
}

bool eb_key_load(
    const struct eb_key_load *load, struct eb_key_index *index, struct eb_file_fault *fault)
{
    const struct eb_planned_table *table = load->table;
    const struct eb_piece *piece = find_pieces(table)->pieces;
    bool is_good = table->has_index
                       ? read_section(load, piece, &piece->packed->sections[EB_PACKED_KEY_INDEX],
                             load->bytes, fault)
                       : make_index(load, fault);
    const char *reason;
    if (!is_good) {
        return false;
    }
    return eb_key_index_open(
               index, load->bytes, table->index_bytes, table->tensor.dims[0], &reason) ||
           eb_file_fault_set(fault, "%s: its index of keys is of no use: %s; pack the table again",
               load->plan->scan.files[piece->file].path, reason);
}

/* Tells the digest of a piece's keys, `buffer` by `buffer`. */
static bool digest_piece(const struct eb_key_load *load, const struct eb_piece *piece,
    uint8_t *buffer, struct eb_file_fault *fault)
{
    const struct eb_packed_section keys = find_keys(piece);
    for (uint64_t done = 0; done < keys.bytes; done += CHUNK_BYTES) {
        uint64_t left = keys.bytes - done;
        const struct eb_packed_section part = {
            keys.offset + done, left < CHUNK_BYTES ? left : CHUNK_BYTES};
        if (!read_section(load, piece, &part, buffer, fault)) {
            return false;
        }
        eb_table_digest_update(load->digest, buffer, part.bytes);
    }
    return true;
}

bool eb_key_load_digest(const struct eb_key_load *load, struct eb_file_fault *fault)
{
    const struct eb_piece_range *range = find_pieces(load->table);
    uint8_t *buffer = malloc(CHUNK_BYTES);
    bool is_good = buffer || eb_file_fault_set(fault, "out of memory");
    for (size_t i = 0; i < range->count && is_good; i++) {
        is_good = digest_piece(load, &range->pieces[i], buffer, fault);
    }
    free(buffer);
    return is_good;
}
