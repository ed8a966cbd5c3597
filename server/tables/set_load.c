#include "server/tables/set_load.h"

#include "server/base/machine.h"
#include "server/tables/key_load.h"
#include "server/tables/row_load.h"
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
    struct eb_load_meter meter;
    struct eb_failure *failure;
};

/* Returns a planned table as it will be in the set, with its rows at `rows`, but without keys,
 * digest and pages. */
static struct eb_named_table describe_set(
    const struct eb_planned_table *planned, const uint8_t *rows)
{
    const struct eb_tensor *tensor = &planned->tensor;
    bool is_code = eb_storage_is_code(planned->storage);
    struct eb_named_table table = {
        .name = planned->name,
        .base = rows,
        .origin = planned->origin,
        .rank = tensor->rank,
        .resident_bytes = planned->rows_bytes + planned->index_bytes,
        .vector = planned->vector,
        .table =
            {
                .rows = rows + planned->row_offset_bytes,
                .row_count = tensor->dims[0],
                .row_stride_bytes = planned->row_stride_bytes,
                .scales = is_code ? rows : NULL,
                .scale_stride_bytes = is_code ? planned->row_stride_bytes : 0,
                .row_elements = (uint32_t)eb_tensor_row_elements(tensor),
                .storage = planned->storage,
                .type = planned->type,
                .unknown_row = planned->unknown_row,
                .vector = planned->vector,
            },
    };
    memcpy(table.dims, tensor->dims, sizeof table.dims);
    if (planned->config) {
        table.missing = planned->config->missing;
        table.has_default = planned->config->has_default;
        table.default_index = planned->config->default_index;
    }
    return table;
}

/* Loads rows and keys. */
static bool load_content(struct loading *loading, const struct eb_planned_table *planned,
    struct eb_table_digest *digest, struct eb_named_table *table)
{
    struct eb_table_memory *memory = &loading->set->memory;
    uint64_t bytes = eb_table_memory_join(planned->rows_bytes, planned->index_bytes);
    uint8_t *rows = eb_table_memory_take(memory, bytes, loading->failure);
    if (!rows) {
        return eb_failure_locate(loading->failure, planned->name);
    }
    void *index = planned->is_keyed ? rows + (bytes - planned->index_bytes) : NULL;
    *table = describe_set(planned, rows);
    table->index = index;
    table->index_bytes = planned->index_bytes;
    struct eb_row_load row_load = {loading->plan, planned, rows, &loading->meter, digest};
    struct eb_key_load key_load = {loading->plan, planned, index, &loading->meter, digest};
    return eb_row_load(&row_load, loading->failure) &&
           (!index || eb_key_load(&key_load, &table->keys, loading->failure));
}

/* Appends a table to the set, which takes over the planned name and default vector. */
static void append_table(
    struct loading *loading, struct eb_planned_table *planned, const struct eb_named_table *table)
{
    loading->set->tables[loading->set->count++] = *table;
    planned->name = NULL;
    planned->vector = NULL;
}

/* Loads a table and appends it to the set. */
static bool load_table(struct loading *loading, struct eb_planned_table *planned)
{
    struct eb_table_digest digest;
    struct eb_named_table table;
    if (!eb_table_digest_init(&digest, planned, loading->failure)) {
        return false;
    }
    bool is_good = load_content(loading, planned, &digest, &table);
    if (is_good) {
        table.digest = eb_table_digest_read(&digest, planned);
        append_table(loading, planned, &table);
    }
    eb_table_digest_deinit(&digest);
    return is_good;
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
    struct eb_named_table table = describe_set(planned, resident->base);
    table.index = resident->index;
    table.index_bytes = resident->index_bytes;
    table.keys = resident->keys;
    table.digest = resident->digest;
    append_table(loading, planned, &table);
    return true;
}

/* Returns whether all files are unchanged since their headers were read. */
static bool check_unchanged(const struct eb_version_scan *scan, struct eb_failure *failure)
{
    for (size_t i = 0; i < scan->file_count; i++) {
        struct eb_table_file file;
        if (!eb_table_file_open(scan->files[i].path, &file, failure)) {
            return eb_failure_locate(failure, scan->files[i].path);
        }
        bool is_same = eb_table_file_is_same(&file, &scan->files[i].look);
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

static bool load_set_tables(struct loading *loading)
{
    struct eb_table_plan *plan = loading->plan;
    loading->set->tables = calloc(plan->table_count, sizeof *loading->set->tables);
    if (!loading->set->tables) {
        return eb_failure_set(loading->failure, "out of memory");
    }
    for (size_t i = 0; i < plan->table_count; i++) {
        struct eb_planned_table *planned = &plan->tables[i];
        if (!(planned->resident ? share_table : load_table)(loading, planned)) {
            return false;
        }
    }
    return check_unchanged(&plan->scan, loading->failure);
}

/* Returns the bytes that tables need, including the temporary memory of building an index. */
static uint64_t count_needed(const struct eb_table_plan *plan, const struct eb_table_need *need)
{
    uint64_t bytes = eb_table_memory_need_bytes(need);
    return bytes > UINT64_MAX - plan->key_bytes ? UINT64_MAX : bytes + plan->key_bytes;
}

/* Compares the memory that the plan needs with what is available. If `is_taken`, the memory of the
 * tables is already reserved. If too little is available, reports how much other versions must
 * free. That is enough even if no table that is still to be compared turns out to be resident. */
static bool check_set_memory(const struct loading *loading, const char *directory, bool is_taken)
{
    const struct eb_table_plan *plan = loading->plan;
    uint64_t needed = is_taken ? plan->key_bytes : count_needed(plan, &plan->need);
    uint64_t most = is_taken ? plan->key_bytes : count_needed(plan, &plan->most);
    uint64_t available = eb_machine_available_bytes();
    if (needed <= available) {
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
 * when they are reserved, which is done once. */
static bool prepare_set(
    struct loading *loading, const char *directory, const struct eb_table_options *options)
{
    struct eb_table_plan *plan = loading->plan;
    struct eb_table_memory *memory = &loading->set->memory;
    eb_table_share_find_known(plan, options);
    return (memory->options.pages == EB_PAGE_1G || check_set_memory(loading, directory, false)) &&
           eb_table_share_find_equal(plan, options, &loading->meter, loading->failure) &&
           check_set_memory(loading, directory, eb_table_memory_reserve(memory, &plan->need));
}

static int compare_tables(const void *left, const void *right)
{
    const struct eb_named_table *a = left;
    const struct eb_named_table *b = right;
    return strcmp(a->name, b->name);
}

static void add_pages(struct eb_page_count *sum, struct eb_page_count more)
{
    sum->bytes += more.bytes;
    sum->bytes_2m += more.bytes_2m;
    sum->bytes_1g += more.bytes_1g;
}

/* Counts the pages in which the tables lie. */
static void count_pages(struct eb_table_set *set)
{
    struct eb_page_report report;
    set->pages_error = eb_page_report_open(&report, "");
    for (size_t i = 0; i < set->count; i++) {
        struct eb_named_table *table = &set->tables[i];
        table->pages =
            eb_page_report_count(&report, table->base, table->resident_bytes - table->index_bytes);
        if (table->index) {
            add_pages(
                &table->pages, eb_page_report_count(&report, table->index, table->index_bytes));
        }
        add_pages(&set->pages, table->pages);
    }
    eb_page_report_close(&report);
}

/* Returns whether the default keys of empty bags are keys of their tables. */
static bool check_default_keys(const struct eb_table_set *set, const struct eb_model_config *config,
    struct eb_failure *failure)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct eb_named_table *table = &set->tables[i];
        if (table->table.keys && table->has_default &&
            eb_key_index_find(&table->keys, table->default_index) < 0) {
            return eb_failure_set(failure,
                "model.yaml: table '%.64s': default_index %" PRId64 " is not one of its keys",
                table->name, table->default_index);
        }
    }
    for (size_t i = 0; config && i < config->feature_count; i++) {
        const struct eb_model_config_feature *feature = &config->features[i];
        const struct eb_named_table *table = eb_table_set_find(set, feature->table);
        if (table->table.keys && feature->has_default &&
            eb_key_index_find(&table->keys, feature->default_index) < 0) {
            return eb_failure_set(failure,
                "model.yaml: feature '%.64s': default_index %" PRId64
                " is not a key of table '%.64s'",
                feature->name, feature->default_index, table->name);
        }
    }
    return true;
}

/* Completes a set whose tables are all loaded: sorts them by name, checks default keys, makes the
 * memory read-only, and sets the digest and the counts of bytes and pages. */
static bool finish_set(
    struct eb_table_set *set, const struct eb_model_config *config, struct eb_failure *failure)
{
    set->bytes = set->memory.mapped_bytes;
    qsort(set->tables, set->count, sizeof *set->tables, compare_tables);
    for (size_t i = 0; i < set->count; i++) {
        struct eb_named_table *table = &set->tables[i];
        table->table.keys = table->index ? &table->keys : NULL;
        assert(eb_table_is_sound(&table->table));
    }
    set->digest = eb_table_digest_of_set(set);
    if (!check_default_keys(set, config, failure) || !eb_table_memory_seal(&set->memory, failure)) {
        return false;
    }
    count_pages(set);
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
    struct loading loading = {.plan = &plan, .set = set, .failure = failure};
    set->notes = plan.scan.notes;
    eb_load_meter_init(&loading.meter, progress, plan.work_bytes);
    bool is_good = prepare_set(&loading, directory, options) && load_set_tables(&loading);
    eb_table_plan_deinit(&plan);
    if (is_good && !finish_set(set, options->config, failure)) {
        is_good = eb_failure_locate(failure, directory);
    }
    if (!is_good) {
        eb_table_set_deinit(set);
    }
    return is_good;
}
