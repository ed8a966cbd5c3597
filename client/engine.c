#include "client/engine.h"

#include "client/call_answer.h"
#include "proto/list.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>

#define READ_BYTES ((size_t)256 << 10) /* most bytes of one read from a socket */
/* Limit for the bytes of requests in flight and of abandoned requests that still wait to be
 * written. */
#define REQUEST_BYTES_MAX ((size_t)1 << 30)
#define KEPT_BYTES_MAX ((size_t)64 << 20) /* bytes of free blocks that each pool keeps */
#define NS_PER_MS 1000000
#define NS_PER_US 1000
#define TURNS_MAX 8 /* most rounds in a row before the loop handles I/O */

/* ---- rounds ---- */

static void on_engine_timer(uv_timer_t *timer)
{
    (void)timer; /* The round that precedes the next sleep does the work. */
}

static void on_fine_ring(struct eb_fine_timer *timer)
{
    (void)timer; /* as above */
}

static bool is_hedging(const struct eb_engine *engine)
{
    return engine->group.hedging.percent > 0;
}

static void set_timer(struct eb_engine *engine)
{
    uint64_t next_ns = eb_alarms_next_ns(&engine->alarms);
    if (is_hedging(engine)) {
        if (next_ns < UINT64_MAX) {
            eb_fine_timer_set(&engine->fine_timer, next_ns);
        }
        return;
    }
    if (next_ns == UINT64_MAX) {
        int rc = uv_timer_stop(&engine->timer);
        assert(rc == 0);
        return;
    }
    uint64_t now_ns = uv_hrtime();
    uint64_t wait_ms = next_ns > now_ns ? (next_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS : 0;
    uv_update_time(&engine->loop);
    int rc = uv_timer_start(&engine->timer, on_engine_timer, wait_ms, 0);
    assert(rc == 0);
}

/* Handles everything that has happened since the last sleep. */
static void on_engine_before_sleep(uv_prepare_t *prepare)
{
    struct eb_engine *engine = prepare->data;
    bool again = true;
    for (int i = 0; again && i < TURNS_MAX; i++) {
        eb_mailbox_deliver(&engine->mailbox);
        again = eb_dispatcher_run(&engine->dispatcher) || !eb_mailbox_is_empty(&engine->mailbox);
    }
    if (again) {
        eb_alarms_set(&engine->alarms, &engine->dispatcher.wake, 0);
    }
    if (!engine->has_ended) {
        set_timer(engine);
    }
}

/* ---- mails ---- */

static void on_submit(struct eb_mail *mail)
{
    struct eb_call *call = EB_CONTAINER_OF(mail, struct eb_call, submit);
    struct eb_engine *engine = call->engine;
    struct eb_dispatch_call *dispatched = &call->dispatched;
    dispatched->group = &engine->group;
    dispatched->id = call->id;
    dispatched->path = call->path;
    dispatched->request = call->request;
    dispatched->deadline_ns = call->deadline_ns;
    dispatched->priority = call->priority;
    dispatched->names_version = call->names_version;
    dispatched->changes_server = call->kind == EB_CALL_COMMAND || call->kind == EB_CALL_RELOAD;
    dispatched->error = &call->error;
    call->request = NULL;
    eb_dispatcher_take(&engine->dispatcher, dispatched);
}

static void on_cancel(struct eb_mail *mail)
{
    struct eb_call *call = EB_CONTAINER_OF(mail, struct eb_call, cancel);
    if (eb_calls_on_cancel(&call->engine->calls, call) &&
        call->dispatched.state != EB_DISPATCH_OVER) {
        eb_dispatcher_abandon(&call->dispatched, EB_STATUS_CANCELLED, "the call was cancelled");
    }
}

static void end_engine(struct eb_engine *engine)
{
    for (uint32_t i = 0; i < engine->calls.count; i++) {
        struct eb_dispatch_call *dispatched = &engine->calls.records[i].dispatched;
        if (dispatched->state != EB_DISPATCH_OVER) {
            eb_dispatcher_abandon(dispatched, EB_STATUS_CANCELLED, "the client is being closed");
        }
    }
    eb_dispatcher_end(&engine->dispatcher);
}

static void on_engine_end(struct eb_mail *mail)
{
    end_engine(EB_CONTAINER_OF(mail, struct eb_engine, end));
}

/* ---- callbacks of the dispatcher ---- */

static struct eb_dispatch_call *find_dispatched(void *context, uint64_t id)
{
    struct eb_engine *engine = context;
    struct eb_call *call = eb_calls_find(&engine->calls, id);
    return call ? &call->dispatched : NULL;
}

static void on_engine_over(struct eb_dispatch_call *dispatched)
{
    struct eb_call *call = EB_CONTAINER_OF(dispatched, struct eb_call, dispatched);
    call->attempts = dispatched->attempts;
    call->retry_after_ms = dispatched->retry_after_ms;
    call->on_over(call);
}

static void on_opened(void *context, const struct eb_error *why)
{
    struct eb_engine *engine = context;
    if (why) {
        engine->open_error = *why;
    }
    uv_sem_post(&engine->opened);
}

static void close_engine_handles(struct eb_engine *engine)
{
    engine->has_ended = true;
    eb_credentials_watch_stop(engine->renewal);
    uv_close((uv_handle_t *)&engine->before_sleep, NULL);
    uv_close((uv_handle_t *)&engine->timer, NULL);
    if (is_hedging(engine)) {
        eb_fine_timer_close(&engine->fine_timer);
    }
    assert(eb_mailbox_is_empty(&engine->mailbox));
    eb_mailbox_close(&engine->mailbox);
}

static void on_engine_ended(void *context)
{
    close_engine_handles(context);
}

static void on_servers(void *context, uint32_t connected, uint32_t known)
{
    struct eb_engine *engine = context;
    uv_mutex_lock(&engine->servers.lock);
    engine->servers.connected = connected;
    engine->servers.known = known;
    uv_cond_broadcast(&engine->servers.changed);
    uv_mutex_unlock(&engine->servers.lock);
}

static const struct eb_dispatch_handler dispatch_handler = {
    .decode = eb_call_answer_decode,
    .find = find_dispatched,
    .accept = eb_call_answer_accept,
    .drop = eb_call_answer_drop,
    .on_message = eb_call_answer_on_message,
    .discard = eb_call_answer_discard,
    .on_over = on_engine_over,
    .on_opened = on_opened,
    .on_servers = on_servers,
    .on_ended = on_engine_ended,
};

/* ---- start and end ---- */

static void run_engine(void *context)
{
    struct eb_engine *engine = context;
    eb_mailbox_set_reader(&engine->mailbox);
    int rc = uv_run(&engine->loop, UV_RUN_DEFAULT);
    assert(rc == 0);
}

static void close_engine_loop(struct eb_engine *engine)
{
    int rc = uv_loop_close(&engine->loop);
    assert(rc == 0);
}

static void on_engine_read(void *context, struct eb_credentials_change change)
{
    struct eb_engine *engine = context;
    if (change.is_token_new || change.is_tls_new) {
        eb_dispatcher_renew(&engine->dispatcher, change.is_token_new);
    }
}

/* Opens the loop and its handles. Returns 0, or a negative libuv code with nothing left of the
 * loop. */
static int open_loop(struct eb_engine *engine)
{
    int rc = uv_loop_init(&engine->loop);
    if (rc != 0) {
        return rc;
    }
    rc = eb_mailbox_open(&engine->mailbox, &engine->loop);
    if (rc != 0) {
        close_engine_loop(engine);
        return rc;
    }
    engine->renewal->on_read = on_engine_read;
    engine->renewal->context = engine;
    engine->fine_timer.on_ring = on_fine_ring;
    rc = is_hedging(engine) ? eb_fine_timer_open(&engine->fine_timer, &engine->loop) : 0;
    if (rc != 0) {
        goto close_mailbox;
    }
    rc = eb_credentials_watch_start(engine->renewal, &engine->loop);
    if (rc != 0) {
        goto close_fine_timer;
    }
    rc = uv_timer_init(&engine->loop, &engine->timer);
    assert(rc == 0);
    rc = uv_prepare_init(&engine->loop, &engine->before_sleep);
    assert(rc == 0);
    rc = uv_prepare_start(&engine->before_sleep, on_engine_before_sleep);
    assert(rc == 0);
    engine->before_sleep.data = engine;
    rc = eb_dispatcher_open(&engine->dispatcher, &engine->loop, &engine->messages.memory,
        uv_buf_init(engine->read_buffer, READ_BYTES));
    if (rc == 0) {
        return 0;
    }
    close_engine_handles(engine);
    goto close_loop;

close_fine_timer:
    if (is_hedging(engine)) {
        eb_fine_timer_close(&engine->fine_timer);
    }
close_mailbox:
    eb_mailbox_close(&engine->mailbox);
close_loop:
    run_engine(engine);
    close_engine_loop(engine);
    return rc;
}

/* Starts the thread with all signals blocked, except those that a fault in the thread raises and
 * SIGPROF. So a program's handlers run on its own threads, and a write to a lost connection raises
 * nothing. */
static int start_thread(struct eb_engine *engine)
{
    static const int raised_signals[] = {
        SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF};
    sigset_t blocked;
    sigset_t before;
    int rc = sigfillset(&blocked);
    for (size_t i = 0; i < sizeof raised_signals / sizeof raised_signals[0]; i++) {
        rc |= sigdelset(&blocked, raised_signals[i]);
    }
    rc |= pthread_sigmask(SIG_SETMASK, &blocked, &before);
    assert(rc == 0);
    int started = uv_thread_create(&engine->thread, run_engine, engine);
    rc = pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert(rc == 0);
    return started;
}

/* Opens the loop and starts the thread. Returns false with *error set; then nothing runs. */
static bool start_engine_thread(struct eb_engine *engine, struct eb_error *error)
{
    int rc = open_loop(engine);
    if (rc == 0) {
        rc = start_thread(engine);
        if (rc != 0) {
            end_engine(engine);
            run_engine(engine);
            close_engine_loop(engine);
        }
    }
    if (rc != 0) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "cannot start the client's thread: %s",
            uv_strerror(rc));
    }
    return rc == 0;
}

/* Allocates the engine's memory. Returns false if out of memory; eb_engine_deinit then frees what
 * was allocated. */
static bool take_engine_memory(struct eb_engine *engine, uint32_t in_flight_max)
{
    struct eb_dispatcher *dispatcher = &engine->dispatcher;
    uint32_t alarms_max = EB_DISPATCH_CALL_ALARMS * in_flight_max + EB_DISPATCHER_ALARMS;
    dispatcher->handler = &dispatch_handler;
    dispatcher->context = engine;
    dispatcher->alarms = &engine->alarms;
    engine->read_buffer = malloc(READ_BYTES);
    return engine->read_buffer && eb_alarms_init(&engine->alarms, alarms_max) &&
           eb_calls_init(&engine->calls, in_flight_max);
}

bool eb_engine_open(
    struct eb_engine *engine, const struct eb_engine_options *options, struct eb_error *error)
{
    *engine = (struct eb_engine){.dispatcher = {.options = options->dispatcher},
        .end = {.deliver = on_engine_end},
        .renewal = options->renewal};
    eb_dispatch_group_init(
        &engine->group, EB_RESEND_LEAST_CLIENT, options->hedge_percent, EB_HEDGE_DELAY_MIN_NS);
    int rc = uv_sem_init(&engine->opened, 0);
    assert(rc == 0);
    rc = uv_mutex_init(&engine->servers.lock);
    assert(rc == 0);
    rc = uv_cond_init(&engine->servers.changed);
    assert(rc == 0);
    rc = eb_block_pool_init(&engine->requests, REQUEST_BYTES_MAX, KEPT_BYTES_MAX);
    assert(rc == 0);
    rc = eb_block_pool_init(&engine->messages, SIZE_MAX / 2, KEPT_BYTES_MAX);
    assert(rc == 0);
    if (!take_engine_memory(engine, options->in_flight_max)) {
        eb_engine_deinit(engine);
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for a client");
        return false;
    }
    if (!start_engine_thread(engine, error)) {
        eb_engine_deinit(engine);
        return false;
    }
    uv_sem_wait(&engine->opened);
    if (engine->open_error.status != EB_STATUS_OK) {
        *error = engine->open_error;
        eb_engine_close(engine);
        eb_engine_deinit(engine);
        return false;
    }
    return true;
}

void eb_engine_close(struct eb_engine *engine)
{
    eb_calls_close(&engine->calls);
    uv_mutex_lock(&engine->servers.lock);
    engine->servers.is_closed = true;
    uv_cond_broadcast(&engine->servers.changed);
    uv_mutex_unlock(&engine->servers.lock);
    eb_mailbox_post(&engine->mailbox, &engine->end);
    int rc = uv_thread_join(&engine->thread);
    assert(rc == 0);
    close_engine_loop(engine);
}

void eb_engine_deinit(struct eb_engine *engine)
{
    eb_dispatcher_deinit(&engine->dispatcher);
    eb_dispatch_group_deinit(&engine->group);
    eb_alarms_deinit(&engine->alarms);
    eb_calls_deinit(&engine->calls);
    free(engine->read_buffer);
    eb_block_pool_deinit(&engine->requests);
    eb_block_pool_deinit(&engine->messages);
    uv_sem_destroy(&engine->opened);
    uv_mutex_destroy(&engine->servers.lock);
    uv_cond_destroy(&engine->servers.changed);
}

bool eb_engine_post(struct eb_engine *engine, struct eb_call *call)
{
    call->engine = engine;
    call->submit.deliver = on_submit;
    call->cancel.deliver = on_cancel;
    return eb_calls_post(&engine->calls, &engine->mailbox, &call->submit);
}

void eb_engine_post_cancel(struct eb_engine *engine, uint64_t id)
{
    eb_calls_post_cancel(&engine->calls, &engine->mailbox, id);
}

bool eb_engine_is_here(const struct eb_engine *engine)
{
    uv_thread_t here = uv_thread_self();
    return uv_thread_equal(&here, &engine->thread) != 0;
}

/* ---- servers ---- */

static void explain_wait(struct eb_engine_servers *servers, uint32_t wanted, struct eb_error *error)
{
    if (servers->is_closed) {
        eb_error_set(error, EB_STATUS_CANCELLED, "the client is being closed");
        return;
    }
    eb_error_set(error, EB_STATUS_DEADLINE_EXCEEDED,
        "connected to %u of %u known servers; %u are wanted", servers->connected, servers->known,
        wanted > 0 ? wanted : servers->known);
}

bool eb_engine_await_servers(
    struct eb_engine *engine, uint32_t wanted, uint64_t deadline_ns, struct eb_error *error)
{
    struct eb_engine_servers *servers = &engine->servers;
    bool is_ready = false;
    bool is_over = false;
    uv_mutex_lock(&servers->lock);
    while (!is_ready && !is_over) {
        uint64_t now_ns = uv_hrtime();
        uint32_t least = wanted > 0 ? wanted : servers->known;
        is_ready = !servers->is_closed && least > 0 && servers->connected >= least;
        is_over = servers->is_closed || now_ns >= deadline_ns;
        if (!is_ready && !is_over) {
            (void)uv_cond_timedwait(&servers->changed, &servers->lock, deadline_ns - now_ns);
        }
    }
    if (!is_ready) {
        explain_wait(servers, wanted, error);
    }
    uv_mutex_unlock(&servers->lock);
    return is_ready;
}

static void fill_server(const struct eb_peer *peer, struct embag_server_stats *out)
{
    const struct eb_replica *replica = &peer->replica;
    *out = (struct embag_server_stats){
        .is_connected = eb_peer_is_usable(peer),
        .is_left_out = replica->ejection.is_out || replica->suspicion.is_suspect,
        .in_flight = eb_peer_count_attempts(peer),
        .sent = peer->sent,
        .failed = peer->failed,
        .left_out = peer->ejected,
        .latency_us = eb_peak_latency_now(&replica->latency, uv_hrtime()) / NS_PER_US,
    };
    static_assert(sizeof out->address == EB_ADDRESS_TEXT_BYTES, "the text fits");
    eb_address_format(&peer->address, out->address);
}

static void fill_engine_figures(
    const struct eb_engine *engine, const struct eb_engine_figures *figures)
{
    const struct eb_peer_set *servers = &engine->dispatcher.servers;
    const struct eb_dispatch_counters *counters = &engine->group.counters;
    *figures->stats = (struct embag_stats){
        .lookups = counters->lookups,
        .resends = eb_dispatch_counters_resent(counters),
        .hedges = counters->hedges,
        .hedges_won = counters->hedges_won,
        .servers = servers->count,
    };
    for (uint32_t i = 0; i < servers->count && i < figures->servers_max; i++) {
        fill_server(servers->peers[i], &figures->servers[i]);
    }
}

/* A request for the figures, on the stack of the thread that waits for them. */
struct stats_request {
    struct eb_mail mail;
    struct eb_engine *engine;
    const struct eb_engine_figures *figures;
    uv_sem_t done;
};

static void on_stats(struct eb_mail *mail)
{
    struct stats_request *request = EB_CONTAINER_OF(mail, struct stats_request, mail);
    fill_engine_figures(request->engine, request->figures);
    uv_sem_post(&request->done);
}

bool eb_engine_fill_figures(struct eb_engine *engine, const struct eb_engine_figures *figures)
{
    struct stats_request request = {
        .mail = {.deliver = on_stats}, .engine = engine, .figures = figures};
    if (eb_engine_is_here(engine)) {
        fill_engine_figures(engine, figures);
        return true;
    }
    int rc = uv_sem_init(&request.done, 0);
    assert(rc == 0);
    bool is_posted = eb_calls_post(&engine->calls, &engine->mailbox, &request.mail);
    if (is_posted) {
        uv_sem_wait(&request.done);
    }
    uv_sem_destroy(&request.done);
    return is_posted;
}
