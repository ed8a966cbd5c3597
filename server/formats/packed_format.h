/* The head of TABLE.embag, a table that is packed once and loaded many times. The file has the rows
 * as they lie in memory (kernels/table.h), quantised or not, the keys of a keyed table, and
 * checksums that reveal any changed bit. Numbers are little-endian.
 *
 *   offset  bytes  of the header
 *        0      8  magic: 93 "EMBAG" 0d 0a; no text contains it, and text mode would change it
 *        8      8  digest: XXH3-64 of everything after it in the head
 *       16      4  version: 1
 *       20      4  storage: the number of enum eb_storage
 *       24      4  T: the number of enum eb_type, one that the storage may have (eb_storage_holds)
 *       28      4  rank: 1 to 8
 *       32     64  shape, by dimension: rows of this file, then a row's; zeros after the rank
 *       96      8  rows_total: of the whole table; this file may hold a piece of it
 *      104      8  row_first: rows of this file's part that are in the files before it
 *      112      4  parts: into which the table's rows are divided; 1 for all rows
 *      116      4  part: from 0
 *      120      8  row of the whole table that stands for unknown ids; -1 if there is none
 *      128      8  row_stride: bytes from one row to the next
 *      136      8  row_offset: of a row's values; 8 for codes, after their f32 scale and bias
 *      144      8  head_bytes: header and checksums, filled up to a multiple of 4096
 *      152      8  file_bytes
 *      160     16  rows: offset and bytes, including the gap after the last row
 *      176     16  keys: int64, one for each row; zeros if there are none
 *      192     16  key index: as in kernels/key_index.h; zeros if it must be built from the keys
 *      208      8  packing: equal in files packed together, and in no others; 0 if not known
 *      216      4  by_key: 1 for a part by keys; 0 for a part by row numbers
 *      220      4  zeros
 *      224      8  salt: of a part by keys, not 0 (part_of.h); otherwise 0
 *      232    280  zeros
 *      512   8 each  checksums: XXH3-64 of each block of 1 MiB after the head; the last may be
 *                   shorter
 *
 * Rows, keys and key index follow the head in this order, each at the next multiple of 4096, so
 * that a file can be mapped. The last of them ends the file. Rows are not aligned to 2 MiB: page
 * caches hold files in small pages, and a file of ten rows would take 2 MiB.
 *
 * Every byte, including the zeros between sections, is in the magic, in the range of the digest or
 * in a block. So every changed bit and every truncation is noticed. The digest covers the
 * checksums, so equal digests mean equal tables. Neither protects against deliberate forgery.
 *
 * A part by row numbers holds the rows r of the table with r mod parts = part, or a range of them.
 * A part by keys holds all rows whose key is in that part (part_of.h), in the order of the table,
 * so it may have any number of rows. Its row_first is 0. If the table has a row for unknown ids,
 * which unknown_row numbers in the whole table, that row and its key are the last ones of every
 * part. Readers that do not know parts by keys refuse them, because they expect zeros.
 *
 * Pieces form one table only if they were packed together. The packing is eb_packed_format_chain
 * over the digests that the files, in their order, would have if their packing were 0. So equal
 * tables that are packed in the same way give equal files. A piece that is packed again by itself
 * keeps its packing.
 *
 * Thread: pure functions. Memory: none. */
#pragma once

#include "server/formats/tensor.h"

#include <stdbool.h>

#define EB_PACKED_FORMAT_SUFFIX ".embag"
#define EB_PACKED_FORMAT_HEADER_BYTES 512
#define EB_PACKED_FORMAT_ALIGNMENT 4096
#define EB_PACKED_FORMAT_BLOCK_BYTES (UINT64_C(1) << 20)
/* Largest file. This limits the memory that a head takes to 128 MiB. */
#define EB_PACKED_FORMAT_FILE_BYTES_MAX (UINT64_C(1) << 44)

enum eb_packed_kind { EB_PACKED_ROWS, EB_PACKED_KEYS, EB_PACKED_KEY_INDEX, EB_PACKED_KIND_COUNT };

/* Range of a section in the file. Offset and bytes are 0 if the section is missing. */
struct eb_packed_section {
    uint64_t offset;
    uint64_t bytes;
};

struct eb_packed_format {
    /* Describes this file's rows. data_offset and data_bytes are those of the section of rows: row
     * r begins at data_offset + r * row_stride_bytes, with its scale and bias if it has them. */
    struct eb_tensor tensor;
    enum eb_type type;
    bool by_key; /* a part by keys */
    uint64_t row_stride_bytes;
    uint64_t row_offset_bytes; /* offset of a row's values, as in struct eb_row_format */
    uint64_t rows_total;
    uint64_t row_first;
    uint32_t parts;
    uint32_t part;
    int64_t unknown_row;
    uint64_t packing;
    uint64_t salt; /* 0 unless by_key */
    struct eb_packed_section sections[EB_PACKED_KIND_COUNT];
    uint64_t head_bytes;
    uint64_t file_bytes;
    uint64_t digest;
};

/* Computes the offsets and sizes of a file's contents. The caller has set storage, rank, dims,
 * type, row_stride_bytes, bytes of keys and key index, rows_total, row_first, parts, part,
 * unknown_row, packing, by_key and salt. Returns false if that is not possible: *failure names the
 * field that is wrong. */
bool eb_packed_format_lay_out(struct eb_packed_format *format, struct eb_failure *failure);

/* Returns the number of rows in part `part`, by row numbers, of a table of rows_total rows. These
 * are the rows with row mod parts = part. */
uint64_t eb_packed_format_part_rows(uint64_t rows_total, uint32_t parts, uint32_t part);
/* Returns whether a file holds all rows of its table at their numbers in the table. A part by keys
 * never does. */
bool eb_packed_format_is_whole(const struct eb_packed_format *format);

/* Returns whether the file is that of a keyed table: it has keys or, if it has no rows, an empty
 * key index, or it is a part by keys. */
bool eb_packed_format_is_keyed(const struct eb_packed_format *format);

/* Return the number of blocks after the head, and the number of bytes in one of them. */
uint64_t eb_packed_format_block_count(const struct eb_packed_format *format);
uint64_t eb_packed_format_block_bytes(const struct eb_packed_format *format, uint64_t block);
/* Returns the checksum of a block's bytes. */
uint64_t eb_packed_format_checksum(const void *bytes, uint64_t size);
/* Returns the offset of a block's checksum in the head. */
uint64_t eb_packed_format_checksum_offset(uint64_t block);

/* Writes the header into a head of head_bytes bytes, for a format that eb_packed_format_lay_out has
 * completed. The head's checksums must be set, and its other bytes zero. Sets the digest. */
void eb_packed_format_write(struct eb_packed_format *format, uint8_t *head);

/* Finds the size of the head of a file of file_bytes bytes. `header` is the first
 * EB_PACKED_FORMAT_HEADER_BYTES bytes of the file, or the whole file if it is shorter. Returns
 * false with *failure set if it is not a packed file, has another version or is cut short. */
bool eb_packed_format_measure(
    const uint8_t *header, uint64_t file_bytes, uint64_t *head_bytes, struct eb_failure *failure);
/* Returns the packing of a list of files. `chain` is the packing of the list without its last file,
 * or 0 if that list is empty; `digest` is the digest of the last file. */
uint64_t eb_packed_format_chain(uint64_t chain, uint64_t digest);

/* Reads a whole head. Returns false with *failure set if it is damaged or its fields are not
 * valid. */
bool eb_packed_format_parse(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_packed_format *format, struct eb_failure *failure);
