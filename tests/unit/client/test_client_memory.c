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

static atomic_uint countdown;     /* the allocation that fails, from 1; 0: none */
static uv_thread_t server_thread; /* is spared */

static bool fails_now(void)
{
    uv_thread_t here = uv_thread_self();
    if (atomic_load(&countdown) == 0 || uv_thread_equal(&here, &server_thread)) {
        return false;
    }
    unsigned left = atomic_load(&countdown);
    while (left > 0 && !atomic_compare_exchange_weak(&countdown, &left, left - 1)) {
    }
    return left == 1;
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
static enum embag_status use_client(const char *address, enum embag_mode mode)
{
    static const int64_t indices[] = {5, 6, 7};
    const struct embag_query query = {.table = "t", .indices = {indices, 3, 8}, .num_bags = 1};
    const struct embag_request request = {.model = "echo", .queries = &query, .query_count = 1};
    const struct embag_options options = {.timeout_us = 10000000, .mode = mode};
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

static void fail_each(enum embag_mode mode)
{
    struct fake_server server;
    assert_true(fake_server_start(&server, FAKE_SERVER_SPEAKS_GRPC, NULL));
    server_thread = server.thread;
    unsigned n = 0;
    bool failed = true;
    for (; failed && n < ALLOCATIONS_MAX; n++) {
        atomic_store(&countdown, n + 1);
        enum embag_status status = use_client(server.address, mode);
        failed = atomic_exchange(&countdown, 0) == 0;
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

static void reports_every_failing_allocation_on_streams(void **state)
{
    (void)state;
    fail_each(EMBAG_MODE_STREAM);
}

static void reports_every_failing_allocation_of_unary_calls(void **state)
{
    (void)state;
    fail_each(EMBAG_MODE_UNARY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_every_failing_allocation_on_streams),
        cmocka_unit_test(reports_every_failing_allocation_of_unary_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
