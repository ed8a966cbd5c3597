/* The digest of a table file, as a manifest lists it (manifest.h): the XXH3-64 of its bytes or, for
 * a packed table, the digest in its header. Thread: any. Memory: 1 MiB of the heap during the
 * call. */
#pragma once

#include "server/formats/table_file.h"

/* Receives reports of the bytes that were read. */
struct eb_file_digest_progress {
    void (*advance)(void *context, uint64_t bytes);
    void *context;
};

/* Reads the open file and sets *digest. All bytes of a packed table are compared with its checksums
 * if is_checked; otherwise only its header is read. `progress` may be NULL. Returns false with
 * *failure set, without the path, if the file cannot be read or a packed table is damaged. */
bool eb_file_digest_read(struct eb_table_file *file, bool is_packed, bool is_checked,
    const struct eb_file_digest_progress *progress, uint64_t *digest, struct eb_failure *failure);
