/* The models of a server: what is on disk, what is in memory, which version answers, and what
 * commands have asked for. The registry decides by version_policy.h and makes the snapshots that
 * requests read; its owner loads, frees and hands over.
 * Thread: the owner's. Memory: on the heap, with a reference to every version in memory. */
#pragma once

#include "server/models/repository.h"
#include "server/models/snapshot.h"

/* Called when something is worth a line in the log. Members may be NULL. */
struct eb_registry_events {
    /* A directory cannot be loaded. `model` is its model's name, or its own; `version` is 0 if the
     * directory is not one version. */
    void (*on_failed)(void *context, const char *model, uint64_t version, const char *why);
    /* A model.yaml cannot be used: the settings before stay in force. */
    void (*on_config_failed)(void *context, const char *model, const char *why);
    void (*on_served)(void *context, const char *model, uint64_t version, uint64_t before);
    void (*on_retired)(void *context, const char *model, uint64_t version);
    /* A model.yaml names a version that is not there: by `label`, or, if that is NULL, to serve it.
     * Called once for each model.yaml. */
    void (*on_missing)(void *context, const char *model, uint64_t version, const char *label);
    /* The directory of a version in memory has changed since it was loaded. */
    void (*on_changed)(void *context, const char *model, uint64_t version);
    /* Tables, features or groups of a model.yaml differ from those that versions in memory were
     * loaded with; this is the highest of these versions. */
    void (*on_described)(void *context, const char *model, uint64_t version);
    /* A version is dropped before keep_s is over, because of the limit `setting`. */
    void (*on_evicted)(void *context, const char *model, uint64_t version, const char *setting);
    void *context;
};

/* Why a version was not loaded, and when it is tried again. */
enum eb_registry_failure {
    EB_REGISTRY_BROKEN,  /* when its files or its model's settings have changed */
    EB_REGISTRY_SHORT,   /* memory was short: after a pause, or when some has been freed */
    EB_REGISTRY_HINDERED /* another cause that may pass: after a pause. Each pause is twice the one
                          before, up to five minutes */
};

struct eb_registry_version {
    uint64_t number; /* 0: its directory's name is no version's */
    char *name;      /* of its directory */
    struct eb_file_stamp stamp;
    struct eb_file_stamp tried_stamp; /* when loading it began */
    uint64_t files;                   /* as in eb_repository_version; and, where it failed, */
    uint64_t tried_files;             /* when loading it began; 0: not known */
    bool is_on_disk;                  /* and can be loaded by its number */
    bool is_loading;
    bool is_held;                          /* by a command */
    bool is_wanted;                        /* private: when it was last asked */
    enum eb_registry_failure failure_kind; /* the last one, which was told */
    unsigned passing_count;                /* failures that may pass, one behind the other */
    uint64_t retry_ms;                     /* when its pause is over; 0: it has not begun */
    char *failure;                   /* why it was not loaded; NULL: it was, or was not tried */
    unsigned retired_count;          /* times it is in memory and answers no longer */
    struct eb_model_version *loaded; /* NULL: it does not answer */
    uint64_t since_ms;               /* as in eb_policy_version */
};

struct eb_registry_model {
    char *name;
    char *path;
    char *failure;                      /* of its directory; NULL: none */
    char *config_failure;               /* of its model.yaml; NULL: none */
    bool is_described;                  /* the settings are what some model.yaml, or none, says;
                                           else it is held back */
    struct eb_model_settings *settings; /* in force */
    bool is_missing_told;               /* of the versions that these name */
    uint64_t *labels;                   /* version that each of the settings' labels leads to */
    uint64_t commanded;                 /* version that a command serves; 0: as the settings say */
    struct eb_model_version *served;    /* one of the versions' loaded; NULL: none */
    size_t count;
    struct eb_registry_version *versions; /* highest first */
    struct eb_policy_version *view;       /* [count] private: the same for the policy */
};

/* Zeroed, it is empty. */
struct eb_registry {
    struct eb_registry_events events;
    struct eb_snapshot_loads loads;
    const char
        *directory; /* the repository's, which texts of a snapshot do not reveal; may be NULL */
    /* Limits on versions that stay only for versions.keep_s; 0: no limit. */
    uint64_t kept_versions_max; /* of one model */
    uint64_t kept_bytes_max;    /* of all models' versions that eb_version_policy_may_evict */
    bool is_dirty; /* a snapshot would differ from the last; set here, cleared by the owner */
    size_t count;
    struct eb_registry_model *models; /* sorted by name */
};

/* Accepts a zeroed registry. */
void eb_registry_deinit(struct eb_registry *registry);

/* Takes over what was seen on disk. Returns false if out of memory: the registry was updated in
 * part. */
bool eb_registry_update(struct eb_registry *registry, const struct eb_repository *seen);
/* Marks the versions whose files the next scan has to stamp: they failed, and are tried again when
 * their files have changed. */
void eb_registry_watch(struct eb_registry *registry, struct eb_repository *seen);

/* Chooses the version to load next, of the model that needs one most; NULL: none. The version is
 * LOADING until eb_registry_note_loaded or eb_registry_fail. *version belongs to the model. */
struct eb_registry_model *eb_registry_next(
    struct eb_registry *registry, struct eb_registry_version **version);
/* Takes a version that has been loaded. */
void eb_registry_note_loaded(
    struct eb_registry *registry, struct eb_model_version *version, uint64_t now_ms);
/* Ends LOADING. `why` is the failure that is shown and logged; if it is NULL, or another directory
 * is in its place by now, the version may be tried again. */
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

/* Serves the version that should be, moves labels to versions in memory, and drops versions that
 * have no reason to stay. *wake_ms: when to decide again though nothing happens; UINT64_MAX: never.
 */
void eb_registry_decide(struct eb_registry *registry, uint64_t now_ms, uint64_t *wake_ms);
/* Returns whether no version of the model is being loaded or is to be. */
bool eb_registry_is_settled(
    const struct eb_registry *registry, const struct eb_registry_model *model);
/* Lets versions whose pause is over be tried again. */
void eb_registry_forgive(struct eb_registry *registry, uint64_t now_ms);
/* Lets versions that lacked memory be tried again: there may be more now. */
void eb_registry_forgive_short(struct eb_registry *registry);
/* Drops spare versions, the longest unwanted ones first, until they make up `bytes` bytes. Returns
 * false if all of them together do not: then none is dropped. */
bool eb_registry_make_room(struct eb_registry *registry, uint64_t bytes, uint64_t now_ms);

/* Of the version's directory, to be freed. NULL: out of memory. */
char *eb_registry_path(
    const struct eb_registry_model *model, const struct eb_registry_version *version);
/* Those of the model that answer, highest first, to be freed; no references are taken. NULL: out of
 * memory. */
struct eb_model_version **eb_registry_residents(
    const struct eb_registry_model *model, size_t *count);
/* NULL: there is none of that name. */
struct eb_registry_model *eb_registry_find(struct eb_registry *registry, const char *name);
/* The version of that number that is on disk, in memory or being loaded; NULL: none. */
struct eb_registry_version *eb_registry_find_version(
    struct eb_registry_model *model, uint64_t number);
/* Whether a label leads to the version, or is to when it is in memory. */
bool eb_registry_has_label(const struct eb_registry_model *model, uint64_t number);
/* Whether it is in memory, or on its way there. */
bool eb_registry_is_in_use(const struct eb_registry_version *version);
/* Drops the version, whatever the time. */
void eb_registry_drop(struct eb_registry *registry, struct eb_registry_model *model,
    struct eb_registry_version *version);

/* For those who take a list or a model apart: with the references to what is in memory. */
void eb_registry_free_versions(struct eb_registry_version *versions, size_t count);
/* Accepts a half-made one; itself it is its owner's. */
void eb_registry_free_model(struct eb_registry_model *model);
void eb_registry_tell_failed(
    const struct eb_registry *registry, const char *model, uint64_t number, const char *why);

/* What requests see from now on. NULL: out of memory. */
struct eb_snapshot *eb_registry_snapshot(const struct eb_registry *registry);
