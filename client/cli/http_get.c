#include "client/cli/http_get.h"

#include "proto/net/address.h"
#include "server/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* The text read from a connection starts with this much room. */
#define ROOM_BYTES_FIRST 65536
#define REQUEST_BYTES_MAX 2048
#define STATUS_OK 200
#define HEADERS_END "\r\n\r\n"

/* A fetch in progress. */
struct http_fetch {
    const struct eb_http_get_limits *limits;
    struct eb_failure *failure;
    char authority[EB_ADDRESS_GIVEN_BYTES]; /* HOST:PORT */
    char request[REQUEST_BYTES_MAX];
    uint64_t deadline_ms;
    int socket;
    char *text; /* status line, headers and what follows, NUL-terminated */
    size_t bytes;
    size_t room;         /* without the NUL */
    size_t head_bytes;   /* of status line and headers; 0: their end has not come yet */
    uint64_t body_bytes; /* what the headers say; UINT64_MAX: all until the connection's end */
};

/* ---- request ---- */

/* Fills in the authority and the request. */
static bool parse_url(struct http_fetch *fetch, const char *url)
{
    struct eb_endpoint endpoint;
    bool has_prefix = strncmp(url, EB_HTTP_GET_PREFIX, strlen(EB_HTTP_GET_PREFIX)) == 0;
    const char *host = has_prefix ? url + strlen(EB_HTTP_GET_PREFIX) : url;
    size_t host_bytes = strcspn(host, "/?#");
    if (!has_prefix || host_bytes >= sizeof fetch->authority) {
        return eb_failure_set(fetch->failure, "expected " EB_HTTP_GET_PREFIX "HOST:PORT/PATH");
    }
    for (const char *at = host; *at != '\0'; at++) {
        if (*at <= ' ' || *at > '~') {
            return eb_failure_set(
                fetch->failure, "the URL has a character that must be written as %%XX");
        }
    }
    memcpy(fetch->authority, host, host_bytes);
    fetch->authority[host_bytes] = '\0';
    const char *why = eb_endpoint_parse(fetch->authority, 1, &endpoint);
    if (why || endpoint.is_unix) {
        return eb_failure_set(fetch->failure,
            "invalid address \"%s\": expected HOST:PORT between " EB_HTTP_GET_PREFIX
            " and the path",
            fetch->authority);
    }
    const char *path = host + host_bytes;
    int size = snprintf(fetch->request, sizeof fetch->request,
        "GET %s%.*s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n\r\n", path[0] == '/' ? "" : "/",
        (int)strcspn(path, "#"), path, fetch->authority);
    return size < (int)sizeof fetch->request ||
           eb_failure_set(fetch->failure, "the path is too long");
}

/* ---- connection ---- */

static bool fail_late(struct http_fetch *fetch)
{
    return eb_failure_set(
        fetch->failure, "no complete answer came within %" PRIu64 " ms", fetch->limits->timeout_ms);
}

static bool fail_unreachable(struct http_fetch *fetch, int error)
{
    return eb_failure_set(fetch->failure, "it cannot be reached (%s)", strerror(error));
}

/* Waits until the socket has one of the events. Returns false with *failure set when the time is
 * over. */
static bool await_socket(struct http_fetch *fetch, short events)
{
    struct pollfd watched = {.fd = fetch->socket, .events = events};
    for (;;) {
        uint64_t now_ms = eb_clock_steady_ms();
        if (now_ms >= fetch->deadline_ms) {
            return fail_late(fetch);
        }
        int rc = poll(&watched, 1, (int)(fetch->deadline_ms - now_ms));
        if (rc > 0) {
            return true;
        }
        if (rc < 0 && errno != EINTR) {
            return fail_unreachable(fetch, errno);
        }
    }
}

static bool connect_to(struct http_fetch *fetch, const struct eb_address *address)
{
    int error = 0;
    socklen_t size = sizeof error;
    int family = address->socket_address.ss_family;
    fetch->socket = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fetch->socket < 0) {
        return fail_unreachable(fetch, errno);
    }
    const struct sockaddr *name = (const struct sockaddr *)&address->socket_address;
    if (connect(fetch->socket, name, address->size) != 0) {
        if (errno != EINPROGRESS) {
            return fail_unreachable(fetch, errno);
        }
        if (!await_socket(fetch, POLLOUT)) {
            return false;
        }
        if (getsockopt(fetch->socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
            error = errno;
        }
    }
    return error == 0 || fail_unreachable(fetch, error);
}

/* Connects to the first of the host's addresses that answers. Each gets an equal share of the time
 * that is left, so that one that swallows packets does not take the time of the others. */
static bool connect_to_host(struct http_fetch *fetch)
{
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    struct eb_error error;
    size_t count = eb_address_resolve(fetch->authority, addresses, &error);
    if (count == 0) {
        return eb_failure_set(fetch->failure, "%s", error.text);
    }
    uint64_t end_ms = eb_clock_steady_ms() + fetch->limits->timeout_ms;
    for (size_t i = 0; i < count; i++) {
        uint64_t now_ms = eb_clock_steady_ms();
        uint64_t left_ms = now_ms < end_ms ? end_ms - now_ms : 0;
        fetch->deadline_ms = now_ms + left_ms / (count - i);
        if (connect_to(fetch, &addresses[i])) {
            fetch->deadline_ms = end_ms;
            return true;
        }
        if (fetch->socket >= 0) {
            close(fetch->socket);
            fetch->socket = -1;
        }
    }
    return false;
}

static bool send_get(struct http_fetch *fetch)
{
    size_t sent = 0;
    size_t bytes = strlen(fetch->request);
    while (sent < bytes) {
        ssize_t rc = send(fetch->socket, fetch->request + sent, bytes - sent, MSG_NOSIGNAL);
        if (rc >= 0) {
            sent += (size_t)rc;
        } else if (errno != EAGAIN && errno != EINTR) {
            return fail_unreachable(fetch, errno);
        } else if (!await_socket(fetch, POLLOUT)) {
            return false;
        }
    }
    return true;
}

/* ---- answer ---- */

/* Returns the value of a header, or NULL. */
static const char *find_header(const struct http_fetch *fetch, const char *name)
{
    size_t name_bytes = strlen(name);
    const char *end = fetch->text + fetch->head_bytes - strlen(HEADERS_END);
    const char *line = strstr(fetch->text, "\r\n");
    while (line && line < end) {
        line += 2;
        if (strncasecmp(line, name, name_bytes) == 0 && line[name_bytes] == ':') {
            return line + name_bytes + 1 + strspn(line + name_bytes + 1, " \t");
        }
        line = strstr(line, "\r\n");
    }
    return NULL;
}

/* Reads the status and how long the body is, when the headers are complete. */
static bool read_head(struct http_fetch *fetch)
{
    unsigned status = 0;
    if (sscanf(fetch->text, "HTTP/1.%*1[01] %3u", &status) != 1) {
        return eb_failure_set(fetch->failure, "what answers there is not an HTTP server");
    }
    if (status != STATUS_OK) {
        return eb_failure_set(fetch->failure, "the answer has status %u; expected 200", status);
    }
    if (find_header(fetch, "Transfer-Encoding") || find_header(fetch, "Content-Encoding")) {
        return eb_failure_set(fetch->failure,
            "the answer is in chunks or compressed, although that was not requested");
    }
    const char *length = find_header(fetch, "Content-Length");
    if (!length) {
        return true;
    }
    char *end;
    errno = 0;
    fetch->body_bytes = strtoull(length, &end, 10);
    return (end != length && length[0] >= '0' && length[0] <= '9' && errno == 0 &&
               fetch->body_bytes < UINT64_MAX) ||
           eb_failure_set(fetch->failure, "the answer has an invalid Content-Length");
}

/* Looks for the end of the headers in what has been read. */
static bool find_head(struct http_fetch *fetch)
{
    const char *end = strstr(fetch->text, HEADERS_END);
    if (end) {
        fetch->head_bytes = (size_t)(end - fetch->text) + strlen(HEADERS_END);
    }
    size_t bytes = end ? fetch->head_bytes : fetch->bytes;
    if (bytes > EB_HTTP_GET_HEADER_BYTES_MAX) {
        return eb_failure_set(
            fetch->failure, "the headers have more than %d bytes", EB_HTTP_GET_HEADER_BYTES_MAX);
    }
    return !end || read_head(fetch);
}

/* Makes room for more of the answer. */
static bool grow_answer(struct http_fetch *fetch)
{
    if (fetch->bytes < fetch->room) {
        return true;
    }
    size_t room = fetch->room > 0 ? 2 * fetch->room : ROOM_BYTES_FIRST;
    char *text = realloc(fetch->text, room + 1);
    if (!text) {
        return eb_failure_set(fetch->failure, "out of memory");
    }
    fetch->text = text;
    fetch->room = room;
    return true;
}

static bool is_answer_complete(const struct http_fetch *fetch)
{
    return fetch->head_bytes > 0 && fetch->bytes - fetch->head_bytes >= fetch->body_bytes;
}

/* Receives some of the answer. Sets *is_ended when the server has closed the connection. */
static bool receive_answer(struct http_fetch *fetch, bool *is_ended)
{
    if (!grow_answer(fetch) || !await_socket(fetch, POLLIN)) {
        return false;
    }
    ssize_t rc = recv(fetch->socket, fetch->text + fetch->bytes, fetch->room - fetch->bytes, 0);
    if (rc < 0) {
        return errno == EAGAIN || errno == EINTR ||
               eb_failure_set(fetch->failure, "the connection was lost (%s)", strerror(errno));
    }
    *is_ended = rc == 0;
    fetch->bytes += (size_t)rc;
    fetch->text[fetch->bytes] = '\0';
    return true;
}

static bool read_answer(struct http_fetch *fetch)
{
    bool is_ended = false;
    while (!is_ended && !is_answer_complete(fetch)) {
        if (!receive_answer(fetch, &is_ended) || (fetch->head_bytes == 0 && !find_head(fetch))) {
            return false;
        }
        if (fetch->bytes - fetch->head_bytes > fetch->limits->bytes_max) {
            return eb_failure_set(
                fetch->failure, "the answer has more than %zu bytes", fetch->limits->bytes_max);
        }
    }
    bool is_cut_off =
        fetch->head_bytes == 0 || (fetch->body_bytes != UINT64_MAX && !is_answer_complete(fetch));
    return !is_cut_off ||
           eb_failure_set(fetch->failure, "the server closed the connection within the answer");
}

char *eb_http_get(const char *url, const struct eb_http_get_limits *limits, size_t *bytes,
    struct eb_failure *failure)
{
    struct http_fetch fetch = {
        .limits = limits, .failure = failure, .socket = -1, .body_bytes = UINT64_MAX};
    bool is_good = parse_url(&fetch, url) && connect_to_host(&fetch) && send_get(&fetch) &&
                   read_answer(&fetch);
    if (fetch.socket >= 0) {
        close(fetch.socket);
    }
    if (!is_good) {
        free(fetch.text);
        return NULL;
    }
    *bytes = fetch.bytes - fetch.head_bytes;
    if (*bytes > fetch.body_bytes) {
        *bytes = fetch.body_bytes;
    }
    memmove(fetch.text, fetch.text + fetch.head_bytes, *bytes);
    fetch.text[*bytes] = '\0';
    return fetch.text;
}
