/* Messages that a router exchanges with part servers, as its map of parts needs them: the role that
 * a server tells (GetServer), what it holds, and the claims that it is sent (WatchModels).
 * Thread: pure. Memory: what is decoded is in the arena and lives as long as the arena's content
 * and the message's bytes. An encoded request is the caller's. */
#pragma once

#include "proto/arena.h"
#include "proto/codec_watch.h"
#include "server/route/part_map.h"

/* Lowest level (EB_WATCH_LEVEL) of part servers that this router can use. */
#define EB_PEER_LEVEL_MIN 1u

/* A version that a router needs. */
struct eb_peer_watch_claim {
    const char *model; /* not empty */
    uint64_t version;  /* not 0 */
    uint64_t digest;
    bool is_served; /* the router answers requests with it */
};

/* A message of WatchModels, decoded. */
struct eb_peer_message {
    struct eb_part_message part; /* without the role */
    bool is_draining;
    uint32_t level;
};

/* Reads a role such as "part 3/16". Returns false if it is not that of a part server. */
bool eb_peer_role_read(const char *role, struct eb_part_choice *choice);

/* Decodes a message of WatchModels. Versions in a state that does not matter here, or that a later
 * release knows, are left out. Returns NULL with *error set if the message is malformed, exceeds a
 * limit of codec_watch.h, or contains a version 0. */
struct eb_peer_message *eb_peer_message_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);

/* A request of WatchModels, serialised. */
struct eb_peer_request {
    uint8_t *bytes; /* [size] */
    size_t size;
    size_t left_out; /* claims for which there was no room */
};

/* Encodes a request with at most EB_WATCH_CLAIMS_MAX claims: those of served versions, and then the
 * others, in the given order. Returns false if out of memory; then *request is not changed. */
bool eb_peer_request_encode(struct eb_peer_request *request, const char *router,
    const struct eb_peer_watch_claim *claims, size_t count);
/* Frees the bytes. Accepts a zeroed request. */
void eb_peer_request_free(struct eb_peer_request *request);
