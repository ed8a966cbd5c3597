/* Runs a lookup from the bytes of the request to those of the answer, with the functions that the
 * server calls in turn. The request has arrays whose sizes mostly match, and the version has tables
 * of several types. The same request is run a second time, after the feature memo has stored its
 * groups and with other kernels, and must get the same answer. */
#include "kernels/bag_stream.h"
#include "proto/grpc_text.h"
#include "proto/infer_message.h"
#include "server/rpc/infer_query.h"
#include "server/rpc/reply.h"
#include "tests/fuzz/input.h"
#include "tests/unit/rpc/plan_fixture.h"

#include "inference/open_inference.pb-c.h"

#include <stdlib.h>

#define QUERIES_MAX 3
#define GROUPS_MAX 2
#define FEATURES_MAX 3
#define TENSORS_MAX 6
#define ENTRIES_MAX 24
#define ROWS_MAX 6 /* few, so that small numbers name both valid and invalid rows */
#define RESPONSE_BYTES_MAX 65536
#define POOL_BYTES ((uint64_t)1 << 26)
#define FILLED_BUFFERS 2 /* buffers of each size: one for scratch, one for the answer */
#define FILLED_BYTES_MIN ((size_t)1 << 10)
#define FILLED_BYTES_MAX ((size_t)1 << 17)
#define ARENA_BYTES ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- requests ---- */

/* A request and everything it points to. */
struct asked {
    struct eb_wire_request request;
    struct eb_wire_query queries[QUERIES_MAX];
    struct eb_wire_group groups[GROUPS_MAX];
    const char *features[GROUPS_MAX][FEATURES_MAX];
    struct eb_infer_request infer;
    struct eb_infer_input tensors[TENSORS_MAX];
    struct eb_infer_output outputs[QUERIES_MAX];
    void *blocks[64];
    size_t block_count;
};

static const char *take_name(struct input *input)
{
    static const char *const names[] = {"rows", "wide", "cube", "line", "half", "whole", "bare",
        "plain", "around", "highest", "pair", "absent", ""};
    return names[take_choice(input, 0, sizeof names / sizeof names[0])];
}

/* Takes the number of an enum: often 0 (unspecified), and sometimes one past the last. */
static int32_t take_enum(struct input *input, int count)
{
    return take_choice(input, 0, 2) == 0 ? 0 : take_choice(input, 0, count + 1);
}

/* Returns a separate allocation, so that a sanitizer detects reads past its end. */
static uint8_t *allocate_lookup(struct asked *asked, size_t bytes)
{
    require(asked->block_count < sizeof asked->blocks / sizeof asked->blocks[0]);
    uint8_t *block = malloc(bytes > 0 ? bytes : 1);
    require(block);
    asked->blocks[asked->block_count++] = block;
    return block;
}

/* Fills an array of `count` integers. */
static struct eb_wire_array take_entries(
    struct asked *asked, struct input *input, size_t count, const char *field)
{
    uint64_t kind = take_number(input, 1);
    bool is_small = kind & 1;
    struct eb_wire_array array = {.width = kind & 2 ? 8 : 4, .field = field};
    array.bytes = count * array.width;
    uint8_t *bytes = allocate_lookup(asked, array.bytes);
    for (size_t i = 0; i < count; i++) {
        int64_t number = (int8_t)take_number(input, 1);
        int64_t entry = is_small ? (number & 0x7f) % ROWS_MAX : number;
        memcpy(bytes + i * array.width, &entry, array.width);
    }
    /* Sometimes the last entry is incomplete. */
    array.bytes -= array.bytes > 0 && (kind & 0xf0) == 0xf0;
    array.data = bytes;
    return array;
}

static struct eb_wire_array take_lookup_array(
    struct asked *asked, struct input *input, const char *field)
{
    size_t count = take_number(input, 1);
    return count == 0 ? (struct eb_wire_array){0}
                      : take_entries(asked, input, (count - 1) % ENTRIES_MAX, field);
}

/* Takes `entries` weights of 2, 4 or 8 bytes, or none. */
static const void *take_weights(
    struct asked *asked, struct input *input, size_t entries, size_t *bytes)
{
    static const size_t sizes[] = {0, 0, 2, 4, 8};
    *bytes = entries * sizes[take_choice(input, 0, 5)];
    uint8_t *weights = allocate_lookup(asked, *bytes);
    for (size_t i = 0; i < *bytes; i++) {
        weights[i] = (uint8_t)take_number(input, 1);
    }
    return *bytes > 0 ? weights : NULL;
}

static size_t count_entries(const struct eb_wire_array *array)
{
    return array->width > 0 ? array->bytes / array->width : 0;
}

/* Takes the fields of a sequence lookup, in any combination. */
static struct eb_wire_sequence take_sequence_fields(struct input *input)
{
    uint64_t flags = take_number(input, 1);
    return (struct eb_wire_sequence){
        .max_len = (uint32_t)take_number(input, flags & 8 ? 4 : 1),
        .keep_first = flags & 1,
        .pad = flags & 2,
        .unique = flags & 4,
    };
}

static void take_lookup_query(struct asked *asked, struct input *input, struct eb_wire_query *query)
{
    uint64_t flags = take_number(input, 1);
    query->table = take_name(input);
    query->reduction = take_enum(input, EB_REDUCTION_COUNT);
    query->missing = take_enum(input, EB_MISSING_COUNT);
    query->layout = take_choice(input, 0, EB_LAYOUT_COUNT);
    query->indices = take_lookup_array(asked, input, "indices_i64");
    struct eb_wire_array bounds =
        query->layout == EB_LAYOUT_PACKED || query->layout == EB_LAYOUT_UNSPECIFIED
            ? (struct eb_wire_array){0}
            : take_lookup_array(asked, input, "bounds");
    if (query->layout == EB_LAYOUT_OFFSETS) {
        query->offsets = bounds;
    } else if (query->layout == EB_LAYOUT_LENGTHS) {
        query->lengths = bounds;
    } else {
        query->segment_ids = bounds;
    }
    query->indices_per_bag = (uint32_t)take_number(input, 1);
    query->num_segments = take_number(input, flags & 1 ? 8 : 1);
    query->num_bags = flags & 2 ? take_number(input, 1) : 0;
    query->include_last_offset = flags & 4;
    query->has_default = flags & 8;
    query->default_index = query->has_default ? (int8_t)take_number(input, 1) : 0;
    query->weights =
        take_weights(asked, input, count_entries(&query->indices), &query->weights_bytes);
    query->weights_type = query->weights_bytes > 0 ? take_enum(input, EB_TYPE_COUNT) : 0;
    if (flags & 16) {
        query->reduction = flags & 32 ? EB_REDUCTION_NONE : query->reduction;
        query->sequence = take_sequence_fields(input);
    }
}

static void take_group(struct asked *asked, struct input *input, size_t number)
{
    struct eb_wire_group *group = &asked->groups[number];
    uint64_t flags = take_number(input, 1);
    group->name = flags & 1 ? take_name(input) : "";
    group->features = asked->features[number];
    group->feature_count = flags & 1 ? 0 : flags >> 1 & FEATURES_MAX;
    for (size_t i = 0; i < group->feature_count; i++) {
        asked->features[number][i] = take_name(input);
    }
    group->bags = (uint32_t)take_choice(input, 0, 6);
    group->values = take_lookup_array(asked, input, "values_i64");
    if (flags & 8) {
        group->offsets = take_lookup_array(asked, input, "offsets_i64");
    } else {
        group->lengths = take_lookup_array(asked, input, "lengths_i64");
        /* On the wire, lengths have 4 bytes only. */
        group->lengths.width = group->lengths.width > 0 ? 4 : 0;
    }
    group->weights =
        take_weights(asked, input, count_entries(&group->values), &group->weights_bytes);
    group->weights_type = group->weights_bytes > 0 ? take_enum(input, EB_TYPE_COUNT) : 0;
    group->reduction = take_enum(input, EB_REDUCTION_COUNT);
    group->missing = take_enum(input, EB_MISSING_COUNT);
    if (flags & 16) {
        group->reduction = flags & 32 ? EB_REDUCTION_NONE : group->reduction;
        group->sequence = take_sequence_fields(input);
    }
}

static void take_lookup(struct asked *asked, struct input *input)
{
    struct eb_wire_request *request = &asked->request;
    uint64_t flags = take_number(input, 1);
    request->model = "trial";
    request->output_type = take_enum(input, EB_TYPE_COUNT);
    request->concat = flags & 1;
    request->errors_per_query = flags & 2;
    request->report_missing = flags & 4;
    request->query_count = (flags >> 3 & 3) % (QUERIES_MAX + 1);
    request->queries = asked->queries;
    for (size_t i = 0; i < request->query_count; i++) {
        take_lookup_query(asked, input, &asked->queries[i]);
    }
    request->group_count = (flags >> 5 & 3) % (GROUPS_MAX + 1);
    request->groups = asked->groups;
    for (size_t i = 0; i < request->group_count; i++) {
        take_group(asked, input, i);
    }
}

static struct eb_infer_options take_options(struct input *input)
{
    uint64_t flags = take_number(input, 1);
    struct eb_infer_options options = {.include_last_offset = flags & 1, .has_default = flags & 2};
    options.default_index = options.has_default ? (int8_t)take_number(input, 1) : 0;
    options.reduction = flags & 4 ? take_enum(input, EB_REDUCTION_COUNT - 1) : 0;
    options.missing = flags & 8 ? take_enum(input, EB_MISSING_COUNT - 1) : 0;
    options.output_type = flags & 16 ? take_enum(input, EB_TYPE_COUNT - 1) : 0;
    return options;
}

/* Takes a tensor whose number of elements matches its shape, as the codec guarantees. */
static void take_tensor(struct asked *asked, struct input *input, struct eb_infer_input *out)
{
    static const enum eb_type weight_types[] = {EB_F32, EB_F16, EB_BF16, EB_F64, EB_I32};
    out->table = take_name(input);
    out->role = (enum eb_infer_role)take_choice(input, 0, EB_INFER_ROLE_COUNT);
    out->rank = out->role == EB_INFER_OFFSETS ? 1 : (uint32_t)take_choice(input, 1, 3);
    out->dims[0] = (uint64_t)take_choice(input, 0, 8);
    out->dims[1] = out->rank == 2 ? (uint64_t)take_choice(input, 0, 4) : 0;
    size_t count = out->dims[0] * (out->rank == 2 ? out->dims[1] : 1);
    if (out->role == EB_INFER_WEIGHTS) {
        out->type = (int32_t)weight_types[take_choice(input, 0, 5)];
        out->array.width = (uint32_t)eb_type_bytes((enum eb_type)out->type);
        out->array.bytes = count * out->array.width;
        uint8_t *weights = allocate_lookup(asked, out->array.bytes);
        for (size_t i = 0; i < out->array.bytes; i++) {
            weights[i] = (uint8_t)take_number(input, 1);
        }
        out->array.data = weights;
    } else {
        out->array = take_entries(asked, input, count, "indices");
        out->array.bytes = count * out->array.width;
        out->type = out->array.width == 4 ? EB_I32 : EB_I64;
        out->options = take_options(input);
    }
}

static void take_infer(struct asked *asked, struct input *input)
{
    struct eb_infer_request *infer = &asked->infer;
    infer->request.model = "trial";
    infer->request.infer = infer;
    infer->id = "id";
    infer->inputs = asked->tensors;
    infer->outputs = asked->outputs;
    infer->options = take_options(input);
    infer->request.output_type = infer->options.output_type;
    infer->input_count = (size_t)take_choice(input, 0, TENSORS_MAX + 1);
    for (size_t i = 0; i < infer->input_count; i++) {
        take_tensor(asked, input, &asked->tensors[i]);
    }
    infer->output_count = (size_t)take_choice(input, 0, QUERIES_MAX + 1);
    for (size_t i = 0; i < infer->output_count; i++) {
        asked->outputs[i].table = take_name(input);
        asked->outputs[i].output_type = take_enum(input, EB_TYPE_COUNT - 1);
    }
}

/* ---- answers ---- */

/* The outcome of a lookup: an error, or the answer's bytes. */
struct outcome {
    struct eb_error error;
    uint8_t *bytes;
    size_t size;
};

static struct eb_limits limits = {
#define X(name, effect, fallback, min, max, what) .name = (fallback),
    EB_LIMIT_LIST(X)
#undef X
};

static void check_lookup_result(const struct eb_wire_result *result)
{
    if (result->error_code != 0) {
        require(result->error_message[0] != '\0' && result->values_bytes == 0);
        return;
    }
    uint64_t bytes = eb_type_bytes((enum eb_type)result->type);
    for (uint32_t i = 0; i < result->shape_count; i++) {
        bytes *= result->shape[i];
    }
    require(bytes == result->values_bytes);
    require(result->missing_positions_bytes == 0 ||
            result->missing_positions_bytes == result->missing * sizeof(uint32_t));
}

/* Checks the lists of a sequence lookup, or that there are none. */
static void check_lookup_lists(const struct eb_wire_result *result)
{
    uint64_t kept_count = 0;
    for (size_t i = 0; i < result->lengths_bytes / sizeof(int32_t); i++) {
        int32_t length;
        memcpy(&length, result->lengths + i * sizeof length, sizeof length);
        require(length >= 0);
        kept_count += (uint64_t)length;
    }
    require(result->inverse_bytes == 0 || result->inverse_bytes == kept_count * sizeof(uint32_t));
    for (size_t i = 0; i < result->inverse_bytes / sizeof(uint32_t); i++) {
        uint32_t row;
        memcpy(&row, result->inverse + i * sizeof row, sizeof row);
        require(row < result->shape[0]);
    }
}

static void check_lookup_answer(const struct outcome *outcome, const struct eb_wire_request *asked)
{
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    const struct eb_wire_response *response =
        eb_lookup_response_decode(&arena, outcome->bytes, outcome->size, &error);
    require(response && response->request_id == asked->request_id);
    for (size_t i = 0; i < response->result_count; i++) {
        require(asked->errors_per_query || response->results[i].error_code == 0);
        check_lookup_result(&response->results[i]);
        check_lookup_lists(&response->results[i]);
    }
    eb_arena_deinit(&arena);
}

static void check_infer_answer(const struct outcome *outcome, const struct eb_infer_request *asked)
{
    Inference__ModelInferResponse *response =
        inference__model_infer_response__unpack(NULL, outcome->size, outcome->bytes);
    require(response && response->n_outputs == asked->output_count);
    require(response->n_raw_output_contents == response->n_outputs);
    inference__model_infer_response__free_unpacked(response, NULL);
}

/* Plans the request, computes the answer and stores it in `outcome`. */
static void answer(struct eb_plan *plan, struct outcome *outcome)
{
    struct eb_outgoing *reply = eb_plan_check(plan, &outcome->error)
                                    ? eb_plan_answer(plan, 0, plan->result_count, &outcome->error)
                                    : NULL;
    if (!reply) {
        require(outcome->error.status != EB_STATUS_OK && outcome->error.text[0] != '\0');
        return;
    }
    for (size_t i = 0; i < plan->counts.query_count; i++) {
        eb_bag_pool(plan->ops, &plan->jobs[i], 0, plan->jobs[i].bag_count);
    }
    if (!plan->request->infer) {
        eb_lookup_response_set_times(eb_reply_body(reply), 1, 2);
    }
    outcome->size = reply->size - EB_GRPC_PREFIX_BYTES;
    outcome->bytes = malloc(outcome->size + 1);
    require(outcome->bytes);
    memcpy(outcome->bytes, eb_reply_body(reply), outcome->size);
    eb_outgoing_drop(reply);
}

/* State that both runs of a request share. */
struct loop_memory {
    struct eb_buffer_pool pool;
    struct eb_feature_memo memo;
};

/* Fills the buffers that the pool will hand out next, so that bytes of an answer that were not
 * written differ between the first run and the second. */
static void fill_pool(struct eb_buffer_pool *pool, int byte)
{
    void *buffers[FILLED_BUFFERS];
    for (size_t bytes = FILLED_BYTES_MIN; bytes <= FILLED_BYTES_MAX; bytes *= 2) {
        for (size_t i = 0; i < FILLED_BUFFERS; i++) {
            buffers[i] = eb_buffer_pool_take(pool, bytes);
            require(buffers[i]);
            memset(buffers[i], byte, bytes);
        }
        for (size_t i = 0; i < FILLED_BUFFERS; i++) {
            eb_buffer_pool_give(pool, buffers[i], bytes);
        }
    }
}

static void run_plan(struct loop_memory *memory, const struct eb_wire_request *request,
    struct eb_arena *arena, const struct eb_bag_ops *ops, struct outcome *outcome)
{
    struct eb_plan plan = {
        .request = request,
        .version = plan_fixture_version(),
        .limits = &limits,
        .ops = ops,
        .arena = arena,
        .pool = &memory->pool,
        .memo = &memory->memo,
    };
    fill_pool(&memory->pool, ops == eb_bag_ops_find("ref") ? 0 : 0xff);
    answer(&plan, outcome);
    eb_plan_deinit(&plan);
}

static struct outcome run_lookup(
    struct loop_memory *memory, const uint8_t *bytes, size_t size, const struct eb_bag_ops *ops)
{
    struct outcome outcome = {.error = {.status = EB_STATUS_OK}};
    struct eb_codec_limits caps = {.queries_max = 64,
        .name_bytes_max = 255,
        .known = memory->memo.lists,
        .known_count = memory->memo.count};
    struct eb_memory from = eb_buffer_pool_memory(&memory->pool);
    struct eb_decode_failure failure;
    struct eb_arena arena;
    eb_arena_init(&arena, &from);
    eb_arena_reset(&arena, ARENA_BYTES);
    const struct eb_wire_request *request =
        eb_lookup_request_decode(&arena, bytes, size, &caps, &failure);
    if (!request) {
        outcome.error = failure.error;
    } else {
        run_plan(memory, request, &arena, ops, &outcome);
    }
    if (outcome.bytes) {
        check_lookup_answer(&outcome, request);
    }
    eb_arena_deinit(&arena);
    return outcome;
}

static struct outcome run_infer(
    struct loop_memory *memory, const struct asked *asked, const struct eb_bag_ops *ops)
{
    struct outcome outcome = {.error = {.status = EB_STATUS_OK}};
    struct eb_memory from = eb_buffer_pool_memory(&memory->pool);
    struct eb_infer_output outputs[QUERIES_MAX];
    struct eb_infer_request infer = asked->infer;
    struct eb_arena arena;
    memcpy(outputs, asked->outputs, sizeof outputs);
    infer.request.infer = &infer;
    infer.outputs = outputs;
    eb_arena_init(&arena, &from);
    eb_arena_reset(&arena, ARENA_BYTES);
    if (eb_infer_query_make(
            &infer, plan_fixture_version(), &arena, limits.queries_max, &outcome.error)) {
        run_plan(memory, &infer.request, &arena, ops, &outcome);
    } else {
        require(outcome.error.status != EB_STATUS_OK && outcome.error.text[0] != '\0');
    }
    if (outcome.bytes) {
        check_infer_answer(&outcome, &infer);
    }
    eb_arena_deinit(&arena);
    return outcome;
}

static void compare_outcomes(struct outcome first, struct outcome second)
{
    require(first.error.status == second.error.status && first.size == second.size);
    require(first.error.status == EB_STATUS_OK || strcmp(first.error.text, second.error.text) == 0);
    require(first.size == 0 || memcmp(first.bytes, second.bytes, first.size) == 0);
    free(first.bytes);
    free(second.bytes);
}

static void ask_lookup(struct loop_memory *memory, struct asked *asked, struct input *input)
{
    take_lookup(asked, input);
    size_t size = eb_lookup_request_bytes(&asked->request);
    uint8_t *bytes = allocate_lookup(asked, size);
    eb_lookup_request_encode(&asked->request, bytes);
    compare_outcomes(run_lookup(memory, bytes, size, eb_bag_ops_find("ref")),
        run_lookup(memory, bytes, size, eb_bag_ops_find(NULL)));
}

static void ask_infer(struct loop_memory *memory, struct asked *asked, struct input *input)
{
    take_infer(asked, input);
    compare_outcomes(run_infer(memory, asked, eb_bag_ops_find("ref")),
        run_infer(memory, asked, eb_bag_ops_find(NULL)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_loaded;
    struct input input = {data, size};
    struct loop_memory memory = {0};
    struct asked asked = {0};
    if (!is_loaded) {
        is_loaded = true;
        limits.response_bytes_max = RESPONSE_BYTES_MAX;
        plan_fixture_load(NULL);
    }
    eb_buffer_pool_init(&memory.pool, POOL_BYTES);
    if (take_number(&input, 1) & 1) {
        ask_infer(&memory, &asked, &input);
    } else {
        ask_lookup(&memory, &asked, &input);
    }
    eb_feature_memo_deinit(&memory.memo);
    require(memory.pool.taken_bytes == 0);
    eb_buffer_pool_deinit(&memory.pool);
    for (size_t i = 0; i < asked.block_count; i++) {
        free(asked.blocks[i]);
    }
    return 0;
}
