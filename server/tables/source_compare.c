#include "server/tables/source_compare.h"

#include "server/tables/key_load.h"
#include "server/tables/row_load.h"
#include "server/tables/source_key.h"
#include "server/tables/table_digest.h"
#include "server/tables/table_plan.h"

#include <stdlib.h>
#include <string.h>

static int compare_compared_name(const void *name, const void *table)
{
    return strcmp(name, ((const struct eb_compared_table *)table)->name);
}

/* Compares the chunk of one table. */
static bool compare_chunk(const struct eb_table_plan *plan, const struct eb_planned_table *planned,
    struct eb_compared_table *table, struct eb_load_meter *meter, struct eb_failure *failure)
{
    uint64_t hash;
    if (!eb_row_load_hash_chunk(plan, planned, table->chunk, meter, &hash, failure)) {
        return false;
    }
    table->is_different = hash != table->chunk_hashes[table->chunk];
    return true;
}

/* Compares the keys of one table: whether they make its digest, together with the hashes of its
 * chunks. A digest that the file has ready-made is compared without reading the keys. */
static bool compare_keys(const struct eb_table_plan *plan, const struct eb_planned_table *planned,
    struct eb_compared_table *table, struct eb_load_meter *meter, struct eb_failure *failure)
{
    struct eb_key_load keys = {.plan = plan, .table = planned, .meter = meter};
    uint64_t keys_hash = 0;
    if (!eb_table_digest_is_known(planned) && !eb_key_load_hash(&keys, &keys_hash, failure)) {
        return false;
    }
    table->is_different =
        eb_table_digest_of(planned, table->chunk_hashes, keys_hash) != table->digest;
    return true;
}

static bool compare_table(const struct eb_table_plan *plan, const struct eb_planned_table *planned,
    struct eb_compared_table *table, struct eb_load_meter *meter, struct eb_failure *failure)
{
    return compare_chunk(plan, planned, table, meter, failure) &&
           (table->is_different || !planned->is_keyed ||
               compare_keys(plan, planned, table, meter, failure));
}

/* Returns whether the planned table has the same files as the one in memory had. */
static bool is_same_source(const struct eb_table_plan *plan, const struct eb_planned_table *planned,
    const struct eb_compared_table *table, const struct eb_resident_options *resident)
{
    return table->origin != 0 ? eb_source_key_origin(plan, planned) == table->origin
                              : eb_source_key(plan, planned, resident->model, resident->version) ==
                                    table->source_key;
}

bool eb_source_compare(const char *directory, const struct eb_table_options *options,
    struct eb_compared_table *tables, size_t count, const struct eb_load_progress *progress,
    struct eb_failure *failure)
{
    struct eb_table_plan plan;
    struct eb_load_meter meter;
    for (size_t i = 0; i < count; i++) {
        tables[i].is_different = false;
    }
    if (!eb_table_plan_read(directory, options, &plan, failure)) {
        return false;
    }
    eb_load_meter_init(&meter, progress, 0);
    bool is_good = true;
    for (size_t i = 0; i < plan.table_count && is_good; i++) {
        const struct eb_planned_table *planned = &plan.tables[i];
        struct eb_compared_table *table =
            bsearch(planned->name, tables, count, sizeof *tables, compare_compared_name);
        bool is_due = table && table->chunk < eb_row_load_chunk_count(planned) &&
                      is_same_source(&plan, planned, table, &options->resident);
        is_good = !is_due || compare_table(&plan, planned, table, &meter, failure);
    }
    eb_table_plan_deinit(&plan);
    return is_good;
}
