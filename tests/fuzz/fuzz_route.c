/* Takes bytes as the answer of parts to the sub-queries of a query. The first bytes of the input
 * choose the table and the query. Results that fit are merged and pooled, whatever they contain. */
#include "proto/codec.h"
#include "tests/fuzz/input.h"
#include "tests/unit/route/parted_table.h"

#define ARENA_BYTES ((size_t)16 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    enum eb_type type;
    enum eb_storage storage;
} kinds[] = {{EB_F32, EB_STORAGE_F32}, {EB_F64, EB_STORAGE_F64}, {EB_F16, EB_STORAGE_F16},
    {EB_I8, EB_STORAGE_I8}, {EB_F32, EB_STORAGE_INT8}};

static struct parted_options take_table_options(struct input *input)
{
    int kind = take_choice(input, 0, 5);
    int bits = take_choice(input, 0, 16);
    return (struct parted_options){
        .type = kinds[kind].type,
        .storage = kinds[kind].storage,
        .parts = (uint32_t)take_choice(input, 1, 4),
        .row_count = 12,
        .row_elements = (uint32_t)take_choice(input, 1, 4),
        .is_keyed = bits & 1,
        .has_unknown_row = bits & 2,
        .has_vector = bits & 4,
        .unknown_is_vector = (bits & 12) == 12,
    };
}

/* Takes a reduction and a policy that the table may have. */
static void take_request(
    struct parted_table *table, struct input *input, struct parted_request *request)
{
    int reduction = take_choice(input, EB_REDUCTION_SUM, EB_REDUCTION_COUNT);
    int missing = take_choice(input, EB_MISSING_ERROR, EB_MISSING_COUNT);
    bool is_float = eb_type_is_float(table->whole.type);
    if (!is_float && (reduction == EB_REDUCTION_WEIGHTED_MEAN || reduction == EB_REDUCTION_SQRTN)) {
        reduction = EB_REDUCTION_MEAN;
    }
    if (missing == EB_MISSING_UNKNOWN_ROW && table->whole.unknown_row == -1) {
        missing = EB_MISSING_ZERO;
    }
    parted_draw(table, (enum eb_reduction)reduction, (enum eb_missing)missing, request);
}

/* Returns whether all results of an answer fit. */
static bool take_results(
    struct eb_route_merge *merge, struct eb_arena *arena, const struct input *input)
{
    struct eb_error error;
    const struct eb_wire_response *response =
        eb_lookup_response_decode(arena, input->data, input->size, &error);
    bool is_good = response && response->result_count >= merge->split->sub_count;
    for (uint32_t i = 0; is_good && i < merge->split->sub_count; i++) {
        is_good = eb_route_merge_take(merge, i, &response->results[i], &error);
    }
    return is_good;
}

static void pool_merged(struct eb_route_merge *merge, struct eb_arena *arena)
{
    const struct eb_bag_ops *ops = eb_bag_ops_find(NULL);
    struct eb_bag_job job;
    bool is_error = merge->split->query->missing == EB_MISSING_ERROR;
    if (is_error && merge->missing_count > 0) {
        return;
    }
    require(eb_route_merge_end(merge, arena, &job));
    job.out_stride_bytes = merge->default_row_bytes;
    job.out = malloc(job.bag_count * job.out_stride_bytes + 1);
    require(job.out);
    eb_bag_pool(ops, &job, 0, job.bag_count);
    eb_route_merge_fill(merge, &job);
    free(job.out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct parted_options options = take_table_options(&input);
    struct parted_table table;
    struct parted_request request;
    struct bag_fixture checked;
    struct eb_route_split split;
    struct eb_route_merge merge;
    parted_init(&table, &options, 1 + take_number(&input, 1));
    take_request(&table, &input, &request);
    eb_arena_reset(&table.arena, ARENA_BYTES);
    parted_check(&table, &request.query, &checked);
    struct eb_route_query query = {
        .job = &checked.job,
        .rule = table.rule,
        .missing = request.query.missing,
        .has_default = request.query.has_default,
        .default_index = request.query.default_index,
    };
    require(eb_route_split(&query, &table.arena, &split));
    require(eb_route_merge_begin(&split, eb_bag_ops_find("ref"), &table.arena, &merge));
    if (take_results(&merge, &table.arena, &input)) {
        pool_merged(&merge, &table.arena);
    }
    bag_fixture_release(&checked);
    parted_request_deinit(&request);
    parted_deinit(&table);
    return 0;
}
