#include "tests/lib/bag_bits.h"

#include "kernels/element.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A bag and the column that is computed. */
struct column {
    const struct bag_bits *bits;
    const struct bag_bits_row *rows;
    size_t count;
    uint32_t element;
};

static const uint8_t *row_of_bits(const struct eb_table *table, int64_t row)
{
    return (const uint8_t *)table->rows + (uint64_t)row * table->row_stride_bytes;
}

/* Returns whether a row takes part in the sum of `part`; of the whole bag if parts is 0. */
static bool is_in_part(const struct column *column, size_t i, uint32_t part)
{
    bool is_divided = column->bits->parts > 0;
    return !is_divided || (column->rows[i].row != EB_ROW_ZERO && column->rows[i].part == part);
}

/* Parts to sum over: those of the table, and one for vectors. */
static uint32_t count_sums(const struct bag_bits *bits)
{
    return bits->parts > 0 ? bits->parts + 1 : 1;
}

static bool has_zero(const struct column *column)
{
    for (size_t i = 0; i < column->count; i++) {
        if (column->rows[i].row == EB_ROW_ZERO) {
            return true;
        }
    }
    return false;
}

#define ACC float
#define ACC_FMA fmaf
#define ACC_SQRT sqrtf
#define OF_ACC(name) name##_f32
#include "tests/lib/bag_bits_tmpl.c"

#define ACC double
#define ACC_FMA fma
#define ACC_SQRT sqrt
#define OF_ACC(name) name##_f64
#include "tests/lib/bag_bits_tmpl.c"

/* ---- integers: every order gives the same bits ---- */

static uint64_t load_bits_int(const struct eb_table *table, int64_t row, uint32_t element)
{
    size_t bytes = eb_type_bytes(table->type);
    if (row == EB_ROW_ZERO) {
        return 0;
    }
    const uint8_t *from = row == EB_ROW_VECTOR ? table->vector : row_of_bits(table, row);
    return eb_element_load_int(table->type, from + element * bytes);
}

static bool is_bits_less(enum eb_type type, uint64_t a, uint64_t b)
{
    return eb_type_is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t pool_bits_int(const struct column *column)
{
    const struct bag_bits *bits = column->bits;
    enum eb_type type = bits->table->type;
    uint64_t sum = 0;
    uint64_t extreme = 0;
    for (size_t i = 0; i < column->count; i++) {
        uint64_t x = load_bits_int(bits->table, column->rows[i].row, column->element);
        bool is_beyond = bits->reduction == EB_REDUCTION_MAX ? is_bits_less(type, extreme, x)
                                                             : is_bits_less(type, x, extreme);
        sum += bits->has_weights ? x * column->rows[i].integer : x;
        extreme = i == 0 || is_beyond ? x : extreme;
    }
    if (bits->reduction == EB_REDUCTION_MAX || bits->reduction == EB_REDUCTION_MIN) {
        return extreme;
    }
    if (bits->reduction == EB_REDUCTION_MEAN) {
        return eb_type_is_signed(type) ? (uint64_t)((int64_t)sum / (int64_t)column->count)
                                       : sum / column->count;
    }
    return sum;
}

/* ---- a bag ---- */

/* Writes an element of the result of a bag that is not empty. */
static void pool_bits_element(const struct column *column, uint8_t *out)
{
    const struct bag_bits *bits = column->bits;
    if (!eb_type_is_float(bits->table->type)) {
        eb_element_store_int(bits->output_type, pool_bits_int(column), out);
    } else if (bits->table->type == EB_F64) {
        eb_element_store_float(bits->output_type, pool_bits_f64(column), out);
    } else {
        eb_element_store_float(bits->output_type, (double)pool_bits_f32(column), out);
    }
}

/* Returns whether values are copied as they are, NaNs included: single rows without weights, if
 * they are stored in the output type. */
static const uint8_t *find_copied(const struct bag_bits *bits, int64_t row)
{
    const struct eb_table *table = bits->table;
    if (row == EB_ROW_VECTOR) {
        return table->type == bits->output_type ? table->vector : NULL;
    }
    bool is_stored = row >= 0 && (int)table->storage == (int)bits->output_type;
    return is_stored ? row_of_bits(table, row) : NULL;
}

void bag_bits_pool(
    const struct bag_bits *bits, const struct bag_bits_row *rows, size_t count, uint8_t *out)
{
    struct bag_bits single = *bits;
    struct bag_bits_row filler = {.row = bits->default_row};
    struct column column = {bits, rows, count, 0};
    size_t element_bytes = eb_type_bytes(bits->output_type);
    assert(bits->reduction != EB_REDUCTION_NONE || count == 1);
    if (count == 0) {
        if (bits->default_row == -1) {
            memset(out, 0, bits->table->row_elements * element_bytes);
            return;
        }
        single.reduction = EB_REDUCTION_NONE;
        single.has_weights = false;
        column = (struct column){&single, &filler, 1, 0};
    }
    if (column.bits->reduction == EB_REDUCTION_NONE && !column.bits->has_weights) {
        const uint8_t *copied = find_copied(bits, column.rows->row);
        if (copied) {
            memcpy(out, copied, bits->table->row_elements * element_bytes);
            return;
        }
    }
    for (; column.element < bits->table->row_elements; column.element++) {
        pool_bits_element(&column, out + column.element * element_bytes);
    }
}
