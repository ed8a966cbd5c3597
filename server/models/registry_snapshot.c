/* Makes the snapshots of a registry. */
#include "server/models/registry.h"

#include "server/base/name.h"

#include <stdlib.h>
#include <string.h>

/* Returns the state that requests see, or 0 if the version is not visible. */
static enum eb_version_state find_state(
    const struct eb_registry_model *model, const struct eb_registry_version *version)
{
    if (version->loaded) {
        return version->loaded == model->served ? EB_VERSION_SERVING : EB_VERSION_READY;
    }
    if (version->is_loading) {
        return EB_VERSION_LOADING;
    }
    if (version->retired_count > 0) {
        return EB_VERSION_RETIRED;
    }
    return version->failure ? EB_VERSION_FAILED : 0;
}

/* Returns a copy of an error text with relative paths, for callers. Returns NULL if out of
 * memory. */
static char *copy_failure(const struct eb_registry *registry, const char *failure)
{
    char *copy = strdup(failure);
    if (copy && registry->directory) {
        eb_failure_make_relative(copy, registry->directory);
    }
    return copy;
}

static bool copy_snapshot_version(const struct eb_registry *registry, const char *model,
    const struct eb_registry_version *from, enum eb_version_state state,
    struct eb_snapshot_version *to)
{
    bool is_failed = state == EB_VERSION_FAILED;
    const struct eb_claimed_version *claimed =
        eb_claims_find(&registry->claims, model, from->number);
    *to = (struct eb_snapshot_version){.number = from->number,
        .state = state,
        .is_held = from->is_held,
        .is_claimed = claimed,
        .is_served_by_router = claimed && claimed->served_count > 0,
        .loaded = from->loaded ? eb_model_version_take(from->loaded) : NULL,
        .failure = is_failed ? copy_failure(registry, from->failure) : NULL};
    return to->failure || !is_failed;
}

static bool copy_versions(const struct eb_registry *registry, const struct eb_registry_model *from,
    struct eb_snapshot_model *to)
{
    to->versions = calloc(from->count + 1, sizeof *to->versions);
    bool is_good = to->versions;
    for (size_t i = 0; is_good && i < from->count; i++) {
        enum eb_version_state state = find_state(from, &from->versions[i]);
        if (state != 0) {
            is_good = copy_snapshot_version(registry, from->name, &from->versions[i], state,
                &to->versions[to->version_count++]);
        }
    }
    return is_good;
}

static bool copy_labels(const struct eb_registry_model *from, struct eb_snapshot_model *to)
{
    const struct eb_model_config *config = &from->settings->config;
    to->labels = calloc(config->label_count + 1, sizeof *to->labels);
    bool is_good = to->labels;
    for (size_t i = 0; is_good && i < config->label_count; i++) {
        struct eb_snapshot_label *label = &to->labels[to->label_count++];
        *label = (struct eb_snapshot_label){strdup(config->labels[i].name), from->labels[i]};
        is_good = label->name;
    }
    return is_good;
}

static bool copy_snapshot_model(const struct eb_registry *registry,
    const struct eb_registry_model *from, struct eb_snapshot_model *to)
{
    const char *failure = from->failure ? from->failure : from->config_failure;
    *to = (struct eb_snapshot_model){.name = strdup(from->name),
        .served = from->served,
        .commanded = from->commanded,
        .failure = failure ? copy_failure(registry, failure) : NULL};
    return to->name && (to->failure || !failure) && copy_versions(registry, from, to) &&
           copy_labels(from, to);
}

/* Returns whether requests can see the model. They cannot if no version in its directory has been
 * tried yet, or if its name cannot appear in an answer. */
static bool is_snapshot_visible(const struct eb_registry_model *model)
{
    if (model->failure || model->config_failure) {
        return !eb_name_error(model->name, UINT32_MAX);
    }
    for (size_t i = 0; i < model->count; i++) {
        if (find_state(model, &model->versions[i]) != 0) {
            return true;
        }
    }
    return false;
}

/* Counts the resident versions that are no longer wanted. */
static void count_kept(const struct eb_registry_model *model, struct eb_snapshot_loads *loads)
{
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_registry_version *version = &model->versions[i];
        if (version->loaded && !version->is_wanted) {
            loads->kept++;
            loads->kept_bytes += eb_model_version_own_bytes(version->loaded);
        }
    }
}

struct eb_snapshot *eb_registry_snapshot(const struct eb_registry *registry)
{
    struct eb_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot) {
        return NULL;
    }
    snapshot->loads = registry->loads;
    snapshot->models = calloc(registry->count + 1, sizeof *snapshot->models);
    bool is_good = snapshot->models;
    for (size_t i = 0; is_good && i < registry->count; i++) {
        count_kept(&registry->models[i], &snapshot->loads);
        if (is_snapshot_visible(&registry->models[i])) {
            is_good = copy_snapshot_model(
                registry, &registry->models[i], &snapshot->models[snapshot->count++]);
        }
    }
    if (!is_good) {
        eb_snapshot_free(snapshot);
        return NULL;
    }
    return snapshot;
}

struct eb_model_version **eb_registry_residents(
    const struct eb_registry_model *model, size_t *count)
{
    struct eb_model_version **residents = calloc(model->count + 1, sizeof *residents);
    *count = 0;
    for (size_t i = 0; i < model->count && residents; i++) {
        if (model->versions[i].loaded) {
            residents[(*count)++] = model->versions[i].loaded;
        }
    }
    return residents;
}
