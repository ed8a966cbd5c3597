/* `embag check` of a version in parts.
 * Thread: one at a time. Memory: everything is freed before a function returns. */
#pragma once

#include "server/base/failure.h"

/* Returns whether the directory has the manifest of a version in parts, valid or not. */
bool eb_check_parts_is(const char *directory);

/* Checks every file of a version in parts as eb_check_file does, and compares its header with the
 * manifest. Also checks that the rows of all parts add up, that each key is in its part, and that
 * the files are those of the tables in the manifest. Clears *is_sound and prints the error to
 * stderr if a file is wrong. Returns false with *failure set if the manifest or a folder cannot be
 * read. */
bool eb_check_parts(const char *directory, bool *is_sound, struct eb_failure *failure);
