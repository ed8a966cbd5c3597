/* Lists directories of a repository and joins paths.
 * Thread: any. Memory: the listing and joined paths are on the heap. */
#pragma once

#include "server/base/failure.h"

#include <stdbool.h>
#include <stddef.h>

struct dirent;

struct eb_directory {
    size_t count;
    struct dirent **entries; /* sorted by d_name; names that start with a dot are left out */
};

/* Reads a directory. Returns false if it cannot be read, with the directory and the reason in
 * *failure. */
bool eb_directory_read(const char *path, struct eb_directory *out, struct eb_failure *failure);
/* Accepts a zeroed listing. */
void eb_directory_deinit(struct eb_directory *directory);

/* Returns "DIRECTORY/NAME", which the caller frees. Returns NULL, with *failure set, if out of
 * memory. */
char *eb_directory_join(const char *directory, const char *name, struct eb_failure *failure);

/* Sets *is_directory to whether `path` is a directory; links are followed. It is false if the path
 * does not exist. Returns false, with the reason in *failure, if this cannot be found out. */
bool eb_directory_test(const char *path, bool *is_directory, struct eb_failure *failure);
