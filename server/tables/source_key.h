/* Keys of the files that a planned table is made from.
 *
 * Both keys are XXH3-64 of what decides the table's bytes in memory: its type, storage, shape and
 * stride, the format of the rows in its files, its range of each file, and the files' identities.
 * The identity of a file is its digest in the version's manifest, if the digest counts. Tables
 * whose files have the same digests then have the same keys in any version, model, directory and
 * mount. Without a digest, the two keys differ: an origin is for use within one process, which
 * always sees the same inodes; a source key is for files that outlive the process, so inodes, times
 * of change and device numbers may have changed. Thread: pure functions. Memory: none. */
#pragma once

#include "server/tables/planned_table.h"

/* Returns the origin. Files without a digest are identified by device, inode, size, mtime and birth
 * time, so that versions share tables whose files are hard links of each other. */
uint64_t eb_source_key_origin(
    const struct eb_table_plan *plan, const struct eb_planned_table *table);
/* Returns the source key of a table in version `version` of `model`. Files without a digest are
 * identified by model, version, file name, size and mtime. */
uint64_t eb_source_key(const struct eb_table_plan *plan, const struct eb_planned_table *table,
    const char *model, uint64_t version);
