/* Loads the keys of a planned table: reads them and builds an index (key_workers.h), or reads the
 * index of a packed file that has one.
 * Thread: one at a time; joins the threads that it starts. Memory: eight bytes of the heap for each
 * row until the index is built. */
#pragma once

#include "kernels/key_index.h"
#include "server/base/load_meter.h"
#include "server/tables/planned_table.h"

struct eb_key_load {
    const struct eb_table_plan *plan;
    const struct eb_planned_table *table; /* table whose keys are loaded; it must be keyed */
    void *bytes; /* zeroed memory for the index: table->index_bytes, aligned to
                    EB_KEY_INDEX_ALIGNMENT */
    struct eb_load_meter *meter;
};

/* Builds or reads the index. Sets *hash to the XXH3-64 of the keys, or to 0 if the file has a
 * ready-made index. Returns false if the file cannot be read, if two rows have the same
 * key, or if the index in the file is not valid for the table: *failure names the file and the
 * reason. */
bool eb_key_load(const struct eb_key_load *load, struct eb_key_index *index, uint64_t *hash,
    struct eb_failure *failure);
/* Reads the keys and sets *hash to their XXH3-64, without an index; load->bytes is not used.
 * Returns false with *failure set if that fails. */
bool eb_key_load_hash(const struct eb_key_load *load, uint64_t *hash, struct eb_failure *failure);
/* Reads the keys of `count` rows from `first` on, which must be rows of the table; load->bytes is
 * not used. Returns false with *failure set if that fails, or if the file has an index but no
 * keys. */
bool eb_key_load_read(const struct eb_key_load *load, uint64_t first, uint64_t count, int64_t *keys,
    struct eb_failure *failure);
