/* Compares lookups in resident files with lookups in anonymous memory:
 *
 *     embag-resident-gather RESIDENT_DIR MODEL
 *
 * A server must have published the model there. Each of the served version's f32 tables is copied
 * to anonymous memory with huge pages. Then the same bags of random rows are pooled from the file
 * and from the copy in turns. Prints the medians over the rounds, in ns of the thread's CPU time a
 * row.
 */
#include "client/embag_local.h"
#include "client/local/local_snapshot.h"
#include "kernels/bag_stream.h"
#include "kernels/bag_tune.h"
#include "proto/splitmix64.h"
#include "tests/bench/cpu_figures.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BAGS 64
#define BAG_ROWS 20
#define CALL_ROWS (BAGS * BAG_ROWS)
#define CALLS 1024 /* in a turn, each with rows of its own */
#define ROUNDS 41
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#define SCRATCH_BYTES ((size_t)1 << 20)

struct bench {
    const struct eb_bag_ops *ops;
    struct eb_bag_schedules schedules;
    int64_t *indices; /* [CALLS * CALL_ROWS] */
    uint8_t *scratch; /* [SCRATCH_BYTES] */
};

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

/* Copies a table's rows to anonymous huge pages, which are never released. */
static struct eb_table copy_table(const struct eb_table *table)
{
    uint64_t bytes = table->row_count * table->row_stride_bytes;
    uint8_t *memory = mmap(NULL, round_up(bytes) + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        err(1, "mmap");
    }
    memory = (uint8_t *)(uintptr_t)round_up((uintptr_t)memory);
    if (madvise(memory, round_up(bytes), MADV_HUGEPAGE) != 0) {
        err(1, "MADV_HUGEPAGE");
    }
    memcpy(memory, table->rows, bytes);
    struct eb_table copy = *table;
    copy.rows = memory;
    return copy;
}

static void pool_call(const struct bench *bench, const struct eb_table *table, unsigned call)
{
    struct eb_bag_query query = {.table = table,
        .reduction = EB_REDUCTION_SUM,
        .missing = EB_MISSING_ERROR,
        .layout = EB_LAYOUT_PACKED,
        .indices = {bench->indices + (size_t)call * CALL_ROWS, CALL_ROWS * sizeof(int64_t),
            sizeof(int64_t)},
        .indices_per_bag = BAG_ROWS,
        .weights_type = table->type};
    struct eb_bag_job job = {.scratch = bench->scratch};
    struct eb_bag_extent extent;
    struct eb_bag_error error;
    struct eb_bag_stream stream;
    if (!eb_bag_measure(&query, &extent, &error) ||
        !eb_bag_check(bench->ops, &query, &extent, &job, &error)) {
        errx(1, "%s", error.text);
    }
    if (extent.scratch_bytes + BAGS * extent.result_row_bytes > SCRATCH_BYTES) {
        errx(1, "rows of %u elements are too long", table->row_elements);
    }
    job.out = bench->scratch + extent.scratch_bytes;
    job.out_stride_bytes = extent.result_row_bytes;
    struct eb_bag_tile all = {
        .jobs = &job, .job_count = 1, .bag_end = BAGS, .element_end = UINT32_MAX};
    eb_bag_stream_init(&stream, bench->ops, &bench->schedules);
    eb_bag_stream_pool(&stream, &all, NULL);
}

/* Returns ns a row. */
static double time_calls(const struct bench *bench, const struct eb_table *table)
{
    double before = eb_cpu_figures_read_ns();
    for (unsigned call = 0; call < CALLS; call++) {
        pool_call(bench, table, call);
    }
    return (eb_cpu_figures_read_ns() - before) / (CALLS * CALL_ROWS);
}

static void compare_table(const struct bench *bench, const char *name, const struct eb_table *table)
{
    struct eb_table copy = copy_table(table);
    double file[ROUNDS];
    double anonymous[ROUNDS];
    double ratio[ROUNDS];
    uint64_t seed = 1;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < CALLS * CALL_ROWS; i++) {
            bench->indices[i] = (int64_t)(eb_splitmix64_next(&seed) % table->row_count);
        }
        bool is_file_first = round % 2 == 0;
        file[round] = is_file_first ? time_calls(bench, table) : 0;
        anonymous[round] = time_calls(bench, &copy);
        file[round] = is_file_first ? file[round] : time_calls(bench, table);
        ratio[round] = anonymous[round] / file[round];
    }
    printf("%-16s %4u %10llu %8.2f %10.2f %8.3f\n", name, table->row_elements,
        (unsigned long long)table->row_count, eb_cpu_figures_median(file, ROUNDS),
        eb_cpu_figures_median(anonymous, ROUNDS), eb_cpu_figures_median(ratio, ROUNDS));
}

int main(int argument_count, char **arguments)
{
    struct bench bench = {.ops = eb_bag_ops_find(NULL)};
    struct eb_resident_dir dir;
    struct eb_local_snapshot *snapshot;
    struct eb_failure failure;
    struct embag_error error;
    const struct eb_local_model *model;
    uint64_t number;
    if (argument_count != 3) {
        errx(2, "usage: %s RESIDENT_DIR MODEL", arguments[0]);
    }
    if (!eb_resident_dir_open_reader(&dir, arguments[1], &failure) ||
        eb_local_snapshot_open(&dir, NULL, &snapshot, &failure) != EB_LOCAL_OPENED) {
        errx(1, "%s", failure.text);
    }
    const struct eb_local_version *version =
        eb_local_snapshot_find(snapshot, arguments[2], 0, &model, &number, &error);
    if (!version) {
        errx(1, "%s", error.text);
    }
    eb_bag_tune_find_defaults(&bench.schedules);
    bench.indices = malloc(CALLS * CALL_ROWS * sizeof *bench.indices);
    bench.scratch = aligned_alloc(64, SCRATCH_BYTES);
    if (!bench.indices || !bench.scratch) {
        errx(1, "out of memory");
    }
    printf("%-16s %4s %10s %8s %10s %8s\n", "table", "dim", "rows", "file", "anonymous", "rate");
    for (size_t i = 0; i < version->tables.count; i++) {
        const struct eb_named_table *named = &version->tables.tables[i];
        if (named->table.storage == EB_STORAGE_F32) {
            compare_table(&bench, named->name, &named->table);
        }
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
