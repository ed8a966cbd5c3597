/* The head of TABLE.embag, a table that is packed once to be loaded many times: its rows as they
 * lie in memory (kernels/row_format.h), quantised or not, what makes it a keyed table, and proof
 * that no bit of it has changed. Numbers are little-endian.
 *
 *   offset  bytes  of the header
 *        0      8  magic: 93 "EMBAG" 0d 0a, which no text has and no text mode leaves as it is
 *        8      8  digest: XXH3-64 of all that follows it in the head
 *       16      4  version: 1
 *       20      4  storage: the number of enum eb_storage
 *       24      4  T: the number of enum eb_type, one that the storage may have (eb_storage_holds)
 *       28      4  rank: 1 to 8
 *       32     64  shape, by dimension: rows of this file, then a row's; zeros behind the rank
 *       96      8  rows_total: of the whole table, of which this file may hold a piece
 *      104      8  row_first: rows of this file's part that are in the files before it
 *      112      4  parts: this file's rows r are those with r mod parts = part; 1: all rows
 *      116      4  part: from 0
 *      120      8  row that stands for unknown ids, a row of the whole table; -1: there is none
 *      128      8  row_stride: bytes from one row to the next
 *      136      8  row_offset: of a row's values; codes have f32 scale and bias before them: 8
 *      144      8  head_bytes: header and checksums, filled up to a multiple of 4096
 *      152      8  file_bytes
 *      160     16  rows: offset and bytes, the last row's gap included
 *      176     16  keys: int64, one for each row; zeros: there are none
 *      192     16  key index: as kernels/key_index.h lays it out; zeros: it is made of the keys
 *      208      8  packing: the same in all files of one packing and in those only; 0: not known
 *      216    296  zeros
 *      512   8 each  checksums: XXH3-64 of each block of 1 MiB behind the head; the last is short
 *
 * Rows, keys and key index follow the head in this order, each at the next multiple of 4096, so
 * that a file can be mapped; the last one ends the file. Rows are not aligned to 2 MiB: page caches
 * hold files in small pages, and a file of ten rows would have 2 MiB. Every byte is in the magic,
 * in what the digest covers or in a block, the zeros between sections included: no change of one
 * bit and no truncation goes unnoticed. The digest covers the checksums, so that equal digests mean
 * equal tables; neither is proof against someone who means to deceive.
 *
 * Pieces of a table are one table only if they were packed together: the packing is
 * eb_packed_format_chain over the digests that the files would have were it 0, in their order, so
 * that equal tables packed in equal ways give equal files. A piece that is packed again by itself
 * keeps it.
 *
 * Thread: pure functions. Memory: none. */
#pragma once

#include "server/formats/tensor.h"

#include <stdbool.h>

#define EB_PACKED_FORMAT_SUFFIX ".embag"
#define EB_PACKED_FORMAT_HEADER_BYTES 512
#define EB_PACKED_FORMAT_ALIGNMENT 4096
#define EB_PACKED_FORMAT_BLOCK_BYTES (UINT64_C(1) << 20)
/* Largest file, which bounds the memory that a head takes to 128 MiB. */
#define EB_PACKED_FORMAT_FILE_BYTES_MAX (UINT64_C(1) << 44)

enum eb_packed_kind { EB_PACKED_ROWS, EB_PACKED_KEYS, EB_PACKED_KEY_INDEX, EB_PACKED_KIND_COUNT };

/* Where a section lies in the file; of one that is not there, both are 0. */
struct eb_packed_section {
    uint64_t offset;
    uint64_t bytes;
};

struct eb_packed_format {
    /* Of this file's rows. data_offset and data_bytes are those of the section of rows: row r
     * begins at data_offset + r * row_stride_bytes, with its scale and bias where it has them. */
    struct eb_tensor tensor;
    enum eb_type type;
    uint64_t row_stride_bytes;
    uint64_t row_offset_bytes; /* of a row's values, as in struct eb_row_format */
    uint64_t rows_total;
    uint64_t row_first;
    uint32_t parts;
    uint32_t part;
    int64_t unknown_row;
    uint64_t packing;
    struct eb_packed_section sections[EB_PACKED_KIND_COUNT];
    uint64_t head_bytes;
    uint64_t file_bytes;
    uint64_t digest;
};

/* Says where all lies, for a table of which storage, rank, dims, type, row_stride_bytes and the
 * bytes of keys and key index are set, and the four that say which rows these are, unknown_row and
 * packing. false: *failure names the field that cannot be so. */
bool eb_packed_format_lay_out(struct eb_packed_format *format, struct eb_failure *failure);

/* Rows of part `part` of a table of so many rows: those with row mod parts = part. */
uint64_t eb_packed_format_part_rows(uint64_t rows_total, uint32_t parts, uint32_t part);
/* Whether a file holds all rows of its table. */
bool eb_packed_format_is_whole(const struct eb_packed_format *format);

/* Whether it is of a keyed table: it has keys, or, where it has no rows, an index of none. */
bool eb_packed_format_is_keyed(const struct eb_packed_format *format);

/* Blocks behind the head, and the bytes of one of them. */
uint64_t eb_packed_format_block_count(const struct eb_packed_format *format);
uint64_t eb_packed_format_block_bytes(const struct eb_packed_format *format, uint64_t block);
/* The checksum of a block's bytes. */
uint64_t eb_packed_format_checksum(const void *bytes, uint64_t size);
/* Where the head says what the checksum of a block is, for both reading and writing. */
uint64_t eb_packed_format_checksum_offset(uint64_t block);

/* Writes the header of a format that is laid out into a head of head_bytes whose checksums are
 * there and whose other bytes are zero; sets the digest. */
void eb_packed_format_write(struct eb_packed_format *format, uint8_t *head);

/* The size of the head of a file of file_bytes, by the first bytes of it, of which there must be
 * EB_PACKED_FORMAT_HEADER_BYTES or the whole file. false: *failure, it is no packed file, one of
 * another version, or cut short. */
bool eb_packed_format_measure(
    const uint8_t *header, uint64_t file_bytes, uint64_t *head_bytes, struct eb_failure *failure);
/* The packing of files of which the last has this digest and those before it this chain; 0 before
 * the first. */
uint64_t eb_packed_format_chain(uint64_t chain, uint64_t digest);

/* Reads a whole head. false: *failure, it is damaged or says what cannot be. */
bool eb_packed_format_parse(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_packed_format *format, struct eb_failure *failure);
