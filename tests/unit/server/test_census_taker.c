/* The taker on the test's thread, as the owner of a web's loop, beside a service on loops of its
 * own. */
#include "server/census_taker.h"

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

struct trial {
    struct service_host host;
    uv_loop_t uv;
    struct eb_mailbox mailbox;
    struct eb_census_taker *taker;
};

struct wish {
    struct eb_census_wish wish;
    bool is_taken;
    struct eb_census *census;
    struct eb_census_taker *asks_again; /* NULL: it does not */
    struct wish *before;                /* which must have been taken by then; NULL: none */
};

static void on_taken(struct eb_census_wish *asked, struct eb_census *census)
{
    struct wish *wish = (struct wish *)asked;
    struct eb_census_taker *taker = wish->asks_again;
    assert_false(wish->is_taken);
    assert_true(!wish->before || wish->before->is_taken);
    if (taker) {
        eb_census_free(census);
        wish->asks_again = NULL;
        eb_census_taker_ask(taker, asked);
        return;
    }
    wish->is_taken = true;
    wish->census = census;
}

static void start(struct trial *trial)
{
    *trial = (struct trial){0};
    service_host_init(&trial->host);
    service_host_start(&trial->host);
    assert_int_equal(uv_loop_init(&trial->uv), 0);
    assert_int_equal(eb_mailbox_open(&trial->mailbox, &trial->uv), 0);
    trial->taker = eb_census_taker_create();
    assert_non_null(trial->taker);
    eb_census_taker_open(trial->taker, &trial->mailbox);
}

static void attach(struct trial *trial)
{
    eb_census_taker_attach(trial->taker, trial->host.loops.loops, LOOP_HOST_LOOPS,
        trial->host.executor, trial->host.snapshot);
}

static void run_until(struct trial *trial, const bool *until)
{
    const uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (!*until && uv_hrtime() < deadline_ns) {
        uv_run(&trial->uv, UV_RUN_NOWAIT);
    }
    assert_true(*until);
}

static void ask(struct trial *trial, struct wish *wish)
{
    wish->wish.on_taken = on_taken;
    eb_census_taker_ask(trial->taker, &wish->wish);
}

/* NULL: it was refused. */
static struct eb_census *take_so(struct trial *trial, bool is_bare)
{
    struct wish wish = {.wish = {.is_bare = is_bare}};
    uv_run(&trial->uv, UV_RUN_NOWAIT); /* What main has said comes first. */
    ask(trial, &wish);
    run_until(trial, &wish.is_taken);
    return wish.census;
}

static struct eb_census *take(struct trial *trial)
{
    return take_so(trial, false);
}

static void detach(void *taker)
{
    eb_census_taker_detach(taker);
}

static void stop(struct trial *trial)
{
    eb_mailbox_close(&trial->mailbox);
    uv_run(&trial->uv, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&trial->uv), 0);
    eb_census_taker_destroy(trial->taker);
    service_host_stop(&trial->host);
}

static void tells_its_phase_and_methods_before_there_is_anything_to_count(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial);
    struct eb_census *census = take(&trial);
    assert_non_null(census);
    assert_int_equal(census->phase, EB_CENSUS_LOADING);
    assert_int_equal(census->loop_count + census->model_count + census->table_count, 0);
    assert_true(census->started_unix_ms > 0 && census->taken_unix_ms >= census->started_unix_ms);
    assert_int_equal(census->method_count, eb_method_count() + 1);
    assert_string_equal(census->methods[0].service, "embag.v1.EmbeddingBag");
    assert_string_equal(census->methods[0].method, "Lookup");
    assert_string_equal(census->methods[census->method_count - 1].service, "");
    for (size_t i = 0; i + 1 < census->method_count; i++) {
        char path[256];
        snprintf(
            path, sizeof path, "/%s/%s", census->methods[i].service, census->methods[i].method);
        assert_int_equal(eb_method_find(path).index, i);
    }
    eb_census_free(census);
    stop(&trial);
}

static void tells_what_main_has_said_last(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial);
    eb_census_taker_tell(trial.taker, &(struct eb_census_word){.reloads_done = 1});
    eb_census_taker_tell(trial.taker, &(struct eb_census_word){.certificate_expiry_unix_s = 5,
                                          .reloads_done = 2,
                                          .reloads_failed = 3,
                                          .is_repository_unreadable = true});
    struct eb_census *census = take(&trial);
    assert_non_null(census);
    assert_int_equal(census->word.certificate_expiry_unix_s, 5);
    assert_int_equal(census->word.reloads_done, 2);
    assert_int_equal(census->word.reloads_failed, 3);
    assert_true(census->word.is_repository_unreadable);
    eb_census_free(census);
    stop(&trial);
}

/* Loops are attached, and the peer, which is open, has had an answer. */
static void start_and_serve_one(struct trial *trial, struct wire_peer *peer)
{
    struct service_call call;
    start(trial);
    attach(trial);
    eb_census_taker_say(trial->taker, EB_CENSUS_SERVING);
    wire_peer_open(peer, &trial->host.address);
    service_call_lookup(peer, &call, &(struct service_request){.id = 1, .bags = 1});
    service_call_expect_end(peer, &call, EB_STATUS_OK);
}

static void tells_what_was_done_by_whom_with_which_models(void **state)
{
    (void)state;
    struct trial trial;
    struct wire_peer peer;
    start_and_serve_one(&trial, &peer);
    struct eb_census *census = take(&trial);
    assert_non_null(census);
    assert_int_equal(census->phase, EB_CENSUS_SERVING);
    assert_int_equal(eb_census_taker_phase(trial.taker), EB_CENSUS_SERVING);
    assert_int_equal(census->loop_count, LOOP_HOST_LOOPS);
    assert_int_equal(census->loops[0].connections, 1);
    assert_int_equal(census->loops[1].connections, 0);
    assert_int_equal(census->total.requests[0][EB_STATUS_OK], 1);
    assert_int_equal(census->executor.threads, 1);
    assert_int_equal(census->executor.tiles, 1);
    assert_int_equal(census->executor.queued_works[0] + census->executor.queued_bytes[0], 0);
    assert_int_equal(census->model_count, 1);
    assert_string_equal(census->models[0].name, "trial");
    assert_null(census->models[0].fault);
    assert_int_equal(census->models[0].served, 7);
    assert_int_equal(census->models[0].version_count, 1);
    const struct eb_census_version *version = &census->models[0].versions[0];
    assert_int_equal(version->number, 7);
    assert_int_equal(version->state, EB_VERSION_SERVING);
    assert_int_equal(version->tables, 1);
    assert_int_equal(version->rows, 4);
    assert_int_equal(version->pages.small + version->pages.huge_2m + version->pages.huge_1g,
        4 * SERVICE_HOST_ROW_BYTES);
    assert_true(version->bytes >= 4 * SERVICE_HOST_ROW_BYTES);
    assert_int_equal(census->table_count, 1);
    assert_string_equal(census->tables[0].model, "trial");
    assert_string_equal(census->tables[0].table, "rows");
    assert_int_equal(census->tables[0].bags, 1);
    assert_int_equal(census->tables[0].indices, 1);
    assert_int_equal(census->loads.done, 1);
    assert_int_equal(census->loads.failed, 0);
    eb_census_free(census);
    wire_peer_close(&peer);
    stop(&trial);
}

static void a_bare_one_has_the_phase_and_no_counts(void **state)
{
    (void)state;
    struct trial trial;
    struct wire_peer peer;
    start_and_serve_one(&trial, &peer);
    struct eb_census *census = take_so(&trial, true);
    assert_non_null(census);
    assert_int_equal(census->phase, EB_CENSUS_SERVING);
    assert_int_equal(census->method_count + census->loop_count + census->table_count, 0);
    assert_int_equal(census->model_count + census->executor.threads, 0);
    assert_int_equal(census->total.calls, 0);
    eb_census_free(census);
    census = take(&trial);
    assert_non_null(census);
    assert_int_equal(census->total.calls, 1);
    assert_int_equal(census->table_count, 1);
    eb_census_free(census);
    wire_peer_close(&peer);
    stop(&trial);
}

static void tells_what_waits_for_the_executor(void **state)
{
    (void)state;
    struct trial trial;
    struct wire_peer peer;
    struct service_call calls[2];
    start(&trial);
    attach(&trial);
    service_host_hold(&trial.host);
    wire_peer_open(&peer, &trial.host.address);
    service_call_lookup(&peer, &calls[0], &(struct service_request){.bags = 1});
    service_call_lookup(&peer, &calls[1], &(struct service_request){.bags = 1, .priority = 1});
    service_peer_settle(&peer);
    struct eb_census *census = take(&trial);
    assert_non_null(census);
    for (unsigned i = 0; i < EB_WORK_PRIORITIES; i++) {
        assert_int_equal(census->executor.queued_works[i], 1);
        assert_true(census->executor.queued_bytes[i] > 0);
    }
    assert_int_equal(census->executor.idle_threads, 0);
    eb_census_free(census);
    service_host_release(&trial.host);
    service_call_expect_end(&peer, &calls[0], EB_STATUS_OK);
    service_call_expect_end(&peer, &calls[1], EB_STATUS_OK);
    wire_peer_close(&peer);
    stop(&trial);
}

static void gives_each_wish_one_of_its_own_in_order(void **state)
{
    (void)state;
    struct trial trial;
    struct wish wishes[3] = {{.is_taken = false}};
    start(&trial);
    attach(&trial);
    uv_run(&trial.uv, UV_RUN_NOWAIT);
    for (unsigned i = 0; i < 3; i++) {
        wishes[i].before = i > 0 ? &wishes[i - 1] : NULL;
        ask(&trial, &wishes[i]);
    }
    run_until(&trial, &wishes[2].is_taken);
    for (unsigned i = 0; i < 3; i++) {
        assert_non_null(wishes[i].census);
        assert_true(i == 0 || wishes[i].census != wishes[i - 1].census);
        eb_census_free(wishes[i].census);
    }
    stop(&trial);
}

static void who_is_told_may_ask_again(void **state)
{
    (void)state;
    struct trial trial;
    struct wish wish = {0};
    start(&trial);
    for (unsigned i = 0; i < 2; i++) {
        wish = (struct wish){.asks_again = trial.taker};
        ask(&trial, &wish);
        run_until(&trial, &wish.is_taken);
        assert_int_equal(wish.census->loop_count, i * LOOP_HOST_LOOPS);
        eb_census_free(wish.census);
        if (i == 0) {
            attach(&trial);
            uv_run(&trial.uv, UV_RUN_NOWAIT);
        }
    }
    stop(&trial);
}

static void tells_of_the_snapshot_that_it_has_now(void **state)
{
    (void)state;
    struct trial trial;
    struct eb_snapshot other = {.loads = {.done = 5, .failed = 3, .freed = 2}};
    start(&trial);
    attach(&trial);
    eb_census_free(take(&trial));
    assert_ptr_equal(eb_census_taker_swap(trial.taker, &other), trial.host.snapshot);
    struct eb_census *census = take(&trial);
    assert_non_null(census);
    assert_int_equal(census->model_count, 0);
    assert_int_equal(census->loads.done, 5);
    assert_int_equal(census->loads.failed, 3);
    assert_int_equal(census->loads.freed, 2);
    eb_census_free(census);
    assert_ptr_equal(eb_census_taker_swap(trial.taker, trial.host.snapshot), &other);
    stop(&trial);
}

static void refuses_where_there_is_no_memory_at_any_step(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial);
    attach(&trial);
    eb_census_free(take(&trial));
    struct eb_census *census = NULL;
    unsigned failed = 0;
    for (fail_at = 1; !census; fail_at++) {
        const unsigned n = fail_at;
        request_count = 0;
        census = take(&trial);
        fail_at = n;
        failed += !census;
    }
    fail_at = 0;
    assert_true(failed >= 6);
    assert_int_equal(census->model_count, 1);
    eb_census_free(census);
    stop(&trial);
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
    struct trial *trial;
    atomic_bool is_done;
};

static void detach_in_background(void *context)
{
    struct detaching *detaching = context;
    detach(detaching->trial->taker);
    atomic_store(&detaching->is_done, true);
}

static void run_for_a_moment(struct trial *trial)
{
    for (unsigned i = 0; i < 20; i++) {
        uv_run(&trial->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
}

static void detaching_waits_for_loops_that_are_being_asked(void **state)
{
    (void)state;
    struct trial trial;
    struct stop_sign sign = {.mail = {.deliver = on_stop_sign}};
    struct wish wishes[2] = {{.is_taken = false}};
    struct detaching detaching = {.trial = &trial};
    uv_thread_t thread;
    start(&trial);
    attach(&trial);
    uv_run(&trial.uv, UV_RUN_NOWAIT);
    assert_int_equal(uv_sem_init(&sign.go, 0), 0);
    eb_mailbox_post(eb_loop_mailbox(trial.host.loops.loops[1]), &sign.mail);
    ask(&trial, &wishes[0]);
    ask(&trial, &wishes[1]);
    assert_int_equal(uv_thread_create(&thread, detach_in_background, &detaching), 0);
    run_for_a_moment(&trial);
    assert_false(wishes[0].is_taken);
    assert_false(atomic_load(&detaching.is_done));
    uv_sem_post(&sign.go);
    run_until(&trial, &wishes[1].is_taken);
    uv_thread_join(&thread);
    assert_non_null(wishes[0].census);
    assert_null(wishes[1].census);
    eb_census_free(wishes[0].census);
    assert_null(take(&trial));
    uv_sem_destroy(&sign.go);
    stop(&trial);
}

static void what_is_not_attached_can_be_detached(void **state)
{
    (void)state;
    struct trial trial;
    struct detaching detaching = {.trial = &trial};
    uv_thread_t thread;
    start(&trial);
    assert_int_equal(uv_thread_create(&thread, detach_in_background, &detaching), 0);
    while (!atomic_load(&detaching.is_done)) {
        uv_run(&trial.uv, UV_RUN_NOWAIT);
    }
    uv_thread_join(&thread);
    assert_null(take(&trial));
    stop(&trial);
}

EB_TEST_GROUP(census_taker)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_its_phase_and_methods_before_there_is_anything_to_count),
        cmocka_unit_test(tells_what_main_has_said_last),
        cmocka_unit_test(tells_what_was_done_by_whom_with_which_models),
        cmocka_unit_test(a_bare_one_has_the_phase_and_no_counts),
        cmocka_unit_test(tells_what_waits_for_the_executor),
        cmocka_unit_test(gives_each_wish_one_of_its_own_in_order),
        cmocka_unit_test(who_is_told_may_ask_again),
        cmocka_unit_test(tells_of_the_snapshot_that_it_has_now),
        cmocka_unit_test(refuses_where_there_is_no_memory_at_any_step),
        cmocka_unit_test(detaching_waits_for_loops_that_are_being_asked),
        cmocka_unit_test(what_is_not_attached_can_be_detached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
