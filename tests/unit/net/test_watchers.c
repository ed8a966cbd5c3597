#include "server/net/watchers.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/net/loop_host.h"
#include "tests/unit/net/wire_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define PAIRS 400 /* enough for a loop's table to grow several times */
#define SERVED 100
#define FAILURES_IN_A_ROW 30
#define TRIALS 10
#define SOCKETS_MAX 1000
#define TIMEOUT_MS 10000

/* Whether all allocations of libuv fail, and how many more allocations fail, libuv's or this
 * project's. */
static atomic_bool libuv_has_no_memory;
static atomic_uint failures_left;
/* Whether failures spare this thread. The tests' thread has a client, which must not fail while
 * servers run. */
static _Thread_local bool is_spared;

static bool takes_failure(void)
{
    unsigned left = is_spared ? 0 : atomic_load(&failures_left);
    while (left > 0 && !atomic_compare_exchange_weak(&failures_left, &left, left - 1)) {
    }
    return left > 0;
}

static bool libuv_fails(void)
{
    return (!is_spared && atomic_load(&libuv_has_no_memory)) || takes_failure();
}

static void *malloc_or_fail(size_t bytes)
{
    return takes_failure() ? NULL : __real_malloc(bytes);
}

static void *calloc_or_fail(size_t count, size_t bytes)
{
    return takes_failure() ? NULL : __real_calloc(count, bytes);
}

static void *realloc_or_fail(void *memory, size_t bytes)
{
    return takes_failure() ? NULL : __real_realloc(memory, bytes);
}

static int let_memory_fail(void **state)
{
    (void)state;
    eb_faults.malloc = malloc_or_fail;
    eb_faults.calloc = calloc_or_fail;
    eb_faults.realloc = realloc_or_fail;
    return 0;
}

static void *malloc_of_libuv(size_t bytes)
{
    return libuv_fails() ? NULL : __real_malloc(bytes);
}

static void *calloc_of_libuv(size_t count, size_t bytes)
{
    return libuv_fails() ? NULL : __real_calloc(count, bytes);
}

static void *realloc_of_libuv(void *memory, size_t bytes)
{
    return libuv_fails() ? NULL : __real_realloc(memory, bytes);
}

/* Restores memory whatever has failed, because later tests need it. */
static int restore_memory(void **state)
{
    (void)state;
    atomic_store(&libuv_has_no_memory, false);
    atomic_store(&failures_left, 0);
    is_spared = false;
    return 0;
}

static int restore_memory_and_tear_down(void **state)
{
    return restore_memory(state) + loop_host_tear_down(state);
}

/* ---- a bare libuv loop ---- */

struct pair {
    uv_pipe_t pipe;
    int peer;
    bool has_read;
};

static void on_allocate(uv_handle_t *handle, size_t asked, uv_buf_t *buffer)
{
    static char bytes[16];
    (void)handle;
    (void)asked;
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    (void)buffer;
    ((struct pair *)stream->data)->has_read = count == 1;
}

static void open_pair(uv_loop_t *uv, struct pair *pair)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    pair->peer = ends[1];
    pair->pipe.data = pair;
    assert_int_equal(uv_pipe_init(uv, &pair->pipe, 0), 0);
    assert_int_equal(uv_pipe_open(&pair->pipe, ends[0]), 0);
    assert_int_equal(uv_read_start((uv_stream_t *)&pair->pipe, on_allocate, on_read), 0);
}

/* Watches pairs while libuv gets no memory, then closes the loop. */
static void watch_pairs_without_memory(uv_loop_t *loop)
{
    static struct pair pairs[PAIRS];
    memset(pairs, 0, sizeof pairs);
    atomic_store(&libuv_has_no_memory, true);
    for (size_t i = 0; i < PAIRS; i++) {
        open_pair(loop, &pairs[i]);
        assert_int_equal(write(pairs[i].peer, "x", 1), 1);
    }
    bool is_all_read = false;
    while (!is_all_read) {
        uv_run(loop, UV_RUN_ONCE);
        is_all_read = true;
        for (size_t i = 0; i < PAIRS; i++) {
            is_all_read = is_all_read && pairs[i].has_read;
        }
    }
    atomic_store(&libuv_has_no_memory, false);
    for (size_t i = 0; i < PAIRS; i++) {
        uv_close((uv_handle_t *)&pairs[i].pipe, NULL);
        close(pairs[i].peer);
    }
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

static void watches_as_many_as_were_reserved_without_memory(void **state)
{
    uv_loop_t uv;
    (void)state;
    assert_int_equal(uv_loop_init(&uv), 0);
    assert_int_equal(eb_watchers_reserve(&uv, 2 * PAIRS), 0);
    watch_pairs_without_memory(&uv);
}

static void on_passed(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
}

/* The loop has a handle and runs when room is made for more. */
static void watches_as_many_as_it_was_extended_for_without_memory(void **state)
{
    uv_loop_t uv;
    uv_timer_t timer;
    (void)state;
    assert_int_equal(uv_loop_init(&uv), 0);
    assert_int_equal(eb_watchers_reserve(&uv, 1), 0);
    uv_timer_init(&uv, &timer);
    uv_timer_start(&timer, on_passed, 1, 0);
    assert_int_equal(eb_watchers_extend(&uv, 2 * PAIRS), 0);
    watch_pairs_without_memory(&uv);
}

static void reports_that_there_is_no_memory_to_extend(void **state)
{
    uv_loop_t uv;
    (void)state;
    assert_int_equal(uv_loop_init(&uv), 0);
    atomic_store(&failures_left, 1);
    assert_int_equal(eb_watchers_extend(&uv, PAIRS), UV_ENOMEM);
    assert_int_equal(uv_loop_close(&uv), 0);
}

static void reports_that_there_is_no_memory(void **state)
{
    (void)state;
    uv_loop_t uv;
    assert_int_equal(uv_loop_init(&uv), 0);
    atomic_store(&failures_left, 1);
    assert_int_equal(eb_watchers_reserve(&uv, PAIRS), UV_ENOMEM);
    assert_int_equal(uv_loop_close(&uv), 0);
}

/* ---- with a limit of open files that each test sets ---- */

static int keep_file_limit(void **state)
{
    static struct rlimit before;
    *state = &before;
    return getrlimit(RLIMIT_NOFILE, &before);
}

/* Restores the limit whatever has failed, because later tests need descriptors. */
static int restore_file_limit(void **state)
{
    const struct rlimit *before = *state;
    return setrlimit(RLIMIT_NOFILE, before);
}

static void lower_file_limit(const struct rlimit *before, rlim_t count)
{
    struct rlimit lower = {count, before->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &lower), 0);
}

/* There can be no descriptors beyond the limit. */
static void reserves_no_more_than_there_may_be_descriptors(void **state)
{
    uv_loop_t uv;
    lower_file_limit(*state, 64);
    assert_int_equal(uv_loop_init(&uv), 0);
    int highest = dup2(STDERR_FILENO, 63); /* the descriptor is already taken */
    assert_int_equal(highest, 63);
    assert_int_equal(eb_watchers_reserve(&uv, 1000000), 0);
    close(highest);
    assert_int_equal(uv_loop_close(&uv), 0);
}

static void reports_that_no_descriptor_is_left(void **state)
{
    uv_loop_t uv;
    assert_int_equal(uv_loop_init(&uv), 0);
    lower_file_limit(*state, 0);
    assert_int_equal(eb_watchers_reserve(&uv, PAIRS), UV_EMFILE);
    assert_int_equal(uv_loop_close(&uv), 0);
}

/* ---- loops that serve ---- */

static void serves_connections_that_come_while_libuv_has_no_memory(void **state)
{
    struct loop_host *host = *state;
    struct wire_peer peers[SERVED];
    struct eb_address address;
    loop_host_serve(host, &address);
    is_spared = true;
    atomic_store(&libuv_has_no_memory, true);
    for (size_t i = 0; i < SERVED; i++) {
        wire_peer_open(&peers[i], &address);
        assert_true(wire_peer_echo(&peers[i], 10));
    }
    for (size_t i = 0; i < SERVED; i++) {
        wire_peer_close(&peers[i]);
    }
    atomic_store(&libuv_has_no_memory, false);
    assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    is_spared = false;
}

/* Connects until all failures have happened. Returns the number of sockets. */
static size_t connect_until_memory_is_back(const struct eb_address *address, int *sockets)
{
    size_t count = 0;
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while (atomic_load(&failures_left) > 0 && uv_hrtime() < deadline_ns) {
        if (count < SOCKETS_MAX) {
            sockets[count] = wire_connect(address, 0);
            assert_true(sockets[count] >= 0);
            (void)send(sockets[count], WIRE_HELLO, WIRE_HELLO_BYTES, MSG_NOSIGNAL);
            count++;
        }
        uv_sleep(1);
    }
    assert_int_equal(atomic_load(&failures_left), 0);
    return count;
}

static void goes_on_after_many_failures_in_a_row(void **state)
{
    struct loop_host *host = *state;
    static int sockets[SOCKETS_MAX];
    struct eb_address address;
    loop_host_serve(host, &address);
    is_spared = true;
    for (unsigned trial = 0; trial < TRIALS; trial++) {
        atomic_store(&failures_left, FAILURES_IN_A_ROW);
        size_t count = connect_until_memory_is_back(&address, sockets);
        struct wire_peer peer;
        wire_peer_open(&peer, &address);
        assert_true(wire_peer_echo(&peer, 10));
        wire_peer_close(&peer);
        for (size_t i = 0; i < count; i++) {
            close(sockets[i]);
        }
        assert_true(loop_host_wait_conns(host, 0, TIMEOUT_MS));
    }
    is_spared = false;
}

EB_TEST_GROUP(watchers)
{
    if (uv_replace_allocator(malloc_of_libuv, realloc_of_libuv, calloc_of_libuv, free) != 0) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(watches_as_many_as_were_reserved_without_memory, restore_memory),
        cmocka_unit_test_teardown(reports_that_there_is_no_memory, restore_memory),
        cmocka_unit_test_teardown(
            watches_as_many_as_it_was_extended_for_without_memory, restore_memory),
        cmocka_unit_test_teardown(reports_that_there_is_no_memory_to_extend, restore_memory),
        cmocka_unit_test_setup_teardown(
            reserves_no_more_than_there_may_be_descriptors, keep_file_limit, restore_file_limit),
        cmocka_unit_test_setup_teardown(
            reports_that_no_descriptor_is_left, keep_file_limit, restore_file_limit),
        cmocka_unit_test_setup_teardown(serves_connections_that_come_while_libuv_has_no_memory,
            loop_host_set_up, restore_memory_and_tear_down),
        cmocka_unit_test_setup_teardown(
            goes_on_after_many_failures_in_a_row, loop_host_set_up, restore_memory_and_tear_down),
    };
    return cmocka_run_group_tests(tests, let_memory_fail, eb_faults_tear_down);
}
