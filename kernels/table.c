#include "kernels/table.h"

bool eb_table_is_sound(const struct eb_table *table)
{
    bool has_scales = table->row_count == 0 ||
                      (table->scales && table->scale_stride_bytes >= sizeof(struct eb_row_scale));
    return table->row_elements > 0 && eb_storage_holds(table->storage, table->type) &&
           table->row_stride_bytes >= eb_storage_row_bytes(table->storage, table->row_elements) &&
           (eb_storage_is_code(table->storage) ? has_scales : !table->scales) &&
           table->unknown_row >= -1 &&
           (table->unknown_row < 0 || (uint64_t)table->unknown_row < table->row_count);
}
