#include "server/rpc/infer_query.h"

#include <assert.h>
#include <string.h>

/* The inputs of one table or feature. */
struct inputs {
    const struct eb_feature *feature;
    const char *said; /* the table's name in the inputs; empty for the only table */
    const struct eb_infer_input *roles[EB_INFER_ROLE_COUNT]; /* NULL if there is none */
    bool is_answered;
};

/* All inputs, sorted by table or feature. */
struct sorting {
    const struct eb_model_version *version;
    struct eb_error *error;
    size_t count;
    struct inputs *tables; /* in the order in which the inputs first name them */
    uint32_t *slots;       /* open addressing: index in `tables` + 1; 0 if free */
    size_t slot_count;     /* a power of two, more than twice the count of inputs */
};

/* There are fewer than 4 * (inputs + 1) slots, so the first input may need 8 of them. */
static_assert(sizeof(struct inputs) + sizeof(struct eb_infer_output) + 8 * sizeof(uint32_t) <=
                  EB_INFER_QUERY_BYTES,
    "what sorting an input takes");

static struct eb_bag_query_position position_of_tensor(
    const struct sorting *sorting, const char *table)
{
    return (struct eb_bag_query_position){.version = sorting->version,
        .table = table,
        .number = EB_NO_QUERY,
        .feature = EB_NO_FEATURE};
}

static bool refuse_infer(
    const struct sorting *sorting, const struct inputs *table, const char *text)
{
    struct eb_bag_query_position position = position_of_tensor(sorting, table->feature->name);
    return eb_bag_query_refuse(&position, sorting->error, EB_STATUS_INVALID_ARGUMENT, "%s", text);
}

/* Returns the table or feature of that name. An empty name means the only table. Returns NULL with
 * the error set. */
static const struct eb_feature *find_feature(const struct sorting *sorting, const char *name)
{
    const struct eb_feature_set *features = &sorting->version->features;
    struct eb_bag_query_position position = position_of_tensor(sorting, name);
    if (name[0] != '\0') {
        return eb_bag_query_find(&position, sorting->error);
    }
    if (features->table_count == 1) {
        return &features->features[0];
    }
    eb_error_set(sorting->error, EB_STATUS_INVALID_ARGUMENT,
        "expected tensor names such as TABLE.indices; the table may be left out only if the model "
        "has one table, but model \"%s\" has %zu",
        sorting->version->model, features->table_count);
    return NULL;
}

/* Returns the slot of the feature's inputs, or a free slot for them. */
static uint32_t *find_infer_slot(const struct sorting *sorting, const struct eb_feature *feature)
{
    size_t mask = sorting->slot_count - 1;
    size_t at = (size_t)(feature - sorting->version->features.features) & mask;
    while (sorting->slots[at] != 0 && sorting->tables[sorting->slots[at] - 1].feature != feature) {
        at = (at + 1) & mask;
    }
    return &sorting->slots[at];
}

static const char *const twice[] = {
#define X(name, text) [EB_INFER_##name] = (text " is given twice"),
    EB_INFER_ROLE_LIST(X)
#undef X
};

static bool sort_input(struct sorting *sorting, const struct eb_infer_input *input)
{
    const struct eb_feature *feature = find_feature(sorting, input->table);
    if (!feature) {
        return false;
    }
    uint32_t *slot = find_infer_slot(sorting, feature);
    if (*slot == 0) {
        sorting->tables[sorting->count++] =
            (struct inputs){.feature = feature, .said = input->table};
        *slot = (uint32_t)sorting->count;
    }
    struct inputs *table = &sorting->tables[*slot - 1];
    if (table->roles[input->role]) {
        return refuse_infer(sorting, table, twice[input->role]);
    }
    table->roles[input->role] = input;
    return true;
}

static bool sort_inputs(
    struct sorting *sorting, const struct eb_infer_request *infer, struct eb_arena *arena)
{
    sorting->slot_count = 1;
    while (sorting->slot_count < 2 * (infer->input_count + 1)) {
        sorting->slot_count *= 2;
    }
    sorting->tables = eb_arena_take(arena, infer->input_count * sizeof *sorting->tables);
    sorting->slots = eb_arena_take(arena, sorting->slot_count * sizeof *sorting->slots);
    if (!sorting->tables || !sorting->slots) {
        eb_error_set(sorting->error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left for the inputs");
        return false;
    }
    memset(sorting->slots, 0, sorting->slot_count * sizeof *sorting->slots);
    for (size_t i = 0; i < infer->input_count; i++) {
        if (!sort_input(sorting, &infer->inputs[i])) {
            return false;
        }
    }
    return true;
}

/* Fills in the bags, from the shape of the indices or from the offsets. */
static bool fill_layout(const struct sorting *sorting, const struct eb_infer_options *common,
    const struct inputs *table, struct eb_wire_query *out)
{
    const struct eb_infer_input *indices = table->roles[EB_INFER_INDICES];
    const struct eb_infer_input *offsets = table->roles[EB_INFER_OFFSETS];
    int32_t reduction = out->reduction != 0 ? out->reduction : (int32_t)table->feature->reduction;
    if (indices->rank == 2 && offsets) {
        return refuse_infer(sorting, table,
            "indices of two dimensions are packed bags, which have no offsets; remove the offsets "
            "or give indices of one dimension");
    }
    if (indices->rank == 2) {
        out->layout = EB_LAYOUT_PACKED;
        out->num_bags = indices->dims[0];
        out->indices_per_bag = (uint32_t)indices->dims[1];
    } else if (offsets) {
        out->layout = EB_LAYOUT_OFFSETS;
        out->offsets = offsets->array;
        out->include_last_offset = offsets->options.has_last_offset
                                       ? offsets->options.include_last_offset
                                       : common->include_last_offset;
    } else if (reduction != EB_REDUCTION_NONE) {
        return refuse_infer(sorting, table,
            "indices of one dimension need offsets; give indices of two dimensions for packed "
            "bags");
    }
    return true;
}

static bool fill_infer_weights(
    const struct sorting *sorting, const struct inputs *table, struct eb_wire_query *out)
{
    const struct eb_infer_input *indices = table->roles[EB_INFER_INDICES];
    const struct eb_infer_input *weights = table->roles[EB_INFER_WEIGHTS];
    if (!weights) {
        return true;
    }
    if (weights->rank != indices->rank ||
        memcmp(weights->dims, indices->dims, sizeof weights->dims) != 0) {
        return refuse_infer(
            sorting, table, "per_sample_weights does not have the shape of indices");
    }
    out->weights = weights->array.data;
    out->weights_bytes = weights->array.bytes;
    out->weights_type = weights->type;
    return true;
}

/* Makes a query from the inputs of one table. */
static bool fill_infer_query(const struct sorting *sorting, const struct eb_infer_options *common,
    const struct inputs *table, struct eb_wire_query *out)
{
    const struct eb_infer_input *indices = table->roles[EB_INFER_INDICES];
    if (!indices) {
        return refuse_infer(sorting, table, "its indices are missing; they may be empty");
    }
    const struct eb_infer_options *options = &indices->options;
    const struct eb_infer_options *defaulting = options->has_default ? options : common;
    *out = (struct eb_wire_query){
        .table = table->feature->name,
        .reduction = options->reduction != 0 ? options->reduction : common->reduction,
        .missing = options->missing != 0 ? options->missing : common->missing,
        .indices = indices->array,
        .has_default = defaulting->has_default,
        .default_index = defaulting->default_index,
    };
    return fill_layout(sorting, common, table, out) && fill_infer_weights(sorting, table, out);
}

/* Lists the outputs if the request names none: one for each table, in order. */
static bool list_outputs(
    const struct sorting *sorting, struct eb_infer_request *infer, struct eb_arena *arena)
{
    infer->outputs = eb_arena_take(arena, sorting->count * sizeof *infer->outputs);
    if (!infer->outputs) {
        eb_error_set(
            sorting->error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left for the outputs");
        return false;
    }
    infer->output_count = sorting->count;
    for (size_t i = 0; i < sorting->count; i++) {
        infer->outputs[i] = (struct eb_infer_output){.table = sorting->tables[i].said};
    }
    return true;
}

/* Returns the inputs that an output is computed from. Returns NULL with the error set. */
static struct inputs *find_inputs(
    const struct sorting *sorting, const struct eb_infer_output *output)
{
    const struct eb_feature *feature = find_feature(sorting, output->table);
    if (!feature) {
        return NULL;
    }
    uint32_t number = *find_infer_slot(sorting, feature);
    if (number == 0) {
        struct inputs none = {.feature = feature};
        (void)refuse_infer(sorting, &none, "its output is requested, but it has no inputs");
        return NULL;
    }
    struct inputs *table = &sorting->tables[number - 1];
    if (table->is_answered) {
        (void)refuse_infer(sorting, table, "its output is requested twice");
        return NULL;
    }
    table->is_answered = true;
    return table;
}

/* Makes a query for each output. `are_listed` says whether the outputs come from list_outputs, not
 * from the request. */
static bool make_queries(const struct sorting *sorting, struct eb_infer_request *infer,
    struct eb_arena *arena, bool are_listed)
{
    struct eb_wire_request *request = &infer->request;
    request->queries = eb_arena_take(arena, infer->output_count * sizeof *request->queries);
    if (!request->queries) {
        eb_error_set(
            sorting->error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left for the queries");
        return false;
    }
    for (size_t i = 0; i < infer->output_count; i++) {
        const struct eb_infer_output *output = &infer->outputs[i];
        const struct inputs *table =
            are_listed ? &sorting->tables[i] : find_inputs(sorting, output);
        struct eb_wire_query *query = &request->queries[i];
        if (!table || !fill_infer_query(sorting, &infer->options, table, query)) {
            return false;
        }
        query->output_type = output->output_type;
        request->query_count = i + 1;
    }
    return true;
}

bool eb_infer_query_make(struct eb_infer_request *infer, const struct eb_model_version *version,
    struct eb_arena *arena, uint64_t queries_max, struct eb_error *error)
{
    struct sorting sorting = {.version = version, .error = error};
    if (infer->input_count == 0) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "there are no inputs; a lookup needs at least one, called TABLE.indices");
        return false;
    }
    if (!sort_inputs(&sorting, infer, arena)) {
        return false;
    }
    if (sorting.count > queries_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "inputs of %zu tables are more than a request may have, %llu (queries_max)",
            sorting.count, (unsigned long long)queries_max);
        return false;
    }
    bool are_listed = infer->output_count == 0;
    return (!are_listed || list_outputs(&sorting, infer, arena)) &&
           make_queries(&sorting, infer, arena, are_listed);
}
