/* Makes a set of tables from planned tables whose rows are in memory.
 * Thread: one at a time. Memory: the set's. */
#pragma once

#include "server/tables/planned_table.h"

/* Returns a planned table as it will be in the set, with its rows at `rows`, but without keys,
 * hashes, digest and pages. `rows` is NULL for a remote table, which also has its digest. Name and
 * default vector are borrowed. */
struct eb_named_table eb_set_build_describe(
    const struct eb_planned_table *planned, const uint8_t *rows);
/* Appends a table to the set, which has room for it and takes over the planned name and default
 * vector. */
void eb_set_build_append(
    struct eb_table_set *set, struct eb_planned_table *planned, const struct eb_named_table *table);
/* Completes a set that has all of its tables: sorts them by name, checks default keys, makes the
 * memory read-only, and sets the digest and the counts of bytes and pages. `config` may be NULL.
 * Returns false with *failure set if a default key is not a key of its table, or if the memory
 * cannot be made read-only. */
bool eb_set_build_finish(
    struct eb_table_set *set, const struct eb_model_config *config, struct eb_failure *failure);
