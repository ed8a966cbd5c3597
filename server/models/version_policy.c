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

/* ---- claims on part servers ---- */

/* Returns whether claims decide which versions are loaded: a part server has a claimed version in
 * memory, or can load one, now or later. */
static bool is_led_by_claims(const struct eb_policy_model *model)
{
    for (size_t i = 0; model->is_part && i < model->count; i++) {
        const struct eb_policy_version *version = &model->versions[i];
        bool may_load = version->is_on_disk && (!version->is_failed || version->is_retried);
        if (version->is_claimed && (version->is_resident || may_load)) {
            return true;
        }
    }
    return false;
}

/* Returns whether no version on disk or in memory is newer, apart from those that do not load. */
static bool is_newest(const struct eb_policy_model *model, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        const struct eb_policy_version *version = &model->versions[i];
        if (version->number > model->versions[index].number &&
            (version->is_resident || (version->is_on_disk && !version->is_failed))) {
            return false;
        }
    }
    return true;
}

/* Returns whether an unwanted version is spare at once. */
static bool is_spare_at_once(const struct eb_policy_model *model, size_t index)
{
    return model->is_part && model->versions[index].grace_end_ms == 0 && !is_newest(model, index);
}

/* ---- decisions ---- */

static uint64_t find_fixed(const struct eb_policy_model *model)
{
    return model->commanded ? model->commanded : model->config->serve;
}

static size_t find_policy_target(const struct eb_policy_model *model)
{
    uint64_t fixed = model->is_routed ? model->chosen : find_fixed(model);
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
    if (model->is_routed) {
        return served;
    }
    bool is_led = is_led_by_claims(model);
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_policy_version *version = &model->versions[i];
        bool is_below = fixed == 0 || version->number < fixed;
        bool may_serve = is_below && (version->is_claimed || !is_led);
        if (may_serve && version->is_on_disk && !version->is_failed) {
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

/* Chooses for a server that is no router, but leaves out versions that are held or have a label. */
static struct eb_policy_choice choose_unrouted(const struct eb_policy_model *model)
{
    size_t target = find_policy_target(model);
    size_t claimed = find_claimed(model);
    struct eb_policy_choice choice = {target, target, claimed};
    if (target != EB_POLICY_NONE && !model->versions[target].is_resident) {
        choice.serve = find_substitute(model);
        bool is_claimed_lower = claimed != EB_POLICY_NONE && claimed > target;
        choice.load = is_claimed_lower ? claimed : target;
    }
    return choice;
}

/* Does the same for a router. */
static struct eb_policy_choice choose_routed(const struct eb_policy_model *model)
{
    size_t target = find_policy_target(model);
    bool is_here = target != EB_POLICY_NONE && model->versions[target].is_resident;
    struct eb_policy_choice choice = {target, is_here ? target : EB_POLICY_NONE, EB_POLICY_NONE};
    uint32_t first = UINT32_MAX;
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_policy_version *version = &model->versions[i];
        if (version->wanted_rank != 0 && version->wanted_rank < first && is_loadable(version)) {
            first = version->wanted_rank;
            choice.load = i;
        }
    }
    return choice;
}

struct eb_policy_choice eb_version_policy_choose(const struct eb_policy_model *model)
{
    struct eb_policy_choice choice =
        model->is_routed ? choose_routed(model) : choose_unrouted(model);
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

/* Returns whether the load of a version that is better than the served one may go on though it is
 * not the target. */
static bool may_go_on(const struct eb_policy_model *model, size_t index)
{
    size_t claimed = find_claimed(model);
    bool is_before_claimed = claimed != EB_POLICY_NONE && claimed < index;
    return is_better(model, &model->versions[index]) &&
           (is_before_claimed || !is_led_by_claims(model));
}

bool eb_version_policy_is_due(const struct eb_policy_model *model, size_t index)
{
    const struct eb_policy_version *version = &model->versions[index];
    bool is_to_serve =
        !model->is_routed && (find_policy_target(model) == index || may_go_on(model, index));
    return is_loadable(version) &&
           (version->is_held || version->is_labelled || version->is_claimed ||
               version->wanted_rank != 0 || is_to_serve);
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
                   version->wanted_rank != 0 || find_policy_target(model) == index));
}

uint64_t eb_version_policy_since_ms(const struct eb_policy_model *model, size_t index)
{
    const struct eb_policy_version *version = &model->versions[index];
    bool is_later = version->pin_end_ms > version->since_ms && is_any_on_disk(model);
    return is_later ? version->pin_end_ms : version->since_ms;
}

static bool is_pinned(const struct eb_policy_model *model, size_t index, uint64_t now_ms)
{
    return now_ms < model->versions[index].pin_end_ms && is_any_on_disk(model);
}

/* Returns how many resident versions are no longer wanted or pinned, but were so more recently than
 * the given one. */
static size_t count_later(const struct eb_policy_model *model, size_t index, uint64_t now_ms)
{
    size_t count = 0;
    uint64_t since_ms = eb_version_policy_since_ms(model, index);
    for (size_t i = 0; i < model->count; i++) {
        const struct eb_policy_version *other = &model->versions[i];
        uint64_t other_ms = eb_version_policy_since_ms(model, i);
        bool is_later = other_ms > since_ms || (other_ms == since_ms && i < index);
        count += other->is_resident && is_later && !is_policy_wanted(model, i) &&
                 !is_pinned(model, i, now_ms);
    }
    return count;
}

/* Returns whether `keep` leaves room for a version if `later` others were wanted more recently. */
static bool is_room(const struct eb_policy_model *model, size_t later)
{
    return later + 1 < model->config->keep;
}

bool eb_version_policy_may_evict(const struct eb_policy_model *model, size_t index, uint64_t now_ms)
{
    const struct eb_policy_version *version = &model->versions[index];
    bool has_reason = version->number == model->served || version->is_held ||
                      version->is_labelled || version->is_claimed || version->wanted_rank != 0;
    size_t later = count_later(model, index, now_ms);
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
    if (is_pinned(model, index, now_ms)) {
        return EB_POLICY_PINNED;
    }
    if (now_ms < version->grace_end_ms) {
        return EB_POLICY_GRACE;
    }
    size_t later = count_later(model, index, now_ms);
    uint64_t keep_end_ms =
        eb_version_policy_since_ms(model, index) + model->config->keep_s * MS_PER_S;
    if (now_ms < keep_end_ms && !is_spare_at_once(model, index)) {
        bool may_stay = model->kept_max == 0 || later < model->kept_max ||
                        !eb_version_policy_may_evict(model, index, now_ms);
        return may_stay ? EB_POLICY_KEPT : EB_POLICY_EVICTED;
    }
    return is_room(model, later) && version->is_on_disk ? EB_POLICY_SPARE : EB_POLICY_DROPPED;
}
