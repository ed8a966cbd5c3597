/* The versions that routers need. A router claims versions with each of its calls of WatchModels; a
 * version is claimed while at least one such call claims it. A claim may name a version that does
 * not exist: it then has an effect as soon as the version does.
 * Thread: the owner's. Memory: one entry for each claimed version is on the heap. Sets belong to
 * their senders, which bound their number. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_claim {
    const char *model;
    uint64_t version;
    uint64_t digest; /* of the version that the router means; 0 if it does not say */
    bool is_served;  /* the router answers requests with it */
};

/* The claims of one call. */
struct eb_claim_set {
    const char *router; /* name of the router; empty if it has none */
    size_t count;
    const struct eb_claim *claims; /* [count]; the same version may occur more than once */
    /* Private. */
    struct eb_claim_set *next;
    bool is_added;
};

struct eb_claimed_version {
    char *model;
    uint64_t version;
    size_t claim_count;  /* claims for it, at least 1 */
    size_t served_count; /* those whose router answers requests with it */
};

/* A zeroed struct has no claims. */
struct eb_claims {
    bool is_changed; /* a version has become claimed or served, or no longer is; the owner clears
                        this */
    struct eb_claim_set *sets; /* the latest first */
    size_t count;
    size_t room;
    struct eb_claimed_version *versions; /* [count] sorted by model and version */
};

/* Frees the entries. The sets stay as they are. */
void eb_claims_deinit(struct eb_claims *claims);

/* Adds the set, which must stay in place and unchanged until it is removed. Returns false if out of
 * memory; then nothing is added. */
bool eb_claims_add(struct eb_claims *claims, struct eb_claim_set *set);
/* Removes the set. Does nothing if it was not added. */
void eb_claims_remove(struct eb_claims *claims, struct eb_claim_set *set);

/* Returns NULL if the version is not claimed. The result is borrowed until the next change. */
const struct eb_claimed_version *eb_claims_find(
    const struct eb_claims *claims, const char *model, uint64_t version);

/* Bytes of a text that holds the names of EB_CLAIMS_NAMED_MAX routers. */
#define EB_CLAIMS_ROUTERS_BYTES 256
/* Most routers that eb_claims_name_routers names. */
#define EB_CLAIMS_NAMED_MAX 3
/* Writes the names of the routers that claim the version, such as "router-1, router-2 and others".
 * A long name is cut. */
void eb_claims_name_routers(const struct eb_claims *claims, const char *model, uint64_t version,
    char out[EB_CLAIMS_ROUTERS_BYTES]);
