/* Which part servers have which parts of the versions that a router answers from, as the loops see
 * it. The main thread makes a table from its part_map.h whenever that has changed, one for each
 * loop.
 * Thread: filled by one, then read by its loop alone. Memory: on the heap. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A version of a model and its replicas. The version is in memory here, or all servers of a part
 * have failed to load it. A server is named by the number of its process (Server.instance), because
 * each loop has connections of its own. */
struct eb_route_entry {
    char *model;
    uint64_t version;
    uint64_t digest; /* of its manifest */
    uint32_t parts;
    /* [parts + 1]: the instances of part p are instances[first[p] .. first[p + 1] - 1] */
    uint32_t *first;
    uint64_t *instances; /* those that have the part READY */
    size_t room;         /* of `instances` */
    char *failure; /* "part 3: " and why all its servers cannot load it; NULL: none has failed */
};

struct eb_route_table {
    size_t count;
    size_t room;
    struct eb_route_entry *entries;
};

/* Returns an empty table, or NULL if out of memory. */
struct eb_route_table *eb_route_table_create(void);
/* Accepts NULL. */
void eb_route_table_destroy(struct eb_route_table *table);

/* Appends a version without replicas; those are then added part by part, in order. Returns NULL if
 * out of memory. The entry may move when the next one is appended. */
struct eb_route_entry *eb_route_table_append(struct eb_route_table *table, const char *model,
    uint64_t version, uint64_t digest, uint32_t parts);
/* Adds an instance to a part, after those of all lower parts. Returns false if out of memory. */
bool eb_route_entry_add(struct eb_route_entry *entry, uint32_t part, uint64_t instance);

/* Sets the failure; copies. Returns false if out of memory. */
bool eb_route_entry_fail(struct eb_route_entry *entry, const char *failure);

/* Returns the entry of a version, or NULL if the table has none. Accepts a NULL table. */
const struct eb_route_entry *eb_route_table_find(
    const struct eb_route_table *table, const char *model, uint64_t version, uint64_t digest);

/* Returns whether every part is at some server. Accepts NULL: false. */
bool eb_route_entry_is_complete(const struct eb_route_entry *entry);

/* Returns the instances that have a part, and sets *count to their number. */
static inline const uint64_t *eb_route_entry_instances(
    const struct eb_route_entry *entry, uint32_t part, size_t *count)
{
    *count = entry->first[part + 1] - entry->first[part];
    return entry->instances + entry->first[part];
}
