#include <embag_local.h>
#include <err.h>
#include <stdio.h>

static const int64_t rows[] = {0, 2, 3, 4}, offsets[] = {0, 2, 2};
static const struct embag_query query = {.table = "emb_table",
    .reduction = EMBAG_SUM,
    .indices = {rows, 4, 8},
    .offsets = {offsets, 3, 8}};
static const struct embag_request request = {
    .model = "spec", .queries = &query, .query_count = 1, .output_type = EMBAG_F32};

int main(int argument_count, char **arguments)
{
    struct embag_local *local;
    struct embag_local_reader *reader;
    const struct embag_answer *answer;
    struct embag_error error;
    if (argument_count != 2) {
        errx(2, "usage: %s RESIDENT_DIR", arguments[0]);
    }
    if (embag_local_open(arguments[1], &local, &error) != EMBAG_OK ||
        embag_local_reader_open(local, &reader, &error) != EMBAG_OK ||
        embag_local_lookup(reader, &request, &answer, &error) != EMBAG_OK) {
        errx(1, "%s", error.text);
    }
    const struct embag_result *result = &answer->results[0]; /* [3, dim] of F32 */
    const float *bags = result->values;
    for (uint64_t i = 0; i < 3 * result->shape[1]; i++) {
        printf("%g%s", bags[i], (i + 1) % result->shape[1] ? " " : "\n");
    }
    embag_local_reader_close(reader);
    embag_local_close(local);
}
