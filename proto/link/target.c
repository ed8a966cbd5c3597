#include "proto/link/target.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define UNIX_PREFIX "unix:"
#define DNS_PREFIX "dns:"
#define DNS_EMPTY_HOST "///" /* "dns:///NAME" names no DNS server */

/* Parses one address, which text[0, length) has. */
static bool parse_target(
    const char *text, size_t length, struct eb_target *target, struct eb_error *error)
{
    char item[EB_ADDRESS_GIVEN_BYTES];
    struct eb_endpoint *endpoint = &target->endpoint;
    if (length >= sizeof item) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "invalid address \"%.40s...\": it is longer than %d bytes", text,
            EB_ADDRESS_GIVEN_BYTES - 1);
        return false;
    }
    memcpy(item, text, length);
    item[length] = '\0';
    const char *why = eb_endpoint_parse(item, 1, endpoint);
    if (why) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "invalid address \"%s\": %s", item, why);
        return false;
    }
    (void)strcpy(target->authority, endpoint->is_unix ? "localhost" : item);
    return true;
}

/* Returns the addresses after a prefix for DNS. The prefix allows one name only. */
static const char *skip_dns_prefix(const char *text, bool *is_single)
{
    *is_single = strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0;
    /* "dns:8600" is a host called dns. */
    bool has_prefix = strncmp(text, DNS_PREFIX, strlen(DNS_PREFIX)) == 0 &&
                      text[strcspn(text + strlen(DNS_PREFIX), ":,") + strlen(DNS_PREFIX)] == ':';
    if (!has_prefix) {
        return text;
    }
    *is_single = true;
    text += strlen(DNS_PREFIX);
    bool has_empty_host = strncmp(text, DNS_EMPTY_HOST, strlen(DNS_EMPTY_HOST)) == 0;
    return has_empty_host ? text + strlen(DNS_EMPTY_HOST) : text;
}

static uint32_t count_commas(const char *text)
{
    uint32_t count = 0;
    for (const char *comma = strchr(text, ','); comma; comma = strchr(comma + 1, ',')) {
        count++;
    }
    return count;
}

bool eb_targets_parse(const char *text, struct eb_targets *targets, struct eb_error *error)
{
    bool is_single = false;
    const char *at = skip_dns_prefix(text, &is_single);
    uint32_t count = is_single ? 1 : count_commas(at) + 1;
    *targets = (struct eb_targets){.count = 0};
    if (is_single && strncmp(at, "//", 2) == 0) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "invalid address \"%.200s\": a name server cannot be given; expected dns:///NAME:PORT",
            text);
        return false;
    }
    if (count > EB_TARGETS_MAX) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "%u addresses are given; at most %d are allowed", count, EB_TARGETS_MAX);
        return false;
    }
    targets->items = calloc(count, sizeof *targets->items);
    if (!targets->items) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for addresses");
        return false;
    }
    for (targets->count = 0; targets->count < count; targets->count++) {
        size_t length = is_single ? strlen(at) : strcspn(at, ",");
        if (!parse_target(at, length, &targets->items[targets->count], error)) {
            eb_targets_free(targets);
            return false;
        }
        at += length + 1;
    }
    return true;
}

void eb_targets_free(struct eb_targets *targets)
{
    free(targets->items);
    *targets = (struct eb_targets){.count = 0};
}

bool eb_target_read_address(const struct eb_target *target, struct eb_address *address)
{
    const struct eb_endpoint *endpoint = &target->endpoint;
    *address = (struct eb_address){.size = 0};
    if (endpoint->is_unix) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        static_assert(sizeof name.sun_path == sizeof endpoint->path, "the path fits");
        memcpy(name.sun_path, endpoint->path, sizeof name.sun_path);
        address->size = sizeof name;
        memcpy(&address->socket_address, &name, sizeof name);
        return true;
    }
    int port = (int)strtol(endpoint->port, NULL, 10);
    if (uv_ip4_addr(endpoint->host, port, (struct sockaddr_in *)&address->socket_address) == 0) {
        address->size = sizeof(struct sockaddr_in);
    } else if (uv_ip6_addr(endpoint->host, port, (struct sockaddr_in6 *)&address->socket_address) ==
               0) {
        address->size = sizeof(struct sockaddr_in6);
    }
    return address->size > 0;
}
