/* The models that a server has: what is on disk, what is in memory, which version answers, and what
 * commands have asked for. It decides by version_policy.h, and makes the snapshots that requests
 * read; loading, freeing and handing over are its owner's.
 * Thread: its owner's. Memory: on the heap; it has a reference to every version in memory. */
#pragma once

#include "server/models/repository.h"
#include "server/models/snapshot.h"

/* What is worth telling. Members may be NULL. */
struct eb_registry_events {
    /* A directory that cannot be loaded, by its model's name or its own; 0: not one version. */
    void (*on_failed)(void *context, const char *model, uint64_t version, const char *why);
    /* A model.yaml that cannot be used: what held before holds still. */
    void (*on_config_failed)(void *context, const char *model, const char *why);
    void (*on_served)(void *context, const char *model, uint64_t version, uint64_t before);
    void (*on_retired)(void *context, const char *model, uint64_t version);
    /* A model.yaml that names a version that is not there, told once: to serve it, or, where
     * `label` is not NULL, by that label. */
    void (*on_missing)(void *context, const char *model, uint64_t version, const char *label);
    /* The directory of a version in memory is no longer what was loaded. */
    void (*on_changed)(void *context, const char *model, uint64_t version);
    /* A model.yaml says something else of tables, features or groups than versions in memory, the
     * highest of which this is, were loaded by. */
    void (*on_described)(void *context, const char *model, uint64_t version);
    /* A version is dropped before keep_s is over, because of the limit that `setting` names. */
    void (*on_evicted)(void *context, const char *model, uint64_t version, const char *setting);
    void *context;
};

/* What becomes of a version that was not loaded. */
enum eb_registry_failure {
    EB_REGISTRY_BROKEN,  /* it stays so until its files or its model's settings change */
    EB_REGISTRY_SHORT,   /* there was too little memory: until a pause is over, or some is freed */
    EB_REGISTRY_HINDERED /* by something else that may pass: until a pause is over. Each pause is
                          twice the one before, up to five minutes */
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

/* Takes over what was seen on disk. false: out of memory, and it is not all there. */
bool eb_registry_update(struct eb_registry *registry, const struct eb_repository *seen);
/* Marks those versions whose files are to be looked at next time: they failed, and are tried again
 * when one of these has changed. */
void eb_registry_watch(struct eb_registry *registry, struct eb_repository *seen);

/* What to load next, of the model that needs it most; NULL: nothing. It is taken for LOADING until
 * eb_registry_note_loaded or eb_registry_fail. *version is the model's. */
struct eb_registry_model *eb_registry_next(
    struct eb_registry *registry, struct eb_registry_version **version);
/* Takes the version, which was loaded. */
void eb_registry_note_loaded(
    struct eb_registry *registry, struct eb_model_version *version, uint64_t now_ms);
/* `why`: it is known to fail. NULL, or another directory is in its place: it may be tried again. */
void eb_registry_fail(struct eb_registry *registry, const char *model, uint64_t number,
    const char *why, enum eb_registry_failure failure);
/* What the files of the version, which is about to fail, were like when loading it began. */
void eb_registry_note_files(
    struct eb_registry *registry, const char *model, uint64_t number, uint64_t files);
/* A version that had been retired is no longer in memory. */
void eb_registry_note_unloaded(struct eb_registry *registry, const char *model, uint64_t number);

/* Whether the version that is being loaded is the one on disk still, and wanted. */
bool eb_registry_is_due(struct eb_registry *registry, const char *model, uint64_t number);

/* Serves what should be, moves labels to what is in memory, and drops what has no reason to stay.
 * *wake_ms: when to ask again though nothing happens; UINT64_MAX: never. */
void eb_registry_decide(struct eb_registry *registry, uint64_t now_ms, uint64_t *wake_ms);
/* Whether nothing of the model is being loaded or to be. */
bool eb_registry_is_settled(
    const struct eb_registry *registry, const struct eb_registry_model *model);
/* Versions whose pause is over may be tried again. */
void eb_registry_forgive(struct eb_registry *registry, uint64_t now_ms);
/* Versions that lacked memory may be tried again: some may be there that was not. */
void eb_registry_forgive_short(struct eb_registry *registry);
/* Drops spare versions, those first that have not been wanted for the longest time, until they
 * make up so many bytes. false: all of them do not, and none is dropped. */
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
