/* The footer of a resident file: a file in a RAM file system that holds tables as they lie in
 * memory (resident_dir.h).
 *
 * A file consists of the tables' rows, keys and indexes at the offsets that the footer gives, then
 * zeros, then the footer, which ends where the file ends, at a multiple of 2 MiB. All numbers are
 * little-endian. The footer ends with a trailer of 32 bytes
 *
 *   u64 digest          XXH3-64 of the trailer's other 24 bytes, with the XXH3-64 of the footer's
 *                       bytes before the trailer as the seed
 *   u32 footer_bytes    bytes of the whole footer
 *   u32 layout_version  EB_RESIDENT_LAYOUT_VERSION of the writer
 *   u8  magic[16]       "embag resident\0\1"
 *
 * Before the trailer, it has the following, in this order. Each number is a u64. Each text is a u64
 * with its size in bytes, then its bytes, then one to eight zeros up to a multiple of 8.
 *
 *   numa; embag's version and the source directory as texts; the number of tables; for each table
 *   its name; type, storage, rank and dims; row offset, row stride, rows offset, rows bytes, index
 *   offset, index bytes, index hash, source key, digest, rows of a chunk, number of chunks and the
 *   hash of each chunk
 *
 * A reader made for another layout version can rely only on the trailer.
 * Thread: pure functions. Memory: a decoded footer is on the heap. */
#pragma once

#include "kernels/types.h"
#include "server/base/failure.h"
#include "server/formats/tensor.h"

#include <stddef.h>
#include <stdint.h>

/* Raise it when the same table files lead to different bytes in memory: when the layout of rows,
 * gaps, keys or the key index changes, when a conversion rounds differently, or when a format or
 * storage gets another number. Also raise it when the footer changes. It is a part of source keys
 * (source_key.h), so that tables that an earlier build left behind match no key. */
#define EB_RESIDENT_LAYOUT_VERSION 1u

/* A resident file's size is a multiple of this. */
#define EB_RESIDENT_PAGE_BYTES (UINT64_C(2) << 20)
#define EB_RESIDENT_TRAILER_BYTES 32u
/* Largest footer. A table of 1 TiB in chunks of 512 KiB needs a footer of 16 MiB. */
#define EB_RESIDENT_FOOTER_BYTES_MAX (UINT32_C(64) << 20)
/* Most tables in one file, that is, most small tables of a version. */
#define EB_RESIDENT_TABLES_MAX 65536u
/* Most bytes of a table's name, of the source's path and of embag's version. */
#define EB_RESIDENT_TEXT_BYTES_MAX 4096u
/* Most bytes of a chunk of several rows. A reader copies each chunk to check it. embag writes
 * chunks of 512 KiB, or of one row if a row is larger. */
#define EB_RESIDENT_CHUNK_BYTES_MAX (UINT64_C(64) << 20)

struct eb_resident_table {
    const char *name; /* valid as eb_name_error defines; of the version the file was made for */
    enum eb_type type;
    enum eb_storage storage;
    uint32_t rank; /* at least 1 */
    uint64_t dims[EB_TENSOR_RANK_MAX];
    uint64_t row_offset_bytes; /* of the values in a row */
    uint64_t row_stride_bytes;
    uint64_t rows_offset; /* in the file; a multiple of 64 */
    uint64_t rows_bytes;
    uint64_t index_offset;        /* of keys and index; a multiple of 64; 0 if not keyed */
    uint64_t index_bytes;         /* 0 if the table is not keyed */
    uint64_t index_hash;          /* XXH3-64 of keys and index; 0 if the table is not keyed */
    uint64_t source_key;          /* digest of what the table was made from */
    uint64_t digest;              /* digest of its content */
    uint64_t chunk_rows;          /* rows of each chunk but the last, at least 1 */
    uint64_t chunk_count;         /* rows divided by chunk_rows, rounded up */
    const uint64_t *chunk_hashes; /* [chunk_count] XXH3-64 of each chunk's rows in memory; may be
                                     NULL if there are none */
};

struct eb_resident_footer {
    uint64_t file_bytes;       /* of the whole file, a multiple of EB_RESIDENT_PAGE_BYTES */
    uint32_t numa;             /* enum eb_numa that the pages were placed by */
    const char *embag_version; /* of the writer, for humans to read */
    const char *source;        /* directory that the tables were loaded from, for humans */
    size_t table_count;        /* at least 1 */
    const struct eb_resident_table *tables;
    void *memory; /* of a decoded footer: holds everything above */
};

enum eb_resident_footer_outcome {
    EB_RESIDENT_FOOTER_GOOD,
    EB_RESIDENT_FOOTER_OTHER_LAYOUT, /* a complete file of another layout version */
    EB_RESIDENT_FOOTER_DAMAGED,      /* *failure has the reason; also if out of memory */
};

/* Returns the bytes that the footer takes; UINT64_MAX if it has no table or exceeds a limit. */
uint64_t eb_resident_footer_bytes(const struct eb_resident_footer *footer);
/* Returns the size of a file with data_bytes bytes of tables and this footer; UINT64_MAX if a limit
 * is exceeded. */
uint64_t eb_resident_footer_file_bytes(
    const struct eb_resident_footer *footer, uint64_t data_bytes);
/* Writes the footer to the eb_resident_footer_bytes bytes that end at `end`. */
void eb_resident_footer_encode(const struct eb_resident_footer *footer, uint8_t *end);

/* Reads the size of the whole footer from a trailer. Returns false if the trailer is not one. */
bool eb_resident_footer_find(
    const uint8_t trailer[EB_RESIDENT_TRAILER_BYTES], uint64_t file_bytes, uint32_t *footer_bytes);
/* Decodes a footer and checks its digest, every limit, that its numbers agree with each other, and
 * that all tables lie within the file's data, in ascending order and without overlap. Encoding an
 * accepted footer gives the same bytes. `bytes` are the last `size` bytes of a file of file_bytes
 * bytes. The caller deinits *footer if the outcome is GOOD; otherwise nothing is allocated. */
enum eb_resident_footer_outcome eb_resident_footer_decode(const uint8_t *bytes, uint32_t size,
    uint64_t file_bytes, struct eb_resident_footer *footer, struct eb_failure *failure);
/* Accepts a zeroed footer. */
void eb_resident_footer_deinit(struct eb_resident_footer *footer);
