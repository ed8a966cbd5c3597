#include "server/models/registry.h"

#include "server/contents/config_change.h"
#include "server/models/version_policy.h"

#include <stdlib.h>
#include <string.h>

/* Replaces *failure by a copy of `text`, or by NULL if `text` is NULL. Sets *is_new to whether
 * there is a text that differs from the last one and must be reported. Returns false if out of
 * memory. */
static bool set_failure(char **failure, const char *text, bool *is_new)
{
    *is_new = text && !(*failure && strcmp(*failure, text) == 0);
    char *copy = *is_new ? strdup(text) : NULL;
    if (*is_new && !copy) {
        return false;
    }
    if (*is_new || !text) {
        free(*failure);
        *failure = copy;
    }
    return true;
}

/* Returns the model of that name. Adds it if there is none. Returns NULL if out of memory. */
static struct eb_registry_model *add_registry_model(
    struct eb_registry *registry, const struct eb_repository_model *seen)
{
    struct eb_registry_model *model = eb_registry_find(registry, seen->name);
    if (model) {
        return model;
    }
    struct eb_registry_model fresh = {.name = strdup(seen->name),
        .path = strdup(seen->path),
        .settings = eb_model_settings_create()};
    struct eb_registry_model *models =
        realloc(registry->models, (registry->count + 1) * sizeof *registry->models);
    registry->models = models ? models : registry->models;
    if (!models || !fresh.name || !fresh.path || !fresh.settings) {
        eb_registry_free_model(&fresh);
        return NULL;
    }
    size_t place = 0;
    while (place < registry->count && strcmp(models[place].name, seen->name) < 0) {
        place++;
    }
    memmove(models + place + 1, models + place, (registry->count - place) * sizeof *models);
    models[place] = fresh;
    registry->count++;
    return &models[place];
}

/* Makes the list of versions on disk, with room for room_count more. Returns NULL if out of
 * memory. */
static struct eb_registry_version *make_versions(
    const struct eb_repository_model *seen, size_t room_count)
{
    struct eb_registry_version *versions =
        calloc(seen->version_count + room_count + 1, sizeof *versions);
    bool is_good = versions;
    for (size_t i = 0; is_good && i < seen->version_count; i++) {
        const struct eb_repository_version *from = &seen->versions[i];
        versions[i] = (struct eb_registry_version){.number = from->number,
            .stamp = from->stamp,
            .bytes = from->bytes,
            .manifest = {from->manifest, from->parts, from->lineage ? strdup(from->lineage) : NULL},
            .files = from->files,
            .is_on_disk = !from->failure,
            .name = strdup(from->name),
            .failure = from->failure ? strdup(from->failure) : NULL};
        is_good = versions[i].name && (!from->failure || versions[i].failure) &&
                  (!from->lineage || versions[i].manifest.lineage);
    }
    if (!is_good && versions) {
        eb_registry_free_versions(versions, seen->version_count);
        versions = NULL;
    }
    return versions;
}

/* ---- versions ---- */

/* Returns the position of the first entry with this number in a list that is sorted by number,
 * highest first. If there is no such entry, returns the position where it would be. */
static size_t find_registry_number(
    const struct eb_registry_version *versions, size_t count, uint64_t number)
{
    size_t first = 0;
    size_t end = count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (versions[middle].number > number) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

/* Returns the entry in `versions`, which is sorted, that has the directory name of `wanted`. If
 * there is none and `wanted` is in use, returns an entry with the same number, because at most one
 * entry of a number is in use. Otherwise returns NULL. */
static struct eb_registry_version *find_same(
    struct eb_registry_version *versions, size_t count, const struct eb_registry_version *wanted)
{
    struct eb_registry_version *found = NULL;
    for (size_t i = find_registry_number(versions, count, wanted->number);
         i < count && versions[i].number == wanted->number; i++) {
        if (strcmp(versions[i].name, wanted->name) == 0) {
            return &versions[i];
        }
        if (eb_registry_is_in_use(wanted)) {
            found = &versions[i];
        }
    }
    return found;
}

/* Returns whether the version's directory is the same as when the version failed to load. */
static bool is_as_tried(
    const struct eb_registry_version *fresh, const struct eb_registry_version *old)
{
    bool is_known = fresh->files != 0 && old->tried_files != 0;
    return eb_file_stamp_is_same(&fresh->stamp, &old->stamp) &&
           !(is_known && fresh->files != old->tried_files);
}

/* Keeps the manifest with which a version in use was or is being loaded, if its directory has
 * another one now. */
static void carry_manifest(struct eb_registry_version *to, struct eb_registry_version *from)
{
    uint64_t loaded = from->loaded ? from->loaded->tables.manifest : 0;
    bool is_same = from->manifest.digest == to->manifest.digest;
    bool is_own = loaded == 0 || loaded == from->manifest.digest;
    struct eb_registry_manifest *kept = is_own && !is_same ? &from->manifest : &from->former;
    to->former = *kept;
    *kept = (struct eb_registry_manifest){0};
}

/* Moves the state of the old entry to the new one. The reason of a failure is kept until the
 * directory or one of its files changes. */
static void carry_over(struct eb_registry_version *to, struct eb_registry_version *from)
{
    if (eb_registry_is_in_use(from)) {
        carry_manifest(to, from);
        to->is_loading = from->is_loading;
        to->tried_stamp = from->tried_stamp;
        to->is_wanted = from->is_wanted;
        to->was_claimed = from->was_claimed;
        to->claimed_ms = from->claimed_ms;
        to->retired_count = from->retired_count;
        to->loaded = from->loaded;
        to->since_ms = from->since_ms;
        from->loaded = NULL;
    }
    to->is_held = to->is_held || from->is_held;
    to->is_fresh = from->is_fresh;
    if (to->is_on_disk && from->is_on_disk && is_as_tried(to, from)) {
        to->tried_files = from->tried_files;
        to->failure = from->failure;
        to->failure_kind = from->failure_kind;
        to->passing_count = from->passing_count;
        to->retry_ms = from->retry_ms;
        to->deaths = from->deaths;
        to->is_set_aside = from->is_set_aside;
        from->failure = NULL;
    }
}

/* Clears the failure of each version in use. Another directory with the same number keeps its
 * failure. */
static void excuse_those_in_use(
    const struct eb_registry_model *model, struct eb_registry_version *fresh, size_t count)
{
    for (size_t i = 0; i < model->count; i++) {
        struct eb_registry_version *old = &model->versions[i];
        struct eb_registry_version *same = find_same(fresh, count, old);
        if (same && eb_registry_is_in_use(old) && strcmp(same->name, old->name) == 0) {
            free(same->failure);
            same->failure = NULL;
            same->is_on_disk = true;
        }
    }
}

static int compare_registry_versions(const void *left, const void *right)
{
    const struct eb_registry_version *a = left;
    const struct eb_registry_version *b = right;
    if (a->number != b->number) {
        return a->number < b->number ? 1 : -1;
    }
    return strcmp(a->name, b->name);
}

/* Counts and reports versions that cannot be loaded because of their state on disk, as if a load
 * had failed. */
static void take_new_failures(struct eb_registry *registry, const struct eb_registry_model *model,
    struct eb_registry_version *fresh, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct eb_registry_version *old = find_same(model->versions, model->count, &fresh[i]);
        if (fresh[i].failure && !(old && old->failure)) {
            registry->loads.failed++;
            eb_registry_tell_failed(registry, model->name, fresh[i].number, fresh[i].failure);
        }
    }
}

/* Marks the versions that were not there before. */
static void mark_fresh(
    const struct eb_registry_model *model, struct eb_registry_version *fresh, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fresh[i].is_fresh = !find_same(model->versions, model->count, &fresh[i]);
    }
}

/* Reports that the directory of a loaded version was replaced or written to, unless its manifest
 * says that the version is the same. */
static void tell_changed(const struct eb_registry *registry, const struct eb_registry_model *model,
    const struct eb_registry_version *old, const struct eb_registry_version *fresh)
{
    static const struct eb_file_stamp unknown;
    bool is_known = !eb_file_stamp_is_same(&old->stamp, &unknown);
    bool is_copy = old->manifest.digest != 0 && old->manifest.digest == fresh->manifest.digest;
    if (registry->events.on_changed && is_known && !is_copy && old->loaded && old->is_on_disk &&
        fresh->is_on_disk && !eb_file_stamp_is_same(&old->stamp, &fresh->stamp)) {
        registry->events.on_changed(registry->events.context, model->name, old->number);
    }
}

/* Returns a digest that differs between lists that a snapshot would show in different ways. */
static uint64_t digest_versions(const struct eb_registry_version *versions, size_t count)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < count; i++) {
        digest = digest * UINT64_C(0x100000001b3) + versions[i].number * 2;
        digest += versions[i].failure ? 1 : 0;
        digest ^= versions[i].manifest.digest;
    }
    return digest;
}

/* Updates a model's versions. Returns false with nothing changed if out of memory. */
static bool update_versions(struct eb_registry *registry, struct eb_registry_model *model,
    const struct eb_repository_model *seen)
{
    struct eb_registry_version *fresh = make_versions(seen, model->count);
    struct eb_policy_version *view = calloc(seen->version_count + model->count + 1, sizeof *view);
    if (!fresh || !view) {
        eb_registry_free_versions(fresh, fresh ? seen->version_count : 0);
        free(view);
        return false;
    }
    uint64_t before = digest_versions(model->versions, model->count);
    size_t count = seen->version_count;
    excuse_those_in_use(model, fresh, count);
    take_new_failures(registry, model, fresh, count);
    if (registry->jitter_ms > 0) {
        mark_fresh(model, fresh, count);
    }
    for (size_t i = 0; i < model->count; i++) {
        struct eb_registry_version *old = &model->versions[i];
        struct eb_registry_version *same = find_same(fresh, seen->version_count, old);
        if (same) {
            tell_changed(registry, model, old, same);
            carry_over(same, old);
        } else if (eb_registry_is_in_use(old)) {
            fresh[count] = *old;
            fresh[count].is_on_disk = false;
            *old = (struct eb_registry_version){0};
            count++;
        }
    }
    qsort(fresh, count, sizeof *fresh, compare_registry_versions);
    eb_registry_free_versions(model->versions, model->count);
    free(model->view);
    model->versions = fresh;
    model->view = view;
    model->count = count;
    registry->is_dirty = registry->is_dirty || digest_versions(fresh, count) != before;
    return true;
}

/* ---- settings ---- */

static bool is_any_in_use(const struct eb_registry_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        if (eb_registry_is_in_use(&model->versions[i])) {
            return true;
        }
    }
    return false;
}

/* Returns the version that the label `name` is on at present, or 0 if there is no such label. */
static uint64_t find_label(const struct eb_registry_model *model, const char *name)
{
    const struct eb_model_config *config = &model->settings->config;
    for (size_t i = 0; i < config->label_count; i++) {
        if (strcmp(config->labels[i].name, name) == 0) {
            return model->labels[i];
        }
    }
    return 0;
}

/* Clears failures, because the former settings may have caused them. Versions that killed the
 * process keep theirs. */
static void forgive_all(struct eb_registry_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        struct eb_registry_version *version = &model->versions[i];
        if (version->is_on_disk && version->deaths < EB_REGISTRY_DEATHS_FATAL) {
            free(version->failure);
            version->failure = NULL;
        }
    }
}

/* Reports that a loaded version keeps the settings that it was loaded with. */
static void tell_described(
    const struct eb_registry *registry, const struct eb_registry_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_model_version *loaded = model->versions[i].loaded;
        if (registry->events.on_described && loaded && loaded->settings &&
            !eb_config_change_is_alike(&loaded->settings->config, &model->settings->config)) {
            registry->events.on_described(registry->events.context, model->name, loaded->version);
            return;
        }
    }
}

/* Puts new settings in force. Labels that the old settings have too stay on their versions. Returns
 * false if out of memory. */
static bool adopt_model(const struct eb_registry *registry, struct eb_registry_model *model,
    struct eb_model_settings *settings)
{
    const struct eb_model_config *config = &settings->config;
    uint64_t *labels = calloc(config->label_count + 1, sizeof *labels);
    if (!labels) {
        return false;
    }
    for (size_t i = 0; i < config->label_count; i++) {
        labels[i] = find_label(model, config->labels[i].name);
    }
    free(model->labels);
    model->labels = labels;
    eb_model_settings_give(model->settings);
    model->settings = eb_model_settings_take(settings);
    model->is_missing_told = false;
    forgive_all(model);
    tell_described(registry, model);
    return true;
}

/* Removes a model's versions, so that none is loaded with settings that a broken model.yaml was
 * meant to replace. No version may be in use. */
static void hold_back(struct eb_registry_model *model)
{
    eb_registry_free_versions(model->versions, model->count);
    model->versions = NULL;
    model->count = 0;
    model->is_described = false;
}

static bool update_config(struct eb_registry *registry, struct eb_registry_model *model,
    const struct eb_repository_model *seen)
{
    bool is_mended = model->config_failure && !seen->config_failure;
    bool is_new = false;
    if (!set_failure(&model->config_failure, seen->config_failure, &is_new)) {
        return false;
    }
    registry->is_dirty = registry->is_dirty || is_new || is_mended;
    if (is_new && registry->events.on_config_failed) {
        registry->events.on_config_failed(
            registry->events.context, model->name, model->config_failure);
    }
    if (seen->settings && seen->settings != model->settings) {
        registry->is_dirty = true;
        if (!adopt_model(registry, model, seen->settings)) {
            return false;
        }
    }
    model->is_described = model->is_described || seen->settings;
    if (seen->config_failure && !is_any_in_use(model)) {
        hold_back(model);
    }
    return true;
}

static void tell_missing_version(const struct eb_registry *registry,
    struct eb_registry_model *model, uint64_t number, const char *label)
{
    if (number != 0 && !eb_registry_find_version(model, number)) {
        registry->events.on_missing(registry->events.context, model->name, number, label);
    }
}

/* Reports versions that the settings name but that do not exist. Does so once after the settings
 * have changed. */
static void tell_missing(const struct eb_registry *registry, struct eb_registry_model *model)
{
    const struct eb_model_config *config = &model->settings->config;
    if (model->is_missing_told || !registry->events.on_missing) {
        return;
    }
    model->is_missing_told = true;
    tell_missing_version(registry, model, config->serve, NULL);
    for (size_t i = 0; i < config->label_count; i++) {
        tell_missing_version(registry, model, config->labels[i].version, config->labels[i].name);
    }
}

/* ---- models ---- */

static bool update_model(struct eb_registry *registry, const struct eb_repository_model *seen)
{
    struct eb_registry_model *model = add_registry_model(registry, seen);
    bool is_mended = model && model->failure && !seen->failure;
    bool is_new = false;
    if (!model || !set_failure(&model->failure, seen->failure, &is_new)) {
        return false;
    }
    registry->is_dirty = registry->is_dirty || is_new || is_mended;
    if (is_new) {
        eb_registry_tell_failed(registry, model->name, 0, model->failure);
    }
    if (model->failure) {
        return true;
    }
    if (!update_config(registry, model, seen)) {
        return false;
    }
    if (!model->is_described) {
        return true;
    }
    if (!update_versions(registry, model, seen)) {
        return false;
    }
    tell_missing(registry, model);
    return true;
}

/* Marks all versions of a model as gone from the disk, because its directory is gone. */
static void lose_directory(struct eb_registry_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        model->versions[i].is_on_disk = false;
    }
}

/* Drops models that are gone from the disk and have no version in use. */
static void lose_models(struct eb_registry *registry, const struct eb_repository *seen)
{
    size_t count = 0;
    for (size_t i = 0; i < registry->count; i++) {
        struct eb_registry_model *model = &registry->models[i];
        bool is_seen = eb_repository_find(seen, model->name);
        if (!is_seen) {
            lose_directory(model);
        }
        if (is_seen || is_any_in_use(model)) {
            registry->models[count++] = *model;
        } else {
            eb_registry_free_model(model);
            registry->is_dirty = true;
        }
    }
    registry->count = count;
}

static void watch_model(const struct eb_registry_model *model, struct eb_repository_model *seen)
{
    seen->is_watched = false;
    for (size_t i = 0; i < seen->version_count; i++) {
        seen->versions[i].is_watched = false;
    }
    for (size_t i = 0; model && i < model->count; i++) {
        const struct eb_registry_version *tried = &model->versions[i];
        for (size_t k = 0; tried->failure && k < seen->version_count; k++) {
            if (strcmp(seen->versions[k].name, tried->name) == 0) {
                seen->versions[k].is_watched = true;
                seen->is_watched = true;
            }
        }
    }
}

void eb_registry_watch(struct eb_registry *registry, struct eb_repository *seen)
{
    for (size_t i = 0; i < seen->count; i++) {
        watch_model(eb_registry_find(registry, seen->models[i].name), &seen->models[i]);
    }
}

bool eb_registry_update(struct eb_registry *registry, const struct eb_repository *seen)
{
    bool is_good = true;
    for (size_t i = 0; is_good && i < seen->count; i++) {
        is_good = update_model(registry, &seen->models[i]);
    }
    lose_models(registry, seen);
    return is_good;
}
