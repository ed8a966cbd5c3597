/* Names of models and tables: UTF-8 without control characters.
 * Thread: pure. Memory: none. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that starts at `at`, where `available` (at least 1) bytes may be read.
 * 0: it is not UTF-8 (too long a form, a surrogate, cut short) or a control character. */
size_t eb_name_char_bytes(const uint8_t *at, size_t available);

/* NULL: a good name. Otherwise what is wrong with it, to be read after "the name": "is empty". */
const char *eb_name_error(const char *name, uint32_t bytes_max);
