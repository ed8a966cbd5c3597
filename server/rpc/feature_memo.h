/* Remembers the lists of features that recent groups named, and the features that these names mean.
 * Most clients send the same list with every request. A list that is remembered is not decoded
 * again, and its names are not searched for again.
 * Thread: the loop's. Memory: on the heap, at most some 0.5 MiB per list, mostly a few KiB. A list
 * is borrowed until the next one is kept. */
#pragma once

#include "proto/message.h"
#include "server/models/model_version.h"

#define EB_FEATURE_MEMO_LISTS 8
/* Most bytes of a list's encoded fields. Longer lists are not kept. Lists that begin with a tag
 * that is not in its shortest form are not kept either; no encoder writes such a tag. */
#define EB_FEATURE_MEMO_RUN_BYTES_MAX ((size_t)64 << 10)
/* A list may be replaced only if at least this many groups of the loop have come since a group last
 * used it. So a client that names its list in one of that many groups keeps it, however many lists
 * others send. */
#define EB_FEATURE_MEMO_AGE_MIN 64

struct eb_feature_memo {
    size_t count;
    struct eb_known_features lists[EB_FEATURE_MEMO_LISTS]; /* [count], for the decoder */
    /* Private; one entry for each list. */
    struct eb_feature_memo_entry {
        const struct eb_model_version *version; /* NULL if the features are not known */
        const struct eb_feature **features;     /* of the version; begins the list's block */
        uint64_t used;                          /* group_count when a group last used it */
    } entries[EB_FEATURE_MEMO_LISTS];
    uint64_t group_count; /* groups looked up so far */
};

/* Returns the features of the version that the group names, if decoding has recognised the list as
 * group->known. Returns NULL if they are not known. */
const struct eb_feature *const *eb_feature_memo_find(struct eb_feature_memo *memo,
    const struct eb_wire_group *group, const struct eb_model_version *version);
/* Remembers the features that the group names, unless there is no free entry or no memory. Groups
 * that were decoded before, except this one, must not be used any more: their lists may be gone. */
void eb_feature_memo_keep(struct eb_feature_memo *memo, const struct eb_wire_group *group,
    const struct eb_model_version *version, const struct eb_feature *const *features);
/* Forgets the features of all lists. To be called before a version that was in use may be freed. */
void eb_feature_memo_forget_versions(struct eb_feature_memo *memo);
/* Frees all lists. Accepts a zeroed memo. */
void eb_feature_memo_deinit(struct eb_feature_memo *memo);
