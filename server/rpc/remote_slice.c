#include "server/rpc/remote_slice.h"

#include "kernels/bag_stream.h"
#include "server/route/route_slice.h"

#include <string.h>

/* ---- cutting ---- */

static bool is_whole(const struct eb_remote *remote, const struct eb_plan_remote *from)
{
    return remote->lookup->plan.queries[from->number].table->remote.placement == EB_PLACEMENT_WHOLE;
}

static bool can_cut(const struct eb_remote *remote, const struct remote_query *query)
{
    return !query->plan->is_fetched && !is_whole(remote, query->plan) &&
           eb_route_can_slice(&query->job);
}

static uint32_t count_parts(const struct eb_remote *remote)
{
    return remote->lookup->version->tables.part.parts;
}

/* Returns whether the results of the parts might have more bytes than a slab. */
static bool needs_slices(const struct eb_remote *remote)
{
    uint64_t bytes_max = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < remote->query_count; i++) {
        const struct eb_bag_job *job = &remote->queries[i].job;
        if (can_cut(remote, &remote->queries[i])) {
            bytes_max += eb_route_row_count(job) * eb_route_sum_bytes(job);
        }
    }
    for (size_t i = 0; bytes_max > remote->slab_bytes && i < remote->query_count; i++) {
        const struct eb_bag_job *job = &remote->queries[i].job;
        if (can_cut(remote, &remote->queries[i])) {
            bytes += eb_route_slice_bytes(job, 0, job->bag_count, count_parts(remote));
        }
    }
    return bytes > remote->slab_bytes;
}

/* Returns whether nothing that the parts may say changes the answer's layout: no key is missing
 * that might be there, and no result fails or is incomplete by itself. */
static bool is_layout_known(const struct eb_remote *remote)
{
    const struct eb_lookup *lookup = remote->lookup;
    const struct eb_wire_request *request = lookup->request;
    bool is_known = !request->errors_per_query && !request->allow_incomplete &&
                    !(request->partial && lookup->may_be_partial);
    for (size_t i = 0; i < remote->query_count && is_known; i++) {
        const struct eb_plan_remote *from = remote->queries[i].plan;
        is_known =
            !from->is_fetched && !lookup->plan.queries[from->number].table->remote.rule.by_key;
    }
    return is_known;
}

/* Lays out the answer if its layout is known, so that the results of slices are computed in it.
 * Returns false with lookup->error set if that fails. */
static bool lay_out_early(struct eb_remote *remote)
{
    struct eb_lookup *lookup = remote->lookup;
    if (!is_layout_known(remote)) {
        return true;
    }
    if (!lookup->pool->lay_out(lookup, true)) {
        return false;
    }
    for (size_t i = 0; i < remote->query_count; i++) {
        struct remote_query *query = &remote->queries[i];
        const struct eb_bag_job *laid_out = &lookup->plan.jobs[query->plan->number];
        query->job.out = laid_out->out;
        query->job.out_stride_bytes = laid_out->out_stride_bytes;
    }
    return true;
}

static uint32_t find_slice_end(
    const struct eb_remote *remote, const struct remote_query *query, uint32_t begin)
{
    return eb_route_slice_end(
        &query->job, begin, count_parts(remote), remote->slab_bytes / EB_SLICES_PER_SLAB);
}

/* Counts the slices of all queries. */
static void count_slices(struct eb_remote *remote)
{
    for (size_t i = 0; i < remote->query_count; i++) {
        struct remote_query *query = &remote->queries[i];
        query->slice_first = remote->slice_count;
        query->slice_count = 1;
        if (remote->is_sliced && can_cut(remote, query) && query->job.bag_count > 0) {
            uint32_t end = find_slice_end(remote, query, 0);
            while (end < query->job.bag_count) {
                end = find_slice_end(remote, query, end);
                query->slice_count++;
            }
            query->is_cut = true;
        }
        remote->slice_count += query->slice_count;
    }
}

/* ---- splitting ---- */

/* Splits the slice with this number, whose job is set. */
static bool split_slice(struct eb_remote *remote, uint32_t number, const struct eb_bag_job *job)
{
    const struct eb_plan *plan = &remote->lookup->plan;
    struct eb_arena *arena = &remote->lookup->remote_arena;
    struct remote_slice *slice = &remote->slices[number];
    struct eb_route_item *item = &remote->items[number];
    const struct eb_plan_remote *from = slice->query->plan;
    const struct eb_named_table *table = plan->queries[from->number].table;
    slice->route = (struct eb_route_query){
        .job = job,
        .rule = table->remote.rule,
        .missing =
            from->query.missing == EB_MISSING_UNSPECIFIED ? EB_MISSING_ERROR : from->query.missing,
        .default_index = from->query.default_index,
        .has_default = from->query.has_default,
        .has_unknown_key = table->remote.has_unknown_key && table->table.unknown_row >= 0,
        .unknown_key = table->remote.unknown_key,
        .may_leave_out = plan->request->allow_incomplete,
        .wants_missing = from->is_fetched || plan->request->report_missing,
        .caps = &remote->caps,
        .counts = &remote->counts,
    };
    item->table = table->name;
    bool is_split = is_whole(remote, from) ? eb_route_split_whole(&slice->route, table->remote.part,
                                                 arena, &slice->split)
                                           : eb_route_split(&slice->route, arena, &slice->split);
    slice->open_sub_count = is_split ? slice->split.sub_count : 0;
    return is_split &&
           (slice->query->is_cut
                   ? eb_route_merge_prepare(&slice->split, plan->ops, arena, &item->merge)
                   : eb_route_merge_begin(&slice->split, plan->ops, arena, &item->merge));
}

/* Counts the rows of a query that are fetched, which the answer may lack. Returns false with
 * lookup->error set if there are too many. */
static bool count_fetched(struct eb_remote *remote, const struct remote_query *query)
{
    struct eb_lookup *lookup = remote->lookup;
    uint64_t bytes_max = lookup->pool->limits.response_bytes_max;
    remote->fetched_bytes +=
        query->fetch.job.bag_count * lookup->plan.queries[query->plan->number].result_row_bytes;
    return remote->fetched_bytes <= bytes_max ||
           eb_bag_query_refuse(&query->plan->position, &lookup->error, EB_STATUS_RESOURCE_EXHAUSTED,
               "including this one, the request has more than %llu bytes of rows to fetch from "
               "part servers (response_bytes_max)",
               (unsigned long long)bytes_max);
}

/* Splits a query that is not cut. */
static bool split_query(struct eb_remote *remote, struct remote_query *query)
{
    struct eb_arena *arena = &remote->lookup->remote_arena;
    const struct eb_plan_remote *from = query->plan;
    remote->slices[query->slice_first] = (struct remote_slice){.query = query};
    if (from->is_fetched &&
        (!eb_route_fetch_begin(&query->job, from->row_count, arena, &query->fetch) ||
            !count_fetched(remote, query))) {
        return false;
    }
    return split_slice(
        remote, query->slice_first, from->is_fetched ? &query->fetch.job : &query->job);
}

/* Sets where the results of a query that is cut are computed: in the answer if that is laid out,
 * otherwise in memory of their own. */
static bool aim_results(struct eb_remote *remote, struct remote_query *query)
{
    struct eb_bag_job *job = &query->job;
    if (job->out) {
        return true;
    }
    job->out_stride_bytes = remote->lookup->plan.queries[query->plan->number].result_row_bytes;
    query->results_bytes = job->bag_count * job->out_stride_bytes;
    query->results = remote->memory->take(remote->memory->context, query->results_bytes);
    job->out = query->results;
    return query->results;
}

/* Cuts a query and splits its slices. */
static bool cut_query(struct eb_remote *remote, struct remote_query *query)
{
    const struct eb_bag_job *job = &query->job;
    uint32_t begin = 0;
    if (!aim_results(remote, query)) {
        return false;
    }
    for (uint32_t i = 0; i < query->slice_count; i++) {
        struct remote_slice *slice = &remote->slices[query->slice_first + i];
        uint32_t end = find_slice_end(remote, query, begin);
        *slice = (struct remote_slice){.query = query, .row_first = job->starts[begin]};
        if (!eb_route_slice(job, begin, end, &remote->lookup->remote_arena, &slice->job)) {
            return false;
        }
        slice->job.out = job->out + begin * job->out_stride_bytes;
        if (!split_slice(remote, query->slice_first + i, &slice->job)) {
            return false;
        }
        begin = end;
    }
    return true;
}

/* ---- memory for rows ---- */

/* Returns whether a slice needs memory for its rows that it does not have yet. */
static bool lacks_rows(const struct remote_slice *slice)
{
    return slice->query->is_cut && slice->rows_bytes == 0;
}

bool eb_remote_slices_may_open(const struct eb_remote *remote, const struct eb_route_leg *leg)
{
    uint64_t bytes = remote->rows_bytes;
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < leg->query_count; i++) {
        uint32_t number = leg->queries[i].item;
        if (number != last && lacks_rows(&remote->slices[number])) {
            bytes += eb_route_merge_rows_bytes(&remote->items[number].merge);
        }
        last = number;
    }
    return bytes <= remote->slab_bytes || leg->queries[0].item == remote->oldest;
}

/* Takes the memory for the rows of a slice. */
static bool take_rows(struct eb_remote *remote, uint32_t number)
{
    struct remote_slice *slice = &remote->slices[number];
    struct eb_route_merge *merge = &remote->items[number].merge;
    uint64_t bytes = eb_route_merge_rows_bytes(merge);
    if (bytes == 0) { /* No part sends rows of its bags. */
        return true;
    }
    uint8_t *rows = remote->memory->take(remote->memory->context, bytes);
    if (!rows) {
        return false;
    }
    slice->rows_bytes = bytes;
    remote->rows_bytes += bytes;
    return eb_route_merge_set_rows(
        merge, remote->lookup->plan.ops, &remote->lookup->remote_arena, rows);
}

bool eb_remote_slices_open(struct eb_remote *remote, const struct eb_route_leg *leg)
{
    for (uint32_t i = 0; i < leg->query_count; i++) {
        uint32_t number = leg->queries[i].item;
        if (lacks_rows(&remote->slices[number]) && !take_rows(remote, number)) {
            return false;
        }
    }
    return true;
}

static void give_rows(struct eb_remote *remote, uint32_t number)
{
    struct remote_slice *slice = &remote->slices[number];
    if (slice->rows_bytes > 0) {
        struct eb_route_merge *merge = &remote->items[number].merge;
        remote->memory->give(remote->memory->context, merge->rows, slice->rows_bytes);
        remote->rows_bytes -= slice->rows_bytes;
        slice->rows_bytes = 0;
        merge->rows = NULL;
    }
}

/* ---- results ---- */

/* Computes the results of a slice, if it has not failed and no key is missing that must not be. */
static bool compute_slice(struct eb_remote *remote, uint32_t number)
{
    struct remote_slice *slice = &remote->slices[number];
    struct eb_route_merge *merge = &remote->items[number].merge;
    struct eb_bag_job job;
    if (slice->has_failed || eb_remote_lacks_key(slice, merge)) {
        return true;
    }
    /* It has no rows if none of its legs was sent in time, or if it needs none. */
    if (lacks_rows(slice) && !take_rows(remote, number)) {
        return false;
    }
    if (!eb_route_merge_end(merge, &remote->lookup->remote_arena, &job)) {
        return false;
    }
    eb_bag_pool(remote->lookup->plan.ops, &job, 0, job.bag_count);
    remote->pooled_bytes += job.gather_bytes;
    eb_route_merge_fill(merge, &job);
    slice->lacks_default = eb_route_merge_lacks_default(merge, &job);
    return true;
}

/* Goes on to the first slice with open sub-queries. */
static void find_oldest(struct eb_remote *remote)
{
    while (remote->oldest < remote->slice_count &&
           remote->slices[remote->oldest].open_sub_count == 0) {
        remote->oldest++;
    }
}

bool eb_remote_slices_note_over(struct eb_remote *remote, const struct remote_leg *sent)
{
    bool is_good = true;
    for (uint32_t i = 0; i < sent->route->query_count; i++) {
        uint32_t number = sent->route->queries[i].item;
        struct remote_slice *slice = &remote->slices[number];
        slice->open_sub_count--;
        if (slice->open_sub_count == 0 && slice->query->is_cut) {
            is_good = is_good && compute_slice(remote, number);
            give_rows(remote, number);
        }
    }
    find_oldest(remote);
    return is_good;
}

/* Computes the results of slices that need no part: no index of their bags names a row. */
static bool compute_idle(struct eb_remote *remote)
{
    bool is_good = true;
    for (uint32_t i = 0; i < remote->slice_count && is_good; i++) {
        if (remote->slices[i].query->is_cut && remote->slices[i].open_sub_count == 0) {
            is_good = compute_slice(remote, i);
            give_rows(remote, i);
        }
    }
    return is_good;
}

/* ---- begin and end ---- */

bool eb_remote_slices_begin(struct eb_remote *remote)
{
    struct eb_arena *arena = &remote->lookup->remote_arena;
    remote->is_sliced = needs_slices(remote);
    if (remote->is_sliced) {
        /* So that a slab has room for two legs to each part. */
        remote->caps.answer_bytes = remote->slab_bytes / (2 * count_parts(remote));
        /* Its slices, and those between them, all get memory when it is sent. */
        remote->caps.rows_bytes = remote->slab_bytes / EB_SLICES_PER_SLAB * EB_SLICES_PER_LEG;
        if (!lay_out_early(remote)) {
            return false;
        }
    }
    count_slices(remote);
    remote->items = eb_arena_take(arena, remote->slice_count * sizeof *remote->items);
    remote->slices = eb_arena_take(arena, remote->slice_count * sizeof *remote->slices);
    if (remote->slices) {
        memset(remote->slices, 0, remote->slice_count * sizeof *remote->slices);
    }
    if (!remote->slices || !remote->items) {
        return false;
    }
    for (size_t i = 0; i < remote->query_count; i++) {
        struct remote_query *query = &remote->queries[i];
        if (query->is_cut ? !cut_query(remote, query) : !split_query(remote, query)) {
            return false;
        }
    }
    find_oldest(remote);
    return compute_idle(remote);
}

void eb_remote_slices_free(struct eb_remote *remote)
{
    for (uint32_t i = 0; remote->slices && i < remote->slice_count; i++) {
        give_rows(remote, i);
    }
    for (size_t i = 0; i < remote->query_count; i++) {
        struct remote_query *query = &remote->queries[i];
        if (query->results) {
            remote->memory->give(remote->memory->context, query->results, query->results_bytes);
            query->results = NULL;
        }
    }
}
