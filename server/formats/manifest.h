/* VERSION/manifest.yaml: lists the files of a version with their sizes and digests. It is written
 * last, so a version that has one is complete.
 *
 *   format: 1
 *   parts: 1
 *   files:
 *     - {name: "user_id.npy", bytes: 4224, xxh3_64: "0f1e2d3c4b5a6978"}
 *
 * xxh3_64 is the XXH3-64 of the file's bytes, as `xxhsum -H3` prints it: 16 hex digits. For a
 * packed table, TABLE.embag, it is the digest in the file's header, which covers the checksums of
 * all its blocks (packed_format.h). Names are valid names (name.h) without a slash and without a
 * leading dot, and the manifest does not list itself. Unknown keys, keys given twice, and
 * everything else that yaml_load.h refuses are errors.
 *
 * Thread: any. Memory: the list is on the heap. */
#pragma once

#include "server/base/failure.h"
#include "server/formats/manifest_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_table_file;

/* Limits, besides that of the manifest's bytes (manifest_text.h). */
#define EB_MANIFEST_FILES_MAX 32768     /* a version with more tables needs safetensors */
#define EB_MANIFEST_NAME_BYTES_MAX 255u /* as Linux allows */
#define EB_MANIFEST_FILE_BYTES_MAX (UINT64_C(1) << 44) /* bytes of a listed file */

struct eb_manifest_file {
    char *name;
    uint64_t bytes;
    uint64_t digest;
};

struct eb_manifest {
    size_t count;
    struct eb_manifest_file *files; /* sorted by name, with strcmp */
};

/* Parses a manifest. If it is not valid, returns false with *manifest empty: *failure has the
 * position, such as "files[2].bytes" (counted from 0), the value and what is expected. A manifest
 * of a version in parts (parts_manifest.h) is refused with the number of parts. */
bool eb_manifest_parse(const uint8_t *yaml, size_t yaml_bytes, struct eb_manifest *manifest,
    struct eb_failure *failure);
/* Reads and parses the manifest in an open file. Returns false with *manifest empty and *failure
 * set, without the path, if that fails. */
bool eb_manifest_read(
    struct eb_table_file *file, struct eb_manifest *manifest, struct eb_failure *failure);
/* Returns the text of a manifest, which the caller frees, and its length. Returns NULL with
 * *failure set if out of memory, if eb_manifest_parse would refuse a name, a size or the number of
 * files, or if the text is too long. */
char *eb_manifest_write(
    const struct eb_manifest *manifest, size_t *text_bytes, struct eb_failure *failure);
/* Accepts a zeroed manifest. */
void eb_manifest_deinit(struct eb_manifest *manifest);

/* Returns the entry of that name, or NULL if there is none. */
const struct eb_manifest_file *eb_manifest_find(
    const struct eb_manifest *manifest, const char *name);
