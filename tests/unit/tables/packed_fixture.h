/* A packed table for tests, with bytes that count up in every section, written as a file and read
 * back to its last block.
 * Thread: one at a time. Memory: none. A failing call fails the test. */
#pragma once

#include "server/formats/packed_reader.h"
#include "server/formats/packed_writer.h"
#include "tests/lib/scratch.h"

/* INT8 codes of F32, `rows` rows of `elements`, in one file, without unknown row and keys. Laid
 * out. */
struct eb_packed_format eb_packed_fixture_format(uint64_t rows, uint64_t elements);

/* The byte at an offset of the file, which is in a section. */
uint8_t eb_packed_fixture_byte(uint64_t offset);

/* Writes ROOT/name; sets the format's digest. */
void eb_packed_fixture_write(
    const struct eb_scratch *scratch, const char *name, struct eb_packed_format *format);

/* Opens a file and checks every block. false: *error. */
bool eb_packed_fixture_verify(const char *path, struct eb_failure *failure);

/* Sets the digest to what the head's bytes give. */
void eb_packed_fixture_sign(uint8_t *head, uint64_t head_bytes);
