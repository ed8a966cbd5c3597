#include "server/admin/web.h"

#include "server/admin/web_client.h"
#include "server/net/listener.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Connections' times are looked at so often, of their shortest. */
#define TICKS_OF_REQUEST 10
/* libmicrohttpd writes an answer within some runs; those who go on asking do not delay the end. */
#define LAST_RUNS_MAX 16

struct eb_web {
    uv_loop_t uv;
    uv_thread_t thread;
    struct eb_mailbox mailbox;
    struct eb_mail end_mail;
    uv_timer_t tick;  /* active while there are connections */
    uv_timer_t again; /* libmicrohttpd has more to do at once */
    uv_poll_t events; /* of all connections */
    bool has_uv;
    bool has_mailbox; /* and timers */
    bool has_events;
    bool has_thread;
    struct MHD_Daemon *daemon;
    size_t listener_count;
    struct eb_listener listeners[EB_ADDRESS_RESOLVED_MAX];
    struct eb_web_clients clients;
};

/* ---- libmicrohttpd on the loop ---- */

static void on_again(uv_timer_t *again);

/* Lets it do all that can be done now. Where it wants to run again at once it does so after
 * whatever else has come: libuv would not look at that before a timer of 0 ms that is started again
 * and again, for as long as a client asks without a pause. */
static void run_daemon(struct eb_web *web)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;
    (void)MHD_run(web->daemon);
    if (MHD_get_timeout(web->daemon, &wait_ms) == MHD_YES) {
        uv_timer_start(&web->again, on_again, wait_ms > 0 ? wait_ms : 1, 0);
    } else {
        uv_timer_stop(&web->again);
    }
}

static void on_again(uv_timer_t *again)
{
    run_daemon(again->data);
}

static void on_events(uv_poll_t *events, int status, int which)
{
    (void)status;
    (void)which;
    run_daemon(events->data);
}

/* ---- connections ---- */

static void on_tick(uv_timer_t *tick)
{
    struct eb_web *web = tick->data;
    if (!eb_web_client_look(&web->clients)) {
        uv_timer_stop(tick);
    }
    for (size_t i = 0; i < web->listener_count; i++) {
        eb_listener_resume(&web->listeners[i]);
    }
    run_daemon(web);
}

/* Where there is nobody to look after it does not tick. */
static void start_ticks(struct eb_web *web)
{
    if (!uv_is_active((uv_handle_t *)&web->tick)) {
        const uint64_t tick_ms = web->clients.times.request_ms / TICKS_OF_REQUEST;
        uv_timer_start(&web->tick, on_tick, tick_ms, tick_ms);
    }
}

static void on_accept(struct eb_listener *listener, int socket)
{
    struct eb_web *web = listener->context;
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    if (getpeername(socket, (struct sockaddr *)&peer, &size) != 0) {
        (void)close(socket);
        return;
    }
    if (eb_web_client_make_room(&web->clients)) {
        (void)MHD_run(web->daemon); /* Sees that one has gone. */
    }
    /* It closes the socket where it does not take it. */
    (void)MHD_add_connection(web->daemon, socket, (struct sockaddr *)&peer, size);
    start_ticks(web);
    run_daemon(web);
}

/* The listener rests until the next tick. */
static void on_exhausted(struct eb_listener *listener)
{
    start_ticks(listener->context);
}

/* ---- life ---- */

static void close_handles(struct eb_web *web)
{
    for (size_t i = 0; i < web->listener_count; i++) {
        eb_listener_stop(&web->listeners[i]);
    }
    if (web->has_events) {
        uv_close((uv_handle_t *)&web->events, NULL);
    }
    if (web->daemon) {
        MHD_stop_daemon(web->daemon);
    }
    if (web->has_mailbox) {
        uv_close((uv_handle_t *)&web->tick, NULL);
        uv_close((uv_handle_t *)&web->again, NULL);
        eb_web_client_deinit(&web->clients);
        eb_mailbox_close(&web->mailbox);
    }
}

static struct eb_web *web_of(struct eb_web_clients *clients)
{
    return (struct eb_web *)((char *)clients - offsetof(struct eb_web, clients));
}

static void on_resumed(struct eb_web_clients *clients)
{
    run_daemon(web_of(clients));
}

/* What was answered last goes out, as far as sockets take it at once. */
static void on_ended(struct eb_web_clients *clients)
{
    struct eb_web *web = web_of(clients);
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    for (int i = 0; i < LAST_RUNS_MAX && wait_ms == 0; i++) {
        (void)MHD_run(web->daemon);
        wait_ms = MHD_get_timeout(web->daemon, &wait_ms) == MHD_YES ? wait_ms : 1;
    }
    close_handles(web);
}

static void on_end_mail(struct eb_mail *mail)
{
    struct eb_web *web = (struct eb_web *)((char *)mail - offsetof(struct eb_web, end_mail));
    eb_web_client_end(&web->clients);
}

static void run_thread(void *context)
{
    struct eb_web *web = context;
    uv_run(&web->uv, UV_RUN_DEFAULT);
}

static int open_handles(struct eb_web *web)
{
    int code = uv_loop_init(&web->uv);
    if (code < 0) {
        return code;
    }
    web->has_uv = true;
    code = eb_mailbox_open(&web->mailbox, &web->uv);
    if (code < 0) {
        return code;
    }
    web->has_mailbox = true;
    uv_timer_init(&web->uv, &web->tick);
    uv_timer_init(&web->uv, &web->again);
    eb_web_client_init(&web->clients);
    web->tick.data = web;
    web->again.data = web;
    return 0;
}

static int open_daemon(struct eb_web *web)
{
    web->daemon = eb_web_client_start(&web->clients);
    if (!web->daemon) {
        return -errno;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(web->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int code = uv_poll_init(&web->uv, &web->events, info->epoll_fd);
    if (code < 0) {
        return code;
    }
    web->has_events = true;
    web->events.data = web;
    return uv_poll_start(&web->events, UV_READABLE, on_events);
}

/* Closes what is there of a web whose thread does not run. */
static void destroy(struct eb_web *web)
{
    if (web->has_uv) {
        if (!web->has_thread) {
            close_handles(web);
            uv_run(&web->uv, UV_RUN_DEFAULT);
        }
        int code = uv_loop_close(&web->uv);
        assert(code == 0);
        (void)code;
    }
    free(web);
}

static bool listen_on(
    struct eb_web *web, const struct eb_address *address, char *why, size_t why_bytes)
{
    struct eb_listener *listener = &web->listeners[web->listener_count];
    char step[128];
    int code = eb_listener_open(
        listener, address, (struct eb_listener_options){.probe = true}, step, sizeof step);
    if (code == 0) {
        listener->context = web;
        listener->on_accept = on_accept;
        listener->on_exhausted = on_exhausted;
        code = eb_listener_start(listener, &web->uv);
        if (code < 0) {
            snprintf(step, sizeof step, "%s", uv_strerror(code));
            eb_listener_close(listener);
        }
    }
    if (code < 0) {
        char text[EB_ADDRESS_TEXT_BYTES];
        eb_address_format(address, text);
        snprintf(why, why_bytes, "%s: %s", text, step);
        return false;
    }
    web->listener_count++;
    return true;
}

/* All but the addresses and the thread. */
static struct eb_web *create(const struct eb_web_options *options, char *why, size_t why_bytes)
{
    struct eb_web *web = calloc(1, sizeof *web);
    int code = UV_ENOMEM;
    if (web) {
        web->clients = (struct eb_web_clients){.facts = options->facts,
            .times = options->times,
            .source = options->source,
            .uv = &web->uv,
            .on_resumed = on_resumed,
            .on_ended = on_ended};
        web->end_mail.deliver = on_end_mail;
        code = open_handles(web);
        code = code < 0 ? code : open_daemon(web);
    }
    if (code < 0) {
        snprintf(why, why_bytes, "%s", uv_strerror(code));
        if (web) {
            destroy(web);
        }
        return NULL;
    }
    return web;
}

struct eb_web *eb_web_open(const struct eb_web_options *options, char *why, size_t why_bytes)
{
    assert(options->address_count <= EB_ADDRESS_RESOLVED_MAX);
    struct eb_web *web = create(options, why, why_bytes);
    bool is_listening = web;
    for (size_t i = 0; is_listening && i < options->address_count; i++) {
        is_listening = listen_on(web, &options->addresses[i], why, why_bytes);
    }
    if (is_listening) {
        options->source.open(options->source.taker, &web->mailbox);
        int code = uv_thread_create(&web->thread, run_thread, web);
        if (code == 0) {
            web->has_thread = true;
            return web;
        }
        snprintf(why, why_bytes, "its thread: %s", uv_strerror(code));
    }
    if (web) {
        destroy(web);
    }
    return NULL;
}

const struct eb_address *eb_web_address(const struct eb_web *web, size_t index)
{
    return index < web->listener_count ? &web->listeners[index].address : NULL;
}

struct eb_mailbox *eb_web_mailbox(struct eb_web *web)
{
    return &web->mailbox;
}

void eb_web_close(struct eb_web *web)
{
    if (!web) {
        return;
    }
    eb_mailbox_post(&web->mailbox, &web->end_mail);
    uv_thread_join(&web->thread);
    destroy(web);
}
