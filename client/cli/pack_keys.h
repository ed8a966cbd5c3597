/* The keys of a table's rows: read from TABLE.keys.npy or a packed table, and the index that is
 * made of them.
 * Thread: one at a time; the threads that make an index are joined. Memory: keys are on
 * the heap, the index has a mapping. */
#pragma once

#include "client/cli/source_file.h"
#include "server/tables/table_memory.h"

struct eb_pack_keys {
    uint64_t count;
    int64_t *keys;  /* [count] */
    uint8_t *index; /* as kernels/key_index.h lays it out; NULL: it is not made */
    uint64_t index_bytes;
    struct eb_table_memory memory; /* of the index */
};

/* Whether a tensor can be keys: one dimension of i64, or of u64, whose high half counts as
 * negative. false: *error. */
bool eb_pack_keys_check(const struct eb_tensor *tensor, struct eb_failure *failure);

/* Reads NAME.npy. false: *error, without the path; *keys is empty. */
bool eb_pack_keys_read(struct eb_pack_keys *keys, const char *path, struct eb_failure *failure);
/* The same of all files where `path` names one of several. */
bool eb_pack_keys_read_whole(
    struct eb_pack_keys *keys, const char *path, struct eb_failure *failure);
/* Reads those of a packed table, which has some. false: *error, without the path. */
bool eb_pack_keys_unpack(
    struct eb_pack_keys *keys, struct eb_packed_reader *reader, struct eb_failure *failure);
/* Makes the index, by as many threads as may run, and shows how far it is. false: *error, without
 * the path, names two rows that have the same key or says why there is none. */
bool eb_pack_keys_index(struct eb_pack_keys *keys, struct eb_failure *failure);
/* As before the index was made. */
void eb_pack_keys_drop_index(struct eb_pack_keys *keys);
/* Accepts zeroed keys. */
void eb_pack_keys_deinit(struct eb_pack_keys *keys);
