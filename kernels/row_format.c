#include "kernels/row_format.h"

#include <assert.h>

#define ROW_BYTES_MAX (UINT64_C(1) << 62)

static_assert((EB_ROW_LINE_BYTES & (EB_ROW_LINE_BYTES - 1)) == 0, "lines are powers of two");

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
