#include "server/admin/web_client.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* A connection, and the request that is read or answered on it. */
struct eb_web_client {
    struct eb_web_clients *all;
    struct eb_web_client *next; /* of all connections */
    struct eb_web_client **link;
    struct MHD_Connection *connection;
    uint64_t since_ms;    /* its last answer, or its beginning */
    uint64_t deadline_ms; /* while it does not wait for stats */
    bool is_local;        /* it came over an address of this machine */
    bool is_waiting;      /* and suspended meanwhile */
    enum eb_web_path path;
    struct eb_web_client *next_waiting;
};

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

/* Takes the answer. NULL: no memory. */
static struct MHD_Response *make_response(struct eb_web_answer *answer)
{
    struct MHD_Response *response = NULL;
    if (answer->type) {
        /* libmicrohttpd does not write to it. */
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

/* Takes the answer. MHD_NO: there is no memory, and the connection is to be closed. */
static enum MHD_Result reply(struct eb_web_client *client, struct eb_web_answer answer)
{
    const unsigned code = answer.code;
    struct MHD_Response *response = make_response(&answer);
    if (!response) {
        return MHD_NO;
    }
    enum MHD_Result result = MHD_queue_response(client->connection, code, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- stats ---- */

static void cut(struct eb_web_client *client)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(client->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    (void)shutdown(info->connect_fd, SHUT_RDWR);
}

/* What has no answer is closed. */
static void resume(struct eb_web_client *client, bool has_answer)
{
    client->is_waiting = false;
    client->deadline_ms = uv_now(client->all->uv) + client->all->times.request_ms;
    if (!has_answer) {
        cut(client);
    }
    MHD_resume_connection(client->connection);
}

static struct eb_web_answer say_end(void)
{
    return eb_web_answer_say(MHD_HTTP_SERVICE_UNAVAILABLE, "the server ends\n");
}

/* The same, a constant, for all that are on the list, which is empty then. */
static void say_to_all(struct eb_web_waiters *waiters, struct eb_web_answer answer)
{
    struct eb_web_client *next;
    for (struct eb_web_client *client = waiters->last; client; client = next) {
        next = client->next_waiting;
        resume(client, reply(client, answer) == MHD_YES);
    }
    *waiters = (struct eb_web_waiters){0};
}

/* One text for each path, however many ask for it. */
static void answer_asked(struct eb_web_clients *all, const struct eb_stats *stats)
{
    struct MHD_Response *responses[EB_WEB_PATH_COUNT] = {0};
    struct eb_web_client *next;
    for (struct eb_web_client *client = all->asked.last; client; client = next) {
        struct MHD_Response **response = &responses[client->path];
        next = client->next_waiting;
        if (!*response) {
            struct eb_web_answer answer =
                eb_web_answer_make(client->path, &all->facts, stats->phase, stats);
            *response = make_response(&answer);
        }
        resume(client,
            *response && MHD_queue_response(client->connection, MHD_HTTP_OK, *response) == MHD_YES);
    }
    all->asked = (struct eb_web_waiters){0};
    for (int path = 0; path < EB_WEB_PATH_COUNT; path++) {
        if (responses[path]) {
            MHD_destroy_response(responses[path]);
        }
    }
}

static void on_pause_over(uv_timer_t *pause)
{
    struct eb_web_clients *all = pause->data;
    all->asked = all->waiting;
    all->waiting = (struct eb_web_waiters){0};
    all->is_asking = true;
    all->next_stats_ms = uv_now(all->uv) + all->times.interval_ms;
    all->request.is_bare = !all->asked.is_whole;
    all->source.ask(all->source.taker, &all->request);
}

/* Has the next stats taken where anybody waits for it: never within a callback of libmicrohttpd,
 * for it may be taken at once. */
static void ask_soon(struct eb_web_clients *all)
{
    const uint64_t now_ms = uv_now(all->uv);
    if (!all->is_asking && all->waiting.last) {
        const uint64_t wait_ms = now_ms < all->next_stats_ms ? all->next_stats_ms - now_ms : 0;
        uv_timer_start(&all->pause, on_pause_over, wait_ms, 0);
    }
}

static void on_stats(struct eb_stats_request *request, struct eb_stats *stats)
{
    struct eb_web_clients *all =
        (struct eb_web_clients *)((char *)request - offsetof(struct eb_web_clients, request));
    all->is_asking = false;
    if (stats) {
        answer_asked(all, stats);
    } else {
        say_to_all(&all->asked,
            eb_web_answer_say(MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory, or ending\n"));
    }
    eb_stats_free(stats);
    if (all->is_ending) {
        all->on_ended(all);
        return;
    }
    ask_soon(all);
    all->on_resumed(all);
}

static enum MHD_Result wait_for_stats(struct eb_web_client *client)
{
    struct eb_web_clients *all = client->all;
    if (all->is_ending) {
        return reply(client, say_end());
    }
    if (!all->waiting.last) {
        all->waiting.deadline_ms = uv_now(all->uv) + all->times.stats_ms;
    }
    all->waiting.is_whole |= eb_web_path_need(client->path) == EB_WEB_NEEDS_COUNTS;
    client->next_waiting = all->waiting.last;
    all->waiting.last = client;
    client->is_waiting = true;
    MHD_suspend_connection(client->connection);
    ask_soon(all);
    return MHD_YES;
}

/* ---- requests ---- */

static struct eb_web_client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info->socket_context;
}

static enum MHD_Result answer_path(struct eb_web_client *client, const char *path)
{
    struct eb_web_clients *all = client->all;
    const char *host =
        MHD_lookup_connection_value(client->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    if (client->is_local && eb_web_answer_suspects_host(host)) {
        return reply(client, eb_web_answer_say(MHD_HTTP_MISDIRECTED_REQUEST,
                                 "this port answers at an address or as localhost only, not under "
                                 "the name in the Host header\n"));
    }
    client->path = eb_web_path_find(path);
    if (client->path == EB_WEB_PATH_COUNT) {
        return reply(client, eb_web_answer_no_path());
    }
    if (eb_web_path_need(client->path) != EB_WEB_NEEDS_NOTHING) {
        return wait_for_stats(client);
    }
    return reply(client,
        eb_web_answer_make(client->path, &all->facts, all->source.phase(all->source.taker), NULL));
}

/* Counts a Host header. Stops at the second. */
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
 * proxy in front of the server may have judged the request by another. */
static bool has_many_hosts(struct MHD_Connection *connection)
{
    unsigned host_count = 0;
    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, on_header, &host_count);
    return host_count > 1;
}

/* Called when a request's headers have come, for each part of a body, which is passed over, and at
 * its end. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
    const char *path, const char *method, const char *version, const char *body, size_t *body_bytes,
    void **state)
{
    struct eb_web_client *client = client_of(connection);
    (void)context;
    (void)version;
    (void)body;
    if (!client) {
        return MHD_NO;
    }
    if (!*state && has_many_hosts(connection)) {
        return reply(client, eb_web_answer_say(MHD_HTTP_BAD_REQUEST,
                                 "the request has more than one Host header; send one\n"));
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return reply(client,
            eb_web_answer_say(MHD_HTTP_METHOD_NOT_ALLOWED, "this port knows GET and HEAD\n"));
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

/* A request line has come. */
static void *on_request_line(void *context, const char *line, struct MHD_Connection *connection)
{
    struct eb_web_client *client = client_of(connection);
    (void)context;
    (void)line;
    if (client) {
        client->deadline_ms = uv_now(client->all->uv) + client->all->times.request_ms;
    }
    return NULL;
}

static void on_answered(void *context, struct MHD_Connection *connection, void **state,
    enum MHD_RequestTerminationCode how)
{
    struct eb_web_client *client = client_of(connection);
    (void)context;
    (void)state;
    (void)how;
    if (client) {
        client->since_ms = uv_now(client->all->uv);
        client->deadline_ms = client->since_ms + client->all->times.idle_ms;
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

/* Where it cannot be told the connection is taken for one from here. */
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
    struct eb_web_clients *all, struct MHD_Connection *connection, void **socket_context)
{
    struct eb_web_client *client = calloc(1, sizeof *client);
    *socket_context = client; /* without one its first request ends it */
    if (!client) {
        return;
    }
    *client = (struct eb_web_client){.all = all,
        .connection = connection,
        .next = all->first,
        .link = &all->first,
        .since_ms = uv_now(all->uv),
        .deadline_ms = uv_now(all->uv) + all->times.request_ms,
        .is_local = came_over_loopback(connection)};
    if (client->next) {
        client->next->link = &client->next;
    }
    all->first = client;
}

static void close_client(struct eb_web_client *client)
{
    *client->link = client->next;
    if (client->next) {
        client->next->link = client->link;
    }
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

/* ---- life ---- */

void eb_web_client_init(struct eb_web_clients *all)
{
    uv_timer_init(all->uv, &all->pause);
    all->pause.data = all;
    all->request.on_taken = on_stats;
}

struct MHD_Daemon *eb_web_client_start(struct eb_web_clients *all)
{
    errno = ENOMEM;
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0,
        NULL, NULL, on_request, all, MHD_OPTION_NOTIFY_CONNECTION, on_connection, all,
        MHD_OPTION_URI_LOG_CALLBACK, on_request_line, all, MHD_OPTION_NOTIFY_COMPLETED, on_answered,
        all, MHD_OPTION_CONNECTION_LIMIT, (unsigned)EB_WEB_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)EB_WEB_CONNECTION_BYTES,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
}

bool eb_web_client_look(struct eb_web_clients *all)
{
    const uint64_t now_ms = uv_now(all->uv);
    struct eb_web_waiters *const lists[] = {&all->asked, &all->waiting};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i]->last && now_ms > lists[i]->deadline_ms) {
            say_to_all(lists[i], eb_web_answer_say(MHD_HTTP_SERVICE_UNAVAILABLE,
                                     "the server's loops do not answer\n"));
        }
    }
    for (struct eb_web_client *client = all->first; client; client = client->next) {
        if (!client->is_waiting && now_ms > client->deadline_ms) {
            cut(client);
        }
    }
    return all->first;
}

bool eb_web_client_make_room(struct eb_web_clients *all)
{
    size_t count = 0;
    struct eb_web_client *oldest = NULL;
    for (struct eb_web_client *client = all->first; client; client = client->next) {
        count++;
        /* Who waits for stats does not wait for long, and is not seen to go. */
        if (!client->is_waiting && (!oldest || client->since_ms <= oldest->since_ms)) {
            oldest = client;
        }
    }
    if (count < EB_WEB_CONNECTIONS_MAX || !oldest) {
        return false;
    }
    cut(oldest);
    return true;
}

void eb_web_client_end(struct eb_web_clients *all)
{
    all->is_ending = true;
    uv_timer_stop(&all->pause);
    say_to_all(&all->waiting, say_end());
    if (!all->is_asking) {
        all->on_ended(all);
        return;
    }
    all->on_resumed(all);
}

void eb_web_client_deinit(struct eb_web_clients *all)
{
    uv_close((uv_handle_t *)&all->pause, NULL);
}
