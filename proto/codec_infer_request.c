/* ModelInferRequest: its parameters, its tensors and the request itself. */
#include "proto/codec_infer.h"

#include "proto/infer_type.h"

#include "embag/v1/embedding_bag.pb-c.h"
#include "inference/open_inference.fields.h"
#include "inference/open_inference.pb-c.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- parameters ---- */

/* Parameters of a request, its inputs and its outputs: X(name, NAME). */
#define PARAMETER_LIST(X)                                                                          \
    X(reduction, REDUCTION)                                                                        \
    X(missing, MISSING)                                                                            \
    X(output_type, OUTPUT_TYPE)                                                                    \
    X(default_index, DEFAULT_INDEX)                                                                \
    X(include_last_offset, INCLUDE_LAST_OFFSET)                                                    \
    X(timeout, TIMEOUT)                                                                            \
    X(priority, PRIORITY)                                                                          \
    X(sequence_id, SEQUENCE_ID)                                                                    \
    X(sequence_start, SEQUENCE_START)                                                              \
    X(sequence_end, SEQUENCE_END)                                                                  \
    X(binary_data_size, BINARY_DATA_SIZE)                                                          \
    X(binary_data, BINARY_DATA)                                                                    \
    X(binary_data_output, BINARY_DATA_OUTPUT)

enum parameter {
#define X(name, constant) PARAMETER_##constant,
    PARAMETER_LIST(X)
#undef X
        PARAMETER_COUNT
};

#define PARAMETER(name) (1u << PARAMETER_##name)

/* Room for a list of the names of all parameters, or of all values of one parameter. */
#define NAMES_BYTES 256

/* Triton's priorities: 1 is the highest; 0 leaves the choice to the server. */
#define PRIORITY_HIGHEST 1
#define PRIORITY_LOWEST 2

static const char *const parameter_names[] = {
#define X(name, constant) [PARAMETER_##constant] = #name,
    PARAMETER_LIST(X)
#undef X
};

/* Parameters whose values are the names of an enum's values, without the prefix and in lower
 * case. */
static const struct {
    const ProtobufCEnumDescriptor *type;
    const char *prefix;
} parameter_enums[] = {
    [PARAMETER_REDUCTION] = {&embag__v1__reduction__descriptor, "REDUCTION_"},
    [PARAMETER_MISSING] = {&embag__v1__missing__descriptor, "MISSING_"},
    [PARAMETER_OUTPUT_TYPE] = {&embag__v1__data_type__descriptor, "DATA_TYPE_"},
};

/* An entry of a map of parameters that is being read. */
struct entry {
    struct eb_field_reader key;
    uint32_t form; /* number of the last field of InferParameter; 0: none */
    uint64_t number;
    struct eb_field_reader text;
};

/* A text that is cut when its buffer is full. */
struct list {
    size_t used;
    char text[NAMES_BYTES];
};

static void append_parameter(struct list *list, const char *name)
{
    const char *comma = list->used > 0 ? ", " : "";
    for (const char *at = comma; *at != '\0' && list->used + 1 < sizeof list->text; at++) {
        list->text[list->used++] = *at;
    }
    for (const char *at = name; *at != '\0' && list->used + 1 < sizeof list->text; at++) {
        list->text[list->used++] = (char)tolower((unsigned char)*at);
    }
    list->text[list->used] = '\0';
}

/* Sets INVALID_ARGUMENT; the text names the tensor if the parameter belongs to one. Always returns
 * false. */
static bool refuse_parameter(const struct eb_codec_position *position, const char *text)
{
    if (position->list) {
        return eb_codec_refuse(position, "%s", text);
    }
    eb_error_set(position->error, EB_STATUS_INVALID_ARGUMENT, "%s", text);
    return false;
}

static bool fail_parameter(const struct eb_codec_position *position)
{
    if (position->list) {
        return eb_codec_fail(position);
    }
    eb_error_set(position->error, EB_STATUS_INTERNAL, "parameters cannot be decoded");
    return false;
}

/* Takes a field of InferParameter. If there are several, the last one is used. Returns false if the
 * guard refuses the field; unknown fields pass. */
static bool take_value(
    const struct eb_codec_position *position, const struct eb_field *field, struct entry *out)
{
    switch (field->tag) {
    case EB_TAG_NUMBER(EB_FIELD_INFER_PARAMETER_BOOL_PARAM):
    case EB_TAG_NUMBER(EB_FIELD_INFER_PARAMETER_INT64_PARAM):
    case EB_TAG_NUMBER(EB_FIELD_INFER_PARAMETER_UINT64_PARAM): out->number = field->varint; break;
    case EB_TAG_FIXED64(EB_FIELD_INFER_PARAMETER_DOUBLE_PARAM): break;
    case EB_TAG_BYTES(EB_FIELD_INFER_PARAMETER_STRING_PARAM):
        if (!eb_codec_take_name(field, position->limits, &out->text)) {
            return false;
        }
        break;
    default: return field->number > EB_FIELD_INFER_PARAMETER_MAX;
    }
    out->form = field->number;
    return true;
}

static bool read_parameter_value(
    const struct eb_codec_position *position, struct eb_field_reader message, struct entry *out)
{
    uint32_t count = 0;
    for (; message.at < message.end; count++) {
        struct eb_field field;
        if (eb_field_reader_read(&message, &field) || !take_value(position, &field, out)) {
            return false;
        }
    }
    return eb_codec_count_fields(position->limits, count, position->field_count);
}

/* Reads an entry. The entries of all maps of parameters have the same two fields. */
static bool read_entry(
    const struct eb_codec_position *position, struct eb_field_reader message, struct entry *out)
{
    uint32_t count = 0;
    bool has_value = false;
    *out = (struct entry){.form = 0};
    for (; message.at < message.end; count++) {
        struct eb_field field;
        if (eb_field_reader_read(&message, &field)) {
            return false;
        }
        bool is_good = field.number > EB_FIELD_MODEL_INFER_REQUEST_PARAMETERS_ENTRY_MAX;
        if (field.tag == EB_TAG_BYTES(EB_FIELD_MODEL_INFER_REQUEST_PARAMETERS_ENTRY_KEY)) {
            is_good = eb_codec_take_name(&field, position->limits, &out->key);
        } else if (field.tag == EB_TAG_BYTES(EB_FIELD_MODEL_INFER_REQUEST_PARAMETERS_ENTRY_VALUE)) {
            is_good = !has_value && read_parameter_value(position, field.data, out);
            has_value = true;
        }
        if (!is_good) {
            return false;
        }
    }
    return eb_codec_count_fields(position->limits, count, position->field_count);
}

static bool equals_word(struct eb_field_reader text, const char *name)
{
    size_t size = eb_field_reader_bytes(&text);
    return size == strlen(name) && memcmp(text.at, name, size) == 0;
}

/* Returns whether Triton reserves the name for its own messages. Triton's perf_analyzer sends such
 * a parameter with every request: triton_enable_empty_final_response. That parameter does not
 * concern a call with one answer. */
static bool is_tritons_own(struct eb_field_reader name)
{
    static const char prefix[] = "triton_";
    size_t size = sizeof prefix - 1;
    return eb_field_reader_bytes(&name) >= size && memcmp(name.at, prefix, size) == 0;
}

static bool refuse_name(
    const struct eb_codec_position *position, const struct entry *entry, unsigned allowed)
{
    struct list list = {.used = 0};
    char text[EB_ERROR_TEXT_BYTES];
    for (unsigned i = 0; i < PARAMETER_COUNT; i++) {
        if ((allowed >> i & 1) != 0) {
            append_parameter(&list, parameter_names[i]);
        }
    }
    snprintf(text, sizeof text, "parameter \"%.*s\" is not accepted here; %s%s",
        (int)eb_field_reader_bytes(&entry->key), (const char *)entry->key.at,
        allowed != 0 ? "expected one of " : "no parameter is", list.text);
    return refuse_parameter(position, text);
}

static bool refuse_value(
    const struct eb_codec_position *position, enum parameter parameter, const char *wanted)
{
    char text[EB_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "parameter \"%s\" must be %s", parameter_names[parameter], wanted);
    return refuse_parameter(position, text);
}

static bool refuse_word(const struct eb_codec_position *position, enum parameter parameter)
{
    const ProtobufCEnumDescriptor *type = parameter_enums[parameter].type;
    struct list list = {.used = 0};
    char wanted[NAMES_BYTES + sizeof "a string, one of "];
    for (unsigned i = 1; i < type->n_values; i++) {
        append_parameter(&list, type->values[i].name + strlen(parameter_enums[parameter].prefix));
    }
    snprintf(wanted, sizeof wanted, "a string, one of %s", list.text);
    return refuse_value(position, parameter, wanted);
}

static bool is_parameter_word(struct eb_field_reader text, const char *name)
{
    while (text.at < text.end && *name != '\0' && *text.at == tolower((unsigned char)*name)) {
        text.at++;
        name++;
    }
    return text.at == text.end && *name == '\0';
}

/* Takes a value of an enum, except the unspecified one. */
static bool take_word(const struct eb_codec_position *position, const struct entry *entry,
    enum parameter parameter, int32_t *out)
{
    const ProtobufCEnumDescriptor *type = parameter_enums[parameter].type;
    for (unsigned i = 1; entry->form == EB_FIELD_INFER_PARAMETER_STRING_PARAM && i < type->n_values;
         i++) {
        if (is_parameter_word(
                entry->text, type->values[i].name + strlen(parameter_enums[parameter].prefix))) {
            *out = type->values[i].value;
            return true;
        }
    }
    return refuse_word(position, parameter);
}

static bool has_integer(const struct entry *entry)
{
    bool is_int64 = entry->form == EB_FIELD_INFER_PARAMETER_INT64_PARAM;
    return is_int64 ||
           (entry->form == EB_FIELD_INFER_PARAMETER_UINT64_PARAM && entry->number <= INT64_MAX);
}

static bool check_flag(
    const struct eb_codec_position *position, const struct entry *entry, enum parameter parameter)
{
    return entry->form == EB_FIELD_INFER_PARAMETER_BOOL_PARAM ||
           refuse_value(position, parameter, "a boolean");
}

/* Reads Triton's priority: 0 and 1 mean interactive, 2 means batch, which is served later. */
static bool take_priority(const struct eb_codec_position *position, const struct entry *entry,
    struct eb_infer_options *options)
{
    options->priority = entry->number > PRIORITY_HIGHEST;
    return (has_integer(entry) && entry->number <= PRIORITY_LOWEST) ||
           refuse_value(position, PARAMETER_PRIORITY, "0 or 1 (interactive) or 2 (batch)");
}

/* Accepts a sequence parameter whose value says that the request belongs to no sequence. */
static bool take_no_sequence(
    const struct eb_codec_position *position, const struct entry *entry, enum parameter parameter)
{
    bool is_id = parameter == PARAMETER_SEQUENCE_ID;
    bool is_empty = entry->form == EB_FIELD_INFER_PARAMETER_STRING_PARAM &&
                    eb_field_reader_bytes(&entry->text) == 0;
    bool is_none = is_id ? is_empty || (has_integer(entry) && entry->number == 0)
                         : entry->form == EB_FIELD_INFER_PARAMETER_BOOL_PARAM && entry->number == 0;
    return is_none ||
           refuse_value(position, parameter,
               is_id ? "0: sequences are not supported, since requests are independent"
                     : "false: sequences are not supported, since requests are independent");
}

static bool take_raw_bytes(const struct eb_codec_position *position, const struct entry *entry,
    struct eb_infer_options *options)
{
    options->has_raw_bytes = true;
    options->raw_bytes = entry->number;
    return (entry->form == EB_FIELD_INFER_PARAMETER_INT64_PARAM && entry->number <= INT64_MAX) ||
           refuse_value(position, PARAMETER_BINARY_DATA_SIZE,
               "an int64, the number of bytes of the input's raw contents");
}

static bool take_parameter(const struct eb_codec_position *position, const struct entry *entry,
    enum parameter parameter, struct eb_infer_options *options)
{
    switch (parameter) {
    case PARAMETER_REDUCTION: return take_word(position, entry, parameter, &options->reduction);
    case PARAMETER_MISSING: return take_word(position, entry, parameter, &options->missing);
    case PARAMETER_OUTPUT_TYPE: return take_word(position, entry, parameter, &options->output_type);
    case PARAMETER_DEFAULT_INDEX:
        options->has_default = true;
        options->default_index = (int64_t)entry->number;
        return has_integer(entry) || refuse_value(position, parameter, "an integer");
    case PARAMETER_INCLUDE_LAST_OFFSET:
        options->has_last_offset = true;
        options->include_last_offset = entry->number != 0;
        return check_flag(position, entry, parameter);
    case PARAMETER_TIMEOUT:
        options->timeout_us = entry->number;
        return (has_integer(entry) && entry->number <= INT64_MAX) ||
               refuse_value(position, parameter, "an integer of at least 0, in microseconds");
    case PARAMETER_PRIORITY: return take_priority(position, entry, options);
    case PARAMETER_SEQUENCE_ID:
    case PARAMETER_SEQUENCE_START:
    case PARAMETER_SEQUENCE_END: return take_no_sequence(position, entry, parameter);
    case PARAMETER_BINARY_DATA_SIZE: return take_raw_bytes(position, entry, options);
    case PARAMETER_BINARY_DATA:
    case PARAMETER_BINARY_DATA_OUTPUT:
        /* No effect: over gRPC outputs are always binary. */
        return check_flag(position, entry, parameter);
    case PARAMETER_COUNT: break;
    }
    return false;
}

/* Stores the value of a parameter's entry in the options. */
static bool take_entry(const struct eb_codec_position *position, const struct entry *entry,
    unsigned allowed, struct eb_infer_options *options)
{
    for (unsigned i = 0; i < PARAMETER_COUNT; i++) {
        if (equals_word(entry->key, parameter_names[i]) && (allowed >> i & 1) != 0) {
            return take_parameter(position, entry, (enum parameter)i, options);
        }
    }
    return is_tritons_own(entry->key) || refuse_name(position, entry, allowed);
}

/* Reads the entries of the map in field `number` of a message whose fields have been read. Allows
 * only the parameters whose bits are set in `allowed`. position->list is NULL for the request's own
 * parameters. Returns false with the position's error set. */
static bool read_parameters(const struct eb_codec_position *position,
    struct eb_field_reader message, uint32_t number, unsigned allowed,
    struct eb_infer_options *options)
{
    struct eb_field_reader bytes;
    struct entry entry;
    while (eb_codec_find_field(&message, number, &bytes)) {
        if (!read_entry(position, bytes, &entry)) {
            return fail_parameter(position);
        }
        if (!take_entry(position, &entry, allowed, options)) {
            return false;
        }
    }
    return true;
}

/* ---- tensors ---- */

#define TYPE(name) EMBAG__V1__DATA_TYPE__DATA_TYPE_##name

/* The parameters that an input may have. */
static const unsigned input_parameters[] = {
    [EB_INFER_INDICES] = PARAMETER(REDUCTION) | PARAMETER(MISSING) | PARAMETER(DEFAULT_INDEX) |
                         PARAMETER(BINARY_DATA_SIZE),
    [EB_INFER_OFFSETS] = PARAMETER(INCLUDE_LAST_OFFSET) | PARAMETER(BINARY_DATA_SIZE),
    [EB_INFER_WEIGHTS] = PARAMETER(BINARY_DATA_SIZE),
};

/* A tensor that is being read. */
struct tensor_reading {
    struct eb_codec_position *position;
    struct eb_field_reader name;
    struct eb_field_reader datatype;
    struct eb_field_reader contents;
    uint32_t contents_count;
    uint32_t forms; /* bit n: field n of the contents is not empty */
    uint32_t rank;
    uint64_t dims[EB_INFER_RANK_MAX]; /* the first EB_INFER_RANK_MAX of them */
};

/* Keeps the tensor's name, which becomes position->name. */
static bool keep_name(struct tensor_reading *reading)
{
    struct eb_codec_position *position = reading->position;
    const char *name = eb_codec_keep_text(reading->name, position->arena, position->error);
    position->name = name ? name : "";
    return name;
}

/* Returns whether position->name is the suffix, or ends with a dot and the suffix. Then *size is
 * the length of the table's name before the suffix. */
static bool has_tensor_suffix(
    const struct eb_codec_position *position, const char *suffix, size_t *size)
{
    size_t name_bytes = strlen(position->name);
    size_t suffix_bytes = strlen(suffix);
    if (name_bytes < suffix_bytes ||
        strcmp(position->name + name_bytes - suffix_bytes, suffix) != 0) {
        return false;
    }
    *size = name_bytes - suffix_bytes;
    if (*size == 0) {
        return true;
    }
    *size -= 1;
    return *size > 0 && position->name[*size] == '.';
}

/* Returns the name of the tensor's table. On failure returns NULL with the position's error set. */
static const char *keep_tensor_table(const struct eb_codec_position *position, size_t size)
{
    if (size > position->limits->name_bytes_max - EB_INFER_SUFFIX_BYTES_MAX) {
        eb_error_set(position->error, EB_STATUS_RESOURCE_EXHAUSTED,
            "%s[%zu] has a name that is too long", position->list, position->index);
        return NULL;
    }
    struct eb_field_reader table = eb_field_reader_of((const uint8_t *)position->name, size);
    return eb_codec_keep_text(table, position->arena, position->error);
}

static bool take_role(const struct eb_codec_position *position, struct eb_infer_input *out)
{
    size_t size;
    for (unsigned role = 0; role < EB_INFER_ROLE_COUNT; role++) {
        if (has_tensor_suffix(position, eb_infer_role_suffixes[role], &size)) {
            out->role = (enum eb_infer_role)role;
            out->table = keep_tensor_table(position, size);
            return out->table;
        }
    }
    return eb_codec_refuse(
        position, "expected a name TABLE.indices, TABLE.offsets or TABLE.per_sample_weights");
}

/* ---- tensors: the fields of an input ---- */

/* Adds dimensions to the shape. Returns false if the guard refuses the field. */
static bool take_dims(struct tensor_reading *reading, struct eb_field_reader data)
{
    while (data.at < data.end) {
        struct eb_field_varint dim = eb_field_reader_varint(data, EB_FIELD_READER_VARINT_BYTES_MAX);
        if (!dim.end) {
            return false;
        }
        if (reading->rank < EB_INFER_RANK_MAX) {
            reading->dims[reading->rank] = dim.value;
        }
        reading->rank++;
        data.at = dim.end;
    }
    return true;
}

/* Takes a field. If several have the same number, the last one is used, except that all fields of
 * the shape add to it. Returns false if the guard refuses the field; unknown fields pass. */
static bool take_input_field(struct tensor_reading *reading, const struct eb_field *field)
{
    const struct eb_guard_limits *limits = reading->position->limits;
    switch (field->tag) {
    case EB_TAG_BYTES(EB_FIELD_INFER_INPUT_TENSOR_NAME):
        return eb_codec_take_name(field, limits, &reading->name);
    case EB_TAG_BYTES(EB_FIELD_INFER_INPUT_TENSOR_DATATYPE):
        return eb_codec_take_name(field, limits, &reading->datatype);
    case EB_TAG_NUMBER(EB_FIELD_INFER_INPUT_TENSOR_SHAPE):
    case EB_TAG_BYTES(EB_FIELD_INFER_INPUT_TENSOR_SHAPE): return take_dims(reading, field->data);
    case EB_TAG_BYTES(EB_FIELD_INFER_INPUT_TENSOR_PARAMETERS): return true;
    case EB_TAG_BYTES(EB_FIELD_INFER_INPUT_TENSOR_CONTENTS):
        reading->contents = field->data;
        reading->contents_count++;
        return reading->contents_count == 1;
    default: return field->number > EB_FIELD_INFER_INPUT_TENSOR_MAX;
    }
}

/* Notes a field of the contents. Returns false if the guard refuses the field; unknown fields
 * pass. */
static bool take_contents_field(struct tensor_reading *reading, const struct eb_field *field)
{
    size_t bytes = eb_field_reader_bytes(&field->data);
    if (field->number <= EB_FIELD_INFER_TENSOR_CONTENTS_MAX &&
        (bytes > 0 || field->number == EB_FIELD_INFER_TENSOR_CONTENTS_BYTES_CONTENTS)) {
        reading->forms |= UINT32_C(1) << field->number;
    }
    switch (field->tag) {
    case EB_TAG_NUMBER(EB_FIELD_INFER_TENSOR_CONTENTS_BOOL_CONTENTS):
    case EB_TAG_NUMBER(EB_FIELD_INFER_TENSOR_CONTENTS_INT_CONTENTS):
    case EB_TAG_NUMBER(EB_FIELD_INFER_TENSOR_CONTENTS_INT64_CONTENTS):
    case EB_TAG_NUMBER(EB_FIELD_INFER_TENSOR_CONTENTS_UINT_CONTENTS):
    case EB_TAG_NUMBER(EB_FIELD_INFER_TENSOR_CONTENTS_UINT64_CONTENTS): return true;
    case EB_TAG_BYTES(EB_FIELD_INFER_TENSOR_CONTENTS_BOOL_CONTENTS):
    case EB_TAG_BYTES(EB_FIELD_INFER_TENSOR_CONTENTS_INT_CONTENTS):
    case EB_TAG_BYTES(EB_FIELD_INFER_TENSOR_CONTENTS_INT64_CONTENTS):
    case EB_TAG_BYTES(EB_FIELD_INFER_TENSOR_CONTENTS_UINT_CONTENTS):
    case EB_TAG_BYTES(EB_FIELD_INFER_TENSOR_CONTENTS_UINT64_CONTENTS):
        return !eb_field_reader_find_endless(field->data);
    case EB_TAG_FIXED32(EB_FIELD_INFER_TENSOR_CONTENTS_FP32_CONTENTS):
    case EB_TAG_BYTES(EB_FIELD_INFER_TENSOR_CONTENTS_FP32_CONTENTS): return bytes % 4 == 0;
    case EB_TAG_FIXED64(EB_FIELD_INFER_TENSOR_CONTENTS_FP64_CONTENTS):
    case EB_TAG_BYTES(EB_FIELD_INFER_TENSOR_CONTENTS_FP64_CONTENTS): return bytes % 8 == 0;
    case EB_TAG_BYTES(EB_FIELD_INFER_TENSOR_CONTENTS_BYTES_CONTENTS): return true;
    default: return field->number > EB_FIELD_INFER_TENSOR_CONTENTS_MAX;
    }
}

/* Reads all fields of a message. Returns false if the guard refuses a field; the caller reports the
 * error. */
static bool read_tensor_fields(struct tensor_reading *reading, struct eb_field_reader message,
    bool (*take)(struct tensor_reading *, const struct eb_field *))
{
    const struct eb_codec_position *position = reading->position;
    uint32_t count = 0;
    for (; message.at < message.end; count++) {
        struct eb_field field;
        if (eb_field_reader_read(&message, &field) || !take(reading, &field)) {
            return false;
        }
    }
    return eb_codec_count_fields(position->limits, count, position->field_count);
}

/* ---- tensors: type, shape and contents ---- */

static bool take_type(const struct tensor_reading *reading, struct eb_infer_input *out)
{
    const struct eb_codec_position *position = reading->position;
    const char *datatype = eb_codec_keep_text(reading->datatype, position->arena, position->error);
    if (!datatype) {
        return false;
    }
    out->type = eb_infer_type_find(datatype);
    if (out->role != EB_INFER_WEIGHTS && out->type != TYPE(I64) && out->type != TYPE(I32)) {
        return eb_codec_refuse(
            position, "datatype \"%s\" is not accepted here: expected INT64 or INT32", datatype);
    }
    return out->type != 0 ||
           eb_codec_refuse(position, "datatype \"%s\" is not accepted here", datatype);
}

static bool take_shape(const struct tensor_reading *reading, struct eb_infer_input *out)
{
    const struct eb_codec_position *position = reading->position;
    uint32_t rank_max = out->role == EB_INFER_OFFSETS ? 1 : EB_INFER_RANK_MAX;
    if (reading->rank == 0 || reading->rank > rank_max) {
        return eb_codec_refuse(position, "shape has %" PRIu32 " dimensions; expected %s",
            reading->rank, rank_max == 1 ? "1" : "1 or 2");
    }
    out->rank = reading->rank;
    for (uint32_t i = 0; i < out->rank; i++) {
        out->dims[i] = reading->dims[i];
        if (out->dims[i] > UINT32_MAX) {
            return eb_codec_refuse(position, "shape[%" PRIu32 "] = %" PRId64 " is not a valid size",
                i, (int64_t)out->dims[i]);
        }
    }
    return true;
}

/* Takes elements that are not in the raw contents: integers as 8 bytes each, floats byte for
 * byte. */
static bool take_tensor_elements(const struct tensor_reading *reading, struct eb_infer_input *out)
{
    const struct eb_codec_position *position = reading->position;
    struct eb_wire_array *array = &out->array;
    bool is_integer = out->type == TYPE(I64) || out->type == TYPE(I32);
    bool is_float = out->type == TYPE(F32) || out->type == TYPE(F64);
    uint32_t number = out->type == TYPE(I64) ? EB_FIELD_INFER_TENSOR_CONTENTS_INT64_CONTENTS
                                             : EB_FIELD_INFER_TENSOR_CONTENTS_INT_CONTENTS;
    if (reading->forms == 0) {
        return true;
    }
    if (is_float) {
        number = out->type == TYPE(F64) ? EB_FIELD_INFER_TENSOR_CONTENTS_FP64_CONTENTS
                                        : EB_FIELD_INFER_TENSOR_CONTENTS_FP32_CONTENTS;
    }
    if ((!is_float && (!is_integer || out->role == EB_INFER_WEIGHTS)) ||
        reading->forms != UINT32_C(1) << number) {
        return eb_codec_refuse(position,
            "contents must be int64_contents (INT64) or int_contents (INT32) for indices and "
            "offsets, and fp32_contents (FP32) or fp64_contents (FP64) for weights; other types "
            "need raw_input_contents");
    }
    if (is_integer) {
        array->width = sizeof(int64_t);
        array->data = eb_codec_read_integers(
            reading->contents, number, &array->bytes, position->arena, position->error);
    } else {
        array->data = eb_codec_read_floats(
            reading->contents, number, &array->bytes, position->arena, position->error);
    }
    return array->data;
}

static bool check_tensor_size(
    const struct eb_codec_position *position, const struct eb_infer_input *input)
{
    const struct eb_wire_array *array = &input->array;
    uint64_t elements = input->dims[0] * (input->rank == 2 ? input->dims[1] : 1);
    if (array->bytes % array->width == 0 && array->bytes / array->width == elements) {
        return true;
    }
    return eb_codec_refuse(position,
        "contents have %zu bytes; shape needs %" PRIu64 " elements of %" PRIu32 " bytes",
        array->bytes, elements, array->width);
}

static bool take_contents(
    struct tensor_reading *reading, const struct eb_field_reader *raw, struct eb_infer_input *out)
{
    const struct eb_codec_position *position = reading->position;
    out->array = (struct eb_wire_array){
        .width = eb_infer_type_bytes(out->type), .field = eb_infer_role_suffixes[out->role]};
    if (raw && reading->forms != 0) {
        return eb_codec_refuse(
            position, "contents and raw_input_contents are forms of the same array: give only one");
    }
    if (raw) {
        out->array.data = raw->at;
        out->array.bytes = eb_field_reader_bytes(raw);
    } else if (!take_tensor_elements(reading, out)) {
        return false;
    }
    return check_tensor_size(position, out);
}

/* Checks the parameter that gives the size of the input's raw contents. */
static bool check_raw_bytes(const struct eb_codec_position *position,
    const struct eb_field_reader *raw, const struct eb_infer_options *options)
{
    if (!options->has_raw_bytes) {
        return true;
    }
    if (!raw) {
        return eb_codec_refuse(position,
            "parameter \"binary_data_size\" is %" PRIu64
            ", but the request has no raw_input_contents; leave it out if contents are typed",
            options->raw_bytes);
    }
    return options->raw_bytes == eb_field_reader_bytes(raw) ||
           eb_codec_refuse(position,
               "parameter \"binary_data_size\" is %" PRIu64
               ", but raw_input_contents has %zu bytes for it",
               options->raw_bytes, eb_field_reader_bytes(raw));
}

/* Fills in *out from an InferInputTensor's bytes. `raw` are its raw contents; NULL if the request
 * has none. Returns false with the position's error set. */
static bool read_input(struct eb_codec_position *position, struct eb_field_reader bytes,
    const struct eb_field_reader *raw, struct eb_infer_input *out)
{
    struct tensor_reading reading = {.position = position};
    memset(out, 0, sizeof *out);
    if (!read_tensor_fields(&reading, bytes, take_input_field) ||
        !read_tensor_fields(&reading, reading.contents, take_contents_field)) {
        return eb_codec_fail(position);
    }
    return keep_name(&reading) && take_role(position, out) && take_type(&reading, out) &&
           take_shape(&reading, out) && take_contents(&reading, raw, out) &&
           read_parameters(position, bytes, EB_FIELD_INFER_INPUT_TENSOR_PARAMETERS,
               input_parameters[out->role], &out->options) &&
           check_raw_bytes(position, raw, &out->options);
}

/* ---- tensors: outputs ---- */

/* Does the same as take_input_field for an output. */
static bool take_output_field(struct tensor_reading *reading, const struct eb_field *field)
{
    switch (field->tag) {
    case EB_TAG_BYTES(EB_FIELD_INFER_REQUESTED_OUTPUT_TENSOR_NAME):
        return eb_codec_take_name(field, reading->position->limits, &reading->name);
    case EB_TAG_BYTES(EB_FIELD_INFER_REQUESTED_OUTPUT_TENSOR_PARAMETERS): return true;
    default: return field->number > EB_FIELD_INFER_REQUESTED_OUTPUT_TENSOR_MAX;
    }
}

/* Fills in *out from an InferRequestedOutputTensor's bytes, as read_input does. */
static bool read_output(
    struct eb_codec_position *position, struct eb_field_reader bytes, struct eb_infer_output *out)
{
    struct tensor_reading reading = {.position = position};
    struct eb_infer_options options = {.output_type = 0};
    size_t size;
    if (!read_tensor_fields(&reading, bytes, take_output_field)) {
        return eb_codec_fail(position);
    }
    if (!keep_name(&reading)) {
        return false;
    }
    if (!has_tensor_suffix(position, EB_INFER_OUTPUT, &size)) {
        return eb_codec_refuse(position, "expected a name TABLE." EB_INFER_OUTPUT);
    }
    out->table = keep_tensor_table(position, size);
    if (!out->table ||
        !read_parameters(position, bytes, EB_FIELD_INFER_REQUESTED_OUTPUT_TENSOR_PARAMETERS,
            PARAMETER(OUTPUT_TYPE) | PARAMETER(BINARY_DATA), &options)) {
        return false;
    }
    out->output_type = options.output_type;
    return true;
}

/* ---- the request ---- */

/* The same limits as those of a LookupRequest (codec_request.c). */
#define OTHER_FIELDS_MAX 4096u
#define QUERY_FIELDS_MAX 64u

/* Largest number of inputs of one table. */
#define QUERY_INPUTS_MAX 3u

/* A request that is being read. */
struct reading {
    struct eb_arena *arena;
    struct eb_error *error;
    struct eb_guard_limits limits;
    struct eb_field_reader message;
    struct eb_field_reader model;
    struct eb_field_reader version;
    struct eb_field_reader id;
    size_t input_count;
    size_t output_count;
    size_t raw_count;
    uint32_t field_count;
};

static struct eb_guard_limits infer_request_limits(const struct eb_codec_limits *limits)
{
    uint64_t fields = OTHER_FIELDS_MAX + (uint64_t)limits->queries_max * QUERY_FIELDS_MAX;
    return (struct eb_guard_limits){
        .fields_max = fields < UINT32_MAX ? (uint32_t)fields : UINT32_MAX,
        .name_bytes_max = limits->name_bytes_max + EB_INFER_SUFFIX_BYTES_MAX,
        .submessages_max = UINT32_MAX, /* no limit of their own: each counts as a field */
    };
}

/* Takes a field of the request itself. If several have the same number, the last one is used.
 * Returns false if the guard refuses the field; unknown fields pass. */
static bool take_infer_field(struct reading *reading, const struct eb_field *field)
{
    const struct eb_guard_limits *limits = &reading->limits;
    switch (field->tag) {
    case EB_TAG_BYTES(EB_FIELD_MODEL_INFER_REQUEST_MODEL_NAME):
        return eb_codec_take_name(field, limits, &reading->model);
    case EB_TAG_BYTES(EB_FIELD_MODEL_INFER_REQUEST_MODEL_VERSION):
        return eb_codec_take_name(field, limits, &reading->version);
    case EB_TAG_BYTES(EB_FIELD_MODEL_INFER_REQUEST_ID):
        return eb_codec_take_name(field, limits, &reading->id);
    case EB_TAG_BYTES(EB_FIELD_MODEL_INFER_REQUEST_PARAMETERS): return true;
    case EB_TAG_BYTES(EB_FIELD_MODEL_INFER_REQUEST_INPUTS): reading->input_count++; return true;
    case EB_TAG_BYTES(EB_FIELD_MODEL_INFER_REQUEST_OUTPUTS): reading->output_count++; return true;
    case EB_TAG_BYTES(EB_FIELD_MODEL_INFER_REQUEST_RAW_INPUT_CONTENTS):
        reading->raw_count++;
        return true;
    default: return field->number > EB_FIELD_MODEL_INFER_REQUEST_MAX;
    }
}

static bool read_infer_fields(struct reading *reading)
{
    struct eb_field_reader message = reading->message;
    uint32_t count = 0;
    bool is_sound = true;
    for (; message.at < message.end && is_sound; count++) {
        struct eb_field field;
        is_sound = !eb_field_reader_read(&message, &field) && take_infer_field(reading, &field);
    }
    if (is_sound && eb_codec_count_fields(&reading->limits, count, &reading->field_count)) {
        return true;
    }
    eb_error_set(reading->error, EB_STATUS_INTERNAL, "ModelInferRequest cannot be decoded");
    return false;
}

/* Checks the numbers of inputs, outputs and raw contents. */
static bool check_infer_counts(const struct reading *reading, const struct eb_codec_limits *limits)
{
    if (reading->output_count > limits->queries_max ||
        reading->input_count > (size_t)QUERY_INPUTS_MAX * limits->queries_max) {
        eb_error_set(reading->error, EB_STATUS_RESOURCE_EXHAUSTED,
            "%zu inputs and %zu outputs; a request may have those of at most %u tables",
            reading->input_count, reading->output_count, (unsigned)limits->queries_max);
        return false;
    }
    if (reading->raw_count > 0 && reading->raw_count != reading->input_count) {
        eb_error_set(reading->error, EB_STATUS_INVALID_ARGUMENT,
            "raw_input_contents has %zu elements for %zu inputs; expected one for each, or none",
            reading->raw_count, reading->input_count);
        return false;
    }
    return true;
}

static bool read_inputs(
    struct reading *reading, struct eb_codec_position *position, struct eb_infer_request *out)
{
    struct eb_field_reader inputs = reading->message;
    struct eb_field_reader raws = reading->message;
    struct eb_field_reader bytes;
    struct eb_field_reader raw;
    out->inputs = eb_codec_take_elements(
        reading->arena, reading->input_count, sizeof *out->inputs, reading->error);
    bool is_good = out->inputs;
    position->list = "inputs";
    while (is_good && eb_codec_find_field(&inputs, EB_FIELD_MODEL_INFER_REQUEST_INPUTS, &bytes)) {
        bool is_raw =
            eb_codec_find_field(&raws, EB_FIELD_MODEL_INFER_REQUEST_RAW_INPUT_CONTENTS, &raw);
        position->index = out->input_count++;
        position->name = "";
        is_good = read_input(position, bytes, is_raw ? &raw : NULL, &out->inputs[position->index]);
    }
    return is_good;
}

static bool read_outputs(
    struct reading *reading, struct eb_codec_position *position, struct eb_infer_request *out)
{
    struct eb_field_reader outputs = reading->message;
    struct eb_field_reader bytes;
    out->outputs = eb_codec_take_elements(
        reading->arena, reading->output_count, sizeof *out->outputs, reading->error);
    bool is_good = out->outputs;
    position->list = "outputs";
    while (is_good && eb_codec_find_field(&outputs, EB_FIELD_MODEL_INFER_REQUEST_OUTPUTS, &bytes)) {
        position->index = out->output_count++;
        position->name = "";
        is_good = read_output(position, bytes, &out->outputs[position->index]);
    }
    return is_good;
}

/* Reads the parts that a LookupRequest has too. */
static bool read_infer_head(struct reading *reading, struct eb_codec_position *position,
    const struct eb_codec_limits *limits, struct eb_infer_request *out)
{
    struct eb_arena *arena = reading->arena;
    struct eb_error *error = reading->error;
    struct eb_wire_request *request = &out->request;
    unsigned parameters = PARAMETER(REDUCTION) | PARAMETER(MISSING) | PARAMETER(OUTPUT_TYPE) |
                          PARAMETER(DEFAULT_INDEX) | PARAMETER(INCLUDE_LAST_OFFSET) |
                          PARAMETER(TIMEOUT) | PARAMETER(PRIORITY) | PARAMETER(SEQUENCE_ID) |
                          PARAMETER(SEQUENCE_START) | PARAMETER(SEQUENCE_END) |
                          PARAMETER(BINARY_DATA_OUTPUT);
    const char *version = eb_codec_keep_text(reading->version, arena, error);
    request->model = eb_codec_keep_text(reading->model, arena, error);
    request->version_label = "";
    request->infer = out;
    out->id = eb_codec_keep_text(reading->id, arena, error);
    if (!version || !request->model || !out->id) {
        return false;
    }
    if (eb_field_reader_bytes(&reading->model) > limits->name_bytes_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "model_name is too long: at most %u bytes", (unsigned)limits->name_bytes_max);
        return false;
    }
    if (!eb_infer_version_read(version, &request->version, error) ||
        !read_parameters(position, reading->message, EB_FIELD_MODEL_INFER_REQUEST_PARAMETERS,
            parameters, &out->options)) {
        return false;
    }
    request->output_type = out->options.output_type;
    request->timeout_us = out->options.timeout_us;
    request->priority = out->options.priority;
    return true;
}

static struct eb_infer_request *read_infer_request(
    struct reading *reading, const struct eb_codec_limits *limits)
{
    struct eb_codec_position position = {
        .arena = reading->arena,
        .error = reading->error,
        .limits = &reading->limits,
        .field_count = &reading->field_count,
    };
    struct eb_infer_request *out =
        eb_codec_take_elements(reading->arena, 1, sizeof *out, reading->error);
    if (!out) {
        return NULL;
    }
    memset(out, 0, sizeof *out);
    bool is_good = read_infer_fields(reading) && check_infer_counts(reading, limits) &&
                   read_infer_head(reading, &position, limits, out) &&
                   read_inputs(reading, &position, out) && read_outputs(reading, &position, out);
    return is_good ? out : NULL;
}

/* The guard would accept every request that is read to its end, so it is not called then. If
 * reading stops at an error, the guard checks the whole message, and an error that the guard finds
 * takes precedence. */
struct eb_infer_request *eb_infer_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_decode_failure *failure)
{
    struct reading reading = {
        .arena = arena,
        .error = &failure->error,
        .limits = infer_request_limits(limits),
        .message = eb_field_reader_of(bytes, size),
    };
    struct eb_infer_request *request = read_infer_request(&reading, limits);
    if (!request) {
        (void)eb_guard_check(&inference__model_infer_request__descriptor, bytes, size,
            &reading.limits, &failure->error);
        failure->request_id = 0;
        failure->cancel = false;
        failure->undecodable = failure->error.status == EB_STATUS_INTERNAL;
        failure->traceparent_bytes = 0;
    }
    return request;
}
