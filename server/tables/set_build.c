#include "server/tables/set_build.h"

#include "server/tables/table_digest.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct eb_named_table eb_set_build_describe(
    const struct eb_planned_table *planned, const uint8_t *rows)
{
    const struct eb_tensor *tensor = &planned->tensor;
    bool is_code = eb_storage_is_code(planned->storage);
    bool is_remote = planned->is_remote;
    struct eb_named_table table = {
        .name = planned->name,
        .base = rows,
        .origin = planned->origin,
        .source_key = planned->source_key,
        .file_slot = planned->slot,
        .part = planned->part,
        .is_remote = is_remote,
        .remote = planned->remote,
        .placement = planned->placement,
        .digest = planned->remote_digest,
        .rank = tensor->rank,
        .resident_bytes = planned->rows_bytes + planned->index_bytes,
        .vector = planned->vector,
        .table =
            {
                .rows = is_remote ? NULL : rows + planned->row_offset_bytes,
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
    /* Routers choose the defaults for queries on divided tables. */
    if (planned->config && planned->part == 0) {
        table.missing = planned->config->missing;
        table.has_default = planned->config->has_default;
        table.default_index = planned->config->default_index;
    }
    return table;
}

void eb_set_build_append(
    struct eb_table_set *set, struct eb_planned_table *planned, const struct eb_named_table *table)
{
    set->tables[set->count++] = *table;
    planned->name = NULL;
    planned->vector = NULL;
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
        table->pages = eb_table_set_count_pages(table, &report);
        add_pages(&set->pages, table->pages);
        if (table->is_in_file) {
            add_pages(&set->file_pages, table->pages);
        }
    }
    eb_page_report_close(&report);
    atomic_store(&set->bytes_2m, set->pages.bytes_2m);
    atomic_store(&set->file_bytes_2m, set->file_pages.bytes_2m);
}

/* Returns whether the default keys of empty bags are keys of their tables. Those of remote tables
 * cannot be checked here. */
static bool check_default_keys(const struct eb_table_set *set, const struct eb_model_config *config,
    struct eb_failure *failure)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct eb_named_table *table = &set->tables[i];
        if (table->index && table->has_default &&
            eb_key_index_find(&table->keys, table->default_index) < 0) {
            return eb_failure_set(failure,
                "model.yaml: table '%.64s': default_index %" PRId64 " is not one of its keys",
                table->name, table->default_index);
        }
    }
    for (size_t i = 0; config && i < config->feature_count; i++) {
        const struct eb_model_config_feature *feature = &config->features[i];
        const struct eb_named_table *table = eb_table_set_find(set, feature->table);
        if (table && table->index && feature->has_default &&
            eb_key_index_find(&table->keys, feature->default_index) < 0) {
            return eb_failure_set(failure,
                "model.yaml: feature '%.64s': default_index %" PRId64
                " is not a key of table '%.64s'",
                feature->name, feature->default_index, table->name);
        }
    }
    return true;
}

bool eb_set_build_finish(
    struct eb_table_set *set, const struct eb_model_config *config, struct eb_failure *failure)
{
    set->bytes = set->memory.mapped_bytes;
    qsort(set->tables, set->count, sizeof *set->tables, compare_tables);
    for (size_t i = 0; i < set->count; i++) {
        struct eb_named_table *table = &set->tables[i];
        table->table.keys = table->index ? &table->keys : NULL;
        if (table->is_remote && table->remote.rule.by_key) {
            table->table.keys = &eb_key_index_remote;
        }
        assert(table->is_remote || eb_table_is_sound(&table->table));
    }
    set->digest = eb_table_digest_of_set(set);
    if (!check_default_keys(set, config, failure) || !eb_table_memory_seal(&set->memory, failure)) {
        return false;
    }
    count_pages(set);
    return true;
}
