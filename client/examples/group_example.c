#include <embag.h>
#include <err.h>
#include <stdio.h>

/* Two features of two bags each, both of one table here: rows (0) (2 3), then () (4 9). There is no
 * row 9: it is skipped, and the answer reports it. */
static const char *const features[] = {"emb_table", "emb_table"};
static const int64_t rows[] = {0, 2, 3, 4, 9};
static const int32_t lengths[] = {1, 2, 0, 2};
static const struct embag_group group = {.features = features,
    .feature_count = 2,
    .bags = 2,
    .values = {rows, 5, 8},
    .lengths = {lengths, 4, 4},
    .missing = EMBAG_MISSING_SKIP};
static const struct embag_request request = {.model = "spec",
    .groups = &group,
    .group_count = 1,
    .output_type = EMBAG_F32,
    .report_missing = true};

int main(void)
{
    struct embag_client *client;
    struct embag_answer *answer;
    struct embag_error error;
    if (embag_open("127.0.0.1:8600", NULL, &client, &error) != EMBAG_OK ||
        embag_lookup(client, &request, &answer, &error) != EMBAG_OK) {
        errx(1, "%s: %s", embag_status_name(error.status), error.text);
    }
    const struct embag_result *result = &answer->results[0]; /* [2, 2 + 2] of F32 */
    const float *bags = result->values;
    for (uint64_t i = 0; i < 2 * result->shape[1]; i++) {
        printf("%g%s", bags[i], (i + 1) % result->shape[1] ? " " : "\n");
    }
    for (uint64_t i = 0; i < result->missing; i++) {
        printf("no row: values[%u]\n", result->missing_positions[i]);
    }
    embag_answer_free(answer);
    embag_close(client);
}
