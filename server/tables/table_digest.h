/* What a table's content comes down to: XXH3-64 of its type, shape and storage, its rows as they
 * lie in memory, and its keys. Equal contents have equal digests; a packed file's own digest, which
 * its reader has compared with it, takes the place of what would be computed.
 *
 * A table's origin is a digest of where it was read from, and how: two tables of one origin were
 * made of the same bytes of the same files, unless these were changed and given back their times.
 * Thread: one at a time. Memory: half a KiB of the heap until deinit. */
#pragma once

#include "server/tables/planned_table.h"

struct eb_table_digest {
    void *state;
};

/* false: *failure, no memory. */
bool eb_table_digest_init(struct eb_table_digest *digest, const struct eb_planned_table *table,
    struct eb_failure *failure);
/* Accepts a zeroed digest. */
void eb_table_digest_deinit(struct eb_table_digest *digest);
/* Rows, then keys. */
void eb_table_digest_update(struct eb_table_digest *digest, const void *bytes, uint64_t size);
uint64_t eb_table_digest_read(
    const struct eb_table_digest *digest, const struct eb_planned_table *table);

/* Whether the digest is known before the table is read: of one packed file. */
bool eb_table_digest_is_known(const struct eb_planned_table *table);
/* That of the files' looks, where the table lies in them and how it is to be stored. */
uint64_t eb_table_digest_of_origin(
    const struct eb_table_plan *plan, const struct eb_planned_table *table);

/* Of all tables of a loaded set: their names and digests. */
uint64_t eb_table_digest_of_set(const struct eb_table_set *set);
