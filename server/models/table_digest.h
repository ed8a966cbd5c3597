/* What a table's content comes down to: XXH3-64 of its type, shape and storage, its rows as they
 * lie in memory, and its keys. Equal contents have equal digests; a packed file's own digest, which
 * its reader has compared with it, takes the place of what would be computed.
 * Thread: one at a time. Memory: half a KiB of the heap until deinit. */
#pragma once

#include "server/models/table_plan.h"

struct eb_table_digest {
    void *state;
};

/* false: *fault, no memory. */
bool eb_table_digest_init(struct eb_table_digest *digest, const struct eb_planned_table *table,
    struct eb_file_fault *fault);
/* Accepts a zeroed digest. */
void eb_table_digest_deinit(struct eb_table_digest *digest);
/* Rows, then keys. */
void eb_table_digest_update(struct eb_table_digest *digest, const void *bytes, uint64_t size);
uint64_t eb_table_digest_read(
    const struct eb_table_digest *digest, const struct eb_planned_table *table);

/* Of all tables of a loaded set: their names and digests. */
uint64_t eb_table_digest_of_set(const struct eb_table_set *set);
