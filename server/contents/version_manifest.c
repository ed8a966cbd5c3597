#include "server/contents/version_manifest.h"

#include "server/contents/file_name.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COPY_HINT "copy the files again, and the manifest last, or run embag manifest"

static bool has_entry(const struct eb_directory *listing, const char *name)
{
    for (size_t i = 0; i < listing->count; i++) {
        if (strcmp(listing->entries[i]->d_name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool open_version_manifest(
    const char *path, struct eb_version_manifest *out, struct eb_failure *failure)
{
    bool is_good = eb_table_file_open(path, &out->stamp, failure);
    if (is_good) {
        is_good = eb_manifest_read(&out->stamp, &out->manifest, failure);
        eb_table_file_close(&out->stamp);
    }
    out->is_there = is_good;
    return is_good || eb_failure_locate(failure, path);
}

/* Returns whether a listed file is there and has its size. */
static bool check_listed_file(
    const char *directory, const struct eb_manifest_file *file, struct eb_failure *failure)
{
    char *path = eb_directory_join(directory, file->name, failure);
    struct stat status;
    if (!path) {
        return false;
    }
    bool is_good = stat(path, &status) == 0;
    int error = errno;
    if (!is_good) {
        eb_failure_set(failure,
            "%s: it cannot be accessed (%s), but the manifest lists it with %" PRIu64
            " bytes; " COPY_HINT,
            path, strerror(error), file->bytes);
        eb_failure_blame(failure, error == ENOENT ? 0 : error);
    } else if ((uint64_t)status.st_size != file->bytes) {
        is_good = eb_failure_set(failure,
            "%s: it has %" PRIu64 " bytes, but the manifest lists %" PRIu64 "; " COPY_HINT, path,
            (uint64_t)status.st_size, file->bytes);
    }
    free(path);
    return is_good;
}

/* Returns whether the manifest lists each file that the server would read. */
static bool check_unlisted(const char *directory, const struct eb_directory *listing,
    const struct eb_manifest *manifest, struct eb_failure *failure)
{
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->entries[i]->d_name;
        if (eb_file_name_parse(name).kind != EB_FILE_OTHER && !eb_manifest_find(manifest, name)) {
            return eb_failure_set(failure,
                "%s/%s: the manifest does not list this file; expected every file with tables; "
                "remove the file, or run embag manifest",
                directory, name);
        }
    }
    return true;
}

static bool check_directory_files(const char *directory, const struct eb_directory *listing,
    const struct eb_manifest *manifest, struct eb_failure *failure)
{
    for (size_t i = 0; i < manifest->count; i++) {
        if (!check_listed_file(directory, &manifest->files[i], failure)) {
            return false;
        }
    }
    return check_unlisted(directory, listing, manifest, failure);
}

bool eb_version_manifest_read(const char *directory, const struct eb_directory *listing,
    struct eb_version_manifest *out, struct eb_failure *failure)
{
    *out = (struct eb_version_manifest){0};
    if (!has_entry(listing, EB_MANIFEST_NAME)) {
        return true;
    }
    char *path = eb_directory_join(directory, EB_MANIFEST_NAME, failure);
    bool is_good = path && open_version_manifest(path, out, failure) &&
                   check_directory_files(directory, listing, &out->manifest, failure);
    free(path);
    if (!is_good) {
        eb_version_manifest_deinit(out);
    }
    return is_good;
}

void eb_version_manifest_deinit(struct eb_version_manifest *manifest)
{
    eb_manifest_deinit(&manifest->manifest);
    *manifest = (struct eb_version_manifest){0};
}

static bool is_newer(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

const struct eb_manifest_file *eb_version_manifest_find(const struct eb_version_manifest *manifest,
    const char *name, const struct eb_table_file *stamp, bool *is_stale)
{
    *is_stale = manifest->is_there && is_newer(&stamp->changed, &manifest->stamp.changed);
    return manifest->is_there ? eb_manifest_find(&manifest->manifest, name) : NULL;
}
