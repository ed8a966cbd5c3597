#include "proto/codec_query.h"

#include "embag/v1/embedding_bag.fields.h"
#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <string.h>

/* ---- queries ---- */

static const struct eb_codec_form query_forms[] = {
    [EB_FIELD_BAG_QUERY_INDICES_I64] = {"indices_i64", 8, false},
    [EB_FIELD_BAG_QUERY_INDICES_I32] = {"indices_i32", 4, false},
    [EB_FIELD_BAG_QUERY_INDICES] = {"indices", 8, true},
    [EB_FIELD_BAG_QUERY_OFFSETS_I64] = {"offsets_i64", 8, false},
    [EB_FIELD_BAG_QUERY_OFFSETS_I32] = {"offsets_i32", 4, false},
    [EB_FIELD_BAG_QUERY_OFFSETS] = {"offsets", 8, true},
    [EB_FIELD_BAG_QUERY_SEGMENT_IDS_I64] = {"segment_ids_i64", 8, false},
    [EB_FIELD_BAG_QUERY_SEGMENT_IDS_I32] = {"segment_ids_i32", 4, false},
    [EB_FIELD_BAG_QUERY_SEGMENT_IDS] = {"segment_ids", 8, true},
    [EB_FIELD_BAG_QUERY_LENGTHS_I32] = {"lengths_i32", 4, false},
    [EB_FIELD_BAG_QUERY_LENGTHS_I64] = {"lengths_i64", 8, false},
};

/* The forms of each array, a bit for each field. */
#define QUERY_FORM(name) (1u << EB_FIELD_BAG_QUERY_##name)
#define QUERY_INDICES (QUERY_FORM(INDICES_I64) | QUERY_FORM(INDICES_I32) | QUERY_FORM(INDICES))
#define QUERY_OFFSETS (QUERY_FORM(OFFSETS_I64) | QUERY_FORM(OFFSETS_I32) | QUERY_FORM(OFFSETS))
#define QUERY_SEGMENT_IDS                                                                          \
    (QUERY_FORM(SEGMENT_IDS_I64) | QUERY_FORM(SEGMENT_IDS_I32) | QUERY_FORM(SEGMENT_IDS))
#define QUERY_LENGTHS (QUERY_FORM(LENGTHS_I64) | QUERY_FORM(LENGTHS_I32))

/* A query that is being read. */
struct query_reading {
    struct eb_codec_position *position;
    struct eb_codec_arrays arrays;
    struct eb_field_reader rest; /* part of the message that is not read yet */
    struct eb_field_reader table;
    struct eb_wire_query *out;
};

/* The following functions read the content after a field's tag. If several fields have the same
 * number, the last one is used. They return false if the guard refuses the field. All are inlined,
 * so that the values read can be kept in registers. */

/* Takes a name. Checks the name that it replaces, if any; the last name is checked when it is
 * kept. */
static inline bool take_name(struct query_reading *reading)
{
    struct eb_field_reader before = reading->table;
    return !eb_field_reader_content(&reading->rest, &reading->table) &&
           (!before.at || eb_codec_is_name(before, reading->position->limits));
}

static inline bool take_query_bytes(struct query_reading *reading, const void **bytes, size_t *size)
{
    struct eb_field_reader data;
    if (eb_field_reader_content(&reading->rest, &data)) {
        return false;
    }
    *bytes = data.at;
    *size = eb_field_reader_bytes(&data);
    return true;
}

static inline bool take_uint64(struct query_reading *reading, uint64_t *out)
{
    return !eb_field_reader_number(&reading->rest, out);
}

static inline bool take_uint32(struct query_reading *reading, uint32_t *out)
{
    uint64_t value;
    if (!take_uint64(reading, &value)) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static inline bool take_enum(struct query_reading *reading, int32_t *out)
{
    uint64_t value;
    if (!take_uint64(reading, &value)) {
        return false;
    }
    *out = (int32_t)(uint32_t)value;
    return true;
}

static inline bool take_bool(struct query_reading *reading, bool *out)
{
    uint64_t value;
    if (!take_uint64(reading, &value)) {
        return false;
    }
    *out = value != 0;
    return true;
}

static inline bool take_default(struct query_reading *reading)
{
    uint64_t value;
    if (!take_uint64(reading, &value)) {
        return false;
    }
    reading->out->has_default = true;
    reading->out->default_index = (int64_t)value;
    return true;
}

static inline __attribute__((always_inline)) bool take_array(
    struct query_reading *reading, uint32_t number, struct eb_wire_array *array)
{
    struct eb_field_reader data;
    if (eb_field_reader_content(&reading->rest, &data)) {
        return false;
    }
    eb_codec_take_array(&reading->arrays, number, data, array);
    return true;
}

static inline bool take_element(struct query_reading *reading, uint32_t number)
{
    uint64_t value;
    eb_codec_see_array(&reading->arrays, number);
    return take_uint64(reading, &value);
}

static inline bool take_query_elements(struct query_reading *reading, uint32_t number)
{
    struct eb_field_reader data;
    eb_codec_see_array(&reading->arrays, number);
    return !eb_field_reader_content(&reading->rest, &data) && !eb_field_reader_find_endless(data);
}

static inline bool take_floats(struct query_reading *reading, uint32_t tag)
{
    struct eb_field field = eb_field_reader_field_of(tag);
    eb_codec_see_array(&reading->arrays, EB_FIELD_BAG_QUERY_WEIGHTS_F32);
    return !eb_field_reader_data(&reading->rest, &field) &&
           eb_field_reader_bytes(&field.data) % sizeof(float) == 0;
}

/* Passes over an unknown field. Returns false if the field is known or cannot be read. */
static inline bool pass_by(struct query_reading *reading, uint32_t tag)
{
    struct eb_field field = eb_field_reader_field_of(tag);
    return field.number > EB_FIELD_BAG_QUERY_MAX && !eb_field_reader_data(&reading->rest, &field);
}

/* Takes one field of a query, whose tag has been read. Each form of an array is a case of its own,
 * so that its field number is a constant there. */
static inline __attribute__((always_inline)) bool take_query_field(
    struct query_reading *reading, uint32_t tag)
{
    struct eb_wire_query *out = reading->out;
    switch (tag) {
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_TABLE): return take_name(reading);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_REDUCTION): return take_enum(reading, &out->reduction);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_MISSING): return take_enum(reading, &out->missing);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_INDICES_I64):
        return take_array(reading, EB_FIELD_BAG_QUERY_INDICES_I64, &out->indices);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_INDICES_I32):
        return take_array(reading, EB_FIELD_BAG_QUERY_INDICES_I32, &out->indices);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_INDICES):
        return take_element(reading, EB_FIELD_BAG_QUERY_INDICES);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_INDICES):
        return take_query_elements(reading, EB_FIELD_BAG_QUERY_INDICES);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_OFFSETS_I64):
        return take_array(reading, EB_FIELD_BAG_QUERY_OFFSETS_I64, &out->offsets);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_OFFSETS_I32):
        return take_array(reading, EB_FIELD_BAG_QUERY_OFFSETS_I32, &out->offsets);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_OFFSETS):
        return take_element(reading, EB_FIELD_BAG_QUERY_OFFSETS);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_OFFSETS):
        return take_query_elements(reading, EB_FIELD_BAG_QUERY_OFFSETS);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_INDICES_PER_BAG):
        return take_uint32(reading, &out->indices_per_bag);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_SEGMENT_IDS_I64):
        return take_array(reading, EB_FIELD_BAG_QUERY_SEGMENT_IDS_I64, &out->segment_ids);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_SEGMENT_IDS_I32):
        return take_array(reading, EB_FIELD_BAG_QUERY_SEGMENT_IDS_I32, &out->segment_ids);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_SEGMENT_IDS):
        return take_element(reading, EB_FIELD_BAG_QUERY_SEGMENT_IDS);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_SEGMENT_IDS):
        return take_query_elements(reading, EB_FIELD_BAG_QUERY_SEGMENT_IDS);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_NUM_SEGMENTS):
        return take_uint64(reading, &out->num_segments);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_INCLUDE_LAST_OFFSET):
        return take_bool(reading, &out->include_last_offset);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_WEIGHTS):
        return take_query_bytes(reading, &out->weights, &out->weights_bytes);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_WEIGHTS_TYPE):
        return take_enum(reading, &out->weights_type);
    case EB_TAG_FIXED32(EB_FIELD_BAG_QUERY_WEIGHTS_F32):
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_WEIGHTS_F32): return take_floats(reading, tag);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_DEFAULT_INDEX): return take_default(reading);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_LAYOUT): return take_enum(reading, &out->layout);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_NUM_BAGS): return take_uint64(reading, &out->num_bags);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_LENGTHS_I32):
        return take_array(reading, EB_FIELD_BAG_QUERY_LENGTHS_I32, &out->lengths);
    case EB_TAG_BYTES(EB_FIELD_BAG_QUERY_LENGTHS_I64):
        return take_array(reading, EB_FIELD_BAG_QUERY_LENGTHS_I64, &out->lengths);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_PART): return take_uint32(reading, &out->part);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_OUTPUT_TYPE):
        return take_enum(reading, &out->output_type);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_MAX_LEN):
        return take_uint32(reading, &out->sequence.max_len);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_KEEP_FIRST):
        return take_bool(reading, &out->sequence.keep_first);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_PAD): return take_bool(reading, &out->sequence.pad);
    case EB_TAG_NUMBER(EB_FIELD_BAG_QUERY_UNIQUE): return take_bool(reading, &out->sequence.unique);
    default: return pass_by(reading, tag);
    }
}

static inline __attribute__((always_inline)) bool read_query_fields(struct query_reading *reading)
{
    const struct eb_codec_position *position = reading->position;
    uint32_t count = 0;
    for (; reading->rest.at < reading->rest.end; count++) {
        uint32_t tag;
        if (eb_field_reader_tag(&reading->rest, &tag) || !take_query_field(reading, tag)) {
            return eb_codec_fail(position);
        }
    }
    return eb_codec_count_fields(position->limits, count, position->field_count) ||
           eb_codec_fail(position);
}

/* Sets the error for the first enum without a value of its type. Returns false. */
static __attribute__((noinline, cold)) bool refuse_enums(
    const struct eb_codec_position *position, const struct eb_wire_query *query)
{
    return eb_codec_check_enum(
               position, "reduction", &embag__v1__reduction__descriptor, query->reduction) &&
           eb_codec_check_enum(
               position, "missing", &embag__v1__missing__descriptor, query->missing) &&
           eb_codec_check_enum(
               position, "weights_type", &embag__v1__data_type__descriptor, query->weights_type) &&
           eb_codec_check_enum(
               position, "output_type", &embag__v1__data_type__descriptor, query->output_type) &&
           eb_codec_check_enum(
               position, "layout", &embag__v1__bag_layout__descriptor, query->layout);
}

static inline bool check_query_enums(
    const struct eb_codec_position *position, const struct eb_wire_query *query)
{
    return (eb_codec_is_value(&embag__v1__reduction__descriptor, query->reduction) &&
               eb_codec_is_value(&embag__v1__missing__descriptor, query->missing) &&
               eb_codec_is_value(&embag__v1__data_type__descriptor, query->weights_type) &&
               eb_codec_is_value(&embag__v1__data_type__descriptor, query->output_type) &&
               eb_codec_is_value(&embag__v1__bag_layout__descriptor, query->layout)) ||
           refuse_enums(position, query);
}

static bool choose_query_arrays(const struct eb_codec_position *position,
    const struct eb_codec_arrays *arrays, struct eb_wire_query *out)
{
    return eb_codec_choose_array(position, arrays, QUERY_INDICES, &out->indices) &&
           eb_codec_choose_array(position, arrays, QUERY_OFFSETS, &out->offsets) &&
           eb_codec_choose_array(position, arrays, QUERY_LENGTHS, &out->lengths) &&
           eb_codec_choose_array(position, arrays, QUERY_SEGMENT_IDS, &out->segment_ids);
}

/* Takes the layout that a field implies. `field` is NULL if the field is absent. */
static inline bool take_layout(const struct eb_codec_position *position, struct eb_wire_query *out,
    const char **said_by, int32_t layout, const char *field)
{
    if (!field) {
        return true;
    }
    if (*said_by && out->layout != layout) {
        return eb_codec_refuse(
            position, "%s and %s imply different layouts: give only one", *said_by, field);
    }
    out->layout = layout;
    *said_by = field;
    return true;
}

/* Fills in out->layout from the fields that are present. If the query gives a layout, the fields
 * must agree with it. */
static bool choose_layout(const struct eb_codec_position *position, struct eb_wire_query *out)
{
    const char *packed = out->indices_per_bag != 0 ? "indices_per_bag" : NULL;
    const char *segments = out->num_segments != 0 ? "num_segments" : out->segment_ids.field;
    const char *said_by = out->layout != 0 ? "layout" : NULL;
    if (!take_layout(position, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS,
            out->offsets.field) ||
        !take_layout(position, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_LENGTHS,
            out->lengths.field) ||
        !take_layout(position, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_PACKED, packed) ||
        !take_layout(
            position, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_SEGMENTS, segments)) {
        return false;
    }
    if (out->include_last_offset && said_by &&
        out->layout != EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS) {
        return eb_codec_refuse(
            position, "include_last_offset and %s imply different layouts: give only one", said_by);
    }
    return true;
}

/* Sets the layout to offsets if the query's fields allow no other layout. Returns false if the
 * fields may mean another layout. The query's arrays must have their final values. */
static inline bool take_offsets_alone(const struct query_reading *reading)
{
    int32_t offsets = EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS;
    struct eb_wire_query *out = reading->out;
    uint32_t seen = reading->arrays.seen;
    if ((seen & (QUERY_SEGMENT_IDS | QUERY_LENGTHS)) != 0 || out->indices_per_bag != 0 ||
        out->num_segments != 0 || (out->layout != 0 && out->layout != offsets)) {
        return false;
    }
    if ((seen & QUERY_OFFSETS) != 0) {
        out->layout = offsets;
    }
    return true;
}

/* Takes weights_f32, after the field `weights` has been taken. */
static bool choose_weights(const struct eb_codec_position *position,
    const struct eb_codec_arrays *arrays, struct eb_wire_query *out)
{
    if (!(arrays->seen & QUERY_FORM(WEIGHTS_F32))) {
        return true;
    }
    size_t bytes;
    const void *floats = eb_codec_read_floats(
        arrays->message, EB_FIELD_BAG_QUERY_WEIGHTS_F32, &bytes, position->arena, position->error);
    if (!floats || bytes == 0) {
        return floats;
    }
    if (out->weights_bytes > 0) {
        return eb_codec_refuse(
            position, "weights and weights_f32 are forms of the same array: give only one");
    }
    if (out->weights_type != EMBAG__V1__DATA_TYPE__DATA_TYPE_UNSPECIFIED &&
        out->weights_type != EMBAG__V1__DATA_TYPE__DATA_TYPE_F32) {
        return eb_codec_refuse(position, "weights_f32 is given, but weights_type = %d is not F32",
            (int)out->weights_type);
    }
    out->weights = floats;
    out->weights_bytes = bytes;
    out->weights_type = EMBAG__V1__DATA_TYPE__DATA_TYPE_F32;
    return true;
}

static inline bool keep_query_table(const struct query_reading *reading)
{
    struct eb_codec_position *position = reading->position;
    struct eb_field_reader name = reading->table;
    if (name.at == name.end) {
        reading->out->table = position->name = "";
        return eb_codec_refuse(position, "table is empty");
    }
    if (!eb_codec_is_short(name, position->limits)) {
        return eb_codec_fail(position);
    }
    char *table = eb_codec_take_elements(
        position->arena, eb_field_reader_bytes(&name) + 1, 1, position->error);
    if (!table) {
        return false;
    }
    if (!eb_codec_copy_name(table, name)) {
        return eb_codec_fail(position);
    }
    reading->out->table = position->name = table;
    return true;
}

static inline __attribute__((always_inline)) bool read_query_message(
    struct eb_codec_position *position, struct eb_field_reader bytes, struct eb_wire_query *out)
{
    struct query_reading reading = {.position = position,
        .arrays = {.forms = query_forms, .message = bytes},
        .rest = bytes,
        .out = out};
    eb_wire_clear(out, sizeof *out);
    if (!read_query_fields(&reading) || !keep_query_table(&reading) ||
        !check_query_enums(position, out)) {
        return false;
    }
    if (!reading.arrays.is_unsettled && take_offsets_alone(&reading)) {
        return true;
    }
    /* A copy, so that `reading` can be kept in registers up to here. */
    struct eb_codec_arrays arrays = {.forms = query_forms,
        .message = bytes,
        .seen = reading.arrays.seen,
        .is_unsettled = reading.arrays.is_unsettled};
    return choose_query_arrays(position, &arrays, out) && choose_layout(position, out) &&
           choose_weights(position, &arrays, out);
}

bool eb_codec_query_read_all(struct eb_codec_position *position, struct eb_field_reader *message,
    struct eb_wire_query *queries, size_t count)
{
    struct eb_field_reader rest = *message;
    struct eb_field_reader bytes;
    bool is_good = true;
    for (struct eb_wire_query *out = queries + position->index; is_good && out < queries + count;
         out++) {
        bool is_there = eb_codec_find_field(&rest, EB_FIELD_LOOKUP_REQUEST_QUERIES, &bytes);
        assert(is_there);
        is_good = read_query_message(position, bytes, out);
        position->index += is_good;
    }
    *message = rest;
    return is_good;
}

void eb_codec_query_write(struct eb_field_writer *writer, const struct eb_wire_query *query)
{
    eb_field_put_text(writer, EB_FIELD_BAG_QUERY_TABLE, query->table);
    eb_field_put_enum(writer, EB_FIELD_BAG_QUERY_REDUCTION, query->reduction);
    eb_field_put_enum(writer, EB_FIELD_BAG_QUERY_MISSING, query->missing);
    eb_codec_put_array(
        writer, &query->indices, EB_FIELD_BAG_QUERY_INDICES_I64, EB_FIELD_BAG_QUERY_INDICES_I32);
    eb_codec_put_array(
        writer, &query->offsets, EB_FIELD_BAG_QUERY_OFFSETS_I64, EB_FIELD_BAG_QUERY_OFFSETS_I32);
    eb_field_put_number(writer, EB_FIELD_BAG_QUERY_INDICES_PER_BAG, query->indices_per_bag);
    eb_codec_put_array(writer, &query->segment_ids, EB_FIELD_BAG_QUERY_SEGMENT_IDS_I64,
        EB_FIELD_BAG_QUERY_SEGMENT_IDS_I32);
    eb_field_put_number(writer, EB_FIELD_BAG_QUERY_NUM_SEGMENTS, query->num_segments);
    eb_field_put_number(writer, EB_FIELD_BAG_QUERY_INCLUDE_LAST_OFFSET, query->include_last_offset);
    eb_field_put_bytes(writer, EB_FIELD_BAG_QUERY_WEIGHTS, query->weights, query->weights_bytes);
    eb_field_put_enum(writer, EB_FIELD_BAG_QUERY_WEIGHTS_TYPE, query->weights_type);
    if (query->has_default) {
        eb_field_put_present(
            writer, EB_FIELD_BAG_QUERY_DEFAULT_INDEX, (uint64_t)query->default_index);
    }
    eb_field_put_enum(writer, EB_FIELD_BAG_QUERY_LAYOUT, query->layout);
    eb_field_put_number(writer, EB_FIELD_BAG_QUERY_NUM_BAGS, query->num_bags);
    eb_codec_put_array(
        writer, &query->lengths, EB_FIELD_BAG_QUERY_LENGTHS_I64, EB_FIELD_BAG_QUERY_LENGTHS_I32);
    eb_field_put_number(writer, EB_FIELD_BAG_QUERY_PART, query->part);
    eb_field_put_enum(writer, EB_FIELD_BAG_QUERY_OUTPUT_TYPE, query->output_type);
    eb_field_put_number(writer, EB_FIELD_BAG_QUERY_MAX_LEN, query->sequence.max_len);
    eb_field_put_number(writer, EB_FIELD_BAG_QUERY_KEEP_FIRST, query->sequence.keep_first);
    eb_field_put_number(writer, EB_FIELD_BAG_QUERY_PAD, query->sequence.pad);
    eb_field_put_number(writer, EB_FIELD_BAG_QUERY_UNIQUE, query->sequence.unique);
}

/* ---- groups ---- */

static const struct eb_codec_form group_forms[] = {
    [EB_FIELD_FEATURE_GROUP_VALUES_I64] = {"values_i64", 8, false},
    [EB_FIELD_FEATURE_GROUP_VALUES_I32] = {"values_i32", 4, false},
    [EB_FIELD_FEATURE_GROUP_LENGTHS_I32] = {"lengths_i32", 4, false},
    [EB_FIELD_FEATURE_GROUP_OFFSETS_I64] = {"offsets_i64", 8, false},
    [EB_FIELD_FEATURE_GROUP_OFFSETS_I32] = {"offsets_i32", 4, false},
};

/* The forms of each array, a bit for each field. */
#define GROUP_FORM(name) (1u << EB_FIELD_FEATURE_GROUP_##name)
#define GROUP_VALUES (GROUP_FORM(VALUES_I64) | GROUP_FORM(VALUES_I32))
#define GROUP_LENGTHS GROUP_FORM(LENGTHS_I32)
#define GROUP_OFFSETS (GROUP_FORM(OFFSETS_I64) | GROUP_FORM(OFFSETS_I32))

/* A group that is being read. */
struct group_reading {
    const struct eb_codec_position *position;
    struct eb_codec_arrays arrays;
    struct eb_field_reader name;
    size_t feature_count;
    size_t features_bytes;                 /* size of the features' names */
    bool has_empty;                        /* one of the names is empty */
    const struct eb_known_features *known; /* list of all features so far, or NULL */
    const uint8_t *run;                    /* start of the features' fields */
    const uint8_t *run_end;                /* end of the features' fields; NULL if other fields lie
                                              between them */
    struct eb_wire_group *out;
};

/* Takes a feature's name. The field is [begin, end). Returns false if the guard refuses the name;
 * its text is checked later, when the name is kept. */
static inline bool take_feature(struct group_reading *reading, struct eb_field_reader name,
    const uint8_t *begin, const uint8_t *end)
{
    if (reading->feature_count == 0) {
        reading->run = begin;
        reading->run_end = begin;
    }
    reading->run_end = reading->run_end == begin ? end : NULL;
    reading->known = NULL;
    reading->feature_count++;
    reading->features_bytes += eb_field_reader_bytes(&name);
    reading->has_empty |= name.at == name.end;
    return eb_codec_is_short(name, reading->position->limits);
}

/* Takes a field of wire type LENGTH_PREFIXED. If several have the same number, the last one is
 * used. Returns false if the guard refuses the field; unknown fields pass. */
static inline bool take_group_bytes(
    struct group_reading *reading, const struct eb_field *field, const uint8_t *begin)
{
    const struct eb_guard_limits *limits = reading->position->limits;
    struct eb_codec_arrays *arrays = &reading->arrays;
    struct eb_wire_group *out = reading->out;
    switch (field->number) {
    case EB_FIELD_FEATURE_GROUP_NAME: return eb_codec_take_name(field, limits, &reading->name);
    case EB_FIELD_FEATURE_GROUP_FEATURES:
        return take_feature(reading, field->data, begin, field->data.end);
    case EB_FIELD_FEATURE_GROUP_VALUES_I64:
    case EB_FIELD_FEATURE_GROUP_VALUES_I32:
        eb_codec_take_array(arrays, field->number, field->data, &out->values);
        return true;
    case EB_FIELD_FEATURE_GROUP_LENGTHS_I32:
        eb_codec_take_array(arrays, field->number, field->data, &out->lengths);
        return true;
    case EB_FIELD_FEATURE_GROUP_OFFSETS_I64:
    case EB_FIELD_FEATURE_GROUP_OFFSETS_I32:
        eb_codec_take_array(arrays, field->number, field->data, &out->offsets);
        return true;
    case EB_FIELD_FEATURE_GROUP_WEIGHTS:
        out->weights = field->data.at;
        out->weights_bytes = eb_field_reader_bytes(&field->data);
        return true;
    default: return field->number > EB_FIELD_FEATURE_GROUP_MAX;
    }
}

/* Takes a field of any other wire type. */
static inline bool take_number(const struct eb_field *field, struct eb_wire_group *out)
{
    switch (field->tag) {
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_BAGS):
        out->bags = (uint32_t)field->varint;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_WEIGHTS_TYPE):
        out->weights_type = eb_codec_enum_of(field);
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_REDUCTION):
        out->reduction = eb_codec_enum_of(field);
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_MISSING):
        out->missing = eb_codec_enum_of(field);
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_MAX_LEN):
        out->sequence.max_len = (uint32_t)field->varint;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_KEEP_FIRST):
        out->sequence.keep_first = field->varint != 0;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_PAD):
        out->sequence.pad = field->varint != 0;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_UNIQUE):
        out->sequence.unique = field->varint != 0;
        return true;
    default: return field->number > EB_FIELD_FEATURE_GROUP_MAX;
    }
}

static inline bool take_group_field(
    struct group_reading *reading, const struct eb_field *field, const uint8_t *begin)
{
    return field->wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED
               ? take_group_bytes(reading, field, begin)
               : take_number(field, reading->out);
}

/* Returns the longest known list of features whose fields are the next bytes of the message, or
 * NULL if there is no such list. */
static const struct eb_known_features *find_group_known(
    const struct eb_codec_position *position, const struct eb_field_reader *message)
{
    const struct eb_known_features *found = NULL;
    for (size_t i = 0; i < position->known_count; i++) {
        const struct eb_known_features *known = &position->known[i];
        if (known->run_bytes <= eb_field_reader_bytes(message) &&
            (!found || known->run_bytes > found->run_bytes) &&
            memcmp(message->at, known->run, known->run_bytes) == 0) {
            found = known;
        }
    }
    return found;
}

/* If the group's first features are those of a known list, moves past them and counts their fields.
 * Otherwise returns false. */
static bool take_known(
    struct group_reading *reading, struct eb_field_reader *message, uint32_t *field_count)
{
    if (reading->feature_count > 0 ||
        *message->at != EB_TAG_BYTES(EB_FIELD_FEATURE_GROUP_FEATURES)) {
        return false;
    }
    const struct eb_known_features *known = find_group_known(reading->position, message);
    if (!known) {
        return false;
    }
    reading->known = known;
    reading->run = message->at;
    message->at += known->run_bytes;
    reading->run_end = message->at;
    reading->feature_count = known->count;
    reading->features_bytes = known->text_bytes;
    *field_count += (uint32_t)known->count;
    return true;
}

static bool read_group_fields(struct group_reading *reading)
{
    const struct eb_codec_position *position = reading->position;
    struct eb_field_reader message = reading->arrays.message;
    struct eb_field_reader feature;
    uint32_t count = 0;
    while (message.at < message.end) {
        if (take_known(reading, &message, &count)) {
            continue;
        }
        const uint8_t *begin = message.at;
        struct eb_field field;
        bool is_sound =
            eb_field_reader_take_next(&message, EB_FIELD_FEATURE_GROUP_FEATURES, &feature)
                ? take_feature(reading, feature, begin, message.at)
                : !eb_field_reader_read(&message, &field) &&
                      take_group_field(reading, &field, begin);
        count++;
        if (!is_sound) {
            return eb_codec_fail(position);
        }
    }
    return eb_codec_count_fields(position->limits, count, position->field_count) ||
           eb_codec_fail(position);
}

/* Keeps the names of the features. */
static bool keep_features(const struct group_reading *reading)
{
    const struct eb_codec_position *position = reading->position;
    struct eb_wire_group *out = reading->out;
    size_t text_bytes = reading->features_bytes + reading->feature_count;
    if (reading->run_end) {
        out->run = reading->run;
        out->run_bytes = (size_t)(reading->run_end - reading->run);
    }
    if (reading->known) {
        out->known = reading->known;
        out->features = reading->known->names;
        out->feature_count = reading->known->count;
        return true;
    }
    const char **features = eb_codec_take_elements(
        position->arena, reading->feature_count, sizeof *features, position->error);
    char *text = eb_codec_take_elements(position->arena, text_bytes, 1, position->error);
    if (!features || !text) {
        return false;
    }
    out->features = features;
    out->feature_count = reading->feature_count;
    struct eb_field_reader message = reading->arrays.message;
    struct eb_field_reader name;
    for (size_t i = 0; i < out->feature_count &&
                       eb_codec_find_field(&message, EB_FIELD_FEATURE_GROUP_FEATURES, &name);
         i++) {
        features[i] = text;
        if (!eb_codec_copy_name(text, name)) {
            return eb_codec_fail(position);
        }
        text += eb_field_reader_bytes(&name) + 1;
    }
    return true;
}

static bool check_group_features(const struct group_reading *reading)
{
    const struct eb_codec_position *position = reading->position;
    const struct eb_wire_group *group = reading->out;
    if (group->name[0] != 0 && group->feature_count > 0) {
        return eb_codec_refuse(
            position, "name and features are forms of the same list: give only one");
    }
    for (size_t i = 0; reading->has_empty && i < group->feature_count; i++) {
        if (group->features[i][0] == 0) {
            return eb_codec_refuse(position, "features[%zu] is empty", i);
        }
    }
    return true;
}

static bool check_group_enums(
    const struct eb_codec_position *position, const struct eb_wire_group *group)
{
    return eb_codec_check_enum(
               position, "reduction", &embag__v1__reduction__descriptor, group->reduction) &&
           eb_codec_check_enum(
               position, "missing", &embag__v1__missing__descriptor, group->missing) &&
           eb_codec_check_enum(
               position, "weights_type", &embag__v1__data_type__descriptor, group->weights_type);
}

static bool choose_group_arrays(const struct group_reading *reading)
{
    const struct eb_codec_position *position = reading->position;
    struct eb_wire_group *out = reading->out;
    if (!eb_codec_choose_array(position, &reading->arrays, GROUP_VALUES, &out->values) ||
        !eb_codec_choose_array(position, &reading->arrays, GROUP_LENGTHS, &out->lengths) ||
        !eb_codec_choose_array(position, &reading->arrays, GROUP_OFFSETS, &out->offsets)) {
        return false;
    }
    if (out->lengths.field && out->offsets.field) {
        return eb_codec_refuse(position, "%s and %s imply different layouts: give only one",
            out->lengths.field, out->offsets.field);
    }
    return true;
}

bool eb_codec_group_read(
    struct eb_codec_position *position, struct eb_field_reader bytes, struct eb_wire_group *out)
{
    struct group_reading reading = {
        .position = position, .arrays = {.forms = group_forms, .message = bytes}, .out = out};
    eb_wire_clear(out, sizeof *out);
    if (!read_group_fields(&reading)) {
        return false;
    }
    out->name = eb_codec_keep_text(reading.name, position->arena, position->error);
    if (!out->name) {
        return false;
    }
    position->name = out->name;
    return keep_features(&reading) && check_group_enums(position, out) &&
           check_group_features(&reading) && choose_group_arrays(&reading);
}

void eb_codec_group_write(struct eb_field_writer *writer, const struct eb_wire_group *group)
{
    assert(group->lengths.width != 8);
    eb_field_put_text(writer, EB_FIELD_FEATURE_GROUP_NAME, group->name);
    for (size_t i = 0; i < group->feature_count; i++) {
        const char *feature = group->features[i];
        size_t size = strlen(feature);
        eb_field_put_length(writer, EB_FIELD_FEATURE_GROUP_FEATURES, size);
        eb_field_put_content(writer, feature, size);
    }
    eb_field_put_number(writer, EB_FIELD_FEATURE_GROUP_BAGS, group->bags);
    eb_codec_put_array(writer, &group->values, EB_FIELD_FEATURE_GROUP_VALUES_I64,
        EB_FIELD_FEATURE_GROUP_VALUES_I32);
    eb_field_put_bytes(
        writer, EB_FIELD_FEATURE_GROUP_LENGTHS_I32, group->lengths.data, group->lengths.bytes);
    eb_codec_put_array(writer, &group->offsets, EB_FIELD_FEATURE_GROUP_OFFSETS_I64,
        EB_FIELD_FEATURE_GROUP_OFFSETS_I32);
    eb_field_put_bytes(
        writer, EB_FIELD_FEATURE_GROUP_WEIGHTS, group->weights, group->weights_bytes);
    eb_field_put_enum(writer, EB_FIELD_FEATURE_GROUP_WEIGHTS_TYPE, group->weights_type);
    eb_field_put_enum(writer, EB_FIELD_FEATURE_GROUP_REDUCTION, group->reduction);
    eb_field_put_enum(writer, EB_FIELD_FEATURE_GROUP_MISSING, group->missing);
    eb_field_put_number(writer, EB_FIELD_FEATURE_GROUP_MAX_LEN, group->sequence.max_len);
    eb_field_put_number(writer, EB_FIELD_FEATURE_GROUP_KEEP_FIRST, group->sequence.keep_first);
    eb_field_put_number(writer, EB_FIELD_FEATURE_GROUP_PAD, group->sequence.pad);
    eb_field_put_number(writer, EB_FIELD_FEATURE_GROUP_UNIQUE, group->sequence.unique);
}
