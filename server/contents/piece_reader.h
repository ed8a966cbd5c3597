/* The data of a piece, read from its file, which must be as it was when it was scanned; of packed
 * files, compared with their checksums.
 * Thread: one at a time. Memory: what a packed reader takes. */
#pragma once

#include "server/contents/version_scan.h"
#include "server/formats/packed_reader.h"

struct eb_piece_reader {
    const char *path; /* the scan's */
    struct eb_table_file file;
    struct eb_packed_reader packed;
    bool is_packed;
};

/* The reader stays where it is until it is closed. false: *failure names the file; nothing is open.
 */
bool eb_piece_reader_open(struct eb_piece_reader *reader, const struct eb_version_scan *scan,
    const struct eb_piece *piece, struct eb_failure *failure);
void eb_piece_reader_close(struct eb_piece_reader *reader);

/* The `bytes` bytes at `offset` of the file. false: *failure names the file. */
bool eb_piece_reader_read(struct eb_piece_reader *reader, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure);
