/* Reads the data of a piece from its file. The file must not have changed since it was scanned.
 * Data of packed files is compared with its checksums.
 * Thread: one at a time. Memory: for a packed file, that of struct eb_packed_reader. */
#pragma once

#include "server/contents/version_scan.h"
#include "server/formats/packed_reader.h"

struct eb_piece_reader {
    const char *path; /* borrowed from the scan */
    struct eb_table_file file;
    struct eb_packed_reader packed;
    bool is_packed;
};

/* Opens the file of a piece. The reader must not move until it is closed. Returns false with
 * nothing open: *failure names the file. */
bool eb_piece_reader_open(struct eb_piece_reader *reader, const struct eb_version_scan *scan,
    const struct eb_piece *piece, struct eb_failure *failure);
void eb_piece_reader_close(struct eb_piece_reader *reader);

/* Reads `bytes` bytes at `offset` of the file. Returns false if that fails: *failure names the
 * file. */
bool eb_piece_reader_read(struct eb_piece_reader *reader, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure);
