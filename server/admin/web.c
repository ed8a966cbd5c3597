#include "server/admin/web.h"

#include "server/net/listener.h"

#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* Number of ticks within the shortest time limit of a connection. */
#define TICKS_OF_REQUEST 10
/* Most runs of libmicrohttpd at the end. It writes an answer within a few; clients that keep asking
 * must not delay the end. */
#define LAST_RUNS_MAX 16

/* A connection, and the request that is being read or answered on it. */
struct web_client {
    struct eb_list link; /* in eb_web.clients, the newest last */
    struct eb_web *web;
    struct MHD_Connection *connection;
    uint64_t since_ms;    /* when its last answer was sent, or when it was opened if none was */
    uint64_t deadline_ms; /* not checked while it waits for stats */
    bool is_local;        /* whether it came over a loopback address */
    bool is_waiting;      /* whether it is suspended until stats are taken */
    enum eb_web_path path;
    struct web_client *next_waiting;
};

/* Clients that wait for the same stats. */
struct web_waiters {
    struct web_client *last;
    bool is_whole;        /* whether at least one of them needs counts */
    uint64_t deadline_ms; /* the earliest deadline among them */
};

struct eb_web {
    struct eb_web_facts facts;
    struct eb_web_times times;
    struct eb_stats_collector *collector;
    uv_loop_t uv;
    uv_thread_t thread;
    struct eb_mailbox mailbox;
    struct eb_mail end_mail;
    uv_timer_t tick;  /* active while there are connections */
    uv_timer_t again; /* active while libmicrohttpd has more to do */
    uv_timer_t pause; /* active until the next stats are requested */
    uv_poll_t events; /* of the sockets of all connections */
    bool has_uv;
    bool has_mailbox; /* whether the mailbox and the timers are open */
    bool has_events;
    bool has_thread;
    bool is_asking; /* whether the collector has the request */
    bool is_ending;
    struct MHD_Daemon *daemon;
    size_t listener_count;
    struct eb_listener listeners[EB_ADDRESS_RESOLVED_MAX];
    struct eb_list clients;
    struct eb_stats_request request;
    uint64_t next_stats_ms;
    struct web_waiters asked;   /* clients that wait for the stats that are being taken */
    struct web_waiters waiting; /* clients that wait for the next stats */
};

/* ---- libmicrohttpd on the loop ---- */

static void on_again(uv_timer_t *again);

/* Lets libmicrohttpd do everything that can be done now. If it wants to run again at once, it does
 * so after 1 ms. If a timer of 0 ms were started again and again instead, libuv would handle no
 * other event while a client sends requests without a pause. */
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

/* ---- answers ---- */

static const struct {
    const char *name;
    const char *value;
} headers[] = {
    {"Cache-Control", "no-store"},
    {"Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
        "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Referrer-Policy", "no-referrer"},
    {"X-Content-Type-Options", "nosniff"},
};

/* Makes a response. Takes the answer. Returns NULL if out of memory. */
static struct MHD_Response *make_response(struct eb_web_answer *answer)
{
    struct MHD_Response *response = NULL;
    if (answer->type) {
        /* libmicrohttpd does not write to the text. */
        char *text = answer->owned ? answer->owned : (char *)(uintptr_t)answer->text;
        response = MHD_create_response_from_buffer(
            answer->size, text, answer->owned ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    }
    if (!response) {
        eb_web_answer_deinit(answer);
        return NULL;
    }
    bool has_headers = MHD_add_response_header(response, "Content-Type", answer->type) == MHD_YES;
    if (answer->code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        has_headers &= MHD_add_response_header(response, "Allow", "GET, HEAD") == MHD_YES;
    }
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        has_headers &=
            MHD_add_response_header(response, headers[i].name, headers[i].value) == MHD_YES;
    }
    if (!has_headers) {
        MHD_destroy_response(response);
        return NULL;
    }
    return response;
}

/* Queues the answer, which it takes. Returns MHD_NO if out of memory; the connection must then be
 * closed. */
static enum MHD_Result queue_answer(struct web_client *client, struct eb_web_answer answer)
{
    unsigned code = answer.code;
    struct MHD_Response *response = make_response(&answer);
    if (!response) {
        return MHD_NO;
    }
    enum MHD_Result result = MHD_queue_response(client->connection, code, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- stats ---- */

static void cut_client(struct web_client *client)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(client->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    (void)shutdown(info->connect_fd, SHUT_RDWR);
}

/* Resumes a suspended client. Closes it if it has no answer. */
static void resume_client(struct web_client *client, bool has_answer)
{
    client->is_waiting = false;
    client->deadline_ms = uv_now(&client->web->uv) + client->web->times.request_ms;
    if (!has_answer) {
        cut_client(client);
    }
    MHD_resume_connection(client->connection);
}

static struct eb_web_answer say_end(void)
{
    return eb_web_answer_say(MHD_HTTP_SERVICE_UNAVAILABLE, "the server is shutting down\n");
}

/* Sends all waiting clients the same constant answer, and empties the list. */
static void say_to_all(struct web_waiters *waiters, struct eb_web_answer answer)
{
    struct web_client *next;
    for (struct web_client *client = waiters->last; client; client = next) {
        next = client->next_waiting;
        resume_client(client, queue_answer(client, answer) == MHD_YES);
    }
    *waiters = (struct web_waiters){0};
}

/* Answers the clients that wait for these stats. Makes one text for each path, however many clients
 * ask for it. */
static void answer_asked(struct eb_web *web, const struct eb_stats *stats)
{
    struct MHD_Response *responses[EB_WEB_PATH_COUNT] = {0};
    struct web_client *next;
    for (struct web_client *client = web->asked.last; client; client = next) {
        struct MHD_Response **response = &responses[client->path];
        next = client->next_waiting;
        if (!*response) {
            struct eb_web_answer answer =
                eb_web_answer_make(client->path, &web->facts, stats->phase, NULL, stats);
            *response = make_response(&answer);
        }
        resume_client(client,
            *response && MHD_queue_response(client->connection, MHD_HTTP_OK, *response) == MHD_YES);
    }
    web->asked = (struct web_waiters){0};
    for (int path = 0; path < EB_WEB_PATH_COUNT; path++) {
        if (responses[path]) {
            MHD_destroy_response(responses[path]);
        }
    }
}

static void on_pause_over(uv_timer_t *pause)
{
    struct eb_web *web = pause->data;
    web->asked = web->waiting;
    web->waiting = (struct web_waiters){0};
    web->is_asking = true;
    web->next_stats_ms = uv_now(&web->uv) + web->times.interval_ms;
    web->request.is_bare = !web->asked.is_whole;
    eb_stats_collector_request(web->collector, &web->request);
}

/* Requests the next stats if any client waits for them. Does so with a timer: stats may be taken at
 * once, which must not happen within a callback of libmicrohttpd. */
static void request_stats_soon(struct eb_web *web)
{
    uint64_t now_ms = uv_now(&web->uv);
    if (!web->is_asking && web->waiting.last) {
        uint64_t wait_ms = now_ms < web->next_stats_ms ? web->next_stats_ms - now_ms : 0;
        uv_timer_start(&web->pause, on_pause_over, wait_ms, 0);
    }
}

static void finish_end(struct eb_web *web);

static void on_stats(struct eb_stats_request *request, struct eb_stats *stats)
{
    struct eb_web *web = EB_CONTAINER_OF(request, struct eb_web, request);
    web->is_asking = false;
    if (stats) {
        answer_asked(web, stats);
    } else {
        say_to_all(&web->asked,
            eb_web_answer_say(MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory or shutting down\n"));
    }
    eb_stats_free(stats);
    if (web->is_ending) {
        finish_end(web);
        return;
    }
    request_stats_soon(web);
    run_daemon(web);
}

static enum MHD_Result wait_for_stats(struct web_client *client)
{
    struct eb_web *web = client->web;
    if (web->is_ending) {
        return queue_answer(client, say_end());
    }
    if (!web->waiting.last) {
        web->waiting.deadline_ms = uv_now(&web->uv) + web->times.stats_ms;
    }
    web->waiting.is_whole |= eb_web_path_need(client->path) == EB_WEB_NEEDS_COUNTS;
    client->next_waiting = web->waiting.last;
    web->waiting.last = client;
    client->is_waiting = true;
    MHD_suspend_connection(client->connection);
    request_stats_soon(web);
    return MHD_YES;
}

/* ---- requests ---- */

static struct web_client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info->socket_context;
}

static enum MHD_Result answer_path(struct web_client *client, const char *path)
{
    struct eb_web *web = client->web;
    const char *host =
        MHD_lookup_connection_value(client->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    if (client->is_local && eb_web_answer_suspects_host(host)) {
        return queue_answer(
            client, eb_web_answer_say(MHD_HTTP_MISDIRECTED_REQUEST,
                        "the Host header holds a name that this port does not answer to; use an "
                        "IP address or localhost\n"));
    }
    client->path = eb_web_path_find(path);
    if (client->path == EB_WEB_PATH_COUNT) {
        return queue_answer(client, eb_web_answer_no_path());
    }
    if (eb_web_path_need(client->path) != EB_WEB_NEEDS_NOTHING) {
        return wait_for_stats(client);
    }
    return queue_answer(client,
        eb_web_answer_make(client->path, &web->facts, eb_stats_collector_phase(web->collector),
            eb_stats_collector_not_ready(web->collector), NULL));
}

/* Counts the Host headers. Stops at the second. */
static enum MHD_Result on_header(
    void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    unsigned *host_count = context;
    (void)kind;
    (void)value;
    *host_count += strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
    return *host_count > 1 ? MHD_NO : MHD_YES;
}

/* Returns whether there is more than one Host header. libmicrohttpd returns only the first, and a
 * proxy in front of the server may have checked another. */
static bool has_many_hosts(struct MHD_Connection *connection)
{
    unsigned host_count = 0;
    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, on_header, &host_count);
    return host_count > 1;
}

/* Handles a request. libmicrohttpd calls this when the headers have come, for each part of a body
 * (which is ignored), and at the end. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
    const char *path, const char *method, const char *version, const char *body, size_t *body_bytes,
    void **state)
{
    struct web_client *client = client_of(connection);
    (void)context;
    (void)version;
    (void)body;
    if (!client) {
        return MHD_NO;
    }
    if (!*state && has_many_hosts(connection)) {
        return queue_answer(
            client, eb_web_answer_say(MHD_HTTP_BAD_REQUEST,
                        "the request has more than one Host header; send only one\n"));
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return queue_answer(client, eb_web_answer_say(MHD_HTTP_METHOD_NOT_ALLOWED,
                                        "method not allowed; use GET or HEAD\n"));
    }
    if (!*state) {
        *state = client;
        return MHD_YES;
    }
    if (*body_bytes > 0) {
        *body_bytes = 0;
        return MHD_YES;
    }
    return answer_path(client, path);
}

/* Notes that the first line of a request has come. */
static void *on_request_line(void *context, const char *line, struct MHD_Connection *connection)
{
    struct web_client *client = client_of(connection);
    (void)context;
    (void)line;
    if (client) {
        client->deadline_ms = uv_now(&client->web->uv) + client->web->times.request_ms;
    }
    return NULL;
}

static void on_answered(void *context, struct MHD_Connection *connection, void **state,
    enum MHD_RequestTerminationCode how)
{
    struct web_client *client = client_of(connection);
    (void)context;
    (void)state;
    (void)how;
    if (client) {
        client->since_ms = uv_now(&client->web->uv);
        client->deadline_ms = client->since_ms + client->web->times.idle_ms;
    }
}

/* ---- connections ---- */

static bool is_loopback(const struct sockaddr_storage *address)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (address->ss_family == AF_INET) {
        memcpy(&v4, address, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    memcpy(&v6, address, sizeof v6);
    return address->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

/* Returns whether the connection came over a loopback address, or if that cannot be found out. */
static bool came_over_loopback(struct MHD_Connection *connection)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return getsockname(info->connect_fd, (struct sockaddr *)&address, &size) != 0 ||
           is_loopback(&address);
}

static void open_client(
    struct eb_web *web, struct MHD_Connection *connection, void **socket_context)
{
    struct web_client *client = calloc(1, sizeof *client);
    *socket_context = client; /* NULL if out of memory; the first request then ends it */
    if (!client) {
        return;
    }
    *client = (struct web_client){.web = web,
        .connection = connection,
        .since_ms = uv_now(&web->uv),
        .deadline_ms = uv_now(&web->uv) + web->times.request_ms,
        .is_local = came_over_loopback(connection)};
    eb_list_push(&web->clients, &client->link);
}

static void close_client(struct web_client *client)
{
    eb_list_remove(&client->link);
    free(client);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
    enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        open_client(context, connection, socket_context);
    } else if (*socket_context) {
        close_client(*socket_context);
    }
}

static struct web_client *client_of_link(struct eb_list *link)
{
    return EB_CONTAINER_OF(link, struct web_client, link);
}

/* Closes connections whose time is over, and tells clients that have waited too long that the loops
 * do not answer. Must be called before libmicrohttpd runs. */
static void end_late_clients(struct eb_web *web)
{
    uint64_t now_ms = uv_now(&web->uv);
    struct web_waiters *const lists[] = {&web->asked, &web->waiting};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i]->last && now_ms > lists[i]->deadline_ms) {
            say_to_all(lists[i], eb_web_answer_say(MHD_HTTP_SERVICE_UNAVAILABLE,
                                     "the server's event loops do not respond\n"));
        }
    }
    for (struct eb_list *link = web->clients.next; link != &web->clients; link = link->next) {
        struct web_client *client = client_of_link(link);
        if (!client->is_waiting && now_ms > client->deadline_ms) {
            cut_client(client);
        }
    }
}

/* Closes a client if there are EB_WEB_CONNECTIONS_MAX: the one that has gone longest since its last
 * answer, or since it was opened. */
static void make_room(struct eb_web *web)
{
    size_t count = 0;
    struct web_client *oldest = NULL;
    for (struct eb_list *link = web->clients.next; link != &web->clients; link = link->next) {
        struct web_client *client = client_of_link(link);
        count++;
        /* Spare clients that wait for stats: they do not wait long, and libmicrohttpd would not
         * notice their end. */
        if (!client->is_waiting && (!oldest || client->since_ms < oldest->since_ms)) {
            oldest = client;
        }
    }
    if (count < EB_WEB_CONNECTIONS_MAX || !oldest) {
        return;
    }
    cut_client(oldest);
    (void)MHD_run(web->daemon); /* libmicrohttpd notices the end here. */
}

static void on_tick(uv_timer_t *tick)
{
    struct eb_web *web = tick->data;
    end_late_clients(web);
    if (eb_list_is_empty(&web->clients)) {
        uv_timer_stop(tick);
    }
    for (size_t i = 0; i < web->listener_count; i++) {
        eb_listener_resume(&web->listeners[i]);
    }
    run_daemon(web);
}

/* Starts the tick timer. It runs only while there are connections, or while a listener rests until
 * the next tick. */
static void start_ticks(struct eb_web *web)
{
    if (!uv_is_active((uv_handle_t *)&web->tick)) {
        uint64_t tick_ms = web->times.request_ms / TICKS_OF_REQUEST;
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
    make_room(web);
    /* If libmicrohttpd does not take the socket, it closes it. */
    (void)MHD_add_connection(web->daemon, socket, (struct sockaddr *)&peer, size);
    start_ticks(web);
    run_daemon(web);
}

/* Lets the listener rest until the next tick. */
static void on_exhausted(struct eb_listener *listener)
{
    start_ticks(listener->context);
}

/* ---- life ---- */

static void close_web_handles(struct eb_web *web)
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
        uv_close((uv_handle_t *)&web->pause, NULL);
        eb_mailbox_close(&web->mailbox);
    }
}

/* Ends the web server after the last stats have been answered. Writes as much of these answers as
 * the sockets take at once. */
static void finish_end(struct eb_web *web)
{
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    for (int i = 0; i < LAST_RUNS_MAX && wait_ms == 0; i++) {
        (void)MHD_run(web->daemon);
        wait_ms = MHD_get_timeout(web->daemon, &wait_ms) == MHD_YES ? wait_ms : 1;
    }
    close_web_handles(web);
}

/* Begins the end. Clients whose stats are not being taken yet get 503, as do clients that come from
 * now on. */
static void on_end_mail(struct eb_mail *mail)
{
    struct eb_web *web = EB_CONTAINER_OF(mail, struct eb_web, end_mail);
    web->is_ending = true;
    uv_timer_stop(&web->pause);
    say_to_all(&web->waiting, say_end());
    if (web->is_asking) {
        run_daemon(web);
    } else {
        finish_end(web);
    }
}

static void run_thread(void *context)
{
    struct eb_web *web = context;
    uv_run(&web->uv, UV_RUN_DEFAULT);
}

static int open_web_handles(struct eb_web *web)
{
    int rc = uv_loop_init(&web->uv);
    if (rc < 0) {
        return rc;
    }
    web->has_uv = true;
    rc = eb_mailbox_open(&web->mailbox, &web->uv);
    if (rc < 0) {
        return rc;
    }
    web->has_mailbox = true;
    uv_timer_init(&web->uv, &web->tick);
    uv_timer_init(&web->uv, &web->again);
    uv_timer_init(&web->uv, &web->pause);
    web->tick.data = web;
    web->again.data = web;
    web->pause.data = web;
    return 0;
}

static int open_daemon(struct eb_web *web)
{
    errno = ENOMEM;
    web->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0,
            NULL, NULL, on_request, web, MHD_OPTION_NOTIFY_CONNECTION, on_connection, web,
            MHD_OPTION_URI_LOG_CALLBACK, on_request_line, web, MHD_OPTION_NOTIFY_COMPLETED,
            on_answered, web, MHD_OPTION_CONNECTION_LIMIT, (unsigned)EB_WEB_CONNECTIONS_MAX,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)EB_WEB_CONNECTION_BYTES,
            MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (!web->daemon) {
        return -errno;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(web->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int rc = uv_poll_init(&web->uv, &web->events, info->epoll_fd);
    if (rc < 0) {
        return rc;
    }
    web->has_events = true;
    web->events.data = web;
    return uv_poll_start(&web->events, UV_READABLE, on_events);
}

/* Closes everything of a web server whose thread is not running. */
static void destroy_web(struct eb_web *web)
{
    if (web->has_uv) {
        if (!web->has_thread) {
            close_web_handles(web);
            uv_run(&web->uv, UV_RUN_DEFAULT);
        }
        int rc = uv_loop_close(&web->uv);
        assert(rc == 0);
    }
    free(web);
}

static bool open_listener(
    struct eb_web *web, const struct eb_address *address, struct eb_failure *failure)
{
    struct eb_listener *listener = &web->listeners[web->listener_count];
    struct eb_failure step;
    int rc =
        eb_listener_open(listener, address, (struct eb_listener_options){.probe = true}, &step);
    if (rc == 0) {
        listener->context = web;
        listener->on_accept = on_accept;
        listener->on_exhausted = on_exhausted;
        rc = eb_listener_start(listener, &web->uv);
        if (rc < 0) {
            eb_failure_set(&step, "%s", uv_strerror(rc));
            eb_listener_close(listener);
        }
    }
    if (rc < 0) {
        char text[EB_ADDRESS_TEXT_BYTES];
        eb_address_format(address, text);
        return eb_failure_set(failure, "%s: %s", text, step.text);
    }
    web->listener_count++;
    return true;
}

/* Opens everything but the thread. Returns false with *failure set if that failed. */
static bool open_web(
    struct eb_web *web, const struct eb_web_options *options, struct eb_failure *failure)
{
    int rc = open_web_handles(web);
    rc = rc < 0 ? rc : open_daemon(web);
    if (rc < 0) {
        return eb_failure_set(failure, "%s", uv_strerror(rc));
    }
    for (size_t i = 0; i < options->address_count; i++) {
        if (!open_listener(web, &options->addresses[i], failure)) {
            return false;
        }
    }
    return true;
}

struct eb_web *eb_web_open(const struct eb_web_options *options, struct eb_failure *failure)
{
    assert(options->address_count <= EB_ADDRESS_RESOLVED_MAX);
    struct eb_web *web = calloc(1, sizeof *web);
    if (!web) {
        eb_failure_set(failure, "%s", uv_strerror(UV_ENOMEM));
        return NULL;
    }
    web->facts = options->facts;
    web->times = options->times;
    web->collector = options->collector;
    web->end_mail.deliver = on_end_mail;
    web->request.on_taken = on_stats;
    eb_list_init(&web->clients);
    if (!open_web(web, options, failure)) {
        goto destroy;
    }
    eb_stats_collector_open(web->collector, &web->mailbox);
    int rc = uv_thread_create(&web->thread, run_thread, web);
    if (rc < 0) {
        eb_failure_set(failure, "its thread cannot be started: %s", uv_strerror(rc));
        goto destroy;
    }
    web->has_thread = true;
    return web;

destroy:
    destroy_web(web);
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
    destroy_web(web);
}
