/* The status page, status_page.html, as it is in the program.
 * Thread, memory: constants. */
#pragma once

#include <stddef.h>
#include <stdint.h>

extern const uint8_t eb_status_page[];
extern const size_t eb_status_page_bytes;
