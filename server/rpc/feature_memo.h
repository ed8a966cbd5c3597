/* The lists of features that groups of requests have named last, and what they have named: most
 * clients send one and the same list with every request, which then is neither read nor looked up
 * again, name by name.
 * Thread: the loop's. Memory: heap, some 0.5 MiB a list at most, mostly a few KiB; a list is
 * borrowed until the next one is kept. */
#pragma once

#include "proto/message.h"
#include "server/models/model_version.h"

#define EB_FEATURE_MEMO_LISTS 8
/* Of a list's fields; longer ones are not kept, nor are those that begin otherwise than with the
 * shortest form of their tag, as nobody writes it. */
#define EB_FEATURE_MEMO_RUN_BYTES_MAX ((size_t)64 << 10)
/* Groups of the loop after which a list that none of them has named gives way to another: whoever
 * names his with one of so many keeps it, however many lists others send. */
#define EB_FEATURE_MEMO_AGE_MIN 64

struct eb_feature_memo {
    size_t count;
    struct eb_known_features lists[EB_FEATURE_MEMO_LISTS]; /* [count], as decoding takes them */
    /* Private, beside them. */
    struct eb_feature_memo_entry {
        const struct eb_model_version *version; /* NULL: what the list names is not known */
        const struct eb_feature **features;     /* of the version; heads the list's block */
        uint64_t used;                          /* the number of the group that used it last */
    } entries[EB_FEATURE_MEMO_LISTS];
    uint64_t group_count; /* that were asked about */
};

/* What the group's features, which decoding has found to be group->known, are in the version.
 * NULL: not known. */
const struct eb_feature *const *eb_feature_memo_find(struct eb_feature_memo *memo,
    const struct eb_wire_group *group, const struct eb_model_version *version);
/* Keeps what the group's features are, unless there is no place or no memory for them. No other
 * group that was decoded before may be looked at any more: its list may be gone. */
void eb_feature_memo_keep(struct eb_feature_memo *memo, const struct eb_wire_group *group,
    const struct eb_model_version *version, const struct eb_feature *const *features);
/* Forgets what the lists name: to be called before a version that was in use may be freed. */
void eb_feature_memo_forget_versions(struct eb_feature_memo *memo);
/* Accepts a zeroed memo. */
void eb_feature_memo_deinit(struct eb_feature_memo *memo);
