#include "server/tables/part_plan.h"

#include "server/base/directory.h"
#include "server/formats/manifest_text.h"
#include "server/formats/table_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COPY_HINT "copy all files of the version, and the manifest last"

/* Reads the manifest at `path`. */
static bool read_part_manifest(
    const char *path, struct eb_parts_manifest *manifest, struct eb_failure *failure)
{
    struct eb_table_file file;
    bool is_good = eb_table_file_open(path, &file, failure);
    if (is_good) {
        is_good = eb_parts_manifest_read(&file, manifest, failure);
        eb_table_file_close(&file);
    }
    return is_good || eb_failure_locate(failure, path);
}

bool eb_part_plan_open(struct eb_part_plan *plan, const char *directory,
    struct eb_part_choice choice, struct eb_failure *failure)
{
    char name[EB_PART_FOLDER_BYTES];
    *plan = (struct eb_part_plan){.choice = choice};
    eb_part_folder_name(choice.part, choice.parts, name);
    char *path = eb_directory_join(directory, EB_MANIFEST_NAME, failure);
    plan->folder = path ? eb_directory_join(directory, name, failure) : NULL;
    bool is_good = plan->folder && read_part_manifest(path, &plan->manifest, failure);
    if (is_good && plan->manifest.parts != choice.parts) {
        is_good = eb_failure_set(failure,
            "%s: the version is in %" PRIu32 " parts, but this server has part %" PRIu32
            " of %" PRIu32 "; split the version into as many parts, or correct --part",
            path, plan->manifest.parts, choice.part, choice.parts);
    }
    free(path);
    if (!is_good) {
        eb_part_plan_close(plan);
    }
    return is_good;
}

void eb_part_plan_close(struct eb_part_plan *plan)
{
    eb_parts_manifest_deinit(&plan->manifest);
    free(plan->folder);
    *plan = (struct eb_part_plan){0};
}

/* Returns whether a table has a file in the part's folder. */
static bool is_table_here(const struct eb_part_plan *plan, const struct eb_parts_table *table)
{
    return table->placement == EB_PLACEMENT_ROWS ||
           (table->placement == EB_PLACEMENT_WHOLE && table->part == plan->choice.part);
}

/* Compares the header of a piece with the manifest. */
static bool check_part_piece(const struct eb_part_plan *plan, const struct eb_piece *piece,
    struct eb_scanned_file *file, struct eb_failure *failure)
{
    const struct eb_parts_table *table = eb_parts_manifest_find(&plan->manifest, piece->name);
    if (!piece->packed || piece->count != 0 || !table || !is_table_here(plan, table)) {
        return eb_failure_set(failure,
            "%s: the manifest does not list this file here; remove it, or split the version again",
            file->path);
    }
    uint32_t number = table->placement == EB_PLACEMENT_ROWS ? plan->choice.part : 0;
    if (!eb_parts_manifest_check(&plan->manifest, table, number, piece->packed, failure)) {
        return eb_failure_locate(failure, file->path);
    }
    file->has_digest = true;
    file->digest = piece->packed->digest;
    return true;
}

/* Returns whether the scan, whose pieces are sorted by name, has a table of that name. */
static bool has_part_piece(const struct eb_version_scan *scan, const char *name)
{
    size_t low = 0;
    size_t high = scan->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(scan->pieces[middle].name, name);
        if (order == 0) {
            return true;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return false;
}

bool eb_part_plan_check(
    const struct eb_part_plan *plan, struct eb_version_scan *scan, struct eb_failure *failure)
{
    const struct eb_parts_manifest *manifest = &plan->manifest;
    for (size_t i = 0; i < scan->piece_count; i++) {
        const struct eb_piece *piece = &scan->pieces[i];
        if (!check_part_piece(plan, piece, &scan->files[piece->file], failure)) {
            return false;
        }
    }
    for (size_t i = 0; i < manifest->count; i++) {
        const struct eb_parts_table *table = &manifest->tables[i];
        if (is_table_here(plan, table) && !has_part_piece(scan, table->name)) {
            return eb_failure_set(failure,
                "%s: table '%.64s' is missing, but the manifest lists it; " COPY_HINT, plan->folder,
                table->name);
        }
    }
    return true;
}

bool eb_part_plan_describe(
    const struct eb_part_plan *plan, struct eb_planned_table *table, struct eb_failure *failure)
{
    const struct eb_packed_format *packed = table->rows.pieces->packed;
    const struct eb_model_config_table *config = table->config;
    const struct eb_parts_table *listed =
        eb_parts_manifest_find(&plan->manifest, table->rows.pieces->name);
    if (config && config->unknown_row >= 0 && config->unknown_row != packed->unknown_row) {
        return eb_failure_set(failure,
            "model.yaml: table '%.64s': unknown_row %" PRId64
            " is not the one that the version was split with; split it again",
            table->name, config->unknown_row);
    }
    if (listed->placement != EB_PLACEMENT_ROWS) {
        return true;
    }
    table->part = 1 + plan->choice.part;
    /* Routers replace missing row numbers themselves. The row for unknown keys is the last one. */
    bool has_unknown = packed->by_key && packed->unknown_row >= 0;
    table->unknown_row = has_unknown ? (int64_t)table->tensor.dims[0] - 1 : -1;
    if (packed->by_key && config && config->unknown_is_vector) {
        table->unknown_row = EB_ROW_VECTOR;
    }
    return true;
}
