/* Which part servers hold which parts of which versions, as they say themselves (WatchModels).
 *
 * A server is a peer, numbered by its owner. A message of a peer replaces what it said before.
 * Addresses that lead to the same process, as two addresses of a host do, have the same instance
 * and count as one replica.
 *
 * The owner opens a set for each version that it may send legs of. The map keeps the sets up to
 * date, so that finding the peers that have a part READY is an array access. Other files under a
 * version's number, or another number of parts, are another set.
 *
 * What peers say is not trusted: a message that exceeds a limit, or contradicts itself, is refused
 * as a whole, and the peer then holds nothing. Work is bounded by the limits below. A message that
 * repeats the one before costs one comparison.
 * Thread: one at a time. Memory: messages are copied to the heap, and each set has some 24 bytes
 * per part and 4 per replica of a part. Nothing that peers say makes dropping a peer fail. */
#pragma once

#include "proto/list.h"
#include "proto/status.h"
#include "server/base/failure.h"
#include "server/formats/part_of.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most peers. */
#define EB_PART_MAP_PEERS_MAX 1024u
/* Most holdings of one message, and most bytes of all its error texts and of all its models' names.
 * These, and the number of parts below, bound the memory of one peer. */
#define EB_PART_MAP_HOLDINGS_MAX 4096u
#define EB_PART_MAP_ERROR_BYTES_MAX 65536u
#define EB_PART_MAP_NAME_BYTES_MAX 1048576u
/* Most parts that the holdings of one message own, all together. A part server owns one part. */
#define EB_PART_MAP_OWNED_MAX 65536u

enum eb_part_state {
    EB_PART_LOADING,
    EB_PART_READY,
    EB_PART_SERVING, /* the same as READY here */
    EB_PART_FAILED,
    EB_PART_STATES
};

/* A version that a peer holds, as the peer describes it. */
struct eb_part_holding {
    const char *model;
    uint64_t version;
    /* Digest of its manifest, and number of its parts. If they are 0 because the peer has not
     * loaded the version, it may be any version with the number, in as many parts as the peer's
     * role says. */
    uint64_t digest;
    uint32_t parts;
    /* The parts that the peer has; if the version is not loaded, it may be empty: the part of the
     * peer's role. */
    size_t owned_count;
    const uint32_t *owned; /* [owned_count] */
    enum eb_part_state state;
    const char *error; /* why it is FAILED; may be empty */
    bool is_served;    /* a router serves the version */
    bool is_claimed;   /* a router claims it */
};

struct eb_part_message {
    uint64_t instance;          /* of the peer's process; not 0 */
    struct eb_part_choice role; /* the part that the server has been started for; may be zeroed */
    size_t count;
    const struct eb_part_holding *holdings; /* [count] in any order */
};

/* Files of a version of a model. */
struct eb_part_key {
    const char *model;
    uint64_t version;
    uint64_t digest; /* of its manifest */
    uint32_t parts;  /* 1 to EB_PARTS_MAX */
};

struct eb_part_map {
    uint32_t peer_count;
    struct eb_part_peer *peers; /* [peer_count] */
    /* The connected peers, sorted by instance, then by number. */
    uint32_t connected_count;
    uint32_t *connected; /* [connected_count], room for peer_count */
    struct eb_list sets;
    uint64_t changes; /* grows with each change of what peers hold */
};

/* The peers of one version. Owners read it through eb_part_set_peers and eb_part_map_view. */
struct eb_part_set {
    struct eb_list link; /* in the map's list */
    struct eb_part_key key;
    uint32_t *first; /* [parts + 1]: the peers of part p are peers[first[p]] to
                        peers[first[p + 1]] */
    uint32_t *peers;
    size_t room; /* of `peers` */
    bool is_served;
    bool is_claimed;
    bool is_conflict;
    uint64_t counted;         /* map->changes when the replicas were counted */
    struct eb_part_row *rows; /* [parts] */
};

/* Summary of a version. */
struct eb_part_view {
    bool is_complete;  /* each part is READY at a replica */
    bool has_replicas; /* each part is READY at as many replicas as are wanted, or at as many as
                          have the part connected at all if fewer, and at least at one */
    bool is_served;    /* some peer says that a router serves it */
    bool is_claimed;
    bool is_conflict;     /* some peer has other files under its number, in as many parts */
    uint32_t ready_parts; /* parts that are READY somewhere */
    uint32_t lost_part;   /* the first part that is READY nowhere, if it is not complete */
    /* Whether all connected replicas of a part say FAILED. */
    bool is_failed;
    uint32_t failed_part; /* the first one */
    const char *error;    /* of one of its replicas; borrowed until the map changes; else empty */
};

/* Returns the peers that can take a leg of the part, in no order, and sets *count to their number.
 * Each of them is another instance. The result is borrowed until the map changes. */
static inline const uint32_t *eb_part_set_peers(
    const struct eb_part_set *set, uint32_t part, size_t *count)
{
    *count = set->first[part + 1] - set->first[part];
    return set->peers + set->first[part];
}

/* Returns what the map says of a version of which each part should have `replicas` replicas. */
struct eb_part_view eb_part_map_view(
    const struct eb_part_map *map, struct eb_part_set *set, uint32_t replicas);
/* Sets *text to "part 3: " and the error of a view that is_failed. */
void eb_part_view_explain(const struct eb_part_view *view, struct eb_failure *text);

/* Returns false if out of memory; then nothing is left. peer_count is at most
 * EB_PART_MAP_PEERS_MAX. */
bool eb_part_map_init(struct eb_part_map *map, uint32_t peer_count);
/* Closes all sets. Accepts a zeroed map. */
void eb_part_map_deinit(struct eb_part_map *map);

/* Takes what a peer says; copies everything. Returns false with *error set, and the peer holding
 * nothing, if the message is refused (INTERNAL: the error is the peer's) or if out of memory
 * (RESOURCE_EXHAUSTED). */
bool eb_part_map_take(struct eb_part_map *map, uint32_t peer, const struct eb_part_message *message,
    struct eb_error *error);
/* Forgets what a peer has said, because its connection is lost or it drains. Does nothing if it has
 * said nothing. */
void eb_part_map_drop(struct eb_part_map *map, uint32_t peer);

/* Returns a set for the files of a version, or NULL if out of memory. Does not look for another set
 * of the same files. */
struct eb_part_set *eb_part_map_open(struct eb_part_map *map, const struct eb_part_key *key);
/* Accepts NULL. */
void eb_part_map_close(struct eb_part_set *set);

/* Returns how many instances are connected that have the part, of any version in as many parts. */
uint32_t eb_part_map_count_connected(const struct eb_part_map *map, uint32_t part, uint32_t parts);
/* Returns whether a peer has any files under a version's number in memory, or loads them. */
bool eb_part_map_has_version(const struct eb_part_map *map, const char *model, uint64_t version);
