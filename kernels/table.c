#include "kernels/table.h"

static bool is_type_sound(const struct eb_table *table)
{
    bool is_widened = table->storage == EB_STORAGE_F16 || table->storage == EB_STORAGE_BF16;
    bool is_narrowed = eb_storage_is_code(table->storage) || table->storage == EB_STORAGE_F8_E4M3 ||
                       table->storage == EB_STORAGE_F8_E5M2;
    enum eb_type type = table->type;
    return type == eb_storage_type(table->storage) || (is_widened && type == EB_F32) ||
           (is_narrowed && (type == EB_F16 || type == EB_BF16));
}

bool eb_table_is_sound(const struct eb_table *table)
{
    bool has_scales = table->row_count == 0 ||
                      (table->scales && table->scale_stride_bytes >= sizeof(struct eb_row_scale));
    return table->row_elements > 0 && is_type_sound(table) &&
           table->row_stride_bytes >= eb_storage_row_bytes(table->storage, table->row_elements) &&
           (eb_storage_is_code(table->storage) ? has_scales : !table->scales) &&
           table->unknown_row >= -1 &&
           (table->unknown_row < 0 || (uint64_t)table->unknown_row < table->row_count);
}
