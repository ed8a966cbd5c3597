/* Digests of tables. A digest is the XXH3-64 of a table's type, shape and storage, of the hash
 * (XXH3-64) of each chunk of its rows as they lie in memory (row_load.h), and of the hash of its
 * keys. Equal contents have equal digests. For a packed file, its own digest is used, which the
 * reader has verified.
 * Thread: pure functions. Memory: a digest of keys takes half a KiB of the heap. */
#pragma once

#include "server/tables/planned_table.h"

/* Returns the digest of a table. `chunk_hashes` has eb_row_load_chunk_count hashes. `keys_hash` is
 * the XXH3-64 of its keys, or 0 if it has none; neither is used if the digest is known. */
uint64_t eb_table_digest_of(
    const struct eb_planned_table *table, const uint64_t *chunk_hashes, uint64_t keys_hash);

/* Returns whether the digest is known before the table is read: it comes from one packed file. */
bool eb_table_digest_is_known(const struct eb_planned_table *table);

/* Returns a digest of the names and digests of all tables of a loaded set. */
uint64_t eb_table_digest_of_set(const struct eb_table_set *set);
