#include "tests/unit/net/loop_host.h"

#include "proto/list.h"
#include "server/rpc/reply.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STOP_TIMEOUT_MS 10000

/* ---- the service ---- */

static struct loop_host *find_host(struct eb_conn *conn)
{
    return eb_loop_user(eb_conn_loop(conn));
}

static void on_call(void *context, struct eb_grpc_call *call)
{
    (void)context;
    bool is_known = strcmp(call->path, "/t/Echo") == 0 || strcmp(call->path, "/t/Large") == 0;
    if (!is_known) {
        eb_grpc_call_finish(call, EB_STATUS_UNIMPLEMENTED, NULL, 0);
    }
}

/* Answers with `size` bytes: those of `bytes`, or (uint8_t)i as byte i if `bytes` is NULL. */
static void answer_bytes(
    struct eb_conn *conn, struct eb_grpc_call *call, const uint8_t *bytes, size_t size)
{
    struct eb_outgoing *reply = eb_reply_take(eb_loop_answer_pool(eb_conn_loop(conn)), size);
    if (!reply) {
        eb_grpc_call_finish(call, EB_STATUS_RESOURCE_EXHAUSTED, NULL, 0);
        return;
    }
    for (size_t i = 0; i < size; i++) {
        eb_reply_body(reply)[i] = bytes ? bytes[i] : (uint8_t)i;
    }
    eb_grpc_call_answer(call, reply);
}

static void on_message(void *context, struct eb_grpc_call *call, struct eb_grpc_message message)
{
    struct eb_conn *conn = context;
    uint32_t size;
    atomic_fetch_add(&find_host(conn)->message_count, 1);
    if (strcmp(call->path, "/t/Echo") == 0) {
        answer_bytes(conn, call, message.bytes, message.size);
    } else if (message.size == sizeof size) {
        memcpy(&size, message.bytes, sizeof size);
        answer_bytes(conn, call, NULL, size);
    }
    eb_grpc_message_give(eb_conn_receive_memory(conn), &message);
}

static void on_request_end(void *context, struct eb_grpc_call *call)
{
    (void)context;
    eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
}

static void on_call_close(void *context, struct eb_grpc_call *call)
{
    (void)context;
    (void)call;
}

static void on_open(struct eb_conn *conn)
{
    atomic_fetch_add(&find_host(conn)->opened_count, 1);
}

static bool has_waiting(const struct eb_conn *conn)
{
    (void)conn;
    return false;
}

static void on_written(struct eb_conn *conn)
{
    (void)conn;
}

static void on_tick(struct eb_conn *conn)
{
    (void)conn;
}

static void on_notice(struct eb_conn *conn)
{
    (void)conn;
}

static void on_drain(struct eb_conn *conn)
{
    (void)conn;
}

static void on_close(struct eb_conn *conn)
{
    atomic_fetch_add(&find_host(conn)->closed_count, 1);
}

static void *on_loop_open(struct eb_loop *loop)
{
    struct loop_host *host = eb_loop_options(loop)->service;
    if (host->lacks_memory) {
        return NULL;
    }
    atomic_fetch_add(&host->loop_states, 1);
    return host;
}

static bool on_loop_tick(struct eb_loop *loop)
{
    (void)loop;
    return false;
}

static void on_loop_close(struct eb_loop *loop)
{
    struct loop_host *host = eb_loop_user(loop);
    atomic_fetch_sub(&host->loop_states, 1);
}

/* ---- start and stop ---- */

void loop_host_init(struct loop_host *host)
{
    *host = (struct loop_host){0};
    signal(SIGPIPE, SIG_IGN); /* as in embagd: a write to a closed socket only fails */
    host->options = (struct eb_loop_options){
        .events = {.calls = {.on_call = on_call,
                       .on_message = on_message,
                       .on_request_end = on_request_end,
                       .on_close = on_call_close},
            .on_open = on_open,
            .on_tick = on_tick,
            .on_written = on_written,
            .has_waiting = has_waiting,
            .on_sent = on_written,
            .on_notice = on_notice,
            .on_drain = on_drain,
            .on_close = on_close},
        .limits = {.conn = {.session = {.request_bytes_max = 1 << 20,
                                .streams_max = 16,
                                .header_fields_max = 32,
                                .header_bytes_max = 4096,
                                .outbound_bytes_max = 1 << 20,
                                .message_stall_ms_max = 60000,
                                .reset_budget = 100},
                       .header_timeout_ms = 60000,
                       .write_timeout_ms = 60000,
                       .slice_ns = UINT64_C(60000000000)},
            .connections_max = 1000,
            .drain_timeout_ms = 60000,
            .tick_ms = 10},
        .receive_memory_bytes = UINT64_C(64) << 20,
        .answer_memory_bytes = UINT64_C(128) << 20,
        .service = host,
        .on_loop_open = on_loop_open,
        .on_loop_tick = on_loop_tick,
        .on_loop_close = on_loop_close,
        .loops = host->loops,
        .loop_count = LOOP_HOST_LOOPS,
    };
}

static void on_drained(struct eb_mail *mail)
{
    EB_CONTAINER_OF(mail, struct loop_host_word, mail)->host->drained_count++;
}

void loop_host_create(struct loop_host *host)
{
    assert_int_equal(uv_loop_init(&host->uv), 0);
    assert_int_equal(eb_mailbox_open(&host->mailbox, &host->uv), 0);
    host->is_created = true;
    for (unsigned i = 0; i < LOOP_HOST_LOOPS; i++) {
        host->words[i] = (struct loop_host_word){.mail = {.deliver = on_drained}, .host = host};
        assert_int_equal(eb_loop_create(&host->loops[i], &host->options), 0);
    }
}

void loop_host_listen(
    struct loop_host *host, unsigned number, const char *text, struct eb_address *bound)
{
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    struct eb_listener listener;
    struct eb_error error;
    struct eb_failure failure;
    assert_int_equal(eb_address_resolve(text, addresses, &error), 1);
    assert_int_equal(eb_listener_open(&listener, &addresses[0],
                         (struct eb_listener_options){.probe = number == 0}, &failure),
        0);
    *bound = listener.address;
    assert_int_equal(eb_loop_listen(host->loops[number], &listener, eb_address_is_unix(bound)), 0);
}

void loop_host_start(struct loop_host *host)
{
    for (unsigned i = 0; i < LOOP_HOST_LOOPS; i++) {
        assert_int_equal(eb_loop_start(host->loops[i], &host->mailbox, &host->words[i].mail), 0);
    }
}

void loop_host_serve(struct loop_host *host, struct eb_address *bound)
{
    char text[EB_ADDRESS_TEXT_BYTES];
    loop_host_create(host);
    loop_host_listen(host, 0, "127.0.0.1:0", bound);
    eb_address_format(bound, text);
    loop_host_listen(host, 1, text, bound);
    loop_host_start(host);
}

void loop_host_drain(struct loop_host *host)
{
    host->is_draining = true;
    for (unsigned i = 0; i < LOOP_HOST_LOOPS; i++) {
        eb_loop_drain(host->loops[i]);
    }
}

void loop_host_cut(struct loop_host *host)
{
    host->is_cut = true;
    for (unsigned i = 0; i < LOOP_HOST_LOOPS; i++) {
        eb_loop_cut(host->loops[i]);
    }
}

bool loop_host_wait_drained(struct loop_host *host, int timeout_ms)
{
    uint64_t deadline_ns = uv_hrtime() + (uint64_t)timeout_ms * 1000000;
    while (host->drained_count < LOOP_HOST_LOOPS && uv_hrtime() < deadline_ns) {
        uv_run(&host->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    return host->drained_count == LOOP_HOST_LOOPS;
}

void loop_host_stop(struct loop_host *host)
{
    if (!host->is_created) {
        return;
    }
    assert_false(host->is_stopping);
    host->is_stopping = true;
    if (!host->is_draining) {
        loop_host_drain(host);
    }
    if (!host->is_cut) {
        loop_host_cut(host);
    }
    assert_true(loop_host_wait_drained(host, STOP_TIMEOUT_MS));
    for (unsigned i = 0; i < LOOP_HOST_LOOPS; i++) {
        eb_loop_end(host->loops[i]);
    }
    for (unsigned i = 0; i < LOOP_HOST_LOOPS; i++) {
        eb_loop_destroy(host->loops[i]);
    }
    eb_mailbox_close(&host->mailbox);
    uv_run(&host->uv, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&host->uv), 0);
    host->is_created = false;
    assert_int_equal(atomic_load(&host->loop_states), 0);
    assert_int_equal(atomic_load(&host->opened_count), atomic_load(&host->closed_count));
    assert_int_equal(host->drained_count, LOOP_HOST_LOOPS);
}

int loop_host_set_up(void **state)
{
    struct loop_host *host = malloc(sizeof *host);
    if (!host) {
        return -1;
    }
    loop_host_init(host);
    *state = host;
    return 0;
}

int loop_host_tear_down(void **state)
{
    struct loop_host *host = *state;
    loop_host_stop(host);
    free(host);
    return 0;
}

/* ---- looking inside ---- */

struct errand {
    struct eb_mail mail;
    struct eb_loop *loop;
    void (*act)(struct eb_loop *loop, void *context);
    void *context;
    uv_sem_t done;
};

static void on_errand(struct eb_mail *mail)
{
    struct errand *errand = EB_CONTAINER_OF(mail, struct errand, mail);
    errand->act(errand->loop, errand->context);
    uv_sem_post(&errand->done);
}

void loop_host_act(
    struct eb_loop *loop, void (*act)(struct eb_loop *loop, void *context), void *context)
{
    struct errand errand = {
        .mail = {.deliver = on_errand}, .loop = loop, .act = act, .context = context};
    assert_int_equal(uv_sem_init(&errand.done, 0), 0);
    eb_mailbox_post(eb_loop_mailbox(loop), &errand.mail);
    uv_sem_wait(&errand.done);
    uv_sem_destroy(&errand.done);
}

static void add_taken_bytes(struct eb_loop *loop, void *context)
{
    *(uint64_t *)context +=
        eb_loop_receive_pool(loop)->taken_bytes + eb_loop_answer_pool(loop)->taken_bytes;
}

uint64_t loop_host_taken_bytes(struct loop_host *host)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < LOOP_HOST_LOOPS; i++) {
        loop_host_act(host->loops[i], add_taken_bytes, &bytes);
    }
    return bytes;
}

uint64_t loop_host_conn_count(const struct loop_host *host)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < LOOP_HOST_LOOPS && host->is_created; i++) {
        count += eb_loop_conn_count(host->loops[i]);
    }
    return count;
}

bool loop_host_wait_conns(const struct loop_host *host, uint64_t count, int timeout_ms)
{
    uint64_t deadline_ns = uv_hrtime() + (uint64_t)timeout_ms * 1000000;
    while (loop_host_conn_count(host) != count && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    return loop_host_conn_count(host) == count;
}
