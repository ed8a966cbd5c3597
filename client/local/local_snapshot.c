#include "client/local/local_snapshot.h"

#include "client/local/local_error.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Most bytes of a name in model.yaml: the largest name_bytes_max of a server. */
#define NAME_BYTES_MAX 4096

/* The inputs of eb_local_snapshot_open and its helpers. */
struct source {
    struct eb_resident_dir *dir;
    const struct eb_local_snapshot *before;
    struct eb_failure *failure;
};

/* ---- one version ---- */

static void free_version(struct eb_local_version *version)
{
    eb_table_set_deinit(&version->tables);
    eb_model_config_deinit(&version->config);
    free(version->inodes);
    free(version->yaml);
    free(version);
}

/* Reads the inodes of a version's files. An unreadable file gets 0. */
static void read_inodes(
    const struct eb_resident_dir *dir, const struct eb_served_version *served, uint64_t *inodes)
{
    for (size_t i = 0; i < served->table_count; i++) {
        struct stat status;
        int rc = fstatat(dir->descriptor, served->tables[i].file, &status, AT_SYMLINK_NOFOLLOW);
        inodes[i] = rc == 0 ? (uint64_t)status.st_ino : 0;
    }
}

/* Copies what distinguishes a recorded version from others. Returns NULL with *failure set if out
 * of memory. */
static struct eb_local_version *describe_version(
    const struct source *source, const struct eb_served_version *served)
{
    struct eb_local_version *version = calloc(1, sizeof *version);
    if (!version) {
        eb_failure_set(source->failure, "out of memory");
        return NULL;
    }
    version->holders = 1;
    version->digest = served->digest;
    version->yaml = served->model_yaml ? strdup(served->model_yaml) : NULL;
    version->inode_count = served->table_count;
    version->inodes = calloc(served->table_count + 1, sizeof *version->inodes);
    eb_model_config_init(&version->config);
    if (!version->inodes || (served->model_yaml && !version->yaml)) {
        free_version(version);
        eb_failure_set(source->failure, "out of memory");
        return NULL;
    }
    read_inodes(source->dir, served, version->inodes);
    return version;
}

static bool is_same_version(
    const struct eb_local_version *version, const struct eb_local_version *other)
{
    bool has_same_yaml = version->yaml && other->yaml ? strcmp(version->yaml, other->yaml) == 0
                                                      : !version->yaml && !other->yaml;
    return has_same_yaml && version->digest == other->digest &&
           version->inode_count == other->inode_count &&
           memcmp(version->inodes, other->inodes, version->inode_count * sizeof *version->inodes) ==
               0;
}

/* Returns the version of the earlier snapshot that is the same, or NULL. */
static struct eb_local_version *find_before(
    const struct source *source, const char *model, const struct eb_local_version *version)
{
    for (size_t i = 0; source->before && i < source->before->model_count; i++) {
        const struct eb_local_model *known = &source->before->models[i];
        for (size_t n = 0; strcmp(known->name, model) == 0 && n < known->entry_count; n++) {
            struct eb_local_version *other = known->entries[n].version;
            if (other && is_same_version(other, version)) {
                return other;
            }
        }
    }
    return NULL;
}

/* Maps the version's tables. */
static bool open_version(const struct source *source, const struct eb_served_version *served,
    struct eb_local_version *version)
{
    const char *yaml = version->yaml;
    struct eb_table_options options = {
        .name_bytes_max = NAME_BYTES_MAX,
        .resident = {.dir = source->dir},
        .config = &version->config,
    };
    return (!yaml || eb_model_config_parse((const uint8_t *)yaml, strlen(yaml), NAME_BYTES_MAX,
                         &version->config, source->failure)) &&
           eb_resident_set_open(served, &options, &version->tables, source->failure);
}

/* Returns a recorded version, held: the same one as before, or a new one. Returns NULL with
 * *failure set if it cannot be opened. */
static struct eb_local_version *take_version(
    const struct source *source, const char *model, const struct eb_served_version *served)
{
    struct eb_local_version *version = describe_version(source, served);
    if (!version) {
        return NULL;
    }
    struct eb_local_version *same = find_before(source, model, version);
    if (same) {
        same->holders++;
        free_version(version);
        return same;
    }
    if (!open_version(source, served, version)) {
        free_version(version);
        return NULL;
    }
    return version;
}

/* ---- a snapshot ---- */

void eb_local_snapshot_close(struct eb_local_snapshot *snapshot)
{
    if (!snapshot) {
        return;
    }
    for (size_t i = 0; i < snapshot->model_count; i++) {
        struct eb_local_model *model = &snapshot->models[i];
        for (size_t n = 0; n < model->entry_count; n++) {
            struct eb_local_version *version = model->entries[n].version;
            if (version && --version->holders == 0) {
                free_version(version);
            }
        }
        free(model->entries);
        free(model->name);
    }
    free(snapshot->models);
    free(snapshot);
}

/* Opens the versions of a recorded model. What has been opened is closed with the snapshot,
 * whatever the result. */
static bool open_model(
    const struct source *source, const struct eb_served_model *served, struct eb_local_model *model)
{
    model->name = strdup(served->name);
    model->entries = calloc(served->version_count + 1, sizeof *model->entries);
    if (!model->name || !model->entries) {
        return eb_failure_set(source->failure, "out of memory");
    }
    for (size_t i = 0; i < served->version_count; i++) {
        const struct eb_served_version *version = &served->versions[i];
        struct eb_local_entry *entry = &model->entries[model->entry_count++];
        entry->number = version->version;
        /* A part of a version, or what a router has of it, is not the version. */
        bool is_whole = version->is_complete && !version->manifest_yaml;
        if (is_whole) {
            entry->version = take_version(source, served->name, version);
        }
        if (is_whole && !entry->version) {
            return eb_failure_locate(source->failure, served->name);
        }
    }
    return true;
}

static bool open_models(const struct source *source, const struct eb_served_record *record,
    struct eb_local_snapshot **out)
{
    struct eb_local_snapshot *snapshot = calloc(1, sizeof *snapshot);
    struct eb_local_model *models = calloc(record->model_count + 1, sizeof *models);
    if (!snapshot || !models) {
        free(snapshot);
        free(models);
        return eb_failure_set(source->failure, "out of memory");
    }
    snapshot->models = models;
    bool is_good = true;
    for (size_t i = 0; i < record->model_count && is_good; i++) {
        is_good = open_model(source, &record->models[i], &models[snapshot->model_count++]);
    }
    if (!is_good) {
        eb_local_snapshot_close(snapshot);
        return false;
    }
    *out = snapshot;
    return true;
}

enum eb_local_outcome eb_local_snapshot_open(struct eb_resident_dir *dir,
    const struct eb_local_snapshot *before, struct eb_local_snapshot **snapshot,
    struct eb_failure *failure)
{
    struct source source = {dir, before, failure};
    struct eb_served_record record;
    bool is_read = eb_served_record_read(dir, &record, failure);
    if (!is_read && failure->text[0] == '\0') {
        eb_failure_set(failure, "%s: no server has published anything yet", dir->path);
        return EB_LOCAL_ABSENT;
    }
    bool is_good = is_read && open_models(&source, &record, snapshot);
    eb_served_record_deinit(&record);
    if (!is_good) {
        eb_failure_locate(failure, dir->path);
    }
    return is_good ? EB_LOCAL_OPENED : EB_LOCAL_BROKEN;
}

/* ---- lookups ---- */

static const struct eb_local_model *find_model(
    const struct eb_local_snapshot *snapshot, const char *name, struct embag_error *error)
{
    if (name[0] == '\0') {
        if (snapshot->model_count != 1) {
            eb_local_error_set(error, EMBAG_NOT_FOUND,
                "model is empty, which is allowed only if there is exactly one model");
            return NULL;
        }
        return &snapshot->models[0];
    }
    for (size_t i = 0; i < snapshot->model_count; i++) {
        if (strcmp(snapshot->models[i].name, name) == 0) {
            return &snapshot->models[i];
        }
    }
    eb_local_error_set(error, EMBAG_NOT_FOUND, "no model \"%s\"", name);
    return NULL;
}

const struct eb_local_version *eb_local_snapshot_find(const struct eb_local_snapshot *snapshot,
    const char *name, uint64_t number, const struct eb_local_model **model, uint64_t *found,
    struct embag_error *error)
{
    const struct eb_local_model *chosen = find_model(snapshot, name, error);
    if (!chosen) {
        return NULL;
    }
    for (size_t i = 0; i < chosen->entry_count; i++) {
        const struct eb_local_entry *entry = &chosen->entries[i];
        if (number == 0 || entry->number == number) {
            if (!entry->version) {
                eb_local_error_set(error, EMBAG_FAILED_PRECONDITION,
                    "model \"%s\" version %" PRIu64
                    " has tables that are not in resident files, or is in parts",
                    chosen->name, entry->number);
            }
            *model = chosen;
            *found = entry->number;
            return entry->version;
        }
    }
    if (number == 0) {
        eb_local_error_set(
            error, EMBAG_NOT_FOUND, "model \"%s\" has no version in memory yet", chosen->name);
    } else {
        eb_local_error_set(error, EMBAG_NOT_FOUND,
            "model \"%s\" has no version %" PRIu64 " in memory", chosen->name, number);
    }
    return NULL;
}
