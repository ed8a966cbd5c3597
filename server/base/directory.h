/* Directories of a repository: what is in them, and paths below them.
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

/* false: *failure names the directory and why it cannot be read. */
bool eb_directory_read(const char *path, struct eb_directory *out, struct eb_failure *failure);
/* Accepts a zeroed listing. */
void eb_directory_deinit(struct eb_directory *directory);

/* "DIRECTORY/NAME", to be freed. NULL: *failure, out of memory. */
char *eb_directory_join(const char *directory, const char *name, struct eb_failure *failure);

/* Whether `path` is a directory, links followed; something that is gone is none. false: *failure
 * says why that cannot be told. */
bool eb_directory_test(const char *path, bool *is_directory, struct eb_failure *failure);
