/* Parses bytes as the manifest of a version in parts. An accepted one is sorted, within its limits,
 * and reads back as it is written. */
#include "server/formats/manifest.h"
#include "server/formats/parts_manifest.h"

#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_valid_table(const struct eb_parts_manifest *manifest, size_t index)
{
    const struct eb_parts_table *table = &manifest->tables[index];
    uint64_t elements = 1;
    require(eb_parts_manifest_find(manifest, table->name) == table);
    require(!strchr(table->name, '/') && table->name[0] != '.' && table->name[0] != '\0');
    require(strlen(table->name) <= EB_PARTS_NAME_BYTES_MAX);
    require(table->part < manifest->parts);
    require(table->part == 0 || table->placement == EB_PLACEMENT_WHOLE);
    require(table->digest_count ==
            (table->placement == EB_PLACEMENT_ROWS ? (size_t)manifest->parts : 1));
    require(eb_storage_holds(table->storage, table->type));
    for (uint32_t i = 0; i < table->shape_count; i++) {
        require(table->shape[i] > 0 && table->shape[i] <= UINT32_MAX / elements);
        elements *= table->shape[i];
    }
    require(table->rows_total <= INT64_MAX);
    require(!table->has_unknown_row || table->unknown_row < table->rows_total);
}

static void require_equal_tables(const struct eb_parts_table *a, const struct eb_parts_table *b)
{
    require(strcmp(a->name, b->name) == 0);
    require(a->placement == b->placement && a->part == b->part && a->is_keyed == b->is_keyed);
    require(a->has_unknown_row == b->has_unknown_row && a->unknown_row == b->unknown_row);
    require(a->type == b->type && a->storage == b->storage && a->rows_total == b->rows_total);
    require(a->shape_count == b->shape_count && a->digest_count == b->digest_count);
    require(memcmp(a->shape, b->shape, sizeof a->shape) == 0);
    require(memcmp(a->digests, b->digests, a->digest_count * sizeof *a->digests) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_parts_manifest manifest;
    struct eb_parts_manifest back;
    struct eb_manifest files;
    struct eb_failure failure = {.text = ""};
    size_t text_bytes;
    if (!eb_parts_manifest_parse(data, size, &manifest, &failure)) {
        require(failure.text[0] != '\0' && manifest.count == 0);
        return 0;
    }
    require(!eb_manifest_parse(data, size, &files, &failure));
    require(manifest.parts >= 1 && manifest.parts <= EB_PARTS_MAX && manifest.salt != 0);
    char *text = eb_parts_manifest_write(&manifest, &text_bytes, &failure);
    require(text && eb_parts_manifest_is((const uint8_t *)text, text_bytes));
    require(eb_parts_manifest_parse((const uint8_t *)text, text_bytes, &back, &failure));
    require(manifest.parts == back.parts && manifest.salt == back.salt);
    require(strcmp(manifest.lineage, back.lineage) == 0 && manifest.count == back.count);
    for (size_t i = 0; i < manifest.count; i++) {
        require_valid_table(&manifest, i);
        require_equal_tables(&manifest.tables[i], &back.tables[i]);
    }
    eb_parts_manifest_deinit(&back);
    eb_parts_manifest_deinit(&manifest);
    free(text);
    return 0;
}
