/* The versions that routers need. A router claims versions with each of its calls of WatchModels; a
 * version is claimed while at least one such call claims it. A claim may name a version that does
 * not exist: it then has an effect as soon as the version does. A claim with a digest is only for a
 * version whose manifest has that digest: another repository may have other files under the number.
 * Thread: the owner's. Memory: one entry for each claimed number and digest is on the heap. Sets
 * belong to their senders, which bound their number. */
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

/* Numbers of claims. */
struct eb_claim_counts {
    size_t served; /* claims whose router answers requests with the version */
    size_t next;   /* the others */
};

struct eb_claimed_version {
    char *model;
    uint64_t version;
    uint64_t digest;               /* as in struct eb_claim */
    struct eb_claim_counts counts; /* at least one claim */
};

/* A zeroed struct has no claims. */
struct eb_claims {
    bool is_changed;           /* claims were added or removed; the owner clears this */
    struct eb_claim_set *sets; /* the latest first */
    size_t count;
    size_t room;
    struct eb_claimed_version *versions; /* [count] sorted by model, version and digest */
};

/* Frees the entries. The sets stay as they are. */
void eb_claims_deinit(struct eb_claims *claims);

/* Adds the set, which must stay in place and unchanged until it is removed. Returns false if out of
 * memory; then nothing is added. */
bool eb_claims_add(struct eb_claims *claims, struct eb_claim_set *set);
/* Removes the set. Does nothing if it was not added. */
void eb_claims_remove(struct eb_claims *claims, struct eb_claim_set *set);

/* Counts the claims for the version whose manifest has the digest `digest`. Without a digest (0),
 * on either side, the number alone decides. */
struct eb_claim_counts eb_claims_count(
    const struct eb_claims *claims, const char *model, uint64_t version, uint64_t digest);
/* Counts the claims for all versions of a model. */
struct eb_claim_counts eb_claims_count_model(const struct eb_claims *claims, const char *model);
/* Returns whether there are claims for the version, as eb_claims_count finds them. */
static inline bool eb_claims_has(
    const struct eb_claims *claims, const char *model, uint64_t version, uint64_t digest)
{
    struct eb_claim_counts counts = eb_claims_count(claims, model, version, digest);
    return counts.served + counts.next > 0;
}

/* Bytes of a text that holds the names of EB_CLAIMS_NAMED_MAX routers. */
#define EB_CLAIMS_ROUTERS_BYTES 256
/* Most routers that eb_claims_name_routers names. */
#define EB_CLAIMS_NAMED_MAX 3
/* Writes the names of the routers that claim the version, such as "router-1, router-2 and others".
 * A long name is cut. */
void eb_claims_name_routers(const struct eb_claims *claims, const char *model, uint64_t version,
    uint64_t digest, char out[EB_CLAIMS_ROUTERS_BYTES]);
