#include "proto/net/address.h"

#include <assert.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define UNIX_PREFIX "unix:"
#define UNIX_PREFIX_BYTES (sizeof UNIX_PREFIX - 1)

static_assert(sizeof((struct sockaddr_un *)0)->sun_path == 108, "the fault's text says so");

static const char *unix_error(const char *path)
{
    size_t length = strlen(path);
    bool fits = length > 0 && length < sizeof((struct sockaddr_un *)0)->sun_path;
    return fits ? NULL : "the path of a unix socket has 1 to 107 bytes";
}

const char *eb_address_error(const char *text)
{
    if (strncmp(text, UNIX_PREFIX, UNIX_PREFIX_BYTES) == 0) {
        return unix_error(text + UNIX_PREFIX_BYTES);
    }
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text) {
        return "not HOST:PORT, [V6]:PORT or unix:PATH";
    }
    bool bracketed = text[0] == '[' && colon[-1] == ']' && colon - text > 2;
    if (!bracketed && (strpbrk(text, "[]") || strchr(text, ':') != colon)) {
        return "an IPv6 address stands in brackets: [::1]:8600";
    }
    size_t digits = strspn(colon + 1, "0123456789");
    if (digits == 0 || digits > 5 || colon[1 + digits] || strtoul(colon + 1, NULL, 10) > 65535) {
        return "the port is not in 0..65535";
    }
    return strlen(text) < EB_ADDRESS_GIVEN_BYTES ? NULL : "is too long";
}

static void fill_unix(const char *path, struct eb_address *out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, path, strlen(path) + 1);
    *out = (struct eb_address){.size = sizeof name};
    memcpy(&out->socket_address, &name, sizeof name);
}

/* The host of "HOST:PORT" or "[V6]:PORT", whose form is good. Returns the port. */
static const char *split_port(const char *text, char host[EB_ADDRESS_GIVEN_BYTES])
{
    const char *colon = strrchr(text, ':');
    size_t brackets = text[0] == '[';
    size_t length = (size_t)(colon - text) - 2 * brackets;
    memcpy(host, text + brackets, length);
    host[length] = '\0';
    return colon + 1;
}

size_t eb_address_resolve(
    const char *text, struct eb_address out[EB_ADDRESS_RESOLVED_MAX], char *why, size_t why_bytes)
{
    const char *error = eb_address_error(text);
    if (error) {
        snprintf(why, why_bytes, "%s", error);
        return 0;
    }
    if (strncmp(text, UNIX_PREFIX, UNIX_PREFIX_BYTES) == 0) {
        fill_unix(text + UNIX_PREFIX_BYTES, out);
        return 1;
    }
    char host[EB_ADDRESS_GIVEN_BYTES];
    const char *port = split_port(text, host);
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

const char *eb_address_unix_path(const struct eb_address *address)
{
    static_assert(sizeof address->socket_address > sizeof(struct sockaddr_un), "room for a NUL");
    return (const char *)&address->socket_address + offsetof(struct sockaddr_un, sun_path);
}

void eb_address_format(const struct eb_address *address, char out[EB_ADDRESS_TEXT_BYTES])
{
    if (eb_address_is_unix(address)) {
        snprintf(out, EB_ADDRESS_TEXT_BYTES, "%s%s", UNIX_PREFIX, eb_address_unix_path(address));
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
