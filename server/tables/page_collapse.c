#include "server/tables/page_collapse.h"

#include <errno.h>

bool eb_page_collapse_is_due(const struct eb_table_set *set)
{
    const struct eb_page_count *pages = &set->pages;
    return set->memory.options.pages != EB_PAGE_SMALL && set->pages_error == 0 &&
           atomic_load(&set->bytes_2m) + pages->bytes_1g < pages->bytes;
}

/* Returns whether the mapping's pages may be small. */
static bool has_small_pages(const struct eb_table_mapping *mapping)
{
    bool is_file = mapping->backing == EB_TABLE_BACKING_FILE;
    return mapping->backing != EB_TABLE_BACKING_POOL &&
           !(is_file && mapping->dir->fs == EB_RESIDENT_HUGETLBFS);
}

/* Notes the result of one page. */
static void end_page(struct eb_page_round *round, int rc)
{
    bool is_short = rc == -ENOMEM || rc == -EBUSY;
    round->has_joined = round->has_joined || rc == 0;
    round->pages_left = is_short || !round->go_on(round->context) ? 0 : round->pages_left - 1;
}

/* Begins the round's pass over the mapping unless it has begun. */
static void begin_pass(const struct eb_page_round *round, struct eb_table_mapping *mapping)
{
    if (mapping->collapse_pass != round->pass) {
        mapping->collapse_pass = round->pass;
        mapping->collapse_left = has_small_pages(mapping) ? mapping->bytes / EB_PAGE_2M_BYTES : 0;
    }
}

/* Tries the pages of one mapping that the pass has not tried yet, as far as the round goes. Returns
 * whether it goes on. */
static bool collapse_mapping(void *context, struct eb_table_mapping *mapping)
{
    struct eb_page_round *round = context;
    bool is_any_good = false;
    begin_pass(round, mapping);
    while (mapping->collapse_left > 0 && round->pages_left > 0) {
        int rc = eb_table_mapping_collapse(mapping, mapping->collapse_next);
        is_any_good = is_any_good || rc != -EINVAL;
        /* If the kernel cannot join the first page, it is too old, or the process may not have huge
         * pages. */
        mapping->collapse_left = is_any_good ? mapping->collapse_left - 1 : 0;
        mapping->collapse_next = (mapping->collapse_next + EB_PAGE_2M_BYTES) % mapping->bytes;
        end_page(round, rc);
    }
    return round->pages_left > 0;
}

void eb_page_collapse_run(struct eb_page_round *round, const struct eb_table_set *set)
{
    if (round->pages_left > 0) {
        eb_table_memory_visit(&set->memory, collapse_mapping, round);
    }
}

void eb_page_collapse_recount(struct eb_table_set *set, const struct eb_page_report *report)
{
    uint64_t bytes = 0;
    uint64_t file_bytes = 0;
    for (size_t i = 0; i < set->count; i++) {
        uint64_t more = eb_table_set_count_pages(&set->tables[i], report).bytes_2m;
        bytes += more;
        file_bytes += set->tables[i].is_in_file ? more : 0;
    }
    atomic_store(&set->bytes_2m, bytes);
    atomic_store(&set->file_bytes_2m, file_bytes);
}
