/* The client's memory: each allocation of open, lookup, list and close fails in turn; a warm client
 * takes none but for its answers. The linker leads the library's allocations through the wrappers
 * here; those of nghttp2 are its own. */
#include "client/embag_async.h"

#include "tests/lib/test_group.h"
#include "tests/unit/client/fake_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ALLOCATIONS_MAX 10000
#define CALLS 16
#define ROUNDS_MAX 1000

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *block);

static atomic_uint countdown; /* the allocation that fails, from 1; 0: none */
static atomic_uint allocation_count;
static atomic_uint free_count;
static uv_thread_t server_thread; /* is spared, and not counted */

static bool is_server(void)
{
    uv_thread_t here = uv_thread_self();
    return uv_thread_equal(&here, &server_thread) != 0;
}

static void count_allocation(void)
{
    if (!is_server()) {
        atomic_fetch_add(&allocation_count, 1);
    }
}

static bool fails_now(void)
{
    count_allocation();
    if (atomic_load(&countdown) == 0 || is_server()) {
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

void __wrap_free(void *block)
{
    if (block && !is_server()) {
        atomic_fetch_add(&free_count, 1);
    }
    __real_free(block);
}

/* libuv's, which are counted and do not fail: it ends the program where some of them do. */
static void *count_malloc(size_t bytes)
{
    count_allocation();
    return __real_malloc(bytes);
}

static void *count_calloc(size_t count, size_t bytes)
{
    count_allocation();
    return __real_calloc(count, bytes);
}

static void *count_realloc(void *block, size_t bytes)
{
    count_allocation();
    return realloc(block, bytes);
}

/* One connection's whole life. Returns the first status that is not EMBAG_OK. */
static enum embag_status use_client(const char *address, enum embag_mode mode)
{
    static const int64_t indices[] = {5, 6, 7};
    struct embag_query query = {.table = "t", .indices = {indices, 3, 8}, .num_bags = 1};
    struct embag_request request = {.model = "echo", .queries = &query, .query_count = 1};
    struct embag_options options = {.timeout_us = 10000000, .mode = mode};
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

/* Several lookups at once and the ends of their answers. Returns how many allocations there were
 * beyond those that the answers gave back. */
static unsigned count_spare(struct embag_client *client)
{
    static const int64_t indices[] = {5, 6, 7};
    struct embag_query query = {.table = "t", .indices = {indices, 3, 8}, .num_bags = 1};
    struct embag_request request = {.model = "echo", .queries = &query, .query_count = 1};
    struct embag_completion completions[CALLS];
    atomic_store(&allocation_count, 0);
    for (unsigned i = 0; i < CALLS; i++) {
        assert_int_equal(embag_submit(client, &request, NULL, NULL, NULL), EMBAG_OK);
    }
    for (unsigned i = 0; i < CALLS; i++) {
        assert_true(embag_next(client, EMBAG_FOREVER, &completions[i]));
        assert_non_null(completions[i].answer);
    }
    unsigned taken = atomic_load(&allocation_count);
    atomic_store(&free_count, 0);
    for (unsigned i = 0; i < CALLS; i++) {
        embag_answer_free(completions[i].answer);
    }
    assert_in_range(atomic_load(&free_count), CALLS, taken);
    return taken - atomic_load(&free_count);
}

/* How answers are cut on their way is chance: the client is warm once it has seen every way. */
static void warm_up(enum embag_mode mode)
{
    struct embag_options options = {.timeout_us = 10000000, .mode = mode};
    struct fake_server server;
    struct embag_client *client = NULL;
    unsigned rounds = 0;
    assert_true(fake_server_start(&server, FAKE_SERVER_SPEAKS_GRPC, NULL));
    server_thread = server.thread;
    assert_int_equal(embag_open(server.address, &options, &client, NULL), EMBAG_OK);
    while (count_spare(client) > 0) {
        assert_in_range(++rounds, 1, ROUNDS_MAX);
    }
    embag_close(client);
    assert_true(fake_server_stop(&server));
}

static void takes_memory_for_answers_alone_on_streams(void **state)
{
    (void)state;
    warm_up(EMBAG_MODE_STREAM);
}

static void takes_memory_for_answers_alone_in_unary_calls(void **state)
{
    (void)state;
    warm_up(EMBAG_MODE_UNARY);
}

EB_TEST_GROUP(client_memory)
{
    if (uv_replace_allocator(count_malloc, count_realloc, count_calloc, __real_free) != 0) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_every_failing_allocation_on_streams),
        cmocka_unit_test(reports_every_failing_allocation_of_unary_calls),
        cmocka_unit_test(takes_memory_for_answers_alone_on_streams),
        cmocka_unit_test(takes_memory_for_answers_alone_in_unary_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
