/* Sets the errors that the functions of embag_local.h return to their callers.
 * Thread: pure. Memory: none. */
#pragma once

#include "client/embag_types.h"

#include <stdbool.h>

/* Sets both members of *error, which may be NULL, as printf would; a text that is too long is cut.
 * Always returns false. */
bool eb_local_error_set(struct embag_error *error, enum embag_status status, const char *format,
    ...) __attribute__((cold, format(printf, 3, 4)));
