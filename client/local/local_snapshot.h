/* The models and versions of one record of what a server serves (served_record.h), mapped from its
 * resident files.
 * Thread: open and close on one at a time; lookups on any. Memory: on the heap; versions are shared
 * by the snapshots that have them. */
#pragma once

#include "server/contents/model_config.h"
#include "server/tables/resident_set.h"

struct embag_error;

/* A version whose tables are mapped. */
struct eb_local_version {
    size_t holders; /* snapshots that have it */
    uint64_t digest;
    char *yaml;       /* text of model.yaml, or NULL */
    uint64_t *inodes; /* [inode_count] of the tables' files, in the record's order */
    size_t inode_count;
    struct eb_model_config config;
    struct eb_table_set tables;
};

struct eb_local_entry {
    uint64_t number;
    struct eb_local_version *version; /* NULL: not all of its tables are in resident files */
};

struct eb_local_model {
    char *name;
    size_t entry_count;
    struct eb_local_entry *entries; /* the served version first */
};

struct eb_local_snapshot {
    size_t model_count;
    struct eb_local_model *models;
    struct eb_local_snapshot *next; /* for lists of the owner */
};

/* The outcome of opening a snapshot. */
enum eb_local_outcome {
    EB_LOCAL_OPENED,
    EB_LOCAL_ABSENT, /* there is no record yet */
    EB_LOCAL_BROKEN, /* the record or a file that it names cannot be used */
};

/* Reads the directory's record and maps all versions that it lists completely. Versions that
 * `before` has with the same files are shared with it; `before` may be NULL. Sets *snapshot if the
 * outcome is OPENED, and otherwise *failure. */
enum eb_local_outcome eb_local_snapshot_open(struct eb_resident_dir *dir,
    const struct eb_local_snapshot *before, struct eb_local_snapshot **snapshot,
    struct eb_failure *failure);
/* Unmaps the versions that no other snapshot has. Accepts NULL. */
void eb_local_snapshot_close(struct eb_local_snapshot *snapshot);

/* Finds a version, or the served one if `number` is 0. An empty `name` means the only model. Sets
 * *model, and *found to the version's number. Returns NULL with *error set if there is no such
 * version or if it is not mapped. */
const struct eb_local_version *eb_local_snapshot_find(const struct eb_local_snapshot *snapshot,
    const char *name, uint64_t number, const struct eb_local_model **model, uint64_t *found,
    struct embag_error *error);
