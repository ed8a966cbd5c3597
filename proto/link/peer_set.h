/* The servers that a client may ask: finds their addresses, keeps connections to them, and chooses
 * the one for each attempt.
 * Thread: the loop's. Memory: the peers; a set must not move. */
#pragma once

#include "proto/link/peer.h"
#include "proto/link/replica_choice.h"
#include "proto/link/resolver.h"

/* Most connections wanted in all: with more servers than that allows, each client uses some of
 * them, chosen at random. */
#define EB_PEER_SET_CONNECTIONS_MAX 1024

struct eb_peer_set {
    /* Set by the owner before open. */
    struct eb_peer_config config; /* without on_open and on_close */
    const struct eb_targets *targets;
    uint64_t resolve_interval_ns;
    /* Each peer is connected, and asked for its instance, even if it is the only one. Otherwise
     * only if there are several. Names that cannot be resolved are tried again soon, at first. */
    bool asks_instances;
    /* A connection of a peer is open. */
    void (*on_open)(void *context, struct eb_peer *peer);
    /* A connection was lost, or could not be opened if it has not spoken HTTP/2. */
    void (*on_close)(void *context, bool has_spoken, const struct eb_error *why);
    /* The names were resolved; *why says that not one server is known, or is NULL. */
    void (*on_resolved)(void *context, const struct eb_error *why);
    /* Nothing comes from a peer although attempts are in flight (suspicion.h). Called again every
     * second. */
    void (*on_suspect)(void *context, struct eb_peer *peer);
    /* A peer has told what it is (GetServer), or has not: then `server` is NULL and *why is set.
     * NULL: nobody needs to know. */
    void (*on_told)(void *context, struct eb_peer *peer, const struct eb_wire_server *server,
        const struct eb_error *why);
    /* A peer is about to be freed. NULL: nobody needs to know. */
    void (*on_gone)(void *context, struct eb_peer *peer);
    /* Called after eb_peer_set_close: nothing is left on the loop. */
    void (*on_closed)(void *context);
    void *context;

    /* Private. */
    struct eb_resolver resolver;
    struct eb_peer **peers; /* [peers_max] */
    uint32_t count;
    uint32_t peers_max;
    struct eb_replica **replicas; /* [peers_max]; replicas[i] is that of peers[i] */
    /* [peers_max] the peers whose processes are known, without twins, in the order of instances */
    struct eb_peer **by_instance;
    uint32_t by_instance_count;
    bool is_by_instance_old; /* it must be made again before it is used */
    /* Why some name could not be resolved the last time; OK: all could, or none was tried yet. */
    struct eb_error resolve_error;
    /* Addresses that the names had the last time and that are not used: there are too many. */
    uint32_t left_out;
    uint32_t resolve_failures; /* failed resolutions in a row, of those that hurried the next one */
    uint64_t random;           /* state of splitmix64.h */
    bool is_closing;
};

/* Opens the set; eb_peer_set_run then opens connections. Returns 0, or a negative libuv code with
 * nothing left. */
int eb_peer_set_open(struct eb_peer_set *set);
/* Closes every connection; on_closed follows, perhaps from within this call. */
void eb_peer_set_close(struct eb_peer_set *set);
/* Frees a set that is closed. Accepts a zeroed one. */
void eb_peer_set_deinit(struct eb_peer_set *set);

/* Says which peers may get an attempt at all. A zeroed filter lets all pass. Borrows the array. */
struct eb_peer_filter {
    /* [instance_count] the processes of the peers that pass; NULL: any. If there are none, no peer
     * passes, whatever those will tell that have not told yet. Filters with the same array let the
     * same peers pass. */
    const uint64_t *instances;
    size_t instance_count;
    /* The one peer that passes, which may be gone; NULL: any. Only with is_first. */
    const struct eb_peer *only;
};

/* The conditions that a peer must meet to get an attempt. */
struct eb_peer_terms {
    enum eb_priority priority;
    uint64_t now_ns;
    struct eb_peer_filter filter;
    /* Peers that had an attempt of the same call, which are chosen last. May be NULL; may point to
     * peers that are gone. */
    const struct eb_peer *tried[2];
    bool is_other; /* only a peer that was not tried will do */
    bool is_first; /* the first peer that is connected, so that commands go to one server */
    /* Whether connections may write what waits, to make room. Then attempts may end meanwhile. */
    bool may_write;
};

/* Returns the connection that takes the attempt. Returns NULL if none takes it now. */
struct eb_connection *eb_peer_set_choose(
    struct eb_peer_set *set, const struct eb_peer_terms *terms);
/* Sends an attempt over the connection that was chosen for it, and counts it at its peer until
 * eb_peer_set_end. Returns false if it was not sent (eb_connection_send). */
bool eb_peer_set_send(struct eb_peer_set *set, struct eb_connection *connection,
    struct eb_attempt *attempt, uint64_t now_ns);
/* Notes how an attempt has ended. Must be called for each that was sent; may be called again. */
void eb_peer_set_end(
    struct eb_peer_set *set, struct eb_attempt *attempt, enum eb_attempt_end end, uint64_t now_ns);
/* Notes that a message has come over a connection. */
void eb_peer_set_note_heard(struct eb_peer_set *set, struct eb_connection *connection);
/* Returns the peer that a connection belongs to. */
struct eb_peer *eb_peer_set_find(const struct eb_connection *connection);

/* Does what is due before attempts are sent: tells those of streams that have ended. */
void eb_peer_set_settle(struct eb_peer_set *set);
/* Does what is due afterwards: opens connections (also those that no attempt has needed yet, if
 * is_wanted), resolves names, and writes. Sets *next_ns to when to call this again at the latest.
 * Returns whether eb_peer_set_settle has something to do. */
bool eb_peer_set_run(struct eb_peer_set *set, bool is_wanted, uint64_t now_ns, uint64_t *next_ns);

/* Counts the peers whose addresses are in use, connected or not. */
uint32_t eb_peer_set_count_listed(const struct eb_peer_set *set);
/* Returns whether at least two servers that pass the filter have been connected at some time. */
bool eb_peer_set_has_several(const struct eb_peer_set *set, const struct eb_peer_filter *filter);
/* Returns whether a server that passes the filter is connected. */
bool eb_peer_set_has_usable(const struct eb_peer_set *set, const struct eb_peer_filter *filter);
/* Returns whether a server that passes the filter is connected or being connected to. If the
 * servers are asked what they are, those that have not told yet may pass too, and so may those
 * whose names are being resolved for the first time; none may if the filter is empty. */
bool eb_peer_set_has_live(const struct eb_peer_set *set, const struct eb_peer_filter *filter);
/* Returns whether a server that passes the filter and is connected and not silent has not been
 * tried yet, whether or not it has room. */
bool eb_peer_set_has_untried(const struct eb_peer_set *set, const struct eb_peer_terms *terms);
/* Counts the servers that are connected. */
uint32_t eb_peer_set_count_usable(const struct eb_peer_set *set);
/* Returns whether a peer is connected or being connected to, or names are being resolved. */
bool eb_peer_set_is_live(const struct eb_peer_set *set);
/* Returns why no peer is live. */
const struct eb_error *eb_peer_set_reason(const struct eb_peer_set *set);
/* As eb_peer_check and eb_peer_renew, for all peers. */
void eb_peer_set_check(struct eb_peer_set *set, uint64_t now_ns);
void eb_peer_set_renew(struct eb_peer_set *set, bool is_token_new);
