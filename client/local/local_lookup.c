#include "client/local/local_lookup.h"

#include "client/local/local_error.h"
#include "client/lookup_layout.h"
#include "kernels/bag_stream.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64 /* of the kernels' scratch, and of each result's values */

/* Numbers of the public enums are those of the kernels. */
static_assert((int)EMBAG_NONE == (int)EB_REDUCTION_NONE, "reductions");
static_assert((int)EMBAG_MISSING_UNKNOWN_ROW == (int)EB_MISSING_UNKNOWN_ROW, "missing");
static_assert((int)EMBAG_U64 == (int)EB_U64, "types");
/* A table's trailing dims follow the number of bags. */
static_assert(EMBAG_RANK_MAX >= EB_TENSOR_RANK_MAX, "ranks");

struct eb_local_query {
    const struct eb_named_table *table;
    struct eb_bag_query query;
    struct eb_bag_extent extent;
};

/* One lookup under way. */
struct looking {
    struct eb_local_work *work;
    const struct eb_local_version *version;
    const char *model;
    uint64_t number; /* of the version */
    const struct embag_request *request;
    size_t measured; /* queries whose sizes are sound, from the first */
    size_t bytes;    /* of work->bytes that they need */
    struct embag_error *error;
};

/* ---- refusals ---- */

static __attribute__((cold, noinline)) bool refuse_query(
    const struct looking *looking, size_t number, enum embag_status status, const char *text)
{
    const char *table = looking->request->queries[number].table;
    return eb_local_error_set(
        looking->error, status, "queries[%zu] \"%s\": %s", number, table ? table : "", text);
}

/* Refuses a query because of an error of the kernels. */
static __attribute__((cold, noinline)) bool refuse_bags(
    const struct looking *looking, size_t number, const struct eb_bag_error *bag_error)
{
    enum embag_status status = EMBAG_INVALID_ARGUMENT;
    switch (bag_error->class) {
    case EB_BAG_ERROR_MALFORMED: break;
    case EB_BAG_ERROR_OUT_OF_RANGE: status = EMBAG_OUT_OF_RANGE; break;
    case EB_BAG_ERROR_TOO_LARGE: status = EMBAG_RESOURCE_EXHAUSTED; break;
    }
    return refuse_query(looking, number, status, bag_error->text);
}

static bool refuse_memory(const struct looking *looking)
{
    return eb_local_error_set(
        looking->error, EMBAG_RESOURCE_EXHAUSTED, "out of memory for the lookup");
}

/* Returns the part of a request that only a server answers, or NULL. */
static const char *find_unsupported(const struct embag_request *request)
{
    return request->group_count > 0                                   ? "groups"
           : request->concat                                          ? "concat"
           : request->errors_per_query                                ? "errors_per_query"
           : request->version_label && request->version_label[0] != 0 ? "version_label"
                                                                      : NULL;
}

/* Checks what does not depend on tables. */
static bool check_request(const struct embag_request *request, struct embag_error *error)
{
    const char *unsupported = find_unsupported(request);
    if (unsupported) {
        return eb_local_error_set(error, EMBAG_UNIMPLEMENTED,
            "%s: not possible in the calling process; ask the server", unsupported);
    }
    if (request->query_count > 0 && !request->queries) {
        return eb_local_error_set(error, EMBAG_INVALID_ARGUMENT, "queries are NULL");
    }
    if (request->query_count > EMBAG_LOCAL_QUERIES_MAX) {
        return eb_local_error_set(error, EMBAG_RESOURCE_EXHAUSTED,
            "%zu queries, at most %d are allowed", request->query_count, EMBAG_LOCAL_QUERIES_MAX);
    }
    if ((int)request->output_type < 0 || request->output_type > EMBAG_U64) {
        return eb_local_error_set(error, EMBAG_INVALID_ARGUMENT, "output_type %d is not a type",
            (int)request->output_type);
    }
    return true;
}

/* ---- from a query of the caller to one of the kernels ---- */

static inline bool is_array_sound(const struct embag_integers *array)
{
    return (array->width == 0 || array->width == 4 || array->width == 8) &&
           array->count <= SIZE_MAX / 8 &&
           (array->count == 0 || (array->width != 0 && array->data));
}

static inline struct eb_int_array as_int_array(const struct embag_integers *array)
{
    return (struct eb_int_array){array->data, array->count * array->width, array->width};
}

/* Returns what is wrong with a query's own fields, or NULL. */
static inline const char *find_invalid_field(const struct embag_query *in)
{
    if (!is_array_sound(&in->indices) || !is_array_sound(&in->offsets) ||
        !is_array_sound(&in->lengths) || !is_array_sound(&in->segment_ids)) {
        return "an array has data NULL, or a width other than 4 or 8";
    }
    if ((unsigned)in->reduction >= EB_REDUCTION_COUNT) {
        return "reduction is not a reduction";
    }
    if ((unsigned)in->missing >= EB_MISSING_COUNT) {
        return "missing is not a policy";
    }
    if ((unsigned)in->weights_type >= EB_TYPE_COUNT) {
        return "weights_type is not a type";
    }
    if (in->weights_count > 0 && (!in->weights || in->weights_type == EMBAG_TYPE_UNSPECIFIED ||
                                     in->weights_count > SIZE_MAX / 8)) {
        return "weights are NULL, have no weights_type, or are more than fit in memory";
    }
    if (in->weights_count == 0 && in->weights_type != EMBAG_TYPE_UNSPECIFIED &&
        in->indices.count > 0) {
        return "weights_type is set, but there are no weights";
    }
    return NULL;
}

static inline struct eb_int_array find_local_bounds(
    const struct embag_query *in, enum eb_layout layout)
{
    switch (layout) {
    case EB_LAYOUT_LENGTHS: return as_int_array(&in->lengths);
    case EB_LAYOUT_SEGMENTS: return as_int_array(&in->segment_ids);
    default: return as_int_array(&in->offsets);
    }
}

/* Fills in a sound query, with the table's defaults for what it does not set. */
static inline void fill_local_query(const struct embag_request *request,
    const struct embag_query *in, const struct eb_named_table *table, struct eb_bag_query *out)
{
    enum eb_missing missing = table->missing ? table->missing : EB_MISSING_ERROR;
    enum eb_layout layout = (enum eb_layout)eb_lookup_layout_find(in);
    *out = (struct eb_bag_query){
        .table = &table->table,
        .default_index = in->has_default ? in->default_index : table->default_index,
        .reduction = in->reduction ? (enum eb_reduction)in->reduction : EB_REDUCTION_SUM,
        .missing = in->missing ? (enum eb_missing)in->missing : missing,
        .output_type = (enum eb_type)request->output_type,
        .layout = layout,
        .indices = as_int_array(&in->indices),
        .bounds = find_local_bounds(in, layout),
        .num_segments = in->num_segments,
        .num_bags = in->num_bags,
        .indices_per_bag = in->indices_per_bag,
        .weights_type = in->weights_type ? (enum eb_type)in->weights_type : table->table.type,
        .include_last_offset = in->include_last_offset,
        .has_default = in->has_default || table->has_default,
    };
    if (in->weights_count > 0) {
        out->weights = in->weights;
        out->weights_bytes = in->weights_count * eb_type_bytes(out->weights_type);
    }
}

/* Returns the table of that name, first trying the one after `last`, which may be NULL. */
static inline const struct eb_named_table *find_local_table(
    const struct eb_table_set *tables, const struct eb_named_table *last, const char *name)
{
    if (last && last + 1 < tables->tables + tables->count && strcmp(last[1].name, name) == 0) {
        return last + 1;
    }
    return eb_table_set_find(tables, name);
}

static inline bool is_local_sequence(const struct embag_sequence *sequence)
{
    return sequence->max_len != 0 || sequence->keep_first || sequence->pad || sequence->unique;
}

/* Finds a query's table and its sizes, and adds these to looking->bytes. */
static inline bool measure_local_query(
    struct looking *looking, size_t number, const struct eb_named_table **last)
{
    const struct embag_query *in = &looking->request->queries[number];
    struct eb_local_query *query = &looking->work->queries[number];
    struct eb_bag_error bag_error;
    const char *invalid = find_invalid_field(in);
    if (invalid) {
        return refuse_query(looking, number, EMBAG_INVALID_ARGUMENT, invalid);
    }
    if (is_local_sequence(&in->sequence)) {
        return refuse_query(looking, number, EMBAG_UNIMPLEMENTED,
            "sequence: not possible in the calling process; ask the server");
    }
    if (in->has_part) {
        return refuse_query(looking, number, EMBAG_FAILED_PRECONDITION,
            "has_part: tables in the calling process have no parts; ask a part server");
    }
    query->table = find_local_table(&looking->version->tables, *last, in->table ? in->table : "");
    *last = query->table;
    if (!query->table) {
        return eb_local_error_set(looking->error, EMBAG_NOT_FOUND,
            "queries[%zu] \"%s\": model \"%s\" version %" PRIu64
            " has no table of that name (features are the server's)",
            number, in->table ? in->table : "", looking->model, looking->number);
    }
    fill_local_query(looking->request, in, query->table, &query->query);
    if (!eb_bag_measure(&query->query, &query->extent, &bag_error)) {
        return refuse_bags(looking, number, &bag_error);
    }
    uint64_t values_bytes = query->extent.result_rows * query->extent.result_row_bytes;
    looking->bytes += query->extent.scratch_bytes;
    looking->bytes += (values_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return true;
}

/* ---- memory ---- */

void eb_local_work_deinit(struct eb_local_work *work)
{
    free(work->queries);
    free(work->jobs);
    free(work->results);
    free(work->bytes);
    free(work->positions);
    *work = (struct eb_local_work){0};
}

/* Makes room for as many queries; what the arrays held is lost. */
static bool grow_queries(struct eb_local_work *work, size_t count)
{
    if (count <= work->query_max) {
        return true;
    }
    free(work->queries);
    free(work->jobs);
    free(work->results);
    work->queries = malloc(count * sizeof *work->queries);
    work->jobs = malloc(count * sizeof *work->jobs);
    work->results = malloc(count * sizeof *work->results);
    bool is_good = work->queries && work->jobs && work->results;
    work->query_max = is_good ? count : 0;
    return is_good;
}

static bool grow_bytes(struct eb_local_work *work, size_t bytes)
{
    if (bytes <= work->bytes_max) {
        return true;
    }
    free(work->bytes);
    work->bytes = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    work->bytes_max = work->bytes ? bytes : 0;
    return !!work->bytes;
}

static bool grow_positions(struct eb_local_work *work, size_t count)
{
    if (count <= work->positions_max) {
        return true;
    }
    free(work->positions);
    work->positions = malloc(count * sizeof *work->positions);
    work->positions_max = work->positions ? count : 0;
    return !!work->positions;
}

/* ---- checks and results ---- */

/* Checks the values of the measured queries, in order, and lays out their results. */
static bool check_local_queries(const struct looking *looking)
{
    struct eb_local_work *work = looking->work;
    uint8_t *room = work->bytes;
    for (size_t i = 0; i < looking->measured; i++) {
        const struct eb_local_query *query = &work->queries[i];
        const struct eb_bag_extent *extent = &query->extent;
        struct eb_bag_job *job = &work->jobs[i];
        struct eb_bag_error bag_error;
        job->scratch = room;
        if (!eb_bag_check(work->ops, &query->query, extent, job, &bag_error)) {
            return refuse_bags(looking, i, &bag_error);
        }
        uint64_t values_bytes = extent->result_rows * extent->result_row_bytes;
        room += extent->scratch_bytes;
        job->out = room;
        job->out_stride_bytes = extent->result_row_bytes;
        room += (values_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return true;
}

/* Lists the missing indices of all queries, if the request asks for them. */
static bool list_local_missing(const struct looking *looking)
{
    struct eb_local_work *work = looking->work;
    size_t total = 0;
    for (size_t i = 0; looking->request->report_missing && i < looking->measured; i++) {
        total += work->jobs[i].missing_count;
    }
    if (total == 0) {
        return true;
    }
    if (!grow_positions(work, total)) {
        return refuse_memory(looking);
    }
    uint32_t *positions = work->positions;
    for (size_t i = 0; i < looking->measured; i++) {
        uint64_t count = work->jobs[i].missing_count;
        if (count > 0) {
            eb_bag_list_missing(&work->queries[i].query, 0, count, positions);
            work->results[i].missing_positions = positions;
            positions += count;
        }
    }
    return true;
}

/* Describes the results of the checked queries. */
static void describe_results(struct eb_local_work *work, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct eb_local_query *query = &work->queries[i];
        struct embag_result *result = &work->results[i];
        *result = (struct embag_result){
            .query = (uint32_t)i,
            .type = (enum embag_type)query->extent.output_type,
            .rank = query->table->rank,
            .missing = work->jobs[i].missing_count,
            .values = work->jobs[i].out,
            .values_bytes = query->extent.result_rows * query->extent.result_row_bytes,
            .message = "",
        };
        memcpy(result->shape, query->table->dims, query->table->rank * sizeof *query->table->dims);
        result->shape[0] = query->extent.result_rows;
    }
}

static void pool_all(const struct eb_local_work *work, size_t count)
{
    struct eb_bag_stream stream;
    if (count > 0) {
        struct eb_bag_tile all = {
            .jobs = work->jobs,
            .job_count = (uint32_t)count,
            .bag_end = work->jobs[count - 1].bag_count,
            .element_end = UINT32_MAX,
        };
        eb_bag_stream_init(&stream, work->ops, work->schedules);
        eb_bag_stream_pool(&stream, &all, NULL);
    }
}

/* Finds the sizes of the queries up to the first whose sizes are not sound. Returns whether all
 * are. */
static bool measure_all(struct looking *looking)
{
    const struct eb_named_table *last = NULL;
    for (; looking->measured < looking->request->query_count; looking->measured++) {
        if (!measure_local_query(looking, looking->measured, &last)) {
            return false;
        }
    }
    return true;
}

bool eb_local_work_look_up(struct eb_local_work *work, const struct eb_local_snapshot *snapshot,
    const struct embag_request *request, struct embag_error *error)
{
    const struct eb_local_model *model;
    struct looking looking = {.work = work, .request = request, .error = error};
    if (!check_request(request, error)) {
        return false;
    }
    looking.version = eb_local_snapshot_find(snapshot, request->model ? request->model : "",
        request->version, &model, &looking.number, error);
    if (!looking.version) {
        return false;
    }
    looking.model = model->name;
    if (!grow_queries(work, request->query_count)) {
        return refuse_memory(&looking);
    }
    /* An error in the values of a query comes before one in the sizes of a later query. */
    bool is_measured = measure_all(&looking);
    size_t name_bytes = strlen(model->name) + 1;
    if (!grow_bytes(work, looking.bytes + name_bytes)) {
        return refuse_memory(&looking);
    }
    if (!check_local_queries(&looking) || !is_measured) {
        return false;
    }
    describe_results(work, looking.measured);
    if (!list_local_missing(&looking)) {
        return false;
    }
    pool_all(work, looking.measured);
    char *name = memcpy(work->bytes + looking.bytes, model->name, name_bytes);
    work->answer = (struct embag_answer){
        .model = name,
        .version = looking.number,
        .result_count = looking.measured,
        .results = work->results,
    };
    return true;
}
