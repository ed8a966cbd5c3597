/* All models as requests see them at one moment: which versions answer, which one where none is
 * named, what became of the others. Nothing in it changes; a new state is a new snapshot.
 * Thread: made and freed by its owner, read by any meanwhile. Memory: on the heap; it has a
 * reference to every version that answers. */
#pragma once

#include "server/models/model_version.h"

/* Numbers are those of embag.v1.ModelVersion.State. */
enum eb_version_state {
    EB_VERSION_LOADING = 1,
    EB_VERSION_READY = 2,   /* answers where it is named */
    EB_VERSION_SERVING = 3, /* and where no version is */
    EB_VERSION_RETIRED = 4, /* answers no longer; its last readers are not done */
    EB_VERSION_FAILED = 5
};

struct eb_snapshot_version {
    uint64_t number; /* 0: its directory's name is no version's */
    enum eb_version_state state;
    bool is_held;                    /* by a command */
    struct eb_model_version *loaded; /* READY and SERVING; else NULL */
    char *fault;                     /* FAILED: why; else NULL */
};

struct eb_snapshot_label {
    char *name;
    uint64_t version;
};

struct eb_snapshot_model {
    char *name;
    struct eb_model_version *served; /* NULL: none yet */
    uint64_t commanded;              /* version that a command serves; 0: as model.yaml says */
    char
        *fault; /* why its directory cannot be read or its model.yaml not be used; NULL: they can */
    size_t version_count;
    struct eb_snapshot_version *versions; /* highest first */
    size_t label_count;
    struct eb_snapshot_label *labels;
};

struct eb_snapshot {
    size_t count;
    struct eb_snapshot_model *models; /* sorted by name */
    unsigned holders;                 /* its owner's */
};

/* Empty models with room for all that is going to be in them are filled in by the maker (roster.c).
 * Gives its references back. Accepts NULL. */
void eb_snapshot_free(struct eb_snapshot *snapshot);

/* The model called `name`; where that is empty, the only one that serves a version, or that there
 * is. NULL: there is none (or several). */
const struct eb_snapshot_model *eb_snapshot_find(
    const struct eb_snapshot *snapshot, const char *name);
/* The version so numbered (0: the one served) that answers, borrowed from the snapshot. NULL: it
 * does not. */
struct eb_model_version *eb_snapshot_find_version(
    const struct eb_snapshot_model *model, uint64_t number);
/* The number of the version that has the label. 0: there is no such label. */
uint64_t eb_snapshot_find_label(const struct eb_snapshot_model *model, const char *label);
