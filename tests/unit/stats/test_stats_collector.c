/* Tests the collector on the test's thread, which owns the operators' loop. The service that the
 * collector queries runs on its own loops. */
#include "server/stats/stats_collector.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/service_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct asked {
    struct eb_stats_request request;
    bool is_taken;
    struct eb_stats *stats;
    struct eb_stats_collector *again; /* gets a second request in on_taken; or NULL */
    struct asked *before;             /* request that must have been answered earlier, or NULL */
};

/* Mail whose delivery blocks a loop until `go` is posted. */
struct stop_sign {
    struct eb_mail mail;
    uv_sem_t go;
};

struct fixture {
    struct service_host host;
    struct wire_peer peer; /* open if the fixture has a client */
    struct service_call calls[2];
    uv_loop_t uv;
    struct eb_mailbox mailbox;
    struct eb_stats_collector *collector;
    struct asked asked[3];
    struct stop_sign sign;
    atomic_bool has_begun_to_detach;
    atomic_bool is_detached;
};

static void on_taken(struct eb_stats_request *request, struct eb_stats *stats)
{
    struct asked *asked = EB_CONTAINER_OF(request, struct asked, request);
    struct eb_stats_collector *again = asked->again;
    assert_false(asked->is_taken);
    assert_true(!asked->before || asked->before->is_taken);
    if (again) {
        eb_stats_free(stats);
        asked->again = NULL;
        eb_stats_collector_request(again, request);
        return;
    }
    asked->is_taken = true;
    asked->stats = stats;
}

static int open_fixture(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    service_host_init(&fixture->host);
    service_host_start(&fixture->host);
    assert_int_equal(uv_loop_init(&fixture->uv), 0);
    assert_int_equal(eb_mailbox_open(&fixture->mailbox, &fixture->uv), 0);
    fixture->collector = eb_stats_collector_create(&eb_service_stats);
    assert_non_null(fixture->collector);
    eb_stats_collector_open(fixture->collector, &fixture->mailbox);
    *state = fixture;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *fixture = *state;
    eb_faults_disarm();
    if (fixture->peer.client) {
        wire_peer_close(&fixture->peer);
    }
    eb_mailbox_close(&fixture->mailbox);
    uv_run(&fixture->uv, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture->uv), 0);
    eb_stats_collector_destroy(fixture->collector);
    service_host_stop(&fixture->host);
    free(fixture);
    return 0;
}

static void attach_loops(struct fixture *fixture)
{
    eb_stats_collector_attach(fixture->collector, fixture->host.loops.loops, LOOP_HOST_LOOPS,
        fixture->host.executor, fixture->host.snapshot);
}

static void run_until(struct fixture *fixture, const bool *until)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (!*until && uv_hrtime() < deadline_ns) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
    }
    assert_true(*until);
}

static void ask_for_stats(struct fixture *fixture, struct asked *asked)
{
    asked->request.on_taken = on_taken;
    eb_stats_collector_request(fixture->collector, &asked->request);
}

/* Requests stats and waits for them. Returns NULL if the request was refused. */
static struct eb_stats *take_so(struct fixture *fixture, bool is_bare)
{
    struct asked *asked = &fixture->asked[0];
    *asked = (struct asked){.request = {.is_bare = is_bare}};
    uv_run(&fixture->uv, UV_RUN_NOWAIT); /* first delivers what main has posted */
    ask_for_stats(fixture, asked);
    run_until(fixture, &asked->is_taken);
    return asked->stats;
}

static struct eb_stats *take(struct fixture *fixture)
{
    return take_so(fixture, false);
}

static void tells_its_phase_and_methods_before_there_is_anything_to_count(void **state)
{
    struct fixture *fixture = *state;
    struct eb_stats *stats = take(fixture);
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
}

static void tells_what_main_has_said_last(void **state)
{
    struct fixture *fixture = *state;
    eb_stats_collector_set_facts(fixture->collector, &(struct eb_process_facts){.reloads_done = 1});
    eb_stats_collector_set_facts(
        fixture->collector, &(struct eb_process_facts){.certificate_expiry_unix_s = 5,
                                .reloads_done = 2,
                                .reloads_failed = 3,
                                .is_repository_unreadable = true});
    struct eb_stats *stats = take(fixture);
    assert_non_null(stats);
    assert_int_equal(stats->facts.certificate_expiry_unix_s, 5);
    assert_int_equal(stats->facts.reloads_done, 2);
    assert_int_equal(stats->facts.reloads_failed, 3);
    assert_true(stats->facts.is_repository_unreadable);
    eb_stats_free(stats);
}

static void tells_what_a_router_knows_and_whether_it_is_ready(void **state)
{
    struct fixture *fixture = *state;
    struct eb_stats *stats = take(fixture);
    assert_non_null(stats);
    assert_null(stats->route_facts);
    assert_null(eb_stats_collector_not_ready(fixture->collector));
    eb_stats_free(stats);
    struct eb_route_facts *facts = eb_route_facts_make(0);
    assert_non_null(facts);
    facts->not_ready = "not yet";
    eb_stats_collector_set_route(fixture->collector, facts);
    stats = take(fixture);
    assert_non_null(stats);
    assert_ptr_equal(stats->route_facts, facts);
    assert_string_equal(eb_stats_collector_not_ready(fixture->collector), "not yet");
    struct eb_route_facts *newer = eb_route_facts_make(0);
    assert_non_null(newer);
    newer->flips = 5;
    eb_stats_collector_set_route(fixture->collector, newer);
    struct eb_stats *other = take(fixture);
    assert_non_null(other);
    assert_int_equal(other->route_facts->flips, 5);
    assert_null(other->route); /* The loops are not those of a router. */
    assert_string_equal(stats->route_facts->not_ready, "not yet");
    assert_null(eb_stats_collector_not_ready(fixture->collector));
    eb_stats_free(stats);
    eb_stats_free(other);
    facts = eb_route_facts_make(0);
    assert_non_null(facts);
    eb_faults_fail_allocation(1);
    eb_stats_collector_set_route(fixture->collector, facts); /* drops them */
    eb_faults_disarm();
    stats = take(fixture);
    assert_non_null(stats);
    assert_int_equal(stats->route_facts->flips, 5);
    eb_stats_free(stats);
}

/* Attaches the loops, and lets the peer get one answer. */
static void serve_one(struct fixture *fixture)
{
    struct service_call *call = &fixture->calls[0];
    attach_loops(fixture);
    eb_stats_collector_set_phase(fixture->collector, EB_STATS_SERVING);
    wire_peer_open(&fixture->peer, &fixture->host.address);
    service_call_lookup(&fixture->peer, call, &(struct service_request){.id = 1, .bags = 1});
    service_call_expect_end(&fixture->peer, call, EB_STATUS_OK);
}

static void tells_what_was_done_by_whom_with_which_models(void **state)
{
    struct fixture *fixture = *state;
    serve_one(fixture);
    struct eb_stats *stats = take(fixture);
    assert_non_null(stats);
    assert_int_equal(stats->phase, EB_STATS_SERVING);
    assert_int_equal(eb_stats_collector_phase(fixture->collector), EB_STATS_SERVING);
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
}

static void tells_which_memory_belongs_to_resident_files(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set *tables = &fixture->host.snapshot->models[0].served->tables;
    attach_loops(fixture);
    tables->pages = (struct eb_page_count){100, 50, 20};
    tables->file_pages = (struct eb_page_count){50, 30, 0};
    atomic_store(&tables->bytes_2m, 60);
    atomic_store(&tables->file_bytes_2m, 40);
    for (unsigned i = 0; i < 2; i++) {
        tables->file_fs = i == 0 ? EB_RESIDENT_TMPFS : EB_RESIDENT_HUGETLBFS;
        struct eb_stats *stats = take(fixture);
        assert_non_null(stats);
        const struct eb_stats_version *version = &stats->models[0].versions[0];
        struct eb_stats_page_bytes all = {20, 60, 20};
        struct eb_stats_page_bytes in_files = {10, 40, 0};
        struct eb_stats_page_bytes none = {0, 0, 0};
        assert_memory_equal(&version->pages, &all, sizeof all);
        assert_memory_equal(&version->tmpfs_pages, i == 0 ? &in_files : &none, sizeof all);
        assert_memory_equal(&version->hugetlbfs_pages, i == 0 ? &none : &in_files, sizeof all);
        eb_stats_free(stats);
    }
}

static void a_bare_one_has_the_phase_and_no_counts(void **state)
{
    struct fixture *fixture = *state;
    serve_one(fixture);
    struct eb_stats *stats = take_so(fixture, true);
    assert_non_null(stats);
    assert_int_equal(stats->phase, EB_STATS_SERVING);
    assert_int_equal(stats->method_count + stats->loop_count + stats->table_count, 0);
    assert_int_equal(stats->model_count + stats->executor.threads, 0);
    assert_int_equal(stats->total.calls, 0);
    eb_stats_free(stats);
    stats = take(fixture);
    assert_non_null(stats);
    assert_int_equal(stats->total.calls, 1);
    assert_int_equal(stats->table_count, 1);
    eb_stats_free(stats);
}

static void tells_what_waits_for_the_executor(void **state)
{
    struct fixture *fixture = *state;
    struct wire_peer *peer = &fixture->peer;
    struct service_call *calls = fixture->calls;
    attach_loops(fixture);
    service_host_hold(&fixture->host);
    wire_peer_open(peer, &fixture->host.address);
    service_call_lookup(peer, &calls[0], &(struct service_request){.bags = 1});
    service_call_lookup(peer, &calls[1], &(struct service_request){.bags = 1, .priority = 1});
    service_peer_settle(peer);
    struct eb_stats *stats = take(fixture);
    assert_non_null(stats);
    for (unsigned i = 0; i < EB_WORK_PRIORITIES; i++) {
        assert_int_equal(stats->executor.queued_works[i], 1);
        assert_true(stats->executor.queued_bytes[i] > 0);
    }
    assert_int_equal(stats->executor.idle_threads, 0);
    eb_stats_free(stats);
    service_host_release(&fixture->host);
    service_call_expect_end(peer, &calls[0], EB_STATUS_OK);
    service_call_expect_end(peer, &calls[1], EB_STATUS_OK);
}

static void gives_each_request_stats_of_its_own_in_order(void **state)
{
    struct fixture *fixture = *state;
    struct asked *requests = fixture->asked;
    attach_loops(fixture);
    uv_run(&fixture->uv, UV_RUN_NOWAIT);
    for (unsigned i = 0; i < 3; i++) {
        requests[i].before = i > 0 ? &requests[i - 1] : NULL;
        ask_for_stats(fixture, &requests[i]);
    }
    run_until(fixture, &requests[2].is_taken);
    for (unsigned i = 0; i < 3; i++) {
        assert_non_null(requests[i].stats);
        assert_true(i == 0 || requests[i].stats != requests[i - 1].stats);
        eb_stats_free(requests[i].stats);
    }
}

static void who_is_told_may_ask_again(void **state)
{
    struct fixture *fixture = *state;
    struct asked *asked = &fixture->asked[0];
    for (unsigned i = 0; i < 2; i++) {
        *asked = (struct asked){.again = fixture->collector};
        ask_for_stats(fixture, asked);
        run_until(fixture, &asked->is_taken);
        assert_int_equal(asked->stats->loop_count, i * LOOP_HOST_LOOPS);
        eb_stats_free(asked->stats);
        if (i == 0) {
            attach_loops(fixture);
            uv_run(&fixture->uv, UV_RUN_NOWAIT);
        }
    }
}

static void tells_of_the_snapshot_that_it_has_now(void **state)
{
    struct fixture *fixture = *state;
    struct eb_snapshot other = {.loads = {.done = 5, .failed = 3, .freed = 2}};
    attach_loops(fixture);
    eb_stats_free(take(fixture));
    assert_ptr_equal(eb_stats_collector_swap(fixture->collector, &other), fixture->host.snapshot);
    struct eb_stats *stats = take(fixture);
    assert_non_null(stats);
    assert_int_equal(stats->model_count, 0);
    assert_int_equal(stats->loads.done, 5);
    assert_int_equal(stats->loads.failed, 3);
    assert_int_equal(stats->loads.freed, 2);
    eb_stats_free(stats);
    assert_ptr_equal(eb_stats_collector_swap(fixture->collector, fixture->host.snapshot), &other);
}

static void refuses_where_there_is_no_memory_at_any_step(void **state)
{
    struct fixture *fixture = *state;
    attach_loops(fixture);
    eb_stats_free(take(fixture));
    struct eb_stats *stats = NULL;
    unsigned failed = 0;
    for (unsigned number = 1; !stats; number++) {
        eb_faults_fail_allocation(number);
        stats = take(fixture);
        eb_faults_fail_allocation(0);
        failed += !stats;
    }
    assert_true(failed >= 6);
    assert_int_equal(stats->model_count, 1);
    eb_stats_free(stats);
}

static void on_stop_sign(struct eb_mail *mail)
{
    uv_sem_wait(&EB_CONTAINER_OF(mail, struct stop_sign, mail)->go);
}

static void detach_in_background(void *context)
{
    struct fixture *fixture = context;
    atomic_store(&fixture->has_begun_to_detach, true);
    eb_stats_collector_detach(fixture->collector);
    atomic_store(&fixture->is_detached, true);
}

/* Runs the loop until the other thread has begun to detach, and then long enough for that thread's
 * mail to arrive. */
static void run_into_detach(struct fixture *fixture)
{
    while (!atomic_load(&fixture->has_begun_to_detach)) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
    }
    for (unsigned i = 0; i < 50; i++) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
}

static void detaching_waits_for_loops_that_are_being_asked(void **state)
{
    struct fixture *fixture = *state;
    struct asked *requests = fixture->asked;
    uv_thread_t thread;
    attach_loops(fixture);
    uv_run(&fixture->uv, UV_RUN_NOWAIT);
    fixture->sign.mail.deliver = on_stop_sign;
    assert_int_equal(uv_sem_init(&fixture->sign.go, 0), 0);
    eb_mailbox_post(eb_loop_mailbox(fixture->host.loops.loops[1]), &fixture->sign.mail);
    ask_for_stats(fixture, &requests[0]);
    ask_for_stats(fixture, &requests[1]);
    assert_int_equal(uv_thread_create(&thread, detach_in_background, fixture), 0);
    run_into_detach(fixture);
    assert_false(requests[0].is_taken);
    assert_false(atomic_load(&fixture->is_detached));
    uv_sem_post(&fixture->sign.go);
    run_until(fixture, &requests[1].is_taken);
    uv_thread_join(&thread);
    assert_non_null(requests[0].stats);
    assert_null(requests[1].stats);
    eb_stats_free(requests[0].stats);
    assert_null(take(fixture));
    uv_sem_destroy(&fixture->sign.go);
}

static void what_is_not_attached_can_be_detached(void **state)
{
    struct fixture *fixture = *state;
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, detach_in_background, fixture), 0);
    while (!atomic_load(&fixture->is_detached)) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
    }
    uv_thread_join(&thread);
    assert_null(take(fixture));
}

EB_TEST_GROUP(stats_collector)
{
    static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)
        TEST(tells_its_phase_and_methods_before_there_is_anything_to_count),
        TEST(tells_what_main_has_said_last),
        TEST(tells_what_a_router_knows_and_whether_it_is_ready),
        TEST(tells_what_was_done_by_whom_with_which_models),
        TEST(tells_which_memory_belongs_to_resident_files),
        TEST(a_bare_one_has_the_phase_and_no_counts),
        TEST(tells_what_waits_for_the_executor),
        TEST(gives_each_request_stats_of_its_own_in_order),
        TEST(who_is_told_may_ask_again),
        TEST(tells_of_the_snapshot_that_it_has_now),
        TEST(refuses_where_there_is_no_memory_at_any_step),
        TEST(detaching_waits_for_loops_that_are_being_asked),
        TEST(what_is_not_attached_can_be_detached),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
