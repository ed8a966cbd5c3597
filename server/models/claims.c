#include "server/models/claims.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most bytes of a router's name in a text. */
#define NAME_BYTES_MAX 64
/* Entries that there is room for at first. */
#define FIRST_ROOM 16

static int compare_claimed(const struct eb_claimed_version *entry, const struct eb_claim *claim)
{
    int order = strcmp(entry->model, claim->model);
    if (order != 0) {
        return order;
    }
    if (entry->version != claim->version) {
        return entry->version > claim->version ? 1 : -1;
    }
    return (entry->digest > claim->digest) - (entry->digest < claim->digest);
}

/* Returns the position of the claim's entry, or the position at which it would be inserted. Sets
 * *is_found. */
static size_t find_place(
    const struct eb_claims *claims, const struct eb_claim *claim, bool *is_found)
{
    size_t first = 0;
    size_t end = claims->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        int order = compare_claimed(&claims->versions[middle], claim);
        if (order == 0) {
            *is_found = true;
            return middle;
        }
        first = order < 0 ? middle + 1 : first;
        end = order < 0 ? end : middle;
    }
    *is_found = false;
    return first;
}

/* Makes room for one more entry. Returns false if out of memory. */
static bool extend_claims(struct eb_claims *claims)
{
    if (claims->count < claims->room) {
        return true;
    }
    size_t room = claims->room > 0 ? 2 * claims->room : FIRST_ROOM;
    struct eb_claimed_version *versions =
        realloc(claims->versions, room * sizeof *claims->versions);
    if (!versions) {
        return false;
    }
    claims->versions = versions;
    claims->room = room;
    return true;
}

/* Adds one claim. Returns false if out of memory. */
static bool add_claim(struct eb_claims *claims, const struct eb_claim *claim)
{
    bool is_found;
    size_t place = find_place(claims, claim, &is_found);
    if (!is_found) {
        char *model = extend_claims(claims) ? strdup(claim->model) : NULL;
        if (!model) {
            return false;
        }
        struct eb_claimed_version *entry = &claims->versions[place];
        memmove(entry + 1, entry, (claims->count - place) * sizeof *entry);
        *entry = (struct eb_claimed_version){
            .model = model, .version = claim->version, .digest = claim->digest};
        claims->count++;
    }
    struct eb_claim_counts *counts = &claims->versions[place].counts;
    (*(claim->is_served ? &counts->served : &counts->next))++;
    claims->is_changed = true;
    return true;
}

static void remove_claim(struct eb_claims *claims, const struct eb_claim *claim)
{
    bool is_found;
    size_t place = find_place(claims, claim, &is_found);
    assert(is_found);
    struct eb_claimed_version *entry = &claims->versions[place];
    (*(claim->is_served ? &entry->counts.served : &entry->counts.next))--;
    claims->is_changed = true;
    if (entry->counts.served + entry->counts.next == 0) {
        free(entry->model);
        claims->count--;
        memmove(entry, entry + 1, (claims->count - place) * sizeof *entry);
    }
}

void eb_claims_deinit(struct eb_claims *claims)
{
    for (size_t i = 0; i < claims->count; i++) {
        free(claims->versions[i].model);
    }
    free(claims->versions);
    *claims = (struct eb_claims){0};
}

bool eb_claims_add(struct eb_claims *claims, struct eb_claim_set *set)
{
    assert(!set->is_added);
    bool was_changed = claims->is_changed;
    for (size_t i = 0; i < set->count; i++) {
        if (!add_claim(claims, &set->claims[i])) {
            while (i > 0) {
                remove_claim(claims, &set->claims[--i]);
            }
            claims->is_changed = was_changed;
            return false;
        }
    }
    set->next = claims->sets;
    claims->sets = set;
    set->is_added = true;
    return true;
}

void eb_claims_remove(struct eb_claims *claims, struct eb_claim_set *set)
{
    if (!set->is_added) {
        return;
    }
    struct eb_claim_set **link = &claims->sets;
    while (*link != set) {
        link = &(*link)->next;
    }
    *link = set->next;
    set->is_added = false;
    for (size_t i = 0; i < set->count; i++) {
        remove_claim(claims, &set->claims[i]);
    }
}

/* Returns whether a claim with the digest `claimed` is for a version with the digest `digest`. */
static bool is_digest_claimed(uint64_t claimed, uint64_t digest)
{
    return claimed == 0 || digest == 0 || claimed == digest;
}

struct eb_claim_counts eb_claims_count(
    const struct eb_claims *claims, const char *model, uint64_t version, uint64_t digest)
{
    struct eb_claim lowest = {.model = model, .version = version};
    struct eb_claim_counts counts = {0};
    bool is_found;
    for (size_t i = find_place(claims, &lowest, &is_found); i < claims->count; i++) {
        const struct eb_claimed_version *entry = &claims->versions[i];
        if (entry->version != version || strcmp(entry->model, model) != 0) {
            break;
        }
        if (is_digest_claimed(entry->digest, digest)) {
            counts.served += entry->counts.served;
            counts.next += entry->counts.next;
        }
    }
    return counts;
}

struct eb_claim_counts eb_claims_count_model(const struct eb_claims *claims, const char *model)
{
    struct eb_claim lowest = {.model = model};
    struct eb_claim_counts counts = {0};
    bool is_found;
    for (size_t i = find_place(claims, &lowest, &is_found); i < claims->count; i++) {
        const struct eb_claimed_version *entry = &claims->versions[i];
        if (strcmp(entry->model, model) != 0) {
            break;
        }
        counts.served += entry->counts.served;
        counts.next += entry->counts.next;
    }
    return counts;
}

/* ---- names ---- */

static bool is_claimed_by(
    const struct eb_claim_set *set, const char *model, uint64_t version, uint64_t digest)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct eb_claim *claim = &set->claims[i];
        if (claim->version == version && strcmp(claim->model, model) == 0 &&
            is_digest_claimed(claim->digest, digest)) {
            return true;
        }
    }
    return false;
}

/* Returns how many bytes of a name are shown. Does not cut within a character. */
static int find_shown_bytes(const char *name)
{
    size_t bytes = strlen(name);
    if (bytes > NAME_BYTES_MAX) {
        bytes = NAME_BYTES_MAX;
        while (bytes > 0 && ((unsigned char)name[bytes] & 0xc0) == 0x80) {
            bytes--;
        }
    }
    return (int)bytes;
}

/* Returns whether one of the names is this one. */
static bool is_named(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

void eb_claims_name_routers(const struct eb_claims *claims, const char *model, uint64_t version,
    uint64_t digest, char out[EB_CLAIMS_ROUTERS_BYTES])
{
    const char *names[EB_CLAIMS_NAMED_MAX];
    size_t count = 0;
    bool has_others = false;
    for (const struct eb_claim_set *set = claims->sets; set && !has_others; set = set->next) {
        if (!is_claimed_by(set, model, version, digest) || is_named(names, count, set->router)) {
            continue;
        }
        has_others = count == EB_CLAIMS_NAMED_MAX;
        if (!has_others) {
            names[count++] = set->router;
        }
    }
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *name = names[i][0] != '\0' ? names[i] : "a router without a name";
        used += (size_t)snprintf(out + used, EB_CLAIMS_ROUTERS_BYTES - used, "%s%.*s",
            i > 0 ? ", " : "", find_shown_bytes(name), name);
    }
    if (has_others) {
        snprintf(out + used, EB_CLAIMS_ROUTERS_BYTES - used, " and others");
    }
}
