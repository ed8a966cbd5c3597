/* Compares secrets by their digests, in a time that reveals nothing about them.
 * Thread: pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_SECRET_DIGEST_BYTES 32 /* SHA-256 */

struct eb_secret_digest {
    uint8_t bytes[EB_SECRET_DIGEST_BYTES];
};

void eb_secret_digest(const void *secret, size_t secret_bytes, struct eb_secret_digest *out);
bool eb_secret_is_same(const struct eb_secret_digest *a, const struct eb_secret_digest *b);

/* Logs a warning if every user of the machine can read the file. */
void eb_secret_check_file(const char *path);
