#include "client/cli/demo.h"

#include "client/cli/access_flags.h"
#include "client/cli/arguments.h"
#include "client/cli/load_clock.h"
#include "client/cli/output.h"
#include "client/cli/spec_cases.h"
#include "client/cli/workload.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "dlrm-v2"
#define LOOKUPS_DEFAULT 10
#define LOOKUPS_MAX 100000
/* Lookups that get a line of their own. */
#define LOOKUPS_SHOWN 5
/* What one sample of the model holds: its tables, and the indices of all their bags. */
#define TABLES_MAX 26
#define INDICES_MAX 214

static const char usage[] =
    "Usage: embag demo --server ADDRESS [--cases FILE | --lookups N]\n"
    "Answers examples beside their published values, or times lookups and verifies each value.\n"
    "\n"
    "  --server ADDRESS       HOST:PORT, [V6]:PORT or unix:PATH\n"
    "  --cases FILE           the examples of FILE, of model spec\n"
    "  --lookups N            N lookups of all 26 tables of model " MODEL "; 10 unless given;\n"
    "                         the first five get a line each\n" EB_ACCESS_USAGE
    "Exit status: 0, 1 where the server or an answer is at fault, 2 for a usage error.\n";

struct options {
    const char *server;
    const char *cases; /* NULL: time lookups */
    uint64_t lookup_count;
    struct embag_access access;
};

static const struct eb_flag flags[] = {
    {"server", EB_FLAG_TEXT, offsetof(struct options, server), 0, 0, NULL},
    {"cases", EB_FLAG_TEXT, offsetof(struct options, cases), 0, 0, NULL},
    {"lookups", EB_FLAG_NUMBER, offsetof(struct options, lookup_count), 1, LOOKUPS_MAX, NULL},
    EB_ACCESS_FLAGS(struct options),
};

static const struct eb_command command = {"demo", usage, flags, sizeof flags / sizeof flags[0]};

/* One sample of the model: a bag for each table. */
struct sample {
    const struct eb_workload *workload;
    uint64_t rows[TABLES_MAX]; /* of the tables as served */
    char names[TABLES_MAX][EB_WORKLOAD_TABLE_NAME_BYTES];
    int64_t indices[INDICES_MAX];
    struct embag_query queries[TABLES_MAX];
    uint64_t random_state;
};

static const int64_t one_bag[] = {0};

/* Numerical Recipes' 64-bit generator; the upper half is what can be used. */
static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 32;
}

static void fill_sample(struct sample *sample)
{
    size_t filled = 0;
    for (uint32_t table = 0; table < sample->workload->table_count; table++) {
        uint32_t count = eb_workload_indices_per_bag(sample->workload, table);
        assert(filled + count <= INDICES_MAX);
        int64_t *indices = sample->indices + filled;
        for (uint32_t i = 0; i < count; i++) {
            indices[i] = (int64_t)(next_random(&sample->random_state) % sample->rows[table]);
        }
        sample->queries[table] = (struct embag_query){
            .table = sample->names[table],
            .reduction = EMBAG_SUM,
            .indices = {indices, count, sizeof *indices},
            .offsets = {one_bag, 1, sizeof *one_bag},
        };
        filled += count;
    }
}

static const struct embag_model_version *find_served(const struct embag_model_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct embag_model *model = &list->models[i];
        for (size_t j = 0; j < model->version_count; j++) {
            if (strcmp(model->name, MODEL) == 0 && model->versions[j].serving) {
                return &model->versions[j];
            }
        }
    }
    return NULL;
}

/* Rows of a table as served; 0 where there are none. */
static uint64_t find_demo_rows(const struct embag_model_version *version, const char *name)
{
    for (size_t i = 0; version && i < version->table_count; i++) {
        if (strcmp(version->tables[i].name, name) == 0) {
            return version->tables[i].rows;
        }
    }
    return 0;
}

/* Asks the server how large the tables are. false: it said why, or lacks one. */
static bool measure_tables(struct embag_client *client, struct sample *sample)
{
    struct embag_model_list *list;
    struct embag_error error;
    if (embag_list_models(client, &list, &error) != EMBAG_OK) {
        (void)eb_output_error(&error);
        return false;
    }
    const struct embag_model_version *version = find_served(list);
    bool complete = true;
    for (uint32_t table = 0; table < sample->workload->table_count; table++) {
        eb_workload_table_name(table, sample->names[table]);
        sample->rows[table] = find_demo_rows(version, sample->names[table]);
        complete = complete && sample->rows[table] > 0;
    }
    if (!complete) {
        fprintf(stderr,
            "the server has no complete model %s; embag make-model --workload %s "
            "writes one\n",
            MODEL, MODEL);
    }
    embag_model_list_free(list);
    return complete;
}

/* Values are multiples of 1/128 and sums of so few are exact, so that equal means equal. */
static bool table_is_right(
    const struct sample *sample, uint32_t table, const struct embag_answer *answer)
{
    const struct embag_result *result = &answer->results[table];
    uint32_t dim = sample->workload->dim;
    if (result->type != EMBAG_F32 || result->values_bytes != dim * sizeof(float)) {
        return false;
    }
    uint64_t seed = eb_workload_seed(sample->names[table], answer->version);
    const struct embag_integers *indices = &sample->queries[table].indices;
    const int64_t *rows = indices->data;
    for (uint32_t column = 0; column < dim; column++) {
        float sum = 0;
        for (size_t i = 0; i < indices->count; i++) {
            sum += eb_workload_value(seed, (uint64_t)rows[i], column);
        }
        if (sum != ((const float *)result->values)[column]) {
            return false;
        }
    }
    return true;
}

static bool answer_is_right(const struct sample *sample, const struct embag_answer *answer)
{
    bool right = answer->result_count == sample->workload->table_count;
    for (uint32_t table = 0; right && table < sample->workload->table_count; table++) {
        right = table_is_right(sample, table, answer);
    }
    return right;
}

/* One call for all tables. false: it failed, or a value was wrong. */
static bool time_lookup(struct embag_client *client, const struct sample *sample, double *us)
{
    struct embag_request request = {
        .model = MODEL, .queries = sample->queries, .query_count = sample->workload->table_count};
    struct embag_answer *answer;
    struct embag_error error;
    double start_us = eb_load_clock_read_us();
    if (embag_lookup(client, &request, &answer, &error) != EMBAG_OK) {
        (void)eb_output_error(&error);
        return false;
    }
    *us = eb_load_clock_read_us() - start_us;
    bool right = answer_is_right(sample, answer);
    embag_answer_free(answer);
    if (!right) {
        fprintf(stderr, "an answer differs from the published values of " MODEL "\n");
    }
    return right;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static bool time_lookups(struct embag_client *client, struct sample *sample, uint32_t count)
{
    double *us = calloc(count, sizeof *us);
    if (!us) {
        fprintf(stderr, "not enough memory for %u latencies\n", count);
        return false;
    }
    bool right = true;
    for (uint32_t i = 0; right && i < count; i++) {
        fill_sample(sample);
        right = time_lookup(client, sample, &us[i]);
        if (right && i < LOOKUPS_SHOWN) {
            printf("lookup %u: %u tables, %d rows, %.0f us, verified\n", i + 1,
                sample->workload->table_count, INDICES_MAX, us[i]);
        }
    }
    if (right) {
        qsort(us, count, sizeof *us, compare_doubles);
        printf("%u lookups of %u tables (%d rows of %u values) in one call each: every value as "
               "published\nlatency: min %.0f us, median %.0f us, max %.0f us\n",
            count, sample->workload->table_count, INDICES_MAX, sample->workload->dim, us[0],
            us[count / 2], us[count - 1]);
    }
    free(us);
    return right;
}

static bool run_lookups(struct embag_client *client, uint32_t count)
{
    struct sample sample = {.workload = eb_workload_find(MODEL), .random_state = 1};
    assert(sample.workload && sample.workload->table_count <= TABLES_MAX);
    return measure_tables(client, &sample) && time_lookups(client, &sample, count);
}

static int run_demo(const struct options *options)
{
    if (!options->server) {
        fprintf(stderr, "embag: demo: --server is missing\n");
        return 2;
    }
    const struct embag_options settings = {.access = options->access};
    struct embag_client *client;
    struct embag_error error;
    if (embag_open(options->server, &settings, &client, &error) != EMBAG_OK) {
        return eb_output_error(&error);
    }
    uint64_t count = options->lookup_count != 0 ? options->lookup_count : LOOKUPS_DEFAULT;
    bool right = options->cases ? eb_spec_cases_run(client, options->cases)
                                : run_lookups(client, (uint32_t)count);
    embag_close(client);
    return right ? 0 : 1;
}

int eb_demo_main(int argument_count, char **arguments)
{
    struct options options = {0};
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return run_demo(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}
