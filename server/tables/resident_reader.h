/* Opens a resident file (resident_dir.h) to adopt its tables: reads the footer, compares rows with
 * their hashes, and maps the file. Rows are read with eb_resident_dir_read_range.
 * Thread: one at a time. Memory: the footer is on the heap; one descriptor
 * while open. */
#pragma once

#include "server/tables/table_mapping.h"

struct eb_resident_reader {
    struct eb_resident_dir *dir;
    char name[EB_RESIDENT_NAME_BYTES];
    int descriptor;
    uint64_t bytes; /* of the file */
    struct eb_resident_footer footer;
};

/* Opens the file and reads its footer. Returns false with nothing open: *failure is empty if there
 * is no such file, and otherwise has the reason. */
bool eb_resident_reader_open(struct eb_resident_reader *reader, struct eb_resident_dir *dir,
    const char *name, struct eb_failure *failure);
void eb_resident_reader_close(struct eb_resident_reader *reader);

/* Returns how many chunks of rows the file has. */
uint64_t eb_resident_reader_chunk_count(const struct eb_resident_reader *reader);
/* Compares one of every `step` chunks with its hash, and at least one of each table. The
 * chunks are chosen at random. With a step of 1, all chunks are compared, and so are the indexes of
 * keyed tables. Returns false with *failure set if a chunk or an index is damaged or cannot be
 * read. */
bool eb_resident_reader_check(
    const struct eb_resident_reader *reader, uint64_t step, struct eb_failure *failure);
/* Maps the file and makes its pages present. Returns NULL with *failure set if that fails. */
struct eb_table_mapping *eb_resident_reader_map(
    const struct eb_resident_reader *reader, struct eb_failure *failure);
