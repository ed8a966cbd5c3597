#include "proto/net/address.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define UNIX_PREFIX "unix:"
#define UNIX_PREFIX_BYTES (sizeof UNIX_PREFIX - 1)

static_assert(sizeof((struct sockaddr_un *)0)->sun_path == 108, "the error's text says so");

static const char *parse_unix(const char *path, struct eb_endpoint *out)
{
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof out->path) {
        return "the path of a unix socket has 1 to 107 bytes";
    }
    out->is_unix = true;
    memcpy(out->path, path, length + 1);
    return NULL;
}

static bool is_port(const char *text, unsigned port_min)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits >= EB_ENDPOINT_PORT_BYTES || text[digits]) {
        return false;
    }
    unsigned long port = strtoul(text, NULL, 10);
    return port >= port_min && port <= 65535;
}

const char *eb_endpoint_parse(const char *text, unsigned port_min, struct eb_endpoint *out)
{
    *out = (struct eb_endpoint){.is_unix = false};
    if (strncmp(text, UNIX_PREFIX, UNIX_PREFIX_BYTES) == 0) {
        return parse_unix(text + UNIX_PREFIX_BYTES, out);
    }
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text) {
        return "expected HOST:PORT, [V6]:PORT or unix:PATH";
    }
    bool bracketed = text[0] == '[' && colon[-1] == ']' && colon - text > 2;
    if (!bracketed && (strpbrk(text, "[]") || strchr(text, ':') != colon)) {
        return "an IPv6 address needs brackets: [::1]:8600";
    }
    if (!is_port(colon + 1, port_min)) {
        return port_min == 0 ? "the port must be in 0..65535" : "the port must be in 1..65535";
    }
    if (strlen(text) >= EB_ADDRESS_GIVEN_BYTES) {
        return "it is too long";
    }
    size_t length = (size_t)(colon - text) - 2 * bracketed;
    memcpy(out->host, text + bracketed, length);
    strcpy(out->port, colon + 1);
    return NULL;
}

bool eb_endpoint_is_local(const struct eb_endpoint *endpoint)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (endpoint->is_unix || strcasecmp(endpoint->host, "localhost") == 0) {
        return true;
    }
    if (inet_pton(AF_INET, endpoint->host, &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return inet_pton(AF_INET6, endpoint->host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

const char *eb_address_error(const char *text)
{
    struct eb_endpoint endpoint;
    return eb_endpoint_parse(text, 0, &endpoint);
}

static void fill_unix(const char *path, struct eb_address *out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, path, strlen(path) + 1);
    *out = (struct eb_address){.size = sizeof name};
    memcpy(&out->socket_address, &name, sizeof name);
}

size_t eb_address_resolve(
    const char *text, struct eb_address out[EB_ADDRESS_RESOLVED_MAX], struct eb_error *error)
{
    struct eb_endpoint endpoint;
    const char *why = eb_endpoint_parse(text, 0, &endpoint);
    if (why) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "%s", why);
        return 0;
    }
    if (endpoint.is_unix) {
        fill_unix(endpoint.path, out);
        return 1;
    }
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found;
    int rc = getaddrinfo(endpoint.host, endpoint.port, &hints, &found);
    if (rc != 0) {
        eb_error_set(
            error, EB_STATUS_UNAVAILABLE, "host \"%s\": %s", endpoint.host, gai_strerror(rc));
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
    int rc = getnameinfo((const struct sockaddr *)&address->socket_address, address->size, host,
        sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    if (rc != 0) {
        snprintf(out, EB_ADDRESS_TEXT_BYTES, "(%s)", gai_strerror(rc));
    } else if (address->socket_address.ss_family == AF_INET6) {
        snprintf(out, EB_ADDRESS_TEXT_BYTES, "[%s]:%s", host, port);
    } else {
        snprintf(out, EB_ADDRESS_TEXT_BYTES, "%s:%s", host, port);
    }
}
