/* Makes the snapshots of a registry. */
#include "server/models/registry.h"

#include "server/base/name.h"

#include <inttypes.h>
#include <stdio.h>
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
    uint64_t manifest = eb_registry_manifest(registry, from);
    struct eb_claim_counts claims =
        eb_claims_count(&registry->claims, model, from->number, manifest);
    *to = (struct eb_snapshot_version){.number = from->number,
        .state = state,
        .is_held = from->is_held,
        .is_claimed = claims.served + claims.next > 0,
        .is_served_by_router = claims.served > 0,
        .manifest = manifest,
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
        .claims = eb_claims_count_model(&registry->claims, from->name),
        .failure = failure ? copy_failure(registry, failure) : NULL};
    return to->name && (to->failure || !failure) && copy_versions(registry, from, to) &&
           copy_labels(from, to);
}

/* Returns whether requests can see the model. They cannot if no version in its directory has been
 * tried yet, or if its name cannot appear in an answer. On a router, a version in parts is enough:
 * it may be tried by part servers alone. */
static bool is_snapshot_visible(
    const struct eb_registry *registry, const struct eb_registry_model *model)
{
    bool is_visible = model->failure || model->config_failure;
    for (size_t i = 0; i < model->count && !is_visible; i++) {
        const struct eb_registry_version *version = &model->versions[i];
        bool is_parted = version->is_on_disk && version->manifest.parts > 0;
        is_visible = find_state(model, version) != 0 || (registry->is_routed && is_parted);
    }
    return is_visible && !eb_name_error(model->name, UINT32_MAX);
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

/* ---- readiness of a part server ---- */

static bool is_any_loaded(const struct eb_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->count; i++) {
        for (size_t k = 0; k < snapshot->models[i].version_count; k++) {
            if (snapshot->models[i].versions[k].loaded) {
                return true;
            }
        }
    }
    return false;
}

static bool is_claimed_loaded(
    const struct eb_snapshot *snapshot, const struct eb_claimed_version *claimed)
{
    const struct eb_snapshot_model *model = eb_snapshot_find(snapshot, claimed->model);
    const struct eb_model_version *loaded =
        model ? eb_snapshot_find_version(model, claimed->version) : NULL;
    return loaded && (claimed->digest == 0 || claimed->digest == loaded->tables.manifest);
}

/* Returns whether the repository has a version of that number for this part. Routers may also serve
 * versions in another number of parts, which other servers have. */
static bool is_claimed_here(
    const struct eb_registry *registry, const struct eb_claimed_version *claimed)
{
    for (size_t i = 0; i < registry->count; i++) {
        const struct eb_registry_model *model = &registry->models[i];
        for (size_t k = 0; strcmp(model->name, claimed->model) == 0 && k < model->count; k++) {
            if (model->versions[k].number == claimed->version && model->versions[k].is_on_disk) {
                return true;
            }
        }
    }
    return false;
}

/* Describes a version that routers serve and that is not in memory. Returns NULL if out of memory.
 */
static char *describe_absent(const struct eb_claimed_version *claimed)
{
    char digest[40] = "";
    char *text;
    if (claimed->digest != 0) {
        snprintf(digest, sizeof digest, " with the digest %016" PRIx64, claimed->digest);
    }
    int length = asprintf(&text,
        "version %" PRIu64 "%s of model \"%s\", which routers serve, is not in memory",
        claimed->version, digest, claimed->model);
    return length < 0 ? NULL : text;
}

/* Sets not_ready. Returns false if out of memory. */
static bool note_readiness(const struct eb_registry *registry, struct eb_snapshot *snapshot)
{
    const struct eb_claims *claims = &registry->claims;
    if (registry->part.parts == 0) {
        return true;
    }
    if (!is_any_loaded(snapshot)) {
        snapshot->not_ready = strdup("no version is in memory");
        return snapshot->not_ready;
    }
    for (size_t i = 0; i < claims->count; i++) {
        const struct eb_claimed_version *claimed = &claims->versions[i];
        if (claimed->counts.served > 0 && !is_claimed_loaded(snapshot, claimed) &&
            is_claimed_here(registry, claimed)) {
            snapshot->not_ready = describe_absent(claimed);
            return snapshot->not_ready;
        }
    }
    return true;
}

/* ---- the snapshot ---- */

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
        if (is_snapshot_visible(registry, &registry->models[i])) {
            is_good = copy_snapshot_model(
                registry, &registry->models[i], &snapshot->models[snapshot->count++]);
        }
    }
    if (!is_good || !note_readiness(registry, snapshot)) {
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
