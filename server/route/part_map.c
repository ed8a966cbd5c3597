#include "server/route/part_map.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct eb_part_peer {
    uint64_t instance; /* 0: not connected, or it has said nothing yet */
    size_t count;
    struct eb_part_holding *holdings; /* one block of memory, with all texts */
};

bool eb_part_map_init(struct eb_part_map *map, uint32_t peer_count)
{
    assert(peer_count <= EB_PART_MAP_PEERS_MAX);
    map->peer_count = peer_count;
    map->peers = calloc(peer_count + 1, sizeof *map->peers);
    return map->peers;
}

void eb_part_map_deinit(struct eb_part_map *map)
{
    for (uint32_t peer = 0; peer < map->peer_count; peer++) {
        free(map->peers[peer].holdings);
    }
    free(map->peers);
    *map = (struct eb_part_map){0};
}

/* ---- what peers say ---- */

static bool refuse_holdings(struct eb_error *error, const char *what, uint64_t number, uint64_t max)
{
    eb_error_set(error, EB_STATUS_INTERNAL,
        "the server says that it holds %s %" PRIu64 "; expected at most %" PRIu64, what, number,
        max);
    return false;
}

/* Checks a peer's list, and sets *text_bytes to the size of its texts. */
static bool check_holdings(const struct eb_part_holding *holdings, size_t count, size_t *text_bytes,
    struct eb_error *error)
{
    size_t error_bytes = 0;
    *text_bytes = 0;
    if (count > EB_PART_MAP_HOLDINGS_MAX) {
        return refuse_holdings(error, "parts of versions:", count, EB_PART_MAP_HOLDINGS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        const struct eb_part_key *key = &holdings[i].key;
        if (key->parts == 0 || key->parts > EB_PARTS_MAX) {
            return refuse_holdings(
                error, "a version whose number of parts is", key->parts, EB_PARTS_MAX);
        }
        if (holdings[i].part >= key->parts) {
            return refuse_holdings(error, "part", holdings[i].part, key->parts - 1);
        }
        error_bytes += strlen(holdings[i].error);
        *text_bytes += strlen(key->model) + 1 + strlen(holdings[i].error) + 1;
    }
    return error_bytes <= EB_PART_MAP_ERROR_BYTES_MAX ||
           refuse_holdings(
               error, "error texts whose bytes are", error_bytes, EB_PART_MAP_ERROR_BYTES_MAX);
}

/* Copies a text to *at, and moves *at past it. */
static const char *copy_text(const char *text, char **at)
{
    char *copy = *at;
    size_t bytes = strlen(text) + 1;
    memcpy(copy, text, bytes);
    *at += bytes;
    return copy;
}

static void copy_holdings(
    const struct eb_part_holding *from, size_t count, struct eb_part_holding *to)
{
    char *texts = (char *)(to + count);
    for (size_t i = 0; i < count; i++) {
        to[i] = from[i];
        to[i].key.model = copy_text(from[i].key.model, &texts);
        to[i].error = copy_text(from[i].error, &texts);
    }
}

bool eb_part_map_take(struct eb_part_map *map, uint32_t peer, uint64_t instance,
    const struct eb_part_holding *holdings, size_t count, struct eb_error *error)
{
    assert(peer < map->peer_count && instance != 0);
    size_t text_bytes;
    eb_part_map_drop(map, peer);
    if (!check_holdings(holdings, count, &text_bytes, error)) {
        return false;
    }
    struct eb_part_holding *copies = malloc(count * sizeof *copies + text_bytes + 1);
    if (!copies) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left for what a server holds");
        return false;
    }
    copy_holdings(holdings, count, copies);
    map->peers[peer] = (struct eb_part_peer){instance, count, copies};
    return true;
}

void eb_part_map_drop(struct eb_part_map *map, uint32_t peer)
{
    assert(peer < map->peer_count);
    free(map->peers[peer].holdings);
    map->peers[peer] = (struct eb_part_peer){0};
}

/* ---- what the map says ---- */

/* Returns whether a peer counts: it is connected, and no peer before it is the same process. */
static bool is_counted(const struct eb_part_map *map, uint32_t peer)
{
    uint64_t instance = map->peers[peer].instance;
    for (uint32_t other = 0; other < peer; other++) {
        if (instance != 0 && map->peers[other].instance == instance) {
            return false;
        }
    }
    return instance != 0;
}

static bool is_same_key(const struct eb_part_key *a, const struct eb_part_key *b)
{
    return a->version == b->version && a->digest == b->digest && a->parts == b->parts &&
           strcmp(a->model, b->model) == 0;
}

/* The peers of one part. */
struct part_count {
    uint32_t holders; /* of any version in as many parts */
    uint32_t ready;
    uint32_t failed;
    uint32_t others; /* of the version, that are LOADING */
    const char *error;
};

/* Counts a holding of the version. */
static void count_holding(
    const struct eb_part_holding *holding, struct part_count *count, struct eb_part_view *view)
{
    count->ready += holding->state == EB_PART_READY;
    count->others += holding->state == EB_PART_LOADING;
    if (holding->state == EB_PART_FAILED) {
        count->failed++;
        count->error = holding->error;
    }
    view->is_served = view->is_served || holding->is_served;
    view->is_claimed = view->is_claimed || holding->is_claimed;
}

/* Counts what a peer holds. A peer that has a part of several versions is one holder of it. */
static void count_peer(const struct eb_part_peer *peer, const struct eb_part_key *key,
    struct part_count *counts, struct eb_part_view *view)
{
    for (size_t i = 0; i < peer->count; i++) {
        const struct eb_part_holding *holding = &peer->holdings[i];
        if (holding->key.parts != key->parts) {
            continue;
        }
        bool is_first = true;
        for (size_t k = 0; k < i && is_first; k++) {
            is_first = peer->holdings[k].key.parts != key->parts ||
                       peer->holdings[k].part != holding->part;
        }
        counts[holding->part].holders += is_first;
        if (is_same_key(&holding->key, key)) {
            count_holding(holding, &counts[holding->part], view);
        }
    }
}

static void judge_part(
    const struct part_count *count, uint32_t part, uint32_t replicas, struct eb_part_view *view)
{
    uint32_t wanted = count->holders < replicas ? count->holders : replicas;
    view->ready_parts += count->ready > 0;
    view->is_complete = view->is_complete && count->ready > 0;
    view->has_replicas = view->has_replicas && count->ready > 0 && count->ready >= wanted;
    if (count->failed > 0 && count->ready == 0 && count->others == 0 && !view->is_failed) {
        view->is_failed = true;
        view->failed_part = part;
        view->error = count->error;
    }
}

bool eb_part_map_view(const struct eb_part_map *map, const struct eb_part_key *key,
    uint32_t replicas, struct eb_part_view *view)
{
    assert(key->parts > 0 && key->parts <= EB_PARTS_MAX);
    struct part_count *counts = calloc(key->parts, sizeof *counts);
    if (!counts) {
        return false;
    }
    *view = (struct eb_part_view){.is_complete = true, .has_replicas = true, .error = ""};
    for (uint32_t peer = 0; peer < map->peer_count; peer++) {
        if (is_counted(map, peer)) {
            count_peer(&map->peers[peer], key, counts, view);
        }
    }
    for (uint32_t part = 0; part < key->parts; part++) {
        judge_part(&counts[part], part, replicas, view);
    }
    free(counts);
    return true;
}

static bool is_ready_at(
    const struct eb_part_peer *peer, const struct eb_part_key *key, uint32_t part)
{
    for (size_t i = 0; i < peer->count; i++) {
        const struct eb_part_holding *holding = &peer->holdings[i];
        if (holding->part == part && holding->state == EB_PART_READY &&
            is_same_key(&holding->key, key)) {
            return true;
        }
    }
    return false;
}

size_t eb_part_map_list(const struct eb_part_map *map, const struct eb_part_key *key, uint32_t part,
    uint32_t *peers, size_t count_max)
{
    size_t count = 0;
    for (uint32_t peer = 0; peer < map->peer_count; peer++) {
        if (is_ready_at(&map->peers[peer], key, part) && is_counted(map, peer)) {
            if (count < count_max) {
                peers[count] = peer;
            }
            count++;
        }
    }
    return count;
}
