/* `embag check` of a version in parts.
 * Thread: one at a time. Memory: everything is freed before a function returns. */
#pragma once

#include "server/base/failure.h"

/* Returns whether the directory has the manifest of a version in parts, valid or not. */
bool eb_check_parts_is(const char *directory);

/* Checks every file of a version in parts as eb_check_file does, and compares it with the manifest:
 * what its header says, the number of rows in all parts, the parts of its keys, and that no table
 * is missing or more than the manifest lists. Prints the errors of files to stderr, and clears
 * *is_sound then. Returns false with *failure set if the manifest or a folder cannot be read. */
bool eb_check_parts(const char *directory, bool *is_sound, struct eb_failure *failure);
