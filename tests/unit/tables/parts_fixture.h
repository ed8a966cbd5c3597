/* A version in parts for tests: packed files with rows and keys, and their manifest.
 * Thread: one at a time. Memory: none. A failing call fails the test. */
#pragma once

#include "server/formats/parts_manifest.h"
#include "tests/lib/scratch.h"

struct eb_parts_fixture_table {
    const char *name;
    enum eb_placement placement;
    uint32_t part; /* of WHOLE */
    bool is_keyed;
    bool has_unknown_row;
    uint64_t unknown_row;
    int64_t unknown_key;     /* as the manifest has it, if the table is keyed */
    enum eb_storage storage; /* UNSPECIFIED: INT8, with values of F32 */
    enum eb_type type;       /* of `storage`, if that is given */
    uint64_t rows;
    uint64_t elements; /* 0: the table has rank 1 */
};

/* Writes the version's files, its folders of parts and then its manifest to the directory
 * ROOT/name. The bytes of sections are those of packed_fixture.h. `lineage` is "" if there is none.
 */
void eb_parts_fixture_write(const struct eb_scratch *scratch, const char *name, uint32_t parts,
    const char *lineage, const struct eb_parts_fixture_table *tables, size_t count);
