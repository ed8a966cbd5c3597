#include "server/tables/table_storage.h"

#include "kernels/quantize.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#define OTHERS_BYTES 64 /* room for the names of all formats of one storage except one */

/* Bound on the padding of a row with scale and bias in front. FBGEMM aligns rows to at most 128
 * bytes, so the padding is shorter than that. */
#define PADDING_BYTES_MAX 128

/* Indexed by enum eb_model_format. */
static const struct {
    const char *name;
    enum eb_storage storage;
    enum eb_fused_layout layout;
} fused_formats[] = {
#define X(name, text, storage, layout)                                                             \
    [EB_MODEL_FORMAT_##name] = {text, EB_STORAGE_##storage, EB_FUSED_##layout},
    EB_MODEL_FORMAT_LIST(X)
#undef X
};

#define FUSED_COUNT (sizeof fused_formats / sizeof fused_formats[0])

/* Indexed by enum eb_model_format. */
static const enum eb_storage code_storages[EB_MODEL_FORMAT_COUNT] = {
#define X(name, text, storage) [EB_MODEL_FORMAT_##name] = EB_STORAGE_##storage,
    EB_MODEL_CODES_LIST(X)
#undef X
};

/* Returns the storage that model.yaml requires, or UNSPECIFIED if it is to be that of the file. */
static enum eb_storage find_wanted(const struct eb_planned_table *table)
{
    return table->config ? table->config->storage : EB_STORAGE_UNSPECIFIED;
}

static bool refuse_storage(
    const struct eb_planned_table *table, const char *why, struct eb_failure *failure)
{
    return eb_failure_set(failure, "model.yaml: table '%.64s': storage %s: %s", table->name,
        eb_storage_name(find_wanted(table)), why);
}

/* Sets the row sizes of a table whose storage and shape are set. */
static void lay_out_storage(struct eb_planned_table *table)
{
    uint32_t elements = (uint32_t)eb_tensor_row_elements(&table->tensor);
    struct eb_row_format format = eb_row_format_of(table->storage, elements);
    table->row_bytes = format.bytes_max;
    table->row_offset_bytes = format.row_offset_bytes;
    table->row_stride_bytes = format.stride_bytes;
}

static bool choose_packed(struct eb_planned_table *table, const struct eb_packed_format *packed,
    struct eb_failure *failure)
{
    enum eb_storage wanted = find_wanted(table);
    if (wanted != EB_STORAGE_UNSPECIFIED && wanted != packed->tensor.storage) {
        return refuse_storage(table,
            "a packed table cannot be converted when it is loaded; pack it again with that storage",
            failure);
    }
    if (table->config && table->config->format != EB_MODEL_FORMAT_VALUES) {
        return eb_failure_set(failure,
            "model.yaml: table '%.64s': format is not possible for a packed table; remove it",
            table->name);
    }
    table->storage = packed->tensor.storage;
    table->type = packed->type;
    table->row_offset_bytes = packed->row_offset_bytes;
    table->row_stride_bytes = packed->row_stride_bytes;
    table->row_bytes = packed->row_offset_bytes + eb_storage_row_bytes(table->storage,
                                                      eb_tensor_row_elements(&packed->tensor));
    table->file_row_bytes = packed->row_stride_bytes;
    return true;
}

/* Returns the number of elements in a fused row of row_bytes bytes, or 0 if there is no room for
 * one. */
static uint64_t count_elements(const struct eb_fused_format *format, uint64_t row_bytes)
{
    struct eb_fused_format one = *format;
    one.elements = 1;
    uint64_t overhead = eb_fused_row_bytes(&one) - eb_storage_row_bytes(format->storage, 1);
    uint64_t per_byte = 8 / eb_storage_bits(format->storage);
    return row_bytes <= overhead ? 0 : (row_bytes - overhead) * per_byte;
}

/* Returns whether rows in the format F32_LAST have row_bytes bytes if their codes are padded for
 * GPUs. */
static bool is_aligned(const struct eb_fused_format *format, uint64_t row_bytes)
{
    struct eb_fused_format aligned = *format;
    aligned.layout = EB_FUSED_F32_ALIGNED;
    return format->layout == EB_FUSED_F32_LAST && eb_fused_row_bytes(&aligned) == row_bytes;
}

/* Sets the number of elements in a row of row_bytes bytes to `dim`. Returns false if the row has no
 * room for them, or if it has more bytes to spare than padding may have. */
static bool set_dim(
    struct eb_fused_format *format, uint32_t dim, uint64_t row_bytes, struct eb_failure *failure)
{
    format->elements = dim;
    uint64_t needed = eb_fused_row_bytes(format);
    if (row_bytes > needed && is_aligned(format, row_bytes)) {
        format->layout = EB_FUSED_F32_ALIGNED;
        return true;
    }
    bool may_pad = format->layout == EB_FUSED_F16_FIRST;
    uint64_t padding_max = may_pad ? PADDING_BYTES_MAX - 1 : 0;
    return (row_bytes >= needed && row_bytes - needed <= padding_max) ||
           eb_failure_set(failure,
               "dim %" PRIu32 " needs rows of %" PRIu64 " bytes%s, but these have %" PRIu64
               "; correct dim or format",
               dim, needed, may_pad ? ", padded by fewer than 128" : "", row_bytes);
}

bool eb_table_storage_find_fused(enum eb_model_format name, uint32_t dim,
    const struct eb_tensor *tensor, struct eb_fused_format *format, struct eb_failure *failure)
{
    *format = (struct eb_fused_format){
        .storage = fused_formats[name].storage, .layout = fused_formats[name].layout};
    if (tensor->storage != EB_STORAGE_U8 || tensor->rank != 2) {
        char shape[EB_TENSOR_SHAPE_BYTES];
        eb_tensor_shape_text(tensor, shape);
        return eb_failure_set(failure,
            "expected fused rows as a u8 tensor of shape (rows, bytes), but this is %s of %s; "
            "remove format",
            shape, eb_storage_name(tensor->storage));
    }
    uint64_t elements = count_elements(format, tensor->dims[1]);
    if (elements == 0 || elements > UINT32_MAX) {
        return eb_failure_set(failure,
            "rows of %" PRIu64 " bytes are not fused rows; remove format", tensor->dims[1]);
    }
    format->elements = (uint32_t)elements;
    if (dim == 0 && format->layout == EB_FUSED_F16_FIRST) {
        return eb_failure_set(failure,
            "format %s needs a dim: rows of %" PRIu64 " bytes have %" PRIu64
            " values if they are not padded, and fewer if they are",
            fused_formats[name].name, tensor->dims[1], elements);
    }
    return dim == 0 || set_dim(format, dim, tensor->dims[1], failure);
}

/* Returns what to do about a tensor whose rows cannot hold only codes. */
static const char *find_codes_hint(const struct eb_tensor *tensor)
{
    switch (tensor->storage) {
    case EB_STORAGE_I8:
        return "codes are unsigned: add 128 to each, and subtract 128 * scale from its row's bias";
    case EB_STORAGE_F8_E4M3:
    case EB_STORAGE_F8_E5M2:
        return "fp8 with scales is not supported: dequantise the table to F32 or BF16";
    default: return "correct source or format";
    }
}

bool eb_table_storage_find_codes(enum eb_model_format name, uint32_t dim,
    const struct eb_tensor *tensor, struct eb_fused_format *format, struct eb_failure *failure)
{
    *format = (struct eb_fused_format){.storage = code_storages[name]};
    if (tensor->storage != EB_STORAGE_U8 || tensor->rank != 2) {
        char shape[EB_TENSOR_SHAPE_BYTES];
        eb_tensor_shape_text(tensor, shape);
        return eb_failure_set(failure,
            "expected codes as a u8 tensor of shape (rows, bytes), but this is %s of %s; %s", shape,
            eb_storage_name(tensor->storage), find_codes_hint(tensor));
    }
    uint64_t per_byte = 8 / eb_storage_bits(format->storage);
    uint64_t elements = dim > 0 ? dim : tensor->dims[1] * per_byte;
    uint64_t needed = eb_storage_row_bytes(format->storage, elements);
    if (needed != tensor->dims[1]) {
        return eb_failure_set(failure,
            "dim %" PRIu32 " needs rows of %" PRIu64 " bytes of %s codes, but these have %" PRIu64
            "; correct dim or format",
            dim, needed, eb_storage_name(format->storage), tensor->dims[1]);
    }
    if (elements > UINT32_MAX) {
        return eb_failure_set(failure,
            "rows of %" PRIu64 " bytes have more %s codes than can be counted; correct the format",
            tensor->dims[1], eb_storage_name(format->storage));
    }
    format->elements = (uint32_t)elements;
    return true;
}

enum eb_fused_layout eb_table_storage_scales_layout(enum eb_storage scales)
{
    return scales == EB_STORAGE_F16 ? EB_FUSED_F16_LAST : EB_FUSED_F32_LAST;
}

/* Writes the names of the other formats that have the same codes, as "a" or "a or b". */
static void list_others(const struct eb_fused_format *format, char out[OTHERS_BYTES])
{
    enum eb_fused_layout own =
        format->layout == EB_FUSED_F32_ALIGNED ? EB_FUSED_F32_LAST : format->layout;
    size_t used = 0;
    for (size_t i = 1; i < FUSED_COUNT; i++) {
        if (fused_formats[i].storage == format->storage && fused_formats[i].layout != own) {
            used += (size_t)snprintf(out + used, OTHERS_BYTES - used, "%s%s",
                used == 0 ? "" : " or ", fused_formats[i].name);
        }
    }
    assert(used > 0 && used < OTHERS_BYTES);
}

bool eb_table_storage_check_row(struct eb_table_storage_check *check,
    const struct eb_fused_format *format, uint64_t number, const void *codes,
    const struct eb_row_scale *scale, struct eb_failure *failure)
{
    bool is_sound = eb_quantize_scale_is_sound(format->storage, scale);
    if (!is_sound && check->has_scales) {
        return eb_failure_set(failure,
            "values of scale %g and bias %g are not finite; correct the row", (double)scale->scale,
            (double)scale->bias);
    }
    if (!is_sound) {
        char others[OTHERS_BYTES];
        list_others(format, others);
        return eb_failure_set(failure,
            "values of scale %g and bias %g are not finite: the rows may be of format %s; give the "
            "right format, or correct the row",
            (double)scale->scale, (double)scale->bias, others);
    }
    enum eb_fused_sign sign = eb_fused_row_sign(format, codes, scale);
    struct eb_fused_counters *counters = &check->counters;
    if ((sign == EB_FUSED_ZERO || sign == EB_FUSED_NEGATIVE) &&
        counters->zero + counters->negative == 0) {
        check->row = number;
        check->scale = *scale;
    }
    eb_fused_counters_add(counters, sign);
    return true;
}

static uint64_t count_suspects(const struct eb_table_storage_check *check)
{
    return check->counters.zero + check->counters.negative;
}

void eb_table_storage_check_join(
    struct eb_table_storage_check *check, const struct eb_table_storage_check *part)
{
    if (count_suspects(part) > 0 && (count_suspects(check) == 0 || part->row < check->row)) {
        check->row = part->row;
        check->scale = part->scale;
    }
    check->counters.coded += part->counters.coded;
    check->counters.zero += part->counters.zero;
    check->counters.negative += part->counters.negative;
}

bool eb_table_storage_check_end(const struct eb_table_storage_check *check,
    const struct eb_fused_format *format, struct eb_failure *failure)
{
    const struct eb_fused_counters *counters = &check->counters;
    if (eb_fused_counters_is_plausible(counters)) {
        return true;
    }
    if (check->has_scales) {
        return eb_failure_set(failure,
            "a row with such codes cannot have the scale %g and bias %g, and %" PRIu64
            " of %" PRIu64 " rows with codes are like it: scales and biases may be swapped; give "
            "the right tensors, or correct the rows",
            (double)check->scale.scale, (double)check->scale.bias,
            counters->zero + counters->negative, counters->coded);
    }
    char others[OTHERS_BYTES];
    list_others(format, others);
    return eb_failure_set(failure,
        "in this format, a row with such codes cannot have the scale %g and bias %g, and %" PRIu64
        " of %" PRIu64 " rows with codes are like it: the rows may be of format %s; give the right "
        "format, or correct the rows",
        (double)check->scale.scale, (double)check->scale.bias, counters->zero + counters->negative,
        counters->coded, others);
}

/* Finds the rows' format as model.yaml describes it: fused, or only codes. */
static bool find_codes(struct eb_planned_table *table, struct eb_failure *failure)
{
    const struct eb_model_config_table *config = table->config;
    table->has_scales = eb_model_format_is_codes(config->format);
    table->is_fused = !table->has_scales;
    return (table->has_scales ? eb_table_storage_find_codes : eb_table_storage_find_fused)(
        config->format, config->dim, &table->tensor, &table->fused, failure);
}

static bool choose_codes(struct eb_planned_table *table, struct eb_failure *failure)
{
    struct eb_tensor *tensor = &table->tensor;
    enum eb_storage wanted = table->config->storage;
    if (!find_codes(table, failure)) {
        struct eb_failure why = *failure;
        return eb_failure_set(failure, "model.yaml: table '%.64s': %s", table->name, why.text);
    }
    if (wanted != EB_STORAGE_UNSPECIFIED && wanted != table->fused.storage) {
        return refuse_storage(
            table, "its format already determines the storage; remove storage", failure);
    }
    table->file_row_bytes = tensor->dims[1];
    tensor->dims[1] = table->fused.elements;
    tensor->storage = table->fused.storage;
    table->storage = table->fused.storage;
    table->type = EB_F32;
    lay_out_storage(table);
    return true;
}

static bool choose_values(struct eb_planned_table *table, struct eb_failure *failure)
{
    const struct eb_tensor *tensor = &table->tensor;
    enum eb_storage wanted = find_wanted(table);
    table->type = eb_storage_type(tensor->storage);
    table->storage = wanted == EB_STORAGE_UNSPECIFIED ? tensor->storage : wanted;
    table->file_row_bytes = eb_storage_row_bytes(tensor->storage, eb_tensor_row_elements(tensor));
    if (!eb_type_is_float(table->type) && table->storage != tensor->storage) {
        return refuse_storage(
            table, "its values are integers, which are not converted; remove storage", failure);
    }
    if (!eb_storage_holds(table->storage, table->type)) {
        return eb_failure_set(failure,
            "model.yaml: table '%.64s': storage %s: values of type %s cannot be stored in this "
            "way; write "
            "the file as f32",
            table->name, eb_storage_name(table->storage), eb_type_name(table->type));
    }
    lay_out_storage(table);
    return true;
}

bool eb_table_storage_choose(
    struct eb_planned_table *table, const struct eb_piece *piece, struct eb_failure *failure)
{
    if (piece->packed) {
        return choose_packed(table, piece->packed, failure);
    }
    if (table->config && table->config->format != EB_MODEL_FORMAT_VALUES) {
        return choose_codes(table, failure);
    }
    return choose_values(table, failure);
}
