#include "server/rpc/plan.h"

#include "kernels/bag_measure.h"
#include "kernels/bag_sequence.h"
#include "server/rpc/group_query.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define ERROR_TEXT_BYTES 512

/* Scratch memory is taken in pieces, since the need is only known query by query. Each piece is
 * twice as large as the one before, so that a large request has few pieces. */
#define SCRATCH_BYTES_MIN ((size_t)4 << 10)
#define SCRATCH_ALIGNMENT 64

/* The head of a piece of scratch. */
struct eb_plan_scratch {
    _Alignas(SCRATCH_ALIGNMENT) struct eb_plan_scratch *next;
    size_t bytes; /* size of the piece with this head */
};

static_assert(sizeof(struct eb_plan_scratch) == SCRATCH_ALIGNMENT, "what follows it is aligned");

/* A query whose values are not checked yet. */
struct draft {
    const struct eb_feature *feature;
    struct eb_bag_query query;
    struct eb_bag_extent extent;
    bool is_sequence; /* if so, `query` has the reduction SUM, and the next two members are set */
    struct eb_bag_sequence sequence;
    struct eb_bag_sequence_extent sequence_extent;
};

/* A sequence lookup whose lists are made later (eb_plan_sequence.pending). */
struct eb_plan_pending {
    const struct draft *drafts;            /* of the query, or [features] of the group */
    struct eb_bag_query_position position; /* of the query, or of the whole group */
};

static_assert(sizeof(struct draft) + sizeof(struct eb_plan_query) + sizeof(struct eb_bag_job) +
                      sizeof(struct eb_plan_result) + sizeof(struct eb_plan_missing) +
                      sizeof(struct eb_feature *) + sizeof(struct eb_plan_sequence) +
                      sizeof(struct eb_plan_remote) + sizeof(struct eb_plan_pending) +
                      ERROR_TEXT_BYTES + 64 <=
                  EB_PLAN_QUERY_BYTES,
    "what planning a query takes");

static bool fail_limit(const struct eb_bag_query_position *position, struct eb_error *error,
    const char *what, uint64_t limit)
{
    return eb_bag_query_refuse(position, error, EB_STATUS_RESOURCE_EXHAUSTED,
        "including this one, the request has more than %llu %s", (unsigned long long)limit, what);
}

/* Counts bytes of values against the request's cap. */
static inline bool count_values(struct eb_plan *plan, const struct eb_bag_query_position *position,
    uint64_t bytes, struct eb_error *error)
{
    uint64_t bytes_max = plan->limits->response_bytes_max;
    plan->asked.values_bytes += bytes;
    return plan->asked.values_bytes <= bytes_max ||
           fail_limit(position, error, "bytes of answer (response_bytes_max)", bytes_max);
}

/* Counts a query against the request's caps, which limit sums over all queries so far. No sum can
 * wrap: each addend is bounded by the kernels' caps times the longest row. */
static inline bool count_query(struct eb_plan *plan, const struct eb_bag_query_position *position,
    const struct eb_bag_extent *extent, struct eb_error *error)
{
    const struct eb_limits *limits = plan->limits;
    struct eb_plan_asked *asked = &plan->asked;
    asked->index_count += extent->index_count;
    if (asked->index_count > limits->indices_max) {
        return fail_limit(position, error, "indices (indices_max)", limits->indices_max);
    }
    asked->result_rows += extent->result_rows;
    if (asked->result_rows > limits->bags_max) {
        return fail_limit(position, error, "bags (bags_max)", limits->bags_max);
    }
    return count_values(plan, position, extent->result_rows * extent->result_row_bytes, error);
}

/* Returns whether a query that has been measured is not pooled. */
static inline bool has_no_reduction(const struct draft *draft)
{
    return draft->is_sequence || draft->query.reduction == EB_REDUCTION_NONE;
}

/* Refuses a result that cannot be joined with the first (check_joined). Always returns false. */
static __attribute__((cold, noinline)) bool refuse_joined(
    const struct eb_bag_query_position *position, const struct draft *first,
    const struct draft *draft, struct eb_error *error)
{
    enum eb_status status = EB_STATUS_INVALID_ARGUMENT;
    const char *what = position->is_group ? "a group" : "concat";
    uint32_t elements = draft->query.table->row_elements;
    if (!position->is_group && has_no_reduction(draft)) {
        return eb_bag_query_refuse(
            position, error, status, "%s is not possible with the reduction NONE", what);
    }
    if (draft->is_sequence != first->is_sequence) {
        return eb_bag_query_refuse(position, error, status,
            "%s needs the reduction NONE for all features or for none, but %s has it; set the "
            "group's reduction",
            what, draft->is_sequence ? "this one and not the first" : "the first and not this one");
    }
    if (!eb_type_is_float(draft->extent.output_type)) {
        return eb_bag_query_refuse(position, error, status,
            "%s needs floating-point results, but this table holds integers", what);
    }
    if (draft->extent.output_type != first->extent.output_type) {
        return eb_bag_query_refuse(position, error, status,
            "%s needs results of one type, but this one is %s and the first is %s; set output_type",
            what, eb_type_name(draft->extent.output_type), eb_type_name(first->extent.output_type));
    }
    if (draft->is_sequence && elements != first->query.table->row_elements) {
        return eb_bag_query_refuse(position, error, status,
            "%s with the reduction NONE needs rows of one size, but this one has rows of %" PRIu32
            " values and the first of %" PRIu32,
            what, elements, first->query.table->row_elements);
    }
    return eb_bag_query_refuse(position, error, status,
        "%s needs the same number of bags in every query, but this one has %llu and the first has "
        "%llu",
        what, (unsigned long long)draft->extent.result_rows,
        (unsigned long long)first->extent.result_rows);
}

/* Checks that a result can be joined with the first. Results that lie side by side must have the
 * same type and the same number of bags; those of a sequence lookup, which lie one after the other,
 * also need rows of one size. */
static inline bool check_joined(const struct eb_bag_query_position *position,
    const struct draft *first, const struct draft *draft, struct eb_error *error)
{
    bool is_alike = draft->extent.output_type == first->extent.output_type &&
                    draft->extent.result_rows == first->extent.result_rows &&
                    eb_type_is_float(draft->extent.output_type);
    if (__builtin_expect(is_alike && !first->is_sequence && !has_no_reduction(draft), 1)) {
        return true;
    }
    bool is_in_order = position->is_group && draft->is_sequence && first->is_sequence &&
                       draft->query.table->row_elements == first->query.table->row_elements;
    return (is_alike && is_in_order) || refuse_joined(position, first, draft, error);
}

static bool grow_scratch(struct eb_plan *plan, size_t bytes)
{
    struct eb_plan_scratch *before = plan->scratch;
    size_t piece_bytes = before ? 2 * before->bytes : SCRATCH_BYTES_MIN;
    if (piece_bytes < bytes + sizeof *before) {
        piece_bytes = bytes + sizeof *before;
    }
    struct eb_plan_scratch *piece = eb_buffer_pool_take(plan->pool, piece_bytes);
    if (!piece) {
        return false;
    }
    *piece = (struct eb_plan_scratch){before, piece_bytes};
    plan->scratch = piece;
    plan->scratch_room = (uint8_t *)(piece + 1);
    plan->scratch_room_bytes = piece_bytes - sizeof *piece;
    return true;
}

/* Returns room for `bytes` more bytes of scratch, without taking them. Returns NULL if out of
 * memory. */
static inline uint8_t *find_scratch(struct eb_plan *plan, size_t bytes)
{
    /* A query may need no scratch at all, but the result must not be NULL even then. */
    bool is_there = plan->scratch && bytes <= plan->scratch_room_bytes;
    return is_there || grow_scratch(plan, bytes) ? plan->scratch_room : NULL;
}

/* Takes scratch for an array. Returns NULL if out of memory. */
static void *take_scratch_array(struct eb_plan *plan, uint64_t count, size_t element_bytes)
{
    uint64_t bytes =
        (count * element_bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
    uint8_t *room = find_scratch(plan, bytes);
    if (room) {
        plan->scratch_room += bytes;
        plan->scratch_room_bytes -= bytes;
    }
    return room;
}

/* Returns whether the table's rows are on other servers, and only these know its keys. */
static bool has_remote_keys(const struct draft *draft)
{
    return draft->feature->table->is_remote && draft->query.table->keys;
}

/* Marks the sequence lookup as pending if its lists cannot be made now. Returns false if out of
 * memory. */
static bool keep_pending(struct eb_plan *plan, const struct eb_bag_query_position *position,
    const struct draft *drafts, size_t count, struct eb_plan_sequence *sequence)
{
    bool is_pending = false;
    for (size_t i = 0; i < count; i++) {
        /* Rows that cannot be reached leave their bags. */
        bool may_lose_rows = plan->request->allow_incomplete && drafts[i].feature->table->is_remote;
        is_pending = is_pending || may_lose_rows || has_remote_keys(&drafts[i]);
    }
    if (!is_pending) {
        return true;
    }
    struct eb_plan_pending *pending = eb_arena_take(plan->arena, sizeof *pending);
    struct draft *kept = NULL;
    if (!position->is_group) { /* The drafts of a group are in the arena. */
        kept = eb_arena_take(plan->arena, sizeof *kept);
        if (!kept) {
            return false;
        }
        *kept = drafts[0];
    }
    if (!pending) {
        return false;
    }
    *pending = (struct eb_plan_pending){kept ? kept : drafts, *position};
    sequence->pending = pending;
    return true;
}

/* Takes memory for the lists of a sequence lookup and gives them to the plan's next result.
 * `drafts` has the measured query, or those of a group; a group's are kept. `position` is that of
 * the query, or of the whole group. Returns false with *error set if out of memory. */
static __attribute__((cold, noinline)) bool begin_sequence(struct eb_plan *plan,
    const struct eb_bag_query_position *position, const struct draft *drafts, size_t count,
    struct eb_error *error)
{
    const struct eb_bag_sequence *first = &drafts[0].sequence;
    uint64_t bag_count = 0;
    uint64_t kept_max = 0;
    for (size_t i = 0; i < count; i++) {
        bag_count += drafts[i].sequence_extent.bag_count;
        kept_max += drafts[i].sequence_extent.kept_max;
    }
    struct eb_plan_sequence *sequence = eb_arena_take(plan->arena, sizeof *sequence);
    int32_t *lengths = take_scratch_array(plan, bag_count, sizeof *lengths);
    uint32_t *inverse = first->unique ? take_scratch_array(plan, kept_max, sizeof *inverse) : NULL;
    if (!sequence || !lengths || (first->unique && !inverse)) {
        return eb_plan_refuse_memory(error, "the lengths of the bags (answer_memory_bytes)");
    }
    *sequence = (struct eb_plan_sequence){
        .lengths = lengths,
        .inverse = inverse,
        .padded_len = first->pad ? first->max_len : 0,
    };
    if (!keep_pending(plan, position, drafts, count, sequence)) {
        return eb_plan_refuse_memory(error, "the request's queries");
    }
    plan->results[plan->result_count].is_single = false;
    plan->results[plan->result_count].sequence = sequence;
    return true;
}

/* Finds the sizes of a query that has been filled in and is a sequence lookup, and counts it. With
 * padding, each row of the result counts as a bag. Without padding, the number of rows depends on
 * the indices, and the values are counted when it is known. Kept out of line since most queries are
 * pooled. */
static __attribute__((cold, noinline)) bool measure_sequence(struct eb_plan *plan,
    const struct eb_bag_query_position *position, const struct eb_wire_sequence *wire,
    struct draft *draft, struct eb_error *error)
{
    struct eb_bag_error bag_error;
    draft->sequence = (struct eb_bag_sequence){
        .max_len = wire->max_len,
        .keep_first = wire->keep_first,
        .pad = wire->pad,
        .unique = wire->unique,
    };
    if (!eb_bag_query_begin_sequence(position, wire, &draft->query, error)) {
        return false;
    }
    draft->is_sequence = true;
    if (!eb_bag_measure(&draft->query, &draft->extent, &bag_error) ||
        !eb_bag_sequence_measure(
            &draft->query, &draft->sequence, &draft->extent, &draft->sequence_extent, &bag_error)) {
        return eb_bag_query_error(position, &bag_error, error);
    }
    struct eb_bag_extent counted = draft->extent;
    if (wire->pad) {
        counted.result_rows = draft->sequence_extent.rows_max;
    } else {
        counted.result_row_bytes = 0;
    }
    return count_query(plan, position, &counted, error);
}

/* Finds the sizes of a query that has been filled in, and counts it. */
static inline bool measure_plan(struct eb_plan *plan, const struct eb_bag_query_position *position,
    const struct eb_wire_query *wire, struct draft *draft, struct eb_error *error)
{
    struct eb_bag_error bag_error;
    draft->is_sequence = false;
    if (__builtin_expect(eb_wire_sequence_is_set(&wire->sequence), 0)) {
        return measure_sequence(plan, position, &wire->sequence, draft, error) &&
               begin_sequence(plan, position, draft, 1, error);
    }
    if (!eb_bag_measure(&draft->query, &draft->extent, &bag_error)) {
        return eb_bag_query_error(position, &bag_error, error);
    }
    return count_query(plan, position, &draft->extent, error);
}

/* Finds the sizes of the query of a feature of a laid-out group, and counts the query. */
static inline bool measure_feature(struct eb_plan *plan, const struct eb_group_query *group,
    const struct eb_bag_query_position *position, struct draft *draft, struct eb_error *error)
{
    struct eb_bag_error bag_error;
    const uint64_t *starts = &group->starts[position->feature];
    bool is_none = draft->query.reduction == EB_REDUCTION_NONE;
    draft->is_sequence = false;
    if (__builtin_expect(is_none | group->is_sequence_set, 0)) {
        return measure_sequence(plan, position, &group->wire->sequence, draft, error);
    }
    if (!eb_bag_measure_counted(&draft->query, starts[1] - starts[0], &draft->extent, &bag_error)) {
        return eb_bag_query_error(position, &bag_error, error);
    }
    return count_query(plan, position, &draft->extent, error);
}

/* Keeps the data for listing the query's missing indices. Returns NULL if out of memory. */
static const struct eb_plan_missing *keep_missing(
    struct eb_plan *plan, const struct eb_bag_query *query, uint64_t first_index)
{
    struct eb_plan_missing *missing = eb_arena_take(plan->arena, sizeof *missing);
    if (missing) {
        *missing = (struct eb_plan_missing){.query = *query, .first_index = first_index};
    }
    return missing;
}

/* Returns whether a query's indices lie in no bag because its array of offsets is empty. They are
 * looked up all the same. */
static bool are_bagless(const struct eb_bag_query *query)
{
    return query->reduction != EB_REDUCTION_NONE && query->layout == EB_LAYOUT_OFFSETS &&
           query->bounds.bytes == 0 && query->indices.bytes > 0;
}

/* Returns whether a checked job is that of a pending sequence lookup: its rows have not been taken
 * out of their bags. */
static inline bool is_pending_job(const struct draft *draft, const struct eb_bag_job *job)
{
    return draft->is_sequence && job->starts;
}

/* Adds a query to those whose rows are on other servers. The plan's next job is its own. */
static __attribute__((cold, noinline)) bool keep_remote(struct eb_plan *plan,
    const struct eb_bag_query_position *position, const struct draft *draft, uint64_t first_index,
    struct eb_error *error)
{
    const struct eb_bag_job *job = &plan->jobs[plan->counts.query_count];
    bool is_bagless = has_remote_keys(draft) && are_bagless(&draft->query);
    struct eb_plan_remote *remote = eb_arena_take(plan->arena, sizeof *remote);
    if (!remote) {
        return eb_plan_refuse_memory(error, "the request's queries");
    }
    *remote = (struct eb_plan_remote){.next = plan->remotes,
        .number = plan->counts.query_count,
        .first_index = first_index,
        .query = draft->query,
        .position = *position,
        .is_fetched = is_bagless || is_pending_job(draft, job),
        .row_count = is_bagless    ? (uint32_t)draft->extent.index_count
                     : job->starts ? job->starts[job->bag_count]
                                   : job->bag_count};
    plan->remotes = remote;
    plan->remote_count++;
    return true;
}

/* Forgets the queries of a result that has failed. */
static void drop_remotes(struct eb_plan *plan)
{
    while (plan->remotes && plan->remotes->number >= plan->counts.query_count) {
        plan->remotes = plan->remotes->next;
        plan->remote_count--;
    }
}

/* Returns the rows of a job's result that are counted when it has been checked. Those of a pending
 * sequence lookup are known by then only if they are padded. */
static inline uint64_t count_checked_rows(const struct draft *draft, const struct eb_bag_job *job)
{
    if (__builtin_expect(is_pending_job(draft, job), 0)) {
        return draft->sequence.pad ? draft->sequence_extent.rows_max : 0;
    }
    return job->bag_count;
}

static inline void count_plan_computed(
    struct eb_plan *plan, const struct draft *draft, const struct eb_bag_job *job)
{
    struct eb_plan_counts *counts = &plan->counts;
    uint64_t row_count = count_checked_rows(draft, job);
    counts->query_count++;
    counts->index_count += draft->extent.index_count;
    counts->result_rows += row_count;
    counts->values_bytes += row_count * draft->extent.result_row_bytes;
    counts->gather_bytes += job->gather_bytes;
}

/* Turns the checked job of a sequence lookup into one that returns its rows, and appends its lists
 * to those of the result. */
static __attribute__((cold, noinline)) bool take_sequence(struct eb_plan *plan,
    struct eb_plan_sequence *sequence, const struct eb_bag_query_position *position,
    const struct draft *draft, struct eb_bag_job *job, struct eb_error *error)
{
    struct eb_bag_extent extent = draft->extent;
    struct eb_bag_sequence_lists lists = {
        .lengths = sequence->lengths + sequence->lengths_count,
        .inverse = sequence->inverse ? sequence->inverse + sequence->inverse_count : NULL,
        .first_row = (uint32_t)sequence->row_count,
    };
    if (job->table != draft->query.table) { /* Fetched rows have the output type. */
        extent.gather_row_bytes = extent.result_row_bytes;
    }
    eb_bag_sequence_take(&draft->sequence, &extent, &draft->sequence_extent, job, &lists);
    sequence->lengths_count += draft->sequence_extent.bag_count;
    sequence->inverse_count += sequence->inverse ? lists.kept_count : 0;
    sequence->row_count += job->bag_count;
    return draft->sequence.pad ||
           count_values(plan, position, job->bag_count * draft->extent.result_row_bytes, error);
}

/* Checks the values of a measured query and makes it the plan's next. `first_index` is as in struct
 * eb_plan_missing. */
static inline bool check_plan(struct eb_plan *plan, const struct eb_bag_query_position *position,
    const struct draft *draft, uint64_t first_index, struct eb_error *error)
{
    struct eb_bag_error bag_error;
    const struct eb_bag_extent *extent = &draft->extent;
    struct eb_bag_job *job = &plan->jobs[plan->counts.query_count];
    struct eb_plan_query *query = &plan->queries[plan->counts.query_count];
    job->scratch = find_scratch(plan, extent->scratch_bytes);
    if (!job->scratch) {
        return eb_plan_refuse_memory(error, "the request's indices (answer_memory_bytes)");
    }
    if (!eb_bag_check(plan->ops, &draft->query, extent, job, &bag_error)) {
        return eb_bag_query_error(position, &bag_error, error);
    }
    if (__builtin_expect(draft->is_sequence, 0)) {
        struct eb_plan_sequence *sequence = plan->results[plan->result_count].sequence;
        if (!sequence->pending && !take_sequence(plan, sequence, position, draft, job, error)) {
            return false;
        }
    }
    *query = (struct eb_plan_query){
        .table = draft->feature->table,
        .result_row_bytes = extent->result_row_bytes,
        .missing = NULL,
        .unreached_count = 0,
        .index_count = extent->index_count,
        .indices = draft->query.indices,
        .id_map = draft->query.id_map,
    };
    if (job->missing_count > 0 && plan->request->report_missing) {
        query->missing = keep_missing(plan, &draft->query, first_index);
        if (!query->missing) {
            return eb_plan_refuse_memory(error, "the list of missing indices");
        }
    }
    if (__builtin_expect(draft->feature->table->is_remote, 0) &&
        !keep_remote(plan, position, draft, first_index, error)) {
        return false;
    }
    plan->scratch_room += extent->scratch_bytes;
    plan->scratch_room_bytes -= extent->scratch_bytes;
    count_plan_computed(plan, draft, job);
    return true;
}

static struct eb_bag_query_position number_queries(const struct eb_plan *plan)
{
    return (struct eb_bag_query_position){
        .version = plan->version,
        .number = EB_NO_QUERY,
        .feature = EB_NO_FEATURE,
        .may_name_part = plan->may_name_part,
        .output_type = (enum eb_type)plan->request->output_type,
    };
}

/* Finds the table of one of the request's queries, and the query's sizes. `position` is that of the
 * query before, or a new one. */
static inline bool draft_query(struct eb_plan *plan, size_t number,
    struct eb_bag_query_position *position, struct draft *draft, struct eb_error *error)
{
    const struct eb_wire_query *wire = &plan->request->queries[number];
    position->table = wire->table;
    position->number = plan->request->infer ? EB_NO_QUERY : number;
    const struct eb_feature *feature = eb_bag_query_find(position, error);
    if (wire->error && (feature || wire->table[0] == '\0')) {
        *error = *wire->error;
        return false;
    }
    if (!feature) {
        return false;
    }
    position->last = feature;
    draft->feature = feature;
    return eb_bag_query_fill(position, feature, wire, &draft->query, error) &&
           measure_plan(plan, position, wire, draft, error);
}

/* Returns the tables of a group's features, [feature_count]. Returns NULL with *error set. */
static const struct eb_feature *const *find_features(struct eb_plan *plan,
    const struct eb_wire_group *wire, const struct eb_bag_query_position *whole,
    struct eb_error *error)
{
    const struct eb_feature *const *known = eb_feature_memo_find(plan->memo, wire, plan->version);
    if (known) {
        return known;
    }
    struct eb_bag_query_position position = *whole;
    const struct eb_feature **features =
        eb_arena_take(plan->arena, wire->feature_count * sizeof *features);
    if (!features) {
        eb_plan_refuse_memory(error, "the request's queries");
        return NULL;
    }
    for (size_t f = 0; f < wire->feature_count; f++) {
        position.feature = f;
        position.table = wire->features[f];
        position.last = features[f] = eb_bag_query_find(&position, error);
        if (!position.last) {
            return NULL;
        }
    }
    if (!plan->unknown_group) {
        plan->unknown_group = wire;
        plan->unknown_features = features;
    }
    return features;
}

/* Finds the sizes of features whose tables are known. */
static bool draft_features(struct eb_plan *plan, const struct eb_group_query *group,
    struct eb_bag_query_position *position, struct draft *drafts, struct eb_error *error)
{
    for (size_t f = 0; f < group->wire->feature_count; f++) {
        struct draft *draft = &drafts[f];
        position->feature = f;
        position->table = group->wire->features[f];
        if (!eb_group_query_fill(group, position, draft->feature, &draft->query, error) ||
            !measure_feature(plan, group, position, draft, error) ||
            !check_joined(position, &drafts[0], draft, error)) {
            return false;
        }
    }
    return true;
}

/* Checks the names of all features, then the sizes of all, then their values. */
static bool check_plan_features(struct eb_plan *plan, struct eb_group_query *group,
    const struct eb_bag_query_position *whole, struct eb_error *error)
{
    struct eb_bag_query_position position = *whole;
    size_t count = group->wire->feature_count;
    struct draft *drafts = eb_arena_take(plan->arena, count * sizeof *drafts);
    if (!drafts) {
        return eb_plan_refuse_memory(error, "the request's queries");
    }
    const struct eb_feature *const *features = find_features(plan, group->wire, whole, error);
    for (size_t f = 0; features && f < count; f++) {
        drafts[f].feature = features[f];
    }
    if (!features || !eb_group_query_lay_out(whole, plan->arena, group, error) ||
        !draft_features(plan, group, &position, drafts, error) ||
        (drafts[0].is_sequence && !begin_sequence(plan, whole, drafts, count, error))) {
        return false;
    }
    for (size_t f = 0; f < count; f++) {
        position.feature = f;
        position.table = group->wire->features[f];
        if (!check_plan(plan, &position, &drafts[f], group->starts[f], error)) {
            return false;
        }
    }
    return true;
}

static bool check_plan_group(struct eb_plan *plan, size_t number, struct eb_error *error)
{
    const struct eb_wire_group *wire = &plan->request->groups[number];
    struct eb_plan_asked asked = plan->asked;
    struct eb_plan_counts counts = plan->counts;
    struct eb_group_query group;
    struct eb_bag_query_position position = {
        .version = plan->version,
        .table = wire->name,
        .is_group = true,
        .number = number,
        .feature = EB_NO_FEATURE,
        .output_type = (enum eb_type)plan->request->output_type,
    };
    if (eb_group_query_begin(&position, wire, &group, error) &&
        check_plan_features(plan, &group, &position, error)) {
        return true;
    }
    /* A failed group does not count against the caps, because its message must hold bytes for each
     * of its bags. Padded rows do count: max_len can ask for a large number of them in a few bytes,
     * and those of the features before the faulty one have been made. */
    if (wire->sequence.pad) {
        asked.result_rows = plan->asked.result_rows;
    }
    plan->asked = asked;
    plan->counts = counts;
    drop_remotes(plan);
    return false;
}

/* Stores the error in its result. Returns false if the error is one of the whole request, such as
 * an exceeded limit. */
static bool keep_plan_error(
    struct eb_plan *plan, struct eb_plan_result *result, struct eb_error *error)
{
    if (!plan->request->errors_per_query || error->status == EB_STATUS_RESOURCE_EXHAUSTED) {
        return false;
    }
    size_t bytes = strlen(error->text) + 1;
    char *text = eb_arena_take(plan->arena, bytes);
    if (!text) {
        return eb_plan_refuse_memory(error, "the queries' errors");
    }
    memcpy(text, error->text, bytes);
    result->status = error->status;
    result->text = text;
    *error = (struct eb_error){0};
    return true;
}

/* Begins the plan's next result. */
static inline void begin_result(struct eb_plan *plan, size_t number, bool is_single)
{
    struct eb_plan_result *result = &plan->results[plan->result_count];
    result->query_first = plan->counts.query_count;
    result->number = (uint32_t)number;
    result->is_single = is_single;
    result->status = EB_STATUS_OK;
    result->sequence = NULL;
}

/* Ends the result. Returns false if its error is one of the whole request. */
static inline bool end_result(struct eb_plan *plan, bool is_good, struct eb_error *error)
{
    struct eb_plan_result *result = &plan->results[plan->result_count];
    if (!is_good && !keep_plan_error(plan, result, error)) {
        return false;
    }
    result->query_count = plan->counts.query_count - result->query_first;
    plan->result_count++;
    return true;
}

/* Subtracts a failed query from the sums that count against the caps, except for its bags: num_bags
 * can name a large number of bags in a few bytes, and all of them are begun before the query
 * fails. */
static void return_caps(struct eb_plan *plan)
{
    plan->asked.index_count = plan->counts.index_count;
    plan->asked.values_bytes = plan->counts.values_bytes;
}

static bool check_queries(struct eb_plan *plan, struct eb_error *error)
{
    struct eb_bag_query_position position = number_queries(plan);
    struct draft draft;
    for (size_t i = 0; i < plan->request->query_count; i++) {
        begin_result(plan, i, true);
        bool is_good = draft_query(plan, i, &position, &draft, error) &&
                       check_plan(plan, &position, &draft, 0, error);
        if (!is_good) {
            return_caps(plan);
        }
        if (!end_result(plan, is_good, error)) {
            return false;
        }
    }
    return true;
}

static bool check_plan_groups(struct eb_plan *plan, struct eb_error *error)
{
    for (size_t i = 0; i < plan->request->group_count; i++) {
        begin_result(plan, plan->request->query_count + i, false);
        if (!end_result(plan, check_plan_group(plan, i, error), error)) {
            return false;
        }
    }
    if (plan->unknown_group) {
        eb_feature_memo_keep(
            plan->memo, plan->unknown_group, plan->version, plan->unknown_features);
    }
    return true;
}

/* Checks all queries as one result. */
static bool check_concat(struct eb_plan *plan, struct eb_error *error)
{
    struct eb_bag_query_position position = number_queries(plan);
    struct draft first;
    struct draft other;
    if (plan->request->group_count > 0) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "concat is not possible with groups, whose features lie side by side anyway");
        return false;
    }
    for (size_t i = 0; i < plan->request->query_count; i++) {
        struct draft *draft = i == 0 ? &first : &other;
        if (!draft_query(plan, i, &position, draft, error) ||
            !check_joined(&position, &first, draft, error) ||
            !check_plan(plan, &position, draft, 0, error)) {
            return false;
        }
    }
    if (plan->counts.query_count > 0) {
        plan->results[plan->result_count++] =
            (struct eb_plan_result){.query_count = plan->counts.query_count, .is_single = false};
    }
    return true;
}

bool eb_plan_refuse_memory(struct eb_error *error, const char *what)
{
    eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
        "no memory left for %s; send less at once or retry later", what);
    return false;
}

static bool take_structs(struct eb_plan *plan)
{
    const struct eb_wire_request *request = plan->request;
    size_t results = request->query_count + request->group_count + 1;
    size_t queries = request->query_count + 1;
    for (size_t i = 0; i < request->group_count; i++) {
        queries += request->groups[i].feature_count;
    }
    plan->queries = eb_arena_take(plan->arena, queries * sizeof *plan->queries);
    plan->jobs = eb_arena_take(plan->arena, queries * sizeof *plan->jobs);
    plan->results = eb_arena_take(plan->arena, results * sizeof *plan->results);
    return plan->queries && plan->jobs && plan->results;
}

bool eb_plan_check(struct eb_plan *plan, struct eb_error *error)
{
    const struct eb_wire_request *request = plan->request;
    if (request->group_count > 0 &&
        !eb_group_query_list(request, plan->version, plan->limits->queries_max, error)) {
        return false;
    }
    if (!take_structs(plan)) {
        return eb_plan_refuse_memory(error, "the request's queries");
    }
    if (request->concat) {
        return check_concat(plan, error);
    }
    return check_queries(plan, error) && check_plan_groups(plan, error);
}

/* Does what eb_plan_take_pending does for one result. */
static bool take_pending(
    struct eb_plan *plan, const struct eb_plan_result *result, struct eb_error *error)
{
    const struct eb_plan_pending *pending = result->sequence->pending;
    struct eb_bag_query_position position = pending->position;
    struct eb_plan_counts *counts = &plan->counts;
    for (uint32_t i = 0; i < result->query_count; i++) {
        const struct draft *draft = &pending->drafts[i];
        struct eb_bag_job *job = &plan->jobs[result->query_first + i];
        if (position.is_group) {
            position.feature = i;
            position.table = plan->request->groups[position.number].features[i];
        }
        counts->gather_bytes -= job->gather_bytes;
        counts->result_rows -= count_checked_rows(draft, job);
        counts->values_bytes -= count_checked_rows(draft, job) * draft->extent.result_row_bytes;
        if (!take_sequence(plan, result->sequence, &position, draft, job, error)) {
            return false;
        }
        counts->gather_bytes += job->gather_bytes;
        counts->result_rows += job->bag_count;
        counts->values_bytes += job->bag_count * draft->extent.result_row_bytes;
    }
    return true;
}

bool eb_plan_take_pending(struct eb_plan *plan, struct eb_error *error)
{
    for (size_t i = 0; i < plan->result_count; i++) {
        const struct eb_plan_result *result = &plan->results[i];
        bool is_pending =
            result->status == EB_STATUS_OK && result->sequence && result->sequence->pending;
        if (is_pending && !take_pending(plan, result, error)) {
            return false;
        }
    }
    return true;
}

void eb_plan_deinit(struct eb_plan *plan)
{
    while (plan->scratch) {
        struct eb_plan_scratch *piece = plan->scratch;
        plan->scratch = piece->next;
        eb_buffer_pool_give(plan->pool, piece, piece->bytes);
    }
}
