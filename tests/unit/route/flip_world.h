/* A router's choice of a version, and what it is told: a model of up to four versions, 1 to 4.
 * Thread: one. Memory: none of its own; a world may be copied. */
#pragma once

#include "server/route/flip.h"

#define SECOND UINT64_C(1000000000)
#define NEXT_WAIT_NS (1800 * SECOND)

struct flip_world {
    struct eb_flip flip;
    struct eb_flip_input input; /* `count` is that of the published versions */
    struct eb_flip_version versions[4];
    /* The served version, if other files have been published under its number; or number 0. */
    struct eb_flip_version kept;
    /* What the rules are checked against. */
    uint64_t fit_since_ns[4]; /* EB_FLIP_NEVER: it cannot be served */
    uint64_t return_ns[4];
    uint64_t served_high; /* the highest version served since a command chose one */
    bool was_complete;    /* the served version, since it is served */
};

/* Sets up a router that starts, and has heard of all servers, with the first `count` versions
 * published, all of one lineage. None of them is complete. */
void flip_world_init(struct flip_world *world, size_t count);
/* Takes the router's state forward. */
void flip_world_step(struct flip_world *world);
/* Lets time pass, then steps. */
void flip_world_pass(struct flip_world *world, uint64_t ns);
/* Makes version `number` complete, with enough replicas, or no longer, then steps. */
void flip_world_complete(struct flip_world *world, uint64_t number, bool is_complete);
/* Publishes other files under the number of a version, then steps. If it is served, the router
 * keeps what it serves. */
void flip_world_replace(struct flip_world *world, uint64_t number);
