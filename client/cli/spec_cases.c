#include "client/cli/spec_cases.h"

#include "client/cli/output.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The examples are small: more values in one array are a mistake in the file. */
#define VALUES_MAX 64
#define NAME_WIDTH 32

/* An array of numbers, or of equally long arrays of numbers, flattened. */
struct numbers {
    size_t count;
    size_t columns; /* numbers in an inner array; 1 where there are none */
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

/* Rows of indices are packed bags; otherwise there are offsets or segment ids. */
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

/* Prints one bag beside what was expected of it; whether all its values are close enough. */
static bool compare_bag(const struct example *example, const double *got, size_t bag)
{
    size_t columns = example->expected.columns;
    const double *expected = example->expected.values + bag * columns;
    bool close = true;
    for (size_t i = 0; i < columns; i++) {
        double bound = example->tolerance_abs + example->tolerance_rel * fabs(expected[i]);
        /* Written so that a NaN is not close to anything. */
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
        fprintf(stderr, "%s: %zu bytes of values came, %zu were expected\n", example->name,
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
            fprintf(stderr, "case %zu is not as spec_examples.json describes one\n", index);
        } else if (ask_example(client, &example)) {
            right++;
        }
    }
    printf("%zu of %zu examples as published\n", right, json_array_size(array));
    return right == json_array_size(array);
}

bool eb_spec_cases_run(struct embag_client *client, const char *path)
{
    json_error_t error;
    json_t *array = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!array) {
        fprintf(stderr, "%s: line %d: %s\n", path, error.line, error.text);
        return false;
    }
    if (json_array_size(array) == 0) {
        fprintf(stderr, "%s: no array of cases\n", path);
        json_decref(array);
        return false;
    }
    printf("%-*s%-19s|   got\n", NAME_WIDTH, "example, bag by bag", "    published");
    bool right = run_examples(client, array);
    json_decref(array);
    return right;
}
