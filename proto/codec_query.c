#include "proto/codec_query.h"

#include "embag/v1/embedding_bag.fields.h"
#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>

static const struct eb_codec_form forms[] = {
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
#define FORM(name) (1u << EB_FIELD_BAG_QUERY_##name)
#define INDICES (FORM(INDICES_I64) | FORM(INDICES_I32) | FORM(INDICES))
#define OFFSETS (FORM(OFFSETS_I64) | FORM(OFFSETS_I32) | FORM(OFFSETS))
#define SEGMENT_IDS (FORM(SEGMENT_IDS_I64) | FORM(SEGMENT_IDS_I32) | FORM(SEGMENT_IDS))
#define LENGTHS (FORM(LENGTHS_I64) | FORM(LENGTHS_I32))

/* A query that is read. */
struct reading {
    struct eb_codec_place *place;
    struct eb_codec_arrays arrays;
    struct eb_field_reader rest; /* of the message */
    struct eb_field_reader table;
    struct eb_wire_query *out;
};

/* These take what follows a field's tag; of several of one number the last one counts. false: the
 * guard does not let it pass. All are inlined, so that what is read can be kept in registers. */

/* The last name is looked at when it is kept. */
static inline bool take_name(struct reading *reading)
{
    const struct eb_field_reader before = reading->table;
    return !eb_field_reader_content(&reading->rest, &reading->table) &&
           (!before.at || eb_codec_is_name(before, reading->place->limits));
}

static inline bool take_query_bytes(struct reading *reading, const void **bytes, size_t *size)
{
    struct eb_field_reader data;
    if (eb_field_reader_content(&reading->rest, &data)) {
        return false;
    }
    *bytes = data.at;
    *size = eb_field_reader_bytes(&data);
    return true;
}

static inline bool take_uint64(struct reading *reading, uint64_t *out)
{
    return !eb_field_reader_number(&reading->rest, out);
}

static inline bool take_uint32(struct reading *reading, uint32_t *out)
{
    uint64_t value;
    if (!take_uint64(reading, &value)) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static inline bool take_enum(struct reading *reading, int32_t *out)
{
    uint64_t value;
    if (!take_uint64(reading, &value)) {
        return false;
    }
    *out = (int32_t)(uint32_t)value;
    return true;
}

static inline bool take_bool(struct reading *reading, bool *out)
{
    uint64_t value;
    if (!take_uint64(reading, &value)) {
        return false;
    }
    *out = value != 0;
    return true;
}

static inline bool take_default(struct reading *reading)
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
    struct reading *reading, uint32_t number, struct eb_wire_array *array)
{
    struct eb_field_reader data;
    if (eb_field_reader_content(&reading->rest, &data)) {
        return false;
    }
    eb_codec_take_array(&reading->arrays, number, data, array);
    return true;
}

static inline bool take_element(struct reading *reading, uint32_t number)
{
    uint64_t value;
    eb_codec_see_array(&reading->arrays, number);
    return take_uint64(reading, &value);
}

static inline bool take_query_elements(struct reading *reading, uint32_t number)
{
    struct eb_field_reader data;
    eb_codec_see_array(&reading->arrays, number);
    return !eb_field_reader_content(&reading->rest, &data) && !eb_field_reader_find_endless(data);
}

static inline bool take_floats(struct reading *reading, uint32_t tag)
{
    struct eb_field field = eb_field_reader_field_of(tag);
    eb_codec_see_array(&reading->arrays, EB_FIELD_BAG_QUERY_WEIGHTS_F32);
    return !eb_field_reader_data(&reading->rest, &field) &&
           eb_field_reader_bytes(&field.data) % sizeof(float) == 0;
}

/* Of a field that is not known. */
static inline bool pass_by(struct reading *reading, uint32_t tag)
{
    struct eb_field field = eb_field_reader_field_of(tag);
    return field.number > EB_FIELD_BAG_QUERY_MAX && !eb_field_reader_data(&reading->rest, &field);
}

/* Each form of an array is a case of its own, in which its number is a constant. */
static inline __attribute__((always_inline)) bool take_query_field(
    struct reading *reading, uint32_t tag)
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
    default: return pass_by(reading, tag);
    }
}

static inline __attribute__((always_inline)) bool read_query_fields(struct reading *reading)
{
    const struct eb_codec_place *place = reading->place;
    uint32_t count = 0;
    for (; reading->rest.at < reading->rest.end; count++) {
        uint32_t tag;
        if (eb_field_reader_tag(&reading->rest, &tag) || !take_query_field(reading, tag)) {
            return eb_codec_fail(place);
        }
    }
    return eb_codec_count_fields(place->limits, count, place->field_count) || eb_codec_fail(place);
}

/* Says which of them has no value of its type. Returns false. */
static __attribute__((noinline, cold)) bool refuse_enums(
    const struct eb_codec_place *place, const struct eb_wire_query *query)
{
    return eb_codec_check_enum(
               place, "reduction", &embag__v1__reduction__descriptor, query->reduction) &&
           eb_codec_check_enum(place, "missing", &embag__v1__missing__descriptor, query->missing) &&
           eb_codec_check_enum(
               place, "weights_type", &embag__v1__data_type__descriptor, query->weights_type) &&
           eb_codec_check_enum(place, "layout", &embag__v1__bag_layout__descriptor, query->layout);
}

static inline bool check_query_enums(
    const struct eb_codec_place *place, const struct eb_wire_query *query)
{
    return (eb_codec_is_value(&embag__v1__reduction__descriptor, query->reduction) &&
               eb_codec_is_value(&embag__v1__missing__descriptor, query->missing) &&
               eb_codec_is_value(&embag__v1__data_type__descriptor, query->weights_type) &&
               eb_codec_is_value(&embag__v1__bag_layout__descriptor, query->layout)) ||
           refuse_enums(place, query);
}

static bool choose_query_arrays(const struct eb_codec_place *place,
    const struct eb_codec_arrays *arrays, struct eb_wire_query *out)
{
    return eb_codec_choose_array(place, arrays, INDICES, &out->indices) &&
           eb_codec_choose_array(place, arrays, OFFSETS, &out->offsets) &&
           eb_codec_choose_array(place, arrays, LENGTHS, &out->lengths) &&
           eb_codec_choose_array(place, arrays, SEGMENT_IDS, &out->segment_ids);
}

/* Takes the layout that a field says; NULL: it is not there. */
static inline bool take_layout(const struct eb_codec_place *place, struct eb_wire_query *out,
    const char **said_by, int32_t layout, const char *field)
{
    if (!field) {
        return true;
    }
    if (*said_by && out->layout != layout) {
        return eb_codec_refuse(place, "%s and %s say two layouts", *said_by, field);
    }
    out->layout = layout;
    *said_by = field;
    return true;
}

/* Fills in out->layout from the fields that are there, which must agree with it where it is said.
 */
static bool choose_layout(const struct eb_codec_place *place, struct eb_wire_query *out)
{
    const char *packed = out->indices_per_bag != 0 ? "indices_per_bag" : NULL;
    const char *segments = out->num_segments != 0 ? "num_segments" : out->segment_ids.field;
    const char *said_by = out->layout != 0 ? "layout" : NULL;
    if (!take_layout(
            place, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS, out->offsets.field) ||
        !take_layout(
            place, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_LENGTHS, out->lengths.field) ||
        !take_layout(place, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_PACKED, packed) ||
        !take_layout(place, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_SEGMENTS, segments)) {
        return false;
    }
    if (out->include_last_offset && said_by &&
        out->layout != EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS) {
        return eb_codec_refuse(place, "include_last_offset and %s say two layouts", said_by);
    }
    return true;
}

/* Of a query whose arrays are settled: where nothing can be read as another layout than offsets,
 * that is the one. false: it is something else. */
static inline bool take_offsets_alone(const struct reading *reading)
{
    const int32_t offsets = EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS;
    struct eb_wire_query *out = reading->out;
    const uint32_t seen = reading->arrays.seen;
    if ((seen & (SEGMENT_IDS | LENGTHS)) != 0 || out->indices_per_bag != 0 ||
        out->num_segments != 0 || (out->layout != 0 && out->layout != offsets)) {
        return false;
    }
    if ((seen & OFFSETS) != 0) {
        out->layout = offsets;
    }
    return true;
}

/* Weights of their own field are taken already. */
static bool choose_weights(const struct eb_codec_place *place, const struct eb_codec_arrays *arrays,
    struct eb_wire_query *out)
{
    if (!(arrays->seen & FORM(WEIGHTS_F32))) {
        return true;
    }
    size_t bytes;
    const void *floats = eb_codec_read_floats(
        arrays->message, EB_FIELD_BAG_QUERY_WEIGHTS_F32, &bytes, place->arena, place->error);
    if (!floats || bytes == 0) {
        return floats;
    }
    if (out->weights_bytes > 0) {
        return eb_codec_refuse(place, "weights and weights_f32 are two forms of one array");
    }
    if (out->weights_type != EMBAG__V1__DATA_TYPE__DATA_TYPE_UNSPECIFIED &&
        out->weights_type != EMBAG__V1__DATA_TYPE__DATA_TYPE_F32) {
        return eb_codec_refuse(
            place, "weights_f32 is not of weights_type = %d", (int)out->weights_type);
    }
    out->weights = floats;
    out->weights_bytes = bytes;
    out->weights_type = EMBAG__V1__DATA_TYPE__DATA_TYPE_F32;
    return true;
}

static inline bool keep_query_table(const struct reading *reading)
{
    struct eb_codec_place *place = reading->place;
    const struct eb_field_reader name = reading->table;
    if (name.at == name.end) {
        reading->out->table = place->name = "";
        return eb_codec_refuse(place, "table is empty");
    }
    if (!eb_codec_is_short(name, place->limits)) {
        return eb_codec_fail(place);
    }
    char *table =
        eb_codec_take_elements(place->arena, eb_field_reader_bytes(&name) + 1, 1, place->error);
    if (!table) {
        return false;
    }
    if (!eb_codec_copy_name(table, name)) {
        return eb_codec_fail(place);
    }
    reading->out->table = place->name = table;
    return true;
}

static inline __attribute__((always_inline)) bool read_query_message(
    struct eb_codec_place *place, struct eb_field_reader bytes, struct eb_wire_query *out)
{
    struct reading reading = {
        .place = place, .arrays = {.forms = forms, .message = bytes}, .rest = bytes, .out = out};
    eb_codec_clear(out, sizeof *out);
    if (!read_query_fields(&reading) || !keep_query_table(&reading) ||
        !check_query_enums(place, out)) {
        return false;
    }
    if (!reading.arrays.is_unsettled && take_offsets_alone(&reading)) {
        return true;
    }
    /* A copy, so that what was read until here can be kept in registers. */
    const struct eb_codec_arrays arrays = {.forms = forms,
        .message = bytes,
        .seen = reading.arrays.seen,
        .is_unsettled = reading.arrays.is_unsettled};
    return choose_query_arrays(place, &arrays, out) && choose_layout(place, out) &&
           choose_weights(place, &arrays, out);
}

bool eb_codec_query_read_all(struct eb_codec_place *place, struct eb_field_reader *message,
    struct eb_wire_query *queries, size_t count)
{
    struct eb_field_reader rest = *message;
    struct eb_field_reader bytes;
    bool is_good = true;
    for (struct eb_wire_query *out = queries + place->index; is_good && out < queries + count;
         out++) {
        const bool is_there = eb_codec_find_field(&rest, EB_FIELD_LOOKUP_REQUEST_QUERIES, &bytes);
        assert(is_there);
        is_good = read_query_message(place, bytes, out);
        place->index += is_good;
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
}
