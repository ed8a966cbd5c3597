/* A packed table for tests. Its bytes count up in every section. It is written as a file and read
 * back to its last block.
 * Thread: one at a time. Memory: none. A failing call fails the test. */
#pragma once

#include "server/formats/packed_reader.h"
#include "server/formats/packed_writer.h"
#include "tests/lib/scratch.h"

/* Returns a format that is laid out: INT8 codes of F32, `rows` rows of `elements` elements, one
 * file, no unknown row and no keys. */
struct eb_packed_format eb_packed_fixture_format(uint64_t rows, uint64_t elements);

/* Returns the byte at an offset of the file. The offset must be in a section. */
uint8_t eb_packed_fixture_byte(uint64_t offset);

/* Writes ROOT/name and sets the format's digest. */
void eb_packed_fixture_write(
    const struct eb_scratch *scratch, const char *name, struct eb_packed_format *format);

/* Opens a file and checks every block. Returns false with *failure set if a check fails. */
bool eb_packed_fixture_verify(const char *path, struct eb_failure *failure);

/* Computes the digest of the head and writes it into the head. */
void eb_packed_fixture_sign(uint8_t *head, uint64_t head_bytes);
