/* The addresses of the servers that a client is told to use:
 *   HOST:PORT[,HOST:PORT...]     names, IPv4 addresses and IPv6 addresses in brackets
 *   dns:NAME:PORT, dns:///NAME:PORT   one name, as gRPC's clients write it
 *   unix:PATH                    one socket; the path may contain commas
 * A name may have several addresses; each is a server.
 * Thread: pure. Memory: eb_targets_parse allocates the items. */
#pragma once

#include "proto/net/address.h"
#include "proto/status.h"

#include <stdint.h>

/* Most addresses in one text: a list that is longer than any group of servers is a mistake. */
#define EB_TARGETS_MAX 1024

struct eb_target {
    struct eb_endpoint endpoint;
    char authority[EB_ADDRESS_GIVEN_BYTES]; /* HTTP/2's :authority of calls; "localhost" if unix */
};

struct eb_targets {
    struct eb_target *items;
    uint32_t count; /* at least 1 */
};

/* Returns false with *error set: INVALID_ARGUMENT naming the address that is wrong, or
 * RESOURCE_EXHAUSTED. Then *targets is empty. */
bool eb_targets_parse(const char *text, struct eb_targets *targets, struct eb_error *error);
/* Accepts empty targets. */
void eb_targets_free(struct eb_targets *targets);

/* Fills in the address of a target that needs no name service: a unix socket or a numeric address.
 * Returns false if the target has a name. */
bool eb_target_read_address(const struct eb_target *target, struct eb_address *address);
