#include "server/stats/route_stats.h"

#include <stdlib.h>
#include <string.h>

/* ---- facts ---- */

struct eb_route_facts *eb_route_facts_make(size_t model_count)
{
    struct eb_route_facts *facts = calloc(1, sizeof *facts);
    if (!facts) {
        return NULL;
    }
    facts->holds = 1;
    facts->models = calloc(model_count + 1, sizeof *facts->models);
    if (!facts->models) {
        free(facts);
        return NULL;
    }
    return facts;
}

void eb_route_facts_drop(struct eb_route_facts *facts)
{
    if (!facts || --facts->holds > 0) {
        return;
    }
    for (size_t i = 0; i < facts->model_count; i++) {
        free(facts->models[i].name);
    }
    free(facts->models);
    free(facts);
}

uint32_t eb_route_facts_part(const struct eb_route_facts *facts, uint64_t instance)
{
    size_t low = 0;
    size_t high = facts->instance_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (facts->instances[middle].instance < instance) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool is_found = low < facts->instance_count && facts->instances[low].instance == instance;
    return is_found ? facts->instances[low].part : EB_ROUTE_NO_PART;
}

const char *eb_route_slot_name(enum eb_route_slot_name slot)
{
    static const char *const names[EB_ROUTE_SLOTS] = {
#define X(name, text) text,
        EB_ROUTE_SLOT_LIST(X)
#undef X
    };
    return names[slot];
}

/* ---- counts ---- */

struct eb_route_counts *eb_route_counts_make(size_t peers_max)
{
    struct eb_route_counts *counts = NULL;
    return calloc(1, sizeof *counts + peers_max * sizeof counts->peers[0]);
}

static int compare_peers(const void *one, const void *other)
{
    const struct eb_leg_peer *left = one;
    const struct eb_leg_peer *right = other;
    int order = strcmp(left->address, right->address);
    return order != 0 ? order
                      : (left->instance > right->instance) - (left->instance < right->instance);
}

static void merge_peer(struct eb_leg_peer *into, const struct eb_leg_peer *other)
{
    into->is_connected |= other->is_connected;
    into->is_suspect |= other->is_suspect;
    into->is_ejected |= other->is_ejected;
    into->latency_ns = other->latency_ns > into->latency_ns ? other->latency_ns : into->latency_ns;
    into->sent += other->sent;
    into->failed += other->failed;
}

/* Sorts the peers of all loops, and makes one of those that are the same. */
static void merge_peers(struct eb_route_counts *counts)
{
    size_t kept = 0;
    qsort(counts->peers, counts->peer_count, sizeof counts->peers[0], compare_peers);
    for (size_t i = 0; i < counts->peer_count; i++) {
        if (kept > 0 && compare_peers(&counts->peers[kept - 1], &counts->peers[i]) == 0) {
            merge_peer(&counts->peers[kept - 1], &counts->peers[i]);
        } else {
            counts->peers[kept++] = counts->peers[i];
        }
    }
    counts->peer_count = kept;
}

struct eb_route_counts *eb_route_counts_merge(
    const struct eb_route_counts *const *loops, size_t count)
{
    size_t peers_max = 0;
    for (size_t i = 0; i < count; i++) {
        peers_max += loops[i]->peer_count;
    }
    struct eb_route_counts *sum = eb_route_counts_make(peers_max);
    for (size_t i = 0; sum && i < count; i++) {
        for (unsigned row = 0; row < EB_ROUTE_ROWS; row++) {
            eb_leg_counters_merge(&sum->rows[row], &loops[i]->rows[row]);
        }
        sum->totals.received_bytes += loops[i]->totals.received_bytes;
        sum->totals.slab_waits += loops[i]->totals.slab_waits;
        sum->totals.unreached += loops[i]->totals.unreached;
        memcpy(&sum->peers[sum->peer_count], loops[i]->peers,
            loops[i]->peer_count * sizeof sum->peers[0]);
        sum->peer_count += loops[i]->peer_count;
    }
    if (sum) {
        merge_peers(sum);
    }
    return sum;
}
