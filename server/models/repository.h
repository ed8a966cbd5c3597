/* The models a server serves: REPOSITORY/MODEL/VERSION/..., the highest version of each that loads.
 * Thread: opened and closed by main; find and the references may be used on any thread. Memory:
 * owns models and versions; a version lives until its last reference is given back. */
#pragma once

#include "server/models/table_set.h"

#include <stdatomic.h>

/* The fate of a directory whose name has digits only, for ListModels. */
struct eb_version_record {
    uint64_t version; /* 0: the name is no version's number; several may give the same one */
    bool serving;
    char *error; /* why it did not load; NULL where it did or was not tried */
};

struct eb_model_version {
    const char *model; /* name; lives as long as the repository */
    uint64_t version;
    struct eb_table_set tables;
    atomic_uint_fast64_t references;
};

struct eb_model {
    char *name;
    struct eb_model_version *served;
    size_t record_count;
    struct eb_version_record *records; /* highest version first */
};

struct eb_repository {
    size_t count;
    struct eb_model *models; /* sorted by name */
};

/* What happens while a repository is opened, for the log. Members may be NULL. on_failed is told of
 * every directory that names no version (0) or one that another names too, and of every version
 * that was tried in vain. */
struct eb_repository_events {
    void (*on_progress)(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    void (*on_loaded)(void *context, const struct eb_model_version *version, uint64_t elapsed_ms);
    void (*on_failed)(void *context, const char *model, uint64_t version, const char *why);
    void *context;
};

/* Loads everything. false: *fault says which directory cannot be read, that there is no model, or
 * which model has no version that loads (and why its highest does not); *out is empty. */
bool eb_repository_open(const char *directory, const struct eb_table_options *options,
    const struct eb_repository_events *events, struct eb_repository *out,
    struct eb_file_fault *fault);
/* Drops the repository's own references. Accepts a zeroed repository. */
void eb_repository_close(struct eb_repository *repository);

/* The model called `name`, or the only one where name is empty. NULL: there is none (or several).
 */
const struct eb_model *eb_repository_find(const struct eb_repository *repository, const char *name);
/* A reference to the version (0: the one served); NULL: not resident. */
struct eb_model_version *eb_model_take_version(const struct eb_model *model, uint64_t version);
void eb_model_version_give(struct eb_model_version *version);
