#include <embag.h>
#include <err.h>
#include <stdio.h>

static const int64_t rows[] = {0, 2, 3, 4}, offsets[] = {0, 2, 2};
static const struct embag_query query = {
    .table = "emb_table", .indices = {rows, 4, 8}, .offsets = {offsets, 3, 8}};
static const struct embag_request request = {.model = "spec", .queries = &query, .query_count = 1};

int main(void)
{
    struct embag_client *client;
    struct embag_answer *answer;
    struct embag_error error;
    if (embag_open("127.0.0.1:8600", NULL, &client, &error) != EMBAG_OK ||
        embag_lookup(client, &request, &answer, &error) != EMBAG_OK) {
        errx(1, "%s: %s", embag_status_name(error.status), error.text);
    }
    const float *bags = answer->results[0].values; /* [3, 2] */
    printf("%g %g\n%g %g\n%g %g\n", bags[0], bags[1], bags[2], bags[3], bags[4], bags[5]);
    embag_answer_free(answer);
    embag_close(client);
}
