/* Addresses as text ("HOST:PORT", "[V6]:PORT" or "unix:PATH") and in the system's form.
 * Thread: any. eb_address_resolve calls getaddrinfo, so call it only at start. Memory: none
 * kept. */
#pragma once

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#define EB_ADDRESS_TEXT_BYTES 128
#define EB_ADDRESS_GIVEN_BYTES 260 /* a name of 253 bytes, brackets, a port; including the NUL */
#define EB_ENDPOINT_HOST_BYTES (EB_ADDRESS_GIVEN_BYTES - 2)
#define EB_ENDPOINT_PORT_BYTES 6
#define EB_ADDRESS_RESOLVED_MAX 8 /* most addresses that are used for one name */

/* An address whose host is not resolved. */
struct eb_endpoint {
    bool is_unix;
    char host[EB_ENDPOINT_HOST_BYTES]; /* without brackets; empty for a unix socket */
    char port[EB_ENDPOINT_PORT_BYTES]; /* in decimal; empty for a unix socket */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* path of a unix socket */
};

struct eb_address {
    struct sockaddr_storage socket_address;
    socklen_t size;
};

/* Splits an address whose port must be from port_min (0 or 1) to 65535. Returns NULL. If the form
 * of the address is wrong, returns a text that says why; *out must not be used then. */
const char *eb_endpoint_parse(const char *text, unsigned port_min, struct eb_endpoint *out);
/* Returns whether traffic to the endpoint stays on this machine: a unix socket, "localhost" or a
 * loopback address. */
bool eb_endpoint_is_local(const struct eb_endpoint *endpoint);

/* Returns a text that says what is wrong with the form of an address to listen on, or NULL. Does
 * not check that the host exists; eb_address_resolve does. */
const char *eb_address_error(const char *text);

/* Fills in at most EB_ADDRESS_RESOLVED_MAX addresses and returns their number. Returns 0 with
 * *error set if the text is not an address or its host is not found. */
size_t eb_address_resolve(
    const char *text, struct eb_address out[EB_ADDRESS_RESOLVED_MAX], struct eb_error *error);

bool eb_address_is_unix(const struct eb_address *address);
/* Returns a unix address's path, or "" if the address has no path or has an abstract name. The path
 * is NUL-terminated even if it fills sun_path to its last byte, as the path of a peer or of a
 * passed socket may. The returned text is part of `address`. That must have been filled by
 * eb_address_resolve, or zeroed and then filled by the system. */
const char *eb_address_unix_path(const struct eb_address *address);

/* Writes "127.0.0.1:8600", "[::1]:8600" or "unix:/run/embag.sock"; "unix:" for an unnamed peer. */
void eb_address_format(const struct eb_address *address, char out[EB_ADDRESS_TEXT_BYTES]);
