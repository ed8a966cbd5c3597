#include <embag_async.h>
#include <err.h>
#include <stdio.h>

#define LOOKUPS 4

int main(void)
{
    struct embag_client *client;
    struct embag_error error;
    if (embag_open("127.0.0.1:8600", NULL, &client, &error) != EMBAG_OK) {
        errx(1, "%s: %s", embag_status_name(error.status), error.text);
    }
    for (int64_t row = 0; row < LOOKUPS; row++) {
        const struct embag_query query = {
            .table = "emb_table", .indices = {&row, 1, 8}, .indices_per_bag = 1};
        const struct embag_request request = {
            .model = "spec", .queries = &query, .query_count = 1, .output_type = EMBAG_F32};
        const struct embag_call how = {.context = (void *)(uintptr_t)row};
        if (embag_submit(client, &request, &how, NULL, &error) != EMBAG_OK) {
            errx(1, "%s: %s", embag_status_name(error.status), error.text);
        }
    }
    for (int i = 0; i < LOOKUPS; i++) {
        struct embag_completion done;
        if (!embag_next(client, EMBAG_FOREVER, &done) || !done.answer) {
            errx(1, "%s: %s", embag_status_name(done.error.status), done.error.text);
        }
        const struct embag_result *result = &done.answer->results[0]; /* [1, dim] of F32 */
        printf("row %zu:", (size_t)(uintptr_t)done.context);
        for (uint64_t column = 0; column < result->shape[1]; column++) {
            printf(" %g", ((const float *)result->values)[column]);
        }
        printf("\n");
        embag_answer_free(done.answer);
    }
    embag_close(client);
}
