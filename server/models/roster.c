#include "server/models/roster.h"

#include "server/models/version_policy.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is there ---- */

static bool is_in_use(const struct eb_roster_version *version)
{
    return version->loaded || version->is_loading || version->retired_count > 0;
}

static void free_versions(struct eb_roster_version *versions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (versions[i].loaded) {
            eb_model_version_give(versions[i].loaded);
        }
        free(versions[i].name);
        free(versions[i].fault);
    }
    free(versions);
}

static void free_model(struct eb_roster_model *model)
{
    free_versions(model->versions, model->count);
    eb_model_settings_give(model->settings);
    free(model->view);
    free(model->config_fault);
    free(model->fault);
    free(model->path);
    free(model->name);
}

void eb_roster_deinit(struct eb_roster *roster)
{
    for (size_t i = 0; i < roster->count; i++) {
        free_model(&roster->models[i]);
    }
    free(roster->models);
    *roster = (struct eb_roster){0};
}

/* The place of the model called `name`, or where it belongs. */
static size_t find_place(const struct eb_roster *roster, const char *name)
{
    size_t first = 0;
    size_t end = roster->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (strcmp(roster->models[middle].name, name) < 0) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

struct eb_roster_model *eb_roster_find(struct eb_roster *roster, const char *name)
{
    size_t place = find_place(roster, name);
    bool is_there = place < roster->count && strcmp(roster->models[place].name, name) == 0;
    return is_there ? &roster->models[place] : NULL;
}

struct eb_roster_version *eb_roster_find_version(struct eb_roster_model *model, uint64_t number)
{
    for (size_t i = 0; number != 0 && i < model->count; i++) {
        struct eb_roster_version *version = &model->versions[i];
        if (version->number == number && (version->is_on_disk || is_in_use(version))) {
            return version;
        }
    }
    return NULL;
}

char *eb_roster_path(const struct eb_roster_model *model, const struct eb_roster_version *version)
{
    char *path;
    return asprintf(&path, "%s/%s", model->path, version->name) < 0 ? NULL : path;
}

static void tell_failed(
    const struct eb_roster *roster, const char *model, uint64_t number, const char *why)
{
    if (roster->events.on_failed) {
        roster->events.on_failed(roster->events.context, model, number, why);
    }
}

/* ---- what is on disk ---- */

/* Replaces a text that is told where it is new. false: out of memory. */
static bool set_fault(char **fault, const char *text, bool *is_new)
{
    *is_new = text && !(*fault && strcmp(*fault, text) == 0);
    char *copy = *is_new ? strdup(text) : NULL;
    if (*is_new && !copy) {
        return false;
    }
    if (*is_new || !text) {
        free(*fault);
        *fault = copy;
    }
    return true;
}

/* The model of that name, a new one where there is none. NULL: out of memory. */
static struct eb_roster_model *add_model(
    struct eb_roster *roster, const struct eb_repository_model *seen)
{
    struct eb_roster_model *model = eb_roster_find(roster, seen->name);
    if (model) {
        return model;
    }
    struct eb_roster_model fresh = {.name = strdup(seen->name),
        .path = strdup(seen->path),
        .settings = eb_model_settings_create()};
    struct eb_roster_model *models =
        realloc(roster->models, (roster->count + 1) * sizeof *roster->models);
    roster->models = models ? models : roster->models;
    if (!models || !fresh.name || !fresh.path || !fresh.settings) {
        free_model(&fresh);
        return NULL;
    }
    size_t place = find_place(roster, seen->name);
    memmove(models + place + 1, models + place, (roster->count - place) * sizeof *models);
    models[place] = fresh;
    roster->count++;
    return &models[place];
}

/* As they are on disk, with room for as many more. NULL: out of memory. */
static struct eb_roster_version *make_versions(
    const struct eb_repository_model *seen, size_t room_count)
{
    struct eb_roster_version *versions =
        calloc(seen->version_count + room_count + 1, sizeof *versions);
    bool is_good = versions;
    for (size_t i = 0; is_good && i < seen->version_count; i++) {
        const struct eb_repository_version *from = &seen->versions[i];
        versions[i] = (struct eb_roster_version){.number = from->number,
            .look = from->look,
            .is_on_disk = !from->fault,
            .name = strdup(from->name),
            .fault = from->fault ? strdup(from->fault) : NULL};
        is_good = versions[i].name && (!from->fault || versions[i].fault);
    }
    if (!is_good && versions) {
        free_versions(versions, seen->version_count);
        versions = NULL;
    }
    return versions;
}

/* The entry of the same directory; of the same number where that is in use, since there is one such
 * entry at most. NULL: none. */
static struct eb_roster_version *find_same(
    struct eb_roster_version *versions, size_t count, const struct eb_roster_version *wanted)
{
    struct eb_roster_version *found = NULL;
    for (size_t i = 0; i < count; i++) {
        bool is_same_number = versions[i].number == wanted->number;
        if (is_same_number && strcmp(versions[i].name, wanted->name) == 0) {
            return &versions[i];
        }
        if (is_same_number && is_in_use(wanted)) {
            found = &versions[i];
        }
    }
    return found;
}

/* Moves to the new entry what the old one knows; why it did not load holds until the directory
 * changes. */
static void carry_over(struct eb_roster_version *to, struct eb_roster_version *from)
{
    if (is_in_use(from)) {
        to->is_loading = from->is_loading;
        to->is_wanted = from->is_wanted;
        to->retired_count = from->retired_count;
        to->loaded = from->loaded;
        to->since_ms = from->since_ms;
        from->loaded = NULL;
    }
    to->is_held = to->is_held || from->is_held;
    if (to->is_on_disk && from->is_on_disk && eb_repository_is_same(&to->look, &from->look)) {
        to->fault = from->fault;
        to->is_short = from->is_short;
        from->fault = NULL;
    }
}

static int compare_versions(const void *left, const void *right)
{
    const struct eb_roster_version *a = left;
    const struct eb_roster_version *b = right;
    if (a->number != b->number) {
        return a->number < b->number ? 1 : -1;
    }
    return strcmp(a->name, b->name);
}

static void tell_new_faults(const struct eb_roster *roster, const struct eb_roster_model *model,
    struct eb_roster_version *fresh, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct eb_roster_version *old = find_same(model->versions, model->count, &fresh[i]);
        if (fresh[i].fault && !(old && old->fault)) {
            tell_failed(roster, model->name, fresh[i].number, fresh[i].fault);
        }
    }
}

/* Tells lists of versions apart that a snapshot would show in different ways. */
static uint64_t digest(const struct eb_roster_version *versions, size_t count)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < count; i++) {
        digest = digest * UINT64_C(0x100000001b3) + versions[i].number * 2;
        digest += versions[i].fault != NULL;
    }
    return digest;
}

/* false: out of memory, and nothing has changed. */
static bool update_versions(
    struct eb_roster *roster, struct eb_roster_model *model, const struct eb_repository_model *seen)
{
    struct eb_roster_version *fresh = make_versions(seen, model->count);
    struct eb_policy_version *view = calloc(seen->version_count + model->count + 1, sizeof *view);
    if (!fresh || !view) {
        free_versions(fresh, fresh ? seen->version_count : 0);
        free(view);
        return false;
    }
    const uint64_t before = digest(model->versions, model->count);
    size_t count = seen->version_count;
    tell_new_faults(roster, model, fresh, count);
    for (size_t i = 0; i < model->count; i++) {
        struct eb_roster_version *old = &model->versions[i];
        struct eb_roster_version *same = find_same(fresh, seen->version_count, old);
        if (same) {
            carry_over(same, old);
        } else if (is_in_use(old)) {
            fresh[count] = *old;
            fresh[count].is_on_disk = false;
            *old = (struct eb_roster_version){0};
            count++;
        }
    }
    qsort(fresh, count, sizeof *fresh, compare_versions);
    free_versions(model->versions, model->count);
    free(model->view);
    model->versions = fresh;
    model->view = view;
    model->count = count;
    roster->is_news = roster->is_news || digest(fresh, count) != before;
    return true;
}

static bool update_config(
    struct eb_roster *roster, struct eb_roster_model *model, const struct eb_repository_model *seen)
{
    const bool is_mended = model->config_fault && !seen->config_fault;
    bool is_new = false;
    if (!set_fault(&model->config_fault, seen->config_fault, &is_new)) {
        return false;
    }
    roster->is_news = roster->is_news || is_new || is_mended;
    if (is_new && roster->events.on_config_failed) {
        roster->events.on_config_failed(roster->events.context, model->name, model->config_fault);
    }
    if (seen->settings && seen->settings != model->settings) {
        eb_model_settings_give(model->settings);
        model->settings = eb_model_settings_take(seen->settings);
        roster->is_news = true;
    }
    model->is_described = model->is_described || seen->settings;
    return true;
}

static bool update_model(struct eb_roster *roster, const struct eb_repository_model *seen)
{
    struct eb_roster_model *model = add_model(roster, seen);
    bool is_new = false;
    if (!model || !set_fault(&model->fault, seen->fault, &is_new)) {
        return false;
    }
    if (is_new) {
        tell_failed(roster, model->name, 0, model->fault);
    }
    if (model->fault) {
        return true;
    }
    return update_config(roster, model, seen) &&
           (!model->is_described || update_versions(roster, model, seen));
}

/* A model whose directory is gone. */
static void lose_directory(struct eb_roster_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        model->versions[i].is_on_disk = false;
    }
}

static bool is_any_in_use(const struct eb_roster_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        if (is_in_use(&model->versions[i])) {
            return true;
        }
    }
    return false;
}

/* Drops models of which nothing is left. */
static void lose_models(struct eb_roster *roster, const struct eb_repository *seen)
{
    size_t count = 0;
    for (size_t i = 0; i < roster->count; i++) {
        struct eb_roster_model *model = &roster->models[i];
        bool is_seen = eb_repository_find(seen, model->name);
        if (!is_seen) {
            lose_directory(model);
        }
        if (is_seen || is_any_in_use(model)) {
            roster->models[count++] = *model;
        } else {
            free_model(model);
            roster->is_news = true;
        }
    }
    roster->count = count;
}

bool eb_roster_update(struct eb_roster *roster, const struct eb_repository *seen)
{
    bool is_good = true;
    for (size_t i = 0; is_good && i < seen->count; i++) {
        is_good = update_model(roster, &seen->models[i]);
    }
    lose_models(roster, seen);
    return is_good;
}

/* ---- decisions ---- */

static struct eb_policy_model view(const struct eb_roster_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_roster_version *version = &model->versions[i];
        model->view[i] = (struct eb_policy_version){
            .number = version->number,
            .is_on_disk = version->is_on_disk,
            .is_failed = version->fault,
            .is_resident = version->loaded,
            .is_held = version->is_held,
            .since_ms = version->since_ms,
        };
    }
    return (struct eb_policy_model){
        .config = &model->settings->config,
        .commanded = model->commanded,
        .served = model->served ? model->served->version : 0,
        .count = model->count,
        .versions = model->view,
    };
}

struct eb_roster_model *eb_roster_next(struct eb_roster *roster, struct eb_roster_version **version)
{
    struct eb_roster_model *found = NULL;
    for (size_t i = 0; i < roster->count; i++) {
        struct eb_roster_model *model = &roster->models[i];
        const struct eb_policy_model seen = view(model);
        const struct eb_policy_choice choice = eb_version_policy_choose(&seen);
        bool is_urgent = choice.load == choice.target;
        if (choice.load != EB_POLICY_NONE && (!found || is_urgent)) {
            found = model;
            *version = &model->versions[choice.load];
        }
        if (found && is_urgent) {
            break;
        }
    }
    if (found) {
        (*version)->is_loading = true;
        roster->is_news = true;
    }
    return found;
}

void eb_roster_put(struct eb_roster *roster, struct eb_model_version *loaded, uint64_t now_ms)
{
    struct eb_roster_model *model = eb_roster_find(roster, loaded->model);
    struct eb_roster_version *version = eb_roster_find_version(model, loaded->version);
    assert(version && version->is_loading && !version->loaded);
    version->is_loading = false;
    version->loaded = loaded;
    version->since_ms = now_ms;
    roster->is_news = true;
}

void eb_roster_fail(
    struct eb_roster *roster, const char *name, uint64_t number, const char *why, bool is_short)
{
    struct eb_roster_version *version =
        eb_roster_find_version(eb_roster_find(roster, name), number);
    assert(version && version->is_loading);
    version->is_loading = false;
    roster->is_news = true;
    free(version->fault);
    version->fault = why ? strdup(why) : NULL;
    version->is_short = is_short;
    /* Where memory is that short, nothing is tried again before the disk is next looked at. */
    version->is_on_disk = version->is_on_disk && (version->fault || !why);
    if (why) {
        tell_failed(roster, name, number, why);
    }
}

void eb_roster_forgive(struct eb_roster *roster)
{
    for (size_t i = 0; i < roster->count; i++) {
        for (size_t k = 0; k < roster->models[i].count; k++) {
            struct eb_roster_version *version = &roster->models[i].versions[k];
            if (version->is_short) {
                free(version->fault);
                version->fault = NULL;
                version->is_short = false;
            }
        }
    }
}

void eb_roster_forget(struct eb_roster *roster, const char *name, uint64_t number)
{
    struct eb_roster_version *version =
        eb_roster_find_version(eb_roster_find(roster, name), number);
    assert(version && version->retired_count > 0);
    version->retired_count--;
    roster->is_news = true;
    eb_roster_forgive(roster);
}

void eb_roster_drop(
    struct eb_roster *roster, struct eb_roster_model *model, struct eb_roster_version *version)
{
    struct eb_model_version *loaded = version->loaded;
    assert(loaded);
    version->loaded = NULL;
    version->retired_count++;
    roster->is_news = true;
    if (model->served == loaded) {
        model->served = NULL;
    }
    if (roster->events.on_retired) {
        roster->events.on_retired(roster->events.context, model->name, version->number);
    }
    eb_model_version_give(loaded);
}

static void serve(struct eb_roster *roster, struct eb_roster_model *model)
{
    const struct eb_policy_model seen = view(model);
    const struct eb_policy_choice choice = eb_version_policy_choose(&seen);
    struct eb_model_version *target =
        choice.target == EB_POLICY_NONE ? NULL : model->versions[choice.target].loaded;
    if (!target || target == model->served) {
        return;
    }
    uint64_t before = model->served ? model->served->version : 0;
    model->served = target;
    roster->is_news = true;
    if (roster->events.on_served) {
        roster->events.on_served(roster->events.context, model->name, target->version, before);
    }
}

/* Notes which versions are wanted, and of the others since when they are not. */
static void note_wanted(struct eb_roster_model *model, uint64_t now_ms)
{
    const struct eb_policy_model seen = view(model);
    for (size_t i = 0; i < model->count; i++) {
        struct eb_roster_version *version = &model->versions[i];
        bool is_wanted =
            version->loaded && eb_version_policy_judge(&seen, i, now_ms) == EB_POLICY_WANTED;
        if (is_wanted || version->is_wanted) {
            version->since_ms = now_ms;
        }
        version->is_wanted = is_wanted;
    }
}

/* Drops those whose time is over. */
static void expire(
    struct eb_roster *roster, struct eb_roster_model *model, uint64_t now_ms, uint64_t *wake_ms)
{
    note_wanted(model, now_ms);
    const struct eb_policy_model seen = view(model);
    for (size_t i = 0; i < model->count; i++) {
        struct eb_roster_version *version = &model->versions[i];
        if (!version->loaded) {
            continue;
        }
        uint64_t end_ms = version->since_ms + model->settings->config.keep_s * UINT64_C(1000);
        switch (eb_version_policy_judge(&seen, i, now_ms)) {
        case EB_POLICY_WANTED:
        case EB_POLICY_SPARE: break;
        case EB_POLICY_KEPT: *wake_ms = end_ms < *wake_ms ? end_ms : *wake_ms; break;
        case EB_POLICY_DROPPED: eb_roster_drop(roster, model, version); break;
        }
    }
}

void eb_roster_decide(struct eb_roster *roster, uint64_t now_ms, uint64_t *wake_ms)
{
    *wake_ms = UINT64_MAX;
    for (size_t i = 0; i < roster->count; i++) {
        serve(roster, &roster->models[i]);
        expire(roster, &roster->models[i], now_ms, wake_ms);
    }
}

bool eb_roster_is_settled(const struct eb_roster_model *model)
{
    const struct eb_policy_model seen = view(model);
    for (size_t i = 0; i < model->count; i++) {
        if (model->versions[i].is_loading) {
            return false;
        }
    }
    return eb_version_policy_choose(&seen).load == EB_POLICY_NONE;
}

/* The spare version that has not been wanted for the longest time. NULL: none. */
static struct eb_roster_version *find_spare(
    struct eb_roster *roster, uint64_t now_ms, struct eb_roster_model **owner)
{
    struct eb_roster_version *oldest = NULL;
    for (size_t i = 0; i < roster->count; i++) {
        struct eb_roster_model *model = &roster->models[i];
        const struct eb_policy_model seen = view(model);
        for (size_t k = 0; k < model->count; k++) {
            struct eb_roster_version *version = &model->versions[k];
            if (version->loaded && !(oldest && oldest->since_ms <= version->since_ms) &&
                eb_version_policy_judge(&seen, k, now_ms) == EB_POLICY_SPARE) {
                oldest = version;
                *owner = model;
            }
        }
    }
    return oldest;
}

static uint64_t count_spare_bytes(struct eb_roster *roster, uint64_t now_ms)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < roster->count; i++) {
        struct eb_roster_model *model = &roster->models[i];
        const struct eb_policy_model seen = view(model);
        for (size_t k = 0; k < model->count; k++) {
            const struct eb_model_version *loaded = model->versions[k].loaded;
            if (loaded && eb_version_policy_judge(&seen, k, now_ms) == EB_POLICY_SPARE) {
                bytes += eb_model_version_own_bytes(loaded);
            }
        }
    }
    return bytes;
}

bool eb_roster_make_room(struct eb_roster *roster, uint64_t bytes, uint64_t now_ms)
{
    uint64_t dropped_bytes = 0;
    if (count_spare_bytes(roster, now_ms) < bytes) {
        return false;
    }
    while (dropped_bytes < bytes) {
        struct eb_roster_model *owner;
        struct eb_roster_version *spare = find_spare(roster, now_ms, &owner);
        assert(spare);
        dropped_bytes += eb_model_version_own_bytes(spare->loaded);
        eb_roster_drop(roster, owner, spare);
    }
    return true;
}
