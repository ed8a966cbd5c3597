/* The small texts of gRPC over HTTP/2: timeouts and percent-encoded messages.
 * Thread: pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_GRPC_PREFIX_BYTES 5
#define EB_GRPC_MESSAGE_BYTES_MAX 1024 /* size of grpc-message, once encoded */

/* Reads "100m", "3S" and so on (at most 8 digits and a unit) as microseconds, rounded up. Returns
 * false if the text is not a timeout. */
bool eb_grpc_timeout_parse(const char *text, size_t size, uint64_t *timeout_us);
/* Writes the timeout, rounded up, in the finest unit whose digits fit. The text is NUL-terminated;
 * `out` has 16 bytes. */
void eb_grpc_timeout_format(uint64_t timeout_us, char out[16]);

/* Percent-encodes UTF-8 text for grpc-message and cuts it, between characters, at
 * EB_GRPC_MESSAGE_BYTES_MAX. Returns the bytes written (no NUL). */
size_t eb_grpc_message_encode(const char *text, char out[EB_GRPC_MESSAGE_BYTES_MAX]);
/* Decodes a percent-encoded text. Anything that is not a valid escape stays as it is. The result is
 * NUL-terminated and cut at out_bytes. */
void eb_grpc_message_decode(const char *text, size_t size, char *out, size_t out_bytes);

/* Writes the prefix of an uncompressed message of `size` bytes. */
void eb_grpc_prefix_write(uint8_t out[EB_GRPC_PREFIX_BYTES], uint32_t size);
