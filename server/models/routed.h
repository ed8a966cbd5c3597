/* Messages between a router's manager and its flip (route/flip.h): the versions of a model, and
 * which to load and serve.
 * Thread: the manager's. Memory: all pointers are borrowed for the call. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A version of a model as a router's repository has it. */
struct eb_routed_version {
    uint64_t number;
    uint64_t digest; /* of its manifest */
    uint32_t parts;
    const char *lineage; /* "": none */
    bool is_on_disk;
    bool is_loaded; /* its tables placed everywhere are in memory */
    bool is_failed; /* they could not be loaded */
    bool is_held;   /* a command holds it */
    bool is_labelled;
};

struct eb_routed_model {
    const char *name;
    uint64_t serve;  /* version that a command or model.yaml serves; 0: the highest */
    uint64_t served; /* the version served now; 0: none */
    uint64_t served_digest;
    size_t version_count;
    /* By number, the lowest first: on disk or in memory. If the directory of a version in memory
     * has been replaced by one with another manifest, the number has two entries: the one in
     * memory, which is no longer on disk, and after it the one on disk, which is not loaded. */
    const struct eb_routed_version *versions;
};

/* Most versions of a model that a router wants. */
#define EB_ROUTED_WANTED_MAX 8

/* The flip's decision for a model. */
struct eb_routed_choice {
    const char *model;
    uint64_t served;                       /* a loaded version; 0: none */
    size_t wanted_count;                   /* at most EB_ROUTED_WANTED_MAX */
    uint64_t wanted[EB_ROUTED_WANTED_MAX]; /* versions to be loaded and kept, in this order; the
                                              served one is among them */
};
