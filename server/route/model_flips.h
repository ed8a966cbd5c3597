/* The models of a router: brings together which versions its repository has (models/routed.h) and
 * which part servers have them (part_map.h), and lets the flip of each model (flip.h) decide. From
 * that follow what the manager loads and serves, which versions the router claims, and the route
 * tables of the loops.
 * Thread: one at a time. Memory: copies on the heap. */
#pragma once

#include "server/models/routed.h"
#include "server/route/flip.h"
#include "server/route/part_map.h"
#include "server/route/route_table.h"

/* A version of the repository with its replicas. */
struct eb_flips_version {
    struct eb_routed_version routed; /* `lineage` is this version's copy */
    struct eb_part_set *set;         /* NULL if there is no memory for it */
    struct eb_part_view view;        /* as of the last step */
    uint64_t pin_end_ns;             /* likewise; 0: it is not pinned */
};

struct eb_flips_model {
    char *name;
    uint64_t serve;
    uint64_t served;   /* by the manager */
    uint64_t former;   /* version that was served before the last step */
    uint64_t previous; /* the last other version that was served; 0: none */
    uint64_t previous_digest;
    struct eb_flip flip;
    size_t version_count;
    struct eb_flips_version *versions; /* as in struct eb_routed_model */
    struct eb_routed_choice choice;    /* the result of the last step; `model` is `name` */
    bool is_listed;                    /* the repository still has the model */
};

struct eb_model_flips {
    struct eb_part_map *map; /* set by the owner; must outlive this */
    size_t count;
    struct eb_flips_model *models;
};

/* Terms of a step; see struct eb_flip_input. */
struct eb_flips_terms {
    uint32_t replicas; /* flip_replicas */
    bool has_all_answers;
    uint64_t settle_until_ns;
    uint64_t now_ns;
    uint64_t next_wait_ns;
    /* Returns the time until which requests pin a version in memory, which may be over. NULL: there
     * are no pins. */
    uint64_t (*find_pin_end_ns)(void *context, const char *model, uint64_t number);
    void *context;
};

/* Longest time until a pin of a version that is not claimed is noticed: such a version stays at the
 * part servers for claim_grace_s. */
#define EB_FLIPS_PIN_NS UINT64_C(5000000000)

void eb_model_flips_deinit(struct eb_model_flips *flips);

/* Takes over what the repository has. Returns false if out of memory; the former state then
 * remains for the models concerned. */
bool eb_model_flips_take(
    struct eb_model_flips *flips, const struct eb_routed_model *models, size_t count);

/* Advances every flip and sets the choices. Returns when to step again at the latest;
 * EB_FLIP_NEVER: when something changes. */
uint64_t eb_model_flips_step(struct eb_model_flips *flips, const struct eb_flips_terms *terms);

/* Returns a table of the replicas of all versions that are in memory, and of those that have failed
 * at all servers of a part. `instance_of` returns the number of a peer's process, 0
 * if it is gone. Returns NULL if out of memory. */
struct eb_route_table *eb_model_flips_make_routes(const struct eb_model_flips *flips,
    uint64_t (*instance_of)(const void *context, uint32_t peer), const void *context);
