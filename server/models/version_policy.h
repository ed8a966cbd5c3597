/* Which versions of a model are loaded, served and dropped: decided from what is on disk, in memory
 * and wanted, and from the clock.
 *
 * Served is what was commanded, or what model.yaml says: the highest version that loads, or a
 * certain one. Where that cannot be had the version that is served stays; where there is none yet,
 * the next lower one that loads takes its place. While the highest is being loaded one that is in
 * memory already and higher than the one served is: versions that come faster than they are loaded
 * do not keep each other from being served. Wanted are the version served, the one to be served,
 * those with a label and those that a command holds: they are loaded and stay. A version that is no
 * longer wanted stays for keep_s at least, since its callers may have pinned it; then it is spare,
 * and goes when memory is needed, or when `keep` versions more recently wanted are there, or when
 * its directory is gone. It is evicted earlier if at least kept_max versions (or keep - 1, if that
 * is more) that are not wanted either have been wanted more recently. A version that is served
 * stays until another one is, or until keep_s after the last directory of its model has gone.
 * Thread: pure. Memory: none. */
#pragma once

#include "server/contents/model_config.h"

#include <stdbool.h>
#include <stdint.h>

/* One version, as it is. */
struct eb_policy_version {
    uint64_t number;
    bool is_on_disk;   /* and its directory's name is one version's alone */
    bool is_failed;    /* was tried in vain, and is as it was then */
    bool is_resident;  /* in memory */
    bool is_held;      /* by a command */
    bool is_labelled;  /* a label leads to it, or is to when it is in memory */
    uint64_t since_ms; /* when it was last wanted, or loaded */
};

/* A model, as it is. */
struct eb_policy_model {
    const struct eb_model_config *config;
    uint64_t commanded; /* to be served; 0: as the configuration says */
    uint64_t served;    /* 0: none; a resident one */
    uint64_t kept_max;  /* versions that stay for keep_s; 0: any number */
    size_t count;
    const struct eb_policy_version *versions; /* highest first */
};

/* An index into versions; this where there is none. */
#define EB_POLICY_NONE SIZE_MAX

struct eb_policy_choice {
    size_t target; /* to be served; not resident: it is to be loaded first */
    size_t serve;  /* to be served now: the target, or another one until that is resident */
    size_t load;   /* to be loaded next: the target before all others */
};

enum eb_policy_fate {
    EB_POLICY_WANTED,
    EB_POLICY_KEPT,    /* no longer wanted, but keep_s is not over */
    EB_POLICY_EVICTED, /* goes before keep_s is over, since too many are kept */
    EB_POLICY_SPARE,   /* may go when memory is needed */
    EB_POLICY_DROPPED
};

struct eb_policy_choice eb_version_policy_choose(const struct eb_policy_model *model);

/* Whether there is a reason to load it, or to go on with it: it is to be served, now or until a
 * higher one is in memory, or it is held or has a label. */
bool eb_version_policy_is_due(const struct eb_policy_model *model, size_t version);

/* Whether a resident version that nothing wants may go before its time: it is not the last of its
 * model that is kept, nor one of the `keep` versions that were wanted last, and neither served nor
 * held nor labelled, though its model may have gone from the disk. */
bool eb_version_policy_may_evict(const struct eb_policy_model *model, size_t version);
/* What becomes of a resident version. */
enum eb_policy_fate eb_version_policy_judge(
    const struct eb_policy_model *model, size_t version, uint64_t now_ms);
