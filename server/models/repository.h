/* Scans a repository on disk: REPOSITORY/MODEL/VERSION/..., and each MODEL/model.yaml. Only
 * directories whose names have nothing but digits are versions. Names that begin with a dot are
 * passed over, so that a writer may fill .7.tmp and rename it to 7.
 * Thread: one at a time. Memory: owns its lists. */
#pragma once

#include "server/models/model_version.h"

#include <sys/types.h>
#include <time.h>

#define EB_REPOSITORY_CONFIG_FILE "model.yaml"

/* Identity and change time of a file or directory. Zeroed if the path was missing, or was a link
 * that could not be followed. */
struct eb_file_stamp {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec changed;
};

/* A directory whose name has digits only. */
struct eb_repository_version {
    uint64_t number; /* 0 if the name is not a version number */
    char *name;
    char *failure; /* reason why it cannot be loaded by its number; NULL if it can */
    struct eb_file_stamp stamp;
    /* Bytes of its files if model.yaml or its number makes it likely that it will be loaded; else
     * 0. They are counted once, as long as the directory does not change. */
    uint64_t bytes;
    /* XXH3-64 of its manifest (formats/manifest.h), read when `bytes` is counted, and for all
     * versions of a part, since routers claim versions by it; 0 if it has none. Two directories
     * with equal manifests hold the same version. For a router, it and the next three members are
     * read in every scan in which the manifest is another file than before. They are 0 and "" if
     * the manifest is not valid or cannot be read: its load then reports why. */
    uint64_t manifest;
    struct eb_file_stamp manifest_stamp;
    uint32_t parts; /* of a router's version; else 0 */
    char *lineage;  /* of a router's version, "" if it has none; else NULL, as in a model with a
                       failure */
    /* The result of eb_repository_stamp_files if is_watched was set in the scan before this one
     * (`former` of eb_repository_scan), else 0. */
    uint64_t files;
    /* Set between two scans to have the second one fill in `files`. */
    bool is_watched;
};

struct eb_repository_model {
    char *name;
    char *path;
    char *failure; /* reason why nothing in it can be loaded; NULL if there is none */
    struct eb_file_stamp stamp;
    bool is_watched; /* at least one version is watched */
    size_t version_count;
    struct eb_repository_version *versions; /* highest first */
    struct eb_file_stamp config_stamp;
    struct eb_model_settings *settings; /* NULL if not valid; config_failure then has the reason */
    char *config_failure;
};

struct eb_repository {
    size_t count;
    struct eb_repository_model *models; /* sorted by name */
};

/* What a scan takes for models and versions. */
struct eb_repository_terms {
    uint32_t name_bytes_max; /* most bytes of a model's name */
    /* If its `parts` is not 0: a version is a directory with a manifest and with the folder of this
     * part. Others do not exist. */
    struct eb_part_choice part;
    bool is_router; /* a version is a directory with the manifest of a version in parts, in any
                       number of them. Others do not exist. part.parts is then 0 */
};

/* Returns the terms on which versions are loaded with these options. */
static inline struct eb_repository_terms eb_repository_terms_of(
    const struct eb_table_options *options)
{
    return (struct eb_repository_terms){options->name_bytes_max, options->part, options->is_router};
}

/* Scans the whole repository. Files that have not changed since `former`, which may be NULL, are
 * not read again. Returns false, with *out empty, if the directory cannot be read: *failure has the
 * reason. */
bool eb_repository_scan(const char *directory, const struct eb_repository_terms *terms,
    const struct eb_repository *former, struct eb_repository *out, struct eb_failure *failure);
/* Accepts a zeroed repository. */
void eb_repository_deinit(struct eb_repository *repository);

/* Returns a digest of the names, sizes and times of the files in a version's directory that are
 * read on these terms: all or, for a part, the manifest and the files of that part or, for a
 * router, all that are not in folders. Returns 0 if they cannot be read. */
uint64_t eb_repository_stamp_files(const char *path, const struct eb_repository_terms *terms);

bool eb_file_stamp_is_same(const struct eb_file_stamp *a, const struct eb_file_stamp *b);
/* Returns the model of that name, or NULL if there is none. */
const struct eb_repository_model *eb_repository_find(
    const struct eb_repository *repository, const char *name);
