/* Reads a packed table (packed_format.h) from its file. Every byte is compared with its checksum
 * before it is handed out.
 * Thread: one at a time. Memory: the head and one block are on the heap. */
#pragma once

#include "server/formats/packed_format.h"
#include "server/formats/table_file.h"

struct eb_packed_reader {
    struct eb_table_file *file;
    struct eb_packed_format format;
    uint8_t *head;
    uint8_t *block;       /* room for the largest block */
    uint64_t block_index; /* index of the checked block that `block` holds; UINT64_MAX if there is
                             none */
};

/* Reads and checks the head. `file` must be open, and is borrowed until close. If that fails,
 * returns false with nothing open: *failure has the reason, without the path. */
bool eb_packed_reader_open(
    struct eb_packed_reader *reader, struct eb_table_file *file, struct eb_failure *failure);
/* Accepts a zeroed reader. Leaves the file open. */
void eb_packed_reader_close(struct eb_packed_reader *reader);

/* Reads `bytes` bytes at `offset` of the file, which must lie between the head and the file's end.
 * Whole blocks are read straight to `out`, so large portions that end at block boundaries are best.
 * Returns false if a block is damaged or cannot be read: *failure names the block, and the bytes at
 * `out` are not valid. */
bool eb_packed_reader_read(struct eb_packed_reader *reader, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure);

/* Reads one block only to check it. eb_packed_format_block_count returns how many blocks there
 * are. */
bool eb_packed_reader_check(
    struct eb_packed_reader *reader, uint64_t block, struct eb_failure *failure);
