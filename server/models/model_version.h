/* A version of a model in memory: its tables, and a count of its readers.
 * Thread: loaded and freed by any one; take and give on any. Memory: on the heap until the last
 * reference is given back. */
#pragma once

#include "server/base/load_meter.h"
#include "server/models/feature_set.h"
#include "server/tables/served_record.h"

#include <stdatomic.h>

/* The contents of a model.yaml, shared by the versions that were loaded with it. */
struct eb_model_settings {
    struct eb_model_config config;
    atomic_uint references;
};

struct eb_model_version {
    char *model;
    uint64_t version;
    uint64_t loaded_unix_ms; /* milliseconds since 1970, UTC */
    uint64_t load_ms;        /* time that loading took */
    struct eb_table_set tables;
    struct eb_feature_set features;     /* features of the tables, as the settings define them */
    struct eb_model_settings *settings; /* settings when it was loaded; NULL if there were none */
    atomic_uint_fast64_t references;
    /* Time when a request last named the version by its number, in seconds of the steady clock,
     * rounded up; 0 if none has. Lookups write to this cache line anyway, for `references`. */
    atomic_uint named_s;
    /* Called on the thread that gives the last reference back. The owner of this callback must then
     * free the version. If it is NULL, the version is freed at once. */
    void (*on_unused)(struct eb_model_version *version);
    void *owner;
};

/* Returns settings with one reference, or NULL if out of memory. */
struct eb_model_settings *eb_model_settings_create(void);
struct eb_model_settings *eb_model_settings_take(struct eb_model_settings *settings);
/* Accepts NULL. */
void eb_model_settings_give(struct eb_model_settings *settings);

/* A version to load. */
struct eb_version_source {
    const char *model;
    uint64_t version;
    const char *path;                   /* path of its directory */
    struct eb_model_settings *settings; /* a reference is taken; may be NULL */
    /* Versions in memory whose tables may be shared. They must stay in memory during the load. */
    struct eb_model_version *const *residents;
    size_t resident_count;
    /* If set, the tables are opened from resident files as this record says, and the files in
     * `path` are not needed. */
    const struct eb_served_version *served;
};

/* Returns the version with one reference. Returns NULL if that fails: *failure names the file and
 * what is wrong. progress may be NULL. */
struct eb_model_version *eb_model_version_load(const struct eb_version_source *source,
    const struct eb_table_options *options, const struct eb_load_progress *progress,
    struct eb_failure *failure);
/* Adds a reference. Another reference must exist during the call. */
struct eb_model_version *eb_model_version_take(struct eb_model_version *version);
void eb_model_version_give(struct eb_model_version *version);
/* Notes that a request names the version by its number. `now_ns` is a time of the steady clock. */
void eb_model_version_note_named(struct eb_model_version *version, uint64_t now_ns);
/* Returns the bytes of memory that no other version shares. Freeing this version gives them back.
 */
uint64_t eb_model_version_own_bytes(const struct eb_model_version *version);
/* Frees a version that has no references, for on_unused. May take long. */
void eb_model_version_free(struct eb_model_version *version);
