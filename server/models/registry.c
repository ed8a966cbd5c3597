#include "server/models/registry.h"

#include "server/formats/parts_manifest.h"
#include "server/models/version_policy.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* First and longest pause before a load that failed for a passing reason is tried again. Up to a
 * quarter is added at random, so that servers that share a disk do not all come back to it at
 * once. */
#define PAUSE_FIRST_MS UINT64_C(1000)
#define PAUSE_MAX_MS UINT64_C(300000)

/* Time after which a model no longer lacks memory if none of its versions that lacked it is to be
 * loaded. It is longer than a pause, in which a router does not want the version. */
#define SHORT_END_MS (2 * PAUSE_MAX_MS)

#define MS_PER_S UINT64_C(1000)

/* ---- entries ---- */

bool eb_registry_is_in_use(const struct eb_registry_version *version)
{
    return version->loaded || version->is_loading || version->retired_count > 0;
}

void eb_registry_free_versions(struct eb_registry_version *versions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (versions[i].loaded) {
            eb_model_version_give(versions[i].loaded);
        }
        free(versions[i].name);
        free(versions[i].failure);
        free(versions[i].manifest.lineage);
        free(versions[i].former.lineage);
    }
    free(versions);
}

void eb_registry_free_model(struct eb_registry_model *model)
{
    eb_registry_free_versions(model->versions, model->count);
    eb_model_settings_give(model->settings);
    free(model->labels);
    free(model->view);
    free(model->config_failure);
    free(model->failure);
    free(model->path);
    free(model->name);
}

void eb_registry_deinit(struct eb_registry *registry)
{
    for (size_t i = 0; i < registry->count; i++) {
        eb_registry_free_model(&registry->models[i]);
    }
    free(registry->models);
    eb_claims_deinit(&registry->claims);
    *registry = (struct eb_registry){0};
}

static int compare_registry_model_name(const void *name, const void *model)
{
    return strcmp(name, ((const struct eb_registry_model *)model)->name);
}

struct eb_registry_model *eb_registry_find(struct eb_registry *registry, const char *name)
{
    return registry->count == 0 ? NULL
                                : bsearch(name, registry->models, registry->count,
                                      sizeof *registry->models, compare_registry_model_name);
}

struct eb_registry_version *eb_registry_find_version(
    struct eb_registry_model *model, uint64_t number)
{
    for (size_t i = 0; number != 0 && i < model->count; i++) {
        struct eb_registry_version *version = &model->versions[i];
        if (version->number == number && (version->is_on_disk || eb_registry_is_in_use(version))) {
            return version;
        }
    }
    return NULL;
}

bool eb_registry_has_label(const struct eb_registry_model *model, uint64_t number)
{
    const struct eb_model_config *config = &model->settings->config;
    for (size_t i = 0; i < config->label_count; i++) {
        if (config->labels[i].version == number || model->labels[i] == number) {
            return true;
        }
    }
    return false;
}

char *eb_registry_path(
    const struct eb_registry_model *model, const struct eb_registry_version *version)
{
    char *path;
    return asprintf(&path, "%s/%s", model->path, version->name) < 0 ? NULL : path;
}

bool eb_registry_needs_manifests(const struct eb_registry_model *model)
{
    return model->settings && model->settings->config.is_manifest_required;
}

void eb_registry_explain(const struct eb_registry *registry, const struct eb_registry_model *model,
    struct eb_failure *failure)
{
    const char *why = model->failure ? model->failure : model->config_failure;
    const struct eb_part_choice *part = &registry->part;
    if (why) {
        eb_failure_set(failure, "%s", why);
    } else if (model->count == 0 && part->parts > 0) {
        char folder[EB_PART_FOLDER_BYTES];
        eb_part_folder_name(part->part, part->parts, folder);
        eb_failure_set(failure,
            "%s: no version in it has a manifest.yaml and a folder %s; 'embag split' writes them",
            model->path, folder);
    } else if (model->count == 0 && eb_registry_needs_manifests(model)) {
        eb_failure_set(failure,
            "%s: no version in it has a manifest.yaml, which model.yaml requires; "
            "'embag manifest' writes one",
            model->path);
    } else if (model->count == 0) {
        eb_failure_set(failure,
            "%s: there is no version in it; put its tables into a directory called 1", model->path);
    } else {
        why = model->versions[0].failure;
        eb_failure_set(failure, "model '%.64s': no version can be loaded: %s", model->name,
            why ? why : "model.yaml serves another version, which does not exist");
    }
}

bool eb_registry_check_served(const struct eb_registry *registry, struct eb_failure *failure)
{
    for (size_t i = 0; i < registry->count; i++) {
        if (registry->models[i].served) {
            return true;
        }
    }
    if (registry->count > 0) {
        eb_registry_explain(registry, &registry->models[0], failure);
    }
    return registry->count == 0;
}

void eb_registry_tell_failed(
    const struct eb_registry *registry, const char *model, uint64_t number, const char *why)
{
    if (registry->events.on_failed) {
        registry->events.on_failed(registry->events.context, model, number, why);
    }
}

/* ---- claims ---- */

/* A changed claim changes what the versions' snapshots say. */
static void note_claims(struct eb_registry *registry)
{
    registry->is_dirty = registry->is_dirty || registry->claims.is_changed;
    registry->claims.is_changed = false;
}

bool eb_registry_claim(struct eb_registry *registry, struct eb_claim_set *set)
{
    bool is_added = eb_claims_add(&registry->claims, set);
    note_claims(registry);
    return is_added;
}

void eb_registry_unclaim(struct eb_registry *registry, struct eb_claim_set *set)
{
    eb_claims_remove(&registry->claims, set);
    note_claims(registry);
}

/* ---- decisions ---- */

uint64_t eb_registry_manifest(
    const struct eb_registry *registry, const struct eb_registry_version *version)
{
    if (registry->part.parts == 0) {
        return 0;
    }
    return version->loaded ? version->loaded->tables.manifest : version->manifest.digest;
}

static bool is_registry_claimed(const struct eb_registry *registry,
    const struct eb_registry_model *model, const struct eb_registry_version *version)
{
    return !registry->is_routed && eb_claims_has(&registry->claims, model->name, version->number,
                                       eb_registry_manifest(registry, version));
}

/* Returns whether a version that counts as failed is tried again without a change on disk. */
static bool is_tried_again(const struct eb_registry_version *version)
{
    return version->is_set_aside ||
           (version->failure && version->failure_kind != EB_REGISTRY_BROKEN);
}

/* Returns when the version's pin ends or ended; 0 if it has none. */
static uint64_t find_pin_end_ms(
    const struct eb_registry *registry, const struct eb_registry_version *version)
{
    bool has_pins = registry->limits.pin_ttl_ms > 0 && registry->part.parts == 0;
    unsigned named_s = has_pins && version->loaded
                           ? atomic_load_explicit(&version->loaded->named_s, memory_order_relaxed)
                           : 0;
    return named_s == 0 ? 0 : named_s * MS_PER_S + registry->limits.pin_ttl_ms;
}

uint64_t eb_registry_pin_end_ms(struct eb_registry *registry, const char *name, uint64_t number)
{
    struct eb_registry_model *model = eb_registry_find(registry, name);
    const struct eb_registry_version *version =
        model ? eb_registry_find_version(model, number) : NULL;
    return version ? find_pin_end_ms(registry, version) : 0;
}

static struct eb_policy_model view(
    const struct eb_registry *registry, const struct eb_registry_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_registry_version *version = &model->versions[i];
        model->view[i] = (struct eb_policy_version){
            .number = version->number,
            .is_on_disk = version->is_on_disk,
            .is_failed = (version->failure && !version->loaded) || version->is_set_aside,
            .is_retried = is_tried_again(version),
            .is_resident = version->loaded,
            .is_held = version->is_held,
            .is_labelled = eb_registry_has_label(model, version->number),
            .is_claimed = is_registry_claimed(registry, model, version),
            .wanted_rank = eb_registry_wanted_rank(model, version->number),
            .grace_end_ms = version->claimed_ms == 0
                                ? 0
                                : version->claimed_ms + registry->limits.claim_grace_ms,
            .since_ms = version->since_ms,
            .pin_end_ms = find_pin_end_ms(registry, version),
        };
    }
    return (struct eb_policy_model){
        .config = &model->settings->config,
        .is_routed = registry->is_routed,
        .chosen = model->chosen,
        .commanded = model->commanded,
        .served = model->served ? model->served->version : 0,
        .kept_max = registry->limits.kept_versions_max,
        .is_part = registry->part.parts > 0,
        .count = model->count,
        .versions = model->view,
    };
}

static bool is_any_loading(const struct eb_registry_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        if (model->versions[i].is_loading) {
            return true;
        }
    }
    return false;
}

/* Returns whether the next load must wait for those under way: because it has deaths, or one of
 * them has. */
static bool must_load_alone(
    const struct eb_registry *registry, const struct eb_registry_version *version)
{
    for (size_t i = 0; i < registry->count; i++) {
        const struct eb_registry_model *model = &registry->models[i];
        for (size_t k = 0; k < model->count; k++) {
            const struct eb_registry_version *other = &model->versions[k];
            if (other->is_loading && (other->deaths > 0 || version->deaths > 0)) {
                return true;
            }
        }
    }
    return false;
}

/* Returns whether there is a reason to load the version, whether or not it is in memory. */
static bool is_load_due(
    const struct eb_registry_model *model, const struct eb_policy_model *seen, size_t index)
{
    bool is_resident = model->view[index].is_resident;
    model->view[index].is_resident = false;
    bool is_due = eb_version_policy_is_due(seen, index);
    model->view[index].is_resident = is_resident;
    return is_due;
}

/* Returns the position of the version to load next, which is the policy's choice. If the policy
 * chooses none, it is a version in memory whose tables are outdated, or EB_POLICY_NONE. */
static size_t find_next_load(const struct eb_registry_model *model,
    const struct eb_policy_model *seen, const struct eb_policy_choice *choice)
{
    for (size_t i = 0; i < model->count && choice->load == EB_POLICY_NONE; i++) {
        const struct eb_registry_version *version = &model->versions[i];
        if (version->loaded && !version->failure && is_load_due(model, seen, i) &&
            eb_table_memory_is_outdated(&version->loaded->tables.memory)) {
            return i;
        }
    }
    return choice->load;
}

struct eb_registry_model *eb_registry_next(
    struct eb_registry *registry, struct eb_registry_version **version)
{
    struct eb_registry_model *found = NULL;
    bool is_found_urgent = false;
    for (size_t i = 0; i < registry->count; i++) {
        struct eb_registry_model *model = &registry->models[i];
        struct eb_policy_model seen = view(registry, model);
        struct eb_policy_choice choice = eb_version_policy_choose(&seen);
        size_t load = find_next_load(model, &seen, &choice);
        if (load == EB_POLICY_NONE || model->is_waiting || is_any_loading(model)) {
            continue;
        }
        struct eb_registry_version *candidate = &model->versions[load];
        bool is_urgent = choice.load != EB_POLICY_NONE &&
                         (choice.load == choice.target || model->view[load].is_claimed ||
                             model->view[load].wanted_rank != 0);
        if (must_load_alone(registry, candidate)) {
            continue;
        }
        if (!found || (is_urgent && !is_found_urgent) ||
            (is_urgent == is_found_urgent && candidate->bytes < (*version)->bytes)) {
            found = model;
            is_found_urgent = is_urgent;
            *version = candidate;
        }
    }
    if (found) {
        (*version)->is_loading = true;
        (*version)->is_fresh = false;
        (*version)->tried_stamp = (*version)->stamp;
        registry->is_dirty = true;
    }
    return found;
}

void eb_registry_note_loaded(
    struct eb_registry *registry, struct eb_model_version *loaded, uint64_t now_ms)
{
    struct eb_registry_model *model = eb_registry_find(registry, loaded->model);
    struct eb_registry_version *version = eb_registry_find_version(model, loaded->version);
    assert(version && version->is_loading);
    if (version->loaded) {
        bool is_served = model->served == version->loaded;
        unsigned named_s = atomic_load_explicit(&version->loaded->named_s, memory_order_relaxed);
        atomic_store_explicit(&loaded->named_s, named_s, memory_order_relaxed);
        eb_registry_drop(registry, model, version);
        model->served = is_served ? loaded : model->served;
    }
    version->is_loading = false;
    version->failure_kind = EB_REGISTRY_BROKEN;
    version->passing_count = 0;
    version->deaths = 0;
    version->loaded = loaded;
    version->since_ms = now_ms;
    model->short_ms = 0;
    registry->loads.done++;
    registry->is_dirty = true;
}

void eb_registry_fail(struct eb_registry *registry, const char *name, uint64_t number,
    const char *why, enum eb_registry_failure failure)
{
    struct eb_registry_version *version =
        eb_registry_find_version(eb_registry_find(registry, name), number);
    assert(version && version->is_loading);
    version->is_loading = false;
    registry->is_dirty = true;
    if (!why || !eb_file_stamp_is_same(&version->stamp, &version->tried_stamp)) {
        return;
    }
    registry->loads.failed++;
    free(version->failure);
    version->failure = strdup(why);
    /* If there is no memory even for this text, the load is not tried again before the next
     * scan. */
    version->is_on_disk = version->is_on_disk && version->failure;
    if (failure == EB_REGISTRY_BROKEN || failure != version->failure_kind) {
        eb_registry_tell_failed(registry, name, number, why);
    }
    version->failure_kind = failure;
    version->passing_count = failure == EB_REGISTRY_BROKEN ? 0 : version->passing_count + 1;
    version->retry_ms = 0;
}

void eb_registry_note_files(
    struct eb_registry *registry, const char *name, uint64_t number, uint64_t files)
{
    eb_registry_find_version(eb_registry_find(registry, name), number)->tried_files = files;
}

/* Clears the failures whose pause is over. If `is_memory_back`, also clears those from lack of
 * memory. */
static void clear_failures(struct eb_registry *registry, bool is_memory_back, uint64_t now_ms)
{
    for (size_t i = 0; i < registry->count; i++) {
        for (size_t k = 0; k < registry->models[i].count; k++) {
            struct eb_registry_version *version = &registry->models[i].versions[k];
            bool is_over = version->retry_ms != 0 && version->retry_ms <= now_ms;
            if (is_over || (is_memory_back && version->failure_kind == EB_REGISTRY_SHORT)) {
                free(version->failure);
                version->failure = NULL;
            }
        }
    }
}

void eb_registry_forgive(struct eb_registry *registry, uint64_t now_ms)
{
    clear_failures(registry, false, now_ms);
}

void eb_registry_forgive_short(struct eb_registry *registry)
{
    clear_failures(registry, true, 0);
}

void eb_registry_note_unloaded(struct eb_registry *registry, const char *name, uint64_t number)
{
    struct eb_registry_version *version =
        eb_registry_find_version(eb_registry_find(registry, name), number);
    assert(version && version->retired_count > 0);
    version->retired_count--;
    registry->loads.freed++;
    registry->is_dirty = true;
    eb_registry_forgive_short(registry);
}

void eb_registry_drop(struct eb_registry *registry, struct eb_registry_model *model,
    struct eb_registry_version *version)
{
    struct eb_model_version *loaded = version->loaded;
    assert(loaded);
    version->loaded = NULL;
    version->retired_count++;
    registry->is_dirty = true;
    if (model->served == loaded) {
        model->served = NULL;
    }
    if (registry->events.on_retired) {
        registry->events.on_retired(registry->events.context, model->name, version->number);
    }
    eb_model_version_give(loaded);
}

static void serve_version(struct eb_registry *registry, struct eb_registry_model *model)
{
    struct eb_policy_model seen = view(registry, model);
    struct eb_policy_choice choice = eb_version_policy_choose(&seen);
    struct eb_model_version *target =
        choice.serve == EB_POLICY_NONE ? NULL : model->versions[choice.serve].loaded;
    if (!target || target == model->served) {
        return;
    }
    uint64_t before = model->served ? model->served->version : 0;
    model->served = target;
    registry->is_dirty = true;
    if (registry->events.on_served) {
        registry->events.on_served(registry->events.context, model->name, target->version, before);
    }
}

static bool is_resident(struct eb_registry_model *model, uint64_t number)
{
    const struct eb_registry_version *version = eb_registry_find_version(model, number);
    return version && version->loaded;
}

/* Moves each label to the version that the settings give it. If that version is not loaded yet, a
 * label whose present version is loaded stays there until it is. */
static void move_labels(struct eb_registry *registry, struct eb_registry_model *model)
{
    const struct eb_model_config *config = &model->settings->config;
    for (size_t i = 0; i < config->label_count; i++) {
        uint64_t number = config->labels[i].version;
        uint64_t before = model->labels[i];
        if (before != number && (is_resident(model, number) || !is_resident(model, before))) {
            model->labels[i] = number;
            registry->is_dirty = true;
        }
    }
}

/* Notes which versions are wanted and claimed, and since when the others are not. */
static void note_wanted(
    const struct eb_registry *registry, struct eb_registry_model *model, uint64_t now_ms)
{
    struct eb_policy_model seen = view(registry, model);
    for (size_t i = 0; i < model->count; i++) {
        struct eb_registry_version *version = &model->versions[i];
        bool is_wanted =
            version->loaded && eb_version_policy_decide(&seen, i, now_ms) == EB_POLICY_WANTED;
        if (is_wanted || version->is_wanted) {
            version->since_ms = now_ms;
        }
        version->is_wanted = is_wanted;
        bool is_claimed = seen.versions[i].is_claimed;
        if (is_claimed || version->was_claimed) {
            version->claimed_ms = now_ms;
        }
        version->was_claimed = is_claimed;
    }
}

/* Drops a version before its keep_s is over. */
static void evict(struct eb_registry *registry, struct eb_registry_model *model,
    struct eb_registry_version *version, const char *setting)
{
    registry->loads.evicted++;
    if (registry->events.on_evicted) {
        registry->events.on_evicted(
            registry->events.context, model->name, version->number, setting);
    }
    eb_registry_drop(registry, model, version);
}

static void lower_wake(uint64_t *wake_ms, uint64_t to_ms)
{
    *wake_ms = to_ms < *wake_ms ? to_ms : *wake_ms;
}

/* Drops versions whose keep_s is over, and evicts those above kept_versions_max. */
static void expire_retries(struct eb_registry *registry, struct eb_registry_model *model,
    uint64_t now_ms, uint64_t *wake_ms)
{
    note_wanted(registry, model, now_ms);
    struct eb_policy_model seen = view(registry, model);
    for (size_t i = 0; i < model->count; i++) {
        struct eb_registry_version *version = &model->versions[i];
        if (!version->loaded) {
            continue;
        }
        uint64_t keep_ms = model->settings->config.keep_s * MS_PER_S;
        switch (eb_version_policy_decide(&seen, i, now_ms)) {
        case EB_POLICY_WANTED:
        case EB_POLICY_SPARE: break;
        case EB_POLICY_PINNED: lower_wake(wake_ms, seen.versions[i].pin_end_ms); break;
        case EB_POLICY_GRACE: lower_wake(wake_ms, seen.versions[i].grace_end_ms); break;
        case EB_POLICY_KEPT:
            lower_wake(wake_ms, eb_version_policy_since_ms(&seen, i) + keep_ms);
            break;
        case EB_POLICY_EVICTED: evict(registry, model, version, "kept_versions_max"); break;
        case EB_POLICY_DROPPED: eb_registry_drop(registry, model, version); break;
        }
    }
}

/* The kept versions that may be evicted: the bytes of all of them, and those of one model. */
struct kept {
    uint64_t total_bytes;
    uint64_t bytes; /* bytes of those that belong to `model` */
    struct eb_registry_model *model;
    struct eb_registry_version *oldest; /* of `model`, wanted least recently; NULL if none may go */
    uint64_t oldest_ms;                 /* since when it is not wanted */
};

/* Finds the kept versions of one model. */
static struct kept find_model_kept(
    const struct eb_registry *registry, struct eb_registry_model *model, uint64_t now_ms)
{
    struct kept kept = {.model = model};
    struct eb_policy_model seen = view(registry, model);
    for (size_t i = 0; i < model->count; i++) {
        struct eb_registry_version *version = &model->versions[i];
        if (!version->loaded || eb_version_policy_decide(&seen, i, now_ms) != EB_POLICY_KEPT ||
            !eb_version_policy_may_evict(&seen, i, now_ms)) {
            continue;
        }
        uint64_t since_ms = eb_version_policy_since_ms(&seen, i);
        kept.bytes += eb_model_version_own_bytes(version->loaded);
        if (!kept.oldest || since_ms < kept.oldest_ms) {
            kept.oldest = version;
            kept.oldest_ms = since_ms;
        }
    }
    return kept;
}

static struct kept find_registry_kept(const struct eb_registry *registry, uint64_t now_ms)
{
    struct kept most = {0};
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < registry->count; i++) {
        struct kept kept = find_model_kept(registry, &registry->models[i], now_ms);
        total_bytes += kept.bytes;
        if (kept.oldest && (!most.oldest || kept.bytes > most.bytes)) {
            most = kept;
        }
    }
    most.total_bytes = total_bytes;
    return most;
}

/* Evicts kept versions while all of them together take more than kept_bytes_max. Each time it
 * takes the model whose kept versions have the most bytes, and evicts the oldest of them. */
static void bound_kept_bytes(struct eb_registry *registry, uint64_t now_ms)
{
    if (registry->limits.kept_bytes_max == 0) {
        return;
    }
    struct kept kept = find_registry_kept(registry, now_ms);
    while (kept.total_bytes > registry->limits.kept_bytes_max) {
        evict(registry, kept.model, kept.oldest, "kept_bytes_max");
        kept = find_registry_kept(registry, now_ms);
    }
}

/* Returns a random number below `end`, or 0 if the system has none to give yet. */
static uint64_t choose_below(uint64_t end)
{
    uint32_t chance = 0;
    (void)getrandom(&chance, sizeof chance, GRND_NONBLOCK);
    return end * (chance >> 16) / 65536;
}

static uint64_t pause_ms(unsigned passing_count)
{
    uint64_t pause_ms = PAUSE_FIRST_MS;
    for (unsigned i = 1; i < passing_count && pause_ms < PAUSE_MAX_MS; i++) {
        pause_ms *= 2;
    }
    pause_ms = pause_ms < PAUSE_MAX_MS ? pause_ms : PAUSE_MAX_MS;
    return pause_ms + choose_below(pause_ms / 4);
}

/* Returns whether there would be a reason to load the version if it had not failed. */
static bool is_retry_due(
    const struct eb_registry_model *model, const struct eb_policy_model *seen, size_t index)
{
    bool is_failed = model->view[index].is_failed;
    model->view[index].is_failed = false;
    bool is_due = is_load_due(model, seen, index);
    model->view[index].is_failed = is_failed;
    return is_due;
}

/* Forgets since when the model has lacked memory if no version lacks it, or if none that does is to
 * be loaded any longer. Lowers *wake_ms to the time when pinned versions give way. */
static void follow_short(const struct eb_registry *registry, struct eb_registry_model *model,
    uint64_t now_ms, uint64_t *wake_ms)
{
    struct eb_policy_model seen = view(registry, model);
    bool is_short = false;
    bool is_awaited = false;
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_registry_version *version = &model->versions[i];
        if (version->is_on_disk && !version->loaded && version->failure_kind == EB_REGISTRY_SHORT) {
            is_short = true;
            is_awaited = is_awaited || is_retry_due(model, &seen, i);
        }
    }
    if (!is_short || now_ms >= model->short_end_ms) {
        model->short_ms = 0;
    }
    if (is_awaited) {
        model->short_end_ms = UINT64_MAX;
    } else if (model->short_end_ms == UINT64_MAX) {
        model->short_end_ms = now_ms + SHORT_END_MS;
    }
    uint64_t void_ms = model->short_ms + registry->limits.next_wait_ms;
    if (model->short_ms != 0 && now_ms < void_ms) {
        lower_wake(wake_ms, void_ms);
    }
}

/* Begins the pause of each failed version that may load later. Lowers *wake_ms to the time when
 * the first pause ends. */
static void pause_failed(struct eb_registry_model *model, uint64_t now_ms, uint64_t *wake_ms)
{
    for (size_t i = 0; i < model->count; i++) {
        struct eb_registry_version *version = &model->versions[i];
        if (!version->failure || version->failure_kind == EB_REGISTRY_BROKEN) {
            continue;
        }
        if (version->retry_ms == 0) {
            version->retry_ms = now_ms + pause_ms(version->passing_count);
        }
        lower_wake(wake_ms, version->retry_ms);
    }
}

/* Returns whether the load of the version waits because routers may claim another one. */
static bool is_awaiting_claims(const struct eb_registry *registry,
    const struct eb_registry_model *model, const struct eb_registry_version *version,
    uint64_t now_ms)
{
    return now_ms < registry->claims_due_ms && !model->is_hurried &&
           !is_registry_claimed(registry, model, version);
}

/* Lets the load of a new version wait. Lowers *wake_ms to the end of the wait. */
static void postpone_load(struct eb_registry *registry, struct eb_registry_model *model,
    uint64_t now_ms, uint64_t *wake_ms)
{
    struct eb_policy_model seen = view(registry, model);
    struct eb_policy_choice choice = eb_version_policy_choose(&seen);
    const struct eb_registry_version *version =
        choice.load == EB_POLICY_NONE ? NULL : &model->versions[choice.load];
    if (version && is_awaiting_claims(registry, model, version, now_ms)) {
        model->is_waiting = true;
        lower_wake(wake_ms, registry->claims_due_ms);
        return;
    }
    if (!version || !version->is_fresh || !model->served) {
        model->wait_ms = 0;
        model->is_waiting = false;
        return;
    }
    if (model->wait_ms == 0) {
        uint64_t wait_ms = 1 + choose_below(registry->jitter_ms);
        model->wait_ms = now_ms + wait_ms;
        if (registry->events.on_postponed) {
            registry->events.on_postponed(
                registry->events.context, model->name, version->number, wait_ms);
        }
    }
    model->is_waiting = now_ms < model->wait_ms;
    if (model->is_waiting) {
        lower_wake(wake_ms, model->wait_ms);
    }
}

/* ---- versions that killed the process ---- */

void eb_registry_suspect(struct eb_registry *registry, struct eb_registry_model *model,
    struct eb_registry_version *version, uint64_t files, unsigned deaths)
{
    version->deaths = deaths;
    version->is_set_aside = true;
    version->tried_stamp = version->stamp;
    version->tried_files = files;
    if (registry->events.on_suspected) {
        registry->events.on_suspected(
            registry->events.context, model->name, version->number, deaths);
    }
}

static bool readmit_fewest(struct eb_registry_model *model)
{
    struct eb_registry_version *fewest = NULL;
    for (size_t i = 0; i < model->count; i++) {
        struct eb_registry_version *version = &model->versions[i];
        if (version->is_set_aside && (!fewest || version->deaths < fewest->deaths)) {
            fewest = version;
        }
    }
    if (fewest) {
        fewest->is_set_aside = false;
    }
    return fewest;
}

bool eb_registry_readmit_unserved(struct eb_registry *registry)
{
    bool is_any = false;
    for (size_t i = 0; i < registry->count; i++) {
        if (!registry->models[i].served) {
            is_any = readmit_fewest(&registry->models[i]) || is_any;
        }
    }
    return is_any;
}

/* Lets a version with too many deaths fail. */
static void fail_deadly(struct eb_registry *registry, const struct eb_registry_model *model,
    struct eb_registry_version *version)
{
    struct eb_failure failure;
    char times[32];
    snprintf(times, sizeof times, version->deaths == 2 ? "twice" : "%u times", version->deaths);
    eb_failure_set(&failure,
        "%s/%s: the process died %s while loading it; check its files and whether memory was "
        "short, then publish it anew or load it by command (embag models load)",
        model->path, version->name, times);
    free(version->failure);
    version->failure = strdup(failure.text);
    version->is_on_disk = version->is_on_disk && version->failure;
    version->failure_kind = EB_REGISTRY_BROKEN;
    registry->loads.failed++;
    eb_registry_tell_failed(registry, model->name, version->number, failure.text);
}

void eb_registry_readmit(struct eb_registry *registry)
{
    for (size_t i = 0; i < registry->count; i++) {
        const struct eb_registry_model *model = &registry->models[i];
        for (size_t k = 0; k < model->count; k++) {
            struct eb_registry_version *version = &model->versions[k];
            if (version->is_set_aside && version->deaths >= EB_REGISTRY_DEATHS_FATAL) {
                fail_deadly(registry, model, version);
            }
            version->is_set_aside = false;
        }
    }
    registry->is_dirty = true;
}

void eb_registry_hurry(struct eb_registry_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        model->versions[i].is_fresh = false;
    }
    model->is_hurried = true;
    model->is_waiting = false;
}

void eb_registry_decide(struct eb_registry *registry, uint64_t now_ms, uint64_t *wake_ms)
{
    *wake_ms = UINT64_MAX;
    for (size_t i = 0; i < registry->count; i++) {
        serve_version(registry, &registry->models[i]);
        move_labels(registry, &registry->models[i]);
        expire_retries(registry, &registry->models[i], now_ms, wake_ms);
        pause_failed(&registry->models[i], now_ms, wake_ms);
        follow_short(registry, &registry->models[i], now_ms, wake_ms);
        postpone_load(registry, &registry->models[i], now_ms, wake_ms);
    }
    bound_kept_bytes(registry, now_ms);
}

bool eb_registry_is_due(struct eb_registry *registry, const char *name, uint64_t number)
{
    struct eb_registry_model *model = eb_registry_find(registry, name);
    const struct eb_registry_version *version = eb_registry_find_version(model, number);
    struct eb_policy_model seen = view(registry, model);
    return eb_file_stamp_is_same(&version->stamp, &version->tried_stamp) &&
           is_load_due(model, &seen, (size_t)(version - model->versions));
}

bool eb_registry_is_settled(
    const struct eb_registry *registry, const struct eb_registry_model *model)
{
    struct eb_policy_model seen = view(registry, model);
    return !is_any_loading(model) &&
           (model->is_waiting || eb_version_policy_choose(&seen).load == EB_POLICY_NONE);
}

/* Returns whether the version may be dropped for a load: it is spare or, if pins are void, would
 * not stay without its pin. */
static bool is_droppable(const struct eb_registry_model *model, const struct eb_policy_model *seen,
    size_t index, bool are_pins_void, uint64_t now_ms)
{
    if (!model->versions[index].loaded) {
        return false;
    }
    enum eb_policy_fate fate = eb_version_policy_decide(seen, index, now_ms);
    if (fate != EB_POLICY_PINNED || !are_pins_void) {
        return fate == EB_POLICY_SPARE;
    }
    uint64_t pin_end_ms = model->view[index].pin_end_ms;
    model->view[index].pin_end_ms = 0;
    fate = eb_version_policy_decide(seen, index, now_ms);
    model->view[index].pin_end_ms = pin_end_ms;
    return fate != EB_POLICY_GRACE && fate != EB_POLICY_KEPT;
}

/* Returns the version that may be dropped and has been unwanted for the longest time, or NULL if
 * there is none. */
static struct eb_registry_version *find_droppable(struct eb_registry *registry, bool are_pins_void,
    uint64_t now_ms, struct eb_registry_model **owner)
{
    struct eb_registry_version *oldest = NULL;
    uint64_t oldest_ms = UINT64_MAX;
    for (size_t i = 0; i < registry->count; i++) {
        struct eb_registry_model *model = &registry->models[i];
        struct eb_policy_model seen = view(registry, model);
        for (size_t k = 0; k < model->count; k++) {
            uint64_t since_ms = eb_version_policy_since_ms(&seen, k);
            if (since_ms < oldest_ms && is_droppable(model, &seen, k, are_pins_void, now_ms)) {
                oldest = &model->versions[k];
                oldest_ms = since_ms;
                *owner = model;
            }
        }
    }
    return oldest;
}

static uint64_t count_droppable_bytes(
    struct eb_registry *registry, bool are_pins_void, uint64_t now_ms)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < registry->count; i++) {
        struct eb_registry_model *model = &registry->models[i];
        struct eb_policy_model seen = view(registry, model);
        for (size_t k = 0; k < model->count; k++) {
            if (is_droppable(model, &seen, k, are_pins_void, now_ms)) {
                bytes += eb_model_version_own_bytes(model->versions[k].loaded);
            }
        }
    }
    return bytes;
}

bool eb_registry_make_room(
    struct eb_registry *registry, const char *name, uint64_t bytes, uint64_t now_ms)
{
    struct eb_registry_model *model = eb_registry_find(registry, name);
    if (model->short_ms == 0) {
        model->short_ms = now_ms;
        model->short_end_ms = UINT64_MAX;
    }
    bool are_pins_void = now_ms - model->short_ms >= registry->limits.next_wait_ms;
    uint64_t dropped_bytes = 0;
    if (count_droppable_bytes(registry, are_pins_void, now_ms) < bytes) {
        return false;
    }
    while (dropped_bytes < bytes) {
        struct eb_registry_model *owner;
        struct eb_registry_version *version =
            find_droppable(registry, are_pins_void, now_ms, &owner);
        assert(version);
        dropped_bytes += eb_model_version_own_bytes(version->loaded);
        eb_registry_drop(registry, owner, version);
    }
    return true;
}
