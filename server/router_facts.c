#include "server/router_facts.h"

#include "server/route/model_flips.h"
#include "server/route/peer_watch.h"

#include <stdlib.h>
#include <string.h>

/* ---- server processes ---- */

/* Remembers the part of a process. Returns false if there is no room. */
static bool remember_instance(struct eb_router_instances *known, uint64_t instance, uint32_t part)
{
    size_t low = 0;
    size_t high = known->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (known->items[middle].instance < instance) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (instance == 0 || (low < known->count && known->items[low].instance == instance)) {
        return true;
    }
    if (known->count == EB_ROUTE_INSTANCES_MAX) {
        return false;
    }
    memmove(
        &known->items[low + 1], &known->items[low], (known->count - low) * sizeof known->items[0]);
    known->items[low] = (struct eb_route_instance){instance, part};
    known->count++;
    return true;
}

static bool remember_version(struct eb_router_instances *known,
    const struct eb_flips_version *version, const struct eb_peer_watch *watch)
{
    for (uint32_t part = 0; version->set && part < version->routed.parts; part++) {
        size_t count;
        const uint32_t *peers = eb_part_set_peers(version->set, part, &count);
        for (size_t i = 0; i < count; i++) {
            if (!remember_instance(known, eb_peer_watch_instance(watch, peers[i]), part)) {
                return false;
            }
        }
    }
    return true;
}

static bool remember_all(struct eb_router_instances *known, const struct eb_model_flips *flips,
    const struct eb_peer_watch *watch)
{
    for (size_t i = 0; i < flips->count; i++) {
        for (size_t k = 0; k < flips->models[i].version_count; k++) {
            if (!remember_version(known, &flips->models[i].versions[k], watch)) {
                return false;
            }
        }
    }
    return true;
}

/* Returns how many processes are connected; several addresses may lead to one of them. */
static uint32_t count_connected(struct eb_peer_watch *watch)
{
    const struct eb_part_map *map = eb_peer_watch_map(watch);
    uint32_t count = 0;
    uint64_t former = 0;
    for (uint32_t i = 0; i < map->connected_count; i++) {
        uint64_t instance = eb_peer_watch_instance(watch, map->connected[i]);
        count += instance != former;
        former = instance;
    }
    return count;
}

/* ---- models ---- */

static void count_replicas(const struct eb_flips_version *version, struct eb_route_slot *slot)
{
    for (uint32_t part = 0; part < slot->parts; part++) {
        size_t count;
        (void)eb_part_set_peers(version->set, part, &count);
        uint16_t *replicas = &slot->replicas[eb_route_row(part)];
        if (part <= EB_ROUTE_PARTS_SHOWN || count < *replicas) {
            *replicas = (uint16_t)count; /* There are at most EB_PART_MAP_PEERS_MAX. */
        }
    }
}

static void fill_slot(const struct eb_flips_model *model, uint64_t number, uint64_t digest,
    struct eb_route_slot *slot)
{
    slot->version = number;
    for (size_t i = 0; number != 0 && i < model->version_count; i++) {
        const struct eb_flips_version *version = &model->versions[i];
        if (version->routed.number == number && version->routed.digest == digest && version->set) {
            slot->parts = version->routed.parts;
            slot->ready_parts = version->view.ready_parts;
            slot->is_complete = version->view.is_complete && version->routed.is_loaded;
            count_replicas(version, slot);
        }
    }
}

/* Returns whether another version should be served than the one that is. */
static bool is_model_behind(const struct eb_flips_model *model)
{
    uint64_t wanted = model->serve;
    for (size_t i = 0; model->serve == 0 && i < model->version_count; i++) {
        const struct eb_routed_version *routed = &model->versions[i].routed;
        wanted = routed->is_on_disk && routed->number > wanted ? routed->number : wanted;
    }
    return wanted != 0 &&
           (model->serve != 0 ? wanted != model->flip.served : wanted > model->flip.served);
}

/* Returns false if out of memory. */
static bool fill_model(const struct eb_flips_model *model, struct eb_route_model *out)
{
    const struct eb_flip *flip = &model->flip;
    out->name = strdup(model->name);
    out->is_behind = is_model_behind(model);
    fill_slot(model, flip->served, flip->served_digest, &out->slots[EB_ROUTE_SERVED]);
    fill_slot(model, flip->next, flip->next_digest, &out->slots[EB_ROUTE_NEXT]);
    fill_slot(model, model->previous, model->previous_digest, &out->slots[EB_ROUTE_PREVIOUS]);
    return out->name;
}

struct eb_route_facts *eb_router_facts_make(const struct eb_model_flips *flips,
    struct eb_peer_watch *watch, struct eb_router_instances *known)
{
    struct eb_route_facts *facts = eb_route_facts_make(flips->count);
    bool is_good = facts;
    for (size_t i = 0; is_good && i < flips->count; i++) {
        is_good = fill_model(&flips->models[i], &facts->models[facts->model_count++]);
        facts->has_conflict |= flips->models[i].flip.has_conflict;
    }
    if (!is_good) {
        eb_route_facts_drop(facts);
        return NULL;
    }
    if (!remember_all(known, flips, watch)) {
        known->count = 0; /* Processes that have ended fill it. Those that run have room. */
        (void)remember_all(known, flips, watch);
    }
    facts->connected = count_connected(watch);
    facts->instance_count = known->count;
    memcpy(facts->instances, known->items, known->count * sizeof known->items[0]);
    return facts;
}
