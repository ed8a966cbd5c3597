/* The taker on the test's thread, as the owner of a web's loop, beside a service on loops of its
 * own. */
#include "server/stats_collector.h"

#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void *__real_calloc(size_t count, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_calloc(size_t count, size_t bytes);
char *__wrap_strdup(const char *text);

/* Of this thread only: that of the loops goes on. */
static _Thread_local unsigned request_count;
static _Thread_local unsigned fail_at; /* 0: none */

static bool is_refused(void)
{
    return ++request_count == fail_at;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return is_refused() ? NULL : __real_calloc(count, bytes);
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : __real_strdup(text);
}

struct fixture {
    struct service_host host;
    uv_loop_t uv;
    struct eb_mailbox mailbox;
    struct eb_stats_collector *taker;
};

struct request {
    struct eb_stats_request request;
    bool is_taken;
    struct eb_stats *stats;
    struct eb_stats_collector *asks_again; /* NULL: it does not */
    struct request *before;                /* which must have been taken by then; NULL: none */
};

static void on_taken(struct eb_stats_request *asked, struct eb_stats *stats)
{
    struct request *request = (struct request *)asked;
    struct eb_stats_collector *taker = request->asks_again;
    assert_false(request->is_taken);
    assert_true(!request->before || request->before->is_taken);
    if (taker) {
        eb_stats_free(stats);
        request->asks_again = NULL;
        eb_stats_collector_ask(taker, asked);
        return;
    }
    request->is_taken = true;
    request->stats = stats;
}

static void start(struct fixture *fixture)
{
    *fixture = (struct fixture){0};
    service_host_init(&fixture->host);
    service_host_start(&fixture->host);
    assert_int_equal(uv_loop_init(&fixture->uv), 0);
    assert_int_equal(eb_mailbox_open(&fixture->mailbox, &fixture->uv), 0);
    fixture->taker = eb_stats_collector_create();
    assert_non_null(fixture->taker);
    eb_stats_collector_open(fixture->taker, &fixture->mailbox);
}

static void attach(struct fixture *fixture)
{
    eb_stats_collector_attach(fixture->taker, fixture->host.loops.loops, LOOP_HOST_LOOPS,
        fixture->host.executor, fixture->host.snapshot);
}

static void run_until(struct fixture *fixture, const bool *until)
{
    const uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (!*until && uv_hrtime() < deadline_ns) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
    }
    assert_true(*until);
}

static void ask(struct fixture *fixture, struct request *request)
{
    request->request.on_taken = on_taken;
    eb_stats_collector_ask(fixture->taker, &request->request);
}

/* NULL: it was refused. */
static struct eb_stats *take_so(struct fixture *fixture, bool is_bare)
{
    struct request request = {.request = {.is_bare = is_bare}};
    uv_run(&fixture->uv, UV_RUN_NOWAIT); /* What main has said comes first. */
    ask(fixture, &request);
    run_until(fixture, &request.is_taken);
    return request.stats;
}

static struct eb_stats *take(struct fixture *fixture)
{
    return take_so(fixture, false);
}

static void detach(void *taker)
{
    eb_stats_collector_detach(taker);
}

static void stop(struct fixture *fixture)
{
    eb_mailbox_close(&fixture->mailbox);
    uv_run(&fixture->uv, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture->uv), 0);
    eb_stats_collector_destroy(fixture->taker);
    service_host_stop(&fixture->host);
}

static void tells_its_phase_and_methods_before_there_is_anything_to_count(void **state)
{
    (void)state;
    struct fixture fixture;
    start(&fixture);
    struct eb_stats *stats = take(&fixture);
    assert_non_null(stats);
    assert_int_equal(stats->phase, EB_STATS_LOADING);
    assert_int_equal(stats->loop_count + stats->model_count + stats->table_count, 0);
    assert_true(stats->started_unix_ms > 0 && stats->taken_unix_ms >= stats->started_unix_ms);
    assert_int_equal(stats->method_count, eb_method_count() + 1);
    assert_string_equal(stats->methods[0].service, "embag.v1.EmbeddingBag");
    assert_string_equal(stats->methods[0].method, "Lookup");
    assert_string_equal(stats->methods[stats->method_count - 1].service, "");
    for (size_t i = 0; i + 1 < stats->method_count; i++) {
        char path[256];
        snprintf(path, sizeof path, "/%s/%s", stats->methods[i].service, stats->methods[i].method);
        assert_int_equal(eb_method_find(path).index, i);
    }
    eb_stats_free(stats);
    stop(&fixture);
}

static void tells_what_main_has_said_last(void **state)
{
    (void)state;
    struct fixture fixture;
    start(&fixture);
    eb_stats_collector_tell(fixture.taker, &(struct eb_process_facts){.reloads_done = 1});
    eb_stats_collector_tell(
        fixture.taker, &(struct eb_process_facts){.certificate_expiry_unix_s = 5,
                           .reloads_done = 2,
                           .reloads_failed = 3,
                           .is_repository_unreadable = true});
    struct eb_stats *stats = take(&fixture);
    assert_non_null(stats);
    assert_int_equal(stats->facts.certificate_expiry_unix_s, 5);
    assert_int_equal(stats->facts.reloads_done, 2);
    assert_int_equal(stats->facts.reloads_failed, 3);
    assert_true(stats->facts.is_repository_unreadable);
    eb_stats_free(stats);
    stop(&fixture);
}

/* Loops are attached, and the peer, which is open, has had an answer. */
static void start_and_serve_one(struct fixture *fixture, struct wire_peer *peer)
{
    struct service_call call;
    start(fixture);
    attach(fixture);
    eb_stats_collector_say(fixture->taker, EB_STATS_SERVING);
    wire_peer_open(peer, &fixture->host.address);
    service_call_lookup(peer, &call, &(struct service_request){.id = 1, .bags = 1});
    service_call_expect_end(peer, &call, EB_STATUS_OK);
}

static void tells_what_was_done_by_whom_with_which_models(void **state)
{
    (void)state;
    struct fixture fixture;
    struct wire_peer peer;
    start_and_serve_one(&fixture, &peer);
    struct eb_stats *stats = take(&fixture);
    assert_non_null(stats);
    assert_int_equal(stats->phase, EB_STATS_SERVING);
    assert_int_equal(eb_stats_collector_phase(fixture.taker), EB_STATS_SERVING);
    assert_int_equal(stats->loop_count, LOOP_HOST_LOOPS);
    assert_int_equal(stats->loops[0].connections, 1);
    assert_int_equal(stats->loops[1].connections, 0);
    assert_int_equal(stats->total.requests[0][EB_STATUS_OK], 1);
    assert_int_equal(stats->executor.threads, 1);
    assert_int_equal(stats->executor.tiles, 1);
    assert_int_equal(stats->executor.queued_works[0] + stats->executor.queued_bytes[0], 0);
    assert_int_equal(stats->model_count, 1);
    assert_string_equal(stats->models[0].name, "trial");
    assert_null(stats->models[0].failure);
    assert_int_equal(stats->models[0].served, 7);
    assert_int_equal(stats->models[0].version_count, 1);
    const struct eb_stats_version *version = &stats->models[0].versions[0];
    assert_int_equal(version->number, 7);
    assert_int_equal(version->state, EB_VERSION_SERVING);
    assert_int_equal(version->tables, 1);
    assert_int_equal(version->rows, 4);
    assert_int_equal(version->pages.small + version->pages.huge_2m + version->pages.huge_1g,
        4 * SERVICE_HOST_ROW_BYTES);
    assert_true(version->bytes >= 4 * SERVICE_HOST_ROW_BYTES);
    assert_int_equal(stats->table_count, 1);
    assert_string_equal(stats->tables[0].model, "trial");
    assert_string_equal(stats->tables[0].table, "rows");
    assert_int_equal(stats->tables[0].bags, 1);
    assert_int_equal(stats->tables[0].indices, 1);
    assert_int_equal(stats->loads.done, 1);
    assert_int_equal(stats->loads.failed, 0);
    eb_stats_free(stats);
    wire_peer_close(&peer);
    stop(&fixture);
}

static void a_bare_one_has_the_phase_and_no_counts(void **state)
{
    (void)state;
    struct fixture fixture;
    struct wire_peer peer;
    start_and_serve_one(&fixture, &peer);
    struct eb_stats *stats = take_so(&fixture, true);
    assert_non_null(stats);
    assert_int_equal(stats->phase, EB_STATS_SERVING);
    assert_int_equal(stats->method_count + stats->loop_count + stats->table_count, 0);
    assert_int_equal(stats->model_count + stats->executor.threads, 0);
    assert_int_equal(stats->total.calls, 0);
    eb_stats_free(stats);
    stats = take(&fixture);
    assert_non_null(stats);
    assert_int_equal(stats->total.calls, 1);
    assert_int_equal(stats->table_count, 1);
    eb_stats_free(stats);
    wire_peer_close(&peer);
    stop(&fixture);
}

static void tells_what_waits_for_the_executor(void **state)
{
    (void)state;
    struct fixture fixture;
    struct wire_peer peer;
    struct service_call calls[2];
    start(&fixture);
    attach(&fixture);
    service_host_hold(&fixture.host);
    wire_peer_open(&peer, &fixture.host.address);
    service_call_lookup(&peer, &calls[0], &(struct service_request){.bags = 1});
    service_call_lookup(&peer, &calls[1], &(struct service_request){.bags = 1, .priority = 1});
    service_peer_settle(&peer);
    struct eb_stats *stats = take(&fixture);
    assert_non_null(stats);
    for (unsigned i = 0; i < EB_WORK_PRIORITIES; i++) {
        assert_int_equal(stats->executor.queued_works[i], 1);
        assert_true(stats->executor.queued_bytes[i] > 0);
    }
    assert_int_equal(stats->executor.idle_threads, 0);
    eb_stats_free(stats);
    service_host_release(&fixture.host);
    service_call_expect_end(&peer, &calls[0], EB_STATUS_OK);
    service_call_expect_end(&peer, &calls[1], EB_STATUS_OK);
    wire_peer_close(&peer);
    stop(&fixture);
}

static void gives_each_request_stats_of_its_own_in_order(void **state)
{
    (void)state;
    struct fixture fixture;
    struct request requests[3] = {{.is_taken = false}};
    start(&fixture);
    attach(&fixture);
    uv_run(&fixture.uv, UV_RUN_NOWAIT);
    for (unsigned i = 0; i < 3; i++) {
        requests[i].before = i > 0 ? &requests[i - 1] : NULL;
        ask(&fixture, &requests[i]);
    }
    run_until(&fixture, &requests[2].is_taken);
    for (unsigned i = 0; i < 3; i++) {
        assert_non_null(requests[i].stats);
        assert_true(i == 0 || requests[i].stats != requests[i - 1].stats);
        eb_stats_free(requests[i].stats);
    }
    stop(&fixture);
}

static void who_is_told_may_ask_again(void **state)
{
    (void)state;
    struct fixture fixture;
    struct request request = {0};
    start(&fixture);
    for (unsigned i = 0; i < 2; i++) {
        request = (struct request){.asks_again = fixture.taker};
        ask(&fixture, &request);
        run_until(&fixture, &request.is_taken);
        assert_int_equal(request.stats->loop_count, i * LOOP_HOST_LOOPS);
        eb_stats_free(request.stats);
        if (i == 0) {
            attach(&fixture);
            uv_run(&fixture.uv, UV_RUN_NOWAIT);
        }
    }
    stop(&fixture);
}

static void tells_of_the_snapshot_that_it_has_now(void **state)
{
    (void)state;
    struct fixture fixture;
    struct eb_snapshot other = {.loads = {.done = 5, .failed = 3, .freed = 2}};
    start(&fixture);
    attach(&fixture);
    eb_stats_free(take(&fixture));
    assert_ptr_equal(eb_stats_collector_swap(fixture.taker, &other), fixture.host.snapshot);
    struct eb_stats *stats = take(&fixture);
    assert_non_null(stats);
    assert_int_equal(stats->model_count, 0);
    assert_int_equal(stats->loads.done, 5);
    assert_int_equal(stats->loads.failed, 3);
    assert_int_equal(stats->loads.freed, 2);
    eb_stats_free(stats);
    assert_ptr_equal(eb_stats_collector_swap(fixture.taker, fixture.host.snapshot), &other);
    stop(&fixture);
}

static void refuses_where_there_is_no_memory_at_any_step(void **state)
{
    (void)state;
    struct fixture fixture;
    start(&fixture);
    attach(&fixture);
    eb_stats_free(take(&fixture));
    struct eb_stats *stats = NULL;
    unsigned failed = 0;
    for (fail_at = 1; !stats; fail_at++) {
        const unsigned n = fail_at;
        request_count = 0;
        stats = take(&fixture);
        fail_at = n;
        failed += !stats;
    }
    fail_at = 0;
    assert_true(failed >= 6);
    assert_int_equal(stats->model_count, 1);
    eb_stats_free(stats);
    stop(&fixture);
}

/* A loop that does nothing else until it may go on. */
struct stop_sign {
    struct eb_mail mail;
    uv_sem_t go;
};

static void on_stop_sign(struct eb_mail *mail)
{
    uv_sem_wait(&((struct stop_sign *)mail)->go);
}

struct detaching {
    struct fixture *fixture;
    atomic_bool is_done;
};

static void detach_in_background(void *context)
{
    struct detaching *detaching = context;
    detach(detaching->fixture->taker);
    atomic_store(&detaching->is_done, true);
}

static void run_for_a_while(struct fixture *fixture)
{
    for (unsigned i = 0; i < 20; i++) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
}

static void detaching_waits_for_loops_that_are_being_asked(void **state)
{
    (void)state;
    struct fixture fixture;
    struct stop_sign sign = {.mail = {.deliver = on_stop_sign}};
    struct request requests[2] = {{.is_taken = false}};
    struct detaching detaching = {.fixture = &fixture};
    uv_thread_t thread;
    start(&fixture);
    attach(&fixture);
    uv_run(&fixture.uv, UV_RUN_NOWAIT);
    assert_int_equal(uv_sem_init(&sign.go, 0), 0);
    eb_mailbox_post(eb_loop_mailbox(fixture.host.loops.loops[1]), &sign.mail);
    ask(&fixture, &requests[0]);
    ask(&fixture, &requests[1]);
    assert_int_equal(uv_thread_create(&thread, detach_in_background, &detaching), 0);
    run_for_a_while(&fixture);
    assert_false(requests[0].is_taken);
    assert_false(atomic_load(&detaching.is_done));
    uv_sem_post(&sign.go);
    run_until(&fixture, &requests[1].is_taken);
    uv_thread_join(&thread);
    assert_non_null(requests[0].stats);
    assert_null(requests[1].stats);
    eb_stats_free(requests[0].stats);
    assert_null(take(&fixture));
    uv_sem_destroy(&sign.go);
    stop(&fixture);
}

static void what_is_not_attached_can_be_detached(void **state)
{
    (void)state;
    struct fixture fixture;
    struct detaching detaching = {.fixture = &fixture};
    uv_thread_t thread;
    start(&fixture);
    assert_int_equal(uv_thread_create(&thread, detach_in_background, &detaching), 0);
    while (!atomic_load(&detaching.is_done)) {
        uv_run(&fixture.uv, UV_RUN_NOWAIT);
    }
    uv_thread_join(&thread);
    assert_null(take(&fixture));
    stop(&fixture);
}

EB_TEST_GROUP(stats_collector)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_its_phase_and_methods_before_there_is_anything_to_count),
        cmocka_unit_test(tells_what_main_has_said_last),
        cmocka_unit_test(tells_what_was_done_by_whom_with_which_models),
        cmocka_unit_test(a_bare_one_has_the_phase_and_no_counts),
        cmocka_unit_test(tells_what_waits_for_the_executor),
        cmocka_unit_test(gives_each_request_stats_of_its_own_in_order),
        cmocka_unit_test(who_is_told_may_ask_again),
        cmocka_unit_test(tells_of_the_snapshot_that_it_has_now),
        cmocka_unit_test(refuses_where_there_is_no_memory_at_any_step),
        cmocka_unit_test(detaching_waits_for_loops_that_are_being_asked),
        cmocka_unit_test(what_is_not_attached_can_be_detached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
