/* Compares a version's directory with its manifest (manifest.h), if it has one, before its files
 * are read.
 * Thread: one at a time. Memory: the list is on the heap. */
#pragma once

#include "server/base/directory.h"
#include "server/formats/manifest.h"
#include "server/formats/table_file.h"

struct eb_version_manifest {
    bool is_there;
    struct eb_table_file stamp; /* the closed file of the manifest, as it was when it was read */
    struct eb_manifest manifest;
};

/* Reads DIRECTORY/manifest.yaml, if `listing` has it, and compares it with the directory. Returns
 * false with *out empty if the manifest is not valid, if a file that it lists is missing or has
 * another size, or if it does not list a file that the server would read. *failure then says which
 * file, what was found, what was expected and what to do. */
bool eb_version_manifest_read(const char *directory, const struct eb_directory *listing,
    struct eb_version_manifest *out, struct eb_failure *failure);
/* Accepts a zeroed manifest. */
void eb_version_manifest_deinit(struct eb_version_manifest *manifest);

/* Returns the entry of the file `name`, whose stamp is `stamp`. Returns NULL if there is no
 * manifest or if it does not list the file. Sets *is_stale to whether the file is newer than the
 * manifest, so that the digest does not count. */
const struct eb_manifest_file *eb_version_manifest_find(const struct eb_version_manifest *manifest,
    const char *name, const struct eb_table_file *stamp, bool *is_stale);
