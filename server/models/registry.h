/* The models of a server: the versions on disk and in memory, the version that is served, and the
 * changes that commands have requested. The registry decides with version_policy.h, and makes the
 * snapshots that requests read. Its owner loads and frees versions and hands the snapshots over.
 * Thread: the owner's. Memory: on the heap, with a reference to every version in memory. */
#pragma once

#include "server/models/claims.h"
#include "server/models/repository.h"
#include "server/models/routed.h"
#include "server/models/snapshot.h"

/* Callbacks for events that should be logged. Members may be NULL. */
struct eb_registry_events {
    /* A directory cannot be loaded. `model` is the name of its model, or of the directory itself;
     * `version` is 0 if the directory is not a version. */
    void (*on_failed)(void *context, const char *model, uint64_t version, const char *why);
    /* A model.yaml cannot be used. The previous settings stay in force. */
    void (*on_config_failed)(void *context, const char *model, const char *why);
    void (*on_served)(void *context, const char *model, uint64_t version, uint64_t before);
    void (*on_retired)(void *context, const char *model, uint64_t version);
    /* A model.yaml names a version that does not exist: for the label `label` or, if that is NULL,
     * as the version to serve. Called once for each model.yaml. */
    void (*on_missing)(void *context, const char *model, uint64_t version, const char *label);
    /* The directory of a version in memory has changed since the version was loaded. */
    void (*on_changed)(void *context, const char *model, uint64_t version);
    /* Tables, features or groups of a model.yaml differ from those that versions in memory were
     * loaded with. `version` is the highest of these versions. */
    void (*on_described)(void *context, const char *model, uint64_t version);
    /* A version is dropped before keep_s is over, because of the limit `setting`. */
    void (*on_evicted)(void *context, const char *model, uint64_t version, const char *setting);
    /* The process died in `deaths` loads of the version. */
    void (*on_suspected)(void *context, const char *model, uint64_t version, unsigned deaths);
    /* A new version, or a newer one in its place, will be loaded after wait_ms. */
    void (*on_postponed)(void *context, const char *model, uint64_t version, uint64_t wait_ms);
    void *context;
};

/* The reason why a version was not loaded, and when it is tried again. */
enum eb_registry_failure {
    EB_REGISTRY_BROKEN,  /* bad content; tried again when its files or its model's settings have
                            changed */
    EB_REGISTRY_SHORT,   /* too little memory; tried again after a pause, or when memory is freed */
    EB_REGISTRY_HINDERED /* another cause that may pass; tried again after a pause. Each pause is
                            twice as long as the one before, up to five minutes */
};

/* Number of deaths of the process from which on the version that caused them is not loaded. */
#define EB_REGISTRY_DEATHS_FATAL 2

/* What the manifest of a directory says about its version, as in struct eb_repository_version. */
struct eb_registry_manifest {
    uint64_t digest;
    uint32_t parts;
    char *lineage; /* NULL if there is none */
};

struct eb_registry_version {
    uint64_t number; /* 0 if the directory's name is not a version number */
    char *name;      /* name of its directory */
    struct eb_file_stamp stamp;
    struct eb_file_stamp tried_stamp; /* `stamp` at the time when its last load began */
    uint64_t bytes;                   /* as in eb_repository_version */
    struct eb_registry_manifest manifest;
    struct eb_registry_manifest former; /* private: `manifest` before the directory of a version in
                                           use was replaced; zeroed if it was not */
    uint64_t files;                     /* as in eb_repository_version */
    uint64_t tried_files; /* `files` at the time when the failed load began; 0 if not known */
    bool is_on_disk;      /* it is on disk and can be loaded by its number */
    bool is_loading;
    unsigned deaths;   /* loads of these files in which the process died */
    bool is_set_aside; /* it is not loaded because of its deaths */
    bool is_fresh;     /* private: a scan has found it, and it may have to wait up to jitter_ms */
    bool is_held;      /* a command holds it */
    bool is_wanted;    /* private: it was wanted at the last decision */
    enum eb_registry_failure failure_kind; /* the last failure that was reported */
    unsigned passing_count;                /* consecutive failures with causes that may pass */
    uint64_t retry_ms;      /* time when its pause is over; 0 if the pause has not begun */
    char *failure;          /* reason why it was not loaded; NULL if it was loaded or not tried */
    unsigned retired_count; /* instances in memory that take no new requests */
    struct eb_model_version *loaded; /* NULL if it does not answer requests */
    uint64_t since_ms;               /* as in eb_policy_version */
    bool was_claimed;                /* private: it was claimed at the last decision */
    uint64_t claimed_ms;             /* private: time when it was last claimed; 0 if it never was */
};

struct eb_registry_model {
    char *name;
    char *path;
    char *failure;        /* what is wrong with its directory; NULL if nothing is */
    char *config_failure; /* what is wrong with its model.yaml; NULL if nothing is */
    bool is_described; /* the settings in force come from a valid model.yaml or are the defaults of
                          a model without one; if false, the model is not served */
    struct eb_model_settings *settings; /* settings in force */
    bool is_missing_told; /* missing versions that the settings name have been reported */
    uint64_t *labels;     /* version that each label in the settings is on at present */
    uint64_t commanded;   /* version that a command has chosen to serve; 0 if the settings choose */
    /* On a router, the last choice of its flip, as in struct eb_routed_choice. */
    uint64_t chosen; /* the version to be served; 0 if there is none */
    size_t wanted_count;
    uint64_t wanted[EB_ROUTED_WANTED_MAX];
    struct eb_model_version *served; /* `loaded` of one of the versions; NULL if none is served */
    bool is_hurried;   /* private: a command has asked for a version, so it waits for no claims */
    bool is_waiting;   /* private: the next load waits for wait_ms, or for claims */
    uint64_t wait_ms;  /* private: time when a new version may load; 0 if none waits */
    uint64_t short_ms; /* private: time since when a version lacks memory to load; 0 if none does */
    uint64_t short_end_ms; /* private: time when short_ms is forgotten, because no such version is
                              to be loaded any longer; UINT64_MAX if one is */
    size_t count;
    struct eb_registry_version *versions; /* highest first */
    struct eb_policy_version *view; /* [count] private: the versions as the policy sees them */
};

/* How long versions stay that are no longer wanted. They may change at any time, and take effect
 * with the next decision. */
struct eb_registry_limits {
    /* Limits on versions that stay only for versions.keep_s; 0 means no limit. */
    uint64_t kept_versions_max; /* most such versions of one model */
    uint64_t kept_bytes_max;    /* most bytes of all versions that eb_version_policy_may_evict */
    uint64_t claim_grace_ms;    /* shortest time for which a version stays after its last claim */
    uint64_t pin_ttl_ms;        /* time for which a request that names a version pins it; 0: none */
    uint64_t next_wait_ms;      /* longest time for which pinned versions keep another one from
                                   being loaded */
};

/* A zeroed registry is empty. */
struct eb_registry {
    struct eb_registry_events events;
    struct eb_snapshot_loads loads;
    const char *directory; /* path of the repository, which texts of a snapshot do not reveal; may
                              be NULL */
    struct eb_registry_limits limits;
    /* Longest wait, chosen at random, of a new version before it loads, so that servers that share
     * a disk do not all read it at once; 0 means none. A version does not wait if its model serves
     * none, or if a command asks for it. A newer version takes over the wait of the one before. */
    uint64_t jitter_ms;
    bool is_routed; /* it is a router's, whose flip makes choices (eb_registry_route) */
    struct eb_claims claims;
    /* The part that the server has of each version; none if `parts` is 0. Then claims add to what
     * is in memory; with a part, they decide it (version_policy.h). */
    struct eb_part_choice part;
    /* Time until which a model without claims loads nothing, unless a command asks for a version;
     * 0: it does not wait. */
    uint64_t claims_due_ms;
    bool is_dirty; /* a new snapshot would differ from the last one; the owner clears it */
    size_t count;
    struct eb_registry_model *models; /* sorted by name */
};

/* Accepts a zeroed registry. */
void eb_registry_deinit(struct eb_registry *registry);

/* Takes over the result of a scan. Returns false if out of memory; the registry was then updated in
 * part. */
bool eb_registry_update(struct eb_registry *registry, const struct eb_repository *seen);
/* Marks the versions whose files the next scan must stamp: those that failed and are tried again
 * when their files have changed. */
void eb_registry_watch(struct eb_registry *registry, struct eb_repository *seen);

/* Add and remove the claims of a router as claims.h says. Claims take effect with the next
 * decision. */
bool eb_registry_claim(struct eb_registry *registry, struct eb_claim_set *set);
void eb_registry_unclaim(struct eb_registry *registry, struct eb_claim_set *set);

/* Takes over what a router's flip has chosen for a model, which has an effect with the next
 * decision. A choice for an unknown model is ignored: the flip learns of models from
 * eb_registry_list_routed. A number that the model does not have has an effect as soon as the
 * version exists. Returns whether the choice differs from the one before. */
bool eb_registry_route(struct eb_registry *registry, const struct eb_routed_choice *choice);
/* Returns all models as the flip of a router sees them, sorted by name. The list borrows from the
 * registry until its next change; the caller frees it with one call of free. Returns NULL if out of
 * memory. */
struct eb_routed_model *eb_registry_list_routed(const struct eb_registry *registry, size_t *count);
/* Returns the position, from 1, of the version among those that the flip wants, or 0 if it does not
 * want the version. */
uint32_t eb_registry_wanted_rank(const struct eb_registry_model *model, uint64_t number);
/* Removes the version from those that the flip wants, until its next choice. */
void eb_registry_unwant(struct eb_registry_model *model, uint64_t number);

/* Returns the model that most needs a version loaded, with that version in *version, or NULL if
 * none is to be loaded. Versions to serve, here or by routers, come before others, and small ones
 * before large ones.
 * While a version of a model is loading, no other version of that model is returned, because it
 * could not share tables with it. A version with deaths is returned only while no other version is
 * loading. If nothing else of a model is to be loaded, a version in memory whose tables are
 * outdated (tables/table_mapping.h) is returned, to be loaded again; until then it goes on
 * answering requests. The version is LOADING until eb_registry_note_loaded or eb_registry_fail. */
struct eb_registry_model *eb_registry_next(
    struct eb_registry *registry, struct eb_registry_version **version);
/* Ends LOADING with a loaded version, which becomes resident. If the version was in memory already,
 * because it was outdated, the new instance replaces the old one, which is retired. Takes over the
 * reference of `version`. */
void eb_registry_note_loaded(
    struct eb_registry *registry, struct eb_model_version *version, uint64_t now_ms);
/* Ends LOADING without a version. `why` is the failure that is shown and logged. If `why` is NULL,
 * or if the version's directory has been replaced since, the version may be tried again. A version
 * that was being loaded again stays in memory as it is. */
void eb_registry_fail(struct eb_registry *registry, const char *model, uint64_t number,
    const char *why, enum eb_registry_failure failure);
/* Notes the stamp that the version's files had when loading began. Called before eb_registry_fail.
 */
void eb_registry_note_files(
    struct eb_registry *registry, const char *model, uint64_t number, uint64_t files);
/* Notes that a retired version has been freed. */
void eb_registry_note_unloaded(struct eb_registry *registry, const char *model, uint64_t number);

/* Returns whether the version that is being loaded is still the one on disk, and still wanted. */
bool eb_registry_is_due(struct eb_registry *registry, const char *model, uint64_t number);

/* Serves the version that version_policy.h chooses, moves labels to versions in memory, and drops
 * versions that have no reason to stay. Sets *wake_ms to the time at which to decide again even if
 * nothing happens before then, or to UINT64_MAX for never. */
void eb_registry_decide(struct eb_registry *registry, uint64_t now_ms, uint64_t *wake_ms);
/* Returns false if a version of the model is being loaded or is due to be loaded now, otherwise
 * true. */
bool eb_registry_is_settled(
    const struct eb_registry *registry, const struct eb_registry_model *model);
/* Notes that the process died in `deaths` loads of the version, whose files had the stamp `files`.
 * It is set aside: not loaded before eb_registry_readmit. */
void eb_registry_suspect(struct eb_registry *registry, struct eb_registry_model *model,
    struct eb_registry_version *version, uint64_t files, unsigned deaths);
/* Lets each model that serves no version load one that was set aside, first those with the fewest
 * deaths. Returns false if there is none. */
bool eb_registry_readmit_unserved(struct eb_registry *registry);
/* Lets versions with one death load, each while no other version loads. Others that are set aside
 * count as failed until their files change or a command asks for them. */
void eb_registry_readmit(struct eb_registry *registry);
/* Lets the model's versions load without a wait. */
void eb_registry_hurry(struct eb_registry_model *model);
/* Lets versions whose pause is over be tried again. */
void eb_registry_forgive(struct eb_registry *registry, uint64_t now_ms);
/* Lets versions that failed for lack of memory be tried again. */
void eb_registry_forgive_short(struct eb_registry *registry);
/* Drops spare versions until they add up to `bytes` bytes, which a version of the model `name`
 * lacks to load. Begins with the one that has been unwanted for longest. If that model has lacked
 * memory for next_wait_ms, also drops versions that would be spare but for their pins, the one
 * named least recently first. If all of them together have fewer bytes, drops none and returns
 * false. */
bool eb_registry_make_room(
    struct eb_registry *registry, const char *name, uint64_t bytes, uint64_t now_ms);
/* Returns the time until which a version in memory is pinned (version_policy.h), which may be over.
 * Returns 0 if no request has named the version, or if it is not in memory. */
uint64_t eb_registry_pin_end_ms(struct eb_registry *registry, const char *model, uint64_t number);

/* Returns the path of the version's directory, which the caller frees. Returns NULL if out of
 * memory. */
char *eb_registry_path(
    const struct eb_registry_model *model, const struct eb_registry_version *version);
/* Returns the versions of the model that answer requests, highest first. The caller frees the list;
 * no references are taken. Returns NULL if out of memory. */
struct eb_model_version **eb_registry_residents(
    const struct eb_registry_model *model, size_t *count);
/* Returns whether only directories with a manifest are versions of the model. */
bool eb_registry_needs_manifests(const struct eb_registry_model *model);
/* Returns whether any model has a version to serve. If none has, *failure says why the first has
 * none; without models, the result is true. */
bool eb_registry_check_served(const struct eb_registry *registry, struct eb_failure *failure);
/* Sets *failure to the reason why a model has no version to serve. */
void eb_registry_explain(const struct eb_registry *registry, const struct eb_registry_model *model,
    struct eb_failure *failure);
/* Returns the model of that name, or NULL if there is none. */
struct eb_registry_model *eb_registry_find(struct eb_registry *registry, const char *name);
/* Returns the version of that number that is on disk, in memory or being loaded, or NULL if there
 * is none. */
struct eb_registry_version *eb_registry_find_version(
    struct eb_registry_model *model, uint64_t number);
/* Returns whether the version has a label, or gets one when it is in memory. */
bool eb_registry_has_label(const struct eb_registry_model *model, uint64_t number);
/* Returns the digest that claims for the version must have: that of the manifest of a version in
 * parts. Returns 0 if it is not known, or if the server has no part: then claims need only have the
 * number. */
uint64_t eb_registry_manifest(
    const struct eb_registry *registry, const struct eb_registry_version *version);
/* Returns whether the version is in memory or being loaded. */
bool eb_registry_is_in_use(const struct eb_registry_version *version);
/* Drops the version even if its keep_s is not over. */
void eb_registry_drop(struct eb_registry *registry, struct eb_registry_model *model,
    struct eb_registry_version *version);

/* Frees a list of versions, and gives back their references to versions in memory. */
void eb_registry_free_versions(struct eb_registry_version *versions, size_t count);
/* Frees the contents of a model, which may be partly made, but not the struct itself.
 */
void eb_registry_free_model(struct eb_registry_model *model);
void eb_registry_tell_failed(
    const struct eb_registry *registry, const char *model, uint64_t number, const char *why);

/* Returns a snapshot of the present state for requests. Returns NULL if out of memory. */
struct eb_snapshot *eb_registry_snapshot(const struct eb_registry *registry);
