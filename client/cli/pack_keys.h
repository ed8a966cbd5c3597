/* The keys of a table's rows, read from TABLE.keys.npy, a raw file or a packed table, and the index
 * that is built from them. Thread: one at a time; the threads that build an index are joined.
 * Memory: keys are on the heap, the index is in a mapping of its own. */
#pragma once

#include "client/cli/source_file.h"
#include "server/tables/table_memory.h"

struct eb_pack_keys {
    uint64_t count;
    int64_t *keys;  /* [count] */
    uint8_t *index; /* laid out as in kernels/key_index.h; NULL: not built */
    uint64_t index_bytes;
    struct eb_table_memory memory; /* memory of the index */
};

/* Returns whether a tensor can be keys: one dimension of i64 or u64. The upper half of u64 becomes
 * negative keys. If not, *failure is set. */
bool eb_pack_keys_check(const struct eb_tensor *tensor, struct eb_failure *failure);

/* Reads NAME.npy. Returns false with *failure set, without the path; then *keys is empty. */
bool eb_pack_keys_read(struct eb_pack_keys *keys, const char *path, struct eb_failure *failure);
/* Does the same as eb_pack_keys_read, but if `path` names one of several files, reads all of
 * them. */
bool eb_pack_keys_read_whole(
    struct eb_pack_keys *keys, const char *path, struct eb_failure *failure);
/* Reads a file of little-endian keys of 64 bits and nothing else. Returns false with *failure set,
 * without the path; then *keys is empty. */
bool eb_pack_keys_read_raw(struct eb_pack_keys *keys, const char *path, struct eb_failure *failure);
/* Reads the keys of a packed table that has some. Returns false with *failure set, without the
 * path. */
bool eb_pack_keys_unpack(
    struct eb_pack_keys *keys, struct eb_packed_reader *reader, struct eb_failure *failure);
/* Builds the index with as many threads as may run, and shows progress. Returns false with *failure
 * set, without the path: it names two rows that have the same key, or says why there is no index.
 */
bool eb_pack_keys_index(struct eb_pack_keys *keys, struct eb_failure *failure);
/* Frees the index and keeps the keys. */
void eb_pack_keys_drop_index(struct eb_pack_keys *keys);
/* Accepts zeroed keys. */
void eb_pack_keys_deinit(struct eb_pack_keys *keys);
