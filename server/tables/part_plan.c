#include "server/tables/part_plan.h"

#include "server/base/directory.h"
#include "server/formats/manifest_text.h"
#include "server/formats/table_file.h"
#include "server/tables/table_storage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define COPY_HINT "copy all files of the version, and the manifest last"

/* Reads the manifest at plan->path. */
static bool read_part_manifest(struct eb_part_plan *plan, struct eb_failure *failure)
{
    const char *path = plan->path;
    struct eb_table_file file;
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return eb_failure_set(failure,
            "%s: it is missing, so this is not a complete version in parts; make one with embag "
            "split and copy its manifest last, or start the server without --part and --route",
            path);
    }
    bool is_good = eb_table_file_open(path, &file, failure);
    if (is_good) {
        is_good = eb_parts_manifest_read(&file, &plan->manifest, &plan->yaml, failure);
        eb_table_file_close(&file);
    }
    return is_good || eb_failure_locate(failure, path);
}

/* Returns the path of the folder with the files to load, which the caller frees. Returns NULL with
 * *failure set if out of memory. */
static char *name_folder(
    const struct eb_part_plan *plan, const char *directory, struct eb_failure *failure)
{
    char name[EB_PART_FOLDER_BYTES];
    if (!plan->is_router) {
        eb_part_folder_name(plan->choice.part, plan->choice.parts, name);
        return eb_directory_join(directory, name, failure);
    }
    char *folder = strdup(directory);
    if (!folder) {
        eb_failure_set(failure, "%s: out of memory", directory);
    }
    return folder;
}

/* Chooses the part that is loaded. Returns whether the version has it. */
static bool choose_part(struct eb_part_plan *plan, struct eb_failure *failure)
{
    if (plan->is_router) {
        plan->choice = (struct eb_part_choice){.parts = plan->manifest.parts};
    }
    return plan->manifest.parts == plan->choice.parts ||
           eb_failure_set(failure,
               "%s: the version is in %" PRIu32 " parts, but this server has part %" PRIu32
               " of %" PRIu32 "; split the version into as many parts, or correct --part",
               plan->path, plan->manifest.parts, plan->choice.part, plan->choice.parts);
}

bool eb_part_plan_open(struct eb_part_plan *plan, const char *directory,
    const struct eb_table_options *options, struct eb_failure *failure)
{
    *plan = (struct eb_part_plan){.choice = options->part, .is_router = options->is_router};
    plan->path = eb_directory_join(directory, EB_MANIFEST_NAME, failure);
    plan->folder = plan->path ? name_folder(plan, directory, failure) : NULL;
    bool is_good = plan->folder && read_part_manifest(plan, failure) && choose_part(plan, failure);
    if (!is_good) {
        eb_part_plan_close(plan);
    }
    return is_good;
}

bool eb_part_plan_recall(struct eb_part_plan *plan, const char *yaml,
    const struct eb_table_options *options, struct eb_failure *failure)
{
    *plan = (struct eb_part_plan){.choice = options->part,
        .is_router = options->is_router,
        .yaml = strdup(yaml),
        .path = strdup(EB_MANIFEST_NAME " as recorded")};
    bool is_good = (plan->yaml && plan->path) || eb_manifest_text_no_memory(failure);
    is_good =
        is_good &&
        (eb_parts_manifest_parse((const uint8_t *)yaml, strlen(yaml), &plan->manifest, failure) ||
            eb_failure_locate(failure, plan->path)) &&
        choose_part(plan, failure);
    if (!is_good) {
        eb_part_plan_close(plan);
    }
    return is_good;
}

void eb_part_plan_close(struct eb_part_plan *plan)
{
    eb_parts_manifest_deinit(&plan->manifest);
    free(plan->yaml);
    free(plan->path);
    free(plan->folder);
    *plan = (struct eb_part_plan){0};
}

/* Returns whether a table has a file in the plan's folder. */
static bool is_table_here(const struct eb_part_plan *plan, const struct eb_parts_table *table)
{
    if (plan->is_router) {
        return table->placement == EB_PLACEMENT_EVERYWHERE;
    }
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

bool eb_part_plan_check(const struct eb_part_plan *plan, const struct eb_model_config *config,
    struct eb_version_scan *scan, struct eb_failure *failure)
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
        bool is_selected = !config || eb_model_config_selects(config, table->name);
        if (is_table_here(plan, table) && is_selected && !has_part_piece(scan, table->name)) {
            return eb_failure_set(failure,
                "%s: table '%.64s' is missing, but the manifest lists it; " COPY_HINT, plan->folder,
                table->name);
        }
    }
    return true;
}

/* Returns whether model.yaml names no unknown row, or the one of the manifest, which is -1 if there
 * is none. */
static bool check_part_unknown(
    const struct eb_planned_table *table, int64_t unknown_row, struct eb_failure *failure)
{
    const struct eb_model_config_table *config = table->config;
    return !config || config->unknown_row < 0 || config->unknown_row == unknown_row ||
           eb_failure_set(failure,
               "model.yaml: table '%.64s': unknown_row %" PRId64
               " is not the one that the version was split with; split it again",
               table->name, config->unknown_row);
}

bool eb_part_plan_describe(
    const struct eb_part_plan *plan, struct eb_planned_table *table, struct eb_failure *failure)
{
    const struct eb_packed_format *packed = table->rows.pieces->packed;
    const struct eb_model_config_table *config = table->config;
    const struct eb_parts_table *listed =
        eb_parts_manifest_find(&plan->manifest, table->rows.pieces->name);
    table->placement = listed->placement;
    if (!check_part_unknown(table, packed->unknown_row, failure)) {
        return false;
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

/* Returns the digest of a remote table. */
static uint64_t digest_remote(const struct eb_parts_table *listed)
{
    return listed->digest_count == 1
               ? listed->digests[0]
               : XXH3_64bits(listed->digests, listed->digest_count * sizeof *listed->digests);
}

bool eb_part_plan_describe_remote(const struct eb_part_plan *plan,
    const struct eb_parts_table *listed, struct eb_planned_table *table, struct eb_failure *failure)
{
    /* A packed file with the whole table would have this header. */
    struct eb_packed_format whole = {
        .tensor = {.storage = listed->storage, .rank = 1 + listed->shape_count},
        .type = listed->type,
    };
    struct eb_piece piece = {.packed = &whole};
    whole.tensor.dims[0] = listed->rows_total;
    memcpy(whole.tensor.dims + 1, listed->shape, listed->shape_count * sizeof listed->shape[0]);
    struct eb_row_format rows =
        eb_row_format_of(listed->storage, (uint32_t)eb_tensor_row_elements(&whole.tensor));
    whole.row_offset_bytes = rows.row_offset_bytes;
    whole.row_stride_bytes = rows.stride_bytes;
    table->tensor = whole.tensor;
    table->is_keyed = listed->is_keyed;
    table->unknown_row = listed->has_unknown_row ? (int64_t)listed->unknown_row : -1;
    table->placement = listed->placement;
    table->is_remote = true;
    table->remote = (struct eb_remote_rows){
        .placement = listed->placement,
        .part = listed->part,
        .rule = eb_parts_manifest_rule(&plan->manifest, listed->is_keyed),
        .has_unknown_key = listed->has_unknown_key,
        .unknown_key = listed->unknown_key,
    };
    table->remote_digest = digest_remote(listed);
    return check_part_unknown(table, table->unknown_row, failure) &&
           eb_table_storage_choose(table, &piece, failure);
}
