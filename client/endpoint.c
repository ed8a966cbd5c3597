#include "client/endpoint.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define UNIX_PREFIX "unix:"

/* Copies `size` bytes as a string; false where they are none or too many. */
static bool copy_part(char *out, size_t out_bytes, const char *text, size_t size)
{
    if (size == 0 || size >= out_bytes) {
        return false;
    }
    memcpy(out, text, size);
    out[size] = '\0';
    return true;
}

static bool is_port(const char *text)
{
    unsigned port = 0;
    if (strlen(text) >= EB_ENDPOINT_PORT_BYTES) {
        return false;
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9') {
            return false;
        }
        port = port * 10 + (unsigned)(*c - '0');
    }
    return port > 0 && port <= 65535;
}

bool eb_endpoint_parse(const char *text, struct eb_endpoint *endpoint)
{
    memset(endpoint, 0, sizeof *endpoint);
    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0) {
        const char *path = text + strlen(UNIX_PREFIX);
        endpoint->is_unix = true;
        return copy_part(endpoint->path, sizeof endpoint->path, path, strlen(path));
    }
    const char *colon = strrchr(text, ':');
    if (!colon || !is_port(colon + 1)) {
        return false;
    }
    size_t host_bytes = (size_t)(colon - text);
    if (text[0] == '[') {
        if (colon[-1] != ']' || host_bytes < 2) {
            return false;
        }
        text++;
        host_bytes -= 2;
    } else if (memchr(text, ':', host_bytes)) {
        return false; /* An IPv6 address without brackets: its port cannot be told. */
    }
    strcpy(endpoint->port, colon + 1);
    return copy_part(endpoint->host, sizeof endpoint->host, text, host_bytes);
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
