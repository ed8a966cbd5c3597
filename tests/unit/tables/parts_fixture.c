#include "tests/unit/tables/parts_fixture.h"

#include "kernels/table.h"
#include "server/formats/manifest_text.h"
#include "tests/unit/tables/packed_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SALT UINT64_C(0x5bd1e995a1b2c3d4)

/* Writes a packed file of a table: number `number` of `count`. Returns its digest. */
static uint64_t write_part_file(const struct eb_scratch *scratch, const char *path,
    const struct eb_parts_fixture_table *table, uint32_t number, uint32_t count)
{
    bool is_divided = table->placement == EB_PLACEMENT_ROWS;
    bool is_given = table->storage != EB_STORAGE_UNSPECIFIED;
    uint64_t rows = eb_packed_format_part_rows(table->rows, count, number);
    struct eb_packed_format format = {
        .tensor = {.storage = is_given ? table->storage : EB_STORAGE_INT8,
            .rank = table->elements > 0 ? 2 : 1,
            .dims = {rows, table->elements}},
        .type = is_given ? table->type : EB_F32,
        .by_key = is_divided && table->is_keyed,
        .rows_total = table->rows,
        .parts = count,
        .part = number,
        .unknown_row = table->has_unknown_row ? (int64_t)table->unknown_row : -1,
    };
    struct eb_failure failure = {.text = ""};
    format.salt = format.by_key ? SALT : 0;
    format.row_stride_bytes =
        eb_row_format_of(format.tensor.storage, (uint32_t)eb_tensor_row_elements(&format.tensor))
            .stride_bytes;
    format.sections[EB_PACKED_KEYS].bytes = table->is_keyed ? rows * sizeof(int64_t) : 0;
    if (!eb_packed_format_lay_out(&format, &failure)) {
        fail_msg("%s", failure.text);
    }
    eb_packed_fixture_write(scratch, path, &format);
    return format.digest;
}

/* Writes the files of a table, and describes it. */
static struct eb_parts_table write_part_table(const struct eb_scratch *scratch, const char *name,
    uint32_t parts, const struct eb_parts_fixture_table *table)
{
    bool is_given = table->storage != EB_STORAGE_UNSPECIFIED;
    struct eb_parts_table listed = {
        .name = strdup(table->name),
        .placement = table->placement,
        .part = table->part,
        .is_keyed = table->is_keyed,
        .has_unknown_row = table->has_unknown_row,
        .unknown_row = table->unknown_row,
        .has_unknown_key = table->is_keyed && table->has_unknown_row,
        .unknown_key = table->is_keyed && table->has_unknown_row ? table->unknown_key : 0,
        .type = is_given ? table->type : EB_F32,
        .storage = is_given ? table->storage : EB_STORAGE_INT8,
        .shape_count = table->elements > 0,
        .shape = {table->elements},
        .rows_total = table->rows,
        .digest_count = table->placement == EB_PLACEMENT_ROWS ? parts : 1,
        .digests = calloc(parts, sizeof *listed.digests),
    };
    assert_true(listed.name && listed.digests);
    for (uint32_t i = 0; i < listed.digest_count; i++) {
        char folder[EB_PART_FOLDER_BYTES] = ".";
        char path[EB_SCRATCH_PATH_BYTES];
        if (table->placement != EB_PLACEMENT_EVERYWHERE) {
            eb_part_folder_name(table->part + i, parts, folder);
        }
        snprintf(path, sizeof path, "%s/%s/%s.embag", name, folder, table->name);
        listed.digests[i] = write_part_file(scratch, path, table, i, (uint32_t)listed.digest_count);
    }
    return listed;
}

static int compare_listed(const void *left, const void *right)
{
    return strcmp(
        ((const struct eb_parts_table *)left)->name, ((const struct eb_parts_table *)right)->name);
}

void eb_parts_fixture_write(const struct eb_scratch *scratch, const char *name, uint32_t parts,
    const char *lineage, const struct eb_parts_fixture_table *tables, size_t count)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_failure failure = {.text = ""};
    size_t text_bytes;
    struct eb_parts_manifest manifest = {
        .parts = parts,
        .salt = SALT,
        .lineage = strdup(lineage),
        .count = count,
        .tables = calloc(count, sizeof *manifest.tables),
    };
    assert_true(manifest.lineage && manifest.tables);
    for (uint32_t part = 0; part < parts; part++) {
        char folder[EB_PART_FOLDER_BYTES];
        eb_part_folder_name(part, parts, folder);
        snprintf(path, sizeof path, "%s/%s", name, folder);
        eb_scratch_make_directory(scratch, path);
    }
    for (size_t i = 0; i < count; i++) {
        manifest.tables[i] = write_part_table(scratch, name, parts, &tables[i]);
    }
    qsort(manifest.tables, count, sizeof *manifest.tables, compare_listed);
    char *text = eb_parts_manifest_write(&manifest, &text_bytes, &failure);
    if (!text) {
        fail_msg("%s", failure.text);
    }
    snprintf(path, sizeof path, "%s/" EB_MANIFEST_NAME, name);
    eb_scratch_write(scratch, path, text, text_bytes);
    free(text);
    eb_parts_manifest_deinit(&manifest);
}
