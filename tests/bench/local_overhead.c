/* Measures what a lookup in the calling process costs beyond the kernels' own time:
 *
 *     embag-local-overhead RESIDENT_DIR
 *
 * A server with the tables of dlrm-v2 must have published them there (embag make-model --workload
 * dlrm-v2). A lookup is one sample: 26 queries of one bag, 214 indices. Each round takes the same
 * samples twice: with embag_local_lookup, and with the kernels' three functions alone, on queries
 * that are filled in already. Prints the medians over the rounds, in us of the thread's CPU time.
 */
#include "client/cli/workload.h"
#include "client/embag_local.h"
#include "client/local/local_snapshot.h"
#include "kernels/bag_stream.h"
#include "kernels/bag_tune.h"
#include "proto/splitmix64.h"
#include "tests/bench/cpu_figures.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#define TABLES_MAX 32
#define SAMPLES 256
#define ROUNDS 41
#define REPEATS 8 /* of all samples, in a round */
#define SCRATCH_BYTES ((size_t)1 << 20)

/* One sample, for both ways. */
struct sample {
    struct embag_query queries[TABLES_MAX];
    struct eb_bag_query bags[TABLES_MAX];
};

struct bench {
    const struct eb_workload *workload;
    struct sample *samples; /* [SAMPLES] */
    struct embag_local_reader *reader;
    const struct eb_bag_ops *ops;
    struct eb_bag_schedules schedules;
    uint8_t *scratch; /* [SCRATCH_BYTES] */
};

/* Draws the indices of a sample's query and fills in both forms of it. The names stay allocated. */
static void make_sample_query(const struct bench *bench, const struct eb_local_version *version,
    uint32_t table, uint64_t *seed, struct sample *sample)
{
    uint32_t count = eb_workload_indices_per_bag(bench->workload, table);
    char *name = malloc(EB_WORKLOAD_TABLE_NAME_BYTES);
    int64_t *indices = malloc(count * sizeof *indices);
    if (!name || !indices) {
        errx(1, "out of memory");
    }
    eb_workload_table_name(table, name);
    const struct eb_named_table *named = eb_table_set_find(&version->tables, name);
    if (!named) {
        errx(1, "the model has no table %s", name);
    }
    for (uint32_t i = 0; i < count; i++) {
        indices[i] = (int64_t)(eb_splitmix64_next(seed) % named->table.row_count);
    }
    sample->queries[table] = (struct embag_query){.table = name,
        .reduction = EMBAG_SUM,
        .indices = {indices, count, sizeof *indices},
        .indices_per_bag = count};
    sample->bags[table] = (struct eb_bag_query){.table = &named->table,
        .reduction = EB_REDUCTION_SUM,
        .missing = EB_MISSING_ERROR,
        .layout = EB_LAYOUT_PACKED,
        .indices = {indices, count * sizeof *indices, sizeof *indices},
        .indices_per_bag = count,
        .weights_type = named->table.type};
}

static void look_up_sample(const struct bench *bench, const struct sample *sample)
{
    struct embag_request request = {.model = bench->workload->name,
        .queries = sample->queries,
        .query_count = bench->workload->table_count};
    const struct embag_answer *answer;
    struct embag_error error;
    if (embag_local_lookup(bench->reader, &request, &answer, &error) != EMBAG_OK) {
        errx(1, "%s", error.text);
    }
}

static void pool_sample(const struct bench *bench, const struct sample *sample)
{
    struct eb_bag_job jobs[TABLES_MAX];
    struct eb_bag_extent extent;
    struct eb_bag_error error;
    struct eb_bag_stream stream;
    uint32_t count = bench->workload->table_count;
    uint8_t *room = bench->scratch;
    for (uint32_t i = 0; i < count; i++) {
        jobs[i].scratch = room;
        if (!eb_bag_measure(&sample->bags[i], &extent, &error) ||
            !eb_bag_check(bench->ops, &sample->bags[i], &extent, &jobs[i], &error)) {
            errx(1, "%s", error.text);
        }
        jobs[i].out = room + extent.scratch_bytes;
        jobs[i].out_stride_bytes = extent.result_row_bytes;
        room += extent.scratch_bytes + (extent.result_row_bytes + 63) / 64 * 64;
    }
    struct eb_bag_tile all = {.jobs = jobs,
        .job_count = count,
        .bag_end = jobs[count - 1].bag_count,
        .element_end = UINT32_MAX};
    eb_bag_stream_init(&stream, bench->ops, &bench->schedules);
    eb_bag_stream_pool(&stream, &all, NULL);
}

/* Returns the time of a sample, in us. */
static double time_samples(
    const struct bench *bench, void (*run)(const struct bench *, const struct sample *))
{
    double before = eb_cpu_figures_read_ns();
    for (unsigned repeat = 0; repeat < REPEATS; repeat++) {
        for (unsigned i = 0; i < SAMPLES; i++) {
            run(bench, &bench->samples[i]);
        }
    }
    return (eb_cpu_figures_read_ns() - before) / (1e3 * REPEATS * SAMPLES);
}

static void measure_overhead(const struct bench *bench)
{
    double local[ROUNDS];
    double kernels[ROUNDS];
    double beyond[ROUNDS];
    (void)time_samples(bench, look_up_sample);
    for (unsigned round = 0; round < ROUNDS; round++) {
        local[round] = time_samples(bench, look_up_sample);
        kernels[round] = time_samples(bench, pool_sample);
        beyond[round] = local[round] - kernels[round];
    }
    printf("%s, us of CPU a sample, medians of %d rounds of %d samples\n", bench->workload->name,
        ROUNDS, REPEATS * SAMPLES);
    printf("embag_local_lookup %.2f\nkernels            %.2f\nbeyond             %.2f\n",
        eb_cpu_figures_median(local, ROUNDS), eb_cpu_figures_median(kernels, ROUNDS),
        eb_cpu_figures_median(beyond, ROUNDS));
}

int main(int argument_count, char **arguments)
{
    struct bench bench = {.workload = eb_workload_find("dlrm-v2"), .ops = eb_bag_ops_find(NULL)};
    struct eb_resident_dir dir;
    struct eb_local_snapshot *snapshot;
    struct embag_local *local;
    struct embag_error error;
    struct eb_failure failure;
    const struct eb_local_model *model;
    uint64_t number;
    uint64_t seed = 1;
    if (argument_count != 2) {
        errx(2, "usage: %s RESIDENT_DIR", arguments[0]);
    }
    if (embag_local_open(arguments[1], &local, &error) != EMBAG_OK ||
        embag_local_reader_open(local, &bench.reader, &error) != EMBAG_OK) {
        errx(1, "%s", error.text);
    }
    if (!eb_resident_dir_open_reader(&dir, arguments[1], &failure) ||
        eb_local_snapshot_open(&dir, NULL, &snapshot, &failure) != EB_LOCAL_OPENED) {
        errx(1, "%s", failure.text);
    }
    const struct eb_local_version *version =
        eb_local_snapshot_find(snapshot, bench.workload->name, 0, &model, &number, &error);
    if (!version) {
        errx(1, "%s", error.text);
    }
    eb_bag_tune_find_defaults(&bench.schedules);
    bench.samples = calloc(SAMPLES, sizeof *bench.samples);
    bench.scratch = aligned_alloc(64, SCRATCH_BYTES);
    if (!bench.samples || !bench.scratch || bench.workload->table_count > TABLES_MAX) {
        errx(1, "out of memory");
    }
    for (unsigned i = 0; i < SAMPLES; i++) {
        for (uint32_t table = 0; table < bench.workload->table_count; table++) {
            make_sample_query(&bench, version, table, &seed, &bench.samples[i]);
        }
    }
    measure_overhead(&bench);
    return fflush(stdout) == 0 ? 0 : 1;
}
