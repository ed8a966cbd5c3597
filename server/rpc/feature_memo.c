#include "server/rpc/feature_memo.h"

#include "proto/field_reader.h"

#include "embag/v1/embedding_bag.fields.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const struct eb_feature *const *eb_feature_memo_find(struct eb_feature_memo *memo,
    const struct eb_wire_group *group, const struct eb_model_version *version)
{
    memo->group_count++;
    if (!group->known) {
        return NULL;
    }
    struct eb_feature_memo_entry *entry = &memo->entries[group->known - memo->lists];
    entry->used = memo->group_count;
    return entry->version == version ? entry->features : NULL;
}

static size_t count_memo_text_bytes(const struct eb_wire_group *group)
{
    size_t bytes = 0;
    for (size_t i = 0; i < group->feature_count; i++) {
        bytes += strlen(group->features[i]);
    }
    return bytes;
}

/* Copies the list into one block: pointers to features, pointers to names, the encoded fields, and
 * the names' text. Returns false if out of memory. */
static bool make_list(const struct eb_wire_group *group, struct eb_known_features *list,
    struct eb_feature_memo_entry *entry)
{
    size_t count = group->feature_count;
    size_t text_bytes = count_memo_text_bytes(group);
    size_t pointer_bytes = count * (sizeof *entry->features + sizeof *list->names);
    const struct eb_feature **features =
        malloc(pointer_bytes + group->run_bytes + text_bytes + count);
    if (!features) {
        return false;
    }
    const char **names = (const char **)(features + count);
    uint8_t *run = (uint8_t *)(names + count);
    char *text = (char *)run + group->run_bytes;
    memcpy(run, group->run, group->run_bytes);
    for (size_t i = 0; i < count; i++) {
        names[i] = strcpy(text, group->features[i]);
        text += strlen(text) + 1;
    }
    *list = (struct eb_known_features){run, group->run_bytes, text_bytes, count, names};
    entry->features = features;
    return true;
}

/* Returns a free slot, or that of the least recently used list. Returns memo->count, the slot past
 * the last, if no list is old enough to be replaced. */
static size_t find_memo_slot(const struct eb_feature_memo *memo)
{
    if (memo->count < EB_FEATURE_MEMO_LISTS) {
        return memo->count;
    }
    size_t oldest = 0;
    for (size_t i = 1; i < memo->count; i++) {
        oldest = memo->entries[i].used < memo->entries[oldest].used ? i : oldest;
    }
    uint64_t age = memo->group_count - memo->entries[oldest].used;
    return age < EB_FEATURE_MEMO_AGE_MIN ? memo->count : oldest;
}

/* Returns whether the decoder will recognise the group's list when it comes again. */
static bool can_be_known(const struct eb_wire_group *group)
{
    return group->run && group->run_bytes <= EB_FEATURE_MEMO_RUN_BYTES_MAX &&
           group->run[0] == EB_TAG_BYTES(EB_FIELD_FEATURE_GROUP_FEATURES);
}

/* Adds the group's list and returns its slot, or EB_FEATURE_MEMO_LISTS if it is not kept. */
static size_t add_memo(struct eb_feature_memo *memo, const struct eb_wire_group *group)
{
    size_t slot = find_memo_slot(memo);
    struct eb_known_features list;
    struct eb_feature_memo_entry entry = {.used = memo->group_count};
    if (!can_be_known(group) || slot == EB_FEATURE_MEMO_LISTS || !make_list(group, &list, &entry)) {
        return EB_FEATURE_MEMO_LISTS;
    }
    free(memo->entries[slot].features);
    memo->lists[slot] = list;
    memo->entries[slot] = entry;
    memo->count += slot == memo->count;
    return slot;
}

void eb_feature_memo_keep(struct eb_feature_memo *memo, const struct eb_wire_group *group,
    const struct eb_model_version *version, const struct eb_feature *const *features)
{
    size_t slot = group->known ? (size_t)(group->known - memo->lists) : add_memo(memo, group);
    if (slot < EB_FEATURE_MEMO_LISTS) {
        struct eb_feature_memo_entry *entry = &memo->entries[slot];
        assert(memo->lists[slot].count == group->feature_count);
        memcpy(entry->features, features, group->feature_count * sizeof *entry->features);
        entry->version = version;
    }
}

void eb_feature_memo_forget_versions(struct eb_feature_memo *memo)
{
    for (size_t i = 0; i < memo->count; i++) {
        memo->entries[i].version = NULL;
    }
}

void eb_feature_memo_deinit(struct eb_feature_memo *memo)
{
    for (size_t i = 0; i < memo->count; i++) {
        free(memo->entries[i].features);
    }
    *memo = (struct eb_feature_memo){0};
}
