#include "server/route/flip.h"

#include <string.h>

/* ---- versions ---- */

static const struct eb_flip_version *find_flip_version(
    const struct eb_flip_input *input, uint64_t number)
{
    for (size_t i = 0; number != 0 && i < input->count; i++) {
        if (input->versions[i].number == number) {
            return &input->versions[i];
        }
    }
    return NULL;
}

/* Returns the served version, or NULL if it is gone: it has other files now, say. */
static const struct eb_flip_version *find_served(
    const struct eb_flip *flip, const struct eb_flip_input *input)
{
    const struct eb_flip_version *served = find_flip_version(input, flip->served);
    return served && served->digest == flip->served_digest ? served : NULL;
}

static bool is_same_lineage(const struct eb_flip_version *a, const struct eb_flip_version *b)
{
    return a->lineage[0] != '\0' && strcmp(a->lineage, b->lineage) == 0;
}

static void serve_version(struct eb_flip *flip, const struct eb_flip_version *version)
{
    flip->served = version->number;
    flip->served_digest = version->digest;
    flip->steady = 0;
    flip->next = flip->next == version->number ? 0 : flip->next;
}

/* Notes when to step again. */
static void note_due(struct eb_flip *flip, uint64_t at_ns)
{
    flip->due_ns = at_ns < flip->due_ns ? at_ns : flip->due_ns;
}

/* ---- the first version ---- */

/* Returns the version with which a router begins, or NULL if it cannot begin yet. */
static const struct eb_flip_version *choose_first(const struct eb_flip_input *input)
{
    const struct eb_flip_version *complete = NULL;
    const struct eb_flip_version *ample = NULL;
    const struct eb_flip_version *elsewhere = NULL;
    for (size_t i = 0; i < input->count; i++) {
        const struct eb_flip_version *version = &input->versions[i];
        if (input->serve != 0 && version->number != input->serve) {
            continue;
        }
        complete = version->is_complete ? version : complete;
        ample = version->is_complete && version->has_replicas ? version : ample;
        elsewhere = version->is_served ? version : elsewhere;
    }
    if (!complete) {
        return elsewhere;
    }
    bool is_preferred =
        elsewhere && elsewhere->is_complete && (!ample || elsewhere->number > ample->number);
    return is_preferred ? elsewhere : ample ? ample : complete;
}

/* ---- the next version ---- */

/* Returns the version to wait for, if none is waited for: what is to be served, or the lowest that
 * another router claims above the served one, or else the highest. */
static const struct eb_flip_version *choose_next(
    const struct eb_flip *flip, const struct eb_flip_input *input)
{
    const struct eb_flip_version *highest = NULL;
    if (input->serve != 0) {
        return input->serve == flip->served ? NULL : find_flip_version(input, input->serve);
    }
    for (size_t i = 0; i < input->count; i++) {
        const struct eb_flip_version *version = &input->versions[i];
        if (version->number <= flip->served || version->is_failed) {
            continue;
        }
        if (version->is_claimed || version->is_served) {
            return version;
        }
        highest = version;
    }
    return highest;
}

static bool has_higher(const struct eb_flip_input *input, uint64_t number)
{
    return input->count > 0 && input->versions[input->count - 1].number > number;
}

/* Returns whether the next version is still waited for. */
static bool is_next_wanted(struct eb_flip *flip, const struct eb_flip_input *input)
{
    const struct eb_flip_version *next = find_flip_version(input, flip->next);
    if (!next || next->number == flip->served) {
        return false;
    }
    if (input->serve != 0) {
        return next->number == input->serve;
    }
    uint64_t until_ns = flip->next_since_ns + input->next_wait_ns;
    if (next->number <= flip->served || next->is_failed) {
        return false;
    }
    if (!has_higher(input, next->number)) {
        return true;
    }
    note_due(flip, until_ns);
    return input->now_ns < until_ns;
}

static void follow_next(struct eb_flip *flip, const struct eb_flip_input *input)
{
    if (is_next_wanted(flip, input)) {
        return;
    }
    uint64_t former = flip->next;
    const struct eb_flip_version *next = choose_next(flip, input);
    /* A version that has kept a higher one waiting for too long gives way to the highest. */
    if (next && next->number == former && input->serve == 0 && has_higher(input, former)) {
        next = &input->versions[input->count - 1];
        next = next->is_failed ? NULL : next;
    }
    flip->next = next ? next->number : 0;
    flip->next_since_ns = input->now_ns;
    if (next && input->serve == 0 && has_higher(input, next->number)) {
        note_due(flip, input->now_ns + input->next_wait_ns);
    }
}

/* ---- flips and back-outs ---- */

/* Returns the version to flip to when it has been complete for long enough. */
static const struct eb_flip_version *find_candidate(
    const struct eb_flip *flip, const struct eb_flip_input *input)
{
    for (size_t i = input->count; i-- > 0;) {
        const struct eb_flip_version *version = &input->versions[i];
        bool is_allowed =
            input->serve != 0 ? version->number == input->serve : version->number > flip->served;
        bool is_other = version->number != flip->served || version->digest != flip->served_digest;
        if (is_allowed && is_other && version->is_complete &&
            (version->has_replicas || version->is_served)) {
            return version;
        }
    }
    return NULL;
}

/* Returns for how long a version must be complete before it is served. */
static uint64_t find_steady_ns(const struct eb_flip *flip, const struct eb_flip_version *version)
{
    if (version->number == flip->left) {
        return flip->return_ns;
    }
    return version->is_served ? 0 : EB_FLIP_STEADY_NS;
}

static void flip_forward(struct eb_flip *flip, const struct eb_flip_input *input)
{
    const struct eb_flip_version *candidate = find_candidate(flip, input);
    if (!candidate) {
        flip->steady = 0;
        return;
    }
    if (flip->steady != candidate->number) {
        flip->steady = candidate->number;
        flip->steady_since_ns = input->now_ns;
    }
    uint64_t at_ns = flip->steady_since_ns + find_steady_ns(flip, candidate);
    if (input->now_ns < at_ns) {
        note_due(flip, at_ns);
        return;
    }
    serve_version(flip, candidate);
    flip->flips++;
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

static void back_out(struct eb_flip *flip, const struct eb_flip_input *input)
{
    const struct eb_flip_version *served = find_served(flip, input);
    const struct eb_flip_version *back =
        served && !served->is_complete && input->serve == 0 ? find_way_back(input, served) : NULL;
    if (!back) {
        return;
    }
    bool is_again = flip->left == served->number;
    uint64_t longer_ns =
        flip->return_ns < EB_FLIP_RETURN_NS_MAX / 2 ? 2 * flip->return_ns : EB_FLIP_RETURN_NS_MAX;
    flip->left = served->number;
    flip->return_ns = is_again ? longer_ns : EB_FLIP_RETURN_NS;
    serve_version(flip, back);
    flip->back_outs++;
}

/* ---- claims ---- */

static void claim_version(struct eb_flip *flip, const struct eb_flip_version *version)
{
    for (size_t i = 0; i < flip->claim_count; i++) {
        if (flip->claims[i].number == version->number) {
            return;
        }
    }
    if (flip->claim_count < EB_FLIP_CLAIMS_MAX) {
        flip->claims[flip->claim_count++] = (struct eb_flip_claim){
            version->number, version->digest, version->number == flip->served};
    }
}

/* Lists the claims, the most important first. */
static void list_claims(struct eb_flip *flip, const struct eb_flip_input *input)
{
    const uint64_t first[] = {flip->served, flip->next};
    flip->claim_count = 0;
    for (size_t i = 0; i < 2; i++) {
        const struct eb_flip_version *version = find_flip_version(input, first[i]);
        if (version) {
            claim_version(flip, version);
        }
    }
    for (size_t i = input->count; i-- > 0;) {
        if (input->versions[i].is_kept) {
            claim_version(flip, &input->versions[i]);
        }
    }
}

void eb_flip_step(struct eb_flip *flip, const struct eb_flip_input *input)
{
    flip->due_ns = EB_FLIP_NEVER;
    if (flip->served == 0) {
        const struct eb_flip_version *first = input->is_settled ? choose_first(input) : NULL;
        if (first) {
            serve_version(flip, first);
            flip->flips++;
        }
    } else {
        back_out(flip, input);
        flip_forward(flip, input);
    }
    follow_next(flip, input);
    list_claims(flip, input);
}
