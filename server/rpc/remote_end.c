#include "server/rpc/remote.h"

#include "server/rpc/bag_query.h"
#include "server/rpc/remote_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SCRATCH_ALIGNMENT 64 /* of eb_bag_job.scratch */

/* ---- failed results ---- */

/* Returns the result that a query of the plan belongs to. */
static struct eb_plan_result *find_result(const struct eb_plan *plan, uint32_t query)
{
    size_t low = 0;
    size_t high = plan->result_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (plan->results[middle].query_first <= query) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &plan->results[low];
}

/* Makes an error that of one result, whose queries are then not computed. Returns false if it is
 * that of the whole request. */
static bool fail_result(struct eb_lookup *lookup, uint32_t query, struct eb_error *error)
{
    struct eb_plan *plan = &lookup->plan;
    struct eb_plan_result *result = find_result(plan, query);
    size_t bytes = strlen(error->text) + 1;
    char *text = plan->request->errors_per_query && !plan->request->concat
                     ? eb_arena_take(&lookup->remote_arena, bytes)
                     : NULL;
    if (!text) {
        lookup->error = *error;
        return false;
    }
    if (result->status == EB_STATUS_OK) {
        memcpy(text, error->text, bytes);
        result->status = error->status;
        result->text = text;
    }
    for (uint32_t i = 0; i < result->query_count; i++) {
        plan->jobs[result->query_first + i].bag_count = 0;
    }
    result->query_count = 0;
    return true;
}

/* Fails the results that need a failed leg. */
static bool fail_results(struct eb_remote *remote, const struct remote_leg *sent)
{
    struct eb_error error;
    eb_remote_blame_part(remote, &sent->leg, &error);
    for (uint32_t i = 0; i < sent->route->query_count; i++) {
        const struct remote_slice *slice = &remote->slices[sent->route->queries[i].item];
        if (!fail_result(remote->lookup, slice->query->plan->number, &error)) {
            return false;
        }
    }
    return true;
}

/* ---- missing keys ---- */

bool eb_remote_lacks_key(const struct remote_slice *slice, const struct eb_route_merge *merge)
{
    return merge->is_default_missing ||
           (slice->route.rule.by_key && slice->route.missing == EB_MISSING_ERROR &&
               merge->missing_count > 0);
}

/* Sets flags[i] for each row `i` of a query's job that is a key which is missing, and clears the
 * others. */
static void flag_missing(
    const struct eb_remote *remote, const struct remote_query *query, bool *flags)
{
    uint32_t i = 0;
    for (uint32_t number = 0; number < query->slice_count; number++) {
        const bool *is_missing = remote->items[query->slice_first + number].merge.is_missing;
        uint32_t end = number + 1 < query->slice_count
                           ? remote->slices[query->slice_first + number + 1].row_first
                           : query->plan->row_count;
        for (uint32_t first = i; i < end; i++) {
            flags[i] = is_missing[query->plan->is_fetched ? query->fetch.numbers[i] : i - first];
        }
    }
}

/* Takes memory that is aligned as the scratch of a check must be. */
static void *take_aligned(struct eb_arena *arena, size_t bytes)
{
    uintptr_t memory = (uintptr_t)eb_arena_take(arena, bytes + SCRATCH_ALIGNMENT);
    return memory == 0
               ? NULL
               : (void *)((memory + SCRATCH_ALIGNMENT - 1) & ~(uintptr_t)(SCRATCH_ALIGNMENT - 1));
}

/* Returns for each row of a query's job the position of its index in the request; NULL if out of
 * memory. They are found as the rows were: by a check of the same layout, on a table whose rows are
 * the positions. */
static const eb_bag_row *find_positions(
    struct eb_lookup *lookup, const struct remote_query *query, uint64_t *index_count)
{
    struct eb_bag_query indexed = query->plan->query;
    struct eb_arena *arena = &lookup->remote_arena;
    uint64_t count = indexed.indices.bytes > 0 ? indexed.indices.bytes / indexed.indices.width : 0;
    int64_t *numbers = eb_arena_take(arena, count * sizeof *numbers);
    struct eb_table table = *indexed.table;
    struct eb_bag_extent extent;
    struct eb_bag_error unused;
    struct eb_bag_job job = {0};
    for (uint64_t i = 0; numbers && i < count; i++) {
        numbers[i] = (int64_t)i;
    }
    table.keys = NULL;
    table.row_count = count;
    indexed.table = &table;
    indexed.kind = NULL;
    indexed.id_map = NULL;
    indexed.has_default = false;
    indexed.missing = EB_MISSING_ERROR;
    indexed.weights = NULL;
    indexed.weights_bytes = 0;
    indexed.indices = (struct eb_int_array){numbers, count * sizeof *numbers, sizeof *numbers};
    if (!numbers || !eb_bag_measure(&indexed, &extent, &unused)) {
        return NULL;
    }
    job.scratch = take_aligned(arena, extent.scratch_bytes);
    *index_count = count;
    return job.scratch && eb_bag_check(lookup->plan.ops, &indexed, &extent, &job, &unused)
               ? job.rows
               : NULL;
}

/* Lists the positions of a query's missing keys, for report_missing. */
static bool list_remote_missing(struct eb_remote *remote, const struct remote_query *query)
{
    struct eb_lookup *lookup = remote->lookup;
    struct eb_plan_query *to = &lookup->plan.queries[query->plan->number];
    struct eb_arena *arena = &lookup->remote_arena;
    uint64_t missing_count = lookup->plan.jobs[query->plan->number].missing_count;
    uint64_t index_count = 0;
    const eb_bag_row *positions = find_positions(lookup, query, &index_count);
    bool *is_missing = eb_arena_take(arena, query->plan->row_count * sizeof *is_missing);
    bool *flags = eb_arena_take(arena, index_count * sizeof *flags);
    uint32_t *list = eb_arena_take(arena, missing_count * sizeof *list);
    struct eb_plan_missing *missing = eb_arena_take(arena, sizeof *missing);
    if (!positions || !is_missing || !flags || !list || !missing) {
        return eb_remote_refuse_memory(lookup);
    }
    flag_missing(remote, query, is_missing);
    memset(flags, 0, index_count * sizeof *flags);
    for (uint32_t i = 0; i < query->plan->row_count; i++) {
        if (is_missing[i]) {
            flags[positions[i]] = true;
        }
    }
    size_t count = 0;
    for (uint64_t i = 0; i < index_count && count < missing_count; i++) {
        if (flags[i]) {
            list[count++] = (uint32_t)(query->plan->first_index + i);
        }
    }
    *missing = (struct eb_plan_missing){
        .query = query->plan->query, .first_index = query->plan->first_index, .positions = list};
    to->missing = missing;
    return true;
}

struct named_position {
    const struct eb_bag_query_position *query;
    uint64_t key_count; /* of the whole table */
};

static void refuse_key(
    struct named_position position, const char *name, int64_t key, struct eb_error *error)
{
    eb_bag_query_refuse(position.query, error, EB_STATUS_OUT_OF_RANGE,
        "%s = %" PRId64 " is not one of the table's %" PRIu64 " key%s", name, key,
        position.key_count, position.key_count == 1 ? "" : "s");
}

/* Refuses a query because of a missing key, as if the keys were here. Returns false if the whole
 * request fails. */
static bool refuse_missing_key(
    struct eb_remote *remote, const struct remote_query *query, bool is_default)
{
    struct eb_lookup *lookup = remote->lookup;
    struct eb_arena *arena = &lookup->remote_arena;
    struct eb_error error;
    uint32_t row = UINT32_MAX;
    struct named_position position = {&query->plan->position, query->job.table->row_count};
    if (is_default) {
        refuse_key(position, "default_index", query->plan->query.default_index, &error);
        return fail_result(lookup, query->plan->number, &error);
    }
    char name[32];
    uint64_t index_count;
    const eb_bag_row *positions = find_positions(lookup, query, &index_count);
    bool *is_missing = eb_arena_take(arena, query->plan->row_count * sizeof *is_missing);
    if (!positions || !is_missing) {
        return eb_remote_refuse_memory(lookup);
    }
    flag_missing(remote, query, is_missing);
    for (uint32_t i = 0; i < query->plan->row_count; i++) {
        if (is_missing[i] && (row == UINT32_MAX || positions[i] < positions[row])) {
            row = i;
        }
    }
    snprintf(name, sizeof name, "indices[%" PRId64 "]", positions[row]);
    refuse_key(position, name, query->job.rows[row], &error);
    return fail_result(lookup, query->plan->number, &error);
}

/* ---- the final jobs ---- */

/* Sets *job to one that copies the results of a query that was cut into slices. */
static bool copy_results(
    const struct eb_remote *remote, struct remote_query *query, struct eb_bag_job *job)
{
    const struct eb_table *table = query->job.table;
    uint32_t count = query->job.bag_count;
    int64_t *rows = eb_arena_take(&remote->lookup->remote_arena, count * sizeof *rows);
    for (uint32_t bag = 0; rows && bag < count; bag++) {
        rows[bag] = bag;
    }
    query->table = (struct eb_table){
        .rows = query->results,
        .row_count = count,
        .row_stride_bytes = query->results_bytes / count,
        .row_elements = table->row_elements,
        .storage = (enum eb_storage)query->job.output_type,
        .type = query->job.output_type,
        .unknown_row = -1,
    };
    *job = (struct eb_bag_job){
        .table = &query->table,
        .lines = eb_bag_lines_find(&query->table, 0, table->row_elements),
        .rows = rows,
        .bag_count = count,
        .reduction = EB_REDUCTION_NONE,
        .output_type = query->job.output_type,
        .default_row = -1,
        .missing_count = job->missing_count,
        .gather_bytes = query->results_bytes,
        .out = job->out,
        .out_stride_bytes = job->out_stride_bytes,
    };
    return rows;
}

/* Replaces the job of a query by one on the rows that came. Returns false if the arena is full. */
static bool merge_query(struct eb_remote *remote, struct remote_query *query)
{
    struct eb_lookup *lookup = remote->lookup;
    struct eb_plan *plan = &lookup->plan;
    struct eb_bag_job *job = &plan->jobs[query->plan->number];
    struct eb_route_merge *merge = &remote->items[query->slice_first].merge;
    if (query->plan->is_fetched) {
        return eb_route_fetch_end(&query->fetch, merge, &lookup->remote_arena, job,
            &plan->queries[query->plan->number].unreached_count);
    }
    plan->counts.gather_bytes -= job->gather_bytes;
    bool is_good = true;
    if (query->results) {
        is_good = copy_results(remote, query, job);
    } else if (query->is_cut) {
        job->bag_count = 0; /* eb_remote_complete sets it again. */
        job->gather_bytes = 0;
    } else {
        is_good = eb_route_merge_end(merge, &lookup->remote_arena, job);
        remote->slices[query->slice_first].lacks_default =
            is_good && eb_route_merge_lacks_default(merge, job);
    }
    plan->counts.gather_bytes += job->gather_bytes;
    return is_good;
}

/* Notes how many indices of a query were not reached, and whether its result lacks a row. A missing
 * row number is not counted if only the row that replaces it was not reached. The rows do not tell
 * it from an index of that row, so as many are taken for missing as there are. */
static void note_unreached(const struct eb_remote *remote, const struct remote_query *query)
{
    struct eb_plan *plan = &remote->lookup->plan;
    struct eb_plan_query *to = &plan->queries[query->plan->number];
    const struct eb_bag_job *job = &plan->jobs[query->plan->number];
    uint64_t unreached_count = 0;
    uint64_t stand_in_count = 0;
    for (uint32_t i = query->slice_first; i < query->slice_first + query->slice_count; i++) {
        const struct eb_route_merge *merge = &remote->items[i].merge;
        unreached_count += merge->unreached_count;
        stand_in_count += merge->stand_in_count;
        to->is_incomplete |= merge->unreached_count > 0 || remote->slices[i].lacks_default;
    }
    if (!query->plan->is_fetched) { /* eb_route_fetch_end has counted otherwise. */
        to->unreached_count =
            unreached_count -
            (stand_in_count < job->missing_count ? stand_in_count : job->missing_count);
    }
}

/* Ends a query whose legs have all been answered. */
static bool end_query(struct eb_remote *remote, struct remote_query *query)
{
    struct eb_lookup *lookup = remote->lookup;
    struct eb_plan *plan = &lookup->plan;
    struct eb_bag_job *job = &plan->jobs[query->plan->number];
    uint64_t missing_count = 0;
    for (uint32_t i = query->slice_first; i < query->slice_first + query->slice_count; i++) {
        const struct eb_route_merge *merge = &remote->items[i].merge;
        if (eb_remote_lacks_key(&remote->slices[i], merge)) {
            return refuse_missing_key(remote, query, merge->is_default_missing);
        }
        missing_count += merge->missing_count;
    }
    bool is_keyed = remote->slices[query->slice_first].route.rule.by_key;
    if (!merge_query(remote, query)) {
        return eb_remote_refuse_memory(lookup);
    }
    note_unreached(remote, query);
    if (is_keyed && query->is_cut) {
        job->missing_count = missing_count;
    }
    eb_leg_link_note_unreached(remote->link, plan->queries[query->plan->number].unreached_count);
    return !is_keyed || missing_count == 0 || !plan->request->report_missing ||
           list_remote_missing(remote, query);
}

bool eb_remote_end(struct eb_lookup *lookup)
{
    struct eb_remote *remote = lookup->remote;
    if (lookup->error.status != EB_STATUS_OK) {
        return false;
    }
    for (uint32_t i = 0; i < remote->legs.count; i++) {
        const struct remote_leg *sent = &remote->sent[i];
        if (sent->leg.error.status != EB_STATUS_OK && !eb_remote_is_left_out(remote, &sent->leg) &&
            !fail_results(remote, sent)) {
            return false;
        }
    }
    for (size_t i = 0; i < remote->query_count; i++) {
        struct remote_query *query = &remote->queries[i];
        bool has_failed = find_result(&lookup->plan, query->plan->number)->status != EB_STATUS_OK;
        if (!has_failed && !end_query(remote, query)) {
            return false;
        }
    }
    lookup->plan.counts.gather_bytes += remote->pooled_bytes;
    return eb_plan_take_pending(&lookup->plan, &lookup->error);
}

void eb_remote_complete(struct eb_lookup *lookup, const struct eb_work *work)
{
    struct eb_remote *remote = lookup->remote;
    for (size_t i = 0; i < remote->query_count; i++) {
        const struct remote_query *query = &remote->queries[i];
        struct eb_bag_job *job = &lookup->plan.jobs[query->plan->number];
        if (job < work->jobs || job >= work->jobs + work->job_count) {
            continue;
        }
        if (query->is_cut && !query->results) {
            job->bag_count = query->job.bag_count;
        } else if (!query->is_cut && job->bag_count > 0) {
            eb_route_merge_fill(&remote->items[query->slice_first].merge, job);
        }
    }
}
