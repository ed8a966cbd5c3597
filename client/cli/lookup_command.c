#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/load_clock.h"
#include "client/cli/output.h"
#include "kernels/bag.h"
#include "proto/trace_parent.h"
#include "server/formats/part_of.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define US_PER_MS 1000

static const char usage[] =
    "Usage: embag lookup --server ADDRESS --table TABLE --indices LIST [OPTION]...\n"
    "Looks up bags of rows and prints the pooled rows, one line for each bag.\n"
    "\n" EB_SERVERS_USAGE
    "  --model MODEL          model; may be left out if the server has only one\n"
    "  --version N            version of the model (default: the served one)\n"
    "  --label NAME           label of the version, instead of its number\n"
    "  --table TABLE          table or feature of the model\n"
    "  --indices LIST         indices to look up, such as 0,2,3,4\n"
    "Layout of the bags, one of:\n"
    "  --offsets LIST         position at which each bag begins\n"
    "    --include-last-offset  the last offset ends the last bag\n"
    "  --lengths LIST         number of indices in each bag\n"
    "  --indices-per-bag N    every bag has N indices\n"
    "  --segment-ids LIST     bag of each index; --num-segments N is the number of bags\n"
    "  --num-bags N           number of bags, if the above do not determine it\n"
    "Pooling:\n"
    "  --reduction NAME       sum, mean, weighted_mean, sqrtn, max, min or none\n"
    "  --weights LIST         weight of each index, sent in the table's type if that is f64 or an\n"
    "                         integer type, otherwise as f32. The tool first requests the table's\n"
    "                         type from the server\n"
    "  --weights-type TYPE    f32, f64 or an integer type: send weights in this type without\n"
    "                         requesting the table's\n"
    "  --missing NAME         error, skip, zero or unknown_row, for indices that name no row\n"
    "  --default-index N      row that fills empty bags\n"
    "  --output-type TYPE     f32, f16, bf16 or f64 (default: the table's type)\n"
    "To print the rows of each bag (with --reduction none and a layout):\n"
    "  --max-len N            keep the last N rows of a longer bag\n"
    "  --keep-first           keep the first --max-len rows instead\n"
    "  --pad                  fill every bag up to --max-len rows with zeros\n"
    "  --unique               print each row once, then for each bag the numbers of its rows\n"
    "To look into one part of a table in parts:\n"
    "  --part K               ask a part server for its rows of part K, from 0. Indices are then\n"
    "                         row numbers within the part, or keys: of P parts, row R is row R / "
    "P\n"
    "                         of part R modulo P. Not for tables that lie whole in a part\n"
    "Other options:\n"
    "  --timeout-ms N         timeout of the call in milliseconds (default 1000)\n"
    "  --allow-incomplete     let a router leave out the rows of parts that it cannot reach; the\n"
    "                         number of these indices is printed as unreached\n"
    "  --traceparent TEXT     W3C trace context for the server's log, 00-TRACE-SPAN-FLAGS\n"
    "  --json                 print one JSON object; values are one flat list in C order, and\n"
    "                         latency_us is the latency of the call\n" EB_ACCESS_USAGE
    "If the lookup fails, stdout is empty, the error is on stderr and the exit status is 1, also\n"
    "with --json.\n"
    "Exit status: 0; 1 if the server or the network causes an error; 2 for a usage error.\n";

static const char *const reductions[] = {
#define X(name, number, text) [number] = text,
    [0] = "",
    EB_REDUCTION_LIST(X)
#undef X
        NULL};

static const char *const missing_policies[] = {
#define X(name, number, text) [number] = text,
    [0] = "",
    EB_MISSING_LIST(X)
#undef X
        NULL};

struct options {
    const char *server;
    const char *model;
    const char *table;
    const char *weights;
    uint64_t version;
    const char *label;
    const char *traceparent;
    uint64_t indices_per_bag;
    uint64_t num_segments;
    uint64_t num_bags;
    uint64_t timeout_ms;
    struct embag_integers indices;
    struct embag_integers offsets;
    struct embag_integers lengths;
    struct embag_integers segment_ids;
    struct eb_flag_integer default_index;
    int reduction;
    int missing;
    int weights_type;
    int output_type;
    uint64_t max_len;
    bool keep_first;
    bool pad;
    bool unique;
    struct eb_flag_integer part;
    bool include_last_offset;
    bool allow_incomplete;
    bool json;
    struct embag_access access;
};

#define AT(field) offsetof(struct options, field)
static const struct eb_flag flags[] = {
    {"server", EB_FLAG_TEXT, AT(server), 0, 0, NULL},
    {"model", EB_FLAG_TEXT, AT(model), 0, 0, NULL},
    {"version", EB_FLAG_NUMBER, AT(version), 1, UINT64_MAX, NULL},
    {"label", EB_FLAG_TEXT, AT(label), 0, 0, NULL},
    {"table", EB_FLAG_TEXT, AT(table), 0, 0, NULL},
    {"indices", EB_FLAG_INTEGERS, AT(indices), 0, 0, NULL},
    {"offsets", EB_FLAG_INTEGERS, AT(offsets), 0, 0, NULL},
    {"include-last-offset", EB_FLAG_SWITCH, AT(include_last_offset), 0, 0, NULL},
    {"lengths", EB_FLAG_INTEGERS, AT(lengths), 0, 0, NULL},
    {"indices-per-bag", EB_FLAG_NUMBER, AT(indices_per_bag), 0, UINT32_MAX, NULL},
    {"segment-ids", EB_FLAG_INTEGERS, AT(segment_ids), 0, 0, NULL},
    {"num-segments", EB_FLAG_NUMBER, AT(num_segments), 0, UINT64_MAX, NULL},
    {"num-bags", EB_FLAG_NUMBER, AT(num_bags), 0, UINT64_MAX, NULL},
    {"reduction", EB_FLAG_CHOICE, AT(reduction), 0, 0, reductions},
    {"weights", EB_FLAG_TEXT, AT(weights), 0, 0, NULL},
    {"weights-type", EB_FLAG_CHOICE, AT(weights_type), 0, 0, eb_output_types},
    {"missing", EB_FLAG_CHOICE, AT(missing), 0, 0, missing_policies},
    {"default-index", EB_FLAG_INTEGER, AT(default_index), 0, 0, NULL},
    {"output-type", EB_FLAG_CHOICE, AT(output_type), 0, 0, eb_output_types},
    {"max-len", EB_FLAG_NUMBER, AT(max_len), 1, UINT32_MAX, NULL},
    {"keep-first", EB_FLAG_SWITCH, AT(keep_first), 0, 0, NULL},
    {"pad", EB_FLAG_SWITCH, AT(pad), 0, 0, NULL},
    {"unique", EB_FLAG_SWITCH, AT(unique), 0, 0, NULL},
    {"part", EB_FLAG_INTEGER, AT(part), 0, 0, NULL},
    {"allow-incomplete", EB_FLAG_SWITCH, AT(allow_incomplete), 0, 0, NULL},
    {"traceparent", EB_FLAG_TEXT, AT(traceparent), 0, 0, NULL},
    {"timeout-ms", EB_FLAG_NUMBER, AT(timeout_ms), 1, 86400000, NULL},
    {"json", EB_FLAG_SWITCH, AT(json), 0, 0, NULL},
    EB_ACCESS_FLAGS(struct options),
};
#undef AT

static const struct eb_command command = {"lookup", {usage}, flags, sizeof flags / sizeof flags[0]};

static const struct embag_model *find_lookup_model(
    const struct embag_model_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (name ? strcmp(list->models[i].name, name) == 0 : list->count == 1) {
            return &list->models[i];
        }
    }
    return NULL;
}

/* Returns whether this version would answer the request: the request names it, or names no version
 * and this one is being served. */
static bool is_asked(const struct embag_model *model, const struct embag_model_version *version,
    const struct options *options)
{
    if (!options->label) {
        return version->version ==
               (options->version != 0 ? options->version : model->served_version);
    }
    for (size_t i = 0; i < version->label_count; i++) {
        if (strcmp(version->labels[i], options->label) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns the type of the table that is looked up; unspecified if the server does not list it. */
static enum embag_type find_type(const struct embag_model_list *list, const struct options *options)
{
    const struct embag_model *model = find_lookup_model(list, options->model);
    for (size_t v = 0; model && v < model->version_count; v++) {
        const struct embag_model_version *version = &model->versions[v];
        bool is_wanted = is_asked(model, version, options);
        for (size_t t = 0; is_wanted && t < version->table_count; t++) {
            if (strcmp(version->tables[t].name, options->table) == 0) {
                return version->tables[t].type;
            }
        }
    }
    return EMBAG_TYPE_UNSPECIFIED;
}

/* Chooses the type as which --weights are sent. */
static enum embag_status choose_weights_type(struct embag_client *client,
    const struct options *options, enum embag_type *type, struct embag_error *error)
{
    *type = (enum embag_type)options->weights_type;
    if (options->weights_type != 0) {
        return EMBAG_OK;
    }
    struct embag_model_list *list = NULL;
    enum embag_status status = embag_list_models(client, &list, error);
    if (status != EMBAG_OK) {
        return status;
    }
    *type = find_type(list, options);
    if (*type == EMBAG_TYPE_UNSPECIFIED || *type == EMBAG_F16 || *type == EMBAG_BF16) {
        *type = EMBAG_F32; /* If there is no such table, the lookup reports that. */
    }
    embag_model_list_free(list);
    return EMBAG_OK;
}

/* Prints row `row` of a result, whose rows have `count` values. */
static void print_row(const struct embag_result *result, uint64_t row, uint64_t count)
{
    for (uint64_t at = row * count; at < (row + 1) * count; at++) {
        putchar(' ');
        eb_output_value(stdout, result, at, false);
    }
    putchar('\n');
}

/* Prints rows with their numbers, one line for each. */
static void print_rows(const struct embag_result *result)
{
    uint64_t rows = result->rank > 0 ? result->shape[0] : 0;
    uint64_t count = result->values_bytes / embag_type_bytes(result->type);
    for (uint64_t row = 0; row < rows; row++) {
        printf("%6" PRIu64 ":", row);
        print_row(result, row, count / rows);
    }
}

/* Prints the rows of each bag of a sequence lookup, one line for each, after the bag and the row's
 * number in it. Leaves out the padding. */
static void print_sequences(const struct embag_result *result, bool is_padded)
{
    uint64_t row_count = is_padded ? result->shape[0] * result->shape[1] : result->shape[0];
    uint64_t count = result->values_bytes / embag_type_bytes(result->type);
    uint64_t row = 0;
    for (size_t bag = 0; bag < result->lengths_count; bag++) {
        row = is_padded ? bag * result->shape[1] : row;
        for (int32_t i = 0; i < result->lengths[bag]; i++) {
            printf("%6zu.%" PRId32 ":", bag, i);
            print_row(result, row++, count / row_count);
        }
    }
}

/* Prints the numbers of each bag's rows, one line for each bag. */
static void print_inverse(const struct embag_result *result)
{
    const uint32_t *inverse = result->inverse;
    for (size_t bag = 0; bag < result->lengths_count; bag++) {
        printf("bag %zu:", bag);
        for (int32_t i = 0; i < result->lengths[bag]; i++) {
            printf(" %" PRIu32, *inverse++);
        }
        putchar('\n');
    }
}

static void print_lookup_text(
    const struct embag_answer *answer, const struct embag_query *query, double latency_us)
{
    printf("model %s, version %" PRIu64 ", %.3f ms\n", eb_output_printable(answer->model).bytes,
        answer->version, latency_us / US_PER_MS);
    for (size_t i = 0; i < answer->result_count; i++) {
        const struct embag_result *result = &answer->results[i];
        printf("%s: %s ", query->table, eb_output_type(result->type));
        eb_output_shape(stdout, result->shape, result->rank);
        printf(", %" PRIu64 " missing", result->missing);
        if (result->unreached > 0) {
            printf(", %" PRIu64 " unreached", result->unreached);
        }
        putchar('\n');
        if (result->lengths_count == 0 || query->sequence.unique) {
            print_rows(result);
            print_inverse(result);
        } else {
            print_sequences(result, query->sequence.pad);
        }
    }
}

/* Prints the lists of a sequence lookup, if it has any. */
static void print_lists_json(const struct embag_result *result)
{
    for (size_t i = 0; i < result->lengths_count; i++) {
        printf("%s%" PRId32, i > 0 ? ", " : ", \"lengths\": [", result->lengths[i]);
    }
    fputs(result->lengths_count > 0 ? "]" : "", stdout);
    for (size_t i = 0; i < result->inverse_count; i++) {
        printf("%s%" PRIu32, i > 0 ? ", " : ", \"inverse\": [", result->inverse[i]);
    }
    fputs(result->inverse_count > 0 ? "]" : "", stdout);
}

static void print_lookup_json(const struct embag_answer *answer, double latency_us)
{
    printf("{\"model\": ");
    eb_output_json_text(stdout, answer->model);
    printf(", \"version\": %" PRIu64 ", \"results\": [", answer->version);
    for (size_t i = 0; i < answer->result_count; i++) {
        const struct embag_result *result = &answer->results[i];
        uint64_t count = result->values_bytes / embag_type_bytes(result->type);
        printf("%s{\"query\": %" PRIu32 ", \"type\": \"%s\", \"shape\": ", i > 0 ? ", " : "",
            result->query, eb_output_type(result->type));
        eb_output_shape(stdout, result->shape, result->rank);
        printf(", \"missing\": %" PRIu64, result->missing);
        if (result->unreached > 0) {
            printf(", \"unreached\": %" PRIu64, result->unreached);
        }
        print_lists_json(result);
        printf(", \"values\": [");
        for (uint64_t at = 0; at < count; at++) {
            fputs(at > 0 ? ", " : "", stdout);
            eb_output_value(stdout, result, at, true);
        }
        printf("]}");
    }
    printf("], \"latency_us\": %.1f}\n", latency_us);
}

/* Sends the lookup and prints its answer. Returns the exit status. */
static int look_up(
    struct embag_client *client, const struct options *options, const struct embag_query *query)
{
    struct embag_request request = {
        .model = options->model,
        .version = options->version,
        .version_label = options->label,
        .traceparent = options->traceparent,
        .queries = query,
        .query_count = 1,
        .output_type = (enum embag_type)options->output_type,
        .allow_incomplete = options->allow_incomplete,
    };
    struct embag_answer *answer = NULL;
    struct embag_error error;
    double start_us = eb_load_clock_read_us();
    if (embag_lookup(client, &request, &answer, &error) != EMBAG_OK) {
        return eb_output_error(&error);
    }
    double latency_us = eb_load_clock_read_us() - start_us;
    if (options->json) {
        print_lookup_json(answer, latency_us);
    } else {
        print_lookup_text(answer, query, latency_us);
    }
    embag_answer_free(answer);
    return 0;
}

/* Returns the query without weights: reading the weights may require their type from the server. */
static struct embag_query make_query(const struct options *options)
{
    return (struct embag_query){
        .table = options->table,
        .reduction = (enum embag_reduction)options->reduction,
        .missing = (enum embag_missing)options->missing,
        .indices = options->indices,
        .offsets = options->offsets,
        .lengths = options->lengths,
        .segment_ids = options->segment_ids,
        .num_segments = options->num_segments,
        .indices_per_bag = (uint32_t)options->indices_per_bag,
        .num_bags = options->num_bags,
        .include_last_offset = options->include_last_offset,
        .has_default = options->default_index.given,
        .default_index = options->default_index.value,
        .sequence = {(uint32_t)options->max_len, options->keep_first, options->pad,
            options->unique},
        .has_part = options->part.given,
        .part = (uint32_t)options->part.value,
    };
}

static int run_with(struct embag_client *client, const struct options *options)
{
    struct embag_query query = make_query(options);
    struct eb_arguments_values weights = {0};
    struct embag_error error;
    if (options->weights) {
        if (choose_weights_type(client, options, &query.weights_type, &error) != EMBAG_OK) {
            return eb_output_error(&error);
        }
        if (!eb_arguments_read_values("weights", options->weights, query.weights_type, &weights)) {
            return 2;
        }
        query.weights = weights.data;
        query.weights_count = weights.count;
    }
    int status = look_up(client, options, &query);
    free(weights.data);
    return status;
}

/* Returns whether --traceparent is absent or valid. A server would ignore an invalid one. */
static bool check_traceparent(const struct options *options)
{
    const char *text = options->traceparent;
    struct eb_trace_parent unused;
    if (!text || eb_trace_parent_parse(text, strlen(text), &unused)) {
        return true;
    }
    fprintf(stderr,
        "embag: lookup: invalid --traceparent \"%s\": expected 00-TRACE-SPAN-FLAGS with 32, 16 and "
        "2 hexadecimal digits in lower case\n",
        eb_output_printable(text).bytes);
    return false;
}

/* Returns whether --part is absent or may be the number of a part. */
static bool check_part(const struct options *options)
{
    if (options->part.value >= 0 && options->part.value < EB_PARTS_MAX) {
        return true;
    }
    fprintf(stderr, "embag: lookup: invalid --part %" PRId64 ": expected a number from 0 to %u\n",
        options->part.value, EB_PARTS_MAX - 1);
    return false;
}

static int run_lookup_command(const struct options *options)
{
    if (!options->server || !options->table || options->indices.width == 0) {
        fprintf(stderr, "embag: lookup: --%s is missing\n",
            !options->server  ? "server"
            : !options->table ? "table"
                              : "indices");
        return 2;
    }
    if (!check_traceparent(options) || !check_part(options)) {
        return 2;
    }
    struct embag_options settings = {
        .timeout_us = options->timeout_ms * US_PER_MS, .access = options->access};
    struct embag_client *client = NULL;
    struct embag_error error;
    if (embag_open(options->server, &settings, &client, &error) != EMBAG_OK) {
        return eb_output_error(&error);
    }
    int status = run_with(client, options);
    embag_close(client);
    return status;
}

int eb_lookup_command_main(int argument_count, char **arguments)
{
    struct options options = {0};
    int status = 2;
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: status = run_lookup_command(&options); break;
    case EB_ARGUMENTS_HELP: status = 0; break;
    case EB_ARGUMENTS_WRONG: status = 2; break;
    }
    free((void *)options.indices.data);
    free((void *)options.offsets.data);
    free((void *)options.lengths.data);
    free((void *)options.segment_ids.data);
    return status;
}
