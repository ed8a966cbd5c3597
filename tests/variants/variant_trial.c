#include "tests/variants/variant_trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define ROW_COUNT_MAX 24
#define BAG_COUNT_MAX 12
#define BAG_INDICES_MAX 9
#define DIM_MAX 4099
#define GAP_BYTES_MAX 40
#define GUARD_BYTE 0xc3
#define PAGE_BYTES 4096

static uint64_t seed;

void trial_seed(void)
{
    const char *given = getenv("EMBAG_TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("EMBAG_TEST_SEED=%llu\n", (unsigned long long)seed);
}

uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((seed >> 32) % below);
}

static void map_guarded(struct guarded *guarded, size_t bytes)
{
    guarded->bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES;
    guarded->base =
        mmap(NULL, guarded->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(guarded->base != MAP_FAILED);
    guarded->end = guarded->base + guarded->bytes - PAGE_BYTES;
    assert_int_equal(mprotect(guarded->end, PAGE_BYTES, PROT_NONE), 0);
}

void trial_init(struct trial *trial)
{
    size_t row_bytes = DIM_MAX * 8 + GAP_BYTES_MAX;
    size_t indices = BAG_COUNT_MAX * BAG_INDICES_MAX;
    size_t out_bytes = (indices + 1) * row_bytes;
    memset(trial, 0, sizeof *trial);
    map_guarded(&trial->rows, (ROW_COUNT_MAX + 1) * row_bytes);
    map_guarded(&trial->indices, indices * 8);
    map_guarded(&trial->offsets, (BAG_COUNT_MAX + 1) * 8);
    map_guarded(&trial->weights, indices * 8);
    map_guarded(&trial->out, GAP_BYTES_MAX + out_bytes);
    trial->expected = malloc(out_bytes);
    trial->scratch = aligned_alloc(64, 65536);
    assert_non_null(trial->expected);
    assert_non_null(trial->scratch);
}

void trial_deinit(struct trial *trial)
{
    struct guarded *all[] = {
        &trial->rows, &trial->indices, &trial->offsets, &trial->weights, &trial->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        munmap(all[i]->base, all[i]->bytes);
    }
    free(trial->expected);
    free(trial->scratch);
}

/* Zeros of both signs, small numbers, subnormals, and large ones whose sums overflow. */
static void draw_extremes(uint8_t *bytes, size_t count, size_t element_bytes)
{
    static const uint8_t tops[] = {0x00, 0x80, 0x80, 0x3f, 0xbf, 0x7f, 0xff};
    memset(bytes, 0, count);
    for (size_t i = 0; i + element_bytes <= count; i += element_bytes) {
        bytes[i] = draw(8) == 0;
        bytes[i + element_bytes - 1] |= tops[draw(draw(2) ? 3 : sizeof tops)];
    }
}

/* Extremes, any bits at all (infinities, NaNs), or f32 of everyday size. */
static void draw_values(uint8_t *bytes, size_t count, enum eb_storage storage)
{
    uint32_t kind = draw(storage == EB_STORAGE_F32 ? 4 : 2);
    if (kind == 0) {
        draw_extremes(bytes, count, eb_storage_bytes(storage));
        return;
    }
    for (size_t i = 0; kind == 1 && i < count; i++) {
        bytes[i] = (uint8_t)draw(256);
    }
    for (size_t i = 0; kind > 1 && i + 4 <= count; i += 4) {
        float value = ((float)draw(1 << 24) - (1 << 23)) * 0x1p-22f;
        memcpy(bytes + i, &value, sizeof value);
    }
}

static void draw_table(struct trial *trial, const struct plan *plan)
{
    size_t element_bytes = eb_storage_bytes(plan->storage);
    size_t row_bytes = plan->dim * element_bytes;
    /* Rows at any alignment, the last one ending at the guard page. */
    size_t stride = row_bytes + draw(2) * draw(9);
    uint64_t row_count = 1 + draw(ROW_COUNT_MAX);
    size_t bytes = (row_count - 1) * stride + row_bytes;
    uint8_t *rows = trial->rows.end - bytes;
    draw_values(rows, bytes, plan->storage);
    trial->table = (struct eb_table){
        .rows = rows,
        .row_count = row_count,
        .row_stride_bytes = stride,
        .row_elements = plan->dim,
        .storage = plan->storage,
        .type = eb_storage_type(plan->storage),
        .unknown_row = draw(2) ? (int64_t)draw((uint32_t)row_count) : -1,
    };
}

static uint32_t draw_bag_size(enum shape shape)
{
    switch (shape) {
    case SHAPE_RAGGED: return draw(BAG_INDICES_MAX + 1);
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

/* Every policy but ERROR, with which nothing can be missing. */
static void draw_indices(struct trial *trial, enum shape shape)
{
    int64_t indices[BAG_COUNT_MAX * BAG_INDICES_MAX];
    int64_t offsets[BAG_COUNT_MAX];
    uint32_t bags = shape == SHAPE_NO_BAGS ? 0 : 1 + draw(BAG_COUNT_MAX);
    uint32_t count = 0;
    trial->query.missing = (enum eb_missing)(EB_MISSING_ERROR + draw(4));
    if (trial->query.missing == EB_MISSING_UNKNOWN_ROW && trial->table.unknown_row < 0) {
        trial->query.missing = EB_MISSING_SKIP;
    }
    uint32_t past = trial->query.missing == EB_MISSING_ERROR ? 0 : 2;
    for (uint32_t bag = 0; bag < bags; bag++) {
        offsets[bag] = count;
        uint32_t end = count + draw_bag_size(shape);
        while (count < end) {
            indices[count++] = draw((uint32_t)trial->table.row_count + past);
        }
    }
    trial->query.layout = EB_LAYOUT_OFFSETS;
    trial->query.indices = draw_array(&trial->indices, indices, count);
    trial->query.bounds = draw_array(&trial->offsets, offsets, bags);
}

static void draw_weights(struct trial *trial)
{
    enum eb_type type = trial->table.type;
    if (eb_type_is_float(type) && draw(2)) {
        type = EB_F32;
    }
    struct eb_bag_query *query = &trial->query;
    query->weights_type = type;
    query->weights_bytes = query->indices.bytes / query->indices.width * eb_type_bytes(type);
    uint8_t *weights = trial->weights.end - query->weights_bytes;
    draw_values(weights, query->weights_bytes, (enum eb_storage)type);
    query->weights = weights;
}

void trial_clear_out(struct trial *trial)
{
    size_t row_bytes = trial->extent.result_row_bytes;
    size_t stride = row_bytes + draw(GAP_BYTES_MAX);
    size_t bytes = (trial->job.bag_count ? trial->job.bag_count - 1 : 0) * stride + row_bytes;
    trial->job.out = trial->out.end - bytes;
    memset(trial->job.out - GAP_BYTES_MAX, GUARD_BYTE, bytes + GAP_BYTES_MAX);
    trial->job.out_stride_bytes = stride;
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
    trial->query = (struct eb_bag_query){.table = &trial->table};
    trial->query.reduction = plan->reduction;
    trial->query.output_type = plan->output_type;
    draw_indices(trial, shape);
    if (plan->is_weighted) {
        draw_weights(trial);
    }
    trial->query.has_default = draw(2);
    trial->query.default_index = (int64_t)draw((uint32_t)trial->table.row_count + 1) - 1;
    struct eb_bag_fault fault;
    if (!eb_bag_measure(&trial->query, &trial->extent, &fault) ||
        !eb_bag_check(&trial->query, &trial->extent, trial->scratch, &trial->job, &fault)) {
        fail_msg("%s", fault.text);
    }
    pool_reference(trial);
}

static void fail_at(const struct trial *trial, const char *who, uint32_t bag)
{
    fail_msg("%s: %s of %s, dim %u, %sweighted, to %s: row %u of %u differs", who,
        eb_reduction_name(trial->job.reduction), eb_storage_name(trial->table.storage),
        trial->table.row_elements, trial->job.weights ? "" : "not ",
        eb_type_name(trial->job.output_type), bag, trial->job.bag_count);
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
