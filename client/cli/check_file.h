/* Checks one file of tables, or of keys, and tells about it in one line a table on stdout.
 * Thread: one at a time. Memory: keys and their index are on the heap for the call. */
#pragma once

#include "server/base/failure.h"

#include <stdbool.h>

/* Whether files of this name are checked. */
bool eb_check_file_is_known(const char *path);

/* Everything that can be checked without another file: headers; of packed tables every byte, and
 * that the index leads every key to its row; of keys that no two are the same. false: *error,
 * without the path. */
bool eb_check_file(const char *path, struct eb_failure *failure);
