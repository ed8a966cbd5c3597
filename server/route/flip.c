#include "server/route/flip.h"

#include <string.h>

/* Time after which no version is waited for if all have failed. Servers that lacked memory try
 * again sooner: their pauses last at most 5 min plus a quarter. */
#define UNTRIED_NS_MAX UINT64_C(600000000000)

/* ---- versions ---- */

/* Returns the version with that number and digest, or NULL if there is none. */
static const struct eb_flip_version *find_flip_version(
    const struct eb_flip_input *input, uint64_t number, uint64_t digest)
{
    for (size_t i = 0; number != 0 && i < input->count; i++) {
        if (input->versions[i].number == number && input->versions[i].digest == digest) {
            return &input->versions[i];
        }
    }
    return NULL;
}

static const struct eb_flip_version *find_served(
    const struct eb_flip *flip, const struct eb_flip_input *input)
{
    return find_flip_version(input, flip->served, flip->served_digest);
}

static bool is_served_here(const struct eb_flip *flip, const struct eb_flip_version *version)
{
    return version->number == flip->served && version->digest == flip->served_digest;
}

static bool is_same_lineage(const struct eb_flip_version *a, const struct eb_flip_version *b)
{
    return a->lineage[0] != '\0' && strcmp(a->lineage, b->lineage) == 0;
}

/* Returns whether a router may flip to the version from the served one, if it can be served. */
static bool is_allowed(const struct eb_flip *flip, const struct eb_flip_input *input,
    const struct eb_flip_version *version)
{
    const struct eb_flip_version *served = NULL;
    if (is_served_here(flip, version) || (input->serve != 0 && version->number != input->serve)) {
        return false;
    }
    if (version->number == flip->served) {
        served = find_served(flip, input);
        return !served || !served->is_complete;
    }
    if (input->serve != 0) {
        return true;
    }
    if (version->number < flip->served || version->number >= flip->top) {
        return version->number > flip->served;
    }
    served = find_served(flip, input);
    return served && is_same_lineage(version, served);
}

static bool may_be_served(const struct eb_flip_version *version)
{
    return version->is_complete && (version->has_replicas || version->is_served);
}

static uint64_t add_time_ns(uint64_t at_ns, uint64_t ns)
{
    return at_ns < EB_FLIP_NEVER - ns ? at_ns + ns : EB_FLIP_NEVER;
}

/* Notes when to step again. */
static void note_due(struct eb_flip *flip, uint64_t at_ns)
{
    flip->due_ns = at_ns < flip->due_ns ? at_ns : flip->due_ns;
}

static void serve_version(
    struct eb_flip *flip, const struct eb_flip_version *version, uint64_t now_ns)
{
    flip->served = version->number;
    flip->served_digest = version->digest;
    flip->served_since_ns = now_ns;
    flip->was_complete = version->is_complete;
    flip->is_behind = false;
    flip->are_pins_void = false;
}

/* ---- times ---- */

static struct eb_flip_time *find_flip_time(
    struct eb_flip *flip, const struct eb_flip_version *version)
{
    for (size_t i = 0; i < flip->time_count; i++) {
        if (flip->times[i].number == version->number && flip->times[i].digest == version->digest) {
            return &flip->times[i];
        }
    }
    return NULL;
}

/* Adds the version to `to`, with what was known of it, unless it is there. Leaves it out if nothing
 * needs to be remembered of it, or if there are too many. */
static void keep_time(struct eb_flip *to, struct eb_flip *from,
    const struct eb_flip_version *version, uint64_t now_ns)
{
    const struct eb_flip_time *known = find_flip_time(from, version);
    struct eb_flip_time time = {version->number, version->digest, EB_FLIP_NEVER, 0};
    if (to->time_count == EB_FLIP_TIMES_MAX || find_flip_time(to, version)) {
        return;
    }
    if (known) {
        time = *known;
    }
    if (!may_be_served(version)) {
        time.since_ns = EB_FLIP_NEVER;
    } else if (time.since_ns == EB_FLIP_NEVER) {
        time.since_ns = now_ns;
    }
    if (time.since_ns != EB_FLIP_NEVER || time.return_ns != 0 || is_served_here(to, version)) {
        to->times[to->time_count++] = time;
    }
}

static void follow_times(struct eb_flip *flip, const struct eb_flip_input *input)
{
    struct eb_flip former = *flip;
    flip->time_count = 0;
    for (size_t i = input->count; i-- > 0;) {
        const struct eb_flip_version *version = &input->versions[i];
        bool is_next = version->number == flip->next && version->digest == flip->next_digest;
        if (is_next || is_served_here(flip, version) ||
            (input->serve != 0 && version->number == input->serve)) {
            keep_time(flip, &former, version, input->now_ns);
        }
    }
    for (size_t i = input->count; i-- > 0 && flip->time_count < EB_FLIP_TIMES_MAX;) {
        keep_time(flip, &former, &input->versions[i], input->now_ns);
    }
}

/* Returns from when on the version may be served. */
static uint64_t find_flip_ns(struct eb_flip *flip, const struct eb_flip_version *version)
{
    const struct eb_flip_time *time = find_flip_time(flip, version);
    if (!time || time->since_ns == EB_FLIP_NEVER) {
        return EB_FLIP_NEVER;
    }
    uint64_t steady_ns = version->is_served ? 0 : EB_FLIP_STEADY_NS;
    return add_time_ns(time->since_ns, time->return_ns != 0 ? time->return_ns : steady_ns);
}

/* ---- the first version ---- */

static bool is_settled(struct eb_flip *flip, const struct eb_flip_input *input)
{
    if (input->has_all_answers || input->now_ns >= input->settle_until_ns) {
        return true;
    }
    note_due(flip, input->settle_until_ns);
    return false;
}

/* Returns the version with which a router begins, or NULL if it cannot begin yet. */
static const struct eb_flip_version *choose_first(const struct eb_flip_input *input)
{
    const struct eb_flip_version *highest = NULL;
    const struct eb_flip_version *ready = NULL; /* with enough replicas, or served elsewhere */
    const struct eb_flip_version *incomplete = NULL;
    bool is_served_elsewhere = false;
    for (size_t i = 0; i < input->count; i++) {
        const struct eb_flip_version *version = &input->versions[i];
        if (input->serve != 0 && version->number != input->serve) {
            continue;
        }
        if (!version->is_complete) {
            incomplete = version->is_served ? version : incomplete;
            continue;
        }
        highest = version;
        ready = may_be_served(version) ? version : ready;
        is_served_elsewhere = is_served_elsewhere || version->is_served;
    }
    if (!highest) {
        return incomplete;
    }
    return is_served_elsewhere ? ready : highest;
}

static void begin_serving(struct eb_flip *flip, const struct eb_flip_input *input)
{
    const struct eb_flip_version *first = is_settled(flip, input) ? choose_first(input) : NULL;
    if (first) {
        serve_version(flip, first, input->now_ns);
    }
}

/* ---- the next version ---- */

/* Returns the lowest allowed version above `passed` that another router needs, or else the highest
 * allowed one. */
static const struct eb_flip_version *choose_next(
    const struct eb_flip *flip, const struct eb_flip_input *input, uint64_t passed)
{
    const struct eb_flip_version *highest = NULL;
    for (size_t i = 0; i < input->count; i++) {
        const struct eb_flip_version *version = &input->versions[i];
        if (!is_allowed(flip, input, version)) {
            continue;
        }
        if (input->serve == 0 && (version->is_failed || version->number <= passed)) {
            continue;
        }
        bool is_claimed = version->is_claimed && !version->is_kept && !version->is_pinned;
        if (input->serve == 0 && (is_claimed || version->is_served)) {
            return version;
        }
        highest = version;
    }
    return highest;
}

/* Returns whether a version above `number` could be waited for. */
static bool has_higher(const struct eb_flip_input *input, uint64_t number)
{
    for (size_t i = input->count; i-- > 0 && input->versions[i].number > number;) {
        if (!input->versions[i].is_failed) {
            return true;
        }
    }
    return false;
}

/* Returns whether the next version is still waited for. If it has kept a higher one waiting for too
 * long, notes that. */
static bool is_next_wanted(struct eb_flip *flip, const struct eb_flip_input *input)
{
    const struct eb_flip_version *next = find_flip_version(input, flip->next, flip->next_digest);
    if (!next || !is_allowed(flip, input, next)) {
        return false;
    }
    if (input->serve != 0) {
        return true;
    }
    if (next->is_failed) {
        return false;
    }
    if (has_higher(input, next->number) &&
        input->now_ns >= add_time_ns(flip->next_since_ns, input->next_wait_ns)) {
        flip->passed = next->number;
        return false;
    }
    return true;
}

static void follow_next(struct eb_flip *flip, const struct eb_flip_input *input)
{
    if (!is_next_wanted(flip, input)) {
        const struct eb_flip_version *next = choose_next(flip, input, flip->passed);
        if (!next) { /* What came after a version that took too long has failed. */
            next = choose_next(flip, input, 0);
        }
        flip->next = next ? next->number : 0;
        flip->next_digest = next ? next->digest : 0;
        flip->next_since_ns = input->now_ns;
    }
    if (flip->next != 0 && input->serve == 0 && has_higher(input, flip->next)) {
        note_due(flip, add_time_ns(flip->next_since_ns, input->next_wait_ns));
    }
}

/* ---- flips and back-outs ---- */

/* Flips to the highest version that is allowed and has been complete for long enough. Returns false
 * if there is none. */
static bool flip_forward(struct eb_flip *flip, const struct eb_flip_input *input)
{
    for (size_t i = input->count; i-- > 0;) {
        const struct eb_flip_version *version = &input->versions[i];
        if (!is_allowed(flip, input, version) || input->now_ns < find_flip_ns(flip, version)) {
            continue;
        }
        bool is_past_top = version->number >= flip->top || input->serve != 0;
        flip->top = is_past_top ? 0 : flip->top;
        serve_version(flip, version, input->now_ns);
        flip->flips++;
        return true;
    }
    return false;
}

/* Notes when the first of the versions that are allowed will have been complete for long enough. */
static void note_flips(struct eb_flip *flip, const struct eb_flip_input *input)
{
    for (size_t i = 0; flip->served != 0 && i < input->count; i++) {
        if (is_allowed(flip, input, &input->versions[i])) {
            note_due(flip, find_flip_ns(flip, &input->versions[i]));
        }
    }
}

/* Returns the version to go back to from the served one, or NULL if there is none. */
static const struct eb_flip_version *find_way_back(
    const struct eb_flip_input *input, const struct eb_flip_version *served)
{
    for (size_t i = input->count; i-- > 0;) {
        const struct eb_flip_version *version = &input->versions[i];
        if (version->number < served->number && version->is_complete &&
            is_same_lineage(version, served)) {
            return version;
        }
    }
    return NULL;
}

/* Returns for how long a version that is backed out of now must then be complete. */
static uint64_t find_return_ns(
    const struct eb_flip *flip, const struct eb_flip_time *time, uint64_t now_ns)
{
    bool is_first = time->return_ns == 0 || now_ns - flip->served_since_ns >= EB_FLIP_RETURN_NS_MAX;
    if (is_first) {
        return EB_FLIP_RETURN_NS;
    }
    return time->return_ns < EB_FLIP_RETURN_NS_MAX / 2 ? 2 * time->return_ns
                                                       : EB_FLIP_RETURN_NS_MAX;
}

static void back_out(struct eb_flip *flip, const struct eb_flip_input *input)
{
    const struct eb_flip_version *served = find_served(flip, input);
    const struct eb_flip_version *back =
        served && !served->is_complete ? find_way_back(input, served) : NULL;
    if (!back) {
        return;
    }
    struct eb_flip_time *time = find_flip_time(flip, served);
    if (time && flip->was_complete) {
        time->return_ns = find_return_ns(flip, time, input->now_ns);
    }
    flip->top = flip->top > served->number ? flip->top : served->number;
    serve_version(flip, back, input->now_ns);
    flip->back_outs++;
}

/* ---- pins ---- */

static bool has_pins(const struct eb_flip_input *input)
{
    for (size_t i = 0; i < input->count; i++) {
        if (input->versions[i].is_pinned) {
            return true;
        }
    }
    return false;
}

static bool has_allowed(const struct eb_flip *flip, const struct eb_flip_input *input)
{
    for (size_t i = 0; i < input->count; i++) {
        if (is_allowed(flip, input, &input->versions[i])) {
            return true;
        }
    }
    return false;
}

/* Ends the wait for a version if all have failed, and none has been tried again for long. */
static void end_behind(struct eb_flip *flip, uint64_t now_ns)
{
    if (flip->behind_end_ns == 0) {
        flip->behind_end_ns = add_time_ns(now_ns, UNTRIED_NS_MAX);
    }
    if (now_ns >= flip->behind_end_ns) {
        flip->is_behind = false;
        flip->are_pins_void = false;
    } else {
        note_due(flip, flip->behind_end_ns);
    }
}

/* Notes since when a version is waited for, and whether pins have kept it waiting for too long. A
 * version that lacks memory fails, and is the next one again when a server retries: the time runs
 * on meanwhile. */
static void follow_pins(struct eb_flip *flip, const struct eb_flip_input *input)
{
    if (!has_allowed(flip, input)) {
        flip->is_behind = false;
        flip->are_pins_void = false;
        return;
    }
    if (flip->next == 0) {
        if (flip->is_behind) {
            end_behind(flip, input->now_ns);
        }
        return;
    }
    flip->behind_end_ns = 0;
    if (!flip->is_behind) {
        flip->is_behind = true;
        flip->behind_since_ns = input->now_ns;
    }
    uint64_t void_ns = add_time_ns(flip->behind_since_ns, input->next_wait_ns);
    if (input->now_ns >= void_ns) {
        flip->are_pins_void = true;
    } else if (has_pins(input)) {
        note_due(flip, void_ns);
    }
}

/* ---- claims ---- */

/* Claims a version, unless it is claimed already or there are too many claims. */
static void claim_version(struct eb_flip *flip, uint64_t number, uint64_t digest)
{
    for (size_t i = 0; i < flip->claim_count; i++) {
        if (flip->claims[i].number == number && flip->claims[i].digest == digest) {
            return;
        }
    }
    if (number != 0 && flip->claim_count < EB_FLIP_CLAIMS_MAX) {
        flip->claims[flip->claim_count++] = (struct eb_flip_claim){
            number, digest, number == flip->served && digest == flip->served_digest};
    }
}

/* Lists the claims, the most important first. */
static void list_claims(struct eb_flip *flip, const struct eb_flip_input *input)
{
    flip->claim_count = 0;
    claim_version(flip, flip->served, flip->served_digest);
    claim_version(flip, flip->next, flip->next_digest);
    for (size_t i = input->count; i-- > 0;) {
        if (input->versions[i].is_kept) {
            claim_version(flip, input->versions[i].number, input->versions[i].digest);
        }
    }
    for (size_t i = input->count; !flip->are_pins_void && i-- > 0;) {
        if (input->versions[i].is_pinned) {
            claim_version(flip, input->versions[i].number, input->versions[i].digest);
        }
    }
}

void eb_flip_step(struct eb_flip *flip, const struct eb_flip_input *input)
{
    flip->due_ns = EB_FLIP_NEVER;
    flip->has_conflict = false;
    for (size_t i = 0; i < input->count; i++) {
        flip->has_conflict = flip->has_conflict || input->versions[i].is_conflict;
    }
    follow_times(flip, input);
    const struct eb_flip_version *served = find_served(flip, input);
    flip->was_complete = flip->was_complete || (served && served->is_complete);
    if (flip->served == 0) {
        begin_serving(flip, input);
    } else if (!flip_forward(flip, input)) {
        back_out(flip, input);
    }
    follow_next(flip, input);
    note_flips(flip, input);
    follow_pins(flip, input);
    list_claims(flip, input);
}
