#include "server/tables/default_vector.h"

#include "kernels/element.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Stores the number as a floating-point value. Returns false if it is too large for the type. */
static bool store_float(enum eb_type type, const char *text, uint8_t *out)
{
    eb_element_store_float(type, strtod(text, NULL), out);
    return isfinite(eb_element_load_float((enum eb_storage)type, out));
}

/* Stores the number as an integer. Returns false if it is not an integer in the type's range. */
static bool store_int(enum eb_type type, const char *text, uint8_t *out)
{
    bool is_signed = eb_type_is_signed(type);
    const char *digits = text + (text[0] == '+' || (text[0] == '-' && is_signed));
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0') {
        return false;
    }
    errno = 0;
    uint64_t value = is_signed ? (uint64_t)strtoll(text, NULL, 10) : strtoull(text, NULL, 10);
    eb_element_store_int(type, value, out);
    return errno == 0 && eb_element_load_int(type, out) == value;
}

static bool refuse_value(const struct eb_planned_table *table, size_t position, const char *text,
    struct eb_failure *failure)
{
    return eb_failure_set(failure,
        "model.yaml: table '%.64s': default_vector[%zu]: '%.64s' is not %s %s", table->name,
        position, text,
        eb_type_is_float(table->type) ? "in the range of" : "an integer in the range of",
        eb_type_name(table->type));
}

bool eb_default_vector_read(
    const struct eb_planned_table *table, void **vector, struct eb_failure *failure)
{
    const struct eb_model_config_table *config = table->config;
    uint64_t elements = eb_tensor_row_elements(&table->tensor);
    size_t element_bytes = eb_type_bytes(table->type);
    if (config->vector_count != 1 && config->vector_count != elements) {
        return eb_failure_set(failure,
            "model.yaml: table '%.64s': default_vector has %zu values; expected %" PRIu64
            ", one for each element of a row, or one for all",
            table->name, config->vector_count, elements);
    }
    uint8_t *values = malloc(elements * element_bytes);
    if (!values) {
        return eb_failure_set(failure, "out of memory");
    }
    for (uint64_t i = 0; i < elements; i++) {
        uint8_t *out = values + i * element_bytes;
        size_t position = i < config->vector_count ? i : 0;
        const char *text = config->vector[position];
        bool is_good = eb_type_is_float(table->type) ? store_float(table->type, text, out)
                                                     : store_int(table->type, text, out);
        if (!is_good) {
            free(values);
            return refuse_value(table, position, text, failure);
        }
    }
    *vector = values;
    return true;
}
