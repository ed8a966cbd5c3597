#include "tests/variants/variant_table.h"

#include "kernels/table.h"

#include <string.h>

#define GAP_BYTES_MAX 64
#define SCALE_BYTES sizeof(struct eb_row_scale)
#define ROW_BYTES_MAX (TABLE_DIM_MAX * 8 + GAP_BYTES_MAX + SCALE_BYTES)
#define KEY_INDEX_BYTES_MAX 4096
#define FAR_STRIDE_BYTES (UINT64_C(1) << 28)

/* Position of the scale and bias of a row. */
enum scale_place { SCALE_NONE, SCALE_APART, SCALE_BEFORE, SCALE_BEHIND };

void table_memory_init(struct table_memory *memory)
{
    assert_true(guarded_map(&memory->rows, TABLE_ROWS_MAX * ROW_BYTES_MAX));
    assert_true(guarded_map(&memory->scales, TABLE_ROWS_MAX * SCALE_BYTES));
    assert_true(guarded_map(&memory->key_index, KEY_INDEX_BYTES_MAX));
    assert_true(guarded_map(&memory->vector, (size_t)TABLE_DIM_MAX * 8));
    if (!guarded_map(
            &memory->far_rows, TABLE_ROWS_MAX * (size_t)(FAR_STRIDE_BYTES + ROW_BYTES_MAX))) {
        print_message("No tables larger than 4 GiB are tried: the system refuses the mapping\n");
    }
}

void table_memory_deinit(struct table_memory *memory)
{
    guarded_unmap(&memory->rows);
    guarded_unmap(&memory->far_rows);
    guarded_unmap(&memory->scales);
    guarded_unmap(&memory->key_index);
    guarded_unmap(&memory->vector);
}

/* Draws a stride: no gap, a small gap, the gap of the server's own tables, or a wide gap. */
static size_t draw_stride(size_t row_bytes)
{
    switch (draw(4)) {
    case 0: return row_bytes;
    case 1: return row_bytes + draw(9);
    case 2: return eb_row_stride(row_bytes);
    default: return row_bytes + draw(GAP_BYTES_MAX + 1);
    }
}

static void place_scales(
    const struct table_memory *memory, struct eb_table *table, enum scale_place place)
{
    struct eb_row_scale scales[TABLE_ROWS_MAX];
    uint8_t *rows = (uint8_t *)(uintptr_t)table->rows;
    uint8_t *first = NULL;
    switch (place) {
    case SCALE_NONE: return;
    case SCALE_APART: first = guarded_place(&memory->scales, table->row_count * SCALE_BYTES); break;
    case SCALE_BEFORE: first = rows - SCALE_BYTES; break;
    case SCALE_BEHIND:
        first = rows + eb_storage_row_bytes(table->storage, table->row_elements);
        break;
    }
    table->scales = first;
    table->scale_stride_bytes = place == SCALE_APART ? SCALE_BYTES : table->row_stride_bytes;
    draw_scales(scales, table->row_count, table->storage);
    for (uint64_t row = 0; row < table->row_count; row++) {
        memcpy(first + row * table->scale_stride_bytes, &scales[row], SCALE_BYTES);
    }
}

/* Draws a default vector, which half of all unknown rows then name. */
static void draw_vector(const struct table_memory *memory, struct eb_table *table)
{
    size_t bytes = table->row_elements * eb_type_bytes(table->type);
    uint8_t *vector = guarded_place(&memory->vector, bytes);
    draw_values(vector, bytes, (enum eb_storage)table->type);
    table->vector = vector;
    if (draw(2)) {
        table->unknown_row = EB_ROW_VECTOR;
    }
}

struct eb_table table_draw(
    const struct table_memory *memory, enum eb_storage storage, enum eb_type type, uint32_t dim)
{
    enum scale_place place =
        eb_storage_is_code(storage) ? (enum scale_place)(SCALE_APART + draw(3)) : SCALE_NONE;
    size_t codes_bytes = eb_storage_row_bytes(storage, dim);
    size_t row_bytes = codes_bytes + (place > SCALE_APART ? SCALE_BYTES : 0);
    bool is_far = memory->far_rows.begin && draw(16) == 0;
    uint64_t row_count = 1 + draw(TABLE_ROWS_MAX);
    size_t stride = draw_stride(row_bytes) + (is_far ? FAR_STRIDE_BYTES : 0);
    /* Nothing follows the last row and its scale. */
    uint8_t *rows = guarded_place(
        is_far ? &memory->far_rows : &memory->rows, (row_count - 1) * stride + row_bytes);
    if (is_far) {
        for (uint64_t row = 0; row < row_count; row++) {
            draw_values(rows + row * stride, row_bytes, storage);
        }
    } else {
        draw_values(rows, (row_count - 1) * stride + row_bytes, storage);
    }
    struct eb_table table = {
        .rows = rows + (place == SCALE_BEFORE ? SCALE_BYTES : 0),
        .row_count = row_count,
        .row_stride_bytes = stride,
        .row_elements = dim,
        .storage = storage,
        .type = type,
        .unknown_row = draw(2) ? (int64_t)draw((uint32_t)row_count) : -1,
    };
    place_scales(memory, &table, place);
    if (draw(2)) {
        draw_vector(memory, &table);
    }
    return table;
}

int64_t table_key(int64_t row)
{
    return (int64_t)(((uint64_t)row * 2654435761U & UINT32_MAX) ^ UINT32_C(0x80000000)) + INT32_MIN;
}

void table_use_keys(struct table_memory *memory, struct eb_table *table)
{
    int64_t keys[TABLE_ROWS_MAX];
    uint32_t counts[1];
    uint64_t scratch[KEY_INDEX_BYTES_MAX / 8];
    struct eb_key_build build = {.keys = keys, .counts = counts};
    struct eb_key_pair pair;
    const char *reason = NULL;
    for (uint64_t row = 0; row < table->row_count; row++) {
        keys[row] = table_key((int64_t)row);
    }
    assert_true(eb_key_build_plan(table->row_count, &build.plan));
    assert_true(build.plan.index_bytes <= KEY_INDEX_BYTES_MAX);
    assert_true(build.plan.scratch_bytes <= sizeof scratch);
    uint8_t *index = guarded_place(&memory->key_index, build.plan.index_bytes);
    build.index = index - (uintptr_t)index % EB_KEY_INDEX_ALIGNMENT;
    assert_int_equal(eb_key_build_run(&build, scratch, &pair), EB_KEY_OK);
    assert_true(eb_key_index_open(
        &memory->keys, build.index, build.plan.index_bytes, table->row_count, &reason));
    table->keys = &memory->keys;
}
