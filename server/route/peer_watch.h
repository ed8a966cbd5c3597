/* Learns what the part servers have: keeps a connection to each of them,
 * asks what it is (GetServer), has it tell what it holds (WatchModels), and feeds a map of parts.
 *
 * The map contains each server that is connected, says that it is a part server, speaks a level
 * that this router can use, and has told what it holds less than 3 s ago. A server leaves the map
 * as soon as it has no open connection, is draining, or sends a malformed message. If it ends a
 * call with UNAVAILABLE, or announces the end of a connection that is still open, it stays until it
 * has been silent for 3 s. Two addresses of one process count once. A call that has failed is made
 * again: at once if the one before it had lasted, otherwise after a pause that doubles from 1 s to
 * 30 s.
 *
 * Servers are not trusted: their messages are bounded and checked, and all servers together cause
 * some 10 log lines per second at most (log_rate_limit.h). A server that cannot be reached, or does
 * not answer as it should, causes at most one warning per minute; one that is no part server, or
 * too old, causes one. Lines about servers that enter or leave the map have no other bound.
 * Thread: the loop's. Memory: some 450 KB, 30 KB per address, and what part_map.h says. */
#pragma once

#include "proto/link/credentials.h"
#include "server/route/part_map.h"
#include "server/route/peer_message.h"

#include <uv.h>

struct eb_peer_watch_options {
    const struct eb_targets *targets;         /* borrowed */
    const struct eb_credentials *credentials; /* borrowed */
    uint64_t connect_timeout_ns;
    unsigned int unacknowledged_ms_max; /* as in struct eb_transport */
    uint64_t resolve_interval_ns;
    const char *router; /* name told to servers, for their logs; borrowed */
    /* The map, or what is known of its peers, has changed. Called at most once per loop cycle, and
     * never from within a function below. May call all of these functions except destroy. */
    void (*on_change)(void *context);
    /* Called once after close, never from within it: nothing is left on the loop but handles that
     * are being closed. */
    void (*on_closed)(void *context);
    void *context;
};

struct eb_peer_watch; /* opaque */

/* Begins to connect. Returns 0, or a negative libuv code with nothing left on the loop but handles
 * that are being closed. In both cases *watch must be destroyed; it is NULL if out of memory. */
int eb_peer_watch_open(
    struct eb_peer_watch **watch, const struct eb_peer_watch_options *options, uv_loop_t *loop);

/* Returns the map, for eb_part_map_open, eb_part_map_view and the other functions that do not
 * change what peers hold. Its sets must be closed before destroy. */
struct eb_part_map *eb_peer_watch_map(struct eb_peer_watch *watch);
/* Returns the instance of the process at a peer of the map; 0 if it is not in the map. The number
 * of a peer stays the same until its address has left the names and it is no longer connected. */
uint64_t eb_peer_watch_instance(const struct eb_peer_watch *watch, uint32_t peer);
/* Returns the address of a peer, for logs and the status page; "" if there is none. Borrowed until
 * the next cycle of the loop. */
const char *eb_peer_watch_address(const struct eb_peer_watch *watch, uint32_t peer);
/* Returns whether all names could be resolved the last time, and every address has answered or
 * failed. */
bool eb_peer_watch_has_all_answers(const struct eb_peer_watch *watch);
/* Returns whether some part server is in the map. */
bool eb_peer_watch_has_any(const struct eb_peer_watch *watch);

/* Replaces the claims that all servers get; copies. Each server gets them in a new call, and keeps
 * the former ones until it has answered that. Only EB_WATCH_CLAIMS_MAX claims can be sent; versions
 * that are not served are left out first, from the end, and that is logged. Returns false if out
 * of memory; then the claims are as before. */
bool eb_peer_watch_claim(
    struct eb_peer_watch *watch, const struct eb_peer_watch_claim *claims, size_t count);
/* Must be called when the credentials have changed: servers that have refused the former ones are
 * asked again at once, and all of them get a new call if the token is another one. */
void eb_peer_watch_renew(struct eb_peer_watch *watch, bool is_token_new);

/* Closes all connections; on_closed follows. The map stays as it is. */
void eb_peer_watch_close(struct eb_peer_watch *watch);
/* Frees everything once the loop has closed all handles. Accepts NULL. */
void eb_peer_watch_destroy(struct eb_peer_watch *watch);
