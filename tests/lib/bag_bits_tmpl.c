/* The model for floating-point tables, written once for both types that sums are kept in.
 * bag_bits.c defines ACC, ACC_FMA, ACC_SQRT and OF_ACC before each inclusion. */

static ACC OF_ACC(load_bits)(const struct eb_table *table, int64_t row, uint32_t element)
{
    if (row == EB_ROW_ZERO) {
        return 0;
    }
    if (row == EB_ROW_VECTOR) {
        return (ACC)eb_element_load_float((enum eb_storage)table->type,
            (const uint8_t *)table->vector + element * eb_type_bytes(table->type));
    }
    if (eb_storage_is_code(table->storage)) {
        struct eb_row_scale scale = eb_table_scale(table, (uint64_t)row);
        ACC code = (ACC)eb_element_load_code(table->storage, row_of_bits(table, row), element);
        return ACC_FMA((ACC)scale.scale, code, (ACC)scale.bias);
    }
    return (ACC)eb_element_load_float(
        table->storage, row_of_bits(table, row) + element * eb_storage_bytes(table->storage));
}

/* Adds a row of codes to the sums of codes and of biases. */
static void OF_ACC(add_bits_code)(
    const struct column *column, const struct bag_bits_row *row, ACC *acc, ACC *bias)
{
    const struct eb_table *table = column->bits->table;
    ACC weight = (ACC)row->weight;
    if (row->row == EB_ROW_ZERO) {
        *acc = *acc + 0;
        *bias = *bias + 0;
        return;
    }
    if (row->row == EB_ROW_VECTOR) {
        ACC x = OF_ACC(load_bits)(table, row->row, column->element);
        *acc = column->bits->has_weights ? ACC_FMA(weight, x, *acc) : *acc + x;
        return;
    }
    struct eb_row_scale scale = eb_table_scale(table, (uint64_t)row->row);
    ACC code =
        (ACC)eb_element_load_code(table->storage, row_of_bits(table, row->row), column->element);
    if (column->bits->has_weights) {
        ACC factor = weight * (ACC)scale.scale;
        *acc = ACC_FMA(factor, code, *acc);
        *bias = ACC_FMA(weight, (ACC)scale.bias, *bias);
    } else {
        *acc = ACC_FMA((ACC)scale.scale, code, *acc);
        *bias = *bias + (ACC)scale.bias;
    }
}

static void OF_ACC(add_bits_value)(
    const struct column *column, const struct bag_bits_row *row, ACC *acc)
{
    ACC x = OF_ACC(load_bits)(column->bits->table, row->row, column->element);
    bool is_weighted = column->bits->has_weights && row->row != EB_ROW_ZERO;
    *acc = is_weighted ? ACC_FMA((ACC)row->weight, x, *acc) : *acc + x;
}

/* Returns the sum of the rows of a part, and sets *is_any to whether it has any. */
static ACC OF_ACC(sum_bits_part)(const struct column *column, uint32_t part, bool *is_any)
{
    bool is_code = eb_storage_is_code(column->bits->table->storage);
    ACC acc = (ACC)-0.0;
    ACC bias = (ACC)-0.0;
    *is_any = false;
    for (size_t i = 0; i < column->count; i++) {
        if (!is_in_part(column, i, part)) {
            continue;
        }
        *is_any = true;
        if (is_code) {
            OF_ACC(add_bits_code)(column, &column->rows[i], &acc, &bias);
        } else {
            OF_ACC(add_bits_value)(column, &column->rows[i], &acc);
        }
    }
    return is_code ? acc + bias : acc;
}

static ACC OF_ACC(sum_bits)(const struct column *column)
{
    const struct bag_bits *bits = column->bits;
    ACC acc = (ACC)-0.0;
    for (uint32_t part = 0; part < count_sums(bits); part++) {
        bool is_any;
        ACC sum = OF_ACC(sum_bits_part)(column, part, &is_any);
        acc = is_any ? acc + sum : acc;
    }
    return bits->parts > 0 && has_zero(column) ? acc + 0 : acc;
}

/* Applies the rule of MAX or MIN to the value so far and the next one. */
static ACC OF_ACC(choose_bits)(const struct column *column, bool is_first, ACC acc, ACC x)
{
    bool is_beyond = column->bits->reduction == EB_REDUCTION_MAX ? x > acc : x < acc;
    return is_first || is_beyond || isnan(x) ? x : acc;
}

static ACC OF_ACC(extreme_bits)(const struct column *column)
{
    const struct bag_bits *bits = column->bits;
    ACC acc = 0;
    bool is_first = true;
    for (uint32_t part = 0; part < count_sums(bits); part++) {
        ACC of_part = 0;
        bool is_first_of_part = true;
        for (size_t i = 0; i < column->count; i++) {
            if (is_in_part(column, i, part)) {
                ACC x = OF_ACC(load_bits)(bits->table, column->rows[i].row, column->element);
                of_part = OF_ACC(choose_bits)(column, is_first_of_part, of_part, x);
                is_first_of_part = false;
            }
        }
        if (!is_first_of_part) {
            acc = OF_ACC(choose_bits)(column, is_first, acc, of_part);
            is_first = false;
        }
    }
    return bits->parts > 0 && has_zero(column) ? OF_ACC(choose_bits)(column, is_first, acc, 0)
                                               : acc;
}

/* Returns n, the sum of the weights or the root of the sum of their squares, over the whole bag. */
static ACC OF_ACC(divisor_bits)(const struct column *column)
{
    ACC sum = 0;
    ACC squares = 0;
    for (size_t i = 0; i < column->count; i++) {
        ACC weight = column->bits->has_weights ? (ACC)column->rows[i].weight : 1;
        sum = sum + weight;
        squares = ACC_FMA(weight, weight, squares);
    }
    return column->bits->reduction == EB_REDUCTION_SQRTN ? ACC_SQRT(squares) : sum;
}

static ACC OF_ACC(pool_bits)(const struct column *column)
{
    switch (column->bits->reduction) {
    case EB_REDUCTION_SUM: return OF_ACC(sum_bits)(column);
    case EB_REDUCTION_MEAN:
    case EB_REDUCTION_WEIGHTED_MEAN:
    case EB_REDUCTION_SQRTN: {
        ACC divisor = OF_ACC(divisor_bits)(column);
        return divisor == 0 ? 0 : OF_ACC(sum_bits)(column) / divisor;
    }
    case EB_REDUCTION_MAX:
    case EB_REDUCTION_MIN: return OF_ACC(extreme_bits)(column);
    default: break;
    }
    ACC x = OF_ACC(load_bits)(column->bits->table, column->rows->row, column->element);
    bool is_weighted = column->bits->has_weights && column->rows->row != EB_ROW_ZERO;
    return is_weighted ? (ACC)column->rows->weight * x : x;
}

#undef ACC
#undef ACC_FMA
#undef ACC_SQRT
#undef OF_ACC
