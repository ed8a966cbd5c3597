/* Decides which versions of a model are loaded, served and dropped. The decision depends on what is
 * on disk, in memory and wanted, and on the clock.
 *
 * Served: the version that a command chose or, without a command, the one that model.yaml chooses
 * (a certain version, or the highest that loads). If the chosen version cannot be loaded, the
 * version that is served stays. If none is served yet, the next lower version that loads is served.
 * While the highest version is being loaded, a version that is already in memory and higher than
 * the served one takes over. So versions that arrive faster than they load do not keep each other
 * from being served.
 *
 * Wanted: the version served, the one to be served, those with a label, those that a command holds
 * and those that a router claims (claims.h). Wanted versions are loaded and stay.
 *
 * Claimed versions are loaded in the order of their numbers, the lowest first, and nothing newer is
 * loaded before them. Otherwise versions that arrive faster than all servers load them would never
 * be complete on all servers.
 *
 * On a part server, claims decide what is in memory, so that there is room for the versions that
 * routers serve. While a model has claimed versions that load here, no others are loaded but those
 * that are labelled, held or chosen by number. A load that has begun goes on in front of newer
 * claimed versions. A version that was never claimed is spare as soon as it is no longer wanted and
 * there is a newer one, since no caller can have pinned it.
 *
 * Pinned: a version in memory that a request has named by its number less than pin_ttl_s ago. It
 * stays and is not evicted, and keep_s begins when its pin ends. A pin loads nothing, and keeps no
 * version whose model is gone from the disk. It gives way to a load that has lacked memory for
 * next_wait_s (eb_registry_make_room). There are no pins on part servers: their routers name every
 * version by its number, and claim those that callers have pinned.
 *
 * Dropped: a version that is no longer wanted stays for at least keep_s, since callers may still
 * name it. After that it is spare: it is dropped when memory is needed, when `keep` versions have
 * been wanted more recently, or when its directory is gone. It is evicted before keep_s is over if
 * at least kept_max other unwanted versions (or keep - 1, if that is more) were wanted more
 * recently, unless a router claimed it less than claim_grace_s ago. A version that was claimed
 * stays for at least that long. The version that is served stays until another one is served, or
 * until keep_s after the last directory of its model has gone.
 *
 * On a router, another rule than this one chooses the served version and those that are wanted
 * besides the ones that are held or have a label (routed.h). The chosen version is served as soon
 * as it is in memory, and no other version takes its place. The wanted versions are loaded in the
 * order in which that rule names them, before all others. Claims have no meaning there.
 * Thread: pure. Memory: none. */
#pragma once

#include "server/contents/model_config.h"

#include <stdbool.h>
#include <stdint.h>

/* The state of one version. */
struct eb_policy_version {
    uint64_t number;
    bool is_on_disk;  /* it is on disk, and no other directory has the same number (7 and 07) */
    bool is_failed;   /* it did not load, and has not changed since */
    bool is_retried;  /* it is failed, for a reason that may pass */
    bool is_resident; /* it is in memory */
    bool is_held;     /* a command holds it */
    bool is_labelled; /* it has a label, or gets one when it is in memory */
    bool is_claimed;  /* a router claims it; not set on a router */
    uint32_t
        wanted_rank; /* on a router, its position, from 1, among the wanted versions; 0: none */
    uint64_t grace_end_ms; /* time until which it stays because it was claimed; 0 if it was not */
    uint64_t since_ms;   /* time when it was last wanted, or when it was loaded if that is later */
    uint64_t pin_end_ms; /* time when its pin ends or ended; 0 if no request has named it */
};

/* The state of a model. */
struct eb_policy_model {
    const struct eb_model_config *config;
    bool is_routed;     /* the model is a router's */
    uint64_t chosen;    /* on a router, the version that is to be served; 0 if there is none */
    uint64_t commanded; /* version that a command has chosen; 0 if the configuration chooses */
    uint64_t served;    /* resident version that is served; 0 if there is none */
    uint64_t kept_max;  /* most versions that stay for keep_s; 0 means any number */
    bool is_part;       /* it is on a part server */
    size_t count;
    const struct eb_policy_version *versions; /* highest first */
};

/* Stands for "no version" in place of an index into `versions`. */
#define EB_POLICY_NONE SIZE_MAX

struct eb_policy_choice {
    size_t target; /* version to be served, which is loaded first if it is not resident */
    size_t serve;  /* version to be served now: the target, or another one until the target is
                      resident */
    size_t load;   /* version to be loaded next; the target comes before all others, except claimed
                      versions with lower numbers. On a router, the rank decides */
};

enum eb_policy_fate {
    EB_POLICY_WANTED,
    EB_POLICY_PINNED,  /* no longer wanted, but requests name it */
    EB_POLICY_GRACE,   /* no longer wanted, but it was claimed; may not be evicted yet */
    EB_POLICY_KEPT,    /* no longer wanted, but keep_s is not over */
    EB_POLICY_EVICTED, /* dropped before keep_s is over, because too many are kept */
    EB_POLICY_SPARE,   /* may go when memory is needed */
    EB_POLICY_DROPPED
};

struct eb_policy_choice eb_version_policy_choose(const struct eb_policy_model *model);

/* Returns whether there is a reason to load the version, or to continue loading it: it is to be
 * served, now or until a higher one is in memory, or it is held, has a label, is claimed or has a
 * rank. */
bool eb_version_policy_is_due(const struct eb_policy_model *model, size_t version);

/* Returns the time when the version was last wanted or pinned, which is in the future while it is
 * pinned. */
uint64_t eb_version_policy_since_ms(const struct eb_policy_model *model, size_t version);
/* Returns whether a resident version may be evicted if its fate is EB_POLICY_KEPT. These may not: a
 * version that is served, held, labelled, claimed or has a rank, even if its model is gone from the
 * disk; the last kept version of its model; and the `keep` versions that were wanted most recently.
 */
bool eb_version_policy_may_evict(
    const struct eb_policy_model *model, size_t version, uint64_t now_ms);
/* Returns what becomes of a resident version. */
enum eb_policy_fate eb_version_policy_decide(
    const struct eb_policy_model *model, size_t version, uint64_t now_ms);
