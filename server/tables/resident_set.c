#include "server/tables/resident_set.h"

#include "server/tables/default_vector.h"
#include "server/tables/part_plan.h"
#include "server/tables/resident_reader.h"
#include "server/tables/set_build.h"
#include "server/tables/table_plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Chunks of a file that are compared with their hashes, unless all are. */
#define CHECKED_CHUNKS 16

/* The state of opening a set. */
struct opening {
    const struct eb_table_options *options;
    const struct eb_part_plan *part; /* NULL unless the version is in parts */
    struct eb_table_set *set;
    struct eb_failure *failure;
};

/* Sets how a table of a version in parts lies in them. */
static bool place_resident(const struct opening *opening, struct eb_planned_table *planned)
{
    const struct eb_part_plan *part = opening->part;
    const char *source = planned->config ? planned->config->source : planned->name;
    const struct eb_parts_table *listed =
        part ? eb_parts_manifest_find(&part->manifest, source) : NULL;
    if (part && !listed) {
        return eb_failure_set(
            opening->failure, "the manifest does not list its table '%.64s'", source);
    }
    if (listed) {
        planned->placement = listed->placement;
        planned->part = listed->placement == EB_PLACEMENT_ROWS ? 1 + part->choice.part : 0;
    }
    return true;
}

/* Describes a table as a load would have planned it. The name and the default vector are on the
 * heap, also if that fails. */
static bool plan_resident(const struct opening *opening, const struct eb_served_table *served,
    const struct eb_resident_table *found, struct eb_planned_table *planned)
{
    const struct eb_model_config *config = opening->options->config;
    *planned = (struct eb_planned_table){
        .name = strdup(served->name),
        .config = config ? eb_model_config_find_table(config, served->name) : NULL,
        .tensor = {.storage = found->storage, .rank = found->rank},
        .type = found->type,
        .storage = found->storage,
        .row_offset_bytes = found->row_offset_bytes,
        .row_stride_bytes = found->row_stride_bytes,
        .rows_bytes = found->rows_bytes,
        .index_bytes = found->index_bytes,
        .is_keyed = found->index_bytes > 0,
        .unknown_row = served->unknown_row,
        .source_key = found->source_key,
        .slot = served->slot,
    };
    memcpy(planned->tensor.dims, found->dims, sizeof planned->tensor.dims);
    if (!planned->name) {
        return eb_failure_set(opening->failure, "out of memory");
    }
    if (!place_resident(opening, planned)) {
        return false;
    }
    if (planned->config && planned->config->vector_count > 0 &&
        !eb_default_vector_read(planned, &planned->vector, opening->failure)) {
        return false;
    }
    return served->unknown_row != EB_ROW_VECTOR || planned->vector ||
           eb_failure_set(opening->failure,
               "unknown ids get the default vector of table '%.64s', but its model.yaml has none",
               served->name);
}

/* Opens the index of a keyed table. */
static bool open_index(const struct opening *opening, const struct eb_resident_table *found,
    const struct eb_table_mapping *mapping, struct eb_named_table *table)
{
    const char *reason;
    if (found->index_bytes == 0) {
        return true;
    }
    table->index = mapping->base + found->index_offset;
    table->index_bytes = found->index_bytes;
    return eb_key_index_open(
               &table->keys, table->index, table->index_bytes, found->dims[0], &reason) ||
           eb_failure_set(opening->failure, "its index is invalid: %s", reason);
}

/* Appends a table of the mapped file to the set. */
static bool open_resident_table(const struct opening *opening, const struct eb_served_table *served,
    const struct eb_resident_footer *footer, const struct eb_table_mapping *mapping)
{
    if (served->slot >= footer->table_count) {
        return eb_failure_set(opening->failure, "it has no table number %zu", served->slot);
    }
    const struct eb_resident_table *found = &footer->tables[served->slot];
    if (served->unknown_row >= 0 && (uint64_t)served->unknown_row >= found->dims[0]) {
        return eb_failure_set(
            opening->failure, "it has no row %" PRId64 " for unknown ids", served->unknown_row);
    }
    struct eb_planned_table planned;
    struct eb_named_table table = {0};
    size_t hashes_bytes = found->chunk_count * sizeof *found->chunk_hashes;
    bool is_good = plan_resident(opening, served, found, &planned);
    if (is_good) {
        table = eb_set_build_describe(&planned, mapping->base + found->rows_offset);
        table.is_in_file = true;
        table.digest = found->digest;
        table.chunk_hashes = malloc(hashes_bytes + 1);
        is_good = (table.chunk_hashes || eb_failure_set(opening->failure, "out of memory")) &&
                  open_index(opening, found, mapping, &table);
    }
    if (!is_good) {
        free(table.chunk_hashes);
        free(planned.name);
        free(planned.vector);
        return false;
    }
    memcpy(table.chunk_hashes, found->chunk_hashes, hashes_bytes);
    eb_set_build_append(opening->set, &planned, &table);
    return true;
}

/* Opens the `count` tables at `first`, which lie in the same file. */
static bool open_file_tables(
    const struct opening *opening, const struct eb_served_table *const *first, size_t count)
{
    const struct eb_resident_options *options = &opening->options->resident;
    struct eb_resident_reader reader;
    if (!eb_resident_reader_open(&reader, options->dir, first[0]->file, opening->failure)) {
        if (opening->failure->text[0] == '\0') {
            eb_failure_set(opening->failure, "the file is missing");
        }
        return false;
    }
    uint64_t step = options->is_checked_whole
                        ? 1
                        : eb_resident_reader_chunk_count(&reader) / CHECKED_CHUNKS + 1;
    struct eb_table_mapping *mapping = eb_resident_reader_check(&reader, step, opening->failure)
                                           ? eb_resident_reader_map(&reader, opening->failure)
                                           : NULL;
    bool is_good =
        mapping && eb_table_memory_keep(&opening->set->memory, mapping, opening->failure);
    opening->set->adopted_bytes += is_good ? reader.bytes : 0;
    for (size_t i = 0; i < count && is_good; i++) {
        is_good = open_resident_table(opening, first[i], &reader.footer, mapping);
    }
    eb_resident_reader_close(&reader);
    return is_good;
}

static int compare_served_files(const void *left, const void *right)
{
    const struct eb_served_table *const *a = left;
    const struct eb_served_table *const *b = right;
    return strcmp((*a)->file, (*b)->file);
}

/* Opens the tables, file after file. `order` has room for all of them. */
static bool open_in_order(const struct opening *opening, const struct eb_served_version *served,
    const struct eb_served_table **order)
{
    for (size_t i = 0; i < served->table_count; i++) {
        order[i] = &served->tables[i];
    }
    qsort(order, served->table_count, sizeof(const struct eb_served_table *), compare_served_files);
    size_t count;
    for (size_t i = 0; i < served->table_count; i += count) {
        count = 1;
        while (i + count < served->table_count &&
               strcmp(order[i]->file, order[i + count]->file) == 0) {
            count++;
        }
        if (!open_file_tables(opening, order + i, count)) {
            return eb_failure_locate(opening->failure, order[i]->file);
        }
    }
    return true;
}

/* Opens the tables in files, and appends the remote ones of the plan, which may be NULL. */
static bool open_all(const struct opening *opening, const struct eb_served_version *served,
    struct eb_table_plan *plan)
{
    struct eb_table_set *set = opening->set;
    struct eb_resident_dir *dir = opening->options->resident.dir;
    size_t remote_count = plan ? plan->remote_count : 0;
    const struct eb_served_table **order =
        calloc(served->table_count + 1, sizeof(const struct eb_served_table *));
    set->tables = calloc(served->table_count + remote_count + 1, sizeof *set->tables);
    bool is_good = (order && set->tables) || eb_failure_set(opening->failure, "out of memory");
    eb_resident_dir_begin_adopting(dir);
    is_good = is_good && open_in_order(opening, served, order);
    eb_resident_dir_end_adopting(dir);
    for (size_t i = 0; i < remote_count && is_good; i++) {
        struct eb_named_table table = eb_set_build_describe(&plan->tables[i], NULL);
        eb_set_build_append(set, &plan->tables[i], &table);
    }
    free(order);
    return is_good && eb_set_build_finish(set, opening->options->config, opening->failure);
}

/* Opens a version that is in no parts. */
static bool open_undivided(const struct opening *opening, const struct eb_served_version *served)
{
    opening->set->lineage = strdup("");
    return (opening->set->lineage || eb_failure_set(opening->failure, "out of memory")) &&
           open_all(opening, served, NULL);
}

/* Opens a version in parts. */
static bool open_divided(struct opening *opening, const struct eb_served_version *served)
{
    struct eb_table_set *set = opening->set;
    struct eb_part_plan part;
    struct eb_table_plan plan = {0};
    if (!eb_part_plan_recall(&part, served->manifest_yaml, opening->options, opening->failure)) {
        return false;
    }
    opening->part = &part;
    bool is_good = eb_table_plan_recall(&part, opening->options, &plan, opening->failure);
    set->manifest = plan.manifest;
    set->part = plan.part;
    set->is_router = plan.is_router;
    set->lineage = plan.lineage;
    set->manifest_yaml = plan.manifest_yaml;
    plan.lineage = NULL;
    plan.manifest_yaml = NULL;
    is_good = is_good && open_all(opening, served, &plan);
    opening->part = NULL;
    eb_table_plan_deinit(&plan);
    eb_part_plan_close(&part);
    return is_good &&
           (set->digest == served->digest ||
               eb_failure_set(opening->failure, "its tables are not those that were recorded"));
}

bool eb_resident_set_open(const struct eb_served_version *served,
    const struct eb_table_options *options, struct eb_table_set *set, struct eb_failure *failure)
{
    assert(served->is_complete);
    *set = (struct eb_table_set){.memory = {.options = options->memory}};
    set->file_fs = options->resident.dir->fs;
    struct opening opening = {.options = options, .set = set, .failure = failure};
    bool is_good =
        served->manifest_yaml ? open_divided(&opening, served) : open_undivided(&opening, served);
    if (is_good) {
        atomic_fetch_add(
            &options->resident.dir->outcomes[EB_RESIDENT_ADOPTED], served->table_count);
    } else {
        eb_table_set_deinit(set);
    }
    return is_good;
}
