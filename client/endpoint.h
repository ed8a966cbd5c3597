/* Where a server is: "HOST:PORT", "[V6]:PORT" or "unix:PATH".
 * Thread: pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <sys/un.h>

#define EB_ENDPOINT_HOST_BYTES 256 /* longest name of the DNS, and its end */
#define EB_ENDPOINT_PORT_BYTES 6

struct eb_endpoint {
    bool is_unix;
    char host[EB_ENDPOINT_HOST_BYTES]; /* without brackets; empty for a unix socket */
    char port[EB_ENDPOINT_PORT_BYTES]; /* 1 to 65535 in decimal; empty for a unix socket */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* false: `text` is none of the three forms, or its path does not fit a socket address. */
bool eb_endpoint_parse(const char *text, struct eb_endpoint *endpoint);
/* Whether what is sent there does not leave this machine: a unix socket, "localhost", or a loopback
 * address. */
bool eb_endpoint_is_local(const struct eb_endpoint *endpoint);
