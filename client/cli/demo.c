#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/load_clock.h"
#include "client/cli/output.h"
#include "client/cli/workload.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "dlrm-v2"
#define LOOKUPS_DEFAULT 10
#define LOOKUPS_MAX 100000
/* Lookups that are printed one by one. */
#define LOOKUPS_SHOWN 5
/* Limits of one sample of the model: its tables, and the indices of all its bags. */
#define TABLES_MAX 26
#define INDICES_MAX 214

/* Most values of one array. The examples are small, so more are an error in the file. */
#define VALUES_MAX 64
#define NAME_WIDTH 32

static const char usage[] =
    "Usage: embag demo --server ADDRESS [--cases FILE | --lookups N]\n"
    "Looks up examples and prints the answers next to the published values, or times lookups and\n"
    "verifies every value.\n"
    "\n" EB_SERVERS_USAGE "  --cases FILE           file with examples for the model spec\n"
    "  --lookups N            number of lookups, each in all 26 tables of model " MODEL "\n"
    "                         (default 10); the first five are printed\n" EB_ACCESS_USAGE
    "Exit status: 0; 1 if a lookup failed or an answer is wrong; 2 for a usage error.\n";

struct options {
    const char *server;
    const char *cases; /* file of cases; NULL to time lookups instead */
    uint64_t lookup_count;
    struct embag_access access;
};

static const struct eb_flag flags[] = {
    {"server", EB_FLAG_TEXT, offsetof(struct options, server), 0, 0, NULL},
    {"cases", EB_FLAG_TEXT, offsetof(struct options, cases), 0, 0, NULL},
    {"lookups", EB_FLAG_NUMBER, offsetof(struct options, lookup_count), 1, LOOKUPS_MAX, NULL},
    EB_ACCESS_FLAGS(struct options),
};

static const struct eb_command command = {"demo", {usage}, flags, sizeof flags / sizeof flags[0]};

/* ---- the specification's examples ---- */

/* An array of numbers, or of equally long arrays of numbers, flattened. */
struct numbers {
    size_t count;
    size_t columns; /* numbers in an inner array; 1 if there are none */
    double values[VALUES_MAX];
};

/* One case, and the arrays that its query points to. */
struct example {
    const char *name;
    struct numbers expected;
    double tolerance_abs;
    double tolerance_rel;
    int64_t indices[VALUES_MAX];
    int64_t bounds[VALUES_MAX];
    float weights[VALUES_MAX];
    struct embag_query query;
};

static bool append_case_number(struct numbers *out, const json_t *value)
{
    if (!json_is_number(value) || out->count == VALUES_MAX) {
        return false;
    }
    out->values[out->count++] = json_number_value(value);
    return true;
}

static bool append_row(struct numbers *out, const json_t *row)
{
    size_t index;
    json_t *value;
    json_array_foreach(row, index, value)
    {
        if (!append_case_number(out, value)) {
            return false;
        }
    }
    return json_array_size(row) == out->columns;
}

static bool read_case_numbers(const json_t *array, struct numbers *out)
{
    out->count = 0;
    out->columns = 1;
    const json_t *first = json_array_get(array, 0);
    if (json_is_array(first)) {
        out->columns = json_array_size(first);
    }
    size_t index;
    json_t *entry;
    json_array_foreach(array, index, entry)
    {
        bool read = json_is_array(entry) ? append_row(out, entry) : append_case_number(out, entry);
        if (!read) {
            return false;
        }
    }
    return json_is_array(array) && out->columns > 0;
}

static struct embag_integers to_integers(const struct numbers *numbers, int64_t *out)
{
    for (size_t i = 0; i < numbers->count; i++) {
        out[i] = (int64_t)numbers->values[i];
    }
    return (struct embag_integers){.data = out, .count = numbers->count, .width = sizeof *out};
}

static bool read_indices(const json_t *json, struct example *out)
{
    struct numbers numbers;
    if (!read_case_numbers(json_object_get(json, "indices"), &numbers)) {
        return false;
    }
    out->query.indices = to_integers(&numbers, out->indices);
    return true;
}

/* Reads the layout. If `indices` is an array of arrays, each inner array is one bag; otherwise
 * there are offsets or segment ids. */
static bool read_layout(const json_t *json, struct example *out)
{
    const json_t *first = json_array_get(json_object_get(json, "indices"), 0);
    if (json_is_array(first)) {
        out->query.indices_per_bag = (uint32_t)json_array_size(first);
        return true;
    }
    const json_t *offsets = json_object_get(json, "offsets");
    const json_t *segment_ids = json_object_get(json, "segment_ids");
    struct numbers numbers;
    if (!read_case_numbers(offsets ? offsets : segment_ids, &numbers)) {
        return false;
    }
    struct embag_integers bounds = to_integers(&numbers, out->bounds);
    if (offsets) {
        out->query.offsets = bounds;
    } else {
        out->query.segment_ids = bounds;
        out->query.num_segments =
            (uint64_t)json_integer_value(json_object_get(json, "num_segments"));
    }
    return true;
}

static bool read_weights(const json_t *json, struct example *out)
{
    const json_t *weights = json_object_get(json, "weights");
    if (!weights || json_is_null(weights)) {
        return true;
    }
    struct numbers numbers;
    if (!read_case_numbers(weights, &numbers)) {
        return false;
    }
    for (size_t i = 0; i < numbers.count; i++) {
        out->weights[i] = (float)numbers.values[i];
    }
    out->query.weights = out->weights;
    out->query.weights_count = numbers.count;
    out->query.weights_type = EMBAG_F32;
    return true;
}

static bool read_reduction(const json_t *json, struct example *out)
{
    const char *name = json_string_value(json_object_get(json, "reduction"));
    if (name && strcmp(name, "mean") == 0) {
        out->query.reduction = EMBAG_MEAN;
    } else if (name && strcmp(name, "sum") == 0) {
        out->query.reduction = EMBAG_SUM;
    } else {
        return false;
    }
    return true;
}

static bool read_example(const json_t *json, struct example *out)
{
    *out = (struct example){.query = {.table = "emb_table"}};
    out->name = json_string_value(json_object_get(json, "name"));
    const json_t *default_index = json_object_get(json, "default_index");
    if (json_is_integer(default_index)) {
        out->query.has_default = true;
        out->query.default_index = json_integer_value(default_index);
    }
    const json_t *tolerance = json_object_get(json, "tolerance");
    out->tolerance_abs = json_number_value(json_object_get(tolerance, "abs"));
    out->tolerance_rel = json_number_value(json_object_get(tolerance, "rel"));
    return out->name && read_case_numbers(json_object_get(json, "expected"), &out->expected) &&
           read_indices(json, out) && read_layout(json, out) && read_weights(json, out) &&
           read_reduction(json, out);
}

static void print_values(const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        printf("%8.4g", values[i]);
    }
}

/* Prints one bag beside its expected values. Returns whether all values are close enough. */
static bool compare_bag(const struct example *example, const double *got, size_t bag)
{
    size_t columns = example->expected.columns;
    const double *expected = example->expected.values + bag * columns;
    bool close = true;
    for (size_t i = 0; i < columns; i++) {
        double bound = example->tolerance_abs + example->tolerance_rel * fabs(expected[i]);
        /* A NaN is never close. */
        close = close && fabs(got[i] - expected[i]) <= bound;
    }
    printf("%-*s", NAME_WIDTH, bag == 0 ? example->name : "");
    print_values(expected, columns);
    printf("   |");
    print_values(got, columns);
    printf("   %s\n", close ? "ok" : "WRONG");
    return close;
}

static bool compare_answer(const struct example *example, const struct embag_result *result)
{
    size_t count = example->expected.count;
    float values[VALUES_MAX];
    if (result->type != EMBAG_F32 || result->values_bytes != count * sizeof *values) {
        fprintf(stderr, "%s: the answer has %zu bytes of values, expected %zu\n", example->name,
            result->values_bytes, count * sizeof *values);
        return false;
    }
    memcpy(values, result->values, result->values_bytes);
    double got[VALUES_MAX];
    for (size_t i = 0; i < count; i++) {
        got[i] = (double)values[i];
    }
    bool equal = true;
    for (size_t bag = 0; bag < count / example->expected.columns; bag++) {
        equal = compare_bag(example, got + bag * example->expected.columns, bag) && equal;
    }
    return equal;
}

static bool ask_example(struct embag_client *client, const struct example *example)
{
    struct embag_request request = {.model = "spec", .queries = &example->query, .query_count = 1};
    struct embag_answer *answer;
    struct embag_error error;
    if (embag_lookup(client, &request, &answer, &error) != EMBAG_OK) {
        fprintf(stderr, "%s: ", example->name);
        (void)eb_output_error(&error);
        return false;
    }
    bool equal = answer->result_count == 1 && compare_answer(example, &answer->results[0]);
    embag_answer_free(answer);
    return equal;
}

static bool run_examples(struct embag_client *client, const json_t *array)
{
    size_t index;
    size_t right = 0;
    json_t *entry;
    json_array_foreach(array, index, entry)
    {
        struct example example;
        if (!read_example(entry, &example)) {
            fprintf(stderr, "case %zu does not have the form that spec_examples.json describes\n",
                index);
        } else if (ask_example(client, &example)) {
            right++;
        }
    }
    printf("%zu of %zu examples as published\n", right, json_array_size(array));
    return right == json_array_size(array);
}

/* Sends every case of the file as a lookup, and prints the expected and the received values bag by
 * bag. The file is a JSON array of cases for the table of model `spec`;
 * tests/conformance/spec_examples.json describes its fields. Returns whether the file could be read
 * and every case was answered within its tolerance. Errors are printed to stderr. */
static bool run_spec_cases(struct embag_client *client, const char *path)
{
    json_error_t error;
    json_t *array = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!array) {
        if (error.line > 0) {
            fprintf(stderr, "%s: line %d: %s\n", path, error.line, error.text);
        } else {
            fprintf(stderr, "%s\n", error.text); /* It names the file. */
        }
        return false;
    }
    if (json_array_size(array) == 0) {
        fprintf(stderr, "%s: expected an array of cases\n", path);
        json_decref(array);
        return false;
    }
    printf("%-*s%-19s|   got\n", NAME_WIDTH, "example, bag by bag", "    published");
    bool right = run_examples(client, array);
    json_decref(array);
    return right;
}

/* ---- timed lookups ---- */

/* One sample of the model: a bag for each table. */
struct sample {
    const struct eb_workload *workload;
    uint64_t rows[TABLES_MAX]; /* numbers of rows of the served tables */
    char names[TABLES_MAX][EB_WORKLOAD_TABLE_NAME_BYTES];
    int64_t indices[INDICES_MAX];
    struct embag_query queries[TABLES_MAX];
    uint64_t random_state;
};

static const int64_t one_bag[] = {0};

/* The 64-bit generator of Numerical Recipes. Only its upper half is random enough. */
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

/* Returns the rows of a table that is served; 0 if it is not. */
static uint64_t find_demo_rows(const struct embag_model_version *version, const char *name)
{
    for (size_t i = 0; version && i < version->table_count; i++) {
        if (strcmp(version->tables[i].name, name) == 0) {
            return version->tables[i].rows;
        }
    }
    return 0;
}

/* Asks the server how large the tables are. Returns false, with an error on stderr, if that fails
 * or a table is missing. */
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
            "the server does not serve all tables of model %s; embag make-model --workload %s "
            "writes them\n",
            MODEL, MODEL);
    }
    embag_model_list_free(list);
    return complete;
}

/* Compares for equality: values are multiples of 1/128, so sums of a few of them are exact. */
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

/* Sends one call for all tables. Returns false if it failed or a value was wrong. */
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
        fprintf(stderr, "out of memory for %u latencies\n", count);
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

/* ---- the command ---- */

static int run_demo(const struct options *options)
{
    if (!options->server) {
        fprintf(stderr, "embag: demo: --server is missing\n");
        return 2;
    }
    struct embag_options settings = {.access = options->access};
    struct embag_client *client;
    struct embag_error error;
    if (embag_open(options->server, &settings, &client, &error) != EMBAG_OK) {
        return eb_output_error(&error);
    }
    uint64_t count = options->lookup_count != 0 ? options->lookup_count : LOOKUPS_DEFAULT;
    bool right = options->cases ? run_spec_cases(client, options->cases)
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
