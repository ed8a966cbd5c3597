/* Reads which part of versions in parts a server has.
 * Thread: pure, except that it reads the host's name. Memory: none. */
#pragma once

#include "server/base/failure.h"
#include "server/formats/part_of.h"

/* Room for the longest text with its NUL. */
#define EB_PART_CHOICE_BYTES 32

/* Reads K/P, or hostname/P, where K is the number at the end of the host's name, modulo P: the
 * ordinal of a pod of a StatefulSet. The name ends at its first dot. K is from 0 to P - 1, and P
 * from 1 to EB_PARTS_MAX. Returns false with *failure set, which says what is expected. */
bool eb_part_choice_read(
    const char *text, struct eb_part_choice *choice, struct eb_failure *failure);

/* Does the same for the host name `host`. */
bool eb_part_choice_read_on(
    const char *text, const char *host, struct eb_part_choice *choice, struct eb_failure *failure);
