/* The servers of a load: what each of them was sent between two times, and how often requests were
 * sent again. Clients count from when they are opened (embag_servers.h), so a load takes the
 * difference of two snapshots of each client, and adds up the differences.
 * Thread: one at a time; pure. Memory: only the structs, some 190 KiB each. */
#pragma once

#include "client/embag_servers.h"

/* Most servers of a report. A client uses no more. */
#define EB_LOAD_SERVERS_MAX 1024
#define EB_LOAD_SERVER_BYTES sizeof(((struct embag_server_stats *)0)->address)

/* The counts of one client at one time. Zeroes are those of a client that has just been opened. */
struct eb_load_snapshot {
    struct embag_stats stats;
    struct embag_server_stats servers[EB_LOAD_SERVERS_MAX];
};

/* One server, over all clients. */
struct eb_load_server {
    char address[EB_LOAD_SERVER_BYTES];
    uint64_t sent;     /* requests that were sent there, resends and hedges included */
    uint64_t failed;   /* requests that it did not answer or refused */
    uint64_t left_out; /* times that a client left it out because most requests failed */
    bool is_connected; /* at the end, every client that knows it was connected */
};

/* Zeroes mean that nothing was added. */
struct eb_load_servers {
    uint64_t resends;
    uint64_t hedges;
    uint64_t hedges_won;
    uint32_t count;
    struct eb_load_server items[EB_LOAD_SERVERS_MAX];
};

/* Adds what one client has counted between two snapshots. Servers that the client no longer knows
 * at the second one are left out, and so are those that do not fit in. */
void eb_load_servers_add(struct eb_load_servers *servers, const struct eb_load_snapshot *before,
    const struct eb_load_snapshot *after);
/* Returns the part of all requests that were sent to this server, in per cent; 0 if none was sent
 * anywhere. */
double eb_load_servers_share(
    const struct eb_load_servers *servers, const struct eb_load_server *server);
