#include "kernels/table.h"

#include <assert.h>

#define ROW_BYTES_MAX (UINT64_C(1) << 62)

static_assert((EB_ROW_LINE_BYTES & (EB_ROW_LINE_BYTES - 1)) == 0, "lines are powers of two");

const uint8_t eb_zero_row[EB_ZERO_ROW_BYTES] = {0};
const struct eb_row_scale eb_zero_row_scale = {1, 0};
const float eb_zero_row_weight_f32 = 1;
const double eb_zero_row_weight_f64 = 1;

bool eb_table_is_sound(const struct eb_table *table)
{
    bool has_scales = table->row_count == 0 ||
                      (table->scales && table->scale_stride_bytes >= sizeof(struct eb_row_scale));
    return table->row_elements > 0 && eb_storage_holds(table->storage, table->type) &&
           table->row_stride_bytes >= eb_storage_row_bytes(table->storage, table->row_elements) &&
           (eb_storage_is_code(table->storage) ? has_scales : !table->scales) &&
           (table->unknown_row >= -1 || (table->unknown_row == EB_ROW_VECTOR && table->vector)) &&
           (table->unknown_row < 0 || (uint64_t)table->unknown_row < table->row_count);
}

uint64_t eb_row_stride(uint64_t row_bytes)
{
    assert(row_bytes > 0 && row_bytes <= ROW_BYTES_MAX);
    uint64_t last_line_bytes = (row_bytes - 1) % EB_ROW_LINE_BYTES + 1;
    uint64_t unit = 1;
    while (unit < last_line_bytes) {
        unit *= 2;
    }
    uint64_t stride = (row_bytes + unit - 1) & ~(unit - 1);
    return stride - row_bytes <= row_bytes / 4 ? stride : row_bytes;
}

struct eb_row_format eb_row_format_of(enum eb_storage storage, uint32_t elements)
{
    struct eb_row_format format = {0};
    if (eb_storage_is_code(storage)) {
        format.row_offset_bytes = sizeof(struct eb_row_scale);
    }
    format.bytes_max = format.row_offset_bytes + eb_storage_row_bytes(storage, elements);
    uint64_t row_bytes = format.bytes_max;
    if (eb_storage_is_code(storage)) {
        row_bytes = (row_bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
    }
    format.stride_bytes = eb_row_stride(row_bytes);
    return format;
}
