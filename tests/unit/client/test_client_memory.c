/* The client without memory: each allocation of open, lookup, list and close fails in turn. The
 * linker leads the library's allocations through the wrappers here. */
#include "client/embag.h"

#include "tests/unit/client/fake_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ALLOCATIONS_MAX 10000

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

/* Of this thread alone, so that the server on its own thread is spared. */
static _Thread_local unsigned countdown; /* the allocation that fails, from 1; 0: none */

static bool fails_now(void)
{
    return countdown > 0 && --countdown == 0;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return fails_now() ? NULL : __real_aligned_alloc(alignment, bytes);
}

/* One connection's whole life. Returns the first status that is not EMBAG_OK. */
static enum embag_status use_client(const char *address)
{
    static const int64_t indices[] = {5, 6, 7};
    const struct embag_query query = {.table = "t", .indices = {indices, 3, 8}, .num_bags = 1};
    const struct embag_request request = {.model = "echo", .queries = &query, .query_count = 1};
    const struct embag_options options = {.timeout_us = 10000000};
    struct embag_client *client = NULL;
    struct embag_answer *answer = NULL;
    struct embag_model_list *list = NULL;
    enum embag_status status = embag_open(address, &options, &client, NULL);
    if (status == EMBAG_OK) {
        status = embag_lookup(client, &request, &answer, NULL);
    }
    if (status == EMBAG_OK) {
        status = embag_list_models(client, &list, NULL);
    }
    embag_answer_free(answer);
    embag_model_list_free(list);
    embag_close(client);
    return status;
}

static void reports_every_failing_allocation(void **state)
{
    (void)state;
    struct fake_server server;
    assert_true(fake_server_start(&server, FAKE_SERVER_SPEAKS_GRPC, NULL));
    unsigned n = 0;
    bool failed = true;
    for (; failed && n < ALLOCATIONS_MAX; n++) {
        countdown = n + 1;
        enum embag_status status = use_client(server.address);
        failed = countdown == 0;
        countdown = 0;
        /* A connection that is lost for want of memory may have been opened once more. */
        if (status != EMBAG_OK && status != EMBAG_RESOURCE_EXHAUSTED &&
            status != EMBAG_UNAVAILABLE) {
            fail_msg("allocation %u: %s", n, embag_status_name(status));
        }
        assert_true(failed || status == EMBAG_OK);
    }
    assert_false(failed);
    assert_true(n > 10);
    assert_true(fake_server_stop(&server));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
