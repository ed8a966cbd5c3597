/* All models as requests see them: the versions that answer requests, which of them is served (it
 * answers requests that name no version), and the state of the other versions. A snapshot never
 * changes; each new state is a new snapshot.
 * Thread: made and freed by its owner, read by any. Memory: on the heap, with a reference to every
 * version that answers. */
#pragma once

#include "server/models/claims.h"
#include "server/models/model_version.h"

/* X(NAME, number, "name"); numbers are those of embag.v1.ModelVersion.State. */
#define EB_VERSION_STATE_LIST(X)                                                                   \
    X(LOADING, 1, "loading")                                                                       \
    X(READY, 2, "ready")     /* answers requests that name it */                                   \
    X(SERVING, 3, "serving") /* answers these and requests that name no version */                 \
    X(RETIRED, 4, "retired") /* no longer answers; its last readers are not done */                \
    X(FAILED, 5, "failed")

#define X(name, number, text) EB_VERSION_##name = (number),
enum eb_version_state { EB_VERSION_STATE_LIST(X) EB_VERSION_STATES };
#undef X

struct eb_snapshot_version {
    uint64_t number; /* 0 if the directory's name is not a version number */
    enum eb_version_state state;
    bool is_held;                    /* a command holds it */
    bool is_claimed;                 /* a router claims it */
    bool is_served_by_router;        /* a router that claims it answers requests with it */
    uint64_t manifest;               /* as eb_registry_manifest returns it */
    struct eb_model_version *loaded; /* set if READY or SERVING, otherwise NULL */
    char *failure;                   /* reason if FAILED, otherwise NULL */
};

struct eb_snapshot_label {
    char *name;
    uint64_t version;
};

struct eb_snapshot_model {
    char *name;
    struct eb_model_version *served; /* NULL if none is served yet */
    uint64_t commanded; /* version that a command has chosen to serve; 0 if model.yaml chooses */
    char *failure; /* reason why its directory cannot be read or its model.yaml cannot be used; NULL
                      if both can */
    struct eb_claim_counts claims; /* for all its versions, also for those that are not here */
    size_t version_count;
    struct eb_snapshot_version *versions; /* highest first */
    size_t label_count;
    struct eb_snapshot_label *labels;
};

/* Numbers of versions loaded and dropped since the start, and of those kept now. */
struct eb_snapshot_loads {
    uint64_t done;
    uint64_t failed;  /* loads that failed, or could not be tried because of their directories, but
                         not those that were cancelled or wait for memory that is being freed */
    uint64_t freed;   /* versions freed in the background, after they had been served or kept */
    uint64_t evicted; /* versions dropped before keep_s was over, for kept_versions_max or
                         kept_bytes_max */
    uint64_t kept;    /* versions in memory that are no longer wanted */
    uint64_t kept_bytes; /* memory of the kept versions that no other version shares */
};

struct eb_snapshot {
    /* Reason why a part server is not ready: it is if a version is in memory, and all those are
     * that routers answer requests with. NULL if it is ready, and on other servers. */
    char *not_ready;
    struct eb_snapshot_loads loads;
    size_t count;
    struct eb_snapshot_model *models; /* sorted by name */
    unsigned holders;                 /* private to the owner of the snapshot */
};

/* Returns the name of a state: "loading" and so on. */
const char *eb_version_state_name(enum eb_version_state state);

/* Frees a snapshot (registry_snapshot.c makes them) and gives its references back. Accepts NULL. */
void eb_snapshot_free(struct eb_snapshot *snapshot);

/* Returns the model called `name`. If `name` is empty, returns the only model that serves a version
 * or, if none does, the only model. Returns NULL if there is none, or if there are several. */
const struct eb_snapshot_model *eb_snapshot_find(
    const struct eb_snapshot *snapshot, const char *name);
/* Returns the version with that number, or the one that is served if the number is 0. It is
 * borrowed from the snapshot. Returns NULL if there is no such version or it does not answer
 * requests. */
struct eb_model_version *eb_snapshot_find_version(
    const struct eb_snapshot_model *model, uint64_t number);
/* Returns the number of the version that has the label, or 0 if there is no such label. */
uint64_t eb_snapshot_find_label(const struct eb_snapshot_model *model, const char *label);
