/* VERSION/manifest.yaml of a version in parts: names its tables, where each of them lies, and the
 * digests of their packed files. It is written last, so a version that has one is complete.
 *
 *   format: 1
 *   parts: 16
 *   salt: "5bd1e995a1b2c3d4"     # 16 hex digits, not 0 (part_of.h)
 *   lineage: dlrm-2026-11        # optional
 *   tables:
 *     - {name: "t01", placement: everywhere, type: f32, storage: int8, shape: [128],
 *        rows_total: 2000, digests: ["0f1e2d3c4b5a6978"]}
 *     - {name: "t07", placement: whole, part: 5, type: f32, storage: int8, shape: [128],
 *        rows_total: 3000000, digests: ["..."]}
 *     - {name: "t20", placement: rows, keyed: true, unknown_row: 7, unknown_key: -12, type: f32,
 *        storage: int8, shape: [128], rows_total: 40000000,
 *        digests: ["...", one for each part]}
 *
 * A file with `tables` is this format; one with `files` is that of manifest.h. The rows of part 3
 * and the tables placed whole in it are in VERSION/part-00003-of-00016/, tables placed everywhere
 * are beside the manifest; each is one packed file TABLE.embag. A digest is the one in the file's
 * header (packed_format.h). `lineage` is a name: versions with the same one may take each other's
 * place for the same caller. Optional: `lineage`, `keyed` (false), `unknown_row` (none),
 * `unknown_key`, the key of that row, and `shape`, the trailing dims, which is empty for a table of
 * rank 1. `part` is given for `whole` alone. Unknown keys and everything else that yaml_load.h
 * refuses are errors.
 *
 * Thread: any. Memory: the tables are on the heap. */
#pragma once

#include "kernels/types.h"
#include "server/base/failure.h"
#include "server/formats/part_of.h"
#include "server/formats/tensor.h"

#include <stddef.h>

struct eb_table_file;

/* Most tables of a version in parts. The number of digests, which may be tables times parts, is
 * bounded by the manifest's bytes (manifest_text.h). */
#define EB_PARTS_TABLES_MAX 65536u
/* Most bytes of a lineage, or of a table's name. */
#define EB_PARTS_NAME_BYTES_MAX 245u

/* X(NAME, text) */
#define EB_PLACEMENT_LIST(X)                                                                       \
    X(EVERYWHERE, "everywhere") /* every router has the whole table */                             \
    X(WHOLE, "whole")           /* the whole table is in one part */                               \
    X(ROWS, "rows")             /* the rows are divided among all parts */

#define X(name, ...) EB_PLACEMENT_##name,
enum eb_placement { EB_PLACEMENT_LIST(X) EB_PLACEMENT_COUNT };
#undef X

struct eb_parts_table {
    char *name;
    enum eb_placement placement;
    uint32_t part; /* of WHOLE; else 0 */
    bool is_keyed;
    bool has_unknown_row;
    uint64_t unknown_row; /* number of the row in the whole table; 0 if has_unknown_row is false */
    bool has_unknown_key; /* only with has_unknown_row, and if keyed */
    int64_t unknown_key;  /* key of that row */
    enum eb_type type;
    enum eb_storage storage;
    uint32_t shape_count; /* 0 to EB_TENSOR_RANK_MAX - 1 */
    uint64_t shape[EB_TENSOR_RANK_MAX - 1];
    uint64_t rows_total;
    size_t digest_count; /* 1, or the number of parts for ROWS */
    uint64_t *digests;
};

struct eb_parts_manifest {
    uint32_t parts;
    uint64_t salt;
    char *lineage;   /* empty: none */
    uint64_t digest; /* XXH3-64 of the manifest's bytes: the version's digest */
    size_t count;
    struct eb_parts_table *tables; /* sorted by name, with strcmp */
};

const char *eb_placement_name(enum eb_placement placement);

/* Returns whether the bytes are a manifest of a version in parts, valid or not: whether a line
 * begins with "tables:". */
bool eb_parts_manifest_is(const uint8_t *yaml, size_t yaml_bytes);
/* Parses a manifest. If it is not valid, returns false with *manifest empty: *failure has the
 * position, such as "tables[2].rows_total" (counted from 0), the value and what is expected. */
bool eb_parts_manifest_parse(const uint8_t *yaml, size_t yaml_bytes,
    struct eb_parts_manifest *manifest, struct eb_failure *failure);
/* Reads and parses the manifest in an open file. *yaml is then its text, which the caller frees.
 * Returns false with *manifest empty, *yaml NULL and *failure set, without the path, if that fails.
 */
bool eb_parts_manifest_read(struct eb_table_file *file, struct eb_parts_manifest *manifest,
    char **yaml, struct eb_failure *failure);
/* Returns the text of a manifest, which the caller frees, and its length; ignores
 * manifest->digest. Returns NULL with *failure set if out of memory, if eb_parts_manifest_parse
 * would refuse it, if the tables are not sorted, or if the text is too long. */
char *eb_parts_manifest_write(
    const struct eb_parts_manifest *manifest, size_t *text_bytes, struct eb_failure *failure);
/* Accepts a zeroed manifest. */
void eb_parts_manifest_deinit(struct eb_parts_manifest *manifest);

/* Returns the table of that name, or NULL if there is none. */
const struct eb_parts_table *eb_parts_manifest_find(
    const struct eb_parts_manifest *manifest, const char *name);
/* Returns how the rows of the manifest's tables are divided, for a table that is keyed or not. */
struct eb_part_rule eb_parts_manifest_rule(const struct eb_parts_manifest *manifest, bool by_key);

struct eb_packed_format;

/* Compares the header of a table's packed file with the manifest. `number` is that of the file
 * among the table's, from 0. Returns false with *failure set, without the path, if the file is
 * another one. */
bool eb_parts_manifest_check(const struct eb_parts_manifest *manifest,
    const struct eb_parts_table *table, uint32_t number, const struct eb_packed_format *format,
    struct eb_failure *failure);

#define EB_PART_FOLDER_BYTES 32
/* Writes the name of a part's folder, "part-00003-of-00016". */
void eb_part_folder_name(uint32_t part, uint32_t parts, char name[EB_PART_FOLDER_BYTES]);
