#include <embag.h>
#include <err.h>
#include <stdio.h>

static const int64_t rows[] = {0, 2, 3, 4}, offsets[] = {0, 2, 2};
static const struct embag_query query = {.table = "emb_table",
    .reduction = EMBAG_SUM,
    .indices = {rows, 4, 8},
    .offsets = {offsets, 3, 8}};
static const struct embag_request request = {
    .model = "spec", .queries = &query, .query_count = 1, .output_type = EMBAG_F32};

int main(void)
{
    struct embag_client *client;
    struct embag_answer *answer;
    struct embag_error error;
    if (embag_open("127.0.0.1:8600", NULL, &client, &error) != EMBAG_OK ||
        embag_lookup(client, &request, &answer, &error) != EMBAG_OK) {
        errx(1, "%s: %s", embag_status_name(error.status), error.text);
    }
    const struct embag_result *result = &answer->results[0]; /* [3, dim] of F32 */
    const float *bags = result->values;
    for (uint64_t i = 0; i < 3 * result->shape[1]; i++) {
        printf("%g%s", bags[i], (i + 1) % result->shape[1] ? " " : "\n");
    }
    embag_answer_free(answer);
    embag_close(client);
}
