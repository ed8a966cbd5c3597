/* Which part servers hold which parts of which versions, as they say themselves.
 *
 * A server is a peer, numbered by its owner. What it says replaces what it said before. Addresses
 * that lead to the same process, as two addresses of a host do, have the same instance: the first
 * of them counts, the others do not.
 *
 * What peers say is not trusted: lists that exceed a limit, or contradict themselves, are refused
 * as a whole, and the peer then holds nothing.
 * Thread: one at a time. Memory: the lists are on the heap; init allocates the peers. */
#pragma once

#include "proto/status.h"
#include "server/formats/part_of.h"

#include <stdbool.h>
#include <stddef.h>

#define EB_PART_MAP_PEERS_MAX 1024u
/* Most holdings of one peer, and most bytes of their error texts. */
#define EB_PART_MAP_HOLDINGS_MAX 4096u
#define EB_PART_MAP_ERROR_BYTES_MAX 65536u

enum eb_part_state { EB_PART_LOADING, EB_PART_READY, EB_PART_FAILED, EB_PART_STATES };

/* A version of a model: other files under its number, or other parts, are another version. */
struct eb_part_key {
    const char *model;
    uint64_t version;
    uint64_t digest; /* of the manifest */
    uint32_t parts;
};

/* One part of one version at a peer. */
struct eb_part_holding {
    struct eb_part_key key;
    uint32_t part;
    enum eb_part_state state;
    const char *error; /* why it is FAILED; may be empty */
    bool is_served;    /* a router serves the version */
    bool is_claimed;   /* a router claims it */
};

struct eb_part_map {
    uint32_t peer_count;
    struct eb_part_peer *peers; /* [peer_count] */
};

/* Returns false if out of memory; then nothing is left. peer_count is at most
 * EB_PART_MAP_PEERS_MAX. */
bool eb_part_map_init(struct eb_part_map *map, uint32_t peer_count);
/* Accepts a zeroed map. */
void eb_part_map_deinit(struct eb_part_map *map);

/* Takes what a peer holds; copies everything. `instance` is that of its process, not 0. Returns
 * false with *error set, and the peer holding nothing, if a limit is exceeded, if a holding has a
 * part that does not exist, or if out of memory. */
bool eb_part_map_take(struct eb_part_map *map, uint32_t peer, uint64_t instance,
    const struct eb_part_holding *holdings, size_t count, struct eb_error *error);
/* Notes that a peer is not connected. */
void eb_part_map_drop(struct eb_part_map *map, uint32_t peer);

/* What the map says of a version. */
struct eb_part_view {
    bool is_complete;  /* each part has a peer where it is READY */
    bool has_replicas; /* each part has as many as are wanted, or as many as hold it at all of any
                          version, if these are fewer */
    bool is_failed;    /* some part is FAILED at all peers that hold it */
    uint32_t failed_part;
    const char *error; /* of one of them, borrowed until the map changes; empty if not is_failed */
    bool is_served;    /* a router serves the version, says some peer */
    bool is_claimed;
    uint32_t ready_parts; /* parts that are READY somewhere */
};

/* Sets *view for a version with key->parts parts, of which `replicas` peers each are wanted.
 * Returns false if out of memory. */
bool eb_part_map_view(const struct eb_part_map *map, const struct eb_part_key *key,
    uint32_t replicas, struct eb_part_view *view);
/* Writes the numbers of the peers where the part is READY, ascending, at most `count_max` of them.
 * Returns how many there are. */
size_t eb_part_map_list(const struct eb_part_map *map, const struct eb_part_key *key, uint32_t part,
    uint32_t *peers, size_t count_max);
