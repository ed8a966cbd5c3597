/* A packed table (packed_format.h) that is read from its file, every byte compared with its
 * checksum before it is handed out.
 * Thread: one at a time. Memory: the head and one block are on the heap. */
#pragma once

#include "server/formats/packed_format.h"
#include "server/formats/table_file.h"

struct eb_packed_reader {
    const struct eb_table_file *file;
    struct eb_packed_format format;
    uint8_t *head;
    uint8_t *block;       /* room for the largest block, */
    uint64_t block_index; /* and which it is that is there, checked; UINT64_MAX: none */
};

/* Reads and checks the head; *file, which is open, is used until close. false: *failure, without
 * the path; nothing is open then. */
bool eb_packed_reader_open(
    struct eb_packed_reader *reader, const struct eb_table_file *file, struct eb_failure *failure);
/* Accepts a zeroed reader. Leaves the file open. */
void eb_packed_reader_close(struct eb_packed_reader *reader);

/* The `bytes` bytes at `offset` of the file, which lie between the head and the file's end. Whole
 * blocks go straight to `out`, so large portions that end between blocks are best. false: *failure
 * names the block that is damaged or cannot be read; what is at `out` is of no use. */
bool eb_packed_reader_read(struct eb_packed_reader *reader, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure);

/* Reads one block only to check it; there are eb_packed_format_block_count. */
bool eb_packed_reader_check(
    struct eb_packed_reader *reader, uint64_t block, struct eb_failure *failure);
