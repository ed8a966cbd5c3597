#include "kernels/bag_weights.h"

#include "kernels/element.h"
#include "kernels/float_row.h"

#include <string.h>

uint64_t eb_bag_weights_bytes(enum eb_type type)
{
    return eb_type_is_float(type) && type != EB_F64 ? sizeof(float) : sizeof(uint64_t);
}

void eb_bag_weights_put(
    const struct eb_bag_query *query, uint32_t position, void *weights, uint32_t slot)
{
    enum eb_type type = query->weights_type;
    const uint8_t *weight = (const uint8_t *)query->weights + position * eb_type_bytes(type);
    if (!eb_type_is_float(type)) {
        ((uint64_t *)weights)[slot] = eb_element_load_int(type, weight);
        return;
    }
    double value = eb_element_load_float((enum eb_storage)type, weight);
    if (query->table->type == EB_F64) {
        ((double *)weights)[slot] = value;
    } else {
        ((float *)weights)[slot] = (float)value;
    }
}

void eb_bag_weights_copy(
    const struct eb_bag_query *query, uint32_t first, uint32_t count, void *weights)
{
    enum eb_type type = query->weights_type;
    size_t bytes = eb_type_bytes(type);
    const uint8_t *from = (const uint8_t *)query->weights + first * bytes;
    if (bytes == eb_bag_weights_bytes(query->table->type)) {
        memcpy(weights, from, count * bytes);
        return;
    }
    if (type == EB_F16 || type == EB_BF16) {
        eb_float_row_widen((enum eb_storage)type, from, count, weights);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        eb_bag_weights_put(query, first + i, weights, i);
    }
}
