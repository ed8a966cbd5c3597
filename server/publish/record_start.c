#include "server/publish/record_start.h"

#include "server/base/directory.h"
#include "server/base/log.h"
#include "server/formats/parts_manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 24

/* Reads the directory's record. Returns false with *record empty and *failure set if there is none
 * or if it is not sound. */
static bool read_record(
    const struct eb_resident_dir *dir, struct eb_served_record *record, struct eb_failure *failure)
{
    bool is_good = eb_served_record_read(dir, record, failure);
    if (!is_good && failure->text[0] == '\0') {
        eb_failure_set(failure, "nothing is recorded in %s", dir->path);
    }
    return is_good;
}

/* Returns whether a server on these terms serves versions in parts, of which others choose one. */
static bool is_parted(const struct eb_repository_terms *terms)
{
    return terms->is_router || terms->part.parts > 0;
}

/* Returns whether all tables of the version are recorded, and are those that a server on these
 * terms has. */
static bool may_open(
    const struct eb_served_version *version, const struct eb_repository_terms *terms)
{
    bool is_same_part =
        version->part.part == terms->part.part && version->part.parts == terms->part.parts;
    return version->is_complete && !version->manifest_yaml == !is_parted(terms) &&
           version->is_router == terms->is_router &&
           (!version->manifest_yaml || version->is_router || is_same_part);
}

/* Returns the served version of the model if it can be opened, or NULL. For a server of versions in
 * parts, returns another one if only that can be opened. */
static const struct eb_served_version *find_served(
    const struct eb_served_model *model, const struct eb_repository_terms *terms)
{
    size_t count = is_parted(terms) || model->version_count == 0 ? model->version_count : 1;
    for (size_t i = 0; i < count; i++) {
        if (may_open(&model->versions[i], terms)) {
            return &model->versions[i];
        }
    }
    return NULL;
}

/* Makes the settings of a recorded model.yaml. Returns NULL with *failure set if that fails, which
 * is transient if out of memory. */
static struct eb_model_settings *make_settings(
    const struct eb_served_version *served, uint32_t name_bytes_max, struct eb_failure *failure)
{
    struct eb_model_settings *settings = eb_model_settings_create();
    if (!settings) {
        eb_failure_set(failure, "out of memory");
        (void)eb_failure_blame(failure, ENOMEM);
        return NULL;
    }
    const char *yaml = served->model_yaml;
    if (yaml && !eb_model_config_parse((const uint8_t *)yaml, strlen(yaml), name_bytes_max,
                    &settings->config, failure)) {
        eb_model_settings_give(settings);
        return NULL;
    }
    return settings;
}

/* Returns whether the recorded version becomes part of the repository that is made. A version that
 * the registry would serve instead of the served one does not, unless routers choose. */
static bool is_seen(const struct eb_served_version *version, const struct eb_served_version *served,
    const struct eb_model_config *config, const struct eb_repository_terms *terms)
{
    bool may_replace =
        !is_parted(terms) && version->version > served->version && config->serve != served->version;
    return version == served ||
           (may_open(version, terms) && version->version != served->version && !may_replace);
}

/* Sets what the manifest says about a version. Sets nothing if this build does not accept it: the
 * load then reports why. Returns false if out of memory. */
static bool read_seen_manifest(const struct eb_served_version *version,
    struct eb_repository_version *seen, struct eb_failure *failure)
{
    const char *yaml = version->manifest_yaml;
    struct eb_parts_manifest manifest;
    *failure = (struct eb_failure){.text = ""};
    if (!eb_parts_manifest_parse((const uint8_t *)yaml, strlen(yaml), &manifest, failure) &&
        failure->is_transient) {
        return false;
    }
    seen->manifest = manifest.digest;
    if (version->is_router) {
        seen->parts = manifest.parts;
        seen->lineage = strdup(manifest.lineage ? manifest.lineage : "");
    }
    eb_parts_manifest_deinit(&manifest);
    return !version->is_router || seen->lineage || eb_failure_set(failure, "out of memory");
}

/* Appends a version. The number of versions counts it even if out of memory. */
static bool add_seen_version(struct eb_repository_model *out,
    const struct eb_served_version *version, struct eb_failure *failure)
{
    char number[NUMBER_BYTES];
    snprintf(number, sizeof number, "%" PRIu64, version->version);
    struct eb_repository_version *added = &out->versions[out->version_count++];
    added->number = version->version;
    added->name = strdup(number);
    return (added->name || eb_failure_set(failure, "out of memory")) &&
           (!version->manifest_yaml || read_seen_manifest(version, added, failure));
}

static int compare_seen_versions(const void *left, const void *right)
{
    const struct eb_repository_version *a = left;
    const struct eb_repository_version *b = right;
    return (a->number < b->number) - (a->number > b->number);
}

/* What a repository is made of. */
struct making {
    const struct eb_served_record *record;
    const char *directory;
    const struct eb_repository_terms *terms;
    struct eb_failure *failure;
};

/* Fills in a model with its complete versions. Takes over a reference to the settings. What has
 * been made is freed with the repository, whatever the result. */
static bool make_seen_model(const struct making *making, const struct eb_served_model *model,
    struct eb_model_settings *settings, struct eb_repository_model *out)
{
    struct eb_failure *failure = making->failure;
    const struct eb_served_version *served = find_served(model, making->terms);
    out->settings = settings;
    out->name = strdup(model->name);
    out->path = eb_directory_join(making->directory, model->name, failure);
    out->versions = calloc(model->version_count, sizeof *out->versions);
    bool is_good =
        (out->name && out->path && out->versions) || eb_failure_set(failure, "out of memory");
    for (size_t i = 0; i < model->version_count && is_good; i++) {
        const struct eb_served_version *version = &model->versions[i];
        if (is_seen(version, served, &settings->config, making->terms)) {
            is_good = add_seen_version(out, version, failure);
        }
    }
    if (is_good) {
        qsort(out->versions, out->version_count, sizeof *out->versions, compare_seen_versions);
    }
    return is_good;
}

/* Logs why a model cannot be served. */
static void log_unserved(const struct eb_served_model *model, const char *reason, const char *hint)
{
    eb_log(EB_LOG_ERROR, "resident_model_unserved", eb_log_text("model", model->name),
        eb_log_count("version", model->version_count > 0 ? model->versions[0].version : 0),
        eb_log_text("reason", reason), eb_log_text("remedy", hint));
}

/* Logs that the served version of a model cannot be opened. */
static void log_incomplete(const struct eb_served_model *model)
{
    bool is_complete = model->version_count > 0 && model->versions[0].is_complete;
    const char *reason = is_complete ? "another kind of server, or one with another part, served it"
                         : model->version_count > 0 ? "a table of it was not in a resident file"
                                                    : "no version of it was in memory";
    log_unserved(model, reason,
        "make the repository readable again; for the next time, make the file system of "
        "resident_dir so large that it holds all tables");
}

/* Sets *settings to those of a model that can be served. Logs why it cannot be served and sets
 * *settings to NULL if its served version is not recorded completely, or if its model.yaml is not
 * valid. Returns false with *failure set if out of memory. */
static bool find_settings(const struct making *making, const struct eb_served_model *model,
    struct eb_model_settings **settings)
{
    struct eb_failure *failure = making->failure;
    const struct eb_served_version *served = find_served(model, making->terms);
    *settings = NULL;
    if (!served) {
        log_incomplete(model);
        return true;
    }
    *failure = (struct eb_failure){.text = ""};
    *settings = make_settings(served, making->terms->name_bytes_max, failure);
    if (!*settings && !failure->is_transient) {
        (void)eb_failure_locate(failure, "model.yaml as recorded");
        log_unserved(model, failure->text,
            "make the repository readable again; an earlier build of the server accepted this "
            "model.yaml and this one does not, so correct it there");
    }
    return *settings || !failure->is_transient;
}

static int compare_seen_models(const void *left, const void *right)
{
    const struct eb_repository_model *a = left;
    const struct eb_repository_model *b = right;
    return strcmp(a->name, b->name);
}

/* Makes a repository of the models that can be served. Logs the others. Returns false with *out
 * empty and *failure set if there is no such model, or if out of memory. */
static bool make_seen(const struct making *making, struct eb_repository *out)
{
    const struct eb_served_record *record = making->record;
    struct eb_failure *failure = making->failure;
    *out = (struct eb_repository){.models = calloc(record->model_count + 1, sizeof *out->models)};
    bool is_good = out->models || eb_failure_set(failure, "out of memory");
    for (size_t i = 0; i < record->model_count && is_good; i++) {
        const struct eb_served_model *model = &record->models[i];
        struct eb_model_settings *settings;
        is_good = find_settings(making, model, &settings);
        if (settings) {
            is_good = make_seen_model(making, model, settings, &out->models[out->count++]);
        }
    }
    if (is_good && out->count == 0) {
        is_good = eb_failure_set(failure, "it has no model that can be served");
    }
    if (!is_good) {
        eb_repository_deinit(out);
        return false;
    }
    qsort(out->models, out->count, sizeof *out->models, compare_seen_models);
    return true;
}

/* Reads the directory's record, and makes a repository of its complete versions. `why` says why the
 * repository itself cannot be read. Logs that, or why the record cannot be served either, for
 * example because the server is out of memory; then returns false with *start and *out empty. */
static bool open_record(struct eb_record_start *start, const char *directory,
    const struct eb_table_options *tables, struct eb_repository *out, const char *why)
{
    struct eb_failure failure;
    struct eb_resident_dir *dir = tables->resident.dir;
    *start = (struct eb_record_start){.terms = eb_repository_terms_of(tables)};
    struct making making = {&start->record, directory, &start->terms, &failure};
    if (!read_record(dir, &start->record, &failure) || !make_seen(&making, out)) {
        eb_log(EB_LOG_WARN, "resident_not_served", eb_log_text("directory", dir->path),
            eb_log_text("reason", failure.text));
        eb_served_record_deinit(&start->record);
        return false;
    }
    start->dir = dir;
    start->is_opened = true;
    start->is_active = true;
    atomic_store(&dir->is_kept, true);
    eb_log(EB_LOG_ERROR, "serving_from_resident", eb_log_text("directory", dir->path),
        eb_log_text("reason", why),
        eb_log_text("remedy", "make the repository readable again; until then what was served last "
                              "is served, and nothing new can be loaded"));
    return true;
}

bool eb_record_start_scan(struct eb_record_start *start, const char *directory,
    const struct eb_table_options *tables, struct eb_repository *out, struct eb_failure *failure)
{
    struct eb_resident_dir *dir = tables->resident.dir;
    struct eb_repository_terms terms = eb_repository_terms_of(tables);
    if (eb_repository_scan(directory, &terms, NULL, out, failure)) {
        if (dir && dir->start_count >= EB_RESIDENT_STARTS_EMPTIED) {
            (void)eb_resident_dir_sweep(dir, NULL, NULL);
        }
        return true;
    }
    return dir && open_record(start, directory, tables, out, failure->text);
}

const struct eb_served_version *eb_record_start_find(
    const struct eb_record_start *start, const char *model, uint64_t version)
{
    const struct eb_served_model *known =
        start->is_active ? eb_served_record_find(&start->record, model) : NULL;
    for (size_t i = 0; known && i < known->version_count; i++) {
        if (known->versions[i].version == version && may_open(&known->versions[i], &start->terms)) {
            return &known->versions[i];
        }
    }
    return NULL;
}

bool eb_record_start_is_complete(
    const struct eb_record_start *start, const struct eb_snapshot *snapshot)
{
    for (size_t i = 0; i < start->record.model_count; i++) {
        const struct eb_served_model *known = &start->record.models[i];
        const struct eb_served_version *served = find_served(known, &start->terms);
        const struct eb_snapshot_model *model = eb_snapshot_find(snapshot, known->name);
        if (!served || !model || !model->served ||
            (!is_parted(&start->terms) && model->served->version != served->version)) {
            return false;
        }
    }
    return true;
}

bool eb_record_start_end(struct eb_record_start *start)
{
    if (!start->is_active) {
        return false;
    }
    start->is_active = false;
    atomic_store(&start->dir->is_kept, false);
    return true;
}

void eb_record_start_deinit(struct eb_record_start *start)
{
    eb_served_record_deinit(&start->record);
}
