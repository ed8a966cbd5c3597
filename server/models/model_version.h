/* A version of a model in memory: its tables, and who still reads them.
 * Thread: loaded and freed by any one; take and give on any. Memory: on the heap until the last
 * reference is given back. */
#pragma once

#include "server/base/load_meter.h"
#include "server/models/feature_set.h"

#include <stdatomic.h>

/* What a model.yaml said, shared by all that was made of it. */
struct eb_model_settings {
    struct eb_model_config config;
    atomic_uint references;
};

struct eb_model_version {
    char *model;
    uint64_t version;
    uint64_t loaded_unix_ms; /* milliseconds since 1970, UTC */
    uint64_t load_ms;        /* that loading took */
    struct eb_table_set tables;
    struct eb_feature_set features;     /* of the tables, as the settings say */
    struct eb_model_settings *settings; /* in force when it was loaded; NULL: none */
    atomic_uint_fast64_t references;
    /* Called by whoever gives the last reference back, on its thread; what it is given to frees
     * the version then. NULL: it is freed at once. */
    void (*on_unused)(struct eb_model_version *version);
    void *owner;
};

/* With one reference. NULL: no memory. */
struct eb_model_settings *eb_model_settings_create(void);
struct eb_model_settings *eb_model_settings_take(struct eb_model_settings *settings);
/* Accepts NULL. */
void eb_model_settings_give(struct eb_model_settings *settings);

/* What is to be loaded. */
struct eb_version_source {
    const char *model;
    uint64_t version;
    const char *path;                   /* of its directory */
    struct eb_model_settings *settings; /* a reference is taken; may be NULL */
    /* Versions in memory whose tables may be shared; they stay meanwhile. */
    struct eb_model_version *const *residents;
    size_t resident_count;
};

/* With one reference. NULL: *failure names the file and what is wrong. progress may be NULL. */
struct eb_model_version *eb_model_version_load(const struct eb_version_source *source,
    const struct eb_table_options *options, const struct eb_load_progress *progress,
    struct eb_failure *failure);
/* A further reference, by someone who knows of one that stays meanwhile. */
struct eb_model_version *eb_model_version_take(struct eb_model_version *version);
void eb_model_version_give(struct eb_model_version *version);
/* Bytes of memory that no other version has a part in: what is free once it alone has gone. */
uint64_t eb_model_version_own_bytes(const struct eb_model_version *version);
/* For on_unused: nobody has a reference any longer. May take long. */
void eb_model_version_free(struct eb_model_version *version);
