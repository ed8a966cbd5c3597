/* Compares tables in memory with the files that they were made from: reads and converts a chunk of
 * each table's rows again, and compares its hash; reads all keys and compares theirs. This finds
 * files whose content was replaced in a way that source keys (source_key.h) cannot notice. Thread:
 * any one. Memory: some MiB of the heap while files are read. */
#pragma once

#include "server/base/load_meter.h"
#include "server/tables/table_set.h"

/* A table, and the chunk to compare. */
struct eb_compared_table {
    char *name;     /* the caller's */
    uint64_t chunk; /* position of the chunk */
    /* Those in struct eb_named_table. */
    uint64_t origin;
    uint64_t source_key;
    const uint64_t *chunk_hashes;
    uint64_t digest;
    bool is_different; /* result */
};

/* Compares the `count` tables, which are sorted by name, with the files in a version's directory.
 * Sets is_different of those that differ. Passes over tables that the directory does not have, or
 * whose files are no longer the ones that they were made from, as their origins tell, or their
 * source keys if they have no origin. options->config must be the configuration that the tables
 * were loaded with, and options->resident must name model and version. `progress` may pace
 * the comparison, or give it up. Returns false with *failure set if a file cannot be read or
 * converted, or if the comparison was given up; tables that were not compared by then count as
 * equal. */
bool eb_source_compare(const char *directory, const struct eb_table_options *options,
    struct eb_compared_table *tables, size_t count, const struct eb_load_progress *progress,
    struct eb_failure *failure);
