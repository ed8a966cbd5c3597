#include "server/route/route_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MIN 8
#define INSTANCES_MIN 16

struct eb_route_table *eb_route_table_create(void)
{
    return calloc(1, sizeof(struct eb_route_table));
}

static void deinit_entry(struct eb_route_entry *entry)
{
    free(entry->model);
    free(entry->first);
    free(entry->instances);
    free(entry->failure);
}

void eb_route_table_destroy(struct eb_route_table *table)
{
    if (!table) {
        return;
    }
    for (size_t i = 0; i < table->count; i++) {
        deinit_entry(&table->entries[i]);
    }
    free(table->entries);
    free(table);
}

static bool grow_table(struct eb_route_table *table)
{
    size_t room = table->room > 0 ? 2 * table->room : ENTRIES_MIN;
    struct eb_route_entry *entries = realloc(table->entries, room * sizeof *entries);
    if (entries) {
        table->entries = entries;
        table->room = room;
    }
    return entries;
}

struct eb_route_entry *eb_route_table_append(struct eb_route_table *table, const char *model,
    uint64_t version, uint64_t digest, uint32_t parts)
{
    if (table->count == table->room && !grow_table(table)) {
        return NULL;
    }
    struct eb_route_entry *entry = &table->entries[table->count];
    *entry = (struct eb_route_entry){.model = strdup(model),
        .version = version,
        .digest = digest,
        .parts = parts,
        .first = calloc((size_t)parts + 1, sizeof *entry->first)};
    if (!entry->model || !entry->first) {
        deinit_entry(entry);
        return NULL;
    }
    table->count++;
    return entry;
}

bool eb_route_entry_add(struct eb_route_entry *entry, uint32_t part, uint64_t instance)
{
    size_t count = entry->first[entry->parts];
    assert(part < entry->parts && entry->first[part + 1] == count);
    if (count == entry->room) {
        size_t room = count > 0 ? 2 * count : INSTANCES_MIN;
        uint64_t *instances = realloc(entry->instances, room * sizeof *instances);
        if (!instances) {
            return false;
        }
        entry->instances = instances;
        entry->room = room;
    }
    entry->instances[count] = instance;
    for (uint32_t i = part + 1; i <= entry->parts; i++) {
        entry->first[i]++;
    }
    return true;
}

bool eb_route_entry_fail(struct eb_route_entry *entry, const char *failure)
{
    free(entry->failure);
    entry->failure = strdup(failure);
    return entry->failure;
}

bool eb_route_entry_is_complete(const struct eb_route_entry *entry)
{
    for (uint32_t part = 0; entry && part < entry->parts; part++) {
        if (entry->first[part] == entry->first[part + 1]) {
            return false;
        }
    }
    return entry;
}

const struct eb_route_entry *eb_route_table_find(
    const struct eb_route_table *table, const char *model, uint64_t version, uint64_t digest)
{
    for (size_t i = 0; table && i < table->count; i++) {
        const struct eb_route_entry *entry = &table->entries[i];
        if (entry->digest == digest && entry->version == version &&
            strcmp(entry->model, model) == 0) {
            return entry;
        }
    }
    return NULL;
}
