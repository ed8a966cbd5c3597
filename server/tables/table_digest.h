/* Digests of tables: XXH3-64 of a table's type, shape and storage, its rows as they lie in memory,
 * and its keys. Equal contents have equal digests. For a packed file its own digest is used, which
 * the reader has verified.
 *
 * A table's origin is a digest of the stamps of the files that it was read from, its place in
 * them, and its storage. Two tables with the same origin were made from the same bytes of the same
 * files, unless the files were changed and their times set back.
 * Thread: one at a time. Memory: half a KiB of the heap until deinit. */
#pragma once

#include "server/tables/planned_table.h"

struct eb_table_digest {
    void *state;
};

/* Returns false with *failure set if out of memory. */
bool eb_table_digest_init(struct eb_table_digest *digest, const struct eb_planned_table *table,
    struct eb_failure *failure);
/* Accepts a zeroed digest. */
void eb_table_digest_deinit(struct eb_table_digest *digest);
/* Adds bytes: first all rows, then the keys. */
void eb_table_digest_update(struct eb_table_digest *digest, const void *bytes, uint64_t size);
uint64_t eb_table_digest_read(
    const struct eb_table_digest *digest, const struct eb_planned_table *table);

/* Returns whether the digest is known before the table is read: it comes from one packed file. */
bool eb_table_digest_is_known(const struct eb_planned_table *table);
/* Returns the origin: a digest of the files' stamps, the table's place in them and its storage. */
uint64_t eb_table_digest_of_origin(
    const struct eb_table_plan *plan, const struct eb_planned_table *table);

/* Returns a digest of the names and digests of all tables of a loaded set. */
uint64_t eb_table_digest_of_set(const struct eb_table_set *set);
