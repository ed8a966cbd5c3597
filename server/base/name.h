/* Checks names of models and tables: UTF-8 without control characters.
 * Thread: pure. Memory: none. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Returns the bytes of the character at `at`; `available` bytes (at least 1) may be read. Returns 0
 * if it is a control character or not UTF-8 (an overlong form, a surrogate, cut short). */
size_t eb_name_char_bytes(const uint8_t *at, size_t available);

/* Returns NULL if the name is valid. Otherwise returns what is wrong, to be read after "the name":
 * "is empty". */
const char *eb_name_error(const char *name, uint32_t bytes_max);
