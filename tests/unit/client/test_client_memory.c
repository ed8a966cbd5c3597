/* The client's memory. Each allocation of open, lookup, list and close fails in turn, and a warm
 * client allocates nothing but its answers. The linker sends the library's allocations through the
 * wrappers here (--wrap), but not those of nghttp2. */
#include "client/embag_async.h"

#include "tests/lib/scratch.h"
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
void *__real_realloc(void *block, size_t bytes);
char *__real_strdup(const char *text);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
char *__wrap_strdup(const char *text);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *block);

static atomic_uint countdown; /* number of the allocation that fails, from 1; 0: none */
static atomic_uint allocation_count;
static atomic_uint free_count;
static uv_thread_t server_thread; /* its allocations do not fail, and are not counted */

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

void *__wrap_realloc(void *block, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(block, bytes);
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : __real_strdup(text);
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

/* libuv's allocations are counted but do not fail, because libuv ends the program when certain ones
 * do. */
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
    return __real_realloc(block, bytes);
}

/* Opens a client, uses it and closes it. Returns the first status that is not EMBAG_OK. */
static enum embag_status use_client(const char *address, const struct embag_options *options)
{
    static const int64_t indices[] = {5, 6, 7};
    struct embag_query query = {.table = "t", .indices = {indices, 3, 8}, .num_bags = 1};
    struct embag_request request = {.model = "echo", .queries = &query, .query_count = 1};
    struct embag_client *client = NULL;
    struct embag_answer *answer = NULL;
    struct embag_model_list *list = NULL;
    enum embag_status status = embag_open(address, options, &client, NULL);
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

static void fail_each(enum embag_mode mode, const char *token_file)
{
    struct embag_options options = {
        .timeout_us = 10000000, .mode = mode, .access = {.token_file = token_file}};
    struct fake_server server;
    assert_true(fake_server_start(&server, FAKE_SERVER_SPEAKS_GRPC, NULL));
    server_thread = server.thread;
    unsigned n = 0;
    bool failed = true;
    for (; failed && n < ALLOCATIONS_MAX; n++) {
        atomic_store(&countdown, n + 1);
        enum embag_status status = use_client(server.address, &options);
        failed = atomic_exchange(&countdown, 0) == 0;
        /* A connection that is lost for lack of memory may have been opened again. */
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
    fail_each(EMBAG_MODE_STREAM, NULL);
}

static void reports_every_failing_allocation_of_unary_calls(void **state)
{
    (void)state;
    fail_each(EMBAG_MODE_UNARY, NULL);
}

static void reports_every_failing_allocation_with_a_token_file(void **state)
{
    (void)state;
    struct eb_scratch scratch;
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_init(&scratch);
    eb_scratch_write_text(&scratch, "token", "abc");
    eb_scratch_path(&scratch, "token", path);
    fail_each(EMBAG_MODE_STREAM, path);
    eb_scratch_deinit(&scratch);
}

/* Makes several lookups at once and frees their answers. Returns how many more blocks were
 * allocated than the answers gave back. */
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

/* Makes lookups until they allocate nothing but answers. How answers are split in transit is
 * random, so the client is warm only when it has met every split. */
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
        cmocka_unit_test(reports_every_failing_allocation_with_a_token_file),
        cmocka_unit_test(takes_memory_for_answers_alone_on_streams),
        cmocka_unit_test(takes_memory_for_answers_alone_in_unary_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
