#include "server/models/version_policy.h"

#include <assert.h>

#define MS_PER_S UINT64_C(1000)

static size_t find_policy_version(const struct eb_policy_model *model, uint64_t number)
{
    for (size_t i = 0; number != 0 && i < model->count; i++) {
        const struct eb_policy_version *version = &model->versions[i];
        if (version->number == number && (version->is_on_disk || version->is_resident)) {
            return i;
        }
    }
    return EB_POLICY_NONE;
}

/* Returns whether the version can be loaded and is not loaded yet. */
static bool is_loadable(const struct eb_policy_version *version)
{
    return version->is_on_disk && !version->is_failed && !version->is_resident;
}

static uint64_t find_fixed(const struct eb_policy_model *model)
{
    return model->commanded ? model->commanded : model->config->serve;
}

static size_t find_policy_target(const struct eb_policy_model *model)
{
    uint64_t fixed = find_fixed(model);
    size_t served = find_policy_version(model, model->served);
    if (fixed != 0) {
        size_t found = find_policy_version(model, fixed);
        if (found != EB_POLICY_NONE &&
            (model->versions[found].is_resident || is_loadable(&model->versions[found]))) {
            return found;
        }
        if (served != EB_POLICY_NONE) {
            return served;
        }
    }
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_policy_version *version = &model->versions[i];
        bool is_below = fixed == 0 || version->number < fixed;
        if (is_below && version->is_on_disk && !version->is_failed) {
            return i;
        }
    }
    return served;
}

/* Returns whether the version is better than the served one: neither a command nor model.yaml names
 * a version, and this one is on disk and has a higher number. A still higher one may be loading. */
static bool is_better(const struct eb_policy_model *model, const struct eb_policy_version *version)
{
    return find_fixed(model) == 0 && version->is_on_disk && version->number > model->served;
}

/* Returns the version to serve while the target is not loaded. */
static size_t find_substitute(const struct eb_policy_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        if (model->versions[i].is_resident && is_better(model, &model->versions[i])) {
            return i;
        }
    }
    return EB_POLICY_NONE;
}

/* Returns the lowest claimed version that can be loaded and is not loaded yet. */
static size_t find_claimed(const struct eb_policy_model *model)
{
    for (size_t i = model->count; i > 0; i--) {
        const struct eb_policy_version *version = &model->versions[i - 1];
        if (version->is_claimed && is_loadable(version)) {
            return i - 1;
        }
    }
    return EB_POLICY_NONE;
}

struct eb_policy_choice eb_version_policy_choose(const struct eb_policy_model *model)
{
    size_t target = find_policy_target(model);
    size_t claimed = find_claimed(model);
    struct eb_policy_choice choice = {target, target, claimed};
    if (target != EB_POLICY_NONE && !model->versions[target].is_resident) {
        choice.serve = find_substitute(model);
        bool is_claimed_lower = claimed != EB_POLICY_NONE && claimed > target;
        choice.load = is_claimed_lower ? claimed : target;
    }
    if (choice.load != EB_POLICY_NONE) {
        return choice;
    }
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_policy_version *version = &model->versions[i];
        if (is_loadable(version) && (version->is_held || version->is_labelled)) {
            choice.load = i;
            return choice;
        }
    }
    return choice;
}

bool eb_version_policy_is_due(const struct eb_policy_model *model, size_t index)
{
    const struct eb_policy_version *version = &model->versions[index];
    return is_loadable(version) &&
           (version->is_held || version->is_labelled || version->is_claimed ||
               find_policy_target(model) == index || is_better(model, version));
}

static bool is_any_on_disk(const struct eb_policy_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        if (model->versions[i].is_on_disk) {
            return true;
        }
    }
    return false;
}

static bool is_policy_wanted(const struct eb_policy_model *model, size_t index)
{
    const struct eb_policy_version *version = &model->versions[index];
    return version->is_claimed ||
           (is_any_on_disk(model) &&
               (version->number == model->served || version->is_held || version->is_labelled ||
                   find_policy_target(model) == index));
}

/* Returns how many resident versions are no longer wanted, but were wanted more recently than the
 * given one. */
static size_t count_later(const struct eb_policy_model *model, size_t index)
{
    size_t count = 0;
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_policy_version *other = &model->versions[i];
        uint64_t since_ms = model->versions[index].since_ms;
        bool is_later = other->since_ms > since_ms || (other->since_ms == since_ms && i < index);
        count += other->is_resident && is_later && !is_policy_wanted(model, i);
    }
    return count;
}

/* Returns whether `keep` leaves room for a version if `later` others were wanted more recently. */
static bool is_room(const struct eb_policy_model *model, size_t later)
{
    return later + 1 < model->config->keep;
}

bool eb_version_policy_may_evict(const struct eb_policy_model *model, size_t index)
{
    const struct eb_policy_version *version = &model->versions[index];
    bool has_reason = version->number == model->served || version->is_held ||
                      version->is_labelled || version->is_claimed;
    size_t later = count_later(model, index);
    return !has_reason && later > 0 && !is_room(model, later);
}

enum eb_policy_fate eb_version_policy_decide(
    const struct eb_policy_model *model, size_t index, uint64_t now_ms)
{
    const struct eb_policy_version *version = &model->versions[index];
    assert(version->is_resident);
    if (is_policy_wanted(model, index)) {
        return EB_POLICY_WANTED;
    }
    if (now_ms < version->grace_end_ms) {
        return EB_POLICY_GRACE;
    }
    size_t later = count_later(model, index);
    if (now_ms - version->since_ms < model->config->keep_s * MS_PER_S) {
        bool may_stay = model->kept_max == 0 || later < model->kept_max ||
                        !eb_version_policy_may_evict(model, index);
        return may_stay ? EB_POLICY_KEPT : EB_POLICY_EVICTED;
    }
    return is_room(model, later) && version->is_on_disk ? EB_POLICY_SPARE : EB_POLICY_DROPPED;
}
