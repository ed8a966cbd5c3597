#include "tests/variants/variant_trial.h"

#include "kernels/row_format.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROW_COUNT_MAX 24
#define BAG_COUNT_MAX 12
#define RAGGED_INDICES_MAX 9
/* Past the distance over which vector functions call rows ahead. */
#define LONG_BAG_COUNT_MAX 3
#define LONG_INDICES_MAX 70
#define INDEX_COUNT_MAX (LONG_BAG_COUNT_MAX * LONG_INDICES_MAX)
static_assert(BAG_COUNT_MAX * RAGGED_INDICES_MAX <= INDEX_COUNT_MAX, "ragged bags fit too");
#define DIM_MAX 4099
#define GAP_BYTES_MAX 64
#define SCRATCH_BYTES 65536
#define GUARD_BYTE 0xc3
#define PAGE_BYTES 4096

/* The bags of one query. */
struct bags {
    int64_t indices[INDEX_COUNT_MAX];
    int64_t offsets[BAG_COUNT_MAX];
    bool is_repeat[BAG_COUNT_MAX];
    uint32_t count; /* of indices */
    uint32_t bag_count;
};

/* EMBAG_TEST_SLACK_BYTES=N leaves so many bytes between what is read and the guard page behind it,
 * for emulators whose masked loads read what is masked. */
static size_t find_slack(void)
{
    const char *slack = getenv("EMBAG_TEST_SLACK_BYTES");
    return slack ? strtoul(slack, NULL, 10) : 0;
}

static void map_guarded(struct guarded *guarded, size_t bytes)
{
    const size_t slack = find_slack();
    size_t whole = (bytes + slack + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uint8_t *base =
        mmap(NULL, whole + (size_t)2 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    guarded->begin = base + PAGE_BYTES;
    guarded->end = guarded->begin + whole - slack;
    assert_int_equal(mprotect(guarded->begin, whole, PROT_READ | PROT_WRITE), 0);
}

static void unmap_guarded(struct guarded *guarded)
{
    uint8_t *base = guarded->begin - PAGE_BYTES;
    munmap(base, (size_t)(guarded->end + find_slack() - base) + PAGE_BYTES);
}

void trial_init(struct trial *trial)
{
    size_t row_bytes = DIM_MAX * 8 + GAP_BYTES_MAX;
    size_t out_bytes = (INDEX_COUNT_MAX + 1) * row_bytes;
    memset(trial, 0, sizeof *trial);
    map_guarded(&trial->rows, (ROW_COUNT_MAX + 1) * row_bytes);
    map_guarded(&trial->scales, ROW_COUNT_MAX * sizeof(struct eb_row_scale));
    map_guarded(&trial->indices, (size_t)INDEX_COUNT_MAX * 8);
    map_guarded(&trial->offsets, (size_t)BAG_COUNT_MAX * 8);
    map_guarded(&trial->weights, (size_t)INDEX_COUNT_MAX * 8);
    map_guarded(&trial->out, GAP_BYTES_MAX + out_bytes);
    trial->expected = malloc(out_bytes);
    trial->scratch = aligned_alloc(64, SCRATCH_BYTES);
    assert_non_null(trial->expected);
    assert_non_null(trial->scratch);
}

void trial_deinit(struct trial *trial)
{
    struct guarded *all[] = {&trial->rows, &trial->scales, &trial->indices, &trial->offsets,
        &trial->weights, &trial->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        unmap_guarded(all[i]);
    }
    free(trial->expected);
    free(trial->scratch);
}

/* At the guard page that would be read past the rows, or sometimes before them. */
static uint8_t *place_rows(const struct guarded *memory, size_t bytes)
{
    return draw(4) ? memory->end - bytes : memory->begin;
}

/* Rows as close as they can be, with a small gap, as our own tables have them, with a wide gap. */
static size_t draw_stride(size_t row_bytes)
{
    switch (draw(4)) {
    case 0: return row_bytes;
    case 1: return row_bytes + draw(9);
    case 2: return eb_row_stride(row_bytes);
    default: return row_bytes + draw(GAP_BYTES_MAX + 1);
    }
}

/* Scales in an array of their own, or in front of each row, which has room for them there. */
static void draw_table_scales(struct trial *trial, bool is_with_row)
{
    struct eb_table *table = &trial->table;
    struct eb_row_scale scales[ROW_COUNT_MAX];
    draw_scales(scales, table->row_count, table->storage);
    table->scale_stride_bytes = is_with_row ? table->row_stride_bytes : sizeof scales[0];
    uint8_t *place = (uint8_t *)(uintptr_t)table->rows - sizeof scales[0];
    if (!is_with_row) {
        place = place_rows(&trial->scales, table->row_count * sizeof scales[0]);
    }
    for (uint64_t row = 0; row < table->row_count; row++) {
        memcpy(place + row * table->scale_stride_bytes, &scales[row], sizeof scales[row]);
    }
    table->scales = place;
}

/* The last row, and its scale, are followed by nothing. */
static void draw_table(struct trial *trial, const struct plan *plan)
{
    bool has_scale_in_row = eb_storage_is_code(plan->storage) && draw(2);
    size_t front_bytes = has_scale_in_row ? sizeof(struct eb_row_scale) : 0;
    size_t row_bytes = eb_storage_row_bytes(plan->storage, plan->dim);
    size_t stride = draw_stride(row_bytes) + front_bytes;
    uint64_t row_count = 1 + draw(ROW_COUNT_MAX);
    size_t bytes = (row_count - 1) * stride + row_bytes;
    uint8_t *rows = place_rows(&trial->rows, front_bytes + bytes) + front_bytes;
    draw_values(rows, bytes, plan->storage);
    trial->table = (struct eb_table){
        .rows = rows,
        .row_count = row_count,
        .row_stride_bytes = stride,
        .row_elements = plan->dim,
        .storage = plan->storage,
        .type = plan->type ? plan->type : eb_storage_type(plan->storage),
        .unknown_row = draw(2) ? (int64_t)draw((uint32_t)row_count) : -1,
    };
    if (eb_storage_is_code(plan->storage)) {
        draw_table_scales(trial, has_scale_in_row);
    }
}

static uint32_t draw_bag_count(enum shape shape)
{
    switch (shape) {
    case SHAPE_NO_BAGS: return 0;
    case SHAPE_LONG: return 1 + draw(LONG_BAG_COUNT_MAX);
    default: return 1 + draw(BAG_COUNT_MAX);
    }
}

static uint32_t draw_bag_size(enum shape shape)
{
    switch (shape) {
    case SHAPE_RAGGED: return draw(RAGGED_INDICES_MAX + 1);
    case SHAPE_LONG: return draw(LONG_INDICES_MAX + 1);
    case SHAPE_SINGLE: return 1;
    default: return 0;
    }
}

static struct eb_int_array draw_array(const struct guarded *memory, const int64_t *values, size_t n)
{
    struct eb_int_array array = {.width = draw(2) ? 4 : 8};
    array.bytes = n * array.width;
    uint8_t *bytes = memory->end - array.bytes;
    for (size_t i = 0; i < n; i++) {
        memcpy(bytes + i * array.width, &values[i], array.width);
    }
    array.data = bytes;
    return array;
}

/* Every policy; with ERROR nothing can be missing. */
static void draw_missing(struct trial *trial)
{
    trial->query.missing =
        (enum eb_missing)(EB_MISSING_ERROR + draw(EB_MISSING_COUNT - EB_MISSING_ERROR));
    if (trial->query.missing == EB_MISSING_UNKNOWN_ROW && trial->table.unknown_row < 0) {
        trial->query.missing = EB_MISSING_SKIP;
    }
}

static int64_t draw_index(const struct trial *trial)
{
    uint32_t row_count = (uint32_t)trial->table.row_count;
    if (trial->query.missing == EB_MISSING_ERROR) {
        return draw(row_count);
    }
    return draw(16) ? (int64_t)draw(row_count + 2) : INT32_MIN;
}

/* A bag like the one before it, or with another last index. */
static void repeat_bag(
    const struct trial *trial, struct bags *bags, uint32_t first, uint32_t previous)
{
    bags->count = first + (first - previous);
    memcpy(bags->indices + first, bags->indices + previous,
        (first - previous) * sizeof bags->indices[0]);
    if (first > previous && draw(4) == 0) {
        bags->indices[bags->count - 1] = draw_index(trial);
    }
}

static void draw_bags(const struct trial *trial, struct bags *bags, enum shape shape)
{
    bool has_repeats = draw(2);
    bags->bag_count = draw_bag_count(shape);
    bags->count = 0;
    for (uint32_t bag = 0; bag < bags->bag_count; bag++) {
        bags->offsets[bag] = bags->count;
        bags->is_repeat[bag] = bag > 0 && has_repeats && draw(2);
        if (bags->is_repeat[bag]) {
            repeat_bag(trial, bags, bags->count, (uint32_t)bags->offsets[bag - 1]);
            continue;
        }
        uint32_t end = bags->count + draw_bag_size(shape);
        while (bags->count < end) {
            bags->indices[bags->count++] = draw_index(trial);
        }
    }
}

/* Repeated bags have the weights of the one before them too, some of the time. */
static void repeat_weights(const struct bags *bags, uint8_t *weights, size_t weight_bytes)
{
    for (uint32_t bag = 1; bag < bags->bag_count; bag++) {
        if (bags->is_repeat[bag] && draw(2)) {
            size_t first = (size_t)bags->offsets[bag];
            size_t previous = (size_t)bags->offsets[bag - 1];
            memcpy(weights + first * weight_bytes, weights + previous * weight_bytes,
                (first - previous) * weight_bytes);
        }
    }
}

static void draw_weights(struct trial *trial, const struct bags *bags)
{
    enum eb_type type = trial->table.type;
    if (eb_type_is_float(type) && draw(2)) {
        type = EB_F32;
    }
    struct eb_bag_query *query = &trial->query;
    query->weights_type = type;
    query->weights_bytes = bags->count * eb_type_bytes(type);
    uint8_t *weights = trial->weights.end - query->weights_bytes;
    draw_values(weights, query->weights_bytes, (enum eb_storage)type);
    repeat_weights(bags, weights, eb_type_bytes(type));
    query->weights = weights;
}

static void draw_query(struct trial *trial, const struct plan *plan, enum shape shape)
{
    struct bags bags;
    trial->query = (struct eb_bag_query){
        .table = &trial->table,
        .reduction = plan->reduction,
        .output_type = plan->output_type,
        .layout = EB_LAYOUT_OFFSETS,
        .has_default = draw(2),
        .default_index = (int64_t)draw((uint32_t)trial->table.row_count + 1) - 1,
    };
    draw_missing(trial);
    draw_bags(trial, &bags, shape);
    trial->query.indices = draw_array(&trial->indices, bags.indices, bags.count);
    trial->query.bounds = draw_array(&trial->offsets, bags.offsets, bags.bag_count);
    if (plan->is_weighted) {
        draw_weights(trial, &bags);
    }
}

static void pool_reference(struct trial *trial)
{
    trial->job.out = trial->expected;
    trial->job.out_stride_bytes = trial->extent.result_row_bytes;
    eb_bag_pool(eb_bag_ops_find("ref"), &trial->job, 0, trial->job.bag_count);
}

void trial_draw(struct trial *trial, const struct plan *plan, enum shape shape)
{
    draw_table(trial, plan);
    draw_query(trial, plan, shape);
    struct eb_bag_fault fault;
    trial->job.scratch = trial->scratch;
    if (!eb_bag_measure(&trial->query, &trial->extent, &fault) ||
        !eb_bag_check(eb_bag_ops_find(NULL), &trial->query, &trial->extent, &trial->job, &fault)) {
        fail_msg("%s", fault.text);
    }
    pool_reference(trial);
}

void trial_clear_out(struct trial *trial)
{
    size_t row_bytes = trial->extent.result_row_bytes;
    size_t stride = row_bytes + draw(2) * draw(GAP_BYTES_MAX);
    size_t bytes = (trial->job.bag_count ? trial->job.bag_count - 1 : 0) * stride + row_bytes;
    trial->job.out = trial->out.end - bytes;
    memset(trial->job.out - GAP_BYTES_MAX, GUARD_BYTE, bytes + GAP_BYTES_MAX);
    trial->job.out_stride_bytes = stride;
}

static void fail_at(const struct trial *trial, const char *who, uint32_t bag)
{
    fail_msg("%s: %s of %s as %s, dim %u, %sweighted, to %s: row %u of %u differs", who,
        eb_reduction_name(trial->job.reduction), eb_storage_name(trial->table.storage),
        eb_type_name(trial->table.type), trial->table.row_elements,
        trial->job.weights ? "" : "not ", eb_type_name(trial->job.output_type), bag,
        trial->job.bag_count);
}

static bool is_guard(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

void trial_compare(const struct trial *trial, const char *who)
{
    const struct eb_bag_job *job = &trial->job;
    size_t row_bytes = trial->extent.result_row_bytes;
    const uint8_t *before = job->out - GAP_BYTES_MAX;
    assert_true(is_guard(before, GAP_BYTES_MAX));
    for (uint32_t bag = 0; bag < job->bag_count; bag++) {
        const uint8_t *row = job->out + bag * job->out_stride_bytes;
        bool is_last = bag + 1 == job->bag_count;
        size_t gap = is_last ? 0 : job->out_stride_bytes - row_bytes;
        if (memcmp(row, trial->expected + bag * row_bytes, row_bytes) != 0 ||
            !is_guard(row + row_bytes, gap)) {
            fail_at(trial, who, bag);
        }
    }
}
