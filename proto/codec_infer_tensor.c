#include "proto/codec_infer_tensor.h"

#include "proto/infer_type.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <inttypes.h>
#include <string.h>

#define NAME_FIELD 1
#define DATATYPE_FIELD 2
#define SHAPE_FIELD 3
#define INPUT_PARAMETERS_FIELD 4
#define CONTENTS_FIELD 5
#define INPUT_FIELD_LAST 5

#define OUTPUT_PARAMETERS_FIELD 2
#define OUTPUT_FIELD_LAST 2

/* Fields of InferTensorContents. */
#define BOOLS 1
#define INTS 2
#define INT64S 3
#define UINTS 4
#define UINT64S 5
#define FLOATS 6
#define DOUBLES 7
#define BYTES 8
#define CONTENTS_FIELD_LAST 8

#define TYPE(name) EMBAG__V1__DATA_TYPE__DATA_TYPE_##name
#define PARAMETER(name) (1u << EB_CODEC_PARAMETER_##name)

const char *const eb_codec_infer_tensor_suffixes[EB_INFER_ROLE_COUNT] = {
#define X(name, text) [EB_INFER_##name] = (text),
    EB_INFER_ROLE_LIST(X)
#undef X
};

/* Those that an input may have. */
static const unsigned parameters[] = {
    [EB_INFER_INDICES] = PARAMETER(REDUCTION) | PARAMETER(MISSING) | PARAMETER(DEFAULT_INDEX) |
                         PARAMETER(BINARY_DATA_SIZE),
    [EB_INFER_OFFSETS] = PARAMETER(INCLUDE_LAST_OFFSET) | PARAMETER(BINARY_DATA_SIZE),
    [EB_INFER_WEIGHTS] = PARAMETER(BINARY_DATA_SIZE),
};

/* A tensor that is read. */
struct reading {
    struct eb_codec_place *place;
    struct eb_field_reader name;
    struct eb_field_reader datatype;
    struct eb_field_reader contents;
    uint32_t contents_count;
    uint32_t forms; /* bit n: field n of the contents holds something */
    uint32_t rank;
    uint64_t dims[EB_INFER_RANK_MAX]; /* the first ones */
};

/* Keeps the tensor's name, which becomes the place's. */
static bool keep_name(struct reading *reading)
{
    struct eb_codec_place *place = reading->place;
    const char *name = eb_codec_keep_text(reading->name, place->arena, place->error);
    place->name = name ? name : "";
    return name;
}

/* Whether the place's name ends so. Then *size is what its table's name takes of it. */
static bool has_tensor_suffix(const struct eb_codec_place *place, const char *suffix, size_t *size)
{
    const size_t name_bytes = strlen(place->name);
    const size_t suffix_bytes = strlen(suffix);
    if (name_bytes < suffix_bytes || strcmp(place->name + name_bytes - suffix_bytes, suffix) != 0) {
        return false;
    }
    *size = name_bytes - suffix_bytes;
    if (*size == 0) {
        return true;
    }
    *size -= 1;
    return *size > 0 && place->name[*size] == '.';
}

/* The name of the tensor's table. NULL: the place's error is set. */
static const char *keep_tensor_table(const struct eb_codec_place *place, size_t size)
{
    if (size > place->limits->name_bytes_max - EB_INFER_SUFFIX_BYTES_MAX) {
        eb_error_set(place->error, EB_STATUS_RESOURCE_EXHAUSTED,
            "%s[%zu] has a name that is longer than one may be", place->list, place->index);
        return NULL;
    }
    const struct eb_field_reader table = eb_field_reader_of((const uint8_t *)place->name, size);
    return eb_codec_keep_text(table, place->arena, place->error);
}

static bool take_role(const struct eb_codec_place *place, struct eb_infer_input *out)
{
    size_t size;
    for (unsigned role = 0; role < EB_INFER_ROLE_COUNT; role++) {
        if (has_tensor_suffix(place, eb_codec_infer_tensor_suffixes[role], &size)) {
            out->role = (enum eb_infer_role)role;
            out->table = keep_tensor_table(place, size);
            return out->table;
        }
    }
    return eb_codec_refuse(
        place, "inputs are called TABLE.indices, TABLE.offsets and TABLE.per_sample_weights");
}

/* ---- the fields of an input ---- */

/* Adds dimensions to the shape. false: the guard does not let it pass. */
static bool take_dims(struct reading *reading, struct eb_field_reader data)
{
    while (data.at < data.end) {
        const struct eb_field_varint dim =
            eb_field_reader_varint(data, EB_FIELD_READER_VARINT_BYTES_MAX);
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

/* Takes what a field says; of several of one number the last one counts, but of the shape. false:
 * the guard does not let it pass, as it does unknown ones. */
static bool take_input_field(struct reading *reading, const struct eb_field *field)
{
    const struct eb_guard_limits *limits = reading->place->limits;
    switch (field->tag) {
    case EB_TAG_BYTES(NAME_FIELD): return eb_codec_take_name(field, limits, &reading->name);
    case EB_TAG_BYTES(DATATYPE_FIELD): return eb_codec_take_name(field, limits, &reading->datatype);
    case EB_TAG_NUMBER(SHAPE_FIELD):
    case EB_TAG_BYTES(SHAPE_FIELD): return take_dims(reading, field->data);
    case EB_TAG_BYTES(INPUT_PARAMETERS_FIELD): return true;
    case EB_TAG_BYTES(CONTENTS_FIELD):
        reading->contents = field->data;
        reading->contents_count++;
        return reading->contents_count == 1;
    default: return field->number > INPUT_FIELD_LAST;
    }
}

/* Notes a field of the contents. false: the guard does not let it pass, as it does unknown ones. */
static bool take_contents_field(struct reading *reading, const struct eb_field *field)
{
    const size_t bytes = eb_field_reader_bytes(&field->data);
    if (field->number <= CONTENTS_FIELD_LAST && (bytes > 0 || field->number == BYTES)) {
        reading->forms |= UINT32_C(1) << field->number;
    }
    switch (field->tag) {
    case EB_TAG_NUMBER(BOOLS):
    case EB_TAG_NUMBER(INTS):
    case EB_TAG_NUMBER(INT64S):
    case EB_TAG_NUMBER(UINTS):
    case EB_TAG_NUMBER(UINT64S): return true;
    case EB_TAG_BYTES(BOOLS):
    case EB_TAG_BYTES(INTS):
    case EB_TAG_BYTES(INT64S):
    case EB_TAG_BYTES(UINTS):
    case EB_TAG_BYTES(UINT64S): return !eb_field_reader_find_endless(field->data);
    case EB_TAG_FIXED32(FLOATS):
    case EB_TAG_BYTES(FLOATS): return bytes % 4 == 0;
    case EB_TAG_FIXED64(DOUBLES):
    case EB_TAG_BYTES(DOUBLES): return bytes % 8 == 0;
    case EB_TAG_BYTES(BYTES): return true;
    default: return field->number > CONTENTS_FIELD_LAST;
    }
}

/* Reads all fields of a message; what the guard does not let pass is the caller's to tell. */
static bool read_tensor_fields(struct reading *reading, struct eb_field_reader message,
    bool (*take)(struct reading *, const struct eb_field *))
{
    const struct eb_codec_place *place = reading->place;
    uint32_t count = 0;
    for (; message.at < message.end; count++) {
        struct eb_field field;
        if (eb_field_reader_read(&message, &field) || !take(reading, &field)) {
            return false;
        }
    }
    return eb_codec_count_fields(place->limits, count, place->field_count);
}

/* ---- type, shape and contents ---- */

static bool take_type(const struct reading *reading, struct eb_infer_input *out)
{
    const struct eb_codec_place *place = reading->place;
    const char *datatype = eb_codec_keep_text(reading->datatype, place->arena, place->error);
    if (!datatype) {
        return false;
    }
    out->type = eb_infer_type_find(datatype);
    if (out->role != EB_INFER_WEIGHTS && out->type != TYPE(I64) && out->type != TYPE(I32)) {
        return eb_codec_refuse(
            place, "datatype \"%s\" is not taken here; INT64 and INT32 are", datatype);
    }
    return out->type != 0 || eb_codec_refuse(place, "datatype \"%s\" is not taken here", datatype);
}

static bool take_shape(const struct reading *reading, struct eb_infer_input *out)
{
    const struct eb_codec_place *place = reading->place;
    const uint32_t rank_max = out->role == EB_INFER_OFFSETS ? 1 : EB_INFER_RANK_MAX;
    if (reading->rank == 0 || reading->rank > rank_max) {
        return eb_codec_refuse(place, "shape has %" PRIu32 " dimensions; it may have %s",
            reading->rank, rank_max == 1 ? "1" : "1 or 2");
    }
    out->rank = reading->rank;
    for (uint32_t i = 0; i < out->rank; i++) {
        out->dims[i] = reading->dims[i];
        if (out->dims[i] > UINT32_MAX) {
            return eb_codec_refuse(
                place, "shape[%" PRIu32 "] = %" PRId64 " is no size", i, (int64_t)out->dims[i]);
        }
    }
    return true;
}

/* Elements that are not raw: as 8 bytes where they are integers, else as they are. */
static bool take_tensor_elements(const struct reading *reading, struct eb_infer_input *out)
{
    const struct eb_codec_place *place = reading->place;
    struct eb_wire_array *array = &out->array;
    const bool is_integer = out->type == TYPE(I64) || out->type == TYPE(I32);
    const bool is_float = out->type == TYPE(F32) || out->type == TYPE(F64);
    uint32_t number = out->type == TYPE(I64) ? INT64S : INTS;
    if (reading->forms == 0) {
        return true;
    }
    if (is_float) {
        number = out->type == TYPE(F64) ? DOUBLES : FLOATS;
    }
    if ((!is_float && (!is_integer || out->role == EB_INFER_WEIGHTS)) ||
        reading->forms != UINT32_C(1) << number) {
        return eb_codec_refuse(place,
            "contents are taken as int64_contents of INT64 and int_contents of INT32 indices and "
            "offsets, fp32_contents of FP32 and fp64_contents of FP64 weights; all else is to be "
            "in raw_input_contents");
    }
    if (is_integer) {
        array->width = sizeof(int64_t);
        array->data = eb_codec_read_integers(
            reading->contents, number, &array->bytes, place->arena, place->error);
    } else {
        array->data = eb_codec_read_floats(
            reading->contents, number, &array->bytes, place->arena, place->error);
    }
    return array->data;
}

static bool check_tensor_size(
    const struct eb_codec_place *place, const struct eb_infer_input *input)
{
    const struct eb_wire_array *array = &input->array;
    const uint64_t elements = input->dims[0] * (input->rank == 2 ? input->dims[1] : 1);
    if (array->bytes % array->width == 0 && array->bytes / array->width == elements) {
        return true;
    }
    return eb_codec_refuse(place,
        "there are %zu bytes of contents; shape wants %" PRIu64 " elements of %" PRIu32,
        array->bytes, elements, array->width);
}

static bool take_contents(
    struct reading *reading, const struct eb_field_reader *raw, struct eb_infer_input *out)
{
    const struct eb_codec_place *place = reading->place;
    out->array = (struct eb_wire_array){.width = eb_infer_type_bytes(out->type),
        .field = eb_codec_infer_tensor_suffixes[out->role]};
    if (raw && reading->forms != 0) {
        return eb_codec_refuse(place, "contents and raw_input_contents are two forms of one array");
    }
    if (raw) {
        out->array.data = raw->at;
        out->array.bytes = eb_field_reader_bytes(raw);
    } else if (!take_tensor_elements(reading, out)) {
        return false;
    }
    return check_tensor_size(place, out);
}

/* Checks the parameter that says how many bytes of raw contents the input has. */
static bool check_raw_bytes(const struct eb_codec_place *place, const struct eb_field_reader *raw,
    const struct eb_infer_options *options)
{
    if (!options->has_raw_bytes) {
        return true;
    }
    if (!raw) {
        return eb_codec_refuse(place,
            "parameter \"binary_data_size\" is %" PRIu64
            ", but the request has no raw_input_contents; leave it out with typed contents",
            options->raw_bytes);
    }
    return options->raw_bytes == eb_field_reader_bytes(raw) ||
           eb_codec_refuse(place,
               "parameter \"binary_data_size\" is %" PRIu64
               ", but raw_input_contents has %zu bytes for it",
               options->raw_bytes, eb_field_reader_bytes(raw));
}

bool eb_codec_infer_tensor_read_input(struct eb_codec_place *place, struct eb_field_reader bytes,
    const struct eb_field_reader *raw, struct eb_infer_input *out)
{
    struct reading reading = {.place = place};
    memset(out, 0, sizeof *out);
    if (!read_tensor_fields(&reading, bytes, take_input_field) ||
        !read_tensor_fields(&reading, reading.contents, take_contents_field)) {
        return eb_codec_fail(place);
    }
    return keep_name(&reading) && take_role(place, out) && take_type(&reading, out) &&
           take_shape(&reading, out) && take_contents(&reading, raw, out) &&
           eb_codec_infer_parameter_read_all(
               place, bytes, INPUT_PARAMETERS_FIELD, parameters[out->role], &out->options) &&
           check_raw_bytes(place, raw, &out->options);
}

/* ---- outputs ---- */

/* As take_input_field. */
static bool take_output_field(struct reading *reading, const struct eb_field *field)
{
    switch (field->tag) {
    case EB_TAG_BYTES(NAME_FIELD):
        return eb_codec_take_name(field, reading->place->limits, &reading->name);
    case EB_TAG_BYTES(OUTPUT_PARAMETERS_FIELD): return true;
    default: return field->number > OUTPUT_FIELD_LAST;
    }
}

bool eb_codec_infer_tensor_read_output(
    struct eb_codec_place *place, struct eb_field_reader bytes, struct eb_infer_output *out)
{
    struct reading reading = {.place = place};
    struct eb_infer_options options = {.output_type = 0};
    size_t size;
    if (!read_tensor_fields(&reading, bytes, take_output_field)) {
        return eb_codec_fail(place);
    }
    if (!keep_name(&reading)) {
        return false;
    }
    if (!has_tensor_suffix(place, EB_INFER_OUTPUT, &size)) {
        return eb_codec_refuse(place, "outputs are called TABLE." EB_INFER_OUTPUT);
    }
    out->table = keep_tensor_table(place, size);
    if (!out->table || !eb_codec_infer_parameter_read_all(place, bytes, OUTPUT_PARAMETERS_FIELD,
                           PARAMETER(OUTPUT_TYPE) | PARAMETER(BINARY_DATA), &options)) {
        return false;
    }
    out->output_type = options.output_type;
    return true;
}
