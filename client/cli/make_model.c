#include "client/cli/make_model.h"

#include "client/cli/arguments.h"
#include "client/cli/load_clock.h"
#include "client/cli/progress_bar.h"
#include "client/cli/version_writer.h"
#include "client/cli/workload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (256 * 1024) /* generated, then written while it is still in the cache */
#define BYTES_PER_MIB (1024 * 1024)
#define US_PER_S 1e6
#define SCALE_MAX UINT64_C(1000000000)

static const char usage[] =
    "Usage: embag make-model --workload NAME [--scale N] [--version N] DIR\n"
    "       embag make-model --example spec [--version N] DIR\n"
    "Writes a model into the model repository DIR, as DIR/MODEL/VERSION/TABLE.npy.\n"
    "\n"
    "  --workload NAME        dlrm-v2, rm1, rm2, rm3, tbe, rows, or wide-26, wide-200 or wide-856\n"
    "                         of so many small tables: f32 tables t00, t01, ... whose values are\n"
    "                         a published hash of table, row, column and version\n"
    "  --scale N              divides the number of rows of every table; 1 unless given\n"
    "  --example spec         the 5x2 table emb_table of the specification's examples\n"
    "  --version N            1 unless given; one that is there already is left alone\n"
    "Exit status: 0, 1 where the model cannot be written, 2 for a usage error.\n";

struct options {
    const char *workload;
    const char *example;
    const char *directory;
    uint64_t scale;
    uint64_t version;
};

#define AT(field) offsetof(struct options, field)
static const struct eb_flag flags[] = {
    {"workload", EB_FLAG_TEXT, AT(workload), 0, 0, NULL},
    {"example", EB_FLAG_TEXT, AT(example), 0, 0, NULL},
    {"scale", EB_FLAG_NUMBER, AT(scale), 1, SCALE_MAX, NULL},
    {"version", EB_FLAG_NUMBER, AT(version), 1, INT64_MAX, NULL},
    {"DIR", EB_FLAG_POSITIONAL, AT(directory), 0, 0, NULL},
};
#undef AT

static const struct eb_command command = {
    "make-model", usage, flags, sizeof flags / sizeof flags[0]};

struct workload_plan {
    const struct eb_workload *workload;
    uint64_t scale;
    uint64_t version;
    float *chunk; /* CHUNK_BYTES */
    struct eb_progress_bar progress;
};

static bool write_rows(
    struct eb_version_writer *writer, struct workload_plan *plan, uint64_t seed, uint64_t row_count)
{
    uint32_t dim = plan->workload->dim;
    uint64_t chunk_rows = CHUNK_BYTES / (dim * sizeof(float));
    for (uint64_t first = 0; first < row_count; first += chunk_rows) {
        uint64_t count = row_count - first < chunk_rows ? row_count - first : chunk_rows;
        for (uint64_t row = 0; row < count; row++) {
            eb_workload_fill_row(seed, first + row, plan->chunk + row * dim, dim);
        }
        if (!eb_version_writer_append(writer, plan->chunk, count * dim * sizeof(float))) {
            return false;
        }
        eb_progress_bar_advance(&plan->progress, count * dim * sizeof(float));
    }
    return true;
}

static bool write_made_table(
    struct eb_version_writer *writer, struct workload_plan *plan, uint32_t table)
{
    char name[EB_WORKLOAD_TABLE_NAME_BYTES];
    struct eb_tensor tensor = {.storage = EB_STORAGE_F32, .rank = 2};
    eb_workload_table_name(table, name);
    tensor.dims[0] = eb_workload_rows(plan->workload, table, plan->scale);
    tensor.dims[1] = plan->workload->dim;
    return eb_version_writer_begin_table(writer, name, &tensor) &&
           write_rows(writer, plan, eb_workload_seed(name, plan->version), tensor.dims[0]) &&
           eb_version_writer_end_table(writer);
}

static bool write_made_tables(struct eb_version_writer *writer, void *context)
{
    struct workload_plan *plan = context;
    for (uint32_t table = 0; table < plan->workload->table_count; table++) {
        if (!write_made_table(writer, plan, table)) {
            return false;
        }
    }
    return true;
}

static bool write_example(struct eb_version_writer *writer, void *context)
{
    static const float values[5][2] = {
        {-0.2f, -0.6f}, {-0.1f, -0.4f}, {-1.9f, -1.8f}, {-1.0f, 1.5f}, {0.8f, -0.7f}};
    struct eb_tensor tensor = {.storage = EB_STORAGE_F32, .rank = 2, .dims = {5, 2}};
    (void)context;
    return eb_version_writer_begin_table(writer, "emb_table", &tensor) &&
           eb_version_writer_append(writer, values, sizeof values) &&
           eb_version_writer_end_table(writer);
}

/* Opens the version, lets `write` fill it, and puts it into place. Returns the exit status. */
static int write_made_version(const struct eb_version_plan *plan,
    bool (*write)(struct eb_version_writer *writer, void *context), void *context)
{
    struct eb_version_writer writer;
    double start_us = eb_load_clock_read_us();
    bool written = eb_version_writer_open(&writer, plan) && write(&writer, context) &&
                   eb_version_writer_finish(&writer);
    eb_version_writer_close(&writer);
    if (!written) {
        return 1;
    }
    printf("%s: %.1f MiB in %.2f s\n", writer.final_path, (double)plan->bytes / BYTES_PER_MIB,
        (eb_load_clock_read_us() - start_us) / US_PER_S);
    return 0;
}

static int make_workload(const struct options *options, struct eb_version_plan version)
{
    struct workload_plan plan = {.workload = eb_workload_find(options->workload),
        .scale = options->scale,
        .version = options->version};
    if (!plan.workload) {
        fprintf(stderr, "embag: --workload %s: not one of %s\n", options->workload,
            eb_workload_names());
        return 2;
    }
    for (uint32_t table = 0; table < plan.workload->table_count; table++) {
        version.bytes +=
            eb_workload_rows(plan.workload, table, plan.scale) * plan.workload->dim * sizeof(float);
    }
    version.model = plan.workload->name;
    eb_progress_bar_init(&plan.progress, version.model, version.bytes);
    plan.chunk = malloc(CHUNK_BYTES);
    if (!plan.chunk) {
        fprintf(stderr, "embag: no memory for a buffer\n");
        return 1;
    }
    int status = write_made_version(&version, write_made_tables, &plan);
    free(plan.chunk);
    return status;
}

static int write_made_model(struct options *options)
{
    struct eb_version_plan version = {.directory = options->directory};
    options->scale = options->scale != 0 ? options->scale : 1;
    options->version = options->version != 0 ? options->version : 1;
    version.version = options->version;
    if ((!options->workload) == (!options->example)) {
        fprintf(stderr, "embag: make-model: give --workload or --example\n");
        return 2;
    }
    if (options->workload) {
        return make_workload(options, version);
    }
    if (strcmp(options->example, "spec") != 0) {
        fprintf(stderr, "embag: --example %s: not one of spec\n", options->example);
        return 2;
    }
    version.model = "spec";
    version.bytes = 5 * 2 * sizeof(float);
    return write_made_version(&version, write_example, NULL);
}

int eb_make_model_main(int argument_count, char **arguments)
{
    struct options options = {0};
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return write_made_model(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}
