/* Sends the server at the given address every kind of request that the C client has, and prints the
 * answers; test_c_client.py has the expected output. */
#include <embag.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>

static const int64_t rows[] = {0, 2, 7, 3, -1};
static const int64_t offsets[] = {0, 2};
static const int32_t lengths[] = {1, 2, 0, 2};
static const char *const features[] = {"emb_table", "emb_table"};

static const struct embag_query queries[] = {
    {.table = "emb_table", .indices = {rows, 2, 8}, .offsets = {offsets, 2, 8}},
    {.table = "absent", .indices = {rows, 2, 8}, .offsets = {offsets, 2, 8}},
    {.table = "emb_table", .missing = EMBAG_MISSING_ZERO, .indices = {rows, 5, 8}, .num_bags = 1},
    {.table = "emb_table",
        .missing = EMBAG_MISSING_SKIP,
        .indices = {rows, 5, 8},
        .offsets = {NULL, 0, 8}},
    {.table = "emb_table",
        .reduction = EMBAG_NONE,
        .missing = EMBAG_MISSING_SKIP,
        .indices = {rows, 5, 8},
        .num_bags = 1,
        .sequence = {.max_len = 4, .pad = true}},
    {.table = "emb_table",
        .reduction = EMBAG_NONE,
        .missing = EMBAG_MISSING_ZERO,
        .indices = {rows, 5, 8},
        .num_bags = 1,
        .sequence = {.unique = true}},
};
static const struct embag_group groups[] = {
    {.features = features,
        .feature_count = 2,
        .bags = 2,
        .values = {rows, 5, 8},
        .lengths = {lengths, 4, 4},
        .missing = EMBAG_MISSING_SKIP},
    {.features = features,
        .feature_count = 2,
        .bags = 1,
        .values = {rows, 5, 8},
        .lengths = {lengths, 2, 4}},
    {.features = features,
        .feature_count = 2,
        .bags = 2,
        .values = {rows, 5, 8},
        .lengths = {lengths, 4, 4},
        .reduction = EMBAG_NONE,
        .missing = EMBAG_MISSING_SKIP},
};

static void print_result(const struct embag_result *result)
{
    const float *values = result->values;
    printf("%" PRIu32 " %s shape", result->query, embag_status_name(result->status));
    for (uint32_t i = 0; i < result->rank; i++) {
        printf(" %" PRIu64, result->shape[i]);
    }
    printf(" missing %" PRIu64 " by", result->missing);
    for (size_t i = 0; i < result->missing_by_query_count; i++) {
        printf(" %" PRIu64, result->missing_by_query[i]);
    }
    printf(" at");
    for (uint64_t i = 0; result->missing_positions && i < result->missing; i++) {
        printf(" %" PRIu32, result->missing_positions[i]);
    }
    for (size_t i = 0; i < result->lengths_count; i++) {
        printf("%s %" PRId32, i == 0 ? " lengths" : "", result->lengths[i]);
    }
    for (size_t i = 0; i < result->inverse_count; i++) {
        printf("%s %" PRIu32, i == 0 ? " inverse" : "", result->inverse[i]);
    }
    printf(" values");
    for (size_t i = 0; i < result->values_bytes / sizeof *values; i++) {
        printf(" %.1f", values[i]);
    }
    printf(" <%s>\n", result->message);
}

/* Sends one request, some of whose parts are invalid. With errors_per_query only those parts fail,
 * otherwise the whole request does. */
static enum embag_status ask(struct embag_client *client, bool errors_per_query)
{
    struct embag_request request = {.model = "spec",
        .queries = queries,
        .query_count = sizeof queries / sizeof *queries,
        .groups = groups,
        .group_count = sizeof groups / sizeof *groups,
        .priority = EMBAG_BATCH,
        .errors_per_query = errors_per_query,
        .report_missing = true};
    struct embag_answer *answer = NULL;
    struct embag_error error;
    enum embag_status status = embag_lookup(client, &request, &answer, &error);
    if (status != EMBAG_OK) {
        printf("%s: %s\n", embag_status_name(status), error.text);
        return status;
    }
    printf("%s %" PRIu64 " timed %d\n", answer->model, answer->version,
        answer->queue_us < 60000000 && answer->compute_us < 60000000);
    for (size_t i = 0; i < answer->result_count; i++) {
        print_result(&answer->results[i]);
    }
    embag_answer_free(answer);
    return status;
}

int main(int argument_count, char **arguments)
{
    struct embag_client *client = NULL;
    struct embag_error error;
    struct embag_options options = {
        .timeout_us = 20000000, .mode = argument_count > 2 ? EMBAG_MODE_UNARY : EMBAG_MODE_STREAM};
    if (argument_count < 2 || embag_open(arguments[1], &options, &client, &error) != EMBAG_OK) {
        errx(1, "cannot reach the server");
    }
    bool is_good = ask(client, true) == EMBAG_OK && ask(client, false) == EMBAG_NOT_FOUND;
    embag_close(client);
    return is_good ? 0 : 1;
}
