#include "server/net/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static size_t resolve_unix(const char *path, struct eb_address *out, char *why, size_t why_bytes)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof name.sun_path) {
        snprintf(why, why_bytes, "a unix socket's path has 1 to %zu bytes, not %zu",
            sizeof name.sun_path - 1, length);
        return 0;
    }
    memcpy(name.sun_path, path, length + 1);
    *out = (struct eb_address){.size = sizeof name};
    memcpy(&out->socket_address, &name, sizeof name);
    return 1;
}

/* Splits "HOST:PORT" or "[V6]:PORT" at its last colon. */
static bool split_port(const char *text, char *host, size_t host_bytes, const char **port)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || colon[1] == '\0') {
        return false;
    }
    size_t length = (size_t)(colon - text);
    const char *first = text;
    if (text[0] == '[') {
        if (length < 3 || text[length - 1] != ']') {
            return false;
        }
        first++;
        length -= 2;
    } else if (memchr(text, ':', length)) {
        return false;
    }
    if (length >= host_bytes || strspn(colon + 1, "0123456789") != strlen(colon + 1)) {
        return false;
    }
    memcpy(host, first, length);
    host[length] = '\0';
    *port = colon + 1;
    return true;
}

size_t eb_address_resolve(
    const char *text, struct eb_address out[EB_ADDRESS_RESOLVED_MAX], char *why, size_t why_bytes)
{
    if (strncmp(text, "unix:", 5) == 0) {
        return resolve_unix(text + 5, out, why, why_bytes);
    }
    char host[256];
    const char *port;
    if (!split_port(text, host, sizeof host, &port) || strlen(port) > 5 ||
        strtoul(port, NULL, 10) > 65535) {
        snprintf(why, why_bytes, "not HOST:PORT, [V6]:PORT or unix:PATH");
        return 0;
    }
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found;
    int code = getaddrinfo(host, port, &hints, &found);
    if (code != 0) {
        snprintf(why, why_bytes, "host \"%s\": %s", host, gai_strerror(code));
        return 0;
    }
    size_t count = 0;
    for (struct addrinfo *at = found; at && count < EB_ADDRESS_RESOLVED_MAX; at = at->ai_next) {
        out[count].size = at->ai_addrlen;
        memset(&out[count].socket_address, 0, sizeof out[count].socket_address);
        memcpy(&out[count].socket_address, at->ai_addr, at->ai_addrlen);
        count++;
    }
    freeaddrinfo(found);
    return count;
}

bool eb_address_is_unix(const struct eb_address *address)
{
    return address->socket_address.ss_family == AF_UNIX;
}

static void format_unix(const struct eb_address *address, char *out)
{
    struct sockaddr_un name = {0};
    memcpy(&name, &address->socket_address, sizeof name);
    size_t head = offsetof(struct sockaddr_un, sun_path);
    size_t length = address->size > head ? strnlen(name.sun_path, address->size - head) : 0;
    snprintf(out, EB_ADDRESS_TEXT_BYTES, "unix:%.*s", (int)length, name.sun_path);
}

void eb_address_format(const struct eb_address *address, char out[EB_ADDRESS_TEXT_BYTES])
{
    if (eb_address_is_unix(address)) {
        format_unix(address, out);
        return;
    }
    char host[64];
    char port[8];
    int code = getnameinfo((const struct sockaddr *)&address->socket_address, address->size, host,
        sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    if (code != 0) {
        snprintf(out, EB_ADDRESS_TEXT_BYTES, "(%s)", gai_strerror(code));
    } else if (address->socket_address.ss_family == AF_INET6) {
        snprintf(out, EB_ADDRESS_TEXT_BYTES, "[%s]:%s", host, port);
    } else {
        snprintf(out, EB_ADDRESS_TEXT_BYTES, "%s:%s", host, port);
    }
}
