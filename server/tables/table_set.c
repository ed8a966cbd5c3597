#include "server/tables/table_set.h"

#include <stdlib.h>
#include <string.h>

void eb_table_set_deinit(struct eb_table_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        free(set->tables[i].name);
        free(set->tables[i].vector);
        free(set->tables[i].chunk_hashes);
    }
    free(set->tables);
    free(set->lineage);
    free(set->manifest_yaml);
    eb_table_memory_deinit(&set->memory);
    *set = (struct eb_table_set){0};
}

struct eb_page_count eb_table_set_count_pages(
    const struct eb_named_table *table, const struct eb_page_report *report)
{
    if (table->is_remote) {
        return (struct eb_page_count){0};
    }
    struct eb_page_count rows =
        eb_page_report_count(report, table->base, table->resident_bytes - table->index_bytes);
    struct eb_page_count index = {0};
    if (table->index) {
        index = eb_page_report_count(report, table->index, table->index_bytes);
    }
    return (struct eb_page_count){
        rows.bytes + index.bytes, rows.bytes_2m + index.bytes_2m, rows.bytes_1g + index.bytes_1g};
}

uint64_t eb_table_set_copy_bytes(const struct eb_named_table *table)
{
    uint64_t bytes = table->resident_bytes;
    if (table->is_remote &&
        __builtin_mul_overflow(table->table.row_count, table->table.row_stride_bytes, &bytes)) {
        bytes = UINT64_MAX;
    }
    return bytes;
}

static int compare_set_name(const void *name, const void *table)
{
    return strcmp(name, ((const struct eb_named_table *)table)->name);
}

const struct eb_named_table *eb_table_set_find(const struct eb_table_set *set, const char *name)
{
    return set->count > 0
               ? bsearch(name, set->tables, set->count, sizeof *set->tables, compare_set_name)
               : NULL;
}
