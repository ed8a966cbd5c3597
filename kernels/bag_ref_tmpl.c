/* The reference for floating-point tables, written once for both types that sums are kept in.
 * Before each inclusion, bag_ref.c defines ACC (float or double), ACC_FMA and ACC_SQRT (that type's
 * functions) and OF_ACC(name), which completes the name of a function: name_f32 or name_f64. The
 * template undefines these macros at its end.
 * Thread: pure. Memory: none. */
static ACC OF_ACC(load_code)(const struct eb_table *table, int64_t row, uint32_t element)
{
    return (ACC)eb_element_load_code(table->storage, row_at(table, row), element);
}

static ACC OF_ACC(load_vector)(const struct eb_table *table, uint32_t element)
{
    const uint8_t *bytes = (const uint8_t *)table->vector + element * eb_type_bytes(table->type);
    return (ACC)eb_element_load_float((enum eb_storage)table->type, bytes);
}

static ACC OF_ACC(load_value)(const struct eb_bag_job *job, int64_t row, uint32_t element)
{
    const struct eb_table *table = job->table;
    if (row == EB_ROW_VECTOR) {
        return OF_ACC(load_vector)(table, element);
    }
    if (eb_storage_is_code(table->storage)) {
        struct eb_row_scale of_row = eb_table_scale(table, (uint64_t)row);
        return ACC_FMA(of_row.scale, OF_ACC(load_code)(table, row, element), of_row.bias);
    }
    const uint8_t *bytes = row_at(table, row);
    return (ACC)eb_element_load_float(
        table->storage, bytes + element * eb_storage_bytes(table->storage));
}

static ACC OF_ACC(sum_values)(const struct reference_bag *bag, uint32_t element)
{
    const struct eb_bag_job *job = bag->job;
    const ACC *weights = job->weights;
    ACC acc = (ACC)-0.0;
    for (uint32_t i = bag->first; i < bag->end; i++) {
        if (job->rows[i] == EB_ROW_ZERO) {
            acc = acc + 0;
        } else if (weights) {
            acc = ACC_FMA(weights[i], OF_ACC(load_value)(job, job->rows[i], element), acc);
        } else {
            acc = acc + OF_ACC(load_value)(job, job->rows[i], element);
        }
    }
    return acc;
}

/* Sums up codes and biases separately. The sum of the biases is the same for every element. */
static ACC OF_ACC(sum_codes)(const struct reference_bag *bag, uint32_t element)
{
    const struct eb_bag_job *job = bag->job;
    const ACC *weights = job->weights;
    ACC acc = (ACC)-0.0;
    ACC bias = (ACC)-0.0;
    for (uint32_t i = bag->first; i < bag->end; i++) {
        if (job->rows[i] == EB_ROW_ZERO) {
            acc = acc + 0;
            bias = bias + 0;
            continue;
        }
        if (job->rows[i] == EB_ROW_VECTOR) {
            ACC x = OF_ACC(load_vector)(job->table, element);
            acc = weights ? ACC_FMA(weights[i], x, acc) : acc + x;
            continue;
        }
        struct eb_row_scale of_row = eb_table_scale(job->table, (uint64_t)job->rows[i]);
        ACC scale = weights ? weights[i] * of_row.scale : of_row.scale;
        acc = ACC_FMA(scale, OF_ACC(load_code)(job->table, job->rows[i], element), acc);
        bias = weights ? ACC_FMA(weights[i], of_row.bias, bias) : bias + of_row.bias;
    }
    return acc + bias;
}

static ACC OF_ACC(sum)(const struct reference_bag *bag, uint32_t element)
{
    bool is_code = eb_storage_is_code(bag->job->table->storage);
    return is_code ? OF_ACC(sum_codes)(bag, element) : OF_ACC(sum_values)(bag, element);
}

static ACC OF_ACC(extreme)(const struct reference_bag *bag, uint32_t element)
{
    const struct eb_bag_job *job = bag->job;
    ACC acc = 0;
    for (uint32_t i = bag->first; i < bag->end; i++) {
        ACC x = job->rows[i] == EB_ROW_ZERO ? 0 : OF_ACC(load_value)(job, job->rows[i], element);
        bool is_beyond = job->reduction == EB_REDUCTION_MAX ? x > acc : x < acc;
        if (i == bag->first || is_beyond || x != x) {
            acc = x;
        }
    }
    return acc;
}

static ACC OF_ACC(single)(const struct reference_bag *bag, uint32_t element)
{
    const struct eb_bag_job *job = bag->job;
    const ACC *weights = job->weights;
    if (job->rows[bag->first] == EB_ROW_ZERO) {
        return 0;
    }
    ACC x = OF_ACC(load_value)(job, job->rows[bag->first], element);
    return weights ? weights[bag->first] * x : x;
}

/* Returns the divisor of a mean's sum. */
static ACC OF_ACC(divisor)(const struct reference_bag *bag)
{
    const ACC *weights = bag->job->weights;
    ACC weight_sum = 0;
    ACC square_sum = 0;
    if (bag->job->divisors) {
        return ((const ACC *)bag->job->divisors)[bag->number];
    }
    for (uint32_t i = bag->first; i < bag->end; i++) {
        ACC weight = weights ? weights[i] : 1;
        weight_sum = weight_sum + weight;
        square_sum = ACC_FMA(weight, weight, square_sum);
    }
    return bag->job->reduction == EB_REDUCTION_SQRTN ? ACC_SQRT(square_sum) : weight_sum;
}

static ACC OF_ACC(pool_element)(const struct reference_bag *bag, uint32_t element, ACC by)
{
    switch (bag->job->reduction) {
    case EB_REDUCTION_SUM: return OF_ACC(sum)(bag, element);
    case EB_REDUCTION_MEAN:
    case EB_REDUCTION_WEIGHTED_MEAN:
    case EB_REDUCTION_SQRTN: return by == 0 ? 0 : OF_ACC(sum)(bag, element) / by;
    case EB_REDUCTION_MAX:
    case EB_REDUCTION_MIN: return OF_ACC(extreme)(bag, element);
    case EB_REDUCTION_NONE: return OF_ACC(single)(bag, element);
    case EB_REDUCTION_UNSPECIFIED:
    case EB_REDUCTION_COUNT: break;
    }
    assert(false && "a reduction");
    return 0;
}

/* Writes the columns of a bag to its row of the result, which begins at `out`. */
static void OF_ACC(pool_ref_columns)(const struct reference_bag *bag, uint8_t *out)
{
    enum eb_type type = bag->job->output_type;
    size_t element_bytes = eb_type_bytes(type);
    ACC by = OF_ACC(divisor)(bag);
    for (uint32_t element = bag->element_first; element < bag->element_end; element++) {
        eb_element_store_float(
            type, OF_ACC(pool_element)(bag, element, by), out + element * element_bytes);
    }
}

#undef ACC
#undef ACC_FMA
#undef ACC_SQRT
#undef OF_ACC
