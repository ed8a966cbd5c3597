#include "server/tables/set_load.h"

#include "server/tables/key_load.h"
#include "server/tables/memory_claims.h"
#include "server/tables/resident_tables.h"
#include "server/tables/row_load.h"
#include "server/tables/set_build.h"
#include "server/tables/table_digest.h"
#include "server/tables/table_plan.h"
#include "server/tables/table_share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A load in progress. */
struct loading {
    struct eb_table_plan *plan;
    struct eb_table_set *set;
    unsigned thread_count;
    const struct eb_bag_ops *ops;
    size_t load_count;
    struct eb_resident_tables files;
    struct eb_row_load *loads; /* of the tables that no other set holds, in the order of the plan */
    struct eb_load_meter meter;
    struct eb_memory_claims *claims;
    uint64_t claimed_bytes;
    struct eb_failure *failure;
};

/* Takes the memory of a table, and prepares to load its rows. */
static bool prepare_table(struct loading *loading, const struct eb_planned_table *planned)
{
    uint64_t bytes = eb_table_memory_join(planned->rows_bytes, planned->index_bytes);
    uint8_t *rows = eb_resident_tables_rows(planned);
    if (!rows) {
        rows = eb_table_memory_take(&loading->set->memory, bytes, loading->failure);
    }
    if (!rows) {
        return eb_failure_locate(loading->failure, planned->name);
    }
    struct eb_row_load *load = &loading->loads[loading->load_count];
    if (!eb_row_load_init(load, loading->plan, planned, loading->failure)) {
        return false;
    }
    load->rows = rows;
    loading->load_count++;
    return true;
}

/* Loads the keys of a table whose rows are loaded, and appends it to the set. */
static bool finish_table(
    struct loading *loading, struct eb_planned_table *planned, struct eb_row_load *load)
{
    struct eb_named_table table = eb_set_build_describe(planned, load->rows);
    table.is_in_file = eb_resident_tables_rows(planned);
    uint64_t keys_hash = 0;
    if (planned->is_keyed) {
        uint64_t bytes = eb_table_memory_join(planned->rows_bytes, planned->index_bytes);
        uint8_t *index = load->rows + (bytes - planned->index_bytes);
        struct eb_key_load keys = {loading->plan, planned, index, &loading->meter};
        table.index = index;
        table.index_bytes = planned->index_bytes;
        if (!eb_key_load(&keys, &table.keys, &keys_hash, loading->failure)) {
            return false;
        }
    }
    table.digest = eb_table_digest_of(planned, load->chunk_hashes, keys_hash);
    table.chunk_hashes = load->chunk_hashes;
    load->chunk_hashes = NULL;
    eb_set_build_append(loading->set, planned, &table);
    return true;
}

/* Returns a copy of the hashes of a table's chunks, or NULL with *failure set if out of memory. */
static uint64_t *copy_hashes(
    const struct eb_planned_table *planned, const uint64_t *hashes, struct eb_failure *failure)
{
    uint64_t bytes = eb_row_load_chunk_count(planned) * sizeof *hashes;
    uint64_t *copy = malloc(bytes + 1);
    if (copy) {
        memcpy(copy, hashes, bytes);
    } else {
        eb_failure_set(failure, "out of memory");
    }
    return copy;
}

/* Appends a table that another set holds. The set shares the memory of its rows and keys. */
static bool share_table(struct loading *loading, struct eb_planned_table *planned)
{
    const struct eb_named_table *resident = planned->resident;
    struct eb_table_mapping *mapping =
        eb_table_memory_find(&planned->resident_set->memory, resident->base);
    if (!eb_table_memory_share(&loading->set->memory, mapping, loading->failure)) {
        return eb_failure_locate(loading->failure, planned->name);
    }
    planned->index_bytes = resident->index_bytes;
    struct eb_named_table table = eb_set_build_describe(planned, resident->base);
    table.is_in_file = resident->is_in_file;
    table.file_slot = resident->file_slot;
    table.source_key = resident->source_key;
    table.chunk_hashes = copy_hashes(planned, resident->chunk_hashes, loading->failure);
    if (!table.chunk_hashes) {
        return false;
    }
    table.index = resident->index;
    table.index_bytes = resident->index_bytes;
    table.keys = resident->keys;
    table.digest = resident->digest;
    eb_set_build_append(loading->set, planned, &table);
    return true;
}

/* Appends a table whose resident file was there already. */
static bool adopt_table(struct loading *loading, struct eb_planned_table *planned)
{
    const struct eb_resident_table *found = eb_resident_tables_find(planned);
    const uint8_t *rows = eb_resident_tables_rows(planned);
    struct eb_named_table table = eb_set_build_describe(planned, rows);
    table.is_in_file = true;
    table.digest = found->digest;
    if (planned->is_keyed) {
        const char *reason;
        table.index_bytes = planned->index_bytes;
        table.index = rows + (found->index_offset - found->rows_offset);
        if (!eb_key_index_open(
                &table.keys, table.index, table.index_bytes, found->dims[0], &reason)) {
            return eb_failure_set(loading->failure, "table '%.64s': its index in %s is invalid: %s",
                planned->name, planned->file->name, reason);
        }
    }
    table.chunk_hashes = copy_hashes(planned, found->chunk_hashes, loading->failure);
    if (!table.chunk_hashes) {
        return false;
    }
    eb_set_build_append(loading->set, planned, &table);
    return true;
}

/* Completes the resident file that ends with the table that was appended last, if it is in one. */
static bool complete_file(struct loading *loading, const struct eb_planned_table *planned)
{
    struct eb_resident_file *file = planned->file;
    if (!file || !file->mapping || file->is_adopted || planned->slot + 1 < file->table_count) {
        return true;
    }
    const struct eb_table_set *set = loading->set;
    const struct eb_named_table **named = calloc(file->table_count, sizeof *named);
    if (!named) {
        return eb_failure_set(loading->failure, "out of memory");
    }
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (eb_table_mapping_has(file->mapping, set->tables[i].base)) {
            named[count++] = &set->tables[i];
        }
    }
    assert(count == file->table_count);
    bool is_good = eb_resident_tables_commit(&loading->files, file, named, loading->failure);
    free(named);
    return is_good;
}

/* Returns whether all files are unchanged since their headers were read. */
static bool check_unchanged(const struct eb_version_scan *scan, struct eb_failure *failure)
{
    for (size_t i = 0; i < scan->file_count; i++) {
        struct eb_table_file file;
        if (!eb_table_file_open(scan->files[i].path, &file, failure)) {
            return eb_failure_locate(failure, scan->files[i].path);
        }
        bool is_same = eb_table_file_is_same(&file, &scan->files[i].stamp);
        eb_table_file_close(&file);
        if (!is_same) {
            eb_failure_set(failure,
                "%s: the file has changed while it was read; write versions elsewhere and rename "
                "them into place",
                scan->files[i].path);
            return eb_failure_blame(failure, ESTALE);
        }
    }
    return true;
}

/* Loads the rows of all tables, and then the keys of one table after the other. */
static bool load_tables(struct loading *loading)
{
    struct eb_table_plan *plan = loading->plan;
    for (size_t i = 0; i < plan->table_count; i++) {
        bool is_loaded = !plan->tables[i].resident && !plan->tables[i].is_adopted;
        if (is_loaded && !prepare_table(loading, &plan->tables[i])) {
            return false;
        }
    }
    if (!eb_row_load_run(loading->loads, loading->load_count, loading->thread_count, loading->ops,
            &loading->meter, loading->failure)) {
        return false;
    }
    struct eb_row_load *load = loading->loads;
    for (size_t i = 0; i < plan->table_count; i++) {
        struct eb_planned_table *planned = &plan->tables[i];
        bool is_good = planned->resident     ? share_table(loading, planned)
                       : planned->is_adopted ? adopt_table(loading, planned)
                                             : finish_table(loading, planned, load++) &&
                                                   complete_file(loading, planned);
        if (!is_good) {
            return false;
        }
    }
    return check_unchanged(&plan->scan, loading->failure);
}

/* Appends the tables whose rows are on other servers. */
static void append_remote_tables(struct loading *loading)
{
    struct eb_table_plan *plan = loading->plan;
    for (size_t i = plan->table_count; i < plan->table_count + plan->remote_count; i++) {
        struct eb_named_table table = eb_set_build_describe(&plan->tables[i], NULL);
        eb_set_build_append(loading->set, &plan->tables[i], &table);
    }
}

static bool load_set_tables(struct loading *loading)
{
    size_t count = loading->plan->table_count;
    size_t room = count + loading->plan->remote_count + 1;
    loading->set->tables = calloc(room, sizeof *loading->set->tables);
    loading->loads = calloc(count + 1, sizeof *loading->loads);
    bool is_good = (loading->set->tables && loading->loads) ||
                   eb_failure_set(loading->failure, "out of memory");
    is_good = is_good && load_tables(loading);
    if (is_good) {
        append_remote_tables(loading);
    }
    for (size_t i = 0; i < loading->load_count; i++) {
        eb_row_load_deinit(&loading->loads[i]);
    }
    free(loading->loads);
    return is_good;
}

/* Returns the bytes that tables need, including the temporary memory of building an index. */
static uint64_t count_needed(const struct eb_table_plan *plan, const struct eb_table_need *need)
{
    uint64_t bytes = eb_table_memory_need_bytes(need);
    return bytes > UINT64_MAX - plan->key_bytes ? UINT64_MAX : bytes + plan->key_bytes;
}

/* Claims the memory that the plan needs, if it is available. If `is_taken`, the memory of the
 * tables is already reserved. If too little is available, reports how much other versions must
 * free. That is enough even if no table that is still to be compared turns out to be resident. */
static bool check_set_memory(struct loading *loading, const char *directory, bool is_taken)
{
    const struct eb_table_plan *plan = loading->plan;
    uint64_t needed = is_taken ? plan->key_bytes : count_needed(plan, &plan->need);
    uint64_t most = is_taken ? plan->key_bytes : count_needed(plan, &plan->most);
    uint64_t available;
    if (eb_memory_claims_take(loading->claims, needed, &loading->claimed_bytes, &available)) {
        return true;
    }
    eb_load_meter_run_short(&loading->meter, most - available);
    return eb_failure_set(loading->failure,
        "%s: its tables need %" PRIu64 " bytes of memory, but %" PRIu64
        " are available; free some or "
        "raise the container's limit",
        directory, needed, available);
}

/* Finds out which tables to load, and whether there is memory for them. The first check uses only
 * what is known before any row is read, so that tables that are too large are not read at all. With
 * pages of 1 GiB the first check is left out: whether the pool has enough of them is known only
 * when they are reserved, which is done once. So it is if files get pages of a pool: they are made
 * before the second check, which counts the tables that found no room there. */
static bool prepare_set(
    struct loading *loading, const char *directory, const struct eb_table_options *options)
{
    struct eb_table_plan *plan = loading->plan;
    struct eb_table_memory *memory = &loading->set->memory;
    eb_table_share_find_known(plan, options);
    if (!eb_resident_tables_init(
            &loading->files, plan, &options->resident, directory, loading->failure)) {
        return false;
    }
    loading->set->adopted_bytes = eb_resident_tables_adopt(&loading->files, memory);
    eb_table_plan_measure(plan);
    bool has_pool = eb_resident_tables_has_pool(&loading->files);
    bool is_known = memory->options.pages != EB_PAGE_1G && !has_pool;
    if ((is_known && !check_set_memory(loading, directory, false)) ||
        !eb_table_share_find_equal(plan, options, &loading->meter, loading->failure)) {
        return false;
    }
    if (has_pool) {
        eb_resident_tables_create(&loading->files, memory, loading->thread_count);
        eb_table_plan_measure(plan);
    }
    if (!check_set_memory(loading, directory, eb_table_memory_reserve(memory, &plan->need))) {
        return false;
    }
    if (!has_pool) {
        eb_resident_tables_create(&loading->files, memory, loading->thread_count);
    }
    return true;
}

bool eb_set_load(const char *directory, const struct eb_table_options *options,
    const struct eb_load_progress *progress, struct eb_table_set *set, struct eb_failure *failure)
{
    *set = (struct eb_table_set){.memory = {.options = options->memory}};
    struct eb_table_plan plan;
    if (!eb_table_plan_read(directory, options, &plan, failure)) {
        return false;
    }
    struct loading loading = {.plan = &plan,
        .set = set,
        .thread_count = options->load_threads,
        .ops = options->ops,
        .claims = options->claims,
        .failure = failure};
    set->notes = plan.scan.notes;
    set->manifest = plan.manifest;
    set->part = plan.part;
    set->is_router = plan.is_router;
    set->lineage = plan.lineage;
    set->manifest_yaml = plan.manifest_yaml;
    plan.lineage = NULL;
    plan.manifest_yaml = NULL;
    set->file_fs = options->resident.dir ? options->resident.dir->fs : EB_RESIDENT_TMPFS;
    eb_load_meter_init(&loading.meter, progress, plan.work_bytes);
    bool is_good = prepare_set(&loading, directory, options) && load_set_tables(&loading);
    eb_resident_tables_deinit(&loading.files);
    eb_memory_claims_give(options->claims, loading.claimed_bytes);
    eb_table_plan_deinit(&plan);
    if (is_good && !eb_set_build_finish(set, options->config, failure)) {
        is_good = eb_failure_locate(failure, directory);
    }
    if (!is_good) {
        eb_table_set_deinit(set);
    }
    return is_good;
}
