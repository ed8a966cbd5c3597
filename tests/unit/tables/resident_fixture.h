/* A directory in a tmpfs for resident files.
 * Thread: one at a time. Memory: none. */
#pragma once

#include <stdbool.h>

#define EB_RESIDENT_FIXTURE_BYTES 64

/* Makes a directory and writes its path to `root`. Returns false, with an empty path, if there is
 * no tmpfs for it; a test that needs one is then skipped. */
bool eb_resident_fixture_make(char root[EB_RESIDENT_FIXTURE_BYTES]);
/* Removes it with all that is in it. Accepts an empty path. */
void eb_resident_fixture_remove(const char *root);
