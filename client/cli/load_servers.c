#include "client/cli/load_servers.h"

#include <string.h>

static uint32_t count_known(const struct eb_load_snapshot *snapshot)
{
    uint32_t known = snapshot->stats.servers;
    return known < EB_LOAD_SERVERS_MAX ? known : EB_LOAD_SERVERS_MAX;
}

/* Returns what the client had counted for an address; zeroes if it did not know the address. */
static struct embag_server_stats find_before(
    const struct eb_load_snapshot *before, const char *address)
{
    uint32_t known = count_known(before);
    for (uint32_t i = 0; i < known; i++) {
        if (strcmp(before->servers[i].address, address) == 0) {
            return before->servers[i];
        }
    }
    return (struct embag_server_stats){.sent = 0};
}

/* Returns the server with this address, which is added if it is missing. Returns NULL if there is
 * no room. */
static struct eb_load_server *find_load_server(struct eb_load_servers *servers, const char *address)
{
    uint32_t i = 0;
    while (i < servers->count && strcmp(servers->items[i].address, address) != 0) {
        i++;
    }
    if (i == EB_LOAD_SERVERS_MAX) {
        return NULL;
    }
    struct eb_load_server *server = &servers->items[i];
    if (i == servers->count) {
        *server = (struct eb_load_server){.is_connected = true};
        (void)strcpy(server->address, address);
        servers->count++;
    }
    return server;
}

/* Returns how far a counter has come. It has begun again from 0 if the client had forgotten the
 * server and found it again. */
static uint64_t count_since(uint64_t before, uint64_t after)
{
    return after >= before ? after - before : after;
}

void eb_load_servers_add(struct eb_load_servers *servers, const struct eb_load_snapshot *before,
    const struct eb_load_snapshot *after)
{
    uint32_t known = count_known(after);
    servers->resends += after->stats.resends - before->stats.resends;
    servers->hedges += after->stats.hedges - before->stats.hedges;
    servers->hedges_won += after->stats.hedges_won - before->stats.hedges_won;
    for (uint32_t i = 0; i < known; i++) {
        const struct embag_server_stats *now = &after->servers[i];
        struct embag_server_stats then = find_before(before, now->address);
        struct eb_load_server *server = find_load_server(servers, now->address);
        if (server) {
            server->sent += count_since(then.sent, now->sent);
            server->failed += count_since(then.failed, now->failed);
            server->left_out += count_since(then.left_out, now->left_out);
            server->is_connected = server->is_connected && now->is_connected;
        }
    }
}

double eb_load_servers_share(
    const struct eb_load_servers *servers, const struct eb_load_server *server)
{
    uint64_t sent = 0;
    for (uint32_t i = 0; i < servers->count; i++) {
        sent += servers->items[i].sent;
    }
    return sent > 0 ? 100.0 * (double)server->sent / (double)sent : 0;
}
