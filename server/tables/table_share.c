#include "server/tables/table_share.h"

#include "server/tables/key_load.h"
#include "server/tables/row_load.h"
#include "server/tables/source_key.h"
#include "server/tables/table_digest.h"
#include "server/tables/table_plan.h"

#include <stdlib.h>
#include <string.h>

/* The state of a search. */
struct search {
    const struct eb_table_plan *plan;
    const struct eb_table_options *options;
    struct eb_load_meter *meter;
    struct eb_failure *failure;
};

/* Returns whether two tables have the same type, storage, shape, layout and is_keyed, so that they
 * could be equal. */
static bool is_shared_alike(
    const struct eb_planned_table *planned, const struct eb_named_table *resident)
{
    const struct eb_tensor *tensor = &planned->tensor;
    return planned->type == resident->table.type && planned->storage == resident->table.storage &&
           planned->row_stride_bytes == resident->table.row_stride_bytes &&
           planned->is_keyed == !!resident->index && tensor->rank == resident->rank &&
           memcmp(tensor->dims, resident->dims, tensor->rank * sizeof tensor->dims[0]) == 0;
}

static bool can_share(const struct eb_table_set *set, const struct eb_named_table *resident)
{
    const struct eb_table_mapping *mapping =
        resident->is_remote ? NULL : eb_table_memory_find(&set->memory, resident->base);
    return mapping && !atomic_load_explicit(&mapping->is_outdated, memory_order_relaxed);
}

/* Returns whether two tables are known to be equal without reading files. */
static bool is_known(const struct eb_planned_table *planned, const struct eb_named_table *resident)
{
    return planned->origin == resident->origin ||
           (eb_table_digest_is_known(planned) &&
               planned->rows.pieces->packed->digest == resident->digest);
}

static void find_shared_known(const struct eb_table_set *set, struct eb_planned_table *planned)
{
    for (size_t i = 0; i < set->count && !planned->resident; i++) {
        const struct eb_named_table *resident = &set->tables[i];
        if (is_known(planned, resident) && is_shared_alike(planned, resident) &&
            can_share(set, resident)) {
            planned->resident = resident;
            planned->resident_set = set;
        }
    }
}

/* Compares the rows with those of the resident table, up to a difference. Sets *hashes to the
 * hashes of their chunks, which the caller frees, if there is none, and otherwise to NULL. */
static bool compare_rows(const struct search *search, const struct eb_planned_table *planned,
    const struct eb_named_table *resident, uint64_t **hashes)
{
    struct eb_row_load rows;
    *hashes = NULL;
    if (!eb_row_load_init(&rows, search->plan, planned, search->failure)) {
        return false;
    }
    rows.resident = resident->base;
    bool is_good = eb_row_load_run(&rows, 1, search->options->load_threads, search->options->ops,
        search->meter, search->failure);
    if (is_good && !rows.has_difference) {
        *hashes = rows.chunk_hashes;
        rows.chunk_hashes = NULL;
    }
    eb_row_load_deinit(&rows);
    return is_good;
}

/* Compares the planned table with the resident one. Reads its files up to a difference. */
static bool compare(const struct search *search, const struct eb_planned_table *planned,
    const struct eb_named_table *resident, bool *is_same)
{
    uint64_t *hashes;
    if (!compare_rows(search, planned, resident, &hashes)) {
        return false;
    }
    struct eb_key_load keys = {.plan = search->plan, .table = planned, .meter = search->meter};
    uint64_t keys_hash = 0;
    bool is_good =
        !hashes || !planned->is_keyed || eb_key_load_hash(&keys, &keys_hash, search->failure);
    *is_same =
        is_good && hashes && eb_table_digest_of(planned, hashes, keys_hash) == resident->digest;
    free(hashes);
    return is_good;
}

/* Returns the set's table of the same name if the planned table could be equal to it and could
 * share its memory. Otherwise returns NULL. */
static const struct eb_named_table *find_alike(
    const struct eb_table_set *set, const struct eb_planned_table *planned)
{
    const struct eb_named_table *resident = eb_table_set_find(set, planned->name);
    return resident && is_shared_alike(planned, resident) && can_share(set, resident) ? resident
                                                                                      : NULL;
}

static bool find_equal(const struct search *search, struct eb_planned_table *planned)
{
    const struct eb_table_options *options = search->options;
    const uint8_t *compared = NULL;
    for (size_t i = 0; i < options->resident_count; i++) {
        const struct eb_table_set *set = options->residents[i];
        const struct eb_named_table *resident = find_alike(set, planned);
        if (!resident || resident->base == compared) {
            continue;
        }
        bool is_same = false;
        if (!compare(search, planned, resident, &is_same)) {
            return false;
        }
        if (is_same) {
            planned->resident = resident;
            planned->resident_set = set;
            return true;
        }
        compared = resident->base;
    }
    return true;
}

void eb_table_share_find_known(struct eb_table_plan *plan, const struct eb_table_options *options)
{
    for (size_t i = 0; i < plan->table_count; i++) {
        struct eb_planned_table *planned = &plan->tables[i];
        planned->origin = eb_source_key_origin(plan, planned);
        bool is_small = planned->rows_bytes < EB_PAGE_2M_BYTES;
        for (size_t k = 0; k < options->resident_count && !is_small && !planned->resident; k++) {
            find_shared_known(options->residents[k], planned);
        }
        /* Tables whose digest is known have already been compared with all residents. */
        bool is_decided = is_small || planned->resident || eb_table_digest_is_known(planned);
        for (size_t k = 0; k < options->resident_count && !is_decided && !planned->is_open; k++) {
            planned->is_open = find_alike(options->residents[k], planned);
        }
    }
    eb_table_plan_measure(plan);
}

bool eb_table_share_find_equal(struct eb_table_plan *plan, const struct eb_table_options *options,
    struct eb_load_meter *meter, struct eb_failure *failure)
{
    struct search search = {plan, options, meter, failure};
    for (size_t i = 0; i < plan->table_count; i++) {
        struct eb_planned_table *planned = &plan->tables[i];
        if (planned->is_open && !find_equal(&search, planned)) {
            return false;
        }
        planned->is_open = false;
    }
    eb_table_plan_measure(plan);
    meter->total_bytes = atomic_load(&meter->done_bytes) + plan->work_bytes;
    return true;
}
