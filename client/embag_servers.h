/* embag: several servers with one client. embag_open takes a list of addresses, or a name with
 * several, and each lookup goes to one of the servers that hold the same models.
 *
 * Choice. Of two servers drawn at random, the one gets the lookup that is likely to answer it
 * first: the product of its lookups in flight and its latency is smaller. A latency counts as
 * larger at once and as smaller only slowly. A new server gets its full share after ten seconds.
 *
 * Failures. A lookup whose connection is lost is sent to another server at once. So is one that a
 * server refuses for lack of resources or cannot answer now (UNAVAILABLE), and one that names a
 * version or a label and gets NOT_FOUND. To stay with one version while servers change theirs, name
 * the version of an earlier answer. Each of these counts as a failure of the server.
 *
 * Resends. The first one after a lost connection is free. All others, also those to the same
 * server, are counted: at most 10 % of the lookups of the last ten seconds, or 10 if that is more.
 * Never more than retries_max for one lookup, and never after its deadline.
 *
 * Servers that are left out. If over half of at least 20 lookups within ten seconds fail on a
 * server, it is left out for a second, then for two, and so on up to a minute. If nothing comes
 * from it for 50 ms or more although lookups are in flight, it is asked for a sign of life. If it
 * gives none, its lookups are also sent to other servers as soon as these have room, and it gets no
 * more until it answers. At most half of the servers are left out.
 *
 * Hedging, with options.hedge_percent. A lookup that is not answered after the time in which 98 %
 * of lookups of its size were answered in the last ten seconds (at least 0.3 ms) is also sent to a
 * second server. The first answer counts, and the other server is told to forget the lookup. There
 * are at most hedge_percent hedges per hundred lookups, none for batch priority, none for a second
 * after a server has refused lookups, and none while all servers are slow.
 *
 * Names are resolved every 30 s, and after a lost connection at once, though at most once a
 * second. A resolution that fails changes nothing. A server whose address is gone is used as long
 * as its connection lasts.
 *
 * Commands and lists (embag_list_models and the functions of embag_admin.h) go to the first server
 * that is connected. Open a client of its own for each server to address one of them.
 *
 * Thread: any. Memory: the caller's. */
#pragma once

#include "embag.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Waits until the client is connected to that many servers, or to all that it knows if `servers` is
 * 0. embag_open waits for the first one only. Returns EMBAG_OK; DEADLINE_EXCEEDED with the numbers
 * if timeout_us (0: the client's timeout) is over; CANCELLED if the client is being closed;
 * INVALID_ARGUMENT in a callback of the client. error may be NULL. */
enum embag_status embag_wait_ready(
    struct embag_client *client, uint32_t servers, uint64_t timeout_us, struct embag_error *error);

/* One server. Counts begin when the client first knows its address. */
struct embag_server_stats {
    char address[128]; /* "127.0.0.1:8600", "[::1]:8600" or "unix:PATH" */
    bool is_connected;
    bool is_left_out;    /* most lookups fail there, or nothing comes from it */
    uint32_t in_flight;  /* lookups that are not answered yet */
    uint64_t sent;       /* lookups that were sent there, resends and hedges included */
    uint64_t failed;     /* of those, the ones that the server did not answer or refused */
    uint64_t left_out;   /* times it was left out because most lookups failed */
    uint64_t latency_us; /* as the choice sees it; 0: not known */
};

/* The whole client. */
struct embag_stats {
    uint64_t lookups;    /* lookups that were sent at least once */
    uint64_t resends;    /* times that lookups were sent again */
    uint64_t hedges;     /* times that lookups were sent to a second server beside the first */
    uint64_t hedges_won; /* hedges that were answered first */
    uint32_t servers;    /* servers that the client knows */
};

/* Fills in *stats, and the first servers_max servers. `servers` may be NULL if servers_max is 0.
 * Returns EMBAG_OK, or CANCELLED if the client is being closed. */
enum embag_status embag_get_stats(struct embag_client *client, struct embag_stats *stats,
    struct embag_server_stats *servers, uint32_t servers_max);

#ifdef __cplusplus
}
#endif
